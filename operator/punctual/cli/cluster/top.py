"""``punctual top``: pools, target rates and jobs as they are now, and as they were in the minutes that it was shown."""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from punctual.cli.cluster import tables
from punctual.cli.kubectl import Call, Follower, Kubectl
from punctual.cli.screen import STYLES
from punctual.errors import ClusterError
from punctual.view.changes import Change
from punctual.view.history import ValueHistory
from punctual.view.jobs import Board
from punctual.view.rates import RateView

LOOK = 1.0
"""Seconds between two updates of the screen."""
UNREAD = {"Pool": "pools", "TargetRate": "target rates"}
"""Kinds that may be left out, and what to call them."""


def top(kubectl: Kubectl, namespace: str | None, *, wide: bool) -> None:
    """Show pools, target rates and jobs until the user interrupts it. ``namespace`` None: jobs of all namespaces."""
    console, board, history = Console(), Board(), ValueHistory()
    with Follower(kubectl, namespace=namespace, pods=False, pools=True) as follower:
        try:
            with Live(console=console, auto_refresh=False, screen=True) as live:
                while True:
                    board.apply(follower.wait(LOOK))
                    now = time.time()
                    note(history, board, now)
                    past = tables.Past(history, now)
                    shown = screen(
                        board, past, everywhere=namespace is None, wide=wide, height=console.size.height,
                        unread=follower.unread,
                    )  # fmt: skip
                    live.update(shown, refresh=True)
        except KeyboardInterrupt:
            return


def note(history: ValueHistory, board: Board, now: float) -> None:
    """Note what the curves show."""
    values = {f"pool {pool.name}": float(pool.used) for pool in board.pools.values()}
    values |= {job.uid: job.done / job.units for job in board.jobs.values()}
    history.forget(set(values))
    for key, value in values.items():
        history.note(key, now, value)


def screen(
    board: Board, past: tables.Past, *, everywhere: bool, wide: bool, height: int, unread: Collection[str] = ()
) -> Group:
    """Return the screen: pools and target rates, and as many jobs as fit. ``unread``: kinds that were not read."""
    pools = sorted(board.pools.values(), key=lambda pool: pool.name)
    rates = _by_name(board.rates.values())
    jobs = tables.in_order(board.jobs.values())
    left = max(1, height - len(pools) - 5)
    held = rates[: max(1, left // 3)]
    room = max(1, left - len(held) - 2) if rates else left
    parts: list[RenderableType] = [_headline(board, past.now), Text("")]
    parts += [*_notes(unread)]
    if "Pool" not in unread:
        parts.append(tables.pools(pools, past=past, wide=wide))
    if rates:
        parts += [Text(""), tables.rates(held, namespaces=everywhere, wide=wide)]
    if len(rates) > len(held):
        parts.append(Text(f"and {len(rates) - len(held)} more target rates", "dim"))
    parts += [Text(""), tables.jobs(jobs[:room], past.now, past=past, namespaces=everywhere, wide=wide)]
    if len(jobs) > room:
        parts.append(Text(f"and {len(jobs) - room} more jobs", "dim"))
    return Group(*parts)


def _by_name(rates: Iterable[RateView]) -> list[RateView]:
    return sorted(rates, key=lambda rate: (rate.namespace, rate.name))


def _notes(unread: Collection[str]) -> Iterator[Text]:
    """Yield what is left out."""
    return (Text(f"{UNREAD[kind]} are left out: you may not read them", "yellow") for kind in sorted(unread))


def _headline(board: Board, now: float) -> Text:
    """Return the number of jobs by state."""
    states = [job.state for job in board.jobs.values()]
    text = Text(time.strftime("%H:%M:%S", time.localtime(now)), "bold")
    for state, style in STYLES.items():
        if count := states.count(state):
            text.append(f"   {count} ").append(state.lower(), style)
    return text if states else text.append("   no jobs yet", "dim")


def once(found: Mapping[str, Call], *, everywhere: bool, output: str) -> None:
    """Print pools, target rates and jobs as kubectl finds them now. ``found``: what it reads, by kind."""
    board, unread = Board(), []
    for kind, call in found.items():
        try:
            board.apply(_all(kind, call))
        except ClusterError as error:
            if kind not in UNREAD or "(Forbidden)" not in str(error):
                raise
            unread.append(kind)
    pools, rates = sorted(board.pools.values(), key=lambda pool: pool.name), _by_name(board.rates.values())
    jobs = tables.in_order(board.jobs.values())
    notes = [*_notes(unread)]
    if output == "json":
        document = {"pools": [*map(tables.pool_document, pools)], "targetRates": [*map(tables.rate_document, rates)]}
        document |= {"jobs": [*map(tables.job_document, jobs)]}
        print(json.dumps(document | ({"unread": [note.plain for note in notes]} if notes else {})))
        return
    wide = output == "wide"
    parts: list[RenderableType] = [*notes]
    if "Pool" not in unread:
        parts.append(tables.pools(pools, wide=wide))
    if rates:
        parts += [Text(""), tables.rates(rates, namespaces=everywhere, wide=wide)]
    if jobs:
        parts += [Text(""), tables.jobs(jobs, time.time(), namespaces=everywhere, wide=wide)]
    tables.show(*parts)


def _all(kind: str, call: Call) -> Iterator[Change]:
    for body in json.loads(call.answer())["items"]:
        yield Change(kind, "ADDED", body)
