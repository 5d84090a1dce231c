"""Fast and exact admission as printed in Mamat 2011 (ch. 6): baselines of benchmarks and comparisons.

The product makes no decision with them. They are plain Python over plain lists, walk where the paper walks, and admit
what the paper admits, even if that cannot be met (`tests/papers/test_chapter6_fast.py`). One port, no set-up costs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time


@dataclass(slots=True)
class Task:
    """τ(A, σ, D) and the values that AC-FAST records with it. ``load`` is its waiting part; ``due`` is A + D."""

    uid: str
    arrival: float
    load: float
    due: float
    execution: float = 0.0
    """E(σ, N), s."""
    completion: float = 0.0
    """C, on all processors one task after the other."""
    slack: float = 0.0
    slack_min: float = 0.0


def _key(task: Task) -> tuple[float, float, str]:
    return task.due, task.arrival, task.uid


class AcFast:
    """AC-FAST (algs. 6, 7 and 8): the queue runs one task after the other on all processors.

    The text does not define the predecessor of a task that is inserted at the head. To the letter (``left`` false) it
    is the task that was dispatched last, as a whole. But a partly dispatched head holds processors too: in that reading
    (``left``), S is C(head) − E(rest of the head).
    """

    def __init__(self, processors: int, cost: Cost, *, left: bool = False) -> None:
        self.left = left
        self.cost = cost
        self.per_load = execution_time(1.0, processors, cost)  # (6.9): E is linear in the load
        self.queue: list[Task] = []
        self.last: Task | None = None

    def decide(self, task: Task, *, port: float, free: Sequence[float]) -> bool:
        """Decide at ``task.arrival`` (alg. 6), and insert the task if it is accepted.

        ``port``, ``free``: times from which the head node, and each processor, is available.
        """
        if task.due <= max(port, task.arrival) + task.load * self.cost.tau:  # lines 1-4
            return False
        at = bisect_left(self.queue, _key(task), key=_key)  # lines 5-6
        before = self.queue[at - 1] if at else self.last
        behind = self.queue[at] if at < len(self.queue) else None
        task.execution = task.load * self.per_load  # line 7
        if behind is not None and task.execution > behind.slack_min:  # lines 8-10
            return False
        start = task.arrival  # lines 11-12
        if at == 0 and behind is not None and self.left:
            start = max(behind.completion - behind.load * self.per_load, task.arrival)
        elif before is not None and (self.queue or max(free) > task.arrival):
            # An empty cluster has no predecessor: alg. 8 would refuse nearly everything there.
            start = before.completion  # line 14
            if not self.queue:  # lines 15-17
                start += self._adjust(task, port, free)
            start = max(start, task.arrival)  # line 18
        if task.due - start < task.execution:  # lines 20-21
            return False
        task.slack = task.due - start - task.execution  # line 23
        task.completion = start + task.execution  # line 24
        self.queue.insert(at, task)  # line 25
        self._update_slacks(task)  # line 26
        for other in self.queue:  # lines 27-29
            if other.due > task.due:
                other.completion += task.execution
        return True

    def given(self, task: Task, load: float) -> None:
        """Record that a load of the head was assigned to a processor (6.2.2); with nothing left it leaves the queue."""
        task.load -= load
        if task.load <= 0.0:
            self.queue.remove(task)
            self.last = task

    def _update_slacks(self, task: Task) -> None:
        """Alg. 7."""
        for other in self.queue:
            if other.due > task.due:
                other.slack -= task.execution
        least = self.queue[-1].slack
        for other in reversed(self.queue):
            least = min(least, other.slack)
            other.slack_min = least

    def _adjust(self, task: Task, port: float, free: Sequence[float]) -> float:
        """Alg. 8: an idle task of the size that idle processors could have done precedes the new one."""
        idle = sum(max(task.arrival - max(at, port), 0.0) for at in free)
        return idle / self.cost.per_unit * self.per_load


@dataclass(frozen=True, slots=True)
class ScheduledPiece:
    """A chunk of a schedule: sent from ``start`` until ``sent``, computed until ``end``."""

    task: Task
    processor: int
    start: float
    sent: float
    end: float
    load: float


class EdfIit2:
    """EDF-IIT-2: the exact test with inserted idle times used (6.4; its schedules are those of ch. 4).

    For each decision, all waiting tasks are scheduled again in EDF order: processors in order of the times at which
    they are free, the fewest that finish the task by its deadline, one port, all ending together.
    """

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.queue: list[Task] = []
        self.schedule: list[ScheduledPiece] = []

    def decide(self, task: Task, *, port: float, free: Sequence[float]) -> bool:
        """Decide at ``task.arrival``; if the task is accepted, the new schedule is in force."""
        queue = sorted([*self.queue, task], key=_key)
        port, available = max(port, task.arrival), [max(at, task.arrival) for at in free]
        schedule: list[ScheduledPiece] = []
        for each in queue:
            pieces = self._place(each, port, available)
            if not pieces:
                return False
            for piece in pieces:
                available[piece.processor] = piece.end
            port = pieces[-1].sent
            schedule += pieces
        self.queue, self.schedule = queue, schedule
        return True

    def _place(self, task: Task, port: float, available: list[float]) -> list[ScheduledPiece]:
        """Return the task's pieces; empty: it cannot be done by its deadline."""
        order = sorted(range(len(available)), key=lambda p: available[p])
        free = [available[p] for p in order]
        n = self._least(task, port, free)
        if n is None:
            return []
        end = self._finish(task.load, port, free[:n])
        pieces = []
        for p, at in zip(order[:n], free, strict=False):
            start = max(at, port)
            load = (end - start) / self.cost.per_unit
            port = start + load * self.cost.tau
            pieces.append(ScheduledPiece(task, p, start, port, end, load))
        return pieces

    def _least(self, task: Task, port: float, free: list[float]) -> int | None:
        """Return n^min: the number of processors it takes, each working until the deadline."""
        done = 0.0
        for n, at in enumerate(free, start=1):
            start = max(at, port)
            if start >= task.due:
                return None
            load = (task.due - start) / self.cost.per_unit
            port = start + load * self.cost.tau
            done += load
            if done >= task.load:
                return n
        return None

    def _finish(self, load: float, port: float, free: list[float]) -> float:
        """Return the common end of processors that do the load together, by Newton's method.

        The load done by T is concave in T as long as all processors have a share, which holds for the n^min processors:
        from the second step on, T rises to its limit.
        """
        end, waits = -inf, [True] * len(free)  # which processors wait for the port
        while True:
            x, y = 0.0, port  # the port is free at x T + y
            slope = line = 0.0  # slope T - line is done by T
            for at, wait in zip(free, waits, strict=True):
                a, b = (x, y) if wait else (0.0, at)
                grows, less = (1.0 - a) / self.cost.per_unit, b / self.cost.per_unit
                slope, line = slope + grows, line + less
                x, y = a + grows * self.cost.tau, b - less * self.cost.tau
            last, end = end, (load + line) / slope
            seen, now = [], port
            for at in free:
                seen.append(now > at)
                start = max(at, now)
                now = start + (end - start) / self.cost.per_unit * self.cost.tau
            if seen == waits or end <= last:
                return end
            waits = seen
