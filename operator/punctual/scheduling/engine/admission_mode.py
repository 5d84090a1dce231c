"""Choice of a pool's admission test: when the fast test takes over, its answers, and when the exact one returns.

While a fast queue is in force there is no plan: processors take the first work in the queue as they become free.
Demands that the fast queue cannot judge (several processors at once, a reduce step, units in several ranges) go to the
exact test, which then takes over the whole queue. The same happens in a shortage: if the fast queue cannot keep every
promise, the plan and its repair decide.
"""

from dataclasses import dataclass
from math import inf

from punctual import reasons
from punctual.scheduling.admission.exact import Application, Rejected, objection
from punctual.scheduling.admission.fast_queue import SlackAnswer
from punctual.scheduling.admission.fast_schedule import FastSchedule
from punctual.scheduling.admission.fast_test import Obstacle, wanted
from punctual.scheduling.admission.statistical import StatisticalQueue, UtilizationAnswer
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.engine.state import PoolState
from punctual.scheduling.model.wording import some, span


@dataclass(slots=True)
class AdmissionMode:
    """Switches a pool between its admission tests."""

    state: PoolState
    planner: Planner
    stayed: float | None = None
    """Time at which the exact test was last found necessary: the fast test is not tried again in the same step."""
    in_the_way: str | None = None
    """Uid of the job that would have been late in the plan when the exact test was last to take over."""

    def settle(self, now: float) -> None:
        """Put the test in force that should decide now, if it keeps every promise."""
        state = self.state
        spec = state.spec
        assert spec is not None
        if spec.loose:
            if not isinstance(state.line, StatisticalQueue):
                self.planner.line_up(now)
            return
        if spec.admission == "Exact":
            if state.line is not None:
                self.leave(now)
            return
        waiting = len(state.line.jobs) if state.line else len(state.plan)
        test = wanted("Fast" if state.line else "Exact", waiting, threshold=spec.threshold)
        if spec.admission == "Fast":
            test = "Fast"
        if test == "Fast" and state.line is None and self.stayed != now:
            self.stayed = None if self.enter(now) else now
        elif test == "Exact" and state.line is not None:
            self.leave(now)

    def enter(self, now: float) -> bool:
        """Switch to the fast test; return whether it can keep every promise."""
        assert self.state.spec is not None
        if self.state.spec.discipline.order != "EDF":
            return False
        return self.planner.line_up(now)

    def leave(self, now: float) -> bool:
        """Switch to the exact test if everything fits into one plan; return whether it does."""
        plan, missed = self.planner.trial(now, stop=True)
        if missed:
            self.in_the_way = missed[0]
            return False
        self.planner.adopt(plan, now)
        self.stayed = now
        return True

    def judge(self, now: float, a: Application) -> SlackAnswer | UtilizationAnswer | Rejected | None:
        """Decide by the test in force; None if the exact test has taken over and should decide."""
        line = self.state.line
        assert line is not None
        if isinstance(line, StatisticalQueue):
            return objection(a) or _loosely(a, line, now)
        return self._surely(now, a, line)

    def _surely(self, now: float, a: Application, line: FastSchedule) -> SlackAnswer | Rejected | None:
        if not line.is_for(a.demand):
            if not self.planner.line_up(now, beta=a.demand.cost.beta):
                why = f"spends {1 - a.demand.cost.beta:.0%} of its work on transfers, more than any waiting job"
                return None if self.leave(now) else self._too_full(now, why)
            made = self.state.line
            assert isinstance(made, FastSchedule)
            line = made
        if no := objection(a):
            return no
        room = line.room(now, a.demand)
        if isinstance(room, Obstacle):
            return None if self.leave(now) else self._too_full(now, room.what)
        if room.fits:
            return room
        return Rejected(reasons.INFEASIBLE_CAPACITY, _arithmetic(a, room, line, now), by_time=True)

    def _too_full(self, now: float, what: str) -> Rejected:
        """Reject a demand that the fast test cannot judge while the plan would break a promise that it keeps."""
        return Rejected(reasons.INFEASIBLE_CAPACITY, f"it {what}, which fast admission cannot judge; {self.why(now)}")

    def why(self, now: float) -> str:
        """Return why the exact test could not take over the last time."""
        assert self.in_the_way is not None
        waiting = len(self.state.line.jobs) if self.state.line else 0
        due = self.planner.due(self.state.jobs[self.in_the_way])
        return (
            f"the exact test cannot take over yet: in a plan of {some(waiting, 'waiting job')}, the one due in "
            f"{span(due - now)} would be late"
        )


def _loosely(a: Application, line: StatisticalQueue, now: float) -> UtilizationAnswer | Rejected:
    if a.demand.reduce or a.demand.least > 1:
        what = "ends with a reduce step" if a.demand.reduce else f"needs {a.demand.least} processors at once"
        text = f"it {what}, which a pool with missRatio cannot promise"
        return Rejected(reasons.INFEASIBLE_CAPACITY, text)
    pressure = line.room(now, a.demand)
    if pressure.fits:
        return pressure
    allowed = f"the bound is {line.bound:.3g}, with {some(len(line.jobs), 'job')} waiting"
    if pressure.highest == inf:
        runs = span(max(line.ends.values(), default=now) - now)
        text = f"running chunks (for {runs} at most) and earlier deadlines would leave a job no time at all; {allowed}"
    else:
        text = f"with this job, a job would need {pressure.highest:.3g} of the pool until its deadline; {allowed}"
    return Rejected(reasons.INFEASIBLE_CAPACITY, text, by_time=True)


def _arithmetic(a: Application, room: SlackAnswer, line: FastSchedule, now: float) -> str:
    what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - now)}"
    asks = f"{what} take {span(room.length)} of {some(line.fast.processors, 'processor')} together"
    if room.slack < 0:
        return f"{asks}; behind the jobs before it, that is {span(-room.slack)} too late"
    return f"{asks}; the jobs behind it can wait for only {span(max(0.0, room.spare))}"
