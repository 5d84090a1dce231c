"""When a node gives its CPU to which application: slices as slots, by earliest deadline first (EDF).

An application's slots on a node are [phase + k·period, + slice) for all integers k. The first ``switch_cost`` seconds
of a slot are lost. If several applications share the node, each slot is a task that is released when it would begin,
needs its slice of CPU and is due at the end of its period; EDF then moves and divides slots. A slot is kept for its
application whether that can use it or not, so no application feels what the others do.

:class:`Slots` are the ones of a single application, in closed form. :class:`SharedNode` divides a node among several;
it writes down slots as far as they are asked for. Both answer the same two questions: when a work is done, and how much
CPU there was between two times.
"""

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import ceil, floor

from punctual.control.rate import Pair

TINY = 1e-9
"""CPU seconds that are not counted: a work that fills its slots exactly does not wait for another one by rounding."""
BLOCK = 32
"""Periods that a shared node writes down at once: so much is written again if a pair changes."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the only application of a node. ``phase``: a part of the period, in [0, 1)."""

    pair: Pair
    phase: float
    switch_cost: float

    def finish(self, start: float, cpu: float) -> float:
        """Return when ``cpu`` seconds have been given from ``start`` on."""
        if cpu <= TINY:
            return start
        whole = self.pair.slice - self.switch_cost
        if whole <= 0.0:
            return float("inf")
        k = self.index(start)
        begin = max(start, self.begin(k) + self.switch_cost)
        here = self.begin(k) + self.pair.slice - begin
        if cpu <= here + TINY:
            return begin + min(cpu, here)
        left = cpu - max(here, 0.0)
        more = max(ceil((left - TINY) / whole), 1)  # slots, the last of them perhaps in part
        return self.begin(k + more) + self.switch_cost + min(left - (more - 1) * whole, whole)

    def given(self, start: float, end: float) -> float:
        """Return the CPU seconds given in [start, end)."""
        return self._until(end) - self._until(start)

    def switched(self, start: float, end: float) -> float:
        """Return the seconds that switching took in [start, end)."""
        cost = min(self.switch_cost, self.pair.slice)

        def until(at: float) -> float:
            k = self.index(at)
            return k * cost + min(at - self.begin(k), cost)

        return until(end) - until(start)

    def index(self, at: float) -> int:
        """Return the number of the last slot that has begun."""
        k = floor(at / self.pair.period - self.phase)
        while self.begin(k) > at:  # rounding
            k -= 1
        while self.begin(k + 1) <= at:
            k += 1
        return k

    def begin(self, k: int) -> float:
        """Return the begin of slot ``k``."""
        return (k + self.phase) * self.pair.period

    def _until(self, at: float) -> float:
        """Return the CPU seconds given from slot 0 until ``at``."""
        whole = max(self.pair.slice - self.switch_cost, 0.0)
        k = self.index(at)
        return k * whole + min(max(at - self.begin(k) - self.switch_cost, 0.0), whole)


@dataclass(slots=True)
class _Task:
    """An application on a shared node: its slots to be, and what EDF still owes it in the present period."""

    slots: Slots | None = None
    k: int = 0
    """Number of the last slot released."""
    budget: float = 0.0
    cost: float = 0.0
    """The part of the budget that is lost first."""
    next: float = float("inf")
    """Time of the next release, which is also the present slot's deadline."""

    def release(self, k: int, *, at: float) -> None:
        """Give it what is left at ``at`` of slot ``k``."""
        assert self.slots is not None
        begin = self.slots.begin(k)
        self.k, self.next = k, self.slots.begin(k + 1)
        self.budget = max(begin + self.slots.pair.slice - max(at, begin), 0.0)
        self.cost = min(max(begin + self.slots.switch_cost - max(at, begin), 0.0), self.budget)


