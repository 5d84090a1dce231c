"""Tables of pools and jobs for people, and the same as JSON: ``punctual top``, ``pools`` and ``submit`` show them."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from punctual import reasons
from punctual.cli.screen import STYLES, bar
from punctual.notation.duration import format_time
from punctual.view.changes import Json
from punctual.view.elapsed import clock
from punctual.view.history import ValueHistory, spark
from punctual.view.jobs import OVER, JobView
from punctual.view.pools import PoolSummary
from punctual.view.rates import RateView

CURVE: Final = 18
"""Cells of a curve."""
BAR: Final = 12
WIDE: Final = 2000
"""Cells of a line in a pipe."""
TEXTS: Final = frozenset(
    (
        "pool",
        "namespace",
        "name",
        "state",
        "ready",
        "progress",
        "last 3 min",
        "why",
        "hold",
        "reserved",
        "scarcest",
        "target rate",
        "aligned",
    )
)
"""Columns of texts; the others have numbers, which stand at the right."""
SPARE: Final = (
    "last 3 min", "progress", "units", "pool", "hold", "bound", "cpu", "nodes", "quota", "pods", "chunks", "%", "eta",
    "why",
)  # fmt: skip
"""Columns that a narrow terminal leaves out, the first of them first. Name, state, deadline and slack are never."""
CUT: Final = ("why", "namespace", "name", "target rate")
"""Columns of texts that may be cut, the first of them first."""
LEAST, ENOUGH = 9, 20
"""Cells to which a text may be cut; and before which other columns are left out."""
GAP: Final = 2


class Past(NamedTuple):
    """The last minutes, for curves."""

    history: ValueHistory
    now: float

    def curve(self, key: str, most: float, style: str) -> Text:
        """Draw a value's last minutes, ``most`` as the full height."""
        return Text(spark(self.history.values(key, self.now, CURVE), most), style=style)


def show(*parts: RenderableType) -> None:
    """Print tables and texts. In a pipe, no line is cut or broken, and none ends with blanks."""
    console = Console()
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    console = Console(width=WIDE, record=True, file=io.StringIO())
    console.print(*parts, sep="\n")
    print(*(line.rstrip() for line in console.export_text().splitlines()), sep="\n")


def grid(columns: Sequence[str], widths: Sequence[int | None] = ()) -> Table:
    """Return an empty table; numbers stand at the right."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0))
    for name, width in zip(columns, widths or [None] * len(columns), strict=True):
        side: JustifyMethod = "left" if name in TEXTS else "right"
        table.add_column(name.upper(), justify=side, no_wrap=True, overflow="ellipsis", width=width)
    return table


class Columns:
    """A table that leaves out its `SPARE` columns where it is wider than the terminal, and then cuts its texts."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._rows: list[tuple[str | Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row: a cell for each column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        widths = {
            name: max(map(_cells, (name, *column))) for name, *column in zip(self._names, *self._rows, strict=True)
        }
        kept = {name: min(cells, ENOUGH) if name in CUT else cells for name, cells in widths.items()}
        for name in SPARE:
            if _over(kept, options.max_width) > 0:
                kept.pop(name, None)
        kept |= {name: widths[name] for name in kept}
        for name in CUT:
            if name in kept:
                kept[name] = max(min(LEAST, kept[name]), kept[name] - max(0, _over(kept, options.max_width)))
        table = grid([*kept], [*kept.values()])
        for row in self._rows:
            table.add_row(*(cell for name, cell in zip(self._names, row, strict=True) if name in kept))
        yield table


def _cells(text: str | Text) -> int:
    return text.cell_len if isinstance(text, Text) else cell_len(text)


def _over(widths: Mapping[str, int], room: int) -> int:
    """Return by how many cells columns are wider than there is room."""
    return sum(widths.values()) + GAP * (len(widths) - 1) - room


def pools(found: Iterable[PoolSummary], *, past: Past | None = None, wide: bool = False) -> Columns:
    """Return a table of pools; with ``past``, with a curve of the processors in use."""
    more = ["nodes", "cpu", "hold", "bound"] if wide else []
    table = Columns(
        ["pool", "processors", "in use", "free", *(["last 3 min"] if past else []), "queue", "ready", *more]
    )
    for pool in found:
        curve = [past.curve(f"pool {pool.name}", pool.processors, "blue")] if past else []
        rest = [str(pool.nodes), pool.cpu, pool.hold, "" if pool.bound is None else f"{pool.bound:.3g}"] if wide else []
        numbers = str(pool.processors), str(pool.used), str(pool.free)
        table.add_row(Text(pool.name, "bold"), *numbers, *curve, str(pool.queue), ready(pool), *rest)
    return table


def rates(found: Iterable[RateView], *, namespaces: bool = False, wide: bool = False) -> Columns:
    """Return a table of target rates."""
    first, more = (["namespace"] if namespaces else []), (["quota", "pods", "pool", "why"] if wide else [])
    table = Columns([*first, "target rate", "state", "target", "actual", "error", "aligned", "skew", *more])
    for rate in found:
        where = [rate.namespace] if namespaces else []
        style = "green" if rate.state in {reasons.ON_TARGET, reasons.BALANCED} else "yellow"
        aligned = Text(rate.aligned, "green" if rate.aligned == "yes" else "yellow")
        rest = [rate.quota, str(rate.pods), rate.pool, rate.why] if wide else []
        table.add_row(
            *where,
            Text(rate.name, "bold"),
            Text(rate.state, style),
            rate.target or rate.asked,
            rate.rate,
            rate.error,
            aligned,
            rate.skew,
            *rest,
        )
    return table


