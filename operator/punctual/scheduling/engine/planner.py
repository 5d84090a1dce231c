"""Planning: what is still to be placed of each job, when each processor is free, and the plan of both.

A trial plans as if the state were another one, and changes nothing; ``adopt`` puts a plan in force.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from punctual.scheduling.admission.exact import ExactSchedule, current
from punctual.scheduling.admission.larger_pool import FURTHER, MOST, Enlarged, RankedDemand, is_hopeless
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.transfers import expected_inputs, someone_fetches
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.node_rules import ANY_NODE
from punctual.scheduling.model.processors import Place, node_with, with_one_more
from punctual.scheduling.model.timing import GRACE, LOOK, NOTICE, OVERDUE, WARNING
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.sites import PortHold, Sites
from punctual.scheduling.placement.timeline import Timeline
from punctual.scheduling.state.eligibility import Eligibility
from punctual.scheduling.state.fluid import FluidJobs
from punctual.scheduling.state.job_state import JobState, KeptDemand, end_is_known, expected_end, off
from punctual.scheduling.state.pool_state import UNCHANGED, Changes, PoolState
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

FORECAST_STEP = 1.0
"""Minimum change of a forecast, seconds, that is reported, ..."""
MOVED = 0.02
"""... and minimum part of the time until then. Otherwise work that begins late would write all statuses behind it."""
FORECASTS = 600.0
"""Jobs per second with forecasts that may be updated: a lazy plan makes all placements for it, some 40 µs each."""


class TrialOutcome(NamedTuple):
    """Result of a trial."""

    plan: Plan
    """Incomplete if the trial stopped at the first miss."""
    missed: list[str]
    """Uids of the jobs that miss their due time in it."""


@dataclass(slots=True)
class Planner:
    """Makes the plan of the pool state and keeps it."""

    state: PoolState
    lifecycle: Lifecycle
    forecast_at: float = -np.inf
    """When the forecasts were last updated."""
    plan_is_new: bool = False
    """They have not been since the last plan was adopted."""

    @property
    def eligibility(self) -> Eligibility:
        """The nodes and processors that jobs may use."""
        return Eligibility(self.state)

    def trial(self, now: float, changes: Changes | None = None, *, stop: bool = False) -> "TrialOutcome":
        """Plan all promised jobs again, as if the state had changed; ``stop`` at the first miss."""
        changes = changes or UNCHANGED
        planner = Planner(self.state.assuming(changes), self.lifecycle)
        places, timeline = planner.timeline(now, changes)
        plan, missed = Plan.of(places, timeline, planner.demands(now, changes), stop=stop)
        return TrialOutcome(plan, [short.uid for short in missed])

    def timeline(self, now: float, changes: Changes | None = None) -> tuple[list[Place], Timeline]:
        """Return the places that planning may use, and the times from which they are free."""
        changes = changes or UNCHANGED
        ends = self._ends(now, changes.but, changes.stays)
        opened = self.eligibility.opened()
        places = [p for p in self.state.processors.usable(now, ends, opened=opened) if p.node not in changes.without]
        return places, self._ground(now, places, ends, opened)

    def current(self, now: float) -> Plan:
        """Return the plan for a demand placed now: leftover chunks have yet to be told to leave, and all can be."""
        busy = self.busy(now)
        plan = self.state.plan
        ready = dict(zip(plan.places, plan.timeline.ready.tolist(), strict=True))
        if any(ready.get(place, 0.0) > busy[place] + tolerance(now) for place in self.leftovers(now)):
            anew, missed = self.trial(now, stop=True)
            plan = plan if missed else anew
        return current(plan, now, busy)

    def busy(self, now: float) -> dict[Place, float]:
        """Return when each occupied place is expected to be free."""
        return self._ends(now, frozenset())

    def leftovers(self, now: float) -> dict[Place, float]:
        """Return the places of leftover chunks that may be asked to leave and were not, and when each should end."""
        found = {}
        for uid in self.state.active:
            st = self.state.jobs[uid]
            for chunk in st.record.chunks:
                if not st.makes_way(chunk) or chunk.offered is not None:
                    continue
                watch = st.watch(chunk)
                place = self.state.processors.places_of.get((uid, chunk.kind, chunk.begin, chunk.attempt))
                if place is not None and watch.offered_at is None:
                    found[place] = expected_end(chunk, watch, now=now)
        return found

    def _ground(
        self, now: float, places: Sequence[Place], ends: Mapping[Place, float], opened: frozenset[str]
    ) -> Timeline:
        return Timeline(
            np.array([ends.get(place, now) for place in places], dtype=np.float64),
            self.state.spec.discipline,
            self._port(now),
            self.state.processors.speeds(places),
            self.state.ahead.on(places, self.state.spec.discipline),
            Sites(places, self.state.processors.open_nodes, opened),
            self._holds(ends),
        )

    def _holds(self, ends: Mapping[Place, float]) -> tuple[PortHold, ...]:
        """Return the host ports that pods of this pool's jobs have, and until when."""
        if not any(st.job.rules.ports for st in self.state.live.with_rules()):
            return ()
        jobs, found = self.state.jobs, []
        for place, occupant in self.state.processors.occupants.items():
            if (st := jobs.get(occupant.job)) is not None and (ports := st.job.rules.ports):
                found.append(PortHold(place, ports, ends[place]))
        return tuple(found)

    def _port(self, now: float) -> float:
        """Return the time from which the port is free: from observed transfers, or from the plan without any."""
        if not self.state.spec.discipline.one_port:
            return -np.inf
        sent = (chunk.sent for uid in self.state.active for chunk in self.state.jobs[uid].record.chunks)
        port = max((at for at in sent if at is not None), default=now)
        if someone_fetches(self.state):
            port = max((at for *_, at in expected_inputs(self.state, now)), default=now)
        return max(now, port)

    def _ends(self, now: float, evicted: frozenset[str], stays: Collection[Place] = ()) -> dict[Place, float]:
        """Return when each occupied place becomes free; jobs in ``evicted`` count as leftover work.

        A leftover chunk leaves after notice, but for the pod of a Job, which nothing ends. On the places ``stays`` it
        is asked only once it should have ended.
        """
        places_of = self.state.processors.places_of
        ends = dict.fromkeys(places_of.values(), now + GRACE)  # without an owned chunk: the pod is terminating
        for occupant, until in self.state.pods.ending.values():
            if (place := places_of.get(occupant)) is not None:
                # helpers get no longer than this once the processor is needed (`Dispatcher.vacate`)
                ends[place] = max(now, until if occupant.kind == "Reduce" else min(until, now + GRACE))
        for uid in self.state.active:
            st = self.state.jobs[uid]
            unbooked = uid in evicted or st.state == "Leftover"
            for chunk in st.record.chunks:
                place = places_of.get((uid, chunk.kind, chunk.begin, chunk.attempt))
                if place is None:
                    continue
                watch = st.watch(chunk)
                # what does not run cannot answer an offer, so it gets none
                notice = GRACE if watch.pod is not None and watch.pod.waits else NOTICE
                if (unbooked or chunk.leftover) and not _stays_put(self.state, st):
                    ends[place] = max(now + GRACE, (watch.offered_at or now) + notice)
                    if place in stays:
                        ends[place] = max(ends[place], expected_end(chunk, watch, now=now) + WARNING)
                else:
                    ends[place] = max(now, expected_end(chunk, watch, now=now))
                    if chunk.late and not end_is_known(chunk, watch, now=now):
                        # it may stay as long as nothing is lost if it must be ended then
                        ends[place] += OVERDUE + LOOK + notice
                    if st.cost is None:
                        ends[place] = max(ends[place], st.measured_by(now))
        return ends

    def running_until(self, st: JobState, now: float) -> float:
        """Return when the last of its running chunks is expected to end."""
        return max((expected_end(c, st.watch(c), now=now) for c in st.record.chunks), default=now)

    def is_late(self, st: JobState, now: float) -> bool:
        """Whether its running chunks, reduce included, end too late: no further processor could help."""
        reduce = self._reduce(st, st.cost) if st.cost else 0.0
        deadline = st.job.deadline
        return bool(st.record.chunks) and self.running_until(st, now) + reduce > deadline + tolerance(deadline)

    def planned(self, st: JobState) -> Cost:
        """Return the cost for planning the job: with the observed slowdown, and headroom that no shortage used up.

        It is that of a processor's part of the job.
        """
        cost = st.cost
        assert cost is not None
        part = st.job.cost_of_part(cost.with_headroom(0.0 if st.squeezed else self.state.spec.headroom))
        slowed = st.planned_slowdown
        return part if slowed == 1.0 else replace(part, chi=part.chi * slowed)

    def due(self, st: JobState) -> float:
        """Return when its chunks must end: margin and reduce before the deadline."""
        cost, promise = st.cost, st.record.promise
        assert cost is not None
        margin = promise.margin if promise else self.state.margin(cost)
        return st.job.deadline - (0.0 if st.squeezed else margin) - self._reduce(st, cost)

    @staticmethod
    def _reduce(st: JobState, cost: Cost) -> float:
        """Return the seconds of the reduce step that is still to come; 0: none."""
        if st.job.reduce_duration is None or any(c.kind == "Reduce" for c in st.record.chunks):
            return 0.0
        return st.job.reduce_duration + cost.theta_cp

    def fluid(self, changes: Changes = UNCHANGED) -> FluidJobs:
        """Return the fluid jobs of the pool, as if its state had changed."""
        planner = Planner(self.state.assuming(changes), self.lifecycle)
        return FluidJobs(planner.state, planner.planned, planner.due)

    def demand(self, st: JobState, now: float) -> Demand | None:
        """Return the part of the job that is still to be placed; None: nothing.

        The demand of a promised job that waits is kept: it stays the same until something that it is made of changes.
        """
        record, job = st.record, st.job
        if record.promise is None or record.chunks or st.refused_until > now or job.reservation is not None:
            return self._demand_anew(st, now)
        eligible = self.eligibility.nodes(st)
        made_of = (
            job, st.cost, self.state.spec, record.completed, record.pilots, record.started, record.promise.margin,
            st.planned_slowdown, st.squeezed, eligible, self._ranking_processors(st),
        )  # fmt: skip
        if st.kept_demand is None or st.kept_demand.made_of != made_of:
            st.kept_demand = KeptDemand(made_of, self._demand_anew(st, now))
        return st.kept_demand.demand

    def _demand_anew(self, st: JobState, now: float) -> Demand | None:
        job, record, cost = st.job, st.record, st.cost
        assert cost is not None
        left = ledger.remaining(job.units, record)
        reduce = self._reduce(st, cost)
        if not left and not reduce:
            return None
        running = [c for c in record.chunks if c.kind != "Reduce"]
        begun = bool(running) or ledger.has_begun(job, record)
        until = self.running_until(st, now) if running else now
        room = ledger.most_chunks(record)
        most, not_before = min(job.max_processors or room, room), 0.0
        if st.refused_until > now:
            not_before = st.refused_until
        planned, due = self.planned(st), self.due(st)
        kept_back, inside = job.deadline - due, None
        if job.reservation is not None and (found := self.state.ahead.inside(job.reservation)):
            inside, closes = found
            due = min(due, closes - self.state.ahead.clearance - reduce)
        eligible = self.eligibility.nodes(st)
        if eligible is not None and eligible.one_node and record.chunks:
            node = max(record.chunks, key=lambda c: c.promised_end).node
            if node in eligible.nodes:
                eligible = eligible._replace(nodes=frozenset((node,)))
            else:
                not_before = max(not_before, self.running_until(st, now))
        own: tuple[Place, ...] = ()
        if job.unit_pods:  # units follow those that run, on their processors
            own = self.state.places(st) if most < self.state.processors.total else ()
        elif len(running) < most:
            most -= len(running)
        else:
            ends = sorted(expected_end(c, st.watch(c), now=now) for c in running)[-most:]
            most, full_until = _in_turn(ends, due - planned.setup)
            not_before = max(not_before, full_until)
        return Demand(
            order=self.order(st, planned),
            ranges=left,
            cost=planned,
            due=due,
            kept_back=kept_back,
            least=1 if begun else max(1, min(job.min_processors, left.total)),
            # With fewer, whenever units end early, it would end as late as its deadline allows.
            as_before=record.promise.processors if begun and job.unit_pods and record.promise else 1,
            most=most,
            least_chunk=job.least_chunk,
            not_before=not_before,
            running_until=until if running else 0.0,
            reduce=reduce,
            inside=inside,
            eligible=eligible,
            unit_pods=job.unit_pods,
            own=own,
        )

    def order(self, st: JobState, planned: Cost) -> Order:
        """Return the queue key of a job that is planned with this cost."""
        job = st.job
        return self.state.spec.discipline.order_of(
            job.uid,
            arrival=job.arrival,
            deadline=job.deadline,
            load=job.units,
            cost=planned,
            processors=self._ranking_processors(st),
        )

    def _ranking_processors(self, st: JobState) -> int:
        """Return the number of processors that the job's rank depends on; 0: the order does not depend on it."""
        return self.eligibility.processors(st) if self.state.spec.discipline.order == "MWF" else 0

    def demands(self, now: float, changes: Changes | None = None) -> list[Demand]:
        """Return the demands of all promised jobs."""
        changes = changes or UNCHANGED
        out = []
        for uid, st in self.state.live.items():
            if st.state != "Promised" or uid in changes.but:
                continue
            if demand := self.demand(off(st, changes.without), now):
                out.append(demand)
        return out

    def promised(self) -> Iterable[JobState]:
        """Return the jobs with a promise that planning must keep."""
        return (st for st in list(self.state.live.values()) if st.state == "Promised")

    def adopt(self, plan: Plan, now: float) -> None:
        """Put a plan in force and update the forecasts that it changes, if that is due."""
        self.follow(plan)
        self.plan_is_new = True
        self.forecast(now)

    def follow(self, plan: Plan) -> None:
        """Put a plan in force; its forecasts are up to date."""
        self.state.schedule = ExactSchedule(plan)

    def forecast(self, now: float) -> None:
        """Update the forecasts after a new plan. With many jobs it waits a while, so that a burst is answered."""
        if not self.plan_is_new or abs(now - self.forecast_at) < len(self.state.live) / FORECASTS:
            return
        self.plan_is_new, self.forecast_at = False, now
        if not self.state.schedule.counts_on_ends:  # work is in no plan any more
            return
        plan = self.state.plan
        booked = {b.demand.uid: b for b in plan}
        for st in self.promised():
            promise = st.record.promise
            if promise is None:
                continue
            placement = booked.get(st.job.uid)
            finish = max(self.running_until(st, now), placement.finish if placement else 0.0)
            told, step = promise, max(FORECAST_STEP, MOVED * (finish - now))
            if abs(finish - promise.finish) > step:
                told = told._replace(finish=finish)
            if placement and not st.record.started and abs(placement.start - promise.start) > step:
                told = told._replace(start=placement.start, processors=placement.processors)
            if told != promise:
                st.record = st.record._replace(promise=told)
                self.state.touch(st)


