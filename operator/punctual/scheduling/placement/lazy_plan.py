"""Demands placed one after the other on a timeline, each when its placement is first needed.

The sufficient test (:mod:`punctual.scheduling.placement.sufficient_test`) often shows that all demands fit before all
of them are placed. The rest are then placed when a caller reads their placements, with the same result. A demand that
comes to stand in the middle leaves those before it as they are: the times there are kept every so many placements.
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
"""Bookings after which the times are kept again."""
LOOK = 16
"""Bookings after which it is asked again whether somebody could still follow."""


@dataclass(slots=True, eq=False)
class LazyPlan:
    """Who is placed, in order. It grows by bookings alone: none that has been seen ever changes."""

    origin: Timeline
    """Upon which the first is placed."""
    demands: tuple[Demand, ...] = ()
    """All that are placed or surely can be."""
    made: list[Placement] = field(default_factory=list)
    """Bookings of the first of them."""
    marks: list[Timeline] = field(default_factory=list)
    """The ground in front of each MARK-th."""
    ground: Timeline = field(init=False)
    """The ground behind those made."""

    def __post_init__(self) -> None:
        """Find the times behind what is made."""
        if not self.marks:
            self.marks.append(self.origin)
        mark = min(len(self.made) // MARK, len(self.marks) - 1)
        self.ground = self.marks[mark].copy()
        for booking in self.made[mark * MARK :]:
            self.ground.take(booking)

    def __len__(self) -> int:
        return len(self.demands)

    @property
    def whole(self) -> bool:
        """Whether all are placed."""
        return len(self.made) == len(self.demands)

    def booking(self, i: int, *, beyond: int = 0) -> Placement:
        """Return the i-th booking; up to so many ``beyond`` it may be made at once with it."""
        while len(self.made) <= i:
            begin = len(self.made)
            if isinstance(got := self._next(self.demands[begin : min(begin + FRONT, i + 1 + beyond)]), Shortfall):
                raise InvariantError(f"{got.uid} was sure to fit and does not: {got}")
        return self.made[i]

    def end(self) -> Timeline:
        """Return the ground behind all; not to be moved."""
        if self.demands:
            self.booking(len(self.demands) - 1)
        return self.ground

    def _next(self, demands: Sequence[Demand]) -> int | Shortfall:
        """Place the first of these, and those behind that are placed at once with it; return how many."""
        got = place_next(demands, self.ground, self.made[-1] if self.made else None)
        if isinstance(got, Shortfall):
            return got
        for booking in got:
            self._take(booking)
        return len(got)

    def _take(self, booking: Placement) -> None:
        self.ground.take(booking)
        self.made.append(booking)
        if len(self.made) == len(self.marks) * MARK:
            self.marks.append(self.ground.copy())

    def follow(self, demands: Sequence[Demand], *, stop: bool = False) -> list[Shortfall]:
        """Let more come behind those that are there; return who cannot be in time: they are left out.

        ``stop`` at the first of those. Each is placed until it is sure that those behind it fit.
        """
        self.end()
        demands = [demand.anew() for demand in demands]  # as they stand in their bookings
        missed: list[Shortfall] = []
        placed: list[Demand] = []
        i = look = 0
        while i < len(demands) and not (stop and missed):
            if i == look:
                doubtful = surely_fit(self.ground, demands, i)
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

    def behind(self, booking: Placement) -> "LazyPlan":
        """Return it, all placed, with one more booking behind."""
        self.end()
        more = LazyPlan(self.origin, (*self.demands, booking.demand), self.made.copy(), self.marks.copy())
        more._take(booking)
        return more

    def might_follow(self, demand: Demand) -> bool:
        """Whether it could be in time behind all; told without placing them all, as ready times only move on."""
        while might_fit(demand, self.ground):
            if self.whole:
                return True
            self.booking(min(len(self.made) + LOOK, len(self.demands)) - 1, beyond=LOOK)
        return False

    def upon(self, ground: Timeline, demands: Sequence[Demand]) -> "LazyPlan":
        """Return a row upon a ground with as many of these demands placed, from the first on, as are placed here."""
        if not _same(self.origin, ground):
            return LazyPlan(ground)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].demand is pair[1], zip(self.made, demands, strict=False)))
        return LazyPlan(ground, tuple(demands[:same]), self.made[:same], self.marks[: 1 + same // MARK])


def _same(a: Timeline, b: Timeline) -> bool:
    """Whether placement on one gives what it gives on the other."""
    if a.around is not None or b.around is not None or a.discipline != b.discipline or a.port != b.port:
        return False
    same_speeds = a.speeds is b.speeds or (
        a.speeds is not None and b.speeds is not None and np.array_equal(a.speeds, b.speeds)
    )
    return same_speeds and np.array_equal(a.ready, b.ready)
