"""Who gets which processor when: plans are made, kept or repaired, and promises given up where none fits.

A new plan replaces the old one only if it keeps every promise (schedules have anomalies); else the old one stands at
its new times. Only when neither does, margins go first and then promises: whose own doing it was, then the newest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from punctual import reasons
from punctual.scheduling.admission.fast_schedule import FastSchedule
from punctual.scheduling.admission.fast_test import Obstacle
from punctual.scheduling.admission.statistical import StatisticalQueue
from punctual.scheduling.engine.job_state import JobState, expected_end
from punctual.scheduling.engine.lifecycle import GRACE, LOOK, Lifecycle
from punctual.scheduling.engine.state import PoolState
from punctual.scheduling.engine.transfers import expected_inputs, someone_fetches
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.job import Verdict
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.wording import span
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

PATIENCE = 2.0
"""Seconds that an offer waits when its processor is needed."""
NOTICE = PATIENCE + LOOK + GRACE
"""Seconds in which a leftover chunk leaves its processor, though it neither answers its offer nor heeds its end."""
MAKING_ROOM = 2.0
"""Seconds at least that are kept where a placeholder must make way before a chunk starts."""
SPARING = 2000
"""Placements that a repair spends on finding out who need not be given up."""
FORECAST_STEP = 1.0
"""Seconds by which a forecast must move to be told."""


@dataclass(slots=True)
class Planner:
    """Makes the books' plan and keeps it."""

    state: PoolState
    lifecycle: Lifecycle

    def trial(
        self, now: float, *, but: frozenset[str] = frozenset(), without: Collection[str] = (), stop: bool = False
    ) -> tuple[Plan, list[str]]:
        """Plan anew what is promised; return the plan, and who misses its due time in it.

        ``but``: jobs that are thought to hold no promise. ``without``: nodes that are thought away; what runs there
        would have to be done again. ``stop`` at the first who misses: the plan is of no use then.
        """
        places, ground = self.ground(now, but=but, without=without)
        plan, missed = Plan.of(places, ground, self.demands(now, but=but, without=without), stop=stop)
        return plan, [short.uid for short in missed]

    def ground(
        self, now: float, *, but: frozenset[str] = frozenset(), without: Collection[str] = ()
    ) -> tuple[list[Place], Timeline]:
        """Return the places that planning may count on, and from when on; see :meth:`trial`."""
        ends = self._ends(now, but)
        places = [p for p in self.state.processors.usable(now, ends) if p.node not in without]
        return places, self._ground(now, places, ends)

    def current(self, now: float) -> Plan:
        """Return the plan as a demand placed now meets it: who runs on leftovers has still to be told to leave."""
        plan = self.state.plan.at(now)
        ends = self._ends(now, frozenset())
        return plan.held(np.array([ends.get(place, now) for place in plan.places], dtype=np.float64))

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
        """Return from when on the port is free: by what is seen of transfers, by the plan where nothing can be seen."""
        assert self.state.spec is not None
        if not self.state.spec.discipline.one_port:
            return -np.inf
        sent = (chunk.sent for uid in self.state.active for chunk in self.state.jobs[uid].record.chunks)
        port = max((at for at in sent if at is not None), default=now)
        if someone_fetches(self.state):
            port = max((at for *_, at in expected_inputs(self.state, now)), default=now)
        return max(now, port)

    def _ends(self, now: float, evicted: frozenset[str]) -> dict[Place, float]:
        """Return when each place that is taken becomes free; jobs in ``evicted`` are taken to be on leftovers."""
        places_of = self.state.processors.places_of
        ends = dict.fromkeys(places_of.values(), now + GRACE)  # whose chunk is no more: its pod is going
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
        """Whether what of it runs ends too late, reduce included: no processor could help."""
        reduce = self._reduce(st, st.cost) if st.cost else 0.0
        deadline = st.job.deadline
        return bool(st.record.chunks) and self.running_until(st, now) + reduce > deadline + tolerance(deadline)

    def _margin(self, cost: Cost) -> float:
        assert self.state.spec is not None
        beyond = self.state.startups.beyond(cost.setup)
        if self.state.spec.hold == "Placeholder":  # also before the first start was seen
            beyond = max(beyond, MAKING_ROOM)
        return self.state.spec.margin + beyond

    def planned(self, st: JobState) -> Cost:
        """Return the cost that the job is planned with: as slow as it was seen to be, with headroom."""
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
        """Return what of the job is still to be placed; None: nothing."""
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
        """Return the place in the queue of a job that is planned with this cost."""
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

    def demands(self, now: float, *, but: frozenset[str] = frozenset(), without: Collection[str] = ()) -> list[Demand]:
        """Return what is to be placed of all promised jobs, those in ``but`` left out.

        ``without``: nodes that are thought away; what runs there would have to be done again.
        """
        out = []
        for uid, st in self.state.live.items():
            if st.state == "Promised" and uid not in but and (demand := self.demand(_off(st, without), now)):
                out.append(demand)
        return out

    def replan(self, now: float) -> None:
        """Plan again after something has changed; keep the old plan where the new one breaks a promise it keeps."""
        self.state.stale = False
        self.state.changed = True
        # where promises are statistical no plan need keep them: it would give them up
        if (self.state.line is not None or self._loose) and self.line_up(now):
            return
        plan, missed = self.trial(now)
        late = [st.job.uid for st in self._promised() if self.is_late(st, now)]
        if missed or late:
            kept = None if late else self._kept(now, plan) or self._rebuilt(now, plan)
            plan = kept or self._repair(now, missed, late)
        self.state.causes.clear()
        self.adopt(plan, now)
        self._promise_again(now)

    def line_up(self, now: float, *, beta: float = 1.0) -> bool:
        """Put a line in force, made of all that waits upon what runs now; say whether it keeps everything."""
        places, ground = self.ground(now)
        spec = self.state.spec
        assert spec is not None
        if self.state.ahead.held:  # the line counts on all processors, at any time
            return False
        line: FastSchedule | StatisticalQueue | Obstacle
        if spec.loose:
            bound = self.state.miss.bound if self.state.miss else spec.bound
            assert bound is not None
            line = StatisticalQueue.of(now, places, ground, self.demands(now), bound=bound)
        else:
            line = FastSchedule.of(now, places, ground, self.demands(now), beta=beta)
        if isinstance(line, Obstacle):
            return False
        self.state.line = line
        self.state.plan = Plan.holding(places, ground, (), ground)
        return True

    @property
    def _loose(self) -> bool:
        return self.state.spec is not None and self.state.spec.loose

    def _promised(self) -> Iterable[JobState]:
        return (st for st in list(self.state.live.values()) if st.state == "Promised")

    def _kept(self, now: float, anew: Plan) -> Plan | None:
        """Return the old plan at the new ready times, if it still covers what is to be done and keeps every promise."""
        old = self.state.plan
        if {d.uid: d.ranges for d in old.demands} != {d.uid: d.ranges for d in self.demands(now)}:
            return None
        kept = old.upon(anew.places, anew.ground)
        return kept if kept and kept.keeps_all() else None

    def _rebuilt(self, now: float, anew: Plan) -> Plan | None:
        """Return the plan that is written down, if it keeps every promise: all that a new leader has of a kept one.

        As many processors as each job was promised, in the order in which they were to start.
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
        """Find a plan for as many promises as can be kept: first margins go, then promises.

        Whom nothing can save goes first, then who caused the trouble by its own doing (isolation), then the newest,
        until the rest fits. Then those come back that fit all the same: it was not them that stood in the way.
        """
        for uid in missed:
            self.state.jobs[uid].squeezed = True
        refused = {uid: reasons.POD_REFUSED for uid, st in self.state.live.items() if st.refused_until > now}
        causes = refused | self.state.causes
        at_fault = [uid for uid in causes if uid in self.state.jobs and self.state.jobs[uid].state == "Promised"]
        newest = sorted(self._promised(), key=lambda st: (-st.job.arrival, st.job.uid))
        alone, _ = self.trial(now, but=frozenset(st.job.uid for st in newest))
        hopeless = [d.uid for d in self.demands(now) if isinstance(alone.append(d), Shortfall)]
        first = list(dict.fromkeys([*late, *hopeless]))
        queue = list(dict.fromkeys([*first, *at_fault, *(st.job.uid for st in newest)]))
        low, high = len(first), len(queue)  # giving up ``high`` of them is enough: with none left everything fits
        if not self.trial(now, but=frozenset(queue[:low]), stop=True)[1]:
            high = low
        while high - low > 1:
            middle = (low + high) // 2
            if self.trial(now, but=frozenset(queue[:middle]), stop=True)[1]:
                low = middle
            else:
                high = middle
        gone = self._spare(now, frozenset(queue[:high]), oldest=queue[len(first) : high][::-1])
        for uid in queue[:high]:
            if uid in gone:
                reason = causes.get(uid, reasons.OVERRUN if uid in late else reasons.CAPACITY_LOST)
                self._give_up(now, self.state.jobs[uid], reason)
        return self.trial(now, but=gone)[0]

    def _spare(self, now: float, gone: frozenset[str], *, oldest: list[str]) -> frozenset[str]:
        """Return who of ``gone`` must go where those come back who fit all the same, the oldest first.

        Giving up more need not help: where one of the oldest does not fit, all that are newer went with it. Many are
        tried at once, half of them where they do not all fit.
        """
        groups, placements = [oldest] if oldest else [], SPARING
        while groups and placements > 0:
            group = groups.pop()
            fewer = gone.difference(group)
            plan, missed = self.trial(now, but=fewer, stop=True)
            placements -= 1 + len(plan)
            if not missed:
                gone = fewer
            elif len(group) > 1:
                middle = len(group) // 2
                groups += [group[middle:], group[:middle]]
        return gone

    def _give_up(self, now: float, st: JobState, reason: str) -> None:
        text = {
            reasons.OVERRUN: "its units take longer than declared; what is left fits no more before the deadline",
            reasons.CHUNK_FAILED: "chunks failed; doing them again fits no more before the deadline",
            reasons.POD_REFUSED: "its pods are refused; what is left fits no more before the deadline",
        }.get(reason, "processors were lost; not every promise fits any more, the newest go first")
        if st.job.on_miss == "Stop":
            self.lifecycle.fail(now, st, reason, f"{text}; spec.onMiss is Stop")
            return
        st.record = st.record._replace(on_track=Verdict("False", reason, f"{text}; it goes on with leftover capacity"))
        self.state.touch(st)
        self.state.after.append(Emit(st.job.uid, "Warning", reason, text))

    def _promise_again(self, now: float) -> None:
        """Book again what lost its processors to a node's loss, oldest first, where it fits now."""
        lost = [
            st for st in self.state.live.values()
            if st.state == "Leftover" and st.record.on_track and st.record.on_track.reason == reasons.CAPACITY_LOST
        ]  # fmt: skip
        for st in sorted(lost, key=lambda s: (s.job.arrival, s.job.uid))[:8]:
            demand = self.demand(st, now)
            if demand and self.state.plan.at(now).overloaded(demand):
                continue
            was, text = st.record, "processors are booked again"
            chunks = tuple(c._replace(leftover=False) for c in was.chunks)
            st.record = was._replace(on_track=Verdict("True", reasons.ON_TRACK, text), chunks=chunks)
            plan, missed = self.trial(now, stop=True)
            if missed or self.is_late(st, now):
                st.record = was
                continue
            self.state.touch(st)
            self.state.after.append(Emit(st.job.uid, "Normal", reasons.ON_TRACK, text))
            self.adopt(plan, now)

    def adopt(self, plan: Plan, now: float) -> None:
        """Make a plan the one in force, and move the forecasts that it changes."""
        self.state.plan, self.state.line = plan, None
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
            verdict = Verdict("False", reasons.LATE, f"the forecast is {span(finish - deadline)} behind the deadline")
        else:
            return
        st.record = st.record._replace(on_track=verdict)
        self.state.touch(st)


def _off(st: JobState, nodes: Collection[str]) -> JobState:
    """Return how the job would stand if its chunks on these nodes were lost."""
    if not any(c.node in nodes for c in st.record.chunks):
        return st
    return replace(st, record=st.record._replace(chunks=tuple(c for c in st.record.chunks if c.node not in nodes)))


def _in_turn(ends: Sequence[float], due: float) -> tuple[int, float]:
    """Return how many chunks may follow those that use up a maximum, and from when on: which does most by ``due``.

    ``ends``: of those, ascending. The first to end makes room for one that begins at once, all for as many later.
    """
    return max(enumerate(ends, start=1), key=lambda room: room[0] * (due - room[1]))
