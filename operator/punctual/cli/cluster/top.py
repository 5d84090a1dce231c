"""``punctual top``: pools and jobs as they are now, and as they were in the last minutes that it was shown."""

import json
import time
from collections.abc import Iterator

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

LOOK = 1.0
"""Seconds between two updates of the screen."""
UNREAD = "pools are left out: you may not read them"


def top(kubectl: Kubectl, namespace: str | None, *, wide: bool) -> None:
    """Show pools and jobs until the user interrupts it. ``namespace`` None: jobs of all namespaces."""
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
                        unread=UNREAD if follower.unread else "",
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


def screen(board: Board, past: tables.Past, *, everywhere: bool, wide: bool, height: int, unread: str = "") -> Group:
    """Return the screen: pools, and as many jobs as fit."""
    pools = sorted(board.pools.values(), key=lambda pool: pool.name)
    jobs = tables.in_order(board.jobs.values())
    room = max(1, height - len(pools) - 5)
    parts: list[RenderableType] = [_headline(board, past.now), Text("")]
    parts.append(Text(unread, "yellow") if unread else tables.pools(pools, past=past, wide=wide))
    parts += [Text(""), tables.jobs(jobs[:room], past.now, past=past, namespaces=everywhere, wide=wide)]
    if len(jobs) > room:
        parts.append(Text(f"and {len(jobs) - room} more jobs", "dim"))
    return Group(*parts)


def _headline(board: Board, now: float) -> Text:
    """Return the number of jobs by state."""
    states = [job.state for job in board.jobs.values()]
    text = Text(time.strftime("%H:%M:%S", time.localtime(now)), "bold")
    for state, style in STYLES.items():
        if count := states.count(state):
            text.append(f"   {count} ").append(state.lower(), style)
    return text if states else text.append("   no jobs yet", "dim")


def once(found_pools: Call, found_jobs: Call, *, everywhere: bool, output: str) -> None:
    """Print pools and jobs as kubectl finds them now."""
    board, unread = Board(), ""
    try:
        board.apply(_all("Pool", found_pools))
    except ClusterError as error:
        if "(Forbidden)" not in str(error):
            raise
        unread = UNREAD
    board.apply(_all("DivisibleJob", found_jobs))
    pools = sorted(board.pools.values(), key=lambda pool: pool.name)
    jobs = tables.in_order(board.jobs.values())
    if output == "json":
        document = {"pools": [*map(tables.pool_document, pools)], "jobs": [*map(tables.job_document, jobs)]}
        print(json.dumps(document | ({"unread": [unread]} if unread else {})))
        return
    wide = output == "wide"
    parts: list[RenderableType] = [Text(unread, "yellow") if unread else tables.pools(pools, wide=wide)]
    if jobs:
        parts += [Text(""), tables.jobs(jobs, time.time(), namespaces=everywhere, wide=wide)]
    tables.show(*parts)


def _all(kind: str, call: Call) -> Iterator[Change]:
    for body in json.loads(call.answer())["items"]:
        yield Change(kind, "ADDED", body)
