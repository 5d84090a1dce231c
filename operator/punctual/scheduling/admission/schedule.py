"""Schedule: the promised work of a pool. It tests new promises and assigns work to free processors.

There are four kinds, each in its own module. A pool uses one at a time:

    exact          ExactSchedule        a plan: every chunk has its processor and its time
    fast_schedule  FastSchedule         a queue by deadline: a free processor takes the first work that it can do
    statistical    StatisticalQueue     a queue under a utilization bound, for uncertain costs
    utilization    UtilizationSchedule  no queue and no plan: jobs share processors, each at the part that it needs

Each kind keeps its promises only if it also dispatches the work, so kinds are not mixed. Only
:mod:`punctual.scheduling.engine.admission_mode` knows which kind is in use; every other stage uses the methods below. A
schedule knows demands (work to place), places (processors) and times. It knows no records, pods or events.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from punctual.scheduling.admission.application import JobToTest, Rejected, least_seconds, too_late
from punctual.scheduling.admission.offers import Test
from punctual.scheduling.model.node_rules import Ports
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline, Walk

ScheduleKind = Literal["Exact", "Fast", "Statistical", "Utilization"]
Proof = TypeVar("Proof")
Current = Callable[[], Plan]
"""Returns the plan for a demand placed now, to which leftover chunks make way. Only exact admission calls it."""


class Accepted(NamedTuple, Generic[Proof]):
    """A promise that the schedule can make, and what it expects of the job: absolute times, seconds."""

    demand: Demand
    processors: int
    start: float
    finish: float
    proof: Proof
    """Value that :meth:`Schedule.add` needs to make the promise."""
    moved: bool = False
    """Whether other jobs' placements have moved for it."""
    placements: int = 0
    """Number of placements tested."""


class Unable(NamedTuple):
    """The schedule cannot judge a request."""

    what: str
    """What the job does that the schedule cannot judge."""
    beta: float | None = None
    """χ/(τ + χ) of the job, if a queue made for it could judge it."""


class ChunkStart(NamedTuple):
    """Work of a job that begins now: ranges with their places, and the times of each."""

    uid: str
    pieces: list[tuple[Range, Place]]
    walk: Walk


class NextChunk(NamedTuple):
    """The chunk for the next free processor."""

    uid: str
    piece: Range


class ReduceStart(NamedTuple):
    """A job's reduce step may begin now on this place."""

    uid: str
    place: Place


class PlaceClaim(NamedTuple):
    """A place that promised work needs."""

    place: Place
    begin: float
    """When it begins there; no later than now: as soon as it can."""
    uid: str | None = None
    """Its job; None: the first of the waiting jobs."""


class Schedule(Protocol[Proof]):
    """Promised work that is still to be dispatched, and the processors that it is promised on."""

    kind: ClassVar[ScheduleKind]
    counts_on_ends: ClassVar[bool]
    """Whether planned work starts at the planned end of other work, so that another end makes a new plan worthwhile."""

    @property
    def plan(self) -> Plan:
        """The work that is fixed on a place and at a time; a queue fixes none."""

    @property
    def takes_any(self) -> bool:
        """Whether the first waiting work begins on whichever processor is free."""

    @property
    def overtaken(self) -> Collection[str]:
        """Promised jobs that make way for more urgent ones: their pods are cut short."""

    def refresh(self, now: float, current: Current) -> None:
        """Move ready times that have passed to ``now``, before jobs are judged."""

    def test(self, now: float, current: Current) -> Test:
        """Return the admission test in force, for searches that test one demand after the other."""

    def judge(self, a: JobToTest) -> Accepted[Proof] | Rejected | Unable:
        """Test whether a job can be promised beside all others. Nothing changes."""

    def movable(self, demand: Demand) -> Plan | None:
        """Return the plan if it may fit the demand only before other placements; None: test the demand alone."""

    def add(self, accepted: Accepted[Proof]) -> None:
        """Promise a job. Nothing may have changed since it was judged."""

    def remove(self, uid: str) -> bool:
        """Remove the waiting work of a job; return whether a new plan could start other work earlier."""

    def uids(self) -> Collection[str]:
        """Return the jobs that have waiting work."""

    def remaining(self, uid: str) -> Ranges:
        """Return the waiting units of a job."""

    def starts(
        self, now: float, free: MutableMapping[Place, None], ports: Mapping[str, Ports]
    ) -> Iterator[ChunkStart | ReduceStart]:
        """Yield the work that begins now on free places. It removes from ``free`` those that its work uses or needs.

        ``ports``: the host ports that pods of the pool's jobs have, by node.
        """

    def spare(self, now: float, idle: Iterable[Place]) -> Mapping[Place, float]:
        """Return which places without a chunk may serve jobs without a promise, once work has begun, and until when."""

    def claimed(self, now: float) -> Iterable[PlaceClaim]:
        """Return the places from which jobs without a promise must leave, each once, and when promised work begins."""

    def wake(self, now: float) -> float | None:
        """Return when work could begin without a further event; None: only after an event."""