def _stays_put(state: PoolState, st: JobState) -> bool:
    """Whether nothing ends the pods of a job. How long a pilot runs matters only to promises that are guaranteed."""
    return st.job.unit_pods and (st.cost is not None or state.terms.guaranteed)


def _in_turn(ends: Sequence[float], due: float) -> tuple[int, float]:
    """Return how many chunks may follow the running chunks that use up processors.max, and from when on.

    ``ends``: the ends of those chunks, ascending. The first end lets one chunk start early; the last lets as many start
    later. The choice maximises the work done by ``due``.
    """
    return max(enumerate(ends, start=1), key=lambda room: room[0] * (due - room[1]))


class Enlargement(NamedTuple):
    """A pool with further processors, and what plans it."""

    there: Enlarged
    planner: Planner
    """It reads the pool's state with the further processors in it."""


def enlarge(planner: Planner, st: JobState, now: float) -> Enlargement | None:
    """Return the pool with further processors at this time, for a refused job; None: they surely do not help."""
    state, spec = planner.state, planner.state.spec
    most = max(MOST, state.processors.total)
    after = with_one_more(state.processors, node_with(FURTHER, most, spec), spec)
    changed = state.assuming(Changes(spec=spec, processors=after))
    if st.job.rules != ANY_NODE:  # its own nodes count, even if they are closed to all other jobs
        changed = changed.assuming(Changes(job=st))
    larger = Planner(changed, planner.lifecycle)
    asked = larger.demand(st, now)
    if asked is None:
        return None
    places, timeline = larger.timeline(now)
    if state.terms.guaranteed and not state.terms.shares and is_hopeless(asked, timeline, now):
        return None
    order = np.argsort([place.node == FURTHER for place in places], kind="stable")  # they are behind all others
    timeline = replace(
        timeline,
        ready=timeline.ready[order],
        speeds=None if timeline.speeds is None else timeline.speeds[order],
        blackouts=None if timeline.blackouts is None else timeline.blackouts.only(order),
    )
    there = Enlarged(
        now=now,
        asked=_ranked(larger, asked, most),
        promised=[_ranked(larger, demand, most) for demand in larger.demands(now)],
        places=[places[i] for i in order.tolist()],
        timeline=timeline,
        most=most,
    )
    return Enlargement(there, larger)


def _ranked(larger: Planner, demand: Demand, most: int) -> RankedDemand:
    if larger.state.spec.discipline.order != "MWF":
        return RankedDemand(demand=demand)
    st, eligibility = larger.state.jobs[demand.uid], larger.eligibility
    nodes = eligibility.nodes(st)
    all_more = nodes is None or FURTHER in nodes.nodes
    processors = eligibility.processors(st) - (most if all_more else 0)
    return RankedDemand(
        demand=demand, deadline=st.job.deadline, load=st.job.units, processors=processors, all_more=all_more
    )