def ready(pool: PoolSummary) -> Text:
    """Return whether a pool is ready, and why not."""
    if pool.ready:
        return Text("yes", "green")
    return Text(pool.reason or "not processed yet", "yellow")


def jobs(
    found: Iterable[JobView], now: float, *, past: Past | None = None, namespaces: bool = False, wide: bool = False
) -> Columns:
    """Return a table of jobs; with ``past``, with a curve of their progress."""
    columns = [
        *(["namespace"] if namespaces else []),
        "name",
        "state",
        "progress",
        "%",
        *(["last 3 min"] if past else []),
    ]
    table = Columns([*columns, "chunks", "deadline", "eta", "slack", *(["pool", "units", "why"] if wide else [])])
    for job in found:
        style = STYLES[job.state]
        curve = [past.curve(job.uid, 1.0, style)] if past else []
        first = [job.namespace] if namespaces else []
        share = job.done / job.units
        rest = [job.pool, f"{job.done}/{job.units}", reason(job)] if wide else []
        table.add_row(
            *first,
            Text(job.name, "bold"),
            Text(job.state, style),
            bar(share, BAR, style),
            str(100 * job.done // job.units),
            *curve,
            str(len(job.chunks) or ""),
            *_times(job, now),
            *rest,
        )
    return table


def reason(job: JobView) -> str:
    """Return the reason of a state, with its message."""
    return f"{job.reason}: {job.message}" if job.message else job.reason


def _times(job: JobView, now: float) -> tuple[Text, Text, Text]:
    """Return the time until the deadline and until the end, and the slack."""
    nothing = Text("")
    if job.guest and job.state not in OVER:
        return Text("none", "dim"), nothing, nothing
    if job.deadline is None or job.state in {"Suspended", "Refused", "Failed"}:
        return nothing, nothing, nothing
    late = job.slack is not None and job.slack < 0
    slack = nothing if job.slack is None else Text(clock(job.slack), "bold red" if late else "green")
    if job.state in OVER:
        return nothing, nothing, slack
    left = Text(clock(job.deadline - now), "bold red" if job.deadline < now else "")
    return left, nothing if job.end is None else Text(clock(max(0.0, job.end - now))), slack


def in_order(found: Iterable[JobView]) -> list[JobView]:
    """Return what is under way by deadline, then what waits for its user, then what has ended, the newest first."""
    rank: Callable[[JobView], int] = lambda job: 2 if job.state in OVER else job.state in {"Refused", "Suspended"}  # noqa: E731
    far = float("inf")
    return sorted(found, key=lambda job: (rank(job), -(job.finished or 0.0), job.deadline or far, job.name))


def pool_document(pool: PoolSummary) -> Json:
    """Return a pool as JSON."""
    found: Json = {"name": pool.name, "processors": pool.processors, "inUse": pool.used, "free": pool.free}
    found |= {"queue": pool.queue, "nodes": pool.nodes, "scarcest": pool.scarcest or None}
    found |= {"ready": pool.ready, "reason": pool.reason}
    return found


def rate_document(rate: RateView) -> Json:
    """Return a target rate as JSON; numbers as in its status."""
    found: Json = {"namespace": rate.namespace, "name": rate.name, "pool": rate.pool, "state": rate.state}
    found |= {"message": rate.why, "pods": rate.pods, "coscheduling": rate.coscheduling}
    numbers = {"target": rate.target, "actual": rate.rate, "error": rate.error, "quota": rate.quota}
    numbers |= {"aligned": rate.aligned, "offset": rate.offset, "skew": rate.skew}
    found |= {name: text for name, text in numbers.items() if text}
    return found if rate.load is None else found | {"load": rate.load}


def job_document(job: JobView) -> Json:
    """Return a job as JSON; times as in statuses, spans in seconds."""
    times = {"deadlineTime": job.deadline, "eta": job.eta, "finishTime": job.finished}
    found: Json = {"namespace": job.namespace, "name": job.name, "pool": job.pool, "state": job.state}
    found |= {"reason": job.reason, "message": job.message} | ({"class": "Guest"} if job.guest else {})
    found |= {"units": {"done": job.done, "total": job.units}, "chunks": len(job.chunks)}
    found |= {name: format_time(at) for name, at in times.items() if at is not None}
    if job.slack is not None:
        found["slackSeconds"] = round(job.slack, 3)
    if job.has_offer:
        offer = {
            "earliestDeadline": job.offered,
            "earliestDeadlineTime": job.offered_time,
            "largestLoad": job.offer_load,
        }
        found["offer"] = {name: value for name, value in offer.items() if value is not None}
        if job.lacking:
            more, start, until = job.lacking
            found["offer"]["processors"] = {"more": more, "from": format_time(start), "until": format_time(until)}
    return found
