"""The result of a simulation for people: a short table, a timeline in letters, a picture."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.sim.options import Options
from punctual.sim.report import Decision, Finished, Result
from punctual.sim.trace import JobLine, Line, ReservationLine, Trace, jobs
from punctual.view import svg as picture
from punctual.view.elapsed import clock
from punctual.view.jobs import JobView, State
from punctual.view.timeline import Bar, TimelineView

ROWS = 32
"""Maximum processors that a terminal's timeline shows."""
SHOWN = 40
"""Maximum jobs that the table shows."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
COLOURS = ("blue", "yellow", "green", "magenta", "red", "cyan")
BOOKED = ("░", "dim")
"""A processor that a reservation holds."""
IDLE = (" ", "")
Letter = tuple[str, str]
"""The letter of a job, and its style."""


def show(result: Result, trace: Trace, options: Options) -> None:
    """Print a short table and, in a terminal, a timeline."""
    console = Console()
    ends = {job.id: job for job in result.jobs}
    lines = {line.id: line for line in trace.lines}
    letters = _letters(result, lines) if console.is_terminal else {}
    table = Table(box=None, header_style="dim")
    for name in (*([""] if letters else []), "job", "arrival", "load", "deadline", "answer", "finish", "slack"):
        table.add_column(name, justify="left" if name in {"", "job", "answer"} else "right")
    for decision in result.decisions[:SHOWN]:
        letter = [Text(*letters.get(decision.id, IDLE))] if letters else []
        table.add_row(*letter, *_cells(decision, lines[decision.id], ends.get(decision.id)))
    console.print(table)
    if (more := len(result.decisions) - SHOWN) > 0:
        console.print(f"… and {more} more", style="dim")
    if letters:
        for row in _rows(result, lines, letters, options.processors, max(20, console.width - 8)):
            console.print(row)
    found = result.metrics()
    took, offers = found["decision_seconds"], found["offer_seconds"]
    offered = f", an offer at most {1e3 * offers['max']:.2g} ms" if result.offer_seconds else ""
    console.print(
        f"refused {found['reject_ratio']:.1%}, missed {found['miss_ratio']:.1%}, utilization "
        f"{found['utilization']:.1%}; a decision took {1e3 * took['p50']:.2g} ms, "
        f"at most {1e3 * took['max']:.2g} ms{offered}"
    )


def _cells(decision: Decision, line: Line, end: Finished | None) -> tuple[str | Text, ...]:
    """Return a decision's row of the table."""
    if isinstance(line, ReservationLine):
        until = f"{line.end:.6g}" if decision.accepted else ""
        return line.id, f"{line.arrival:.6g}", *_window(line), _answer(decision), until, ""
    assert isinstance(line, JobLine)
    due = line.arrival + line.deadline
    finish = end.finish if end else None
    shown, margin = ("", "") if finish is None else (f"{finish:.6g}", f"{due - finish:.6g}")
    words = line.id, f"{line.arrival:.6g}", f"{line.load:.6g}", f"{due:.6g}"
    return *words, _answer(decision), shown, Text(margin, "" if end and end.met else "red")


def _window(line: ReservationLine) -> tuple[str, str]:
    return f"{line.processors} ahead", f"from {line.start:.6g}"


def _answer(decision: Decision) -> Text:
    if decision.accepted:
        return Text("promised", "green")
    offer = "" if decision.earliest_deadline is None else f", deadline {decision.earliest_deadline:.6g} would do"
    return Text(f"{decision.reason}{offer}", "yellow")


def _letters(result: Result, lines: Mapping[str, Line]) -> dict[str, Letter]:
    """Return the letters of the timeline: jobs in the order in which they were admitted, reservations as shading."""
    letters: dict[str, Letter] = {}
    number = 0
    for decision in result.decisions:
        if decision.accepted and isinstance(lines[decision.id], JobLine):
            letters[decision.id] = LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)]
            number += 1
        elif decision.accepted:
            letters[decision.id] = BOOKED
    return letters


