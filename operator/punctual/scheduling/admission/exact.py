"""Exact admission: plans the whole queue with the new job, and keeps the plan that proves every promise.

A job without an obstacle is admitted together with its plan (Mamat 2011, ch. 4: the new task is inserted in the queue,
the whole queue is scheduled, and the task is rejected if any deadline is missed). The user sees the first obstacle,
with its arithmetic.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

import numpy as np

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected, confinement, objection
from punctual.scheduling.admission.schedule import Accepted, ChunkStart, Current, PlaceClaim, ReduceStart, ScheduleKind
from punctual.scheduling.model.node_rules import Eligible, Ports
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.timing import WARNING
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import together_from
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.sufficient_test import load_before, overloaded
from punctual.scheduling.placement.timeline import Placement
from punctual.theory.tolerance import tolerance


def admit(a: JobToTest) -> Accepted[Plan] | Rejected:
    """Return the plan with the job in it, or the first obstacle."""
    if no := objection(a):
        return no
    plan = a.plan.insert(a.demand)
    if isinstance(plan, Shortfall):
        return Rejected(reasons.INFEASIBLE_CAPACITY, _arithmetic(a, plan), by_time=True, placements=plan.placements)
    return accepted(plan, a.demand.uid, moved=not plan.follows(a.plan))


def accepted(plan: Plan, uid: str, *, moved: bool) -> Accepted[Plan]:
    """Return the answer to a job that the plan contains; ``moved``: other placements are not where they were."""
    placement = plan.placement_of(uid)
    tested = 1 + len(plan) if moved else 1
    return Accepted(placement.demand, placement.processors, placement.start, placement.finish, plan, moved, tested)


def current(plan: Plan, now: float, busy: Mapping[Place, float]) -> Plan:
    """Return the plan for a demand placed now. ``busy``: leftover chunks, too, must first leave their places."""
    plan = plan.at(now)
    if (timeline := plan.timeline.holding(busy)) is not plan.timeline:
        plan = replace(plan, timeline=timeline, own_after=plan.after.holding(busy))
    return plan.held(np.array([busy.get(place, now) for place in plan.places], dtype=np.float64))


@dataclass(frozen=True, slots=True)
class PlanTest:
    """Admission test of a plan at one time, for callers that test one demand after the other."""

    plan: Plan

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        return bool(self.plan.places) and not isinstance(self.plan.insert(demand), Shortfall)

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline, with its due time and queue key."""
        return self.plan.timeline.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return when the demand is done behind all placements and windows at the latest, whatever its partition."""
        timeline, demand = self.plan.after, demand.anew()
        after = timeline.allowed(demand)
        if not after.ready.size:
            return inf
        begin = max(float(after.ready.max(initial=0.0)), after.port, demand.not_before, demand.running_until)
        begin = max([begin, *(hold.until for hold in timeline.holds)])
        if after.blackouts is not None:
            begin = max(begin, after.blackouts.over())
        cost, slowest = demand.cost, 1.0 if after.speeds is None else max(1.0, float(after.speeds.max(initial=1.0)))
        chunks = after.ready.size + len(demand.ranges.parts)
        return begin + chunks * cost.setup + demand.ranges.total * (cost.tau + slowest * cost.chi)

    def turns(self, demand: Demand) -> Iterable[float]:  # noqa: ARG002  as every test
        """Return the absolute deadlines at which a demand moves behind one more job."""
        return (d.due + d.kept_back for d in self.plan.demands)


@dataclass(slots=True)
class ExactSchedule:
    """The plan in force, which keeps every promise."""

    kind: ClassVar[ScheduleKind] = "Exact"
    counts_on_ends: ClassVar[bool] = True
    takes_any: ClassVar[bool] = False
    overtaken: ClassVar[Collection[str]] = ()

    plan: Plan = field(default_factory=Plan)

    def refresh(self, now: float, current: Current) -> None:  # noqa: ARG002  as every schedule
        """Bring the plan up to date: no processor is ready in the past."""
        self.plan = current()

    def test(self, now: float, current: Current) -> PlanTest:  # noqa: ARG002  as every schedule
        """Return the test of the plan for demands placed now."""
        return PlanTest(current())

    def judge(self, a: JobToTest) -> Accepted[Plan] | Rejected:
        """Return the plan with the job in it, or the first obstacle."""
        return admit(a)

    def movable(self, demand: Demand) -> Plan | None:
        """Return the plan if a demand does not fit behind it, but might fit before another placement."""
        plan = self.plan
        if overloaded(plan.timeline, plan.demands, demand):
            return None
        return plan if not plan.might_follow(demand) or isinstance(plan.append(demand), Shortfall) else None

    def add(self, accepted: Accepted[Plan]) -> None:
        """Put the plan with the job in force."""
        self.plan = accepted.proof

    def remove(self, uid: str) -> bool:
        """Remove a job's placement; the others do not move, but a new plan could move them up."""
        if not self.plan.has(uid):
            return False
        self.plan = self.plan.without(uid)
        return True

    def uids(self) -> Collection[str]:
        """Return the jobs that have a placement."""
        return [demand.uid for demand in self.plan.demands]

    def remaining(self, uid: str) -> Ranges:
        """Return the units that are placed."""
        return next((demand.ranges for demand in self.plan.demands if demand.uid == uid), Ranges())

    def starts(
        self, now: float, free: MutableMapping[Place, None], ports: Mapping[str, Ports]
    ) -> Iterator[ChunkStart | ReduceStart]:
        """Yield the first chunk that is planned on each free place, if it may begin, and the reduce steps.

        A place that its chunk cannot use yet waits for it.
        """
        places, ports = self.plan.places, dict(ports)
        in_turn = True  # OnePort: no earlier job is still to send
        for placement in self.plan:
            if not free:
                return
            here = self._turn_of(now, placement, free)
            for w in placement.where[here].tolist():
                del free[places[w]]
            begins = here if placement.demand.not_before <= now else []
            reduces = True
            if placement.demand.eligible is not None and placement.demand.eligible.ports:
                begins, reduces = self._with_ports(placement, placement.demand.eligible, begins, ports)
            begins, in_turn = self._those_who_may(placement, begins, in_turn=in_turn)
            if begins:
                yield self._started(now, placement, begins)
            if reduces and self._reduce_may(now, placement) and (place := places[placement.reducer or 0]) in free:
                del free[place]
                if placement.demand.not_before <= now:
                    yield ReduceStart(placement.demand.uid, place)

    def _with_ports(
        self, placement: Placement, eligible: Eligible, begins: list[int], ports: dict[str, Ports]
    ) -> tuple[list[int], bool]:
        """Return the positions with free host ports that may begin, and whether the reduce step has them.

        Earlier placements get their ports first: ``ports``, by node, has theirs afterwards, used or not yet.
        """
        none: Ports = frozenset()
        nodes = [self.plan.places[w].node for w in placement.where.tolist()]
        begins = [i for i in begins if not eligible.conflicts(ports.get(nodes[i], none))]
        reducer = None if placement.reducer is None else self.plan.places[placement.reducer].node
        reduces = reducer is None or not eligible.conflicts(ports.get(reducer, none))
        for node in [*nodes, *([] if reducer is None else [reducer])]:
            ports[node] = ports.get(node, none) | eligible.ports
        return begins, reduces

    def _turn_of(self, now: float, placement: Placement, free: Mapping[Place, None]) -> list[int]:
        """Return the first position on each free place that may start now.

        With reserved windows, a chunk may have to wait although its processor is free. A job later in the plan may use
        the time until then.
        """
        places = self.plan.places
        first: dict[int, int] = {}  # by place: one place may have several chunks
        for i, w in enumerate(placement.where.tolist()):
            if places[w] in free:
                first.setdefault(w, i)
        if not self._windows:
            return list(first.values())
        together = placement.demand.least if placement.demand.least > 1 else 0
        begins = [placement.starts[0 if i < together else i] for i in first.values()]
        return [i for i, at in zip(first.values(), begins, strict=True) if at <= now + tolerance(now)]

    def _those_who_may(self, placement: Placement, begins: list[int], *, in_turn: bool) -> tuple[list[int], bool]:
        """Return the positions with free processors that may begin, and whether later jobs may still send."""
        timeline, least = self.plan.timeline.as_used(placement.demand), placement.demand.least
        if least > 1 and begins[:least] != list(range(least)):
            begins = []  # the first of them begin together or not at all
        if self._windows:  # they begin at their planned times
            return begins, True
        if timeline.together(placement.demand) and len(begins) < placement.processors:
            begins = []
        if not timeline.discipline.one_port:
            return begins, in_turn
        if not in_turn:
            return [], False
        run = [position for i, position in enumerate(begins) if position == i]  # in transfer order
        return run, len(run) == placement.where.size

    def _reduce_may(self, now: float, placement: Placement) -> bool:
        """Whether a reduce step is placed and may begin; with reserved windows, not before its planned start."""
        if placement.reducer is None:
            return False
        return not self._windows or placement.finish - placement.demand.reduce <= now + tolerance(now)

    def _started(self, now: float, placement: Placement, positions: list[int]) -> ChunkStart:
        """Take the first chunk at each of these positions out of the plan."""
        plan, chunks = self.plan, placement.next_chunks(positions)
        at = placement.where[positions]
        sizes = np.array([piece.size for piece in chunks.values()])
        timeline = plan.timeline.as_used(placement.demand)
        walk = timeline.walk(at, sizes, np.full(at.size, now), placement.demand.cost)
        booked = placement.ends[positions]
        ends = np.where(np.abs(walk.ends - booked) <= tolerance(now), booked, walk.ends)  # same sum, other rounding
        walk = walk._replace(ends=ends)
        self.plan = plan.created(placement, chunks, walk.ends.tolist(), walk.port)
        placed = [(piece, plan.places[w]) for piece, w in zip(chunks.values(), at.tolist(), strict=True)]
        return ChunkStart(placement.demand.uid, placed, walk)

    @property
    def _windows(self) -> bool:
        """Whether there are reserved windows: work then begins at its planned time, not as soon as it can."""
        return self.plan.timeline.blackouts is not None

    def spare(self, now: float, idle: Iterable[Place]) -> Mapping[Place, float]:
        """Return the places that no placement needs, and those that wait for one that begins later.

        From the latter, jobs without a promise must leave ``WARNING`` before that.
        """
        begins = {claim.place: claim.begin for claim in self.claimed(now)}
        until = {place: begins.get(place, np.inf) - WARNING for place in idle}
        return {place: at for place, at in until.items() if at > now}

    def claimed(self, now: float) -> Iterable[PlaceClaim]:  # noqa: ARG002  as every schedule
        """Return the places that placements need, and when the first of them begins there."""
        found: dict[int, PlaceClaim] = {}
        places = self.plan.places
        for placement in self.plan:
            begins = list(zip(placement.where.tolist(), placement.starts.tolist(), strict=True))
            if placement.reducer is not None:
                begins.append((placement.reducer, placement.finish - placement.demand.reduce))
            for w, at in begins:
                if w not in found or at < found[w].begin:
                    found[w] = PlaceClaim(places[w], at, placement.demand.uid)
        return found.values()

    def wake(self, now: float) -> float | None:
        """Return the next planned start, if reserved windows make work wait for the clock."""
        if not self._windows:
            return None
        starts = (at for b in self.plan for at in b.begins() if at > now + tolerance(now))
        return min(starts, default=None)


