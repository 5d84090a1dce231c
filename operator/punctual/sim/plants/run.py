"""Runs the jobs of a scenario, period by period: which ask and are accepted, what each gets and makes of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from punctual.control.governor import Sample
from punctual.sim.plants.admitted import Admitted, Regime
from punctual.sim.plants.plant import Plant
from punctual.sim.plants.published import Published
from punctual.sim.plants.regimes import Leased, Ours
from punctual.sim.plants.report import Ended, Result, Row
from punctual.sim.plants.scenario import PlantJob, Scenario

RECENT: Final = 0.2
"""Weight of a period in the part of its cap that a job uses."""
GIVEN_UP: Final = 20.0
"""A job that has not ended after this many times its deadline never will."""


@dataclass(slots=True)
class _Asking:
    """A job that is not accepted yet."""

    job: PlantJob
    next: float
    """When it asks, s."""


@dataclass(slots=True)
class _Run:
    scenario: Scenario
    regime: Regime
    seed: int
    result: Result
    asking: list[_Asking]
    there: list[Admitted] = field(default_factory=list)
    plants: dict[str, Plant] = field(default_factory=dict)

    def period(self, now: float) -> None:
        """Run one period."""
        self._ask(now)
        waiting = any(one.next > now and one.job.arrival <= now for one in self.asking)
        caps = self._contended(self.regime.share(self.there))
        end = now + self.scenario.period
        scale = self._disk(now, caps)
        given = 0.0
        for one in list(self.there):
            name = one.job.id
            plant = self.plants[name]
            cap = caps.get(name)
            was = one.running
            one.running = cap is not None
            if cap is None:
                if was:
                    plant.suspend()
                self.regime.observe(one, Sample(self.scenario.period, 0.0, 0.0, 0.0))
                continue
            self.result.rows.append(Row(now, name, plant.measured, one.reference, cap))
            part = scale if one.job.io > 0.0 else 1.0
            plant.step(now, cap, part)
            one.use += RECENT * (part - one.use)
            given += min(cap, plant.expected / one.job.gain)
            self.result.judge(one, plant.expected)
            seen = Sample(self.scenario.period, plant.measured, cap * part, cap)
            one.count(seen)
            self.regime.observe(one, seen)
            if plant.done >= one.job.work * (1.0 - 1e-12):
                self._end(one, end, plant)
        self.result.count(given, self.there, waiting=waiting)

    def _ask(self, now: float) -> None:
        """Have each job ask that is due to ask, in the order of arrivals."""
        for one in list(self.asking):
            if one.next > now + 1e-9:
                continue
            made = self.regime.admit(now, one.job, self.there)
            if made is not None:
                self.asking.remove(one)
                self.there.append(made)
                self.plants[one.job.id] = Plant(one.job, self.seed)
                continue
            again = self.scenario.resubmit
            over = again is None or now + again > one.job.arrival + one.job.deadline
            if over:
                self.asking.remove(one)
                self.result.ended[one.job.id] = Ended(one.job.id, accepted=False)
            else:
                one.next = now + (again or 0.0)

    def _contended(self, caps: dict[str, float]) -> dict[str, float]:
        """Return the CPU that caps give: in proportion where they add up to more than there is."""
        asked = sum(caps.values())
        if asked <= self.scenario.cores:
            return caps
        return {name: cap * self.scenario.cores / asked for name, cap in caps.items()}

    def _disk(self, now: float, caps: dict[str, float]) -> float:
        """Return the part of the progress for which the disk suffices."""
        if self.scenario.disk is None:
            return 1.0
        plants = ((self.plants[name], cap) for name, cap in caps.items())
        wanted = sum(plant.job.io * plant.would(now, cap) for plant, cap in plants if plant.job.io > 0.0)
        return min(1.0, self.scenario.disk.capacity / wanted) if wanted > 0.0 else 1.0

    def _end(self, one: Admitted, end: float, plant: Plant) -> None:
        """Account a job that ended within the period that ends at ``end``."""
        beyond = (plant.done - one.job.work) / plant.measured if plant.measured > 0.0 else 0.0
        finish = end - beyond * self.scenario.period
        self.result.rows.append(Row(end, one.job.id, plant.measured, one.reference, 0.0))
        self.result.end(one, finish)
        self.there.remove(one)
        del self.plants[one.job.id]


def _regime(scenario: Scenario, seed: int) -> Regime:
    """Return the regime that a scenario names."""
    if scenario.control == "edf-cores":
        return Leased(scenario)
    return Published(scenario, seed) if scenario.control == "published" else Ours(scenario)


def simulate(scenario: Scenario, *, seed: int = 0, tell: Callable[[int], None] = lambda _: None) -> Result:
    """Run a scenario to its end; ``tell`` is called with the number of jobs that have ended."""
    result = Result(scenario)
    regime = _regime(scenario, seed)
    asking = [_Asking(job, job.arrival) for job in sorted(scenario.jobs, key=lambda job: job.arrival)]
    run = _Run(scenario, regime, seed, result, asking)
    last = max(job.arrival + GIVEN_UP * job.deadline for job in scenario.jobs)
    k, told = 0, -1
    while (run.asking or run.there) and k * scenario.period < last:
        run.period(k * scenario.period)
        k += 1
        if len(result.ended) != told:
            told = len(result.ended)
            tell(told)
    for one in run.there:
        result.end(one, None)
    for waiting in run.asking:
        result.ended[waiting.job.id] = Ended(waiting.job.id, accepted=False)
    return result
