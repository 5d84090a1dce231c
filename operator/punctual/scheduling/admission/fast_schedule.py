"""Jobs of a pool under the fast test: which of them wait, and which part each free processor gets.

It wraps a :class:`~punctual.scheduling.admission.fast_queue.FastQueue`, which knows only lengths and slacks, and adds
the jobs' units and the places of processors. :mod:`punctual.scheduling.engine.admission_mode` creates it; the
dispatcher reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from punctual.scheduling.admission.exact import least_seconds, too_late
from punctual.scheduling.admission.fast_queue import FastQueue, SlackAnswer
from punctual.scheduling.admission.fast_test import Obstacle, obstacle, to_fast, turn_of
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.admission.statistical import NextChunk, StatisticalQueue
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance


@dataclass(slots=True)
class WaitingJob:
    """Waiting part of a job: units [begin, end)."""

    turn: Turn
    cost: Cost
    begin: int
    end: int

    @property
    def left(self) -> Ranges:
        """The waiting units."""
        return Ranges.of((self.begin, self.end))


@dataclass(slots=True)
class FastSchedule:
    """All waiting and running work, as the fast test sees it."""

    fast: FastQueue
    ground: Timeline
    """The timeline that it was made on: processors, and what they share."""
    jobs: dict[str, WaitingJob]
    ends: dict[Place, float]
    """Times at which busy places become free."""

    @classmethod
    def of(
        cls, now: float, places: Sequence[Place], ground: Timeline, demands: Iterable[Demand], *, beta: float = 1.0
    ) -> "FastSchedule | Obstacle":
        """Make the queue of all waiting demands, or return the first that it could not promise.

        ``beta``: of a further job to be tested, if inputs share a port.
        """
        demands = list(demands)
        fast = to_fast(now, ground, demands, beta=beta)
        if isinstance(fast, Obstacle):
            return fast
        ready = zip(places, ground.ready.tolist(), strict=True)
        ends = {place: end for place, end in ready if end > now}
        return cls(fast, ground, {d.uid: _waiting(d) for d in demands}, ends)

    def room(self, now: float, demand: Demand) -> SlackAnswer | Obstacle:
        """Test whether one more job fits, or return why the fast test cannot judge it."""
        processors = self.fast.processors
        if no := obstacle(demand, now=now, processors=processors):
            return no
        if not self.is_for(demand):
            return Obstacle(demand.uid, "spends a larger share of its work on transfers than any other job")
        return self.fast.room(now, turn_of(demand), demand.ranges.total, demand.cost)

    def is_for(self, demand: Demand) -> bool:
        """Whether the queue was made for jobs with this share of transfers."""
        return self.fast.beta is None or demand.cost.beta >= self.fast.beta

    def join(self, demand: Demand, room: SlackAnswer) -> None:
        """Add a job to the queue, with its answer from `room`."""
        self.fast.join(turn_of(demand), room)
        self.jobs[demand.uid] = _waiting(demand)

    def leave(self, uid: str) -> None:
        """Remove the waiting part of a job from the queue."""
        if (waiting := self.jobs.pop(uid, None)) is not None:
            self.fast.leave(waiting.turn)

    def free(self, places: Iterable[Place]) -> None:
        """Note that these places are free, even if they were to be free at another time."""
        for place in places:
            if (end := self.ends.pop(place, None)) is not None:
                self.fast.stop(end)

    def over(self, now: float, demand: Demand) -> float:
        """Return a time by which a demand behind all others is certainly done; inf if the queue cannot judge it."""
        if not self.is_for(demand):
            return inf
        fast = self.fast
        busy = max(self.ends.values(), default=now)
        work = sum(w.length for w in fast.waiting) + fast.length(float(demand.ranges.total), demand.cost)
        grain = fast.grain * demand.cost.per_unit
        return max(busy, fast.port, now) + work + demand.cost.setup + grain

    def dues(self) -> Iterable[float]:
        """Return the due times of all waiting jobs."""
        return (waiting.turn[0] for waiting in self.jobs.values())

    def opens(self, now: float) -> float | None:
        """Return when the port will be free, if a chunk must wait for it."""
        if self.fast.beta is None or not self.jobs or self.fast.port <= now + tolerance(now):
            return None
        return self.fast.port

    def next(self, now: float) -> NextChunk | None:
        """Return the chunk for a processor that is free now: of the first job that it can serve."""
        for waiting in self.fast.waiting:
            uid = waiting.order[2]
            job = self.jobs[uid]
            size = int(self.fast.share(now, job.turn, float(job.end - job.begin), job.cost))
            if size:
                return NextChunk(uid, Range(job.begin, job.begin + size))
        return None

    def start(self, now: float, share: NextChunk, place: Place) -> float:
        """Assign the chunk to the processor at a place; return when it ends."""
        job = self.jobs[share.uid]
        job.begin = share.piece.end
        left = float(job.end - job.begin)
        end = self.fast.start(now, job.turn, float(share.piece.size), job.cost, left=left)
        if not left:
            del self.jobs[share.uid]
        self.ends[place] = end
        return end


@dataclass(frozen=True, slots=True)
class ScheduleTest:
    """Admission test of the queue at one time, for callers that test one demand after the other."""

    line: FastSchedule | StatisticalQueue
    now: float

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        if not self.line.ground.ready.size or too_late(demand, self.line.ground, self.now):
            return False
        room = self.line.room(self.now, demand)
        return not isinstance(room, Obstacle) and room.fits

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand under another absolute deadline."""
        return self.line.ground.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return when a demand behind all others is done at the latest; none of the others is due later."""
        least = self.now + least_seconds(demand, self.line.ground)
        return max(self.line.over(self.now, demand), least, *self.line.dues())

    def turns(self, demand: Demand) -> Iterable[float]:
        """Return the absolute deadlines at which the demand moves behind one more job."""
        return (due + demand.kept_back for due in self.line.dues())


def _waiting(demand: Demand) -> WaitingJob:
    begin, end = demand.ranges.parts[0]
    return WaitingJob(turn_of(demand), demand.cost, begin, end)
