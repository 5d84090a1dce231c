"""A scenario from its begin to its end: events in order of time, the law of each application told of each iteration."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from punctual.control.rate import Admitted, Bracketing, Iteration, Law, Limits, LinearSearch, Pair, RateDecision
from punctual.sim.rates.application import Application, Supply
from punctual.sim.rates.report import Record, Result, Sample
from punctual.sim.rates.scenario import TAKEN, App, Scenario, rate_at
from punctual.sim.rates.slots import Share, SharedNode, Slots

FINISH: Final = 0
CHANGE: Final = 1
"""What happens at one time: first iterations end, then targets and loads change."""


@dataclass(slots=True)
class _Run:
    """An application in a run. ``since``: the pair's begin; ``began``: of the iteration."""

    n: int
    app: App
    law: Law
    application: Application
    record: Record
    phases: list[float]
    supplies: list[Supply] = field(default_factory=list)
    pair: Pair | None = None
    since: float = 0.0
    began: float = 0.0


Laws = Callable[[App, Limits], Law]


def law_of(app: App, limits: Limits) -> Law:
    """Return the law that an application asks for."""
    if app.law == "linear":
        return LinearSearch(app.epsilon, limits)
    return Bracketing(app.epsilon, app.alone, limits)


def simulate(scenario: Scenario, seed: int = 0, *, laws: Laws = law_of) -> Result:
    """Run a scenario; the same seed gives the same result."""
    return _Simulation(scenario, seed, laws).run()


class _Simulation:
    def __init__(self, scenario: Scenario, seed: int, laws: Laws) -> None:
        self.scenario = scenario
        limits = Limits(scenario.min_period, scenario.max_period)
        self.runs = []
        for n, app in enumerate(scenario.apps):
            rng = Random(f"{seed} {n}")  # noqa: S311  dice, not secrets
            drawn = [rng.random() for _ in range(app.ranks)]
            made = Application(app, rng)
            self.runs.append(_Run(n, app, laws(app, limits), made, Record(app), list(app.phases or drawn)))
        on = [sum(node < app.ranks for app in scenario.apps) for node in range(scenario.nodes)]
        self.shared = {node: SharedNode(len(self.runs)) for node, count in enumerate(on) if count > 1}
        self.amounts = [0.0] * scenario.nodes
        self.samples: list[Sample] = []
        self.heap: list[tuple[float, int, int, int, int]] = []
        """(time, FINISH or CHANGE, application, rank, number of the prediction)."""

    def run(self) -> Result:
        """Process all events before the end."""
        end = self.scenario.duration
        times = {t.at for run in self.runs for t in run.app.targets}
        times |= {at for load in self.scenario.load for at in (load.begin, load.until)}
        for at in times:
            heapq.heappush(self.heap, (at, CHANGE, 0, 0, 0))
        while self.heap and self.heap[0][0] < end:
            at, kind, n, r, version = heapq.heappop(self.heap)
            if kind == CHANGE:
                self._change(at)
            elif self.runs[n].application.ranks[r].version == version:
                self._finish(at, self.runs[n], r)
        for run in self.runs:
            if run.pair is not None:
                self._settle(end, run)
                self._count_switches(end, run)
            run.record.cpu = sum(rank.cpu for rank in run.application.ranks)
        for node, shared in self.shared.items():
            for run in self.runs:
                run.record.switched += shared.switched(run.n, end) if node < run.app.ranks else 0.0
        return Result([run.record for run in self.runs], self.samples)

    def _change(self, at: float) -> None:
        """Carry out what the scenario has at this time: loads, then targets."""
        amounts = [0.0] * self.scenario.nodes
        for load in self.scenario.load:
            if load.begin <= at < load.until:
                amounts[load.node] += load.amount
        if amounts != self.amounts:
            for run in self.runs:
                self._settle(at, run)
            self.amounts = amounts
            for run in self.runs:
                self._predict(run)
        admitted = self.scenario.admission(at)
        assert isinstance(admitted, Admitted), "the scenario was checked"
        for run in self.runs:
            if (rate := rate_at(run.app, at)) is not None:
                self._aim(at, run, run.law.aim(rate, ceiling=admitted.ceilings[run.app.id]))

    def _aim(self, at: float, run: _Run, decision: RateDecision) -> None:
        """Carry out a decision on a target, which may be the old one with another ceiling."""
        first, changed = run.pair is None, decision.pair != run.pair
        self._set(at, run, decision)
        if any(target.at == at for target in run.app.targets):
            run.record.aim(decision.pair)
        elif changed:
            run.record.change(decision.pair)
        if first:
            run.began = at
            for r in range(run.app.ranks):
                run.application.begin(at, r)
            self._predict(run)

    def _finish(self, at: float, run: _Run, r: int) -> None:
        """Process a rank that has done its stage."""
        application = run.application
        ended = application.end(r, self._factor(run, r))
        free = application.free(r)
        for p in free:
            application.begin(at, p)
        if ended:
            self._report(at, run)
        for p in free:
            self._predict_rank(run, p)

    def _report(self, at: float, run: _Run) -> None:
        assert run.pair is not None
        length = at - run.began
        share = min((at - run.since) / length, 1.0)
        rate = run.app.alone / length
        target = rate_at(run.app, at)
        assert target is not None
        sample = Sample(at, run.app.id, rate, target, run.pair.period, run.pair.slice)
        self.samples.append(sample)
        run.record.see(sample)
        run.began = at
        decision = run.law.report(Iteration(rate, run.pair.utilization, share))
        if decision.pair != run.pair:
            self._set(at, run, decision)
            run.record.change(decision.pair)

    def _set(self, at: float, run: _Run, decision: RateDecision) -> None:
        """Put a pair in force on all nodes of an application."""
        if decision.pair == run.pair:
            return
        on_shared = any(node in self.shared for node in range(run.app.ranks))
        disturbed = [other for other in self.runs if other is run or on_shared]
        for other in disturbed:
            self._settle(at, other)
        if run.pair is not None:
            self._count_switches(at, run)
        run.pair, run.since = decision.pair, at
        run.supplies = []
        for node, phase in enumerate(run.phases):
            slots = Slots(decision.pair, phase, self.scenario.switch_cost)
            if node in self.shared:
                self.shared[node].set(at, run.n, slots)
            run.supplies.append(Share(self.shared[node], run.n) if node in self.shared else slots)
        for other in disturbed:
            self._predict(other)

    def _count_switches(self, at: float, run: _Run) -> None:
        for supply in run.supplies:
            if isinstance(supply, Slots):
                run.record.switched += supply.switched(run.since, at)

    def _settle(self, at: float, run: _Run) -> None:
        if run.pair is None:
            return
        for r, supply in enumerate(run.supplies):
            run.application.settle(at, r, supply, self._factor(run, r))

    def _predict(self, run: _Run) -> None:
        if run.pair is None:
            return
        for r, rank in enumerate(run.application.ranks):
            if not rank.waits:
                self._predict_rank(run, r)

    def _predict_rank(self, run: _Run, r: int) -> None:
        finish, version = run.application.predict(r, run.supplies[r], self._factor(run, r))
        heapq.heappush(self.heap, (finish, FINISH, run.n, r, version))

    def _factor(self, run: _Run, r: int) -> float:
        """Return the work of a CPU second on a node."""
        return run.app.factors[r] * (1.0 - TAKEN * self.amounts[r])
