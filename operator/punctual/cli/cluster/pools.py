"""``punctual pools``: the processors of each pool: what runs, what is promised, what is free and until when.

The plan of a pool is rebuilt from statuses, as ``punctual plan`` does.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from punctual.cli.cluster import tables
from punctual.cli.cluster_state import ClusterState
from punctual.cli.program import similar
from punctual.errors import PunctualError
from punctual.kube.snapshot import Snapshot
from punctual.notation.duration import format_time
from punctual.scheduling.admission.shares import ShareUse
from punctual.scheduling.view import PoolView
from punctual.view.changes import Json
from punctual.view.elapsed import clock
from punctual.view.pools import PoolSummary, pool_of

SHOWN = 4
"""Shares of a pool that are shown. JSON has all."""


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """What a pool's plan says. Times are absolute, s."""

    promised: int
    """Jobs that are promised and have not begun."""
    next_start: float | None
    """When the first processor that is free now has planned work; None: none has."""
    next_end: float | None
    """When the first occupied processor becomes free, by plan."""
    reserved: int
    """Processors that reservations hold now."""
    next_window: float | None
    """When the next window of a reservation begins."""
    shares: Sequence[ShareUse]
    """What is promised to namespaces with a share of the pool."""


def outlook(view: PoolView, now: float) -> PoolOutlook:
    """Return what a pool's plan says now."""
    ahead = view.outlook(now)
    running = [piece for _, piece in view.all_running()]
    busy = {piece.place for piece in running}
    promised = [uid for uid in view.promised if not view.record(uid).started]
    starts = [piece.start for _, piece in view.all_planned() if piece.place not in busy]
    starts += [w.start for w in view.windows if w.start > now and any(place not in busy for place in w.places)]
    return PoolOutlook(
        promised=len(promised),
        next_start=min(starts, default=None),
        next_end=min((piece.until for piece in running), default=None),
        reserved=ahead.reserved,
        next_window=ahead.next_window,
        shares=view.shares(now),
    )


def pools(names: Sequence[str], state: ClusterState, *, output: str) -> None:
    """Print pools. Raises PunctualError if one of ``names`` does not exist."""
    found = state.objects((), ())
    snapshot, now = Snapshot.of(found.bodies), time.time()
    lines = [pool_of(body) for name, body in sorted(snapshot.pools.items()) if not names or name in names]
    for name in names:
        if name not in snapshot.pools:
            raise PunctualError(f"there is no Pool {name}{similar(name, snapshot.pools)}")
    views = {line.name: _outlook(snapshot, line.name, now) if found.whole else None for line in lines}
    note = "" if found.whole else "what is promised is left out: you may not read jobs of all namespaces"
    if output == "json":
        print(json.dumps([_document(line, views[line.name]) for line in lines]))
        return
    shown = table(lines, views, now, wide=output == "wide") if lines else Text("there is no pool yet", "dim")
    tables.show(shown, *shares(views), *([Text(note, "yellow")] if note else []))


def _outlook(snapshot: Snapshot, name: str, now: float) -> PoolOutlook | None:
    try:
        return outlook(snapshot.pool(name, now=now).view(), now)
    except PunctualError:  # no operator has processed it yet
        return None


def table(lines: Sequence[PoolSummary], views: dict[str, PoolOutlook | None], now: float, *, wide: bool) -> Table:
    """Return the table of pools with what their plans say; None: nothing is known of a plan."""
    bounds = any(pool.bound is not None for pool in lines)
    more = ["nodes", "cpu", "hold", *(["bound"] if bounds else []), "queue"] if wide else []
    columns = ["pool", "processors", "running", "promised", "free", "free for", "next end"]
    table = tables.grid([*columns, "reserved", "scarcest", "ready", *more])
    for pool in lines:
        view = views[pool.name]
        bound = ["" if pool.bound is None else f"{pool.bound:.3g}"] if bounds else []
        rest = [str(pool.nodes), pool.cpu, pool.hold, *bound]
        table.add_row(
            Text(pool.name, "bold"),
            str(pool.processors),
            str(pool.used),
            "" if view is None else str(view.promised),
            str(pool.free),
            _free_for(pool, view, now),
            "" if view is None or view.next_end is None else clock(max(0.0, view.next_end - now)),
            "" if view is None else _reserved(view, now),
            pool.scarcest,
            tables.ready(pool),
            *([*rest, str(pool.queue)] if wide else []),
        )
    return table


def _free_for(pool: PoolSummary, view: PoolOutlook | None, now: float) -> str:
    if view is None or not pool.free:
        return ""
    return "no work planned" if view.next_start is None else clock(max(0.0, view.next_start - now))


def _reserved(view: PoolOutlook, now: float) -> str:
    parts = [f"{view.reserved} now"] if view.reserved else []
    if view.next_window is not None:
        parts.append(f"next in {clock(view.next_window - now)}")
    return ", ".join(parts)


def shares(views: Mapping[str, PoolOutlook | None]) -> Iterator[Text]:
    """Yield a line for each pool with shares: what is promised of those that are used most. A pool may have many."""
    for pool, view in views.items():
        if view is None or not view.shares:
            continue
        most = sorted(view.shares, key=lambda use: (-use.promised / use.share, use.namespace))
        shown = [f"{use.namespace} {100 * use.promised:.3g}% of {100 * use.share:.4g}%" for use in most[:SHOWN]]
        more = [f"{len(most) - SHOWN} more"] if len(most) > SHOWN else []
        yield Text(f"promised of {pool}: {', '.join([*shown, *more])}")


def _document(pool: PoolSummary, view: PoolOutlook | None) -> Json:
    found = tables.pool_document(pool)
    if view is not None:
        times = {"freeUntil": view.next_start, "firstEnd": view.next_end, "nextWindow": view.next_window}
        found |= {"promisedJobs": view.promised, "reserved": view.reserved}
        shares = [
            {"namespace": u.namespace, "promised": round(u.promised, 4), "maxShare": u.share} for u in view.shares
        ]
        found |= {"shares": shares} if shares else {}
        found |= {name: format_time(at) for name, at in times.items() if at is not None}
    return found
