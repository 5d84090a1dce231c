"""Decisions: answers the jobs that wait, a bounded number per step, by the schedule in force.

A decision changes the schedule and the record of its own job, nothing else. The record is written before a chunk of the
job is created.
"""

import heapq
from dataclasses import dataclass
from typing import Any

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected, objection
from punctual.scheduling.admission.exact import accepted
from punctual.scheduling.admission.larger_pool import LargerPool
from punctual.scheduling.admission.limited import LimitedLargerPool
from punctual.scheduling.admission.offers import VALID, Test
from punctual.scheduling.admission.schedule import Accepted
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.job import FurtherProcessors, Job, JobRecord, Offer, Promise
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.outage import closed, scarcest
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.tenants.share_bookings import ShareBookings
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

PLACEMENTS = 64
"""Placements that one step may spend on decisions. One placement tests one demand against the plan."""


@dataclass(slots=True)
class Decisions:
    """Promises or refuses waiting jobs."""

    state: PoolState
    lifecycle: Lifecycle
    planner: Planner
    mode: AdmissionMode
    shares: ShareBookings
    offers: bool = True
    """Whether an offer is searched for refused jobs."""
    together: int = 1
    """Number of jobs that are tested together if one does not fit behind the plan. It grows while such tests
    succeed."""
    put_off: bool = False
    """Whether the last step left its decisions to the next step."""

    def work(self, now: float, *, planned: bool = False) -> None:
        """Answer waiting jobs in order of arrival until the step's budget is spent.

        ``planned``: whether this step has made a new schedule. That and decisions on a long plan each place the whole
        queue, so a step does only one of them. Decisions are put off at most once in a row: otherwise they would never
        be made if each step must plan again.
        """
        self.put_off = planned and not self.put_off and len(self.state.plan) > PLACEMENTS
        if self.put_off or not self.state.waiting:
            return
        if self.state.plan.begins_before(now):  # a chunk has not begun as planned
            self.mode.replan(now)
        self.state.schedule.refresh(now, lambda: self.planner.current(now))
        budget = PLACEMENTS
        while self.state.waiting and budget > 0:
            self.mode.settle(now)
            st = self._next_waiting()
            application = self._application(now, st) if st else None
            if st is None or application is None:
                continue
            if self.together > 1 and self._is_plain(application) and self.state.schedule.movable(application.demand):
                budget -= 1 + self._answer_together(now, application)
            else:
                budget -= 1 + self._answer(now, st, application)

    def _next_waiting(self) -> JobState | None:
        """Take the first job off the queue; None if it no longer waits for a decision."""
        _, uid = heapq.heappop(self.state.waiting)
        st = self.state.jobs.get(uid)
        return st if st is not None and st.state == "Waiting" else None

    def _is_plain(self, application: JobToTest) -> bool:
        """Whether only the plan can prevent admission, and admission would add a placement."""
        runs = bool(self.state.jobs[application.job.uid].record.chunks)
        return not application.job.dry_run and not runs and objection(application) is None

    def _answer_together(self, now: float, first: JobToTest) -> int:
        """Admit several jobs at once that fit only in another order; return the number of placements tested.

        One test of many jobs costs as much as a test of one. If they do not all fit, the group size is halved and they
        are tested again in the order of arrival. So a refused job was tested alone, behind all jobs before it.
        """
        group = [first]
        self._book(first)
        while self.state.waiting and len(group) < self.together:
            entry = self.state.waiting[0]
            st = self._next_waiting()
            application = self._application(now, st) if st else None
            if application is None:
                continue
            if not self._is_plain(application):
                heapq.heappush(self.state.waiting, entry)
                break
            group.append(application)
            self._book(application)
        before = self.state.plan  # it may have been made again for the nodes of one of them
        plan = before.insert_all(a.demand for a in group)
        if isinstance(plan, Plan):
            self.together = min(2 * self.together, PLACEMENTS)
            self.planner.follow(plan)
            for a in group:
                self._promise(now, self.state.jobs[a.job.uid], accepted(plan, a.job.uid, moved=True))
            return len(plan)
        self.together //= 2
        for a in group:
            self.shares.take_back(a.job.uid)
            self.state.ask(self.state.jobs[a.job.uid])
        return len(before)

    def _application(self, now: float, st: JobState) -> JobToTest | None:
        """Return the job's admission request; None if the job needs no admission test."""
        job = st.job
        self.state.live[job.uid] = st
        self.state.touch(st)
        st.record = st.record._replace(observed_generation=st.asked.generation)
        if job.suspend:
            text = "spec.suspend is true, so the job has no promise: set it to false to request one"
            st.record = st.record._replace(admitted=Verdict("False", reasons.SUSPENDED, text), refused=None)
            return None
        if st.work_done and job.reduce_duration is None:  # after an edit, no work is left to promise
            self.lifecycle.finish(now, st)
            return None
        if st.cost is None and job.refusal is None and not self.state.request.deleting:
            self._measure(now, st)
            return None
        self.mode.widen(now, st)
        st.record = st.record._replace(cost=st.cost)
        demand = self.planner.demand(st, now) if st.cost else None
        if demand is None:
            demand = Demand(order=Order(job.deadline, job.arrival, job.uid), ranges=ledger.remaining(0, JobRecord()),
                            cost=Cost(chi=1.0), due=job.deadline)  # fmt: skip
        eligibility = self.planner.eligibility
        return JobToTest(
            job=job,
            demand=demand,
            plan=self.state.plan,
            now=now,
            cpu=self.state.spec.cpu,
            processors=eligibility.processors(st),
            total=eligibility.total(st),
            closed=closed(self.state.processors, self.state.spec, now),
            excluded=lambda: eligibility.exclusions(st),
            deleting=self.state.request.deleting,
            limit=self.shares.limit(job, now),
            shared=self.state.terms.shares,
        )

    def _measure(self, now: float, st: JobState) -> None:
        """Let pilot chunks measure a job without a cost, or refuse it if none can run."""
        if st.job.dry_run:
            text = "spec.cost: a dry run starts no pilot chunks; state it, or name a profile that knows the cost"
            self.lifecycle.refuse(now, st, reasons.INVALID_SPEC, text)
        elif self.state.terms.shares:
            text = (
                "spec.cost: a pool with admission Utilization starts no pilot chunks; state it, or name a profile "
                "that knows the cost"
            )
            self.lifecycle.refuse(now, st, reasons.INVALID_SPEC, text)
        elif text := self.planner.eligibility.fits_no_node(st) or "":
            self.lifecycle.refuse(now, st, reasons.POD_FITS_NO_NODE, text)
        else:
            text = "neither cost nor profile: pilot chunks on free processors measure what a unit costs"
            st.record = st.record._replace(admitted=Verdict("Unknown", reasons.MEASURING, text), refused=None)

    def _answer(self, now: float, st: JobState, application: JobToTest) -> int:
        """Decide one job; return the number of placements tested. It waits again if another test must decide."""
        answer = self._what_runs(now, st, application) or self.mode.judge(now, application)
        if answer is None:
            self.state.ask(st)
            return 0
        if isinstance(answer, Rejected):
            self._reject(now, st, answer, application)
            return answer.placements
        if answer.moved:
            self.together = 2  # the next job may need another order too
        self._promise(now, st, answer)
        if not st.job.dry_run:
            self.state.schedule.add(answer)
            self._book(application)
        return answer.placements

    def _book(self, a: JobToTest) -> None:
        """Put a promise on the account of its namespace."""
        self.shares.promise(self.state.jobs[a.job.uid], a.limit, a.demand)

    def _what_runs(self, now: float, st: JobState, a: JobToTest) -> Rejected | None:
        """Reject a job with units that run without a promise, if they end too late or are the last."""
        if not any(chunk.leftover for chunk in st.record.chunks):
            return None
        if not a.demand.ranges:
            return Rejected(reasons.INFEASIBLE_CAPACITY, "its last units run without a promise already")
        if not self.planner.is_late(st, now):
            return None
        late = span(self.planner.running_until(st, now) - st.job.deadline)
        text = f"units that run without a promise already end {late} after the deadline"
        return Rejected(reasons.INFEASIBLE_CAPACITY, text, by_time=True)

    def _reject(self, now: float, st: JobState, answer: Rejected, a: JobToTest) -> None:
        message = answer.message
        if answer.reason == reasons.INFEASIBLE_CAPACITY:
            # its numbers are those of processors on which work can be planned
            about = a.closed, scarcest(self.state.processors, self.state.spec)
            message = "; ".join([message, *(text for text in about if text and text not in message)])
        self.lifecycle.refuse(now, st, answer.reason, message)
        if st.record.ended:
            return
        if answer.by_time and answer.reason != reasons.SHARE_USED_UP:
            self.state.misses.turn_away()
        if answer.by_time and self.offers:
            self.state.searches.ask(st.job.uid, a.demand)
        elif answer.reason == reasons.INFEASIBLE_CAPACITY:  # no deadline and no smaller load would help
            st.record = st.record._replace(offer=Offer(None, now + VALID, 0))

    def _promise(self, now: float, st: JobState, outlook: Accepted[Any]) -> None:
        job = st.job
        margin = outlook.demand.kept_back - outlook.demand.reduce
        reason = self.state.terms.reason
        where = "a share of a processor" if self.state.terms.shares else some(outlook.processors, "processor")
        units = outlook.demand.ranges.total
        text = (
            f"{some(units, 'unit') if units else 'the reduce step'} on {where} from "
            f"{span(max(0.0, outlook.start - now))} on, forecast in {span(outlook.finish - now)}, "
            f"deadline in {span(job.deadline - now)}, margin {span(margin)}"
        )
        if job.dry_run:
            verdict = Verdict("True", reasons.DRY_RUN, f"would be promised: {text}; a dry run reserves nothing")
            st.record = st.record._replace(admitted=verdict, refused=None)
            return
        st.record = st.record._replace(
            admitted=Verdict("True", reason, text),
            on_track=Verdict("True", reasons.ON_TRACK, "the forecast is before the deadline"),
            offer=None,
            refused=None,
            chunks=tuple(c._replace(leftover=c.leftover and not job.unit_pods) for c in st.record.chunks),
            promise=Promise(job.deadline, outlook.finish, margin, outlook.processors, max(now, outlook.start)),
        )
        self.state.outbox.add(Emit(job.uid, "Normal", reason, text))
        self.state.misses.accept(job.uid, outlook.demand.due + outlook.demand.kept_back)

    def test(self, now: float) -> Test:
        """Return the admission test in force, whatever the limit of a namespace."""
        return self.state.schedule.test(now, lambda: self.planner.current(now))

    def test_for(self, now: float, job: Job) -> Test:
        """Return the admission test in force for a job."""
        return self.shares.within(self.test(now), job, now)

    def search_offers(self, now: float) -> None:
        """Continue the searches for offers, a bounded number of tests. Decisions come first."""
        if self.state.waiting or not self.state.searches:
            return

        def larger(uid: str) -> LargerPool | None:
            job = self.state.jobs[uid].job
            pool, limit = self.mode.larger_pool(now, self.state.jobs[uid]), self.shares.limit(job, now)
            return pool if pool is None or limit.is_void else LimitedLargerPool(pool, limit)

        def test(uid: str) -> Test:
            return self.shares.within(here, self.state.jobs[uid].job, now)

        here = self.test(now)
        for uid, offer in self.state.searches.work(test, larger, now, size=len(self.state.plan)):
            st = self.state.jobs.get(uid)
            if st is None or st.state not in {"Refused", "Leftover"}:
                continue
            admitted = st.record.admitted
            if admitted is not None and offer.processors is not None:
                admitted = admitted._replace(message=f"{admitted.message}; {_would_do(offer.processors, now)}")
            st.record = st.record._replace(offer=offer, admitted=admitted)
            self.state.touch(st)


def _would_do(further: FurtherProcessors, now: float) -> str:
    begin = f", beginning in {span(further.start - now)}" if further.start > now else " from now"
    length = span(further.until - max(now, further.start))
    return f"{some(further.more, 'more processor')} would do, for {length}{begin}"