def _arithmetic(a: JobToTest, short: Shortfall) -> str:
    """Return why the job does not fit, and when as many processors as it needs at one time are free."""
    if a.demand.least == 1 or short.units == 0:
        return _obstacle(a, short)
    least = some(a.demand.least, "processor")
    at = together_from(a.demand, a.plan.after.allowed(a.demand))
    free = f"are free together from {span(max(0.0, at - a.now))} on" if at < np.inf else "are never free together"
    if short.uid == a.demand.uid and short.usable < a.demand.least:
        what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)}"
        return f"{what} must begin on {least} at one time (spec.processors.min); {least} {free}"
    return f"{_obstacle(a, short)}; {least} {free}"


def _obstacle(a: JobToTest, short: Shortfall) -> str:
    what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)}"
    if a.demand.inside is not None and short.uid == a.demand.uid:
        return (
            f"{what}: inside the windows of its reservation "
            f"{some(short.usable, 'processor')} can begin in time, and they finish {some(short.fit, 'unit')}"
        )
    if short.uid != a.demand.uid:
        return f"{what} would fit only by breaking an earlier promise: {broken(a.plan.demands, short, a.now)}"
    first = span(max(0.0, short.first_ready - a.now))
    if short.units == 0:
        return (
            f"the reduce step must begin within {span(a.demand.due - a.now)}; of {some(short.processors, 'processor')} "
            f"the first is free in {first}{confinement(a)}"
        )
    if said := _overload(a):
        return f"{what} {said}{confinement(a)}"
    if short.needed is None:
        free = f"none of {some(short.processors, 'processor')} is free early enough for one, the first in {first}"
        return f"{what}: {free}{confinement(a)}"
    most = a.demand.most
    limit = f", of which it may use {most}" if most is not None and most < short.usable else ""
    return (
        f"{what} need {some(short.needed, 'processor')} of {a.cpu:g} CPU from now; "
        f"{short.usable} of {short.processors} are free early enough{_reserved(a)}{limit}, the first in {first}, "
        f"and finish {some(short.fit, 'unit')}{_restraint(a, short)}{confinement(a)}"
    )


