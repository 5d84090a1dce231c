"""Larger pool: the admission test of a pool with further processors, to find how few would make a deadline possible.

A further processor is one of the pool's size, on a node that is open to all pods and equal to the fastest, empty and
free from the time of the test on. What is promised is planned again with it, as when a node joins the pool; then the
refused job is tested as at its decision. So the answer is that of the pool's own test, whichever it is.

Acceptance need not be monotone in the number of processors: with more of them, the jobs before it may take fewer, and
end later. So the search tests one number after the other. It begins with the first that no aggregate test excludes, so
few are left. Only the utilization bound is monotone, and bisected.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np

from punctual.scheduling.admission.application import too_late
from punctual.scheduling.admission.exact import current
from punctual.scheduling.admission.fast_schedule import FastSchedule
from punctual.scheduling.admission.fast_test import Obstacle
from punctual.scheduling.admission.fluid import FluidJob, FluidNode
from punctual.scheduling.admission.statistical import StatisticalQueue
from punctual.scheduling.admission.utilization import UtilizationTest, fluid_job
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import FurtherProcessors
from punctual.scheduling.model.processors import Place
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import might_fit, place
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.sites import Sites
from punctual.scheduling.placement.sufficient_test import overloaded
from punctual.scheduling.placement.timeline import Timeline

FURTHER: Final = "~further"
"""Name of the node with the further processors: no node of a cluster has it, and it is behind all others in order."""
MOST: Final = 64
"""Further processors that are tried at most, or as many as the pool has if that is more."""
TRIES: Final = 64
"""Numbers of further processors that are tested."""


class Use(NamedTuple):
    """When further processors would be used, by plan: absolute times, seconds."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedDemand:
    """A demand, and what its place in the queue follows from if that depends on the number of processors (MWF)."""

    demand: Demand
    deadline: float = 0.0
    load: int = 0
    """All units of the job."""
    processors: int = 0
    """Number of processors that it may use, without the further ones."""
    all_more: bool = False
    """It may use the further ones as well."""

    def among(self, more: int, discipline: Discipline) -> Demand:
        """Return the demand with its place in the queue of a pool with ``more`` further processors."""
        if discipline.order != "MWF":
            return self.demand
        order = discipline.order_of(
            self.demand.uid,
            arrival=self.demand.order.arrival,
            deadline=self.deadline,
            load=self.load,
            cost=self.demand.cost,
            processors=self.processors + (more if self.all_more else 0),
        )
        return self.demand if order == self.demand.order else replace(self.demand, order=order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlarged:
    """A pool at one time with further processors, and a job that it refused: values, which do not change with it."""

    now: float
    asked: RankedDemand
    """The refused job."""
    promised: Sequence[RankedDemand]
    """All other work that waits."""
    places: Sequence[Place]
    """The pool's places, then those of the further processors."""
    timeline: Timeline
    """When they are free."""
    most: int
    """Number of further processors among them."""

    def larger(self, more: int) -> tuple[Sequence[Place], Timeline]:
        """Return the places and the timeline of the pool with so many further processors."""
        count, whole = len(self.places) - self.most + more, self.timeline
        places = self.places[:count]
        timeline = Timeline(
            whole.ready[:count].copy(),
            whole.discipline,
            whole.port,
            None if whole.speeds is None else whole.speeds[:count],
            None if whole.blackouts is None else whole.blackouts.only(np.arange(count)),
            Sites(places, whole.sites.open, whole.sites.closed),
            whole.holds,
        )
        return places, timeline

    def queue(self, more: int) -> tuple[Demand, list[Demand]]:
        """Return the demands of the job and of all others in a pool with so many further processors."""
        rules = self.timeline.discipline
        return self.asked.among(more, rules), [one.among(more, rules) for one in self.promised]


def is_hopeless(demand: Demand, timeline: Timeline, now: float) -> bool:
    """Whether a job would be late even if all processors were free for it alone, or may use no further ones."""
    alone = replace(timeline, ready=np.full_like(timeline.ready, now), blackouts=None, holds=())
    return demand.inside is not None or isinstance(place(demand, alone), Shortfall)


class LargerPool(ABC):
    """The admission test of a pool with further processors."""

    __slots__ = ()

    there: Enlarged
    monotone: ClassVar[bool] = False
    """Whether more processors are enough wherever fewer are."""

    @abstractmethod
    def use(self, more: int) -> Use | None:
        """Return when ``more`` further processors would be used if the job were promised; None: it would be refused."""

    @property
    def least(self) -> int:
        """The first number of further processors that may be enough; beyond the most: none is."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerPlan(LargerPool):
    """A larger pool that plans."""

    there: Enlarged
    plan: Plan | None
    """The plan in force. It stays where a new one would break a promise. None: there is none."""
    busy: Mapping[Place, float]
    """When each occupied place is expected to be free."""

    def use(self, more: int) -> Use | None:
        """Plan what is promised, then the job."""
        places, timeline = self.there.larger(more)
        asked, promised = self.there.queue(more)
        plan, missed = Plan.of(places, timeline, promised, stop=True)
        if missed:
            kept = self.plan and self.plan.upon(places, timeline)
            if kept is None or not kept.keeps_all():
                return None
            plan = kept
        found = current(plan, self.there.now, self.busy).insert(asked)
        return None if isinstance(found, Shortfall) else _use(found, asked)

    @property
    def least(self) -> int:
        """The first number with which the processors have time enough for all work that is due by then."""
        asked, promised = self.there.queue(0)

        def may_be(more: int) -> bool:
            _, timeline = self.there.larger(more)
            return might_fit(asked, timeline) and not overloaded(timeline, promised, asked)

        return 1 + bisect_left(range(1, self.there.most + 1), x=True, key=may_be)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerFastQueue(LargerPlan):
    """A larger pool under the fast test; what that cannot judge is planned."""

    def use(self, more: int) -> Use | None:
        """Test the job in a queue of all that waits."""
        places, timeline = self.there.larger(more)
        asked, promised = self.there.queue(more)
        queue = FastSchedule.of(self.there.now, places, timeline, promised, beta=asked.cost.beta)
        slack = queue if isinstance(queue, Obstacle) else queue.room(self.there.now, asked)
        if isinstance(slack, Obstacle):
            return LargerPlan.use(self, more)
        if not slack.fits or too_late(asked, timeline, self.there.now):
            return None
        return Use(self.there.now, max(self.there.now, asked.due - slack.slack))


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerStatisticalQueue(LargerPool):
    """A larger pool under a utilization bound."""

    there: Enlarged
    bound: float
    monotone: ClassVar[bool] = True

    def use(self, more: int) -> Use | None:
        """Test the job in a queue of all that waits."""
        places, timeline = self.there.larger(more)
        asked, promised = self.there.queue(more)
        queue = StatisticalQueue.of(self.there.now, places, timeline, promised, bound=self.bound)
        if too_late(asked, timeline, self.there.now) or not queue.fits(self.there.now, asked):
            return None
        return Use(self.there.now, asked.due)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerSharedPool(LargerPool):
    """A larger pool where pods share processors."""

    there: Enlarged
    nodes: Sequence[FluidNode]
    """The pool's nodes."""
    jobs: Collection[FluidJob]
    """What is left of each promised job."""
    parts: int
    """Pods that a node may have at a time, per processor."""

    def _kept(self, nodes: Sequence[FluidNode], jobs: Collection[FluidJob]) -> Use | None:
        asked = self.there.asked.demand
        found = UtilizationTest(self.there.now, self.there.timeline, nodes, jobs).arranged(asked)
        if not found.kept:
            return None
        due = {job.uid: job.due for job in (*jobs, fluid_job(asked))}
        there = [(start.at, due[uid]) for uid, start in found.starts.items() if start.node == FURTHER]
        start = min((at for at, _ in there), default=self.there.now)
        return Use(start, max((end for _, end in there), default=asked.due))

    def _node(self, processors: int) -> FluidNode:
        return FluidNode(name=FURTHER, processors=processors, pods=processors * self.parts)

    def use(self, more: int) -> Use | None:
        """Test the job with one more node."""
        return self._kept([*self.nodes, self._node(more)], self.jobs)

    @property
    def least(self) -> int:
        """1, if the job could end in time on a node of its own or of the pool; its pod has one processor at most."""
        asked = self.there.asked.demand
        alone = [replace(node, taken=0, pods=max(1, node.pods)) for node in self.nodes]
        hopeless = (
            too_late(asked, self.there.timeline, self.there.now) or self._kept([*alone, self._node(1)], ()) is None
        )
        return self.there.most + 1 if hopeless else 1


def further_processors(pool: LargerPool) -> Generator[None, None, FurtherProcessors | None]:
    """Search the least number of further processors with which the job would be promised its deadline.

    Returns None if no number up to the most is enough. Each ``next`` costs at most one test of a larger pool, at
    most TRIES in all.
    """
    first = pool.least
    if first > pool.there.most:
        return None
    if pool.monotone:
        return (yield from _bisected(pool, first))
    for more in range(first, min(pool.there.most, first + TRIES - 1) + 1):
        yield
        if (use := pool.use(more)) is not None:
            return _found(more, use)
    return None


def _bisected(pool: LargerPool, first: int) -> Generator[None, None, FurtherProcessors | None]:
    low, high, found = first - 1, first, None
    while found is None:
        yield
        if (found := pool.use(high)) is None:
            if high == pool.there.most:
                return None
            low, high = high, min(2 * high, pool.there.most)
    while high - low > 1:
        middle = (low + high) // 2
        yield
        if (use := pool.use(middle)) is not None:
            high, found = middle, use
        else:
            low = middle
    return _found(high, found)


def _found(more: int, use: Use) -> FurtherProcessors:
    return FurtherProcessors(more, float(math.floor(use.start)), float(math.ceil(use.end)))


def _use(plan: Plan, asked: Demand) -> Use:
    """Return when a plan uses the further processors; if it does not, when it does the job."""
    further = np.array([place.node == FURTHER for place in plan.places], dtype=bool)
    starts: list[float] = []
    ends: list[float] = []
    for placement in plan:
        there = further[placement.where]
        starts += placement.starts[there].tolist()
        ends += placement.ends[there].tolist()
        if placement.reducer is not None and further[placement.reducer]:
            starts.append(placement.finish - placement.demand.reduce)
            ends.append(placement.finish)
    if not starts:
        own = plan.placement_of(asked.uid)
        return Use(own.start, own.finish)
    return Use(min(starts), max(ends))
