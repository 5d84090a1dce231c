"""Planning: assign processors and times, keep or repair plans, and give promises up if no plan fits.

A new plan replaces the old one only if it keeps every promise (schedules have anomalies). Otherwise the old plan stays,
with its new times. If neither keeps every promise, margins are used first. Then promises are given up: first those of
the jobs that caused the shortage, then the newest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from punctual import reasons
from punctual.scheduling.admission.exact import ExactSchedule, current
from punctual.scheduling.engine.job_state import JobState, expected_end
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.state import PoolState
from punctual.scheduling.engine.transfers import expected_inputs, someone_fetches
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.job import Verdict
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.timing import GRACE, NOTICE
from punctual.scheduling.model.wording import span
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

MAKING_ROOM = 2.0
"""Minimum seconds that are reserved if a placeholder must be preempted before a chunk starts."""
SPARING = 2000
"""Placements that a repair may spend on finding promises that can be kept after all."""
FORECAST_STEP = 1.0
"""Minimum change of a forecast, seconds, that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of the state that a trial assumes."""

    but: frozenset[str] = frozenset()
    """Uids of jobs without a promise."""
    without: Collection[str] = ()
    """Nodes that are lost, with the work that runs there."""
    job: JobState | None = None
    """State of one job, in place of its own."""


UNCHANGED = Changes()


class Outcome(NamedTuple):
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

    def trial(self, now: float, changes: "Changes | None" = None, *, stop: bool = False) -> "Outcome":
        """Plan all promised jobs again, as if the state had changed; ``stop`` at the first miss."""
        changes = changes or UNCHANGED
        planner = self if changes.job is None else Planner(self.state.with_job(changes.job), self.lifecycle)
        places, ground = planner.ground(now, changes)
        plan, missed = Plan.of(places, ground, planner.demands(now, changes), stop=stop)
        return Outcome(plan, [short.uid for short in missed])

    def ground(self, now: float, changes: "Changes | None" = None) -> tuple[list[Place], Timeline]:
        """Return the places that planning may use, and the times from which they are free."""
        changes = changes or UNCHANGED
        ends = self._ends(now, changes.but)
        places = [p for p in self.state.processors.usable(now, ends) if p.node not in changes.without]
        return places, self._ground(now, places, ends)

    def current(self, now: float) -> Plan:
        """Return the plan for a demand placed now: leftover chunks have yet to be told to leave."""
        return current(self.state.plan, now, self.busy(now))

    def busy(self, now: float) -> dict[Place, float]:
        """Return when each occupied place is expected to be free."""
        return self._ends(now, frozenset())

    def _ground(self, now: float, places: Sequence[Place], ends: Mapping[Place, float]) -> Timeline:
        assert self.state.spec is not None
        self.state.ahead.clearance = self.state.spec.margin + self.state.leave
        return Timeline(
            np.array([ends.get(place, now) for place in places], dtype=np.float64),
            self.state.spec.discipline,
            self._port(now),
            self.state.processors.speeds(places),
            self.state.ahead.on(places, self.state.spec.discipline),
        )

    def _port(self, now: float) -> float:
        """Return the time from which the port is free: from observed transfers, or from the plan without any."""
        assert self.state.spec is not None
        if not self.state.spec.discipline.one_port:
            return -np.inf
        sent = (chunk.sent for uid in self.state.active for chunk in self.state.jobs[uid].record.chunks)
        port = max((at for at in sent if at is not None), default=now)
        if someone_fetches(self.state):
            port = max((at for *_, at in expected_inputs(self.state, now)), default=now)
        return max(now, port)

    def _ends(self, now: float, evicted: frozenset[str]) -> dict[Place, float]:
        """Return when each occupied place becomes free; jobs in ``evicted`` count as leftover work."""
        places_of = self.state.processors.places_of
        ends = dict.fromkeys(places_of.values(), now + GRACE)  # without an owned chunk: the pod is terminating
        for occupant, until in self.state.ending.values():
            if (place := places_of.get(occupant)) is not None:
                ends[place] = max(now, until)
        for uid in self.state.active:
            st = self.state.jobs[uid]
            unbooked = uid in evicted or st.state == "Leftover"
            for chunk in st.record.chunks:
                place = places_of.get((uid, chunk.kind, chunk.begin, chunk.attempt))
                if place is None:
                    continue
                if unbooked or chunk.leftover:
                    ends[place] = max(now + GRACE, (st.watch(chunk).offered_at or now) + NOTICE)
                elif chunk.promised_end > now:
                    ends[place] = chunk.promised_end
                else:
                    ends[place] = max(now, expected_end(chunk, st.watch(chunk), now=now))
        return ends

    def running_until(self, st: JobState, now: float) -> float:
        """Return when the last of its running chunks is expected to end."""
        return max((expected_end(c, st.watch(c), now=now) for c in st.record.chunks), default=now)

    def is_late(self, st: JobState, now: float) -> bool:
        """Whether its running chunks, reduce included, end too late: no further processor could help."""
        reduce = self._reduce(st, st.cost) if st.cost else 0.0
        deadline = st.job.deadline
        return bool(st.record.chunks) and self.running_until(st, now) + reduce > deadline + tolerance(deadline)

    def _margin(self, cost: Cost) -> float:
        assert self.state.spec is not None
        beyond = self.state.startups.beyond(cost.setup)
        if self.state.spec.hold == "Placeholder":  # also before the first start was observed
            beyond = max(beyond, MAKING_ROOM)
        return self.state.spec.margin + beyond

    def planned(self, st: JobState) -> Cost:
        """Return the cost for planning the job: with the observed slowdown and headroom."""
        assert self.state.spec is not None
        cost = st.cost
        assert cost is not None
        slowed = cost if st.slowed == 1.0 else replace(cost, chi=cost.chi * st.slowed)
        return slowed.with_headroom(self.state.spec.headroom)

    def due(self, st: JobState) -> float:
        """Return when its chunks must end: margin and reduce before the deadline."""
        cost, promise = st.cost, st.record.promise
        assert cost is not None
        margin = promise.margin if promise else self._margin(cost)
        return st.job.deadline - (0.0 if st.squeezed else margin) - self._reduce(st, cost)

    @staticmethod
    def _reduce(st: JobState, cost: Cost) -> float:
        """Return the seconds of the reduce step that is still to come; 0: none."""
        if st.job.reduce_duration is None or any(c.kind == "Reduce" for c in st.record.chunks):
            return 0.0
        return st.job.reduce_duration + cost.theta_cp

    def demand(self, st: JobState, now: float) -> Demand | None:
        """Return the part of the job that is still to be placed; None: nothing."""
        job, record, cost = st.job, st.record, st.cost
        assert cost is not None
        left = ledger.remaining(job.units, record)
        reduce = self._reduce(st, cost)
        if not left and not reduce:
            return None
        running = [c for c in record.chunks if c.kind != "Reduce"]
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
        if len(running) < most:
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
            least=1 if record.completed or running else job.min_processors,
            most=most,
            least_chunk=job.least_chunk,
            not_before=not_before,
            running_until=until if running else 0.0,
            reduce=reduce,
            inside=inside,
        )

    def order(self, st: JobState, planned: Cost) -> Order:
        """Return the queue key of a job that is planned with this cost."""
        assert self.state.spec is not None
        job = st.job
        return self.state.spec.discipline.order_of(
            job.uid,
            arrival=job.arrival,
            deadline=job.deadline,
            load=job.units,
            cost=planned,
            processors=self.state.processors.total,
        )

    def demands(self, now: float, changes: "Changes | None" = None) -> list[Demand]:
        """Return the demands of all promised jobs."""
        changes = changes or UNCHANGED
        out = []
        for uid, st in self.state.live.items():
            if st.state != "Promised" or uid in changes.but:
                continue
            if demand := self.demand(_off(st, changes.without), now):
                out.append(demand)
        return out

    def replan(self, now: float) -> None:
        """Plan again after a change; keep the old plan if the new one breaks a promise that the old one keeps."""
        plan, missed = self.trial(now)
        late = [st.job.uid for st in self._promised() if self.is_late(st, now)]
        if missed or late:
            kept = None if late else self._kept(now, plan) or self._rebuilt(now, plan)
            plan = kept or self._repair(now, missed, late)
        self.state.causes.clear()
        self.adopt(plan, now)
        self._promise_again(now)

    def _promised(self) -> Iterable[JobState]:
        return (st for st in list(self.state.live.values()) if st.state == "Promised")

    def _kept(self, now: float, anew: Plan) -> Plan | None:
        """Return the old plan at the new ready times if it covers all remaining work and keeps every promise."""
        old = self.state.plan
        if {d.uid: d.ranges for d in old.demands} != {d.uid: d.ranges for d in self.demands(now)}:
            return None
        kept = old.upon(anew.places, anew.ground)
        return kept if kept and kept.keeps_all() else None

    def _rebuilt(self, now: float, anew: Plan) -> Plan | None:
        """Return a plan rebuilt from the recorded promises, if it keeps every promise.

        After a takeover, the records are all that is left of a kept plan: each job gets as many processors as it was
        promised, in the order in which the jobs were to start.
        """
        line = []
        for demand in self.demands(now):
            st = self.state.jobs[demand.uid]
            promise = st.record.promise
            assert promise is not None
            least = max(demand.least, promise.processors - len(st.record.chunks))
            line.append((promise.start, demand.order, replace(demand, least=min(least, demand.most or least))))
        plan, missed = Plan.in_turn(
            anew.places, anew.ground, [d for *_, d in sorted(line, key=lambda e: e[:2])], stop=True
        )
        return None if missed else plan

    def _repair(self, now: float, missed: list[str], late: list[str]) -> Plan:
        """Find a plan that keeps as many promises as possible: use margins first, then give promises up.

        Drop jobs that cannot be saved first, then the jobs that caused the shortage (isolation), then the newest, until
        the rest fits. Finally, take back dropped jobs that fit after all: they did not cause the shortage.
        """
        for uid in missed:
            self.state.jobs[uid].squeezed = True
        refused = {uid: reasons.POD_REFUSED for uid, st in self.state.live.items() if st.refused_until > now}
        causes = refused | self.state.causes
        at_fault = [uid for uid in causes if uid in self.state.jobs and self.state.jobs[uid].state == "Promised"]
        newest = sorted(self._promised(), key=lambda st: (-st.job.arrival, st.job.uid))
        alone, _ = self.trial(now, Changes(but=frozenset(st.job.uid for st in newest)))
        hopeless = [d.uid for d in self.demands(now) if isinstance(alone.append(d), Shortfall)]
        first = list(dict.fromkeys([*late, *hopeless]))
        queue = list(dict.fromkeys([*first, *at_fault, *(st.job.uid for st in newest)]))
        low, high = len(first), len(queue)  # dropping ``high`` jobs is enough: without any job, everything fits
        if not self.trial(now, Changes(but=frozenset(queue[:low])), stop=True).missed:
            high = low
        while high - low > 1:
            middle = (low + high) // 2
            if self.trial(now, Changes(but=frozenset(queue[:middle])), stop=True).missed:
                low = middle
            else:
                high = middle
        gone = self._spare(now, frozenset(queue[:high]), oldest=queue[len(first) : high][::-1])
        for uid in queue[:high]:
            if uid in gone:
                reason = causes.get(uid, reasons.OVERRUN if uid in late else reasons.CAPACITY_LOST)
                self._give_up(now, self.state.jobs[uid], reason)
        return self.trial(now, Changes(but=gone)).plan

    def _spare(self, now: float, gone: frozenset[str], *, oldest: list[str]) -> frozenset[str]:
        """Return the subset of ``gone`` that must be dropped after jobs that still fit are taken back, oldest first.

        Dropping more jobs need not help: if one of the oldest does not fit, all newer ones were dropped with it. Many
        jobs are tested at once, and then in halves if they do not all fit.
        """
        groups, placements = [oldest] if oldest else [], SPARING
        while groups and placements > 0:
            group = groups.pop()
            fewer = gone.difference(group)
            plan, missed = self.trial(now, Changes(but=fewer), stop=True)
            placements -= 1 + len(plan)
            if not missed:
                gone = fewer
            elif len(group) > 1:
                middle = len(group) // 2
                groups += [group[middle:], group[:middle]]
        return gone

    def _give_up(self, now: float, st: JobState, reason: str) -> None:
        text = {
            reasons.OVERRUN: "its units take longer than declared; the rest no longer fits before the deadline",
            reasons.CHUNK_FAILED: "chunks failed; running them again no longer fits before the deadline",
            reasons.POD_REFUSED: "its pods are refused; the rest no longer fits before the deadline",
        }.get(reason, "processors were lost; not every promise still fits, so the newest are given up first")
        if st.job.on_miss == "Stop":
            self.lifecycle.fail(now, st, reason, f"{text}; spec.onMiss is Stop")
            return
        st.record = st.record._replace(on_track=Verdict("False", reason, f"{text}; it continues on leftover capacity"))
        self.state.touch(st)
        self.state.after.append(Emit(st.job.uid, "Warning", reason, text))

    def _promise_again(self, now: float) -> None:
        """Promise jobs that lost their processors to a lost node again, oldest first, if they fit now."""
        lost = [
            st for st in self.state.live.values()
            if st.state == "Leftover" and st.record.on_track and st.record.on_track.reason == reasons.CAPACITY_LOST
        ]  # fmt: skip
        for st in sorted(lost, key=lambda s: (s.job.arrival, s.job.uid))[:8]:
            demand = self.demand(st, now)
            if demand and self.state.plan.at(now).overloaded(demand):
                continue
            text = "processors are planned for it again"
            chunks = tuple(c._replace(leftover=False) for c in st.record.chunks)
            promised = st.record._replace(on_track=Verdict("True", reasons.ON_TRACK, text), chunks=chunks)
            again = replace(st, record=promised)
            plan, missed = self.trial(now, Changes(job=again), stop=True)
            if missed or self.is_late(again, now):
                continue
            st.record = promised
            self.state.touch(st)
            self.state.after.append(Emit(st.job.uid, "Normal", reasons.ON_TRACK, text))
            self.adopt(plan, now)

    def adopt(self, plan: Plan, now: float) -> None:
        """Put a plan in force and update the forecasts that it changes."""
        self.state.schedule = ExactSchedule(plan)
        booked = {b.demand.uid: b for b in plan}
        for st in self._promised():
            promise = st.record.promise
            if promise is None:
                continue
            booking = booked.get(st.job.uid)
            finish = max(self.running_until(st, now), booking.finish if booking else 0.0)
            told = promise
            if abs(finish - promise.finish) > FORECAST_STEP:
                told = told._replace(finish=finish)
            if booking and not st.record.started and abs(booking.start - promise.start) > FORECAST_STEP:
                told = told._replace(start=booking.start, processors=booking.processors)
            if told != promise:
                st.record = st.record._replace(promise=told)
                self.state.touch(st)
            self._judge_track(st, finish)

    def _judge_track(self, st: JobState, finish: float) -> None:
        deadline = st.job.deadline
        on_time = finish <= deadline + tolerance(deadline)
        now_on = st.record.on_track is None or st.record.on_track.status == "True"
        if on_time and (st.record.on_track is None or not now_on):
            verdict = Verdict("True", reasons.ON_TRACK, "the forecast is before the deadline")
        elif not on_time and now_on:
            verdict = Verdict("False", reasons.LATE, f"the forecast is {span(finish - deadline)} after the deadline")
        else:
            return
        st.record = st.record._replace(on_track=verdict)
        self.state.touch(st)


def _off(st: JobState, nodes: Collection[str]) -> JobState:
    """Return the state of the job as if its chunks on these nodes were lost."""
    if not any(c.node in nodes for c in st.record.chunks):
        return st
    return replace(st, record=st.record._replace(chunks=tuple(c for c in st.record.chunks if c.node not in nodes)))


def _in_turn(ends: Sequence[float], due: float) -> tuple[int, float]:
    """Return how many chunks may follow the running chunks that use up processors.max, and from when on.

    ``ends``: the ends of those chunks, ascending. The first end lets one chunk start early; the last lets as many start
    later. The choice maximises the work done by ``due``.
    """
    return max(enumerate(ends, start=1), key=lambda room: room[0] * (due - room[1]))
