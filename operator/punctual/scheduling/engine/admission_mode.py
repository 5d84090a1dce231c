"""Fast admission in a Pool: when it takes over, what it answers, and when the exact test is needed again.

While a line is in force there is no plan: processors take what comes first as they become free. What the line cannot
judge (several processors at once, a reduce step, units in several ranges) goes to the exact test, which takes all that
waits with it. So does trouble: where the line cannot keep all of it, the plan and its repair decide.
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
    """Moves a pool between its two tests."""

    state: PoolState
    planner: Planner
    stayed: float | None = None
    """When the exact test was last found to be needed: the line is not tried again in the same step."""
    in_the_way: str | None = None
    """Whose promise the plan would not have kept when it was to take over last."""

    def settle(self, now: float) -> None:
        """Put that test in force which should decide now, if it keeps all that is promised."""
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
        """Let the line take over; say whether it can keep everything."""
        assert self.state.spec is not None
        if self.state.spec.discipline.order != "EDF":
            return False
        return self.planner.line_up(now)

    def leave(self, now: float) -> bool:
        """Let the plan take over, if everything fits into one."""
        plan, missed = self.planner.trial(now, stop=True)
        if missed:
            self.in_the_way = missed[0]
            return False
        self.planner.adopt(plan, now)
        self.stayed = now
        return True

    def judge(self, now: float, a: Application) -> SlackAnswer | UtilizationAnswer | Rejected | None:
        """Answer by the line; None where the exact test has taken over and should be asked."""
        line = self.state.line
        assert line is not None
        if isinstance(line, StatisticalQueue):
            return objection(a) or _loosely(a, line, now)
        return self._surely(now, a, line)

    def _surely(self, now: float, a: Application, line: FastSchedule) -> SlackAnswer | Rejected | None:
        if not line.is_for(a.demand):
            if not self.planner.line_up(now, beta=a.demand.cost.beta):
                why = f"sends for {1 - a.demand.cost.beta:.0%} of its work, more than any job that waits"
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
        """Refuse what the line does not judge, while the plan would not keep what the line does."""
        return Rejected(reasons.INFEASIBLE_CAPACITY, f"it {what}, which fast admission cannot judge; {self.why(now)}")

    def why(self, now: float) -> str:
        """Say why the exact test cannot take over, as it was last found."""
        assert self.in_the_way is not None
        waiting = len(self.state.line.jobs) if self.state.line else 0
        due = self.planner.due(self.state.jobs[self.in_the_way])
        return (
            f"the exact test cannot take over yet: in a plan of {some(waiting, 'waiting job')} one, due in "
            f"{span(due - now)}, would be late"
        )


def _loosely(a: Application, line: StatisticalQueue, now: float) -> UtilizationAnswer | Rejected:
    if a.demand.reduce or a.demand.least > 1:
        what = "ends with a reduce step" if a.demand.reduce else f"needs {a.demand.least} processors at once"
        text = f"it {what}, which a pool with missRatio cannot promise"
        return Rejected(reasons.INFEASIBLE_CAPACITY, text)
    pressure = line.room(now, a.demand)
    if pressure.fits:
        return pressure
    allowed = f"allowed is {line.bound:.3g}, with {some(len(line.jobs), 'job')} waiting"
    if pressure.highest == inf:
        runs = span(max(line.ends.values(), default=now) - now)
        text = f"what runs, for {runs} at most, and what is due before would leave a job no time at all; {allowed}"
    else:
        text = f"with it a job would need {pressure.highest:.3g} of the pool until its deadline; {allowed}"
    return Rejected(reasons.INFEASIBLE_CAPACITY, text, by_time=True)


def _arithmetic(a: Application, room: SlackAnswer, line: FastSchedule, now: float) -> str:
    what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - now)}"
    asks = f"{what} take {span(room.length)} of {some(line.fast.processors, 'processor')} together"
    if room.slack < 0:
        return f"{asks}; behind those before it that is {span(-room.slack)} too late"
    return f"{asks}; those behind it can wait for {span(max(0.0, room.spare))}"