def _rows(
    result: Result, lines: Mapping[str, Line], letters: Mapping[str, Letter], processors: int, width: int
) -> Iterator[Text]:
    """Draw processors as rows of letters: which job has each one when."""
    windows = [(line, d) for d in result.decisions if d.accepted and isinstance(line := lines[d.id], ReservationLine)]
    held = [(line.id, p, line.start, line.end) for line, d in windows for p in d.processors or ()]
    spans = [*held, *((chunk.job, chunk.processor, chunk.send_start, chunk.end) for chunk in result.chunks)]
    last = max((end for *_, end in spans), default=0.0)
    if not last:
        return
    rows = [[IDLE] * width for _ in range(min(processors, ROWS))]
    for name, processor, begin, end in spans:
        if processor < len(rows):
            first = min(int(width * begin / last), width - 1)
            until = max(int(width * end / last), first + 1)
            rows[processor][first:until] = [letters[name]] * (until - first)
    for i, row in enumerate(rows):
        runs = (("".join(letter for letter, _ in run), style) for (_, style), run in groupby(row))
        yield Text.assemble((f"{i:>5}  ", "dim"), *runs)
    if processors > ROWS:
        yield Text(f"{'':>7}and {processors - ROWS} more processors", "dim")
    yield Text(f"{'0':>8}{clock(last):>{width - 1}}", "dim")


def draw(result: Result, trace: Trace, options: Options) -> str:
    """Return the timeline as SVG."""
    ends = {job.id: job for job in result.jobs}
    decisions = {decision.id: decision for decision in result.decisions}
    shown = tuple(_job(line, decisions[line.id], ends) for line in jobs(trace) if line.id in decisions)
    width = len(str(options.processors - 1))
    bars = tuple(
        Bar(
            job=chunk.job,
            label=chunk.job,
            kind="Chunk",
            node=f"processor {chunk.processor:0{width}d}",
            row=0,
            created=chunk.send_start,
            started=chunk.send_end,
            ended=chunk.end,
            planned_end=None,
            failed=chunk.load == 0,
        )
        for chunk in result.chunks
    )
    reserved = {line.id: line for line in trace.lines if isinstance(line, ReservationLine)}
    held = [(reserved[d.id], p) for d in result.decisions if d.id in reserved for p in d.processors or ()]
    bars += tuple(_held(line, f"processor {p:0{width}d}") for line, p in held)
    shown += tuple(_reservation(reserved[d.id], d) for d in result.decisions if d.id in reserved)
    promised = {d.id: d.promised_finish for d in result.decisions if d.promised_finish is not None}
    rows = tuple((f"processor {p:0{width}d}", 1) for p in range(options.processors))
    last = max([1.0, *(bar.ended for bar in bars), *(job.deadline or 0.0 for job in shown if job.kept)])
    line = TimelineView(shown, bars, rows, 0.0, last, promised)
    return picture.svg(line, title="Simulated jobs", pale="its input is sent", dated=False)


def _held(line: ReservationLine, node: str) -> Bar:
    sent = line.start + (line.end - line.start) * line.io_ratio
    return Bar(line.id, line.id, "Reservation", node, 0, line.start, sent, line.end, None, failed=False)


def _reservation(line: ReservationLine, decision: Decision) -> JobView:
    state: State = "Completed" if decision.accepted else "Refused"
    end = line.end if decision.accepted else None
    return replace(_asked(line, decision, state, end), processors=line.processors, start=line.start)


def _job(line: JobLine, decision: Decision, ends: dict[str, Finished]) -> JobView:
    end = ends.get(line.id)
    state: State = "Refused" if end is None else "Completed" if end.met else "Missed"
    offered = None if decision.earliest_deadline is None else f"{decision.earliest_deadline:.6g} s"
    asked = _asked(line, decision, state, end.finish if end else None)
    return replace(asked, deadline=line.arrival + line.deadline, finish=decision.promised_finish, offered=offered)


def _asked(line: JobLine | ReservationLine, decision: Decision, state: State, finished: float | None) -> JobView:
    """Return a job or reservation in the form that pictures use."""
    return JobView(
        uid=line.id, namespace="", name=line.id, created=line.arrival, units=0, done=0, state=state,
        reason=decision.reason, message="", deadline=None, finish=None, processors=None, start=None, eta=None,
        offered=None, offered_time=None, offer_load=None, chunks=(), started=None, finished=finished,
    )  # fmt: skip
