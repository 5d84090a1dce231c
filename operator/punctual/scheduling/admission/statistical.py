"""Admission where costs are estimates that may be wrong: as much as a utilization bound allows (Mamat 2011, ch. 7).

Nobody is promised for certain. A job is let in if no waiting job's utilization, its time on all processors over the
time it has left, is above the bound; the bound is set by hand, or moved by a controller so that so many of the
accepted miss. Work is given out in the order of deadlines, in chunks that are short against the time left: then all
processors work on the job that is due first, and a job that is due earlier waits for none of them long. A job that is
late goes on behind those that are not: served first, it would make them late too.

Where the paper's algorithm 12 leaves open what "the completion of the last dispatched task" is, we take what runs
as spread over all processors (its algorithm 10): one job's chunks end at many times.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Final, NamedTuple

from punctual.control.gains import place_poles
from punctual.control.identification import Model
from punctual.control.pi import PI
from punctual.scheduling.admission.fast_test import turn_of
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.model.pool_spec import MissCount
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand, tolerance
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.geometric import GroupShares

PARTS: Final = 16.0
"""m of the paper's dispatcher: a chunk is expected to take one part in so many of the time left.

With m = 2, just enough for costs twice as high as estimated, a job is on few processors until its deadline, and for the
same misses less of the processors' time is used (measured in docs/papers.md).
"""
LEAST: Final = 0.2
"""Of a processor's equal part of the load: no chunk but the last is smaller, or they would shrink for ever."""
WORTH: Final = 10.0
"""A chunk takes at least so many times its set-up, where that leaves it ``SLOWER`` times as long as expected."""
SLOWER: Final = 2.0
"""A chunk may take so many times what is expected and still end in time, unless it is one of the least."""
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


class NextChunk(NamedTuple):
    """A chunk for the next free processor."""

    uid: str
    piece: Range


@dataclass(slots=True)
class WaitingLoad:
    """What waits of a job."""

    turn: Turn
    cost: Cost
    left: Ranges
    whole: int
    """Units that waited at first."""
    least_chunk: int
    """As of the demand."""

    @property
    def due(self) -> float:
        """When it is to be done."""
        return self.turn[0]


@dataclass(frozen=True, slots=True)
class UtilizationAnswer:
    """The answer: the highest utilization with the job in the line, and the bound."""

    highest: float
    bound: float

    @property
    def fits(self) -> bool:
        """Whether the job may be let in."""
        return self.highest <= self.bound


@dataclass(slots=True)
class StatisticalQueue:
    """All that waits and runs. ``bound``: the highest utilization allowed."""

    ground: Timeline
    bound: float
    jobs: dict[str, WaitingLoad] = field(default_factory=dict)
    ends: dict[Place, float] = field(default_factory=dict)
    """When places that are busy are expected to be free."""
    port: float = -float("inf")

    @classmethod
    def of(
        cls, now: float, places: Sequence[Place], ground: Timeline, demands: Iterable[Demand], *, bound: float
    ) -> "StatisticalQueue":
        """Make the line of all that waits upon what runs."""
        ready = zip(places, ground.ready.tolist(), strict=True)
        line = cls(ground, bound, ends={place: end for place, end in ready if end > now}, port=ground.port)
        for demand in demands:
            line.join(demand)
        return line

    @property
    def processors(self) -> int:
        """How many there are."""
        return int(self.ground.ready.size)

    def room(self, now: float, demand: Demand) -> UtilizationAnswer:
        """Ask whether one more job may be let in (algorithm 12)."""
        asked = _loose(demand)
        start = self._start(now)
        highest = 0.0
        for job in sorted([*self._in_time(now), asked], key=lambda job: job.turn):
            seconds = self._seconds(job)
            window = job.due - start
            pressure = seconds / window if window > 0.0 else float("inf")  # to the letter it is negative, and accepted
            highest = max(highest, pressure)
            start += seconds
        return UtilizationAnswer(highest, self.bound)

    def over(self, now: float, demand: Demand) -> float:
        """Return when a demand behind all others would be as far from the bound as it can be."""
        before = sum(self._seconds(job) for job in self.jobs.values())
        return self._start(now) + before + self._seconds(_loose(demand)) / self.bound

    def dues(self) -> Iterable[float]:
        """Return the due times of all that waits."""
        return (job.due for job in self.jobs.values())

    def join(self, demand: Demand) -> None:
        """Let a job into the line."""
        if demand.ranges:
            self.jobs[demand.uid] = _loose(demand)

    def leave(self, uid: str) -> None:
        """Take what waits of a job out of the line."""
        self.jobs.pop(uid, None)

    def free(self, places: Iterable[Place]) -> None:
        """Take in that nobody sits on these places."""
        for place in places:
            self.ends.pop(place, None)

    def opens(self, now: float) -> float | None:
        """Return when the port will be free, if that is to be waited for."""
        one_port = self.ground.discipline.one_port
        return self.port if one_port and self.jobs and self.port > now + tolerance(now) else None

    def next(self, now: float) -> NextChunk | None:
        """Return what a processor that is free now should compute."""
        if not self.jobs:
            return None
        job = min(self.jobs.values(), key=lambda job: (job.due <= now, job.turn))
        return NextChunk(job.turn[2], self._first(job, job.due - now - job.cost.setup))

    def _first(self, job: WaitingLoad, window: float) -> Range:
        """Return the chunk of a job that a processor gets, with so many seconds (s) left to compute it in."""
        wanted = max(window / PARTS, WORTH * job.cost.setup)
        seconds = min(wanted, window / SLOWER)
        least = LEAST * job.whole / max(1, self.processors)
        size = max(1, int(max(least, seconds / job.cost.per_unit)))
        first = job.left.parts[0]
        if first.size - size < job.least_chunk:
            size = first.size  # the rest is not worth a set-up: truncation alone can leave one unit
        return Range(first.begin, first.begin + size)

    def start(self, now: float, share: NextChunk, place: Place) -> float:
        """Give it to the processor at a place; return when it is expected to end."""
        uid, piece = share
        job = self.jobs[uid]
        job.left -= Ranges.of(piece)
        if not job.left:
            del self.jobs[uid]
        self.port = now + job.cost.theta_cm + piece.size * job.cost.tau
        self.ends[place] = end = now + job.cost.seconds(piece.size)
        return end

    def _in_time(self, now: float) -> Iterable[WaitingLoad]:
        return (job for job in self.jobs.values() if job.due > now)

    def _start(self, now: float) -> float:
        """Return when the first that waits begins."""
        return max(now, self.port if self.ground.discipline.one_port else now) + self._running(now)

    def _running(self, now: float) -> float:
        """Return the seconds that what runs takes of all processors."""
        return sum(max(0.0, end - now) for end in self.ends.values()) / max(1, self.processors)

    def _seconds(self, job: WaitingLoad) -> float:
        """Return E(σ, N), each processor's set-up included."""
        n = max(1, self.processors)
        spread = GroupShares.of(job.cost).powers(n) if self.ground.discipline.one_port else float(n)
        return job.cost.setup + job.left.total * job.cost.per_unit / spread


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
        if deadline > self.until:
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


def _loose(demand: Demand) -> WaitingLoad:
    units = demand.ranges
    return WaitingLoad(turn_of(demand), demand.cost, units, units.total, demand.least_chunk)
