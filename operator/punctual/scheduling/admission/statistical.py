"""Admission where costs are estimates that may be wrong: as much as a utilization bound allows (Mamat 2011, ch. 7).

Nobody is promised for certain. A job is let in if no waiting job's utilization, its time on all processors over the
time it has left, is above the bound; the bound is set by hand, or moved by a controller so that so many of the
accepted miss. Work is given out in the order of deadlines, in chunks that are short against the time left: then all
processors work on the job that is due first, and a job that is due earlier waits for none of them long. A job that is
late goes on behind those that are not: served first, it would make them late too.

Where the paper's algorithm 12 leaves open what "the completion of the last dispatched task" is, we take what runs
as spread over all processors (its algorithm 10): one job's chunks end at many times.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.scheduling.admission.fast_test import turn_of
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.geometric import GroupShares
from punctual.theory.tolerance import tolerance

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


def _loose(demand: Demand) -> WaitingLoad:
    units = demand.ranges
    return WaitingLoad(turn_of(demand), demand.cost, units, units.total, demand.least_chunk)