@dataclass(slots=True)
class _Written:
    """What an application has got so far: intervals of CPU, the CPU before each, and the cost of switching."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, begin: float, end: float) -> None:
        """Write an interval down; it goes on with the last one if they touch."""
        if self.ends and self.ends[-1] == begin:
            self.ends[-1] = end
            return
        self.before.append(self.total)
        self.begins.append(begin)
        self.ends.append(end)

    @property
    def total(self) -> float:
        """CPU seconds in all."""
        return self.before[-1] + self.ends[-1] - self.begins[-1] if self.ends else 0.0

    def until(self, at: float) -> float:
        """Return the CPU seconds before ``at``."""
        n = bisect_right(self.begins, at) - 1
        return self.before[n] + min(at, self.ends[n]) - self.begins[n] if n >= 0 else 0.0

    def when(self, cpu: float) -> float:
        """Return the time at which ``cpu`` seconds in all have been given; they are written down already."""
        n = max(bisect_right(self.before, cpu) - 1, 0)
        if n and self.before[n] == cpu:  # at the end of an interval, not at the begin of the next
            n -= 1
        return self.begins[n] + cpu - self.before[n]

    def cut(self, at: float) -> None:
        """Forget what comes after ``at``."""
        while self.begins and self.begins[-1] >= at:
            self.begins.pop(), self.ends.pop(), self.before.pop()
        if self.ends:
            self.ends[-1] = min(self.ends[-1], at)
        while self.costs and self.costs[-1][0] >= at:
            self.costs.pop()
        if self.costs and sum(self.costs[-1]) > at:
            self.costs[-1] = (self.costs[-1][0], at - self.costs[-1][0])


class SharedNode:
    """A node that several applications share, by EDF; ties go to the application that comes first."""

    def __init__(self, applications: int) -> None:
        self.tasks = [_Task() for _ in range(applications)]
        self.written = [_Written() for _ in range(applications)]
        self.at = 0.0
        """Time until which slots are written down."""
        self.kept: list[tuple[float, list[_Task]]] = [(0.0, [replace(task) for task in self.tasks])]
        """Earlier states to go back to when a pair changes."""

    def set(self, at: float, application: int, slots: Slots) -> None:
        """Give an application other slots from ``at`` on."""
        self._go_back(at)
        self._write(at)
        task = self.tasks[application]
        task.slots = slots
        task.release(slots.index(at), at=at)
        self.kept = [(at, [replace(each) for each in self.tasks])]

    def finish(self, application: int, start: float, cpu: float) -> float:
        """Return when the application has got ``cpu`` seconds from ``start`` on."""
        if cpu <= TINY:
            return start
        slots, written = self.tasks[application].slots, self.written[application]
        if slots is None or slots.pair.slice <= slots.switch_cost:
            return float("inf")
        self._write(start)
        needed = written.until(start) + cpu - TINY
        while written.total < needed:
            self._extend()
        return written.when(needed)

    def given(self, application: int, start: float, end: float) -> float:
        """Return the CPU seconds that the application got in [start, end)."""
        self._write(end)
        return self.written[application].until(end) - self.written[application].until(start)

    def switched(self, application: int, end: float) -> float:
        """Return the seconds that switching to the application took before ``end``."""
        self._write(end)
        return sum(min(cost, max(end - begin, 0.0)) for begin, cost in self.written[application].costs)

    def _go_back(self, at: float) -> None:
        """Forget what is written down after the last kept state before ``at``."""
        if self.at <= at:
            return
        while self.kept[-1][0] > at:
            self.kept.pop()
        self.at, tasks = self.kept[-1]
        self.tasks = [replace(task) for task in tasks]
        for written in self.written:
            written.cut(self.at)

    @property
    def _shortest(self) -> float:
        return min((task.slots.pair.period for task in self.tasks if task.slots is not None), default=0.0)

    def _extend(self) -> None:
        self._write(self.at + BLOCK * self._shortest)

    def _write(self, until: float) -> None:
        """Write slots down, up to ``until``."""
        if until <= self.at:
            return
        if self.at - self.kept[-1][0] > BLOCK * self._shortest:
            self.kept.append((self.at, [replace(task) for task in self.tasks]))
        releases = [(task.next, n) for n, task in enumerate(self.tasks)]
        heapq.heapify(releases)
        while self.at < until:
            while releases[0][0] <= self.at:
                _, n = releases[0]
                self.tasks[n].release(self.tasks[n].k + 1, at=self.at)
                heapq.heapreplace(releases, (self.tasks[n].next, n))
            end = min(releases[0][0], until)
            first = min((n for n, task in enumerate(self.tasks) if task.budget > 0.0), key=self._deadline, default=None)
            if first is None:
                self.at = end
                continue
            task = self.tasks[first]
            end = min(end, self.at + (task.cost or task.budget))
            self._run(first, end)

    def _deadline(self, n: int) -> tuple[float, int]:
        return self.tasks[n].next, n

    def _run(self, n: int, end: float) -> None:
        """Let an application run until ``end``: it switches, or it works."""
        task, spent = self.tasks[n], end - self.at
        if task.cost > 0.0:
            self.written[n].costs.append((self.at, spent))
            done = spent >= task.cost or self.at + task.cost <= end
            task.budget, task.cost = task.budget - (task.cost if done else spent), 0.0 if done else task.cost - spent
        else:
            self.written[n].add(self.at, end)
            task.budget = 0.0 if self.at + task.budget <= end else task.budget - spent
        self.at = end


@dataclass(frozen=True, slots=True)
class Share:
    """What one application gets of a shared node."""

    node: SharedNode
    application: int

    def finish(self, start: float, cpu: float) -> float:
        """Return when ``cpu`` seconds have been given from ``start`` on."""
        return self.node.finish(self.application, start, cpu)

    def given(self, start: float, end: float) -> float:
        """Return the CPU seconds given in [start, end)."""
        return self.node.given(self.application, start, end)
