"""Admission by utilization: jobs share processors, as long as what they need fits the nodes (Park and Humphrey, ch. 5).

No plan says when a job runs: it runs from its start to its due time, at the part of a processor that it needs
(:mod:`punctual.scheduling.admission.fluid`). What promised jobs need is computed at each decision from what is left of
them, so a job that is ahead leaves room for others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np

from punctual import reasons
from punctual.control.utilization import refusal
from punctual.scheduling.admission.application import JobToTest, Rejected, confinement, objection, too_late
from punctual.scheduling.admission.fluid import Arrangement, FluidJob, FluidNode, arrange
from punctual.scheduling.admission.schedule import Accepted, ChunkStart, Current, PlaceClaim, ScheduleKind
from punctual.scheduling.model.node_rules import Ports
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline, Walk

Look = Callable[[float], Collection[FluidJob]]
"""Returns what is left of each promised job at a time."""


def fluid_job(demand: Demand) -> FluidJob:
    """Return the job of a demand without a pod. Its transfers count as computing, which needs no less."""
    cost, ranges = demand.cost, demand.ranges
    return FluidJob(
        uid=demand.uid,
        due=demand.due,
        work=ranges.total * cost.per_unit,
        setup=cost.setup * max(1, len(ranges.parts)),
        not_before=demand.not_before,
        ranges=ranges,
        eligible=demand.eligible,
        unit_pods=demand.unit_pods,
    )


@dataclass(frozen=True, slots=True)
class UtilizationTest:
    """Admission test at one time, for callers that test one demand after the other."""

    now: float
    timeline: Timeline
    nodes: Sequence[FluidNode]
    jobs: Collection[FluidJob]

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        if not self.nodes or demand.reduce or demand.least > 1 or too_late(demand, self.timeline, self.now):
            return False
        return self.arranged(demand).kept

    def arranged(self, demand: Demand) -> Arrangement:
        """Return what would be expected with the demand. It replaces the job's own, if the job is promised."""
        others = [job for job in self.jobs if job.uid != demand.uid]
        return arrange(self.now, self.nodes, [*others, fluid_job(demand)])

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand under another absolute deadline."""
        return self.timeline.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return a due time by which the demand is certainly done: it begins when all other jobs have ended."""
        if not self.nodes or demand.reduce or demand.least > 1:
            return inf
        job, slowest = fluid_job(demand), max(node.speed for node in self.nodes)
        if not any(job.fits(node) for node in self.nodes):
            return inf
        alone = job.setup + job.work * slowest
        behind = sum(other.setup + other.work * slowest for other in self.jobs)
        return max([self.now, demand.not_before, *(other.due for other in self.jobs)]) + behind + alone

    def turns(self, demand: Demand) -> Iterable[float]:
        """Return the absolute deadlines at which other jobs have ended."""
        return (job.due + demand.kept_back for job in self.jobs)


