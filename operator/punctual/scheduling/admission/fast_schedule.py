"""Jobs of a pool under the fast test: which of them wait, and which part each free processor gets.

It wraps a :class:`~punctual.scheduling.admission.fast_queue.FastQueue`, which knows only lengths and slacks, and adds
the jobs' units and the places of processors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected, objection
from punctual.scheduling.admission.fast_queue import FastQueue, SlackAnswer
from punctual.scheduling.admission.fast_test import Obstacle, obstacle, to_fast, turn_of
from punctual.scheduling.admission.schedule import (
    Accepted,
    Current,
    NextChunk,
    Queue,
    QueueTest,
    ScheduleKind,
    Unable,
    expected_share,
)
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
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
    unit_pods: bool = False
    """As of the demand."""

    @property
    def left(self) -> Ranges:
        """The waiting units."""
        return Ranges.of((self.begin, self.end))


@dataclass(slots=True)
class FastSchedule(Queue):
    """All waiting and running work, as the fast test sees it."""

    kind: ClassVar[ScheduleKind] = "Fast"
    counts_on_ends: ClassVar[bool] = False

    fast: FastQueue
    timeline: Timeline
    """The timeline that it was made on: processors, and what they share."""
    jobs: dict[str, WaitingJob]
    ends: dict[Place, float]
    """Times at which busy places become free."""
    plan: Plan = field(default_factory=Plan)
    """The places, without a placement."""

    @classmethod
    def of(
        cls, now: float, places: Sequence[Place], timeline: Timeline, demands: Iterable[Demand], *, beta: float = 1.0
    ) -> "FastSchedule | Obstacle":
        """Make the queue of all waiting demands, or return the first that it could not promise.

        ``beta``: of a further job to be tested, if inputs share a port.
        """
        demands = list(demands)
        fast = to_fast(now, timeline, demands, beta=beta)
        if isinstance(fast, Obstacle):
            return fast
        ready = zip(places, timeline.ready.tolist(), strict=True)
        ends = {place: end for place, end in ready if end > now}
        return cls(
            fast, timeline, {d.uid: _waiting(d) for d in demands}, ends, Plan.holding(places, timeline, (), timeline)
        )

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

    def fits(self, now: float, demand: Demand) -> bool:
        """Whether one more job fits."""
        room = self.room(now, demand)
        return not isinstance(room, Obstacle) and room.fits

    def refresh(self, now: float, current: Current) -> None:
        """Do nothing: each answer is for its own time."""

    def test(self, now: float, current: Current) -> QueueTest:  # noqa: ARG002  as every schedule
        """Return the test of the queue at this time."""
        return QueueTest(self, now)

    def judge(self, a: JobToTest) -> Accepted[SlackAnswer] | Rejected | Unable:
        """Decide on a job by its own slack and that of the jobs behind it."""
        demand, now = a.demand, a.now
        if not self.is_for(demand):
            beta = demand.cost.beta
            return Unable(f"spends {1 - beta:.0%} of its work on transfers, more than any waiting job", beta)
        if no := objection(a):
            return no._replace(placements=0)
        room = self.room(now, demand)
        if isinstance(room, Obstacle):
            return Unable(room.what)
        if not room.fits:
            text = self._arithmetic(a, room)
            return Rejected(reasons.INFEASIBLE_CAPACITY, text, by_time=True, placements=0)
        _, processors = expected_share(a)
        finish = max(now, demand.due - room.slack)
        return Accepted(demand, processors, max(now, finish - room.length), finish, room)

    def _arithmetic(self, a: JobToTest, room: SlackAnswer) -> str:
        what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)}"
        asks = f"{what} take {span(room.length)} of {some(self.fast.processors, 'processor')} together"
        if room.slack < 0:
            return f"{asks}; behind the jobs before it, that is {span(-room.slack)} too late"
        return f"{asks}; the jobs behind it can wait for only {span(max(0.0, room.spare))}"

    def add(self, accepted: Accepted[SlackAnswer]) -> None:
        """Add a job to the queue."""
        self.join(accepted.demand, accepted.proof)

    def join(self, demand: Demand, room: SlackAnswer) -> None:
        """Add a job to the queue, with its answer from `room`."""
        self.fast.join(turn_of(demand), room)
        self.jobs[demand.uid] = _waiting(demand)

    def remove(self, uid: str) -> bool:
        """Remove the waiting part of a job from the queue: all jobs behind it gain its length."""
        if (waiting := self.jobs.pop(uid, None)) is not None:
            self.fast.leave(waiting.turn)
        return False

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

    def wake(self, now: float) -> float | None:
        """Return when the port will be free, if a chunk must wait for it."""
        if self.fast.beta is None or not self.jobs or self.fast.port <= now + tolerance(now):
            return None
        return self.fast.port

    def next(self, now: float, place: Place) -> NextChunk | None:  # noqa: ARG002  as every queue
        """Return the chunk for a place that is free now: of the first job that it can serve."""
        for waiting in self.fast.waiting:
            uid = waiting.order[2]
            job = self.jobs[uid]
            size = int(self.fast.share(now, job.turn, float(job.end - job.begin), job.cost))
            if size:
                return NextChunk(uid, Range(job.begin, job.begin + (1 if job.unit_pods else size)))
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


def _waiting(demand: Demand) -> WaitingJob:
    begin, end = demand.ranges.parts[0]
    return WaitingJob(turn_of(demand), demand.cost, begin, end, demand.unit_pods)
