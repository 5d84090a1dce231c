"""Jobs for people: moving bars on a terminal, lines of text elsewhere.

Both are made from a :class:`~punctual.view.jobs.Board` and the time. This module does no I/O.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from punctual.notation.duration import format_time
from punctual.scheduling.model.wording import some
from punctual.view.elapsed import clock
from punctual.view.jobs import OVER, Board, ChunkView, JobView, LackingProcessors, State

STYLES: Final[dict[State, str]] = {
    "Waiting": "dim",
    "Measuring": "cyan",
    "Refused": "yellow",
    "Suspended": "dim",
    "Running": "blue",
    "Late": "bold red",
    "Completed": "green",
    "Missed": "bold red",
    "Failed": "bold red",
}
NARROW: Final = 90
"""Cells below which a terminal shows no bars."""
OFTEN: Final = 10.0
"""Seconds between two lines about the progress of a job."""


class Grid(NamedTuple):
    """Width of a name and of the gap between columns, in cells."""

    name: int
    gap: int


def bar(share: float, width: int, style: str) -> Text:
    """Return a bar of ``width`` cells, filled to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    filled = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
    return Text(filled, style=style).append("░" * (width - len(filled)), style="dim")


def screen(board: Board, now: float, *, names: Sequence[str] = (), width: int = 100, height: int = 40) -> Group:
    """Return all jobs with as many of their chunks as fit into the height."""
    jobs = board.in_order(names)
    grid = Grid(12, 1) if width < 110 else Grid(18, 2)
    # beside the bar are the state, per cent and times: where there is no room for all, the bar gives way
    wide = max(8, min(32, width - grid.name - 4 * grid.gap - 77)) if width >= NARROW else 0
    parts: list[RenderableType] = []
    # a job takes three rows beside its chunks
    free = max(0, height - 3 * len(jobs))
    for job in jobs:
        shown = job.chunks[: max(1, free)] if job.chunks and free else ()
        free -= len(shown)
        parts += [_headline(job, now, grid, wide), *_why(job)]
        if shown:
            parts.append(_chunks(shown, now, grid, wide))
        if len(shown) < len(job.chunks):
            parts.append(Text(f"    and {len(job.chunks) - len(shown)} more chunks", style="dim"))
        parts.append(Text(""))
    if not jobs:
        parts.append(Text("no jobs yet", style="dim"))
    return Group(*parts)


def _headline(job: JobView, now: float, grid: Grid, wide: int) -> Table:
    line = Table.grid(padding=(0, grid.gap))
    for column in (grid.name, 9, wide, 4):
        line.add_column(width=column, no_wrap=True)
    line.add_column()
    style = STYLES[job.state]
    times = Text()
    for word, text, tone in _times(job, now):
        times.append(" " * (grid.gap + 1) if times else "").append(f"{word} ", style="dim").append(text, style=tone)
    line.add_row(
        Text(job.name, style="bold"),
        Text(job.state, style=style),
        bar(job.done / job.units, wide, style),
        f"{100 * job.done // job.units}%",
        times,
    )
    return line


def _times(job: JobView, now: float) -> Iterable[tuple[str, str, str]]:
    if job.guest:
        yield ("no", "deadline", "dim") if job.finished is None else ("took", clock(job.finished - job.created), "")
        return
    if job.deadline is None or job.state == "Suspended" or (job.state == "Waiting" and not job.promised):
        return
    if job.finished is not None:
        yield "took", clock(job.finished - job.created), ""
    else:
        left = job.deadline - now
        yield ("deadline in", clock(left), "") if left >= 0 else ("deadline", f"{clock(-left)} ago", "bold red")
        if job.promised and job.start is not None and job.start > now:
            yield "starts in", clock(job.start - now), ""
        if job.end is not None:
            yield "ETA", clock(max(0.0, job.end - now)), ""
    slack = job.slack
    if slack is not None and job.state not in {"Waiting", "Refused", "Failed"}:
        yield "slack", clock(slack), "green" if slack >= 0 else "bold red"


def _why(job: JobView) -> Iterable[Padding]:
    """Yield the reason of a state that does not explain itself, and the offer."""
    if job.state not in {"Refused", "Late", "Missed", "Failed", "Measuring"} and not job.goes_on:
        return
    yield _indented(Text(f"{job.reason}: {job.message}", STYLES[job.state], overflow="fold"))
    if job.has_offer:
        yield _indented(Text(offer_of(job), "yellow"))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 4))


