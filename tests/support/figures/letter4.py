"""Fig. 4.1 of Mamat 2011 to the letter: a schedulability test that counts nodes, and no transfers.

A job's transfers follow one another, as its E(σ, n) says, but those of two jobs may overlap: nobody waits for the port
because of another's job. The Pool has no such network: with one port all wait for it, Concurrent nobody does.
Where the figure leaves it open: a job takes those nodes that were free first, and all are free again at its end.
"""

from bisect import insort
from dataclasses import dataclass

from punctual.scheduling.model.discipline import Discipline, Order
from punctual.sim.trace import Trace, jobs
from punctual.theory.cost import Cost
from punctual.theory.execution_time import (
    execution_time,
    execution_time_equal,
    n_min,
    n_min_equal,
    n_star,
    n_star_equal,
)


@dataclass(slots=True)
class Task:
    """``load`` in units, ``due`` absolute; ``start`` and ``end`` as they are planned, on ``nodes`` nodes."""

    order: Order
    load: float
    due: float
    start: float = 0.0
    nodes: int = 0
    end: float = 0.0


class Figure41:
    """``decide`` puts a job to the test; a schedule that stands is carried out as it is."""

    def __init__(self, processors: int, cost: Cost, discipline: Discipline) -> None:
        self.processors, self.cost, self.discipline = processors, cost, discipline
        self.optimal, self.fewest = discipline.partition == "OPR", discipline.assign == "MN"
        self.free = [0.0] * processors
        """From when on nodes are free of what runs, in order."""
        self.queue: list[Task] = []
        self.busy = 0.0
        """Node seconds sent or computed."""

    def decide(self, task: Task, now: float) -> bool:
        """Return whether all that waits keeps its deadline with this one."""
        self.carry_out(now)
        queue = sorted([*self.queue, task], key=lambda t: t.order)
        free = [max(at, now) for at in self.free]
        planned = []
        for each in queue:
            found = self._place(each, free)
            if found is None:
                return False
            planned.append(found)
            _take(free, *found)
        for each, found in zip(queue, planned, strict=True):
            each.start, each.nodes, each.end = found
        self.queue = queue
        return True

    def carry_out(self, until: float) -> None:
        """Let begin what is planned to begin by then."""
        begun = sorted((t for t in self.queue if t.start <= until), key=lambda t: t.start)
        for t in begun:
            _take(self.free, t.start, t.nodes, t.end)
            self.busy += t.nodes * self.cost.setup + t.load * self.cost.per_unit
        self.queue = [t for t in self.queue if t.start > until]

    def _place(self, task: Task, free: list[float]) -> tuple[float, int, float] | None:
        """Return start, nodes and end; None: it cannot be done by its deadline."""
        take = execution_time if self.optimal else execution_time_equal
        if not self.fewest:
            star = n_star if self.optimal else n_star_equal
            nodes = star(task.load, self.cost, limit=self.processors)
            start = free[nodes - 1]
        else:
            least = n_min if self.optimal else n_min_equal
            at = 0
            while True:  # the earliest time at which so many are free as are needed then
                start = free[at]
                needed = least(task.load, self.cost, window=task.due - start, limit=self.processors)
                if needed is None:
                    return None
                if needed - 1 <= at or free[needed - 1] <= start:
                    break
                at = next(i for i in range(at + 1, needed) if free[i] > start)
            nodes = needed
        end = start + take(task.load, nodes, self.cost)
        return (start, nodes, end) if end <= task.due * (1 + 1e-12) else None


def _take(free: list[float], start: float, nodes: int, end: float) -> None:
    assert free[nodes - 1] <= start
    del free[:nodes]
    for _ in range(nodes):
        insort(free, end)


def letter(trace: Trace, processors: int, cost: Cost, discipline: Discipline) -> dict[str, float]:
    """Return the shares of jobs refused and of node seconds used."""
    test = Figure41(processors, cost, discipline)
    asked = jobs(trace)
    refused, last = 0, 0.0
    for job in asked:
        order = discipline.order_of(
            job.id,
            arrival=job.arrival,
            deadline=job.arrival + job.deadline,
            load=job.load,  # type: ignore[arg-type]  # real loads
            cost=cost,
            processors=processors,
        )
        refused += not test.decide(Task(order, job.load, job.arrival + job.deadline), job.arrival)
        last = max([last, job.arrival, *(t.end for t in test.queue)])
    test.carry_out(float("inf"))
    last = max([last, *test.free])
    return {"rejected": refused / max(1, len(asked)), "utilization": test.busy / (processors * max(1.0, last))}
