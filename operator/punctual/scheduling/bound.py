"""Admission where costs are estimates that may be wrong: as much as a utilization bound allows (Mamat 2011, ch. 7).

Nobody is promised for certain. A job is let in if no waiting job's utilization, its time on all processors over the
time it has left, is above the bound; the bound is set by hand, or moved by a controller so that so many of the
accepted miss. Work is given out in the order of deadlines, each chunk so long that it ends in time although it should
take ``SLOWER`` times what is expected; who is late anyway goes on behind those who are not: served first, it would make
them late too.

Where the paper's algorithm 12 leaves open what "the completion of the last dispatched task" is, we take what runs
as spread over all processors (its algorithm 10): one job's chunks end at many times.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.control.pi import PI, Gains
from punctual.scheduling.hybrid import turn_of
from punctual.scheduling.placement import Demand, Ground, tolerance
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Range, Ranges
from punctual.scheduling.slacks import Turn
from punctual.theory.cost import Cost
from punctual.theory.geometric import GroupShares

SLOWER: Final = 2.0
"""m: a chunk may take so many times what is expected and still end in time."""
LEAST: Final = 0.1
"""Of a processor's equal part of the load: no chunk but the last is smaller, or they would shrink for ever."""
GAINS: Final = Gains(0.6, 0.4)
"""Of the controller, bound per miss ratio."""
LOW, HIGH = 0.02, 2.0
"""Between which the bound may move."""


class Share(NamedTuple):
    """A chunk for the next free processor."""

    uid: str
    piece: Range


@dataclass(slots=True)
class Loose:
    """What waits of a job."""

    turn: Turn
    cost: Cost
    left: Ranges
    whole: int
    """Units that waited at first."""

    @property
    def due(self) -> float:
        """When it is to be done."""
        return self.turn[0]


@dataclass(frozen=True, slots=True)
class Pressure:
    """The answer: the highest utilization with the job in the line, and the bound."""

    highest: float
    bound: float

    @property
    def fits(self) -> bool:
        """Whether the job may be let in."""
        return self.highest <= self.bound


@dataclass(slots=True)
class BoundLine:
    """All that waits and runs. ``bound``: the highest utilization allowed."""

    ground: Ground
    bound: float
    jobs: dict[str, Loose] = field(default_factory=dict)
    ends: dict[Place, float] = field(default_factory=dict)
    """When places that are busy are expected to be free."""
    port: float = -float("inf")

    @classmethod
    def of(
        cls, now: float, places: Sequence[Place], ground: Ground, demands: Iterable[Demand], *, bound: float
    ) -> "BoundLine":
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

    def room(self, now: float, demand: Demand) -> Pressure:
        """Ask whether one more job may be let in (algorithm 12)."""
        asked = _loose(demand)
        start = max(now, self.port if self.ground.discipline.one_port else now) + self._running(now)
        highest = 0.0
        for job in sorted([*self._in_time(now), asked], key=lambda job: job.turn):
            seconds = self._seconds(job)
            window = job.due - start
            pressure = seconds / window if window > 0.0 else float("inf")  # to the letter it is negative, and accepted
            highest = max(highest, pressure)
            start += seconds
        return Pressure(highest, self.bound)

    def over(self, now: float, demand: Demand) -> float:
        """Return when a demand behind all others would be as far from the bound as it can be."""
        seconds = sum(self._seconds(job) for job in [*self.jobs.values(), _loose(demand)])
        return max(now, self.port, *self.ends.values()) + seconds / self.bound

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

    def next(self, now: float) -> Share | None:
        """Return what a processor that is free now should compute."""
        if not self.jobs:
            return None
        job = min(self.jobs.values(), key=lambda job: (job.due <= now, job.turn))
        window = job.due - now - job.cost.setup
        least = max(1, int(LEAST * job.whole / max(1, self.processors)))
        first = job.left.parts[0]
        size = min(first.size, max(least, int(window / (SLOWER * job.cost.per_unit)) if window > 0.0 else 0))
        return Share(job.turn[2], Range(first.begin, first.begin + size))

    def start(self, now: float, share: Share, place: Place) -> float:
        """Give it to the processor at a place; return when it is expected to end."""
        uid, piece = share
        job = self.jobs[uid]
        job.left -= Ranges.of(piece)
        if not job.left:
            del self.jobs[uid]
        self.port = now + job.cost.theta_cm + piece.size * job.cost.tau
        self.ends[place] = end = now + job.cost.seconds(piece.size)
        return end

    def _in_time(self, now: float) -> Iterable[Loose]:
        return (job for job in self.jobs.values() if job.due > now)

    def _running(self, now: float) -> float:
        """Return the seconds that what runs takes of all processors."""
        return sum(max(0.0, end - now) for end in self.ends.values()) / max(1, self.processors)

    def _seconds(self, job: Loose) -> float:
        """Return E(σ, N), each processor's set-up included."""
        n = max(1, self.processors)
        spread = GroupShares.of(job.cost).powers(n) if self.ground.discipline.one_port else float(n)
        return job.cost.setup + job.left.total * job.cost.per_unit / spread


class Sample(NamedTuple):
    """A period at its end, and the bound from then on."""

    time: float
    miss_ratio: float
    bound: float


@dataclass(slots=True)
class MissRatio:
    """The controller: counts who of the accepted missed, period by period, and moves the bound.

    ``set_point``: the part of the accepted that may miss; 0 would close the door to all. ``end``: of the period (s).
    """

    set_point: float
    period: float
    end: float
    loop: PI = field(default_factory=lambda: PI(GAINS, output=1.0, low=LOW, high=HIGH))
    last: Sample | None = None
    expected: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (deadline, uid) of those who were let in."""
    open: set[str] = field(default_factory=set)
    """Who of them has not come to an end."""
    due: int = 0
    missed: int = 0

    @property
    def bound(self) -> float:
        """The bound in force."""
        return self.loop.output

    def accept(self, uid: str, deadline: float) -> None:
        """Take in that a job was let in."""
        heapq.heappush(self.expected, (deadline, uid))
        self.open.add(uid)

    def ended(self, uid: str) -> None:
        """Take in that a job has come to its end, late or not."""
        self.open.discard(uid)

    def look(self, now: float) -> None:
        """Count whose deadline has come, and end the periods that are over."""
        while True:
            until = min(now, self.end)
            while self.expected and self.expected[0][0] <= until:
                _, uid = heapq.heappop(self.expected)
                self.due += 1
                self.missed += uid in self.open
                self.open.discard(uid)
            if now < self.end:
                return
            self._sample()

    def _sample(self) -> None:
        # where nobody's deadline came there is nothing to learn
        ratio = self.missed / self.due if self.due else self.set_point
        self.due = self.missed = 0
        self.last = Sample(self.end, ratio, self.loop.step(self.set_point - ratio))
        self.end += self.period


def _loose(demand: Demand) -> Loose:
    units = demand.ranges
    return Loose(turn_of(demand), demand.cost, units, units.total)
