"""Plan of a pool: which processors compute which part of each promised job, and when.

A plan places one demand after the other, in the pool's order, at the times at which processors become ready
(:mod:`punctual.scheduling.placement.place`). Admission makes a plan with one more demand; the Pool adopts a new
plan only if it keeps every promise.

A plan stays valid over time while processors do as planned; ``retimed`` gives the plan after a deviation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter, is_

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError
from punctual.scheduling.model.node_rules import Eligible
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.lazy_plan import LOOK, LazyPlan
from punctual.scheduling.placement.place import place, retimed
from punctual.scheduling.placement.sites import PortHold
from punctual.scheduling.placement.sufficient_test import overloaded
from punctual.scheduling.placement.timeline import Placement, Timeline

Floats = NDArray[np.float64]


def _nothing() -> Timeline:
    return Timeline(np.empty(0))


@dataclass(frozen=True, slots=True)
class Plan:
    """Placements on processors that are free from ``timeline`` on; on each place they are in the given order."""

    places: tuple[Place, ...] = ()
    timeline: Timeline = field(default_factory=_nothing)
    lazy: LazyPlan = field(default_factory=lambda: LazyPlan(_nothing()))
    """The lazy plan that this plan is based on. It makes placements when they are first read."""
    own: tuple[Placement, ...] = ()
    """Placements in place of the lazy plan's first ``replaced``: made elsewhere, or moved since."""
    replaced: int = 0
    """Number of the lazy plan's placements that ``own`` stands for."""
    not_before: float = -inf
    """Time before which no processor is ready behind the last placement."""
    own_after: Timeline | None = None
    """Timeline behind the last placement, if it differs from the lazy plan's."""

    @classmethod
    def of(
        cls, places: Sequence[Place], timeline: Timeline, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands in their order; a demand that cannot be placed in time is left out and returned.

        ``stop``: end at the first such demand; the plan is then incomplete.
        """
        queue = sorted(demands, key=attrgetter("order"))
        plan, missed = cls.in_turn(places, timeline, queue, stop=stop)
        if missed and (other := _choosiest_first(queue, timeline)) != queue:
            again, fewer = cls.in_turn(places, timeline, other, stop=stop)
            if len(fewer) < len(missed):
                return again, fewer
        return plan, missed

    @classmethod
    def in_turn(
        cls, places: Sequence[Place], timeline: Timeline, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands in the given order, otherwise like :meth:`of`."""
        lazy = LazyPlan(timeline)
        missed = lazy.follow(list(demands), stop=stop)
        return cls(tuple(places), timeline, lazy), tuple(missed)

    @classmethod
    def holding(
        cls, places: Sequence[Place], timeline: Timeline, placements: Iterable[Placement], after: Timeline
    ) -> "Plan":
        """Return a plan with placements that were made elsewhere."""
        return cls(tuple(places), timeline, LazyPlan(after), own=tuple(placements))

    def __len__(self) -> int:
        return len(self.own) + len(self.lazy) - self.replaced

    def __iter__(self) -> Iterator[Placement]:
        """Yield the placements in order; several may be made at a time."""
        yield from self.own
        for i in range(self.replaced, len(self.lazy)):
            yield self.lazy.placement(i, beyond=LOOK)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All placements, in order."""
        return tuple(self)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The demands of the placements, in order."""
        return (*(b.demand for b in self.own), *self.lazy.demands[self.replaced :])

    @property
    def after(self) -> Timeline:
        """The timeline behind the last placement."""
        after = self.own_after or self.lazy.end()
        return after if self.not_before == -inf else after.at(self.not_before)

    def at(self, now: float) -> "Plan":
        """Return the plan for a demand placed at ``now``: no processor is ready in the past."""
        return replace(self, timeline=self.timeline.at(now), not_before=max(self.not_before, now))

    def held(self, until: Floats) -> "Plan":
        """Return the plan in which unplanned processors are not ready before these times."""
        free = np.ones(len(self.places), dtype=bool)
        for b in self:
            free[b.where] = False
            if b.reducer is not None:
                free[b.reducer] = False
            if not free.any():
                return self
        ready, after = np.where(free, np.maximum(self.timeline.ready, until), self.timeline.ready), self.after
        if np.array_equal(ready, self.timeline.ready) and np.array_equal(ready[free], after.ready[free]):
            return self
        own_after = replace(after, ready=np.where(free, ready, after.ready))
        return replace(self, timeline=replace(self.timeline, ready=ready), own_after=own_after)

    def insert(self, demand: Demand) -> "Plan | Shortfall":
        """Return a plan with one more demand that keeps every placement in time, or the reason why there is none.

        The demand is first placed behind all placements: if it is in time there, nothing else moves, O(N). Otherwise
        the whole queue is placed again in its order, and a refusal by this test is final. A load that no order could
        finish is refused at once. O(W N) at worst, for W placements; less if there is slack, or if no placement moves.
        """
        cheap = 1 + len(self) // 32  # checking a placement costs about 1/32 of making it
        if not len(self) or overloaded(self.timeline, self.demands, demand):
            plan = self.append(demand)
            return plan if isinstance(plan, Plan) or not len(self) else plan._replace(placements=cheap)
        if self.might_follow(demand) and isinstance(plan := self.append(demand), Plan):
            return plan
        anew = self.insert_all((demand,))
        return anew if isinstance(anew, Plan) else anew._replace(placements=cheap + 1 + len(self))

    def append(self, demand: Demand) -> "Plan | Shortfall":
        """Return a plan with one more demand behind all placements, none of which moves."""
        after = self.after
        placement = place(demand, after)
        if isinstance(placement, Shortfall):
            return placement
        if self.own_after is None and self.not_before == -inf:
            return replace(self, lazy=self.lazy.behind(placement))
        after = after.copy()
        after.occupy(placement)
        return Plan.holding(self.places, self.timeline, (*self, placement), after)

    def might_follow(self, demand: Demand) -> bool:
        """Whether a demand could be in time behind all placements, as far as known without making them all."""
        return self.lazy.might_follow(demand)

    def follows(self, before: "Plan") -> bool:
        """Whether this plan is ``before`` with one more placement at its end, and no placement has moved."""
        whole = self.lazy.whole and before.lazy.whole
        return whole and len(self) == len(before) + 1 and all(map(is_, self, before))

    def insert_all(self, demands: Iterable[Demand]) -> "Plan | Shortfall":
        """Return a plan with more demands, the whole queue placed again, or the first shortfall."""
        queue = sorted((*self.demands, *demands), key=attrgetter("order"))
        lazy = self.lazy.upon(self.timeline, queue)
        missed = lazy.follow(queue[len(lazy) :], stop=True)
        if missed and (other := _choosiest_first(queue, self.timeline)) != queue:
            lazy = LazyPlan(self.timeline)
            if lazy.follow(other, stop=True):
                return missed[0]
            missed = []
        return missed[0] if missed else Plan(self.places, self.timeline, lazy)

    def upon(
        self, places: Sequence[Place], timeline: Timeline, eligible: Mapping[str, Eligible | None] | None = None
    ) -> "Plan | None":
        """Return the same placements on other places; None if a place that they use is missing, or not for them.

        ``eligible``: the nodes that the jobs may use now, by uid, for those where they may have changed.
        """
        at = {place: i for i, place in enumerate(places)}
        index = np.array([at.get(place, -1) for place in self.places], dtype=np.intp)
        placements = tuple(
            replace(
                b,
                demand=_under(b.demand, eligible or {}),
                where=index[b.where],
                reducer=None if b.reducer is None else int(index[b.reducer]),
            )
            for b in self.placements
        )
        if any((b.where < 0).any() or b.reducer == -1 for b in placements):
            return None
        if any(timeline.confines(b.demand) and not _is_allowed(b, timeline) for b in placements):
            return None
        return Plan.holding(places, timeline, placements, timeline).retimed(timeline)

    def retimed(self, timeline: Timeline) -> "Plan":
        """Return the same placements with other ready times: ends move, shares do not."""
        after = timeline.copy()
        placements = []
        for b in self:
            new = retimed(b, after)
            after.occupy(new)
            placements.append(new)
        return Plan.holding(self.places, timeline, placements, after)

    def created(self, placement: Placement, chunks: Mapping[int, Range], ends: Sequence[float], port: float) -> "Plan":
        """Return the plan after chunks of a placement were created: their processors are busy until ``ends``.

        ``port``: when the last of their transfers ends.
        """
        where = placement.where[list(chunks)]
        if (left := placement.created(chunks, ends)) is not None:
            left.demand = left.demand.beside([self.places[i] for i in where.tolist()], len(self.places))
        timeline = self.timeline.copy()
        timeline.ready[where] = ends
        if placement.demand.eligible is not None and (ports := placement.demand.eligible.ports):
            held = zip(where.tolist(), ends, strict=True)
            timeline.holds += tuple(PortHold(self.places[i], ports, end) for i, end in held)
        timeline.port = max(timeline.port, port)
        there = (left if b is placement else b for b in self.made())
        return replace(
            self, timeline=timeline, own=tuple(b for b in there if b is not None), replaced=len(self.lazy.made)
        )

    def made(self) -> tuple[Placement, ...]:
        """Return the placements made so far."""
        return (*self.own, *self.lazy.made[self.replaced :])

    def begins_before(self, now: float) -> bool:
        """Whether a placement begins before ``now``."""
        if any(b.start < now for b in self.made()):
            return True
        return bool((self.lazy.timeline.ready < now).any()) and any(b.start < now for b in self)

    def placement_of(self, uid: str) -> Placement:
        """Return a job's placement; KeyError if it has none."""
        for placement in reversed(self.made()):  # the newest is read most often
            if placement.demand.uid == uid:
                return placement
        for i in range(max(self.replaced, len(self.lazy.made)), len(self.lazy)):
            if self.lazy.demands[i].uid == uid:
                return self.lazy.placement(i)
        raise KeyError(uid)

    def has(self, uid: str) -> bool:
        """Whether the plan has a placement of a job."""
        return any(demand.uid == uid for demand in self.demands)

    def without(self, uid: str) -> "Plan":
        """Return the plan without a job's placement; the others do not move."""
        return replace(self, own=tuple(b for b in self if b.demand.uid != uid), replaced=len(self.lazy))

    def keeps_all(self) -> bool:
        """Whether every placement ends by its due time."""
        return all(b.finish - b.demand.reduce <= b.demand.late for b in self)

    def check(self) -> None:
        """Raise InvariantError if chunks on one processor or transfers overlap, or a demand is not covered."""
        free = self.timeline.copy()
        for b in self:
            if int(b.cuts[-1]) != b.demand.ranges.total or (np.diff(b.cuts) <= 0).any():
                raise InvariantError(f"{b.demand.uid}: chunks do not cover the load")
            free.check(b)
            free.occupy(b)


def _choosiest_first(queue: list[Demand], timeline: Timeline) -> list[Demand]:
    """Return a queue with the demands first that may use the fewest processors: others can take what these leave."""
    if not any(map(timeline.confines, queue)):
        return queue
    return sorted(queue, key=lambda demand: (timeline.sites.at(demand.eligible).size, demand.order))


def _under(demand: Demand, eligible: Mapping[str, Eligible | None]) -> Demand:
    """Return the demand with the nodes that it may use now."""
    now = eligible.get(demand.uid, demand.eligible)
    return demand if now == demand.eligible else replace(demand, eligible=now)


def _is_allowed(placement: Placement, timeline: Timeline) -> bool:
    """Whether all places of a placement are for its demand."""
    where = placement.where if placement.reducer is None else np.append(placement.where, placement.reducer)
    return bool(np.isin(where, timeline.sites.at(placement.demand.eligible)).all())


def same_placements(plan: Plan, other: Plan) -> bool:
    """Return whether two plans have the very same placements, made or not. Their times of readiness may differ."""
    return plan.lazy is other.lazy and plan.own is other.own and plan.replaced == other.replaced
