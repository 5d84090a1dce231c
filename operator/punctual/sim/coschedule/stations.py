"""The model `stations`: chapter 4 of Solsona 2002, six policies for the ready queues of nodes.

Tasks come to a station one by one, distributed with probability ``pdt``, and leave it when they are served. Stations do
not interact: the model has no network, and switching costs nothing. The text leaves open how long a quantum is, how
receive frequencies arise, and what a task beyond ``maxm`` does. Here ``quantum`` is one mean interarrival time,
frequencies are drawn at each insertion into the queue (equal ones with probability ``symmetry``), and ``maxm`` bounds
the frequencies only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from punctual.sim.coschedule.report import StationsReport
from punctual.sim.coschedule.rounding import TINY, less
from punctual.sim.coschedule.scenario import Stations

OVERTAKING: Final = {"PRE", "DYN", "HPDT"}
"""Policies by which a task may be put before others."""


@dataclass(slots=True, eq=False)
class Task:
    """A task, with those fields of the thesis' model (2.2.1) that its metrics need."""

    distributed: bool
    cf: int
    """Largest frequency of its application's messages; 0: it is local."""
    left: float
    """Service that it still needs."""
    arrived: float
    waited: float = 0.0
    frequency: int = 0
    """The frequency by which policies compare tasks, (2.12) with P = 0."""
    pco: bool = False
    """Whether it may be coscheduled: it had messages when it entered the queue."""
    tco: float = 0.0
    tth: float = 0.0
    """Time that it has run, and has waited, while it might be coscheduled."""
    de: int = 0
    ovt: set["Task"] = field(default_factory=set)
    """How often, and by which tasks, it was overtaken since it last entered the queue."""
    td: float = 0.0
    """Time for which tasks that had overtaken it ran."""


@dataclass(slots=True)
class Sums:
    """What is counted of a station's tasks that are served, and of its queue."""

    served: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Tasks by whether they are distributed; so are ``stays`` and ``waits``."""
    stays: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    waits: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    tco: float = 0.0
    tth: float = 0.0
    td: float = 0.0
    """Of local tasks."""
    length: float = 0.0
    """Length of the queue, times the time for which it lasted."""
    time: float = 0.0

    def count(self, now: float, task: Task) -> None:
        """Count a task that is served."""
        kind = task.distributed
        self.served[kind] += 1
        self.stays[kind] += now - task.arrived
        self.waits[kind] += task.waited
        if kind:
            self.tco += task.tco
            self.tth += task.tth
        else:
            self.td += task.td


def simulate(scenario: Stations, seed: int = 0) -> StationsReport:
    """Run a scenario; the same seed gives the same report, and the same tasks to all policies."""
    stations = []
    for number in range(scenario.stations):
        tasks = scenario.tasks // scenario.stations + (number < scenario.tasks % scenario.stations)
        stations.append(_Station(scenario, tasks, seed, number))
        stations[-1].run()
    return _report([station.sums for station in stations], [station.before for station in stations])


class _Mirrored(Random):
    """Random numbers 1 − u for the numbers u of the same seed."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        return (1.0 - super().random()) % 1.0


