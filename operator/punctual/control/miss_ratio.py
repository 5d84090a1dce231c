"""The miss-ratio controller: moves the utilization bound so that a set part of the jobs misses (Mamat 2011, 7.2.3)."""

import heapq
from dataclasses import dataclass, field
from math import floor
from typing import Final, NamedTuple

from punctual.control.gains import place_poles
from punctual.control.identification import Model
from punctual.control.pi import PI
from punctual.theory.tolerance import tolerance

IDENTIFIED: Final = Model(a=(0.0,), b=(0.38,), r2=0.7)
"""What the miss ratio does with the bound, about the set point: MR(k) = b Û(k−1), and next to nothing of MR(k−1), for
most jobs' fates lie in the period in which they were let in. By least squares (7.3) from simulations in which the bound
jumps at random; how, and how far the numbers spread, stands in docs/papers.md, and a test does it again."""
GAINS: Final = place_poles(IDENTIFIED, 0.5, 0.0)
"""Of the controller, bound per miss ratio: an error halves with each period. Where the bound does up to twice as much
as in the model nothing swings, and up to four times as much all is stable."""
LOW, HIGH = 0.02, 2.0
"""Between which the bound may move."""
ENOUGH: Final = 10
"""Fates that move the bound: one of fewer that is late would say more than 10 % miss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissCount:
    """How a pool's statistical promises have gone: what the controller of its bound goes on from."""

    bound: float
    ratio: float | None = None
    """Of those who missed, at the last move of the bound; None: it has not been moved yet."""
    due: int = 0
    """Who has come to an end, or to the deadline, since."""
    missed: int = 0
    until: float = 0.0
    """Up to when that is counted."""


class BoundSample(NamedTuple):
    """A period at its end, and the bound from then on."""

    time: float
    miss_ratio: float
    bound: float


@dataclass(slots=True)
class MissRatio:
    """The controller: counts who of those let in missed, period by period, and moves the bound.

    ``set_point``: the part that may miss; 0 would close the door to all. ``end``: of the period (s). A job is counted
    when its fate is known, at its end or at its deadline, whichever comes first, and only once: what is counted
    survives in a :class:`MissCount`, and whose deadline lies before its ``until`` is in it.
    """

    set_point: float
    period: float
    end: float = 0.0
    enough: int = ENOUGH
    """Fates that a move of the bound needs; while there are less, the period goes on into the next."""
    loop: PI = field(default_factory=lambda: PI(GAINS, output=1.0, low=LOW, high=HIGH))
    last: BoundSample | None = None
    expected: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (deadline, uid) of those who were let in."""
    open: dict[str, float] = field(default_factory=dict)
    """Deadlines of those whose fate is not known."""
    due: int = 0
    missed: int = 0
    until: float = 0.0
    turned_away: bool = False
    """Somebody was refused in this period, for the bound."""

    @classmethod
    def going_on(cls, now: float, found: MissCount | None, *, set_point: float, period: float) -> "MissRatio":
        """Return a controller that goes on from what was written down, or begins."""
        made = cls(set_point, period)
        made._begin_period(now if found is None else found.until)
        if found is not None:
            made.due, made.missed, made.until = found.due, found.missed, found.until
            error = None if found.ratio is None else set_point - found.ratio
            bound = min(max(found.bound, LOW), HIGH)
            made.loop = PI(GAINS, output=bound, low=LOW, high=HIGH, before=error)
        return made

    @property
    def bound(self) -> float:
        """The bound in force."""
        return self.loop.output

    @property
    def count(self) -> MissCount:
        """What is to be written down."""
        ratio = None if self.loop.before is None else round(self.set_point - self.loop.before, 6)
        return MissCount(bound=self.bound, ratio=ratio, due=self.due, missed=self.missed, until=self.until)

    def accept(self, uid: str, deadline: float) -> None:
        """Take in that a job was let in, or has another deadline; nothing where that has been counted."""
        if deadline + tolerance(self.until) >= self.until:  # as `_miss` counts those that are late
            heapq.heappush(self.expected, (deadline, uid))
            self.open[uid] = deadline

    def ended(self, now: float, uid: str) -> None:
        """Take in that a job has come to its end, well or not: late where its deadline is behind it."""
        deadline = self.open.pop(uid, None)
        if deadline is not None:
            self._count(now, missed=now > deadline + tolerance(deadline))

    def leave(self, uid: str) -> None:
        """Take in that a job is withdrawn before its fate was known: it is not counted."""
        self.open.pop(uid, None)

    def look(self, now: float) -> list[str]:
        """Count whose deadline has come, end the period if it is over; return who has missed."""
        over = now >= self.end - tolerance(now)
        missed = self._miss(min(now, self.end))
        if over:
            self._sample()
            self._begin_period(now)
            assert self.last is not None
            self.last = self.last._replace(time=self.end - self.period)
            missed += self._miss(now)
        return missed

    def _begin_period(self, now: float) -> None:
        """Begin the period that ``now`` lies in: they end at multiples, so that a new leader's are the same."""
        self.end = self.period * (floor(now / self.period + 1e-9) + 1)

    def _miss(self, until: float) -> list[str]:
        missed = []
        while self.expected and self.expected[0][0] + tolerance(until) < until:
            deadline, uid = heapq.heappop(self.expected)
            if self.open.get(uid) == deadline:
                del self.open[uid]
                missed.append(uid)
                self._count(until, missed=True)
        return missed

    def _count(self, now: float, *, missed: bool) -> None:
        self.due += 1
        self.missed += missed
        self.until = max(self.until, now)

    def _sample(self) -> None:
        """Move the bound by what was counted, where that is enough to tell.

        Where all were turned away nobody can miss: that counts as none missed, or the door would stay closed.
        """
        ratio = self.missed / self.due if self.due else self.set_point
        closed = self.turned_away and not self.due and not self.open
        if closed or self.due >= self.enough:
            ratio = 0.0 if closed else ratio
            # rounded: it is written down, and read again
            self.loop.output = round(self.loop.step(round(self.set_point - ratio, 6)), 4)
            self.due = self.missed = 0
        self.turned_away = False
        self.last = BoundSample(self.end, ratio, self.bound)