class Waiting(Protocol):
    """The waiting part of a job."""

    @property
    def left(self) -> Ranges:
        """The waiting units."""


class Queue(ABC):
    """Queue of waiting jobs: it tests one demand at a time, and serves one processor at a time.

    Implements the part of :class:`Schedule` that all queues share.
    """

    __slots__ = ()

    timeline: Timeline
    """The timeline that it was made on: processors, and what they share."""
    jobs: Mapping[str, Waiting]
    plan: Plan
    """The places, without a placement."""
    overtaken: ClassVar[Collection[str]] = ()

    @abstractmethod
    def fits(self, now: float, demand: Demand) -> bool:
        """Whether the demand would be admitted, if it is not too late anyway."""

    @abstractmethod
    def over(self, now: float, demand: Demand) -> float:
        """Return a due time with which a demand behind all others is admitted."""

    @abstractmethod
    def dues(self) -> Iterable[float]:
        """Return the due times of all waiting jobs."""

    @abstractmethod
    def free(self, places: Iterable[Place]) -> None:
        """Note that these places are free."""

    @abstractmethod
    def wake(self, now: float) -> float | None:
        """Return when the port (the connection to the source of inputs) will be free, if a chunk must wait for it."""

    @property
    def takes_any(self) -> bool:
        """Whether each place may take the work of each job."""
        return True

    @abstractmethod
    def next(self, now: float, place: Place) -> NextChunk | None:
        """Return the chunk for a place that is free now."""

    @abstractmethod
    def start(self, now: float, share: NextChunk, place: Place) -> float:
        """Assign the chunk to the processor at a place; return when it is expected to end."""

    def movable(self, demand: Demand) -> Plan | None:  # noqa: ARG002  as every schedule
        """Return nothing: testing several demands together is not cheaper."""
        return None

    def uids(self) -> Collection[str]:
        """Return the waiting jobs."""
        return self.jobs.keys()

    def remaining(self, uid: str) -> Ranges:
        """Return the waiting units of a job."""
        return self.jobs[uid].left if uid in self.jobs else Ranges()

    def starts(
        self,
        now: float,
        free: MutableMapping[Place, None],
        ports: Mapping[str, Ports],  # noqa: ARG002  no queue has jobs that take them
    ) -> Iterator[ChunkStart]:
        """Yield a chunk of the first work for each free place, until the port is busy or no work fits."""
        self.free(free)
        for place in tuple(free):
            if self.wake(now) is not None:
                return
            if not (share := self.next(now, place)):
                if self.takes_any:
                    return
                continue
            del free[place]
            end = np.array([self.start(now, share, place)])
            yield ChunkStart(share.uid, [(share.piece, place)], Walk(np.array([now]), end, -math.inf))

    def spare(self, now: float, idle: Iterable[Place]) -> Mapping[Place, float]:  # noqa: ARG002  as every schedule
        """Return the places if no job waits."""
        return {} if self.jobs else dict.fromkeys(idle, math.inf)

    def claimed(self, now: float) -> Iterable[PlaceClaim]:
        """Return all places if a job waits: any of them would take the first work."""
        return (PlaceClaim(place, now) for place in (self.plan.places if self.jobs else ()))


@dataclass(frozen=True, slots=True)
class QueueTest:
    """Admission test of a queue at one time, for callers that test one demand after the other."""

    line: Queue
    now: float

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        if not self.line.timeline.ready.size or too_late(demand, self.line.timeline, self.now):
            return False
        return self.line.fits(self.now, demand)

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand under another absolute deadline."""
        return self.line.timeline.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return the latest time at which a demand behind all others is done; no other demand is due later."""
        least = self.now + least_seconds(demand, self.line.timeline)
        return max(self.line.over(self.now, demand), least, *self.line.dues())

    def turns(self, demand: Demand) -> Iterable[float]:
        """Return the absolute deadlines at which the demand moves behind one more job."""
        return (due + demand.kept_back for due in self.line.dues())


def expected_share(a: JobToTest) -> tuple[float, int]:
    """Return the seconds that a job has for its work, and the number of processors that it then needs."""
    demand = a.demand
    seconds = max(demand.due - a.now - demand.cost.setup, demand.cost.per_unit)
    return seconds, min(a.processors, max(1, math.ceil(demand.work / seconds)))
