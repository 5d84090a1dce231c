"""Lazy plan: demands in order on a timeline; each is placed when its placement is first needed.

The sufficient test (:mod:`punctual.scheduling.placement.sufficient_test`) often shows that all demands fit before all
of them are placed. The rest are placed when a caller reads their placements, with the same result. A demand that is
inserted leaves the placements before it as they are: the timeline is saved every MARK placements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from punctual.errors import InvariantError
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import might_fit
from punctual.scheduling.placement.stretch import FRONT, place_next
from punctual.scheduling.placement.sufficient_test import surely_fit
from punctual.scheduling.placement.timeline import Placement, Timeline

MARK = 32
"""Number of placements after which the timeline is saved."""
LOOK = 16
"""Number of placements after which the plan checks again whether a further demand could still fit."""


@dataclass(slots=True, eq=False)
class LazyPlan:
    """Placements in order. The list only grows: a placement that has been read never changes."""

    origin: Timeline
    """Timeline on which the first demand is placed."""
    demands: tuple[Demand, ...] = ()
    """All demands that are placed, or are certain to fit."""
    made: list[Placement] = field(default_factory=list)
    """Placements of the first of them."""
    marks: list[Timeline] = field(default_factory=list)
    """Saved timelines: the one before each MARK-th placement."""
    timeline: Timeline = field(init=False)
    """Timeline behind the placements made so far."""

    def __post_init__(self) -> None:
        """Compute the timeline behind the existing placements."""
        if not self.marks:
            self.marks.append(self.origin)
        mark = min(len(self.made) // MARK, len(self.marks) - 1)
        self.timeline = self.marks[mark].copy()
        for placement in self.made[mark * MARK :]:
            self.timeline.occupy(placement)

    def __len__(self) -> int:
        return len(self.demands)

    @property
    def whole(self) -> bool:
        """Whether all demands are placed."""
        return len(self.made) == len(self.demands)

    def placement(self, i: int, *, beyond: int = 0) -> Placement:
        """Return the i-th placement; up to ``beyond`` further ones may be made together with it."""
        while len(self.made) <= i:
            begin = len(self.made)
            if isinstance(got := self._next(self.demands[begin : min(begin + FRONT, i + 1 + beyond)]), Shortfall):
                raise InvariantError(f"{got.uid} was certain to fit and does not: {got}")
        return self.made[i]

    def end(self) -> Timeline:
        """Return the timeline behind all placements; it must not be modified."""
        if self.demands:
            self.placement(len(self.demands) - 1)
        return self.timeline

    def _next(self, demands: Sequence[Demand]) -> int | Shortfall:
        """Place the first of these demands, and those that can be placed together with it; return how many."""
        got = place_next(demands, self.timeline, self.made[-1] if self.made else None)
        if isinstance(got, Shortfall):
            return got
        for placement in got:
            self._take(placement)
        return len(got)

    def _take(self, placement: Placement) -> None:
        self.timeline.occupy(placement)
        self.made.append(placement)
        if len(self.made) == len(self.marks) * MARK:
            self.marks.append(self.timeline.copy())

    def follow(self, demands: Sequence[Demand], *, stop: bool = False) -> list[Shortfall]:
        """Append demands; return the shortfalls of those that cannot be in time, which are left out.

        ``stop`` at the first of those. Each demand is placed until the ones behind it are certain to fit.
        """
        self.end()
        demands = [demand.anew() for demand in demands]  # as they are stored in their placements
        missed: list[Shortfall] = []
        placed: list[Demand] = []
        i = look = 0
        while i < len(demands) and not (stop and missed):
            if i == look:
                doubtful = surely_fit(self.timeline, demands, i)
                if doubtful == len(demands):
                    placed += demands[i:]
                    break
                look = i + 1 + (doubtful - i) // 2
            got = self._next(demands[i : min(i + FRONT, look)])
            if isinstance(got, Shortfall):
                missed.append(got)
                i += 1
            else:
                placed += demands[i : i + got]
                i += got
        self.demands += tuple(placed)
        return missed

    def behind(self, placement: Placement) -> "LazyPlan":
        """Return a fully placed copy with one more placement behind."""
        self.end()
        more = LazyPlan(self.origin, (*self.demands, placement.demand), self.made.copy(), self.marks.copy())
        more._take(placement)
        return more

    def might_follow(self, demand: Demand) -> bool:
        """Whether a demand could be in time behind all others; ready times only grow, so not all need to be placed."""
        while might_fit(demand, self.timeline):
            if self.whole:
                return True
            self.placement(min(len(self.made) + LOOK, len(self.demands)) - 1, beyond=LOOK)
        return False

    def upon(self, timeline: Timeline, demands: Sequence[Demand]) -> "LazyPlan":
        """Return a lazy plan on a timeline with as many of these demands placed as are placed here."""
        if not _same(self.origin, timeline):
            return LazyPlan(timeline)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].demand is pair[1], zip(self.made, demands, strict=False)))
        return LazyPlan(timeline, tuple(demands[:same]), self.made[:same], self.marks[: 1 + same // MARK])


def _same(a: Timeline, b: Timeline) -> bool:
    """Whether placement on both timelines gives the same result."""
    if a.blackouts is not None or b.blackouts is not None or a.discipline != b.discipline or a.port != b.port:
        return False
    if a.sites.places is not b.sites.places or a.sites.closed != b.sites.closed or a.holds != b.holds:
        return False
    same_speeds = a.speeds is b.speeds or (
        a.speeds is not None and b.speeds is not None and np.array_equal(a.speeds, b.speeds)
    )
    return same_speeds and np.array_equal(a.ready, b.ready)
