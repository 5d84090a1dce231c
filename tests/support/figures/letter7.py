"""Algorithm 12 of Mamat 2011 and its dispatcher to the letter, and with each of our readings in place of the paper's.

The effect of each reading shows by itself. `hack/papers --readings` prints docs/papers.md's table: the share of the
processors' time that is used where a twentieth of the accepted jobs miss, for each reading. No set-up costs, one port.
The text leaves m and a least size of chunks open; C of a task is what the last test of admission has found.
"""

import heapq
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from statistics import median
from typing import Any

import numpy as np

from figures.figure import table
from punctual.control.miss_ratio import ENOUGH, GAINS, HIGH, LOW
from punctual.control.pi import PI
from punctual.scheduling.admission.statistical import LEAST, PARTS
from punctual.sim.trace import JobLine, Trace, jobs
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time

BOUNDS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0)


PERIOD, CHUNK, PORT, ARRIVAL = range(4)
"""What happens, in the order in which it is dealt with at one time."""


@dataclass(frozen=True)
class Reading:
    """How the text is read.

    m, least    a chunk takes one m-th of the time left, and no less than this part of a processor's share of the load
    spread      S counts what runs as spread over all processors; else S is C of the last task dispatched
    hopeless    the utilization of a task without time left is infinite; else it is negative, and passes
    behind      a late task is served after those that are in time; else EDF holds for it too
    """

    m: float = 2.0
    least: float = 0.1
    spread: bool = False
    hopeless: bool = False
    behind: bool = False


LETTER = Reading()
READ = Reading(spread=True, hopeless=True, behind=True)
OURS = replace(READ, m=PARTS, least=LEAST)
ROWS = {
    "to the letter, m = 2": LETTER,
    "U < 0 is infinite, late jobs go behind; m = 2": replace(READ, spread=False),
    "and S counts what runs as spread; m = 2": READ,
    "the same, m = 4": replace(OURS, m=4.0),
    "the same, m = 8": replace(OURS, m=8.0),
    "ours, m = 16": OURS,
    "the same, m = 32": replace(OURS, m=32.0),
    "S to the letter, m = 16": replace(OURS, spread=False),
    "to the letter, m = 16": replace(LETTER, m=PARTS, least=LEAST),
}


@dataclass(slots=True)
class Task:
    """``left`` waits of the load, ``out`` chunks run; ``slow`` multiplies τ and χ; ``completion`` is C."""

    line: JobLine
    due: float
    slow: tuple[float, float]
    left: float
    out: int = 0
    completion: float = 0.0

    @property
    def turn(self) -> tuple[float, float, str]:
        """EDF."""
        return self.due, self.line.arrival, self.line.id


TURN = attrgetter("turn")