def offer_of(job: JobView) -> str:
    """Return what would be promised instead of a job that exists and can be edited."""
    return offer(job.offered, job.offer_load, edit=job.offered_time, lacking=job.lacking)


def offer(
    deadline: str | None, load: int | None, *, edit: str | None = None, lacking: LackingProcessors | None = None
) -> str:
    """Return what would be promised instead: a deadline as a job can request it, or a load by the requested deadline.

    ``edit``: that deadline as a moment, for a job that exists and can be edited. ``lacking``: the processors with which
    the job would be promised as it is.
    """
    parts = []
    if edit:
        parts.append(f"spec.deadlineTime {edit}")
    elif deadline:
        parts.append(f"a deadline of {deadline}")
    if load:
        parts.append(f"{load} units by the requested deadline")
    if lacking:
        times = f"from {format_time(round(lacking.start))} until {format_time(round(lacking.until))}"
        parts.append(f"all of it with {some(lacking.more, 'more processor')} {times}")
    return f"would be promised: {', or '.join(parts)}"


def _chunks(chunks: Sequence[ChunkView], now: float, grid: Grid, wide: int) -> Table:
    table = Table.grid(padding=(0, grid.gap))
    table.add_column(width=grid.name, justify="right", no_wrap=True)
    table.add_column(width=9, no_wrap=True)
    table.add_column(width=wide, no_wrap=True)
    table.add_column(width=4, no_wrap=True)
    table.add_column(no_wrap=True)
    for chunk in chunks:
        left = chunk.planned_end - now
        if chunk.kind == "Reduce":
            what, share, per_cent = "reduce", (now - chunk.created) / max(1.0, chunk.planned_end - chunk.created), ""
        else:
            what, share = f"{chunk.begin}-{chunk.end}", chunk.done / max(1, chunk.end - chunk.begin)
            per_cent = f"{int(100 * share)}%"
        end = f"ends in {clock(left)}" if left > 0 else "ends now"
        if chunk.kind == "Guest":  # what the node's own work leaves, nothing knows ahead
            end = f"about {clock(left)} left" if left > 0 else "slower than expected"
        table.add_row(
            Text(what, style="dim"),
            Text(chunk.kind.lower() if chunk.kind in {"Pilot", "Guest"} else "", style="dim"),
            bar(share, wide, "blue"),
            per_cent,
            Text.assemble((f"{end}   ", ""), (chunk.node, "dim")),
        )
    return table


class Teller:
    """Returns changes of jobs as lines, for logs and pipes: each decision at once, progress every `OFTEN` seconds."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}
        self._offered: set[str] = set()
        self._progress: dict[str, tuple[float, int]] = {}

    def tell(self, board: Board, now: float, *, names: Sequence[str] = ()) -> list[str]:
        """Return the lines that are due now."""
        lines = []
        for job in board.in_order(names):
            known, told = (job.state, job.reason), self._told.get(job.uid)
            if told != known:
                self._told[job.uid] = known
                self._progress[job.uid] = (now, job.done)
                if job.reason:
                    lines.append(headline(job, now))
            if job.state == "Refused" and job.has_offer and job.uid not in self._offered:
                self._offered.add(job.uid)
                lines.append(f"{job.name}: {offer_of(job)}")
            at, done = self._progress.get(job.uid, (now, 0))
            if job.state not in OVER and job.done != done and now >= at + OFTEN:
                self._progress[job.uid] = (now, job.done)
                lines.append(headline(job, now))
        return lines


def headline(job: JobView, now: float) -> str:
    """Return a job's state in one line."""
    times = ", ".join(f"{word} {text}" for word, text, _ in _times(job, now))
    parts = [f"{job.name}: {job.state}"]
    if job.state in {"Running", "Late"}:
        parts.append(f"{job.done} of {job.units} units, {len(job.chunks)} chunks")
    if job.state != "Running" or not job.done:
        parts.append(f"{job.reason}, {job.message}" if job.message else job.reason)
    if times and job.state != "Refused":
        parts.append(times)
    return "; ".join(parts)
