"""The miss-ratio controller: moves the utilization bound so that a set part of the jobs misses (Mamat 2011, 7.2.3)."""

import heapq
from dataclasses import dataclass, field
from math import floor
from typing import Final, NamedTuple

from punctual.control.model import Model
from punctual.control.pi import PI, place_poles
from punctual.theory.tolerance import tolerance

IDENTIFIED: Final = Model(a=(0.0,), b=(0.38,), r2=0.7)
"""Effect of the bound on the miss ratio near the set point: MR(k) = b Û(k−1), with almost no effect of MR(k−1), since
most jobs end in the period in which they were admitted.

Fitted by least squares (7.3) to simulations in which the bound jumps at random. The method and the spread of the
numbers are in docs/papers.md, and a test repeats it.
"""
GAINS: Final = place_poles(IDENTIFIED, 0.5, 0.0)
"""Gains of the controller, bound per miss ratio: an error halves with each period. The loop does not oscillate up to
twice the modelled effect of the bound, and is stable up to four times."""
LOW, HIGH = 0.02, 2.0
"""Limits of the bound."""
ENOUGH: Final = 10
"""Jobs with known outcome needed to move the bound: with fewer, one late job would be more than 10 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissCount:
    """Counts of a pool's statistical promises: the recorded state of its controller."""

    bound: float
    ratio: float | None = None
    """Miss ratio at the last move of the bound; None: it has not been moved yet."""
    due: int = 0
    """Jobs that have ended, or reached their deadlines, since."""
    missed: int = 0
    until: float = 0.0
    """Time up to which they are counted."""


class BoundSample(NamedTuple):
    """A period at its end, and the bound from then on."""

    time: float
    miss_ratio: float
    bound: float


@dataclass(slots=True)
class MissRatio:
    """Miss-ratio controller: counts misses of admitted jobs, period by period, and moves the bound.

    ``set_point``: the share that may miss; 0 would refuse every job. ``end``: of the period (s). A job is counted once,
    when its outcome is known: at its end or at its deadline, whichever comes first. The counts survive in a
    :class:`MissCount`, which contains the jobs with deadlines before its ``until``.
    """

    set_point: float
    period: float
    end: float = 0.0
    enough: int = ENOUGH
    """Known outcomes needed for a move of the bound; with fewer, the period is extended by another one."""
    loop: PI = field(default_factory=lambda: PI(GAINS, output=1.0, low=LOW, high=HIGH))
    last: BoundSample | None = None
    expected: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (deadline, uid) of the admitted jobs."""
    open: dict[str, float] = field(default_factory=dict)
    """Deadlines of the jobs with an open outcome."""
    due: int = 0
    missed: int = 0
    until: float = 0.0
    turned_away: bool = False
    """A job was refused because of the bound in this period."""

    @classmethod
    def going_on(cls, now: float, found: MissCount | None, *, set_point: float, period: float) -> "MissRatio":
        """Return a controller that continues from the recorded counts, or starts."""
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
        """The counts to be recorded."""
        ratio = None if self.loop.before is None else round(self.set_point - self.loop.before, 6)
        return MissCount(bound=self.bound, ratio=ratio, due=self.due, missed=self.missed, until=self.until)

    def accept(self, uid: str, deadline: float) -> None:
        """Record that a job was admitted or got another deadline; ignored if the job has been counted."""
        if deadline + tolerance(self.until) >= self.until:  # as `_miss` counts late jobs
            heapq.heappush(self.expected, (deadline, uid))
            self.open[uid] = deadline

    def ended(self, now: float, uid: str) -> None:
        """Record that a job has ended, with or without success: it is late if its deadline has passed."""
        deadline = self.open.pop(uid, None)
        if deadline is not None:
            self._count(now, missed=now > deadline + tolerance(deadline))

    def leave(self, uid: str) -> None:
        """Record that a job was withdrawn before its outcome was known: it is not counted."""
        self.open.pop(uid, None)

    def look(self, now: float) -> list[str]:
        """Count the jobs that have reached their deadlines, end the period if it is over; return the missed jobs."""
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
        """Begin the period that contains ``now``: periods end at multiples, so a new leader has the same ones."""
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
        """Move the bound by the counts, if they are sufficient.

        If all jobs were refused, none can miss: that counts as a miss ratio of 0, or the bound would never rise again.
        """
        ratio = self.missed / self.due if self.due else self.set_point
        closed = self.turned_away and not self.due and not self.open
        if closed or self.due >= self.enough:
            ratio = 0.0 if closed else ratio
            # The value is rounded, because it is recorded and read again.
            self.loop.output = round(self.loop.step(round(self.set_point - ratio, 6)), 4)
            self.due = self.missed = 0
        self.turned_away = False
        self.last = BoundSample(self.end, ratio, self.bound)
