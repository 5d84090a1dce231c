"""Choice of a pool's schedule: which admission test decides, and the switch from one to another.

This module alone chooses among the four kinds of schedules, and makes those that are not a plan. While a fast queue is
in force there is no plan: processors take the first work in the queue as they become free. Demands that the fast queue
cannot judge (several processors at once, a reduce step, units in several ranges) go to the exact test, which then takes
over the whole queue. The same happens in a shortage: if the fast queue cannot keep every promise, the plan and its
repair decide.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected
from punctual.scheduling.admission.fast_schedule import FastSchedule
from punctual.scheduling.admission.fast_test import Obstacle, wanted
from punctual.scheduling.admission.larger_pool import (
    LargerFastQueue,
    LargerPlan,
    LargerPool,
    LargerSharedPool,
    LargerStatisticalQueue,
)
from punctual.scheduling.admission.schedule import Accepted, Unable
from punctual.scheduling.admission.statistical import StatisticalQueue
from punctual.scheduling.admission.utilization import UtilizationSchedule
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.planner import Planner, enlarge
from punctual.scheduling.engine.repair import Refit, Repair
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import Processors
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import Changes, PoolState
from punctual.scheduling.state.terms import terms_of


class KeptByPlan(NamedTuple):
    """A changed job, and the plan that keeps every promise with it."""

    plan: Plan


class KeptByBound(NamedTuple):
    """A changed job that the utilization bound allows, and its waiting work; None: nothing waits."""

    demand: Demand | None


class KeptByShares(NamedTuple):
    """A changed job with which the needs of all jobs still fit the nodes."""


Kept = KeptByPlan | KeptByBound | KeptByShares


@dataclass(slots=True)
class AdmissionMode:
    """Switches a pool between its schedules."""

    state: PoolState
    planner: Planner
    repair: Repair
    refit: Refit
    stayed: float | None = None
    """Time at which the exact test was last found necessary: the fast test is not tried again in the same step."""
    in_the_way: str | None = None
    """Uid of the job that would have been late in the plan when the exact test was last to take over."""

    @property
    def _exact(self) -> bool:
        return self.state.schedule.kind == "Exact"

    def settle(self, now: float) -> None:
        """Put the test in force that should decide now, if it keeps every promise."""
        state = self.state
        spec, terms = state.spec, state.terms
        if terms.shares:
            if state.schedule.kind != "Utilization":
                self._share(now)
            return
        if state.schedule.kind == "Utilization":  # no job is promised: an edit of the pool has made sure of that
            self.to_exact(now)
        if not terms.guaranteed:
            if state.schedule.kind != "Statistical":
                self.line_up(now)
            return
        if spec.admission == "Exact":
            self.to_exact(now)
            return
        test = wanted("Exact" if self._exact else "Fast", len(state.schedule.uids()), threshold=spec.threshold)
        if spec.admission == "Fast":
            test = "Fast"
        if test == "Exact":
            self.to_exact(now)
        elif self._exact and self.stayed != now:
            self.stayed = None if self.enter(now) else now

    def enter(self, now: float) -> bool:
        """Switch to the fast test; return whether it can keep every promise."""
        if self.state.spec.discipline.order != "EDF":
            return False
        return self.line_up(now)

    def to_exact(self, now: float) -> bool:
        """Switch to the exact test if everything fits into one plan; return whether it is in force."""
        if self._exact:
            return True
        plan, missed = self.planner.trial(now, stop=True)
        if missed:
            self.in_the_way = missed[0]
            return False
        self.planner.adopt(plan, now)
        self.stayed = now
        return True

    def line_up(self, now: float, *, beta: float = 1.0) -> bool:
        """Switch to the fast or statistical test, with all waiting work; return whether it keeps every promise."""
        places, timeline = self.planner.timeline(now)
        spec = self.state.spec
        if self.state.ahead.held:  # the fast test assumes all processors at any time
            return False
        line: FastSchedule | StatisticalQueue | Obstacle
        if not self.state.terms.guaranteed:
            bound = spec.bound if self.state.misses.bound is None else self.state.misses.bound
            assert bound is not None
            line = StatisticalQueue.of(now, places, timeline, self.planner.demands(now), bound=bound)
        else:
            line = FastSchedule.of(now, places, timeline, self.planner.demands(now), beta=beta)
        if isinstance(line, Obstacle):
            return False
        self.state.schedule = line
        return True

    def _share(self, now: float) -> None:
        """Make the schedule of shared processors again, with all promised work that has no pod."""
        self.refit.replan(now)
        places, timeline = self.planner.timeline(now)
        fluid = self.planner.fluid()
        waiting = {st.job.uid: ledger.remaining(st.job.units, st.record) for st in self.planner.promised()}
        self.state.schedule = UtilizationSchedule(
            look=fluid.strictly,
            look_kept=fluid.leniently,
            nodes=fluid.nodes,
            plan=Plan.holding(places, timeline, (), timeline),
            waiting={uid: left for uid, left in waiting.items() if left},
        )

    def widen(self, now: float, st: JobState) -> None:
        """Let the schedule include the nodes, closed to pods without rules, on which a job's pods may run."""
        state, eligible = self.state, self.planner.eligibility.nodes(st)
        if eligible is None or state.processors.closed & eligible.nodes <= state.plan.timeline.sites.closed:
            return
        plan = state.plan.upon(*self.planner.timeline(now)) if self._exact else None
        if plan is not None and plan.keeps_all():
            self.planner.adopt(plan, now)
        else:
            self.replan(now)

    @property
    def broken(self) -> bool:
        """Whether a promised job that waits will be late, though nothing else has changed."""
        schedule = self.state.schedule
        return isinstance(schedule, UtilizationSchedule) and schedule.broken

    def replan(self, now: float) -> None:
        """Make the schedule again after a change."""
        state = self.state
        state.outdated.scheduled()
        if state.terms.shares:
            self._share(now)
            return
        # Statistical promises need no plan that keeps them: a repair would give them up.
        if not (self._exact and state.terms.guaranteed) and self.line_up(now):
            return
        self.repair.replan(now)

    def limit(self, bound: float) -> None:
        """Put another utilization bound in force, if the pool's schedule has one."""
        if isinstance(self.state.schedule, StatisticalQueue):
            self.state.schedule.bound = bound

    def larger_pool(self, now: float, st: JobState) -> LargerPool | None:
        """Return the test in force for a refused job with further processors; None: they surely do not help."""
        if (made := enlarge(self.planner, st, now)) is None:
            return None
        schedule, there = self.state.schedule, made.there
        if isinstance(schedule, UtilizationSchedule):
            jobs = made.planner.fluid().strictly(now)
            return LargerSharedPool(there=there, nodes=schedule.nodes(now), jobs=jobs, parts=self.state.spec.parts)
        if isinstance(schedule, StatisticalQueue):
            return LargerStatisticalQueue(there=there, bound=schedule.bound)
        busy = self.planner.busy(now)
        if isinstance(schedule, FastSchedule):
            return LargerFastQueue(there=there, plan=None, busy=busy)
        return LargerPlan(there=there, plan=schedule.plan, busy=busy)

    def judge(self, now: float, a: JobToTest) -> Accepted[Any] | Rejected | None:
        """Decide by the schedule in force; None if the exact test has taken over and should decide."""
        answer = self.state.schedule.judge(a)
        if isinstance(answer, Unable) and answer.beta is not None and self.line_up(now, beta=answer.beta):
            answer = self.state.schedule.judge(a)
        if not isinstance(answer, Unable):
            return answer
        return None if self.to_exact(now) else self._too_full(now, answer.what)

    def _too_full(self, now: float, what: str) -> Rejected:
        """Reject a demand that the fast test cannot judge while the plan would break a promise that it keeps."""
        text = f"it {what}, which fast admission cannot judge; {self.why(now)}"
        return Rejected(reasons.INFEASIBLE_CAPACITY, text, placements=0)

    def why(self, now: float) -> str:
        """Return why the exact test could not take over the last time."""
        assert self.in_the_way is not None
        waiting = some(0 if self._exact else len(self.state.schedule.uids()), "waiting job")
        due = self.planner.due(self.state.jobs[self.in_the_way])
        late = f"the one due in {span(due - now)} would be late"
        return f"the exact test cannot take over yet: in a plan of {waiting}, {late}"

    def broken_by(
        self, now: float, spec: PoolSpec, after: Processors, without: Collection[str]
    ) -> tuple[int, int, int]:
        """Return how many promises another spec would break, of how many, on how many processors.

        ``after``: processors under it; those on nodes in ``without`` leave the pool.
        """
        changes = Changes(without=without, spec=spec, processors=after)
        if terms_of(spec).shares:
            total = sum(count for node, count in after.whole.items() if node not in without)
            return *self.refit.trouble(now, changes), total
        plan, missed = self.planner.trial(now, changes)
        return len(missed), len(plan) + len(missed), len(plan.places)

    def test_change(self, now: float, st: JobState) -> Kept | str:
        """Test a promised job with a changed spec; return what the change would do if it is refused."""
        line = self.state.schedule
        if isinstance(line, StatisticalQueue):
            return self._test_in_line(now, st, line)
        if line.kind == "Utilization":
            if st.job.min_processors > 1:
                return "need several processors at once, which a pool with admission Utilization does not give"
            broken, _ = self.refit.trouble(now, Changes(job=st))
            return f"break {some(broken, 'promise')}" if broken else KeptByShares()
        if st.job.min_processors > st.job.units and not ledger.has_begun(st.job, st.record):
            return f"need at least {some(st.job.min_processors, 'unit')}, but it has {st.job.units}"
        plan, missed = self.planner.trial(now, Changes(job=st))
        if missed or self.planner.is_late(st, now):
            return f"break {_whose(st.job.uid, missed)}"
        return KeptByPlan(plan)

    def _test_in_line(self, now: float, st: JobState, line: StatisticalQueue) -> KeptByBound | str:
        """Test a changed job by the utilization bound."""
        demand = self.planner.demand(st, now)
        if demand is None:
            return KeptByBound(None)
        if demand.least > 1:
            return "need several processors at once, which a pool with missRatio does not give"
        pressure = line.room(now, demand)
        if not pressure.fits:
            return f"need {pressure.highest:.3g} of the pool until a deadline, but the bound is {line.bound:.3g}"
        return KeptByBound(demand)

    def change(self, now: float, st: JobState, kept: Kept) -> None:
        """Put the schedule with a changed job in force."""
        if isinstance(kept, KeptByShares):
            self.refit.aim(st)
            return
        if isinstance(kept, KeptByPlan):
            self.planner.adopt(kept.plan, now)
            return
        line = self.state.schedule
        assert isinstance(line, StatisticalQueue)
        line.remove(st.job.uid)
        if kept.demand is not None:
            line.join(kept.demand)


def _whose(uid: str, missed: Sequence[str]) -> str:
    """Return a text for the promises in the way; if none is missed, the job's own running chunks would be late."""
    others = some(len(missed) - (uid in missed), "promise")
    if uid in missed or not missed:
        return "its own promise" if len(missed) < 2 else f"its own promise and {others} more"
    return others
