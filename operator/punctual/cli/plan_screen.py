"""Answers of ``punctual plan`` for people: the promise or the refusal, a table of chunks, a timeline of processors."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual import reasons
from punctual.cli.plan import JobAnswer, Piece
from punctual.cli.screen import offer
from punctual.notation.duration import format_duration, format_time
from punctual.scheduling.model.job import Offer
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.wording import some, span
from punctual.view.elapsed import clock
from punctual.view.jobs import LackingProcessors

CHUNKS = 40
"""Rows of the table."""
ROWS = 32
"""Rows of the timeline."""
OWN, REDUCE, OTHER, IDLE = ("█", "blue"), ("▒", "blue"), ("░", "dim"), (" ", "")


def show_all(found: Sequence[JobAnswer]) -> None:
    """Print answers, with an empty line between two."""
    console = Console()
    for i, answer in enumerate(found):
        if i:
            console.print()
        show(answer, console)


def show(answer: JobAnswer, console: Console) -> None:
    """Print an answer."""
    verdict = answer.record.admitted
    assert verdict is not None
    word, style = {
        "True": ("would be promised by", "bold green"),
        "False": ("would be refused by", "bold yellow"),
        "Unknown": ("would first be measured in", "bold cyan"),
    }[verdict.status]
    name = f"{answer.job.namespace}/{answer.job.name}"
    by = f" pool {answer.pool}"
    if verdict.reason == reasons.POOL_NOT_FOUND:
        word, by = "would not be evaluated", ""
    console.print(Text.assemble((name, "bold"), " ", (word, style), by), soft_wrap=True)
    for line, tone in _lines(answer):
        console.print(Text(f"  {line}", tone), soft_wrap=True)
    own = [piece for piece in answer.pieces if piece.own]
    if own:
        console.print()
        console.print(_table(answer, own))
        console.print()
        for row in _timeline(answer, own, max(40, min(console.width, 120))):
            console.print(row, soft_wrap=True)


def _lines(answer: JobAnswer) -> Iterator[tuple[str, str]]:
    verdict, record, deadline = answer.record.admitted, answer.record, answer.job.deadline
    assert verdict is not None
    yield f"{verdict.reason}: {verdict.message}", ""
    if record.promise:
        finish = record.promise.finish
        yield f"done by {_moment(finish)}, {span(deadline - finish)} before its deadline at {_moment(deadline)}", ""
    offered = _offered(record.offer)
    if record.offer:
        yield offered or "no other deadline or load would be promised", "yellow"
    if record.promise or offered:  # else no other time would help
        yield from ((line, "dim") for line in _reserves(answer))
    if answer.left:
        yield f"{some(answer.left, 'more unit')} are assigned as processors become free", ""
    if answer.more:
        yield f"the answer is as if {some(answer.more, 'more processor')} had joined the pool", "dim"
    if answer.known:
        yield "a job of this name exists: the answer is as if it were deleted first", "dim"
    if unread := answer.unread:
        names = ", ".join(unread.namespaces)
        busy = f"{unread.busy} of {some(unread.processors, 'processor')}"
        yield f"only jobs of namespace {names} were read: you may not read others. {busy} run other jobs now", "yellow"
        yield "so the operator may promise less; for its own answer, create the job with spec.dryRun: true", "yellow"


def _offered(found: Offer | None) -> str | None:
    if found is None or (found.earliest_deadline is None and not found.largest_load and not found.processors):
        return None
    deadline = None if found.earliest_deadline is None else format_duration(found.earliest_deadline)
    lacking = LackingProcessors(*found.processors) if found.processors else None
    return offer(deadline, found.largest_load, lacking=lacking)


def _reserves(answer: JobAnswer) -> Iterator[str]:
    """Tell what the plan leaves free for errors: why a forecast is later, or a deadline harder, than the cost says."""
    if found := answer.headroom:
        free = f"plans leave {100 * found.part:.3g}% of each processor free"
        yield f"{found.what}: {span(found.seconds)}, of which headroom {span(found.spare)} ({free})"
    if answer.margin and not answer.promised:  # a promise says it in its message
        yield f"the plan must end {span(answer.margin)} before the deadline (margin)"


def _moment(at: float) -> str:
    return format_time(round(at))


def _name(place: Place) -> str:
    return f"{place.node}/{place.slot}"


def _table(answer: JobAnswer, own: Sequence[Piece]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("  processor", "chunk", "units", "starts in", "ends in"):
        table.add_column(name, justify="left" if name in {"  processor", "chunk"} else "right", no_wrap=True)
    for piece in own[:CHUNKS]:
        what = "reduce" if piece.kind == "Reduce" else f"{piece.begin}-{piece.end}"
        units = "" if piece.kind == "Reduce" else str(piece.end - piece.begin)
        times = clock(piece.start - answer.now), clock(piece.until - answer.now)
        table.add_row(f"  {_name(piece.place)}", what, units, *times)
    if len(own) > CHUNKS:
        table.add_row(f"  and {len(own) - CHUNKS} more")
    return table


def _timeline(answer: JobAnswer, own: Sequence[Piece], width: int) -> Iterator[Text]:
    """Draw the job's processors from now to its deadline: its chunks, and those of other jobs."""
    places = list(dict.fromkeys(piece.place for piece in own))
    label = max(len("processor"), *(len(_name(place)) for place in places[:ROWS]))
    cells = width - label - 4
    length = max(answer.job.deadline, *(piece.until for piece in own)) - answer.now
    rows = {place: [IDLE] * cells for place in places[:ROWS]}
    for piece in sorted(answer.pieces, key=lambda piece: piece.own):
        if (row := rows.get(piece.place)) is None:
            continue
        first = min(cells - 1, int(cells * max(0.0, piece.start - answer.now) / length))
        until = min(cells, max(first + 1, round(cells * (piece.until - answer.now) / length)))
        row[first:until] = [(REDUCE if piece.kind == "Reduce" else OWN) if piece.own else OTHER] * (until - first)
    for place, row in rows.items():
        runs = (("".join(cell for cell, _ in run), style) for (_, style), run in groupby(row, key=lambda cell: cell))
        yield Text.assemble(f"  {_name(place):<{label}}  ", *runs)
    if len(places) > ROWS:
        yield Text(f"  and {some(len(places) - ROWS, 'more processor')}", "dim")
    legend = "now" + (" (░ others)" if any(not piece.own for piece in answer.pieces) else "")
    end = f"deadline in {clock(answer.job.deadline - answer.now)}"
    yield Text(f"  {'':<{label}}  {legend}{end:>{max(len(end) + 1, cells - len(legend))}}", "dim")