class _Station:
    """A station. Each odd one has the mirrored draws of the one before: one is busy when the other is not.

    That halves the error of means, which is large, as busy times are long: with MRQL 5, 80,000 tasks have 2 %.
    """

    def __init__(self, scenario: Stations, tasks: int, seed: int, number: int) -> None:
        self.scenario, self.tasks = scenario, tasks
        self.policy, self.mco, self.mst = scenario.policy, scenario.overtakings, scenario.mst
        draws = _Mirrored if number % 2 else Random
        self.arrivals, self.messages = draws(f"{seed} {number // 2}"), Random(f"{seed} {number} messages")  # noqa: S311
        self.now = 0.0
        self.next = self._interval()
        self.queue: list[Task] = []
        """Tasks in the order in which they are to run; the first one runs."""
        self.running: Task | None = None
        self.turn = self.spin = 0.0
        """What is left of the running task's quantum, and of its vain waiting for a message, which comes before."""
        self.before, self.sums = Sums(), Sums()

    def run(self) -> None:
        """Serve tasks until as many distributed ones are served as are asked for."""
        warm = int(self.scenario.warm * self.tasks)
        while self.before.served[True] + self.sums.served[True] < self.tasks:
            if self.queue:
                self._work()
            else:
                self.sums.time += self.next - self.now
                self.now = self.next
            if self.now >= self.next - TINY:
                self._arrive()
            if warm and self.sums.served[True] == warm:
                self.before, self.sums, warm = self.sums, Sums(), 0

    def _interval(self) -> float:
        return self.arrivals.expovariate(1.0 / self.scenario.mit)

    def _arrive(self) -> None:
        """Let a task come; all policies are given the same ones."""
        draw, scenario = self.arrivals, self.scenario
        distributed = draw.random() < scenario.pdt
        cf = 1 + int(draw.random() * scenario.maxm)
        self._insert(Task(distributed, cf if distributed else 0, draw.expovariate(1.0 / self.mst), self.now))
        self.next = self.now + self._interval()

    def _insert(self, task: Task) -> None:
        """Put a task into the queue: algorithm 4 for PRE and DYN; behind all others, or all of its class, else."""
        task.de = 0
        if task.ovt:
            task.ovt = set()
        if task.cf:
            receive, send = self._frequencies(task.cf)
            task.pco = receive + send > 0
            task.frequency = receive if self.policy == "DYN" else receive + send
        at = len(self.queue)
        if self.policy in OVERTAKING and task.distributed:
            while at and self._overtakes(task, self.queue[at - 1]):
                at -= 1
                self.queue[at].de += 1
                self.queue[at].ovt.add(task)
        self.queue.insert(at, task)

    def _frequencies(self, cf: int) -> tuple[int, int]:
        """Draw how often a task receives and sends: 0 to ``cf``."""
        draw = self.messages.random
        receive = int(draw() * (cf + 1))
        return receive, receive if draw() < self.scenario.symmetry else int(draw() * (cf + 1))

    def _overtakes(self, task: Task, other: Task) -> bool:
        """Return whether a distributed task is put before another one."""
        if self.policy == "HPDT":
            return not other.distributed
        return other.de < self.mco and task.frequency > other.frequency

    def _work(self) -> None:
        """Let the first task spin or run until its turn ends, or another task comes."""
        span = self.next - self.now
        if self.policy == "EXP":
            span = min(span, self._put_first())
        top = self.queue[0]
        if top is not self.running:
            self._dispatch(top)
        spins = self.spin > 0.0
        span = min(span, self.spin if spins else min(self.turn, top.left))
        self._count(top, span, spins=spins)
        self.now += span
        if spins:
            self.spin = less(self.spin, span)
            over = self.spin == 0.0
        else:
            self.turn, top.left = less(self.turn, span), less(top.left, span)
            over = self.turn == 0.0 or top.left == 0.0
        if over:
            self.queue.pop(0)
            self.running = None
            if top.left:
                self._insert(top)
            else:
                self.sums.count(self.now, top)

    def _put_first(self) -> float:
        """Put the first task of the class that has the slice before all; return for how long it has it.

        If no such task is ready, the other class may run: so the thesis has it.
        """
        length = self.scenario.slice
        phase = self.now % (2.0 * length)
        parallel = phase < length
        first = next((n for n, task in enumerate(self.queue) if task.distributed == parallel), 0)
        self.queue.insert(0, self.queue.pop(first))
        return max((length if parallel else 2.0 * length) - phase, TINY)

    def _dispatch(self, top: Task) -> None:
        """Give a task a quantum. One of policy IMP spins before if no message is there, with probability 1 − pdt."""
        self.running, self.turn, self.spin = top, self.scenario.quantum, 0.0
        if self.policy == "IMP" and top.distributed and self.messages.random() > self.scenario.pdt:
            self.spin = self.scenario.spin * self.mst

    def _count(self, top: Task, span: float, *, spins: bool) -> None:
        """Account for a stretch of time, as algorithm 3 does."""
        if top.pco and not spins:
            top.tco += span
        for task in self.queue[1:]:
            task.waited += span
            if task.pco:
                task.tth += span
            if top in task.ovt:
                task.td += span
        self.sums.length += span * len(self.queue)
        self.sums.time += span


def _report(counted: Sequence[Sums], before: Sequence[Sums]) -> StationsReport:
    def total(of: Callable[[Sums], float]) -> float:
        return sum(map(of, counted))

    def mean(of: Callable[[Sums], float], whole: float) -> float | None:
        return total(of) / whole if whole else None

    distributed, local = total(lambda each: each.served[True]), total(lambda each: each.served[False])
    return StationsReport(
        system_code=mean(lambda each: each.tco, total(lambda each: each.tco + each.tth)),
        dret=mean(lambda each: each.stays[True], distributed),
        dwait=mean(lambda each: each.waits[True], distributed),
        lret=mean(lambda each: each.stays[False], local),
        lwait=mean(lambda each: each.waits[False], local),
        task_d=mean(lambda each: each.td, local),
        queue=mean(lambda each: each.length, total(lambda each: each.time)),
        distributed=sum(each.served[True] for each in (*counted, *before)),
        local=sum(each.served[False] for each in (*counted, *before)),
    )
