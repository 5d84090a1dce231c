"""Statistical admission: admits by a utilization bound where costs are uncertain estimates (Mamat 2011, ch. 7).

It gives no guarantee. A job is admitted if no waiting job's utilization (its time on all processors divided by the time
that it has left) exceeds the bound. The bound is set by hand, or a controller moves it to hold the share of accepted
jobs that miss their deadlines. Work is dispatched in the order of deadlines, in chunks that are short compared to the
time left. So all processors work on the job that is due first, and a job with an earlier deadline does not wait long
for any of them. A late job continues behind the jobs that are not late: served first, it would make them late too.

The paper's algorithm 12 does not define "the completion of the last dispatched task". Here, running work counts as
spread over all processors (as in its algorithm 10), since one job's chunks end at many times.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Final

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected, confinement, objection
from punctual.scheduling.admission.fast_test import turn_of
from punctual.scheduling.admission.schedule import (
    Accepted,
    Current,
    NextChunk,
    Queue,
    QueueTest,
    ScheduleKind,
    expected_share,
)
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.model.node_rules import Eligible
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.geometric import GroupShares
from punctual.theory.tolerance import tolerance

PARTS: Final = 16.0
"""m of the paper's dispatcher: a chunk is expected to take 1/m of the time left.

m = 2 is just enough for costs twice as high as estimated. A job then stays on few processors until its deadline, and
less of the processors' time is used for the same number of misses (measured in docs/papers.md).
"""
LEAST: Final = 0.2
"""Least chunk as a part of a processor's equal share; only the last may be smaller. Otherwise chunks shrink forever."""
WORTH: Final = 10.0
"""A chunk takes at least so many times its set-up, if ``SLOWER`` times its expected time still ends in time."""
SLOWER: Final = 2.0
"""A chunk may take so many times its expected time and still end in time, unless it has the least size."""


@dataclass(slots=True)
class WaitingLoad:
    """The waiting part of a job."""

    turn: Turn
    cost: Cost
    left: Ranges
    whole: int
    """Units that waited at first."""
    least_chunk: int
    """As of the demand."""
    eligible: Eligible | None = None
    """As of the demand: its nodes."""
    unit_pods: bool = False
    """As of the demand."""

    @property
    def due(self) -> float:
        """The due time."""
        return self.turn[0]

    def seconds(self, processors: int, *, one_port: bool) -> float:
        """Return E(σ, N), with each processor's set-up."""
        spread = GroupShares.of(self.cost).powers(processors) if one_port else float(processors)
        return self.cost.setup + self.left.total * self.cost.per_unit / spread

    def first_chunk(self, window: float, processors: int) -> Range:
        """Return the chunk for a processor with ``window`` seconds left for computing it."""
        if self.unit_pods:
            return Range(self.left.parts[0].begin, self.left.parts[0].begin + 1)
        wanted = max(window / PARTS, WORTH * self.cost.setup)
        seconds = min(wanted, window / SLOWER)
        least = LEAST * self.whole / processors
        size = max(1, int(max(least, seconds / self.cost.per_unit)))
        first = self.left.parts[0]
        if first.size - size < self.least_chunk:
            size = first.size  # the rest is not worth a set-up: truncation can leave one unit
        return Range(first.begin, first.begin + size)


@dataclass(frozen=True, slots=True)
class UtilizationAnswer:
    """Answer: the highest utilization with the job in the queue, and the bound."""

    highest: float
    bound: float

    @property
    def fits(self) -> bool:
        """Whether the job may be admitted."""
        return self.highest <= self.bound