@dataclass(slots=True)
class UtilizationSchedule:
    """All promised jobs of a pool where pods share processors."""

    kind: ClassVar[ScheduleKind] = "Utilization"
    counts_on_ends: ClassVar[bool] = False
    takes_any: ClassVar[bool] = False

    look: Look
    """What counts for new promises."""
    look_kept: Look
    """What counts for promises that are made: a job that is behind its line is expected to get back to it."""
    nodes: Callable[[float], Sequence[FluidNode]]
    """Returns what the nodes have at a time."""
    plan: Plan = field(default_factory=Plan)
    """The places, without a placement."""
    waiting: dict[str, Ranges] = field(default_factory=dict)
    """Units that no pod has, by job."""
    broken: bool = False
    """Not all promised jobs will be in time: some that wait find no room any more."""
    overtaken: frozenset[str] = frozenset()
    """Jobs that make way for more urgent ones."""

    def refresh(self, now: float, current: Current) -> None:
        """Do nothing: each answer is for its own time."""

    def test(self, now: float, current: Current) -> UtilizationTest:  # noqa: ARG002  as every schedule
        """Return the test for demands at this time."""
        return UtilizationTest(now, self.plan.timeline, self.nodes(now), self.look(now))

    def judge(self, a: JobToTest) -> Accepted[Arrangement] | Rejected:
        """Promise a job if the needs of all jobs fit the nodes with it, now and when others have ended."""
        if no := objection(a):
            return no._replace(placements=0)
        if a.demand.reduce or a.demand.least > 1:
            field = "spec.reduce" if a.demand.reduce else f"spec.processors.min {a.demand.least}"
            text = f"{field}: a pool with admission Utilization cannot promise it, because its jobs have one pod each"
            return Rejected(reasons.INFEASIBLE_CAPACITY, text, placements=0)
        test = UtilizationTest(a.now, self.plan.timeline, self.nodes(a.now), self.look(a.now))
        found = test.arranged(a.demand)
        if not found.kept:
            return Rejected(reasons.INFEASIBLE_CAPACITY, _arithmetic(a, test), by_time=True)
        start = found.starts.get(a.demand.uid)
        return Accepted(a.demand, 1, a.now if start is None else start.at, a.demand.due, found)

    def movable(self, demand: Demand) -> Plan | None:  # noqa: ARG002  as every schedule
        """Return nothing: testing several demands together is not cheaper."""
        return None

    def add(self, accepted: Accepted[Arrangement]) -> None:
        """Promise a job."""
        if accepted.demand.ranges:
            self.waiting[accepted.demand.uid] = accepted.demand.ranges

    def remove(self, uid: str) -> bool:
        """Remove the waiting work of a job; the others do not move."""
        self.waiting.pop(uid, None)
        return False

    def uids(self) -> Collection[str]:
        """Return the jobs that have waiting work."""
        return self.waiting.keys()

    def remaining(self, uid: str) -> Ranges:
        """Return the waiting units of a job."""
        return self.waiting.get(uid, Ranges())

    def starts(self, now: float, free: MutableMapping[Place, None], ports: Mapping[str, Ports]) -> Iterator[ChunkStart]:
        """Yield a pod for each waiting job for which there is room."""
        if not self.waiting:
            return
        jobs = {job.uid: job for job in self.look_kept(now)}
        for uid, (node, at) in arrange(now, self.nodes(now), jobs.values()).starts.items():
            place = next((place for place in free if place.node == node), None)
            if at > now or place is None or uid not in self.waiting or jobs[uid].node is not None:
                continue
            eligible = jobs[uid].eligible
            if eligible is not None and eligible.conflicts(ports.get(node, frozenset())):
                continue
            del free[place]
            job, left = jobs[uid], self.waiting[uid]
            first = left.parts[0]
            piece = Range(first.begin, first.begin + 1 if job.unit_pods else first.end)
            rest = left - Ranges.of(piece)
            if rest:
                self.waiting[uid] = rest
            else:
                del self.waiting[uid]
            # Several ranges share the time by their units, behind each one's set-up.
            setup = job.setup / len(left.parts)
            end = now + setup + max(0.0, job.due - now - job.setup) * piece.size / left.total
            yield ChunkStart(uid, [(piece, place)], Walk(np.array([now]), np.array([end]), -inf))

    def spare(self, now: float, idle: Iterable[Place]) -> Mapping[Place, float]:  # noqa: ARG002  as every schedule
        """Return the places if no job waits."""
        return {} if self.waiting else dict.fromkeys(idle, inf)

    def claimed(self, now: float) -> Iterable[PlaceClaim]:
        """Return the places of the nodes on which a pod must make way for a job that should begin now."""
        if not self.waiting:
            return ()
        nodes, jobs = self.nodes(now), self.look_kept(now)
        found = arrange(now, nodes, jobs)
        self.broken = not found.kept
        self.overtaken = found.overtaken | {job.uid for job in jobs if job.leaving}
        begin = Counter(start.node for start in found.starts.values() if start.at <= now)
        wanted = {node.name for node in nodes if node.taken + begin[node.name] > node.pods}
        taking = {job.uid for job in jobs if job.ports}  # others without a promise may have their host ports
        wanted |= {job.node for job in jobs if job.node is not None and job.uid in self.overtaken}
        wanted |= {start.node for uid, start in found.starts.items() if start.at <= now and uid in taking}
        return [PlaceClaim(place, now) for place in self.plan.places if place.node in wanted]

    def wake(self, now: float) -> float | None:  # noqa: ARG002  as every schedule
        """Return None: jobs wait for other jobs to end."""
        return None


def _arithmetic(a: JobToTest, test: UtilizationTest) -> str:
    """Return why a job cannot be promised: what it needs, and what is left on the node with most."""
    job, limit = fluid_job(a.demand), confinement(a)
    what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)}"
    full = None
    for node in [node for node in test.nodes if job.fits(node)]:
        there = [one.remaining(a.now, node.speed, waits=False) for one in test.jobs if one.node == node.name]
        asked = job.remaining(a.now, node.speed, waits=True)
        no = refusal(asked, there, cores=node.processors, headroom=0.0)
        if no is None:
            pods = sum(one.node == node.name for one in test.jobs)
            if pods < node.pods:
                return f"{what} would fit only by breaking an earlier promise: jobs that wait need the CPU later{limit}"
            return f"{what}: {some(pods, 'pod')} on a node are as many as fit, and no job can make way in time{limit}"
        if full is None or no.left > full.left:
            full = no
    assert full is not None
    if full.needed > 1.0:
        return f"{what} need {full.needed:.3g} processors of {a.cpu:g} CPU, but a job has one pod, on one processor"
    return (
        f"{what} need {full.needed:.3g} of a processor of {a.cpu:g} CPU until then; beside the jobs that are promised, "
        f"a node has at most {max(0.0, full.left):.3g} left{limit}"
    )