def broken(promised: Iterable[Demand], short: Shortfall, now: float) -> str:
    """Describe a promise that would be broken by its lateness; its name may be another tenant's and stays private."""
    due = span(next(d.due for d in promised if d.uid == short.uid) - now)
    if 0 <= short.fit < short.units:
        return f"a job due in {due} would finish {short.fit} of its {some(short.units, 'unit')} in time"
    return f"a job due in {due} would be late"


def _overload(a: JobToTest) -> str | None:
    """Return the demanded and available processor time, if no order of the promised jobs can finish the load."""
    if not len(a.plan) or not overloaded(a.plan.timeline, a.plan.demands, a.demand):
        return None
    load = load_before(a.plan.timeline, a.plan.demands, a.demand)
    before = f"{span(load.work)} are promised to {some(load.jobs, 'job')} by then, and " if load.jobs else ""
    return (
        f"take {span(a.demand.work)} of processor time; {before}{some(load.processors, 'processor')} of {a.cpu:g} CPU "
        f"{'has' if load.processors == 1 else 'have'} {span(load.room)} until then"
    )


def _reserved(a: JobToTest) -> str:
    """Return a note on reserved windows that take processors."""
    blackouts = a.plan.timeline.allowed(a.demand).blackouts
    if blackouts is None:
        return ""
    held = len(set(blackouts.place[blackouts.start < a.demand.due].tolist()))
    return f" ({held} of them reserved for a time before that)" if held else ""


def _restraint(a: JobToTest, short: Shortfall) -> str:
    """Return a note on why so many processors are not enough although their total time is."""
    if short.fit < short.units or short.usable < a.demand.least:
        return ""
    d = a.plan.timeline.discipline
    by = {
        "in equal parts": d.partition == "EPR",
        "on all useful processors": d.assign == "AN",
        "all starting at the same time": d.together,
        "sending one input after the other": d.one_port,
        f"with a set-up for each of {len(a.demand.ranges.parts)} ranges": len(a.demand.ranges.parts) > 1,
    }
    return f" in total, but not {' and '.join(way for way, so in by.items() if so) or 'cut into whole units'}"