@dataclass(slots=True)
class StatisticalQueue(Queue):
    """All waiting and running work. ``bound``: the highest utilization allowed."""

    kind: ClassVar[ScheduleKind] = "Statistical"
    counts_on_ends: ClassVar[bool] = False

    timeline: Timeline
    bound: float
    jobs: dict[str, WaitingLoad] = field(default_factory=dict)
    ends: dict[Place, float] = field(default_factory=dict)
    """Times at which busy places are expected to become free."""
    confined: set[str] = field(default_factory=set)
    """Jobs that may use some nodes only."""
    port: float = -inf
    plan: Plan = field(default_factory=Plan)
    """The places, without a placement."""

    @classmethod
    def of(
        cls, now: float, places: Sequence[Place], timeline: Timeline, demands: Iterable[Demand], *, bound: float
    ) -> "StatisticalQueue":
        """Make the queue of all waiting demands and the running work."""
        ready = zip(places, timeline.ready.tolist(), strict=True)
        ends = {place: end for place, end in ready if end > now}
        line = cls(timeline, bound, ends=ends, port=timeline.port, plan=Plan.holding(places, timeline, (), timeline))
        for demand in demands:
            line.join(demand)
        return line

    @property
    def processors(self) -> int:
        """Number of processors."""
        return int(self.timeline.ready.size)

    def room(self, now: float, demand: Demand) -> UtilizationAnswer:
        """Test whether a job may be admitted (algorithm 12). Its demand replaces the one that it has in the queue."""
        asked = _loose(demand)
        jobs = [job for uid, job in self.jobs.items() if job.due > now and uid != demand.uid]
        jobs = sorted([*jobs, asked], key=lambda job: job.turn)
        highest = max(self._highest(now, jobs, nodes) for nodes in self._scopes(jobs, asked))
        return UtilizationAnswer(highest, self.bound)

    def _scopes(self, jobs: Iterable[WaitingLoad], asked: WaitingLoad) -> set[frozenset[str] | None]:
        """Return the sets of nodes on which the jobs that may run nowhere else are tested; None: all nodes.

        All jobs together must fit all processors. Of those that may use some nodes only, each such set of nodes is
        tested alone, if the new job may not run elsewhere.
        """
        scopes: set[frozenset[str] | None] = {None}
        if self.takes_any and asked.eligible is None:
            return scopes
        nodes, own = self.timeline.sites.nodes, self.timeline.sites.nodes(asked.eligible)
        return scopes | {there for job in jobs if own <= (there := nodes(job.eligible))}

    def _highest(self, now: float, jobs: Iterable[WaitingLoad], nodes: frozenset[str] | None) -> float:
        """Return the highest utilization of the jobs that may run on these nodes alone."""
        processors = self.processors
        if nodes is not None:
            processors = self.timeline.sites.at(Eligible(nodes)).size
            jobs = [job for job in jobs if self.timeline.sites.nodes(job.eligible) <= nodes]
        start, highest = self._start(now, processors, nodes), 0.0
        for job in jobs:
            seconds = self._seconds(job, processors)
            window = job.due - start
            pressure = seconds / window if window > 0.0 else float("inf")  # to the letter it is negative, and accepted
            highest = max(highest, pressure)
            start += seconds
        return highest

    @property
    def takes_any(self) -> bool:
        """Whether each place may take the work of each job."""
        return not self.confined and not self.timeline.sites.closed

    def over(self, now: float, demand: Demand) -> float:
        """Return the due time at which a demand behind all others would be furthest below the bound."""
        nodes = self.timeline.sites.nodes(demand.eligible) if self.timeline.confines(demand) else None
        processors = self._count(demand.eligible)
        if not processors:
            return inf
        before = sum(self._seconds(job, processors) for job in self.jobs.values())
        return self._start(now, processors, nodes) + before + self._seconds(_loose(demand), processors) / self.bound

    def dues(self) -> Iterable[float]:
        """Return the due times of all waiting jobs."""
        return (job.due for job in self.jobs.values())

    def fits(self, now: float, demand: Demand) -> bool:
        """Whether one more job may be admitted."""
        return self.room(now, demand).fits

    def refresh(self, now: float, current: Current) -> None:
        """Do nothing: each answer is for its own time."""

    def test(self, now: float, current: Current) -> QueueTest:  # noqa: ARG002  as every schedule
        """Return the test of the queue at this time."""
        return QueueTest(self, now)

    def judge(self, a: JobToTest) -> Accepted[None] | Rejected:
        """Decide on a job by the utilization bound."""
        if no := objection(a):
            return no._replace(placements=0)
        if what := _beyond(a):
            text = f"it {what}, which a pool with missRatio cannot promise"
            return Rejected(reasons.INFEASIBLE_CAPACITY, text, placements=0)
        pressure = self.room(a.now, a.demand)
        if pressure.fits:
            seconds, processors = expected_share(a)
            finish = a.demand.due
            return Accepted(a.demand, processors, max(a.now, finish - seconds), finish, None)
        text = _arithmetic(self, pressure.highest, a.now) + confinement(a)
        return Rejected(reasons.INFEASIBLE_CAPACITY, text, by_time=True, placements=0)

    def add(self, accepted: Accepted[None]) -> None:
        """Add a job to the queue."""
        self.join(accepted.demand)

    def join(self, demand: Demand) -> None:
        """Add a job to the queue."""
        if not demand.ranges:
            return
        self.jobs[demand.uid] = _loose(demand)
        if demand.eligible is not None:
            self.confined.add(demand.uid)

    def remove(self, uid: str) -> bool:
        """Remove the waiting part of a job from the queue."""
        self.jobs.pop(uid, None)
        self.confined.discard(uid)
        return False

    def free(self, places: Iterable[Place]) -> None:
        """Note that these places are free."""
        for place in places:
            self.ends.pop(place, None)

    def wake(self, now: float) -> float | None:
        """Return when the port will be free, if a chunk must wait for it."""
        one_port = self.timeline.discipline.one_port
        return self.port if one_port and self.jobs and self.port > now + tolerance(now) else None

    def next(self, now: float, place: Place) -> NextChunk | None:
        """Return the chunk for a place that is free now."""
        if not self.jobs:
            return None
        jobs: Iterable[WaitingLoad] = self.jobs.values()
        if not self.takes_any:
            jobs = [job for job in jobs if place.node in self.timeline.sites.nodes(job.eligible)]
        job = min(jobs, key=lambda job: (job.due <= now, job.turn), default=None)
        if job is None:
            return None
        processors = max(1, self._count(job.eligible))
        return NextChunk(job.turn[2], job.first_chunk(job.due - now - job.cost.setup, processors))

    def start(self, now: float, share: NextChunk, place: Place) -> float:
        """Assign the chunk to the processor at a place; return when it is expected to end."""
        uid, piece = share
        job = self.jobs[uid]
        job.left -= Ranges.of(piece)
        if not job.left:
            self.remove(uid)
        self.port = now + job.cost.theta_cm + piece.size * job.cost.tau
        self.ends[place] = end = now + job.cost.seconds(piece.size)
        return end

    def _count(self, eligible: Eligible | None) -> int:
        """Return the number of processors that a job may use."""
        sites = self.timeline.sites
        return self.processors if eligible is None and not sites.closed else int(sites.at(eligible).size)

    def _start(self, now: float, processors: int, nodes: frozenset[str] | None) -> float:
        """Return when the first waiting job begins: running work counts as spread over all processors."""
        ends = [end for place, end in self.ends.items() if nodes is None or place.node in nodes]
        running = sum(max(0.0, end - now) for end in ends) / max(1, processors)
        return max(now, self.port if self.timeline.discipline.one_port else now) + running

    def _seconds(self, job: WaitingLoad, processors: int) -> float:
        return job.seconds(max(1, processors), one_port=self.timeline.discipline.one_port)


def _arithmetic(line: StatisticalQueue, highest: float, now: float) -> str:
    allowed = f"the bound is {line.bound:.3g}, with {some(len(line.jobs), 'job')} waiting"
    if highest == inf:
        runs = span(max(line.ends.values(), default=now) - now)
        return f"running chunks (for {runs} at most) and earlier deadlines would leave a job no time at all; {allowed}"
    return f"with this job, a job would need {highest:.3g} of the pool until its deadline; {allowed}"


def _beyond(a: JobToTest) -> str | None:
    """Return what a job does that no utilization tells anything of."""
    if a.demand.reduce:
        return "ends with a reduce step"
    if a.demand.least > 1:
        return f"needs {a.demand.least} processors at once"
    if a.demand.eligible is not None and a.demand.eligible.one_node:
        return f"must have all its pods on one node ({a.job.rules.one_node})"
    if a.demand.eligible is not None and a.demand.eligible.ports:
        return "takes a host port"
    return None


def _loose(demand: Demand) -> WaitingLoad:
    units = demand.ranges
    return WaitingLoad(
        turn_of(demand), demand.cost, units, units.total, demand.least_chunk, demand.eligible, demand.unit_pods
    )
