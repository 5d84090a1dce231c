"""``punctual bench``: measures the core on this machine against the papers' algorithms, in the same run.

Queues are synthetic: loads and costs are the paper's (Mamat 2011, 6.4: χ = 1000, τ = 1, loads around 1000), all
processors are busy, and jobs come to random places of the queue. All measured jobs are admitted, since a refusal is
less work. Each decision is measured once, without taking the best of several runs; as in `timeit`, the garbage
collector is suspended. Each decision is measured by the wall clock and by the CPU clock of its thread. The wall clock
includes the time in which other programs use the core; the CPU clock does not.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.benchmarks.literal import AcFast, EdfIit2, Task
from punctual.errors import InvariantError
from punctual.gc_pause import uncollected
from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time

COST = Cost(1000.0, 1.0)
AVERAGE = 1000.0
"""Units in a load."""
Floats = NDArray[np.float64]


class Spent(NamedTuple):
    """Seconds of a decision: by the wall clock, and CPU time of its thread."""

    wall: float
    cpu: float


Times = list[Spent]
Numbers = dict[str, dict[str, float]]
Tick = Callable[[], object]


@dataclass(frozen=True, slots=True)
class BenchQueue:
    """Waiting jobs and busy processors, as tight as the jobs can be admitted.

    alone   s   time of a job of average load on all processors busy        latest end of running work, and the jobs'
    slack before their deadlines, both as a multiple of ``alone``
    """

    waiting: int
    processors: int
    alone: float
    busy: float

    def ends(self, rng: np.random.Generator) -> Floats:
        """Return when processors will be free."""
        return rng.uniform(0.0, self.busy * self.alone, self.processors)

    def jobs(self, rng: np.random.Generator) -> list[Task]:
        """Return the waiting jobs, in order of deadlines."""
        loads = np.ceil(np.abs(rng.normal(AVERAGE, AVERAGE, self.waiting)) + 1.0)
        dues = self.alone * (1.5 * self.busy + np.cumsum(loads) / AVERAGE)
        return [
            Task(f"w{n}", 0.0, float(load), float(due)) for n, (load, due) in enumerate(zip(loads, dues, strict=True))
        ]

    def more(self, rng: np.random.Generator, count: int) -> list[Task]:
        """Return jobs that come to random places, small enough to fit."""
        dues = self.alone * (2.0 * self.busy + rng.uniform(0.0, 1.0, count) * self.waiting)
        return [Task(f"n{n}", 0.0, AVERAGE / 20, due) for n, due in enumerate(dues.tolist())]


Measure = Callable[[BenchQueue, int, Tick], Times]


def fast(line: BenchQueue, decisions: int, tick: Tick) -> Times:
    """Return the seconds of each decision of `FastQueue`, one port; an admitted job is removed again."""
    rng = np.random.default_rng(1)
    queue = FastQueue(line.processors, beta=COST.beta, ends=line.ends(rng).tolist())
    for task in line.jobs(rng):
        turn = (task.due, task.arrival, task.uid)
        queue.join(turn, queue.room(0.0, turn, task.load, COST))
    times: Times = []
    for task in line.more(rng, decisions):
        with timed(times):
            turn = (task.due, task.arrival, task.uid)
            room = queue.room(0.0, turn, task.load, COST)
            if room.fits:
                queue.join(turn, room)
        _must(room.fits)
        queue.leave(turn)
        tick()
    return times


def fast_literal(line: BenchQueue, decisions: int, tick: Tick) -> Times:
    """Return the same for AC-FAST as printed; the queue grows by the jobs that it admits."""
    rng = np.random.default_rng(1)
    ends = line.ends(rng).tolist()
    test = AcFast(line.processors, COST)
    test.queue = line.jobs(rng)
    start = line.busy * line.alone / 2
    for task in test.queue:
        task.execution = task.load * test.per_load
        start = task.completion = start + task.execution
        task.slack = task.due - task.completion
    least = test.queue[-1].slack
    for task in reversed(test.queue):
        least = task.slack_min = min(least, task.slack)
    times: Times = []
    for task in line.more(rng, decisions):
        with timed(times):
            admitted = test.decide(task, port=0.0, free=ends)
        _must(admitted)
        tick()
    return times


def exact(line: BenchQueue, decisions: int, tick: Tick) -> Times:
    """Return the seconds of each exact decision, with a plan that does not change; concurrent, like most pools."""
    return _exact(line, decisions, tick, stays=False)


def exact_stays(line: BenchQueue, decisions: int, tick: Tick) -> Times:
    """Return the same with admitted jobs that stay: a decision then also makes placements postponed before."""
    return _exact(line, decisions, tick, stays=True)


def _exact(line: BenchQueue, decisions: int, tick: Tick, *, stays: bool) -> Times:
    rng = np.random.default_rng(1)
    places = [Place(f"n{n}", 0) for n in range(line.processors)]
    timeline = Timeline(line.ends(rng))
    plan, missed = Plan.of(places, timeline, [_demand(task) for task in line.jobs(rng)])
    _must(not missed)
    _must(len(plan.placements) == line.waiting)  # all placements are made before the clock runs
    times: Times = []
    for task in line.more(rng, decisions):
        demand = _demand(task)
        with timed(times):
            answer = plan.insert(demand)
            admitted = isinstance(answer, Plan) and answer.placement_of(demand.uid)
        _must(bool(admitted))
        if stays and isinstance(answer, Plan):
            plan = answer
        tick()
    return times


def _demand(task: Task) -> Demand:
    order = Order(task.due, task.arrival, task.uid)
    return Demand(order=order, ranges=Ranges.of((0, round(task.load))), cost=COST, due=task.due)


def exact_literal(line: BenchQueue, decisions: int, tick: Tick) -> Times:
    """Return the same for EDF-IIT-2 in plain Python, without a port: the same jobs, on the same processors."""
    rng = np.random.default_rng(1)
    free = line.ends(rng).tolist()
    test = EdfIit2(Cost(COST.per_unit))
    test.queue = line.jobs(rng)
    times: Times = []
    for task in line.more(rng, decisions):
        with timed(times):
            admitted = test.decide(task, port=0.0, free=free)
        _must(admitted)
        tick()
    return times


def rows(*, quick: bool = False) -> Sequence[tuple[str, Measure, BenchQueue, int]]:
    """Return name, measure, queue and number of decisions of every measurement."""
    less = 10 if quick else 1
    big, small = (
        BenchQueue(n, of, execution_time(AVERAGE, of, COST), 100.0) for n, of in ((37_000, 41_863), (3_000, 512))
    )
    exact_line, exact_small = (BenchQueue(n, 512, AVERAGE * COST.per_unit / 512, 20.0) for n in (1_000, 3_000))
    return (
        ("fast_us", fast, big, 2000 // less),
        ("fast_literal_us", fast_literal, big, 30 // less),
        ("fast_3000_us", fast, small, 2000 // less),
        ("fast_literal_3000_us", fast_literal, small, 300 // less),
        ("exact_ms", exact, exact_line, 200 // less),
        ("exact_stays_ms", exact_stays, exact_line, 200 // less),
        ("exact_stays_3000_ms", exact_stays, exact_small, 200 // less),
        ("exact_3000_ms", exact, exact_small, 1 if quick else 5),
        ("exact_literal_3000_ms", exact_literal, exact_small, 1 if quick else 5),
    )


def admission(*, quick: bool = False) -> Numbers:
    """Measure admission decisions: microseconds of the fast test, milliseconds of the exact one; ratios of medians.

    Medians are used because one decision that the machine delays can outweigh a thousand of the fast ones.
    """
    numbers: Numbers = {}
    todo = rows(quick=quick)
    with _progress(sum(decisions for *_, decisions in todo)) as tick:
        for name, measure, line, decisions in todo:
            numbers[name] = summary(measure(line, decisions, tick), per_second=1e6 if name.endswith("_us") else 1e3)
    pairs = {"fast": ("fast_literal_us", "fast_us"), "fast_3000": ("fast_literal_3000_us", "fast_3000_us")}
    pairs["exact_3000"] = "exact_literal_3000_ms", "exact_3000_ms"
    numbers["ratios"] = {name: round(numbers[a]["p50"] / numbers[b]["p50"], 1) for name, (a, b) in pairs.items()}
    return numbers


def summary(times: Times, *, per_second: float) -> dict[str, float]:
    """Return mean and quantiles by nearest rank, in a unit of which a second has ``per_second``.

    The values are of the wall clock; those of the thread's CPU clock are named ``cpu_mean`` and so on.
    """
    found = _quantiles([spent.wall for spent in times])
    found |= {f"cpu_{name}": value for name, value in _quantiles([spent.cpu for spent in times]).items()}
    return {name: float(f"{value * per_second:.4g}") for name, value in found.items()} | {"decisions": len(times)}


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    line = sorted(seconds)
    return {"mean": sum(line) / len(line)} | {f"p{q}": line[-(-len(line) * q // 100) - 1] for q in (50, 99)}


@contextmanager
def timed(times: Times) -> Iterator[None]:
    """Append the seconds that the body takes. The CPU clock is slow to read, so it is read outside the wall clock."""
    with uncollected():
        cpu, began = thread_time(), perf_counter()
        try:
            yield
        finally:
            wall = perf_counter() - began
            times.append(Spent(wall, thread_time() - cpu))


def _must(admitted: bool) -> None:  # noqa: FBT001  one word, as in assert
    if not admitted:
        raise InvariantError("the benchmark's own job was refused")


@contextmanager
def _progress(total: int) -> Iterator[Tick]:
    """Show a progress bar in a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415  only for terminals
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("decisions", total=total)
        yield lambda: bar.advance(task)


def show(numbers: Numbers, *, as_json: bool) -> None:
    """Print numbers as JSON or as a short table."""
    if as_json:
        print(json.dumps(numbers, indent=1))
        return
    for name, found in numbers.items():
        print(f"{name:22}", "  ".join(f"{key} {value:g}" for key, value in found.items()))
