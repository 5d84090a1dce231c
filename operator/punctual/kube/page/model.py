"""What the page shows, as JSON: pools with bars on processors, jobs and target rates. Made from a leader's state.

``{"now": …, "pools": {name: …}, "jobs": {uid: …}, "rates": {uid: …}}``; times in seconds since 1970. A viewer gets it
once, and then patches by RFC 7386: entries that changed, and null for those that are gone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, Final, Literal, NamedTuple

from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.rates import KnownRate
from punctual.kube.known.reservations import KnownReservation
from punctual.kube.known.translate import explanation, job_state
from punctual.scheduling.model.job import JobRecord
from punctual.scheduling.model.processors import Place
from punctual.scheduling.view import PlacedWork, PoolView
from punctual.view.rates import RateView, rate_of

Json = dict[str, Any]
MOST_BARS: Final = 5000
"""Maximum number of bars of a pool: work further back in its queue is left out."""
MOST_JOBS: Final = 2000
"""Maximum number of jobs."""
MOST_RATES: Final = 500
"""Maximum number of target rates."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a leader knows at ``now`` (the API server's clock). Nothing of it is copied."""

    now: float
    pools: Mapping[str, PoolView]
    jobs: Mapping[str, KnownJob]
    """By uid."""
    reservations: Mapping[str, KnownReservation]
    """By uid."""
    rates: Mapping[str, KnownRate]
    """By uid."""


def page(reading: Reading, visible: Collection[str] | None = None) -> Json:
    """Return all that a viewer sees. ``visible``: the namespaces; None: all.

    Work and reservations of other namespaces are bars without a name: they show that a processor is busy.
    """
    jobs = _jobs(reading, visible)
    pools = {name: _pool(view, reading, visible) for name, view in sorted(reading.pools.items())}
    return {
        "now": round(reading.now, 1),
        "pools": pools,
        "jobs": dict(islice(jobs.items(), MOST_JOBS)),
        "omitted": max(0, len(jobs) - MOST_JOBS),
        "rates": dict(islice(_rates(reading, visible), MOST_RATES)),
    }


def patch(before: Json, after: Json) -> Json:
    """Return the merge patch that turns one page into a later one."""
    changed: Json = {"now": after["now"], "omitted": after["omitted"]}
    for part in ("pools", "jobs", "rates"):
        old, new = before[part], after[part]
        entries = {key: value for key, value in new.items() if old.get(key) != value}
        entries |= dict.fromkeys(old.keys() - new.keys())
        if entries:
            changed[part] = entries
    return changed


def _jobs(reading: Reading, visible: Collection[str] | None) -> dict[str, Json]:
    """Return the visible jobs of the pools by uid: first those that are not over, the earliest deadline first.

    Those without a deadline, which no Pool knows, come behind.
    """
    seen = (
        (uid, known)
        for uid, known in reading.jobs.items()
        if (view := reading.pools.get(known.owner.pool)) is not None
        and (uid in view.jobs or (known.term.record is not None and not known.deleting))
        and (visible is None or known.owner.namespace in visible)
    )
    rows = [(uid, _job(known)) for uid, known in seen]
    rows.sort(key=lambda row: (row[1]["over"] is not None, -(row[1]["over"] or 0.0), row[1]["deadline"] or inf))
    return dict(rows)


def _job(known: KnownJob) -> Json:
    record, owner = known.term.record or JobRecord(), known.owner
    promise = record.promise
    deadline = promise.deadline if promise else known.term.job.deadline if known.term.job else None
    if deadline == inf:  # none; JSON has no such number
        deadline = None
    end = record.finished or record.eta
    answer = explanation(record)
    return {
        "namespace": owner.namespace,
        "name": owner.name,
        "pool": owner.pool,
        "state": job_state(record),
        "reason": answer.reason if answer else "",
        "done": record.done,
        "units": owner.units,
        "processors": promise.processors if promise else None,
        "deadline": deadline,
        "end": end,
        "slack": None if deadline is None or end is None or promise is None else round(deadline - end, 1),
        "over": record.over,
    }


def _rates(reading: Reading, visible: Collection[str] | None) -> Iterator[tuple[str, Json]]:
    """Yield the visible target rates by uid, ordered by name."""
    seen = (known for known in reading.rates.values() if visible is None or known.namespace in visible)
    for known in sorted(seen, key=lambda known: (known.namespace, known.name)):
        rate = rate_view(known)
        yield (
            rate.uid,
            {
                "namespace": rate.namespace,
                "name": rate.name,
                "pool": rate.pool,
                "state": rate.state,
                "target": rate.target or rate.asked,
                "actual": rate.rate,
                "error": rate.error,
                "aligned": rate.aligned,
                "skew": rate.skew,
            },
        )


def rate_view(known: KnownRate) -> RateView:
    """Return a TargetRate as explanations read it."""
    spec = known.spec.manifest() if known.spec else {}
    return rate_of({"metadata": known.metadata.manifest(), "spec": spec, "status": known.term.status})


def _pool(view: PoolView, reading: Reading, visible: Collection[str] | None) -> Json:
    bars = list(islice(_bars(view, reading, visible), MOST_BARS))
    known = (Place(node.name, slot) for node in view.nodes for slot in range(node.processors))
    rows = sorted({*known, *(bar.place for bar in bars)})  # a pod may be on a processor that its node no longer has
    index = {place: i for i, place in enumerate(rows)}
    return {
        "processors": view.processors,
        "free": view.free,
        "scarcest": view.scarcest,
        "undecided": view.undecided,
        "shares": [
            [use.namespace, round(use.promised, 3), use.share]
            for use in view.shares(reading.now)
            if visible is None or use.namespace in visible
        ],
        "rows": [[place.node, place.slot] for place in rows],
        "bars": [[index[bar.place], *bar[1:]] for bar in bars],
    }


class _Bar(NamedTuple):
    """Something on a processor. ``start``: None: now; ``end``: None: without end; ``job``: its uid, if visible."""

    place: Place
    kind: Literal["running", "planned", "reserved", "placeholder"]
    start: float | None
    end: float | None
    job: str = ""
    label: str = ""


def _bars(view: PoolView, reading: Reading, visible: Collection[str] | None) -> Iterator[_Bar]:
    def work(kind: Literal["running", "planned"], uid: str, piece: PlacedWork) -> _Bar:
        known = reading.jobs.get(uid)
        bar = _Bar(piece.place, kind, round(piece.start, 1), round(piece.until, 1))
        if known is None or not (visible is None or known.owner.namespace in visible):
            return bar
        label = f"units {piece.begin} to {piece.end - 1}" if piece.kind == "Chunk" else piece.kind.lower()
        return bar._replace(job=uid, label=label)

    occupied = set()
    for uid, piece in view.all_running():
        occupied.add(piece.place)
        yield work("running", uid, piece)
    yield from _reserved(view, reading, visible)
    for node in view.nodes:
        if node.held_since is not None:
            free = (Place(node.name, slot) for slot in range(node.processors))
            yield from (_Bar(place, "placeholder", None, None) for place in free if place not in occupied)
    for uid, piece in view.all_planned():
        yield work("planned", uid, piece)


def _reserved(view: PoolView, reading: Reading, visible: Collection[str] | None) -> Iterator[_Bar]:
    places = view.reservations
    for known in reading.reservations.values():
        meta = known.metadata
        label = f"{meta.namespace}/{meta.name}" if visible is None or meta.namespace in visible else ""
        for uid, window in known.term.windows.by_name.items():
            for place in places.get(uid, ()):
                yield _Bar(place, "reserved", window.start, window.end, label=label)
