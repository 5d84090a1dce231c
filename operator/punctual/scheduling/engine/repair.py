"""Repair: makes the plan again after a change, keeps the old one, or gives promises up if no plan fits.

A new plan replaces the old one only if it keeps every promise (schedules have anomalies). Otherwise the old plan stays,
with its new times. If neither keeps every promise, margins and headroom are used first. Then promises are given up:
first those of the jobs that caused the shortage, then the newest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from punctual import reasons
from punctual.scheduling.admission.fluid import arrange
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.processors import Place
from punctual.scheduling.placement.demand import Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.sufficient_test import overloaded
from punctual.scheduling.state.fluid import last_chunk
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import UNCHANGED, Changes, PoolState
from punctual.verdict import Verdict

Found = TypeVar("Found")
LINE_MOVED = 0.01
"""Seconds by which a line must end at another time before it is moved: times are written rounded."""
LOST = frozenset({reasons.CAPACITY_LOST, reasons.POD_FITS_NO_NODE})
"""Reasons for which a promise was given up that is made again if processors come back."""
SPARING = 2000
"""Placements that a repair may spend on finding promises that can be kept after all."""


@dataclass(slots=True)
class Repair:
    """Makes a plan that keeps as many promises as possible."""

    state: PoolState
    lifecycle: Lifecycle
    planner: Planner

    def replan(self, now: float) -> None:
        """Plan again after a change; keep the old plan if the new one breaks a promise that the old one keeps."""
        plan, missed = self.planner.trial(now)
        if missed and self.take_as_declared():
            plan, missed = self.planner.trial(now)
        late = [st.job.uid for st in self.planner.promised() if self.planner.is_late(st, now)]
        if missed or late:
            kept = None if late else self._kept(now, plan) or self._rebuilt(now, plan)
            plan = kept or self._repair(now, missed, late)
        self.state.outdated.causes.clear()
        self.planner.adopt(plan, now)
        fits = partial(self._with, now)
        for plan in _promised_again(self.state, "processors are planned for it again", fits):
            self.planner.adopt(plan, now)
        self._let_stay(now)

    def take_as_declared(self) -> bool:
        """Let plans take slow units with a pod each to be as fast as declared; return whether there are any.

        What the units of a few pods have taken is no more than a forecast: it gets processors that nothing else needs,
        and breaks no promise. The promise of the job itself ends when it does not fit at the declared cost either.
        """
        slow = [st for st in self.planner.promised() if st.job.unit_pods and st.planned_slowdown > 1.0]
        for st in slow:
            st.as_declared = True
        return bool(slow)

    def _let_stay(self, now: float) -> None:
        """Let leftover chunks stay until they end, as many as break no promise: those first that end first.

        Their places are then free later than those that other work leaves, so placements move to other places or wait.
        """
        ends = self.planner.leftovers(now)
        if not ends or not any(claim.place in ends for claim in self.state.schedule.claimed(now)):
            return
        queue = sorted(ends, key=lambda place: (ends[place], place))
        best, low, high = None, 0, len(queue) + 1
        count = len(queue)  # usually all may stay
        while high - low > 1:
            if (plan := self._staying(now, queue[:count])) is not None:
                best, low = plan, count
            else:
                high = count
            count = (low + high) // 2
        if best is not None:
            self.planner.adopt(best, now)

    def _staying(self, now: float, stays: Sequence[Place]) -> Plan | None:
        """Return a plan in which leftover chunks stay on these places, if one keeps every promise."""
        plan, missed = self.planner.trial(now, Changes(stays=stays), stop=True)
        if not missed:
            return plan
        places, timeline = self.planner.timeline(now, Changes(stays=stays))
        kept = self.state.plan.upon(places, timeline)
        return kept if kept and kept.keeps_all() else None

    def _kept(self, now: float, anew: Plan) -> Plan | None:
        """Return the old plan at the new ready times if it covers all remaining work and keeps every promise."""
        old = self.state.plan
        demands = {d.uid: d for d in self.planner.demands(now)}
        if {d.uid: d.ranges for d in old.demands} != {uid: d.ranges for uid, d in demands.items()}:
            return None
        kept = old.upon(anew.places, anew.timeline, {uid: d.eligible for uid, d in demands.items()})
        return kept if kept and kept.keeps_all() else None

    def _rebuilt(self, now: float, anew: Plan) -> Plan | None:
        """Return a plan rebuilt from the recorded promises, if it keeps every promise.

        After a takeover, the records are all that is left of a kept plan: each job gets as many processors as it was
        promised, in the order in which the jobs were to start.
        """
        line = []
        for demand in self.planner.demands(now):
            st = self.state.jobs[demand.uid]
            promise = st.record.promise
            assert promise is not None
            as_before = promise.processors - (0 if demand.unit_pods else len(st.record.chunks))
            again = replace(demand, as_before=min(as_before, demand.most or as_before))
            line.append((promise.start, demand.order, again))
        plan, missed = Plan.in_turn(
            anew.places, anew.timeline, [d for *_, d in sorted(line, key=lambda e: e[:2])], stop=True
        )
        return None if missed else plan

    def _repair(self, now: float, missed: list[str], late: list[str]) -> Plan:
        """Find a plan that keeps as many promises as possible: use margins and headroom first, then give promises up.

        Drop jobs that cannot be saved first, then the jobs that caused the shortage (isolation), then the newest, until
        the rest fits. Finally, take back dropped jobs that fit after all: they did not cause the shortage.
        """
        for uid in missed:
            self.state.jobs[uid].squeezed = True
        refused = {uid: st.refused_for for uid, st in self.state.live.items() if st.refused_until > now}
        causes = refused | self.state.outdated.causes
        at_fault = [uid for uid in causes if uid in self.state.jobs and self.state.jobs[uid].state == "Promised"]
        newest = sorted(self.planner.promised(), key=lambda st: (-st.job.arrival, st.job.uid))
        alone, _ = self.planner.trial(now, Changes(but=frozenset(st.job.uid for st in newest)))
        hopeless = [d.uid for d in self.planner.demands(now) if isinstance(alone.append(d), Shortfall)]
        first = list(dict.fromkeys([*late, *hopeless]))
        queue = list(dict.fromkeys([*first, *at_fault, *(st.job.uid for st in newest)]))
        low, high = len(first), len(queue)  # dropping ``high`` jobs is enough: without any job, everything fits
        if not self.planner.trial(now, Changes(but=frozenset(queue[:low])), stop=True).missed:
            high = low
        while high - low > 1:
            middle = (low + high) // 2
            if self.planner.trial(now, Changes(but=frozenset(queue[:middle])), stop=True).missed:
                low = middle
            else:
                high = middle
        gone = self._spare(now, frozenset(queue[:high]), oldest=queue[len(first) : high][::-1])
        for uid in queue[:high]:
            if uid in gone:
                reason = causes.get(uid, reasons.OVERRUN if uid in late else reasons.CAPACITY_LOST)
                self.give_up(now, self.state.jobs[uid], reason)
        return self.planner.trial(now, Changes(but=gone)).plan

    def _spare(self, now: float, gone: frozenset[str], *, oldest: list[str]) -> frozenset[str]:
        """Return the subset of ``gone`` that must be dropped after jobs that still fit are taken back, oldest first.

        Dropping more jobs need not help: if one of the oldest does not fit, all newer ones were dropped with it. Many
        jobs are tested at once, and then in halves if they do not all fit.
        """
        groups, placements = [oldest] if oldest else [], SPARING
        while groups and placements > 0:
            group = groups.pop()
            fewer = gone.difference(group)
            plan, missed = self.planner.trial(now, Changes(but=fewer), stop=True)
            placements -= 1 + len(plan)
            if not missed:
                gone = fewer
            elif len(group) > 1:
                middle = len(group) // 2
                groups += [group[middle:], group[:middle]]
        return gone

    def give_up(self, now: float, st: JobState, reason: str) -> None:
        """Give a promise up: the job goes on with leftover capacity, or ends."""
        nowhere = self.planner.eligibility.fits_no_node(st) if reason == reasons.CAPACITY_LOST else None
        if nowhere:
            reason = reasons.POD_FITS_NO_NODE
        waits = st.unstarted or "its pods have not started"
        text = nowhere or {
            reasons.OVERRUN: "its units take longer than declared; the rest no longer fits before the deadline",
            reasons.CHUNK_FAILED: "chunks failed; running them again no longer fits before the deadline",
            reasons.POD_REFUSED: "its pods are refused; the rest no longer fits before the deadline",
            reasons.NOT_STARTED: f"{waits}; the rest no longer fits before the deadline",
        }.get(reason, "processors were lost; not every promise still fits, so the newest are given up first")
        if st.job.on_miss == "Stop":
            self.lifecycle.fail(now, st, reason, f"{text}; spec.onMiss is Stop")
            return
        promise = st.record.promise
        st.record = st.record._replace(
            on_track=Verdict("False", reason, f"{text}; it continues on leftover capacity"),
            promise=promise and promise._replace(given_up=True),
        )
        self.state.touch(st)
        self.state.outbox.add(Emit(st.job.uid, "Warning", reason, text))

    def _with(self, now: float, st: JobState, again: JobState) -> Plan | None:
        """Return a plan that keeps every promise with a job that is promised again; None: none is found."""
        demand = self.planner.demand(st, now)
        ahead = self.state.plan.at(now)
        if demand and overloaded(ahead.timeline, ahead.demands, demand):
            return None
        plan, missed = self.planner.trial(now, Changes(job=again), stop=True)
        return None if missed or self.planner.is_late(again, now) else plan


def _promised_again(state: PoolState, text: str, fits: Callable[[JobState, JobState], Found | None]) -> Iterator[Found]:
    """Promise jobs that lost their processors to a lost node again, the oldest eight at most.

    ``fits`` gets a job as it is and as it would be; what it finds is yielded, None refuses.
    """
    lost = [
        st for st in state.live.unpromised()
        if st.state == "Leftover" and st.record.on_track and st.record.on_track.reason in LOST
    ]  # fmt: skip
    for st in sorted(lost, key=lambda st: (st.job.arrival, st.job.uid))[:8]:
        chunks = tuple(c._replace(leftover=False) for c in st.record.chunks)
        promise = st.record.promise and st.record.promise._replace(given_up=False)
        verdict = Verdict("True", reasons.ON_TRACK, text)
        again = replace(st, record=st.record._replace(on_track=verdict, chunks=chunks, promise=promise))
        if (found := fits(st, again)) is not None:
            st.record = again.record
            state.touch(st)
            state.outbox.add(Emit(st.job.uid, "Normal", reasons.ON_TRACK, text))
            yield found


@dataclass(slots=True)
class Refit:
    """Fits promised jobs on the nodes after a change, where jobs share processors.

    Running jobs stay where they are; jobs of lost nodes go to others. If not all fit, margins and headroom are used
    first, then promises are given up: of jobs that cannot be saved, of those that caused it, then the newest.
    """

    state: PoolState
    planner: Planner
    repair: Repair

    def replan(self, now: float) -> None:
        """Settle which promises are kept after a change."""
        if not self._fits(now) and not (self.repair.take_as_declared() and self._fits(now)):
            for st in self.planner.promised():
                st.squeezed = True
            if not self._fits(now):
                self._give_up(now)
        self.state.outdated.causes.clear()
        text = "its node has CPU for it again"
        list(_promised_again(self.state, text, lambda _, again: self._fits(now, Changes(job=again)) or None))
        for st in self.planner.promised():
            self.aim(st)

    def trouble(self, now: float, changes: Changes) -> tuple[int, int]:
        """Return how many promises, the newest ones, would be broken by a change, and of how many."""
        fluid = self.planner.fluid(changes)
        nodes = [node for node in fluid.nodes(now) if node.name not in changes.without]
        jobs = fluid.leniently(now, without=changes.without)
        arrivals = {job.uid: self.state.jobs[job.uid].job.arrival for job in jobs}
        left = sorted(jobs, key=lambda job: (arrivals[job.uid], job.uid))
        while not arrange(now, nodes, left).kept:
            left.pop()
        return len(jobs) - len(left), len(jobs)

    def aim(self, st: JobState) -> None:
        """Let a job's forecast, and the line of its last chunk, end when its work is due."""
        before, chunk, due = st.record, last_chunk(st), self.planner.due(st)
        if chunk is not None and abs(chunk.promised_end - due) > LINE_MOVED:
            st.record = st.record.changed(chunk._replace(promised_end=due, late=False))
        promise = st.record.promise
        if promise is not None and abs(promise.finish - due) > LINE_MOVED:
            st.record = st.record._replace(promise=promise._replace(finish=due))
        if st.record != before:
            self.state.touch(st)

    def _fits(self, now: float, changes: Changes = UNCHANGED) -> bool:
        fluid = self.planner.fluid(changes)
        return arrange(now, fluid.nodes(now), [j for j in fluid.leniently(now) if j.uid not in changes.but]).kept

    def _give_up(self, now: float) -> None:
        """Give up as few promises as possible."""
        fluid = self.planner.fluid()
        nodes, jobs = fluid.nodes(now), fluid.leniently(now)
        hopeless = [job.uid for job in jobs if not arrange(now, nodes, [job]).kept]
        causes = self.state.outdated.causes
        newest = sorted(self.planner.promised(), key=lambda st: (-st.job.arrival, st.job.uid))
        there = {st.job.uid for st in newest}
        queue = list(dict.fromkeys([*hopeless, *(u for u in causes if u in there), *(st.job.uid for st in newest)]))
        low, high = len(hopeless), len(queue)
        while high > low:
            middle = (low + high) // 2
            if self._fits(now, Changes(but=frozenset(queue[:middle]))):
                high = middle
            else:
                low = middle + 1
        gone = set(queue[:high])
        for uid in reversed(queue[len(hopeless) : high]):  # oldest first: it may fit where a newer one did not
            if self._fits(now, Changes(but=frozenset(gone - {uid}))):
                gone.discard(uid)
        for uid in queue[:high]:
            if uid in gone:
                self.repair.give_up(now, self.state.jobs[uid], causes.get(uid, reasons.CAPACITY_LOST))
