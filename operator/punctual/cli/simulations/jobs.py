"""``punctual simulate jobs``: a trace through the operator's own Pool under a virtual clock."""

import codecs
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError
from rich.console import Console

from punctual.errors import PunctualError
from punctual.scheduling.model.discipline import Assignment, Rule
from punctual.scheduling.model.pool_spec import Admission
from punctual.sim.options import Options
from punctual.sim.report import Result
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, Trace, first_flaw, read
from punctual.sim.workload import Workload

ADMISSIONS: dict[str, Admission] = {"exact": "Exact", "fast": "Fast", "hybrid": "Hybrid"}
PARTITIONS: dict[str, Rule] = {"OPR": "OPR", "EPR": "EPR", "optimal": "OPR", "equal": "EPR"}
ASSIGNMENTS: dict[str, Assignment] = {"MN": "MN", "AN": "AN", "fewest": "MN", "all": "AN"}
FACTORS = 1e-6, 1e6
"""Smallest and largest factor on a cost."""


class MisusedError(PunctualError):
    """An option or a trace is not valid. The message names it."""


def check(options: Options) -> None:
    """Raise MisusedError if options exclude each other."""
    if options.bound is not None and options.miss_set_point is not None:
        raise MisusedError("--bound: the bound is fixed, --miss-set-point moves it: give one of the two")
    if options.discipline.order != "EDF" and (options.admission != "Exact" or options.spec.loose):
        raise MisusedError(f"--order: {options.discipline.order} has no fast or statistical admission, only EDF has")


def lines(
    trace: str | None,
    workload: Workload | None,
    *,
    seed: int,
    tasks: int | None,
    horizon: float | None,
    processors: int,
) -> Trace:
    """Read a trace or draw one. Raises MisusedError or TraceError if it is not valid."""
    if (trace is None) == (workload is None):
        raise MisusedError("either a TRACE or --workload is needed")
    if workload is not None:
        return generate(workload, seed=seed, tasks=tasks, horizon=horizon)
    return load(trace or "", processors=processors, horizon=horizon)


def load(trace: str, *, processors: int, horizon: float | None) -> Trace:
    """Read a trace from a file, or from standard input for "-"; lines that arrive at ``horizon`` or later are left out.

    Raises TraceError, and MisusedError if the file cannot be read.
    """
    try:
        with _opened(trace) as raw:  # read() itself names the line that is not UTF-8
            found = read(codecs.iterdecode(raw, "utf-8-sig", "surrogateescape"), processors=processors)
    except OSError as error:
        raise MisusedError(f"TRACE: {trace} cannot be read: {error.strerror}") from error
    return found if horizon is None else Trace(tuple(line for line in found.lines if line.arrival < horizon))


def _opened(trace: str) -> AbstractContextManager[BinaryIO]:
    if trace != "-":
        return Path(trace).open("rb")
    if sys.stdin is None:
        raise MisusedError("TRACE: standard input is closed")
    return nullcontext(sys.stdin.buffer)


def generate(workload: Workload, *, seed: int, tasks: int | None, horizon: float | None) -> Trace:
    """Draw jobs as the paper does. Raises MisusedError if nothing ends the workload."""
    if tasks is None and horizon is None:
        raise MisusedError("--tasks or --horizon is needed: the workload has no end of its own")
    try:
        return workload.draw(seed=seed, tasks=tasks, horizon=horizon)
    except ValidationError as error:
        raise MisusedError(f"--workload: what is drawn makes no trace: {first_flaw(error)}") from error


def speeds(file: Path, processors: int) -> tuple[float, ...]:
    """Read one factor on χ per processor."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MisusedError(f"--speeds: {file} cannot be read as JSON: {error}") from error
    fits = isinstance(found, list) and len(found) == processors
    least, most = FACTORS
    if not fits or not all(type(f) in {int, float} and least <= f <= most for f in found):
        raise MisusedError(
            f"--speeds: {file} must be a list of {processors} numbers above 0, one per processor, "
            f"from {least:g} to {most:g}"
        )
    return tuple(float(f) for f in found)


def factors(text: str) -> tuple[float, float]:
    """Read LOW,HIGH."""
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        low, high = -1.0, -1.0
    least, most = FACTORS
    if not least <= low <= high <= most:
        raise MisusedError(
            f"--actual: {text!r} is not LOW,HIGH, two numbers from {least:g} to {most:g} such as 0.5,1.5"
        )
    return low, high


def run(trace: Trace, options: Options) -> Result:
    """Simulate, with a progress bar in a terminal."""
    with _progress(sum(1 for line in trace.lines if not isinstance(line, FaultLine))) as tell:
        return simulate(trace, options, tell=tell)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415  only for terminals
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("answered"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda n: progress.update(task, completed=n)