@dataclass
class Cluster:
    """One run. ``bound``: fixed, or of a ``loop`` that moves it each ``period`` to keep ``set_point``."""

    reading: Reading
    cost: Cost
    processors: int
    bound: float = 1.0
    loop: PI | None = None
    period: float = 100_000.0
    set_point: float = 0.05
    refused: int = 0
    fates: dict[str, bool] = field(default_factory=dict)
    """Whether each task that was accepted has met its deadline."""
    samples: list[tuple[float, float]] = field(default_factory=list)
    """Miss ratio of each period, and the bound from then on."""

    def __post_init__(self) -> None:
        self.all = execution_time(1.0, self.processors, self.cost)  # (7.1): E is linear in the load
        self.free, self.ends = list(range(self.processors)), {}
        self.queue: list[Task] = []
        self.last: Task | None = None
        self.expected, self.real = -inf, -inf  # from when on the port is free
        self.busy = self.end = 0.0
        self.heap: list[tuple[float, int, int, Any]] = []
        self.count = 0
        self.open: dict[str, Task] = {}
        self.counted: list[bool] = []

    def run(self, trace: Trace, slow: Sequence[tuple[float, float]]) -> Mapping[str, float]:
        """Run a trace whose jobs cost so many times what is estimated; return what share was refused, missed, used."""
        asked = jobs(trace)
        for line, each in zip(asked, slow, strict=True):
            self._at(line.arrival, ARRIVAL, Task(line, line.arrival + line.deadline, each, line.load))
        if self.loop is not None:
            self._at(self.period, PERIOD, None)
        while self.heap:
            now, kind, _, what = heapq.heappop(self.heap)
            if kind == PERIOD:
                self._sample(now)
                continue
            if kind == CHUNK:
                self._ended(now, *what)
            elif kind == ARRIVAL:
                self._arrived(now, what)
            self.end = now if kind != PORT else self.end
            self._dispatch(now)
        missed = sum(not met for met in self.fates.values())
        return {
            "rejected": self.refused / len(asked),
            "missed": missed / max(1, len(self.fates)),
            "utilization": self.busy / (self.processors * self.end),
        }

    def _at(self, when: float, kind: int, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.heap, (when, kind, self.count, what))

    def _sample(self, now: float) -> None:
        """Count the tasks that are late by now, and move the bound."""
        if not self.heap:
            return
        for uid in [uid for uid, task in self.open.items() if task.due < now]:
            self.counted.append(False)
            del self.open[uid]
        if len(self.counted) >= ENOUGH:
            ratio = self.counted.count(False) / len(self.counted)
            self.bound = self.loop.step(self.set_point - ratio)
            self.counted.clear()
            self.samples.append((ratio, self.bound))
        self._at(now + self.period, PERIOD, None)

    def _arrived(self, now: float, task: Task) -> None:
        if self._admit(now, task):
            self.open[task.line.id] = task
        else:
            self.refused += 1

    def _admit(self, now: float, task: Task) -> bool:
        """Algorithm 12."""
        if self.reading.spread:
            runs = sum(end - now for end in self.ends.values() if end > now)
            start = max(now, self.expected) + runs / self.processors
        else:
            start = max(now, self.last.completion) if self.last else now
        found = []
        for each in sorted([*self.queue, task], key=TURN):
            if self.reading.hopeless and each is not task and each.due <= now:
                continue
            seconds, window = each.left * self.all, each.due - start
            if (window <= 0.0 and self.reading.hopeless) or (window and seconds / window > self.bound):
                return False
            start += seconds
            found.append((each, start))
        for each, at in found:
            each.completion = at
        insort(self.queue, task, key=TURN)
        return True

    def _dispatch(self, now: float) -> None:
        reading = self.reading
        while self.free and self.queue:
            if self.expected > now * (1.0 + 1e-12):
                self._at(self.expected, PORT, None)
                return
            in_time = (i for i, task in enumerate(self.queue) if task.due > now)
            at = next(in_time, 0) if reading.behind else 0
            task = self.queue[at]
            least = reading.least * task.line.load / self.processors
            size = min(task.left, max(least, (task.due - now) / (reading.m * self.cost.per_unit)))
            task.left -= size
            if task.left <= 1e-9 * task.line.load:
                size, task.left = size + task.left, 0.0
                del self.queue[at]
            task.out += 1
            self.last = task
            self._start(now, task, size)

    def _start(self, now: float, task: Task, size: float) -> None:
        processor = heapq.heappop(self.free)
        tau, chi = task.slow
        self.expected = now + size * self.cost.tau
        self.ends[processor] = now + size * self.cost.per_unit
        begun = max(now, self.real)
        self.real = begun + size * self.cost.tau * tau
        end = self.real + size * self.cost.chi * chi
        self.busy += end - begun
        self._at(end, CHUNK, (processor, task))

    def _ended(self, now: float, processor: int, task: Task) -> None:
        del self.ends[processor]
        heapq.heappush(self.free, processor)
        task.out -= 1
        if not task.left and not task.out:
            met = self.fates[task.line.id] = now <= task.due * (1.0 + 1e-12)
            if self.open.pop(task.line.id, None):
                self.counted.append(met)


def factors(seed: int, count: int, low: float = 0.1, high: float = 2.0) -> list[tuple[float, float]]:
    """Return the factors on τ and χ of so many jobs, as the simulation draws them."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.uniform(low, high, 2).tolist()) for _ in range(count)]


def simulated(reading: Reading, workload: Workload, seed: int, horizon: float, **how: Any) -> Mapping[str, float]:
    """Return what came of one run."""
    trace = workload.draw(seed=seed, horizon=horizon)
    cluster = Cluster(reading, workload.cost, workload.processors, **how)
    return cluster.run(trace, factors(seed, len(jobs(trace))))


def at_miss_ratio(
    reading: Reading, workload: Workload, seed: int, horizon: float, *, missed: float = 0.05
) -> tuple[float, float, float]:
    """Return bound, utilization and share refused where so many miss: between the two fixed bounds about it."""
    before = None
    for bound in BOUNDS:
        found = simulated(reading, workload, seed, horizon, bound=bound)
        point = found["missed"], bound, found["utilization"], found["rejected"]
        if point[0] >= missed:
            if before is None:
                return point[1:]
            part = (missed - before[0]) / (point[0] - before[0])
            return tuple(a + part * (b - a) for a, b in zip(before[1:], point[1:], strict=True))
        before = point
    return before[1:]


def readings(dc_ratio: float, *, load: float = 1.2, horizon: float = 1e6, seeds: int = 5) -> Iterator[str]:
    """Yield the lines of a table with a row for each reading: medians of the seeds, and their span."""
    workload = Workload(cost=Cost(100.0, 1.0), processors=16, load=load, average=200.0, dc_ratio=dc_ratio)
    head = f"DCRatio {dc_ratio:g}, %", "bound", "used", "span of the seeds", "refused", "controlled: missed", "used"
    yield from table(head, []).splitlines()
    for name, reading in ROWS.items():
        each = [at_miss_ratio(reading, workload, seed, horizon) for seed in range(1, seeds + 1)]
        bound, used, refused = (median(column) for column in zip(*each, strict=True))
        span = f"{100 * min(e[1] for e in each):.1f} to {100 * max(e[1] for e in each):.1f}"
        loops = [PI(GAINS, output=1.0, low=LOW, high=HIGH) for _ in each]
        ruled = [simulated(reading, workload, n + 1, 2 * horizon, loop=loop) for n, loop in enumerate(loops)]
        by_loop = [100 * median(r[what] for r in ruled) for what in ("missed", "utilization")]
        yield table((), [[name, f"{bound:.2f}", 100 * used, span, 100 * refused, *by_loop]]).splitlines()[-1]
