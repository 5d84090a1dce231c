"""Regimes: which job is accepted, and which cap each gets. Ours, its parts alone, and whole cores."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import floor
from typing import Final

from punctual.control.adaptive import Adaptive
from punctual.control.arbiter import Arbiter, CpuClaim
from punctual.control.follow import Follow, Line
from punctual.control.governor import Governor, Hold, Sample
from punctual.control.model import Model
from punctual.control.pi import Tuned
from punctual.control.tuning import tune
from punctual.control.utilization import Remaining, choose, refusal
from punctual.sim.plants.admitted import Admitted, line_of, remaining_of
from punctual.sim.plants.scenario import PlantJob, Scenario

WARM: Final = 0.95
"""Part of its cap below which a job that uses no more is held up by something else."""
NOISE: Final = 0.05
"""Noise for which a controller of control static is tuned."""


@dataclass(slots=True)
class Ours:
    """Admission by utilization, the most urgent jobs in memory, a governor per job, one arbiter."""

    scenario: Scenario
    _arbiter: Arbiter = field(init=False)

    def __post_init__(self) -> None:
        """Begin with closed loops."""
        self._arbiter = Arbiter(self.scenario.cores, self.scenario.usable)

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job if the bound allows (C1)."""
        made = Admitted(job, now, line_of(job, self.scenario), self.scenario.period)
        made.governor = self._governor(made)
        asked = replace(self._remaining(made), seconds=job.deadline)
        if refusal(asked, map(self._remaining, there), cores=self.scenario.cores, headroom=self.scenario.headroom):
            return None
        return made

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Return what the governors of the jobs in memory wish; under control adaptive an arbiter makes it fit."""
        left = [self._remaining(one) for one in there]
        chosen = choose(left, [one.running for one in there], self.scenario.slots, order=self.scenario.order)
        for one in (there[at] for at in chosen):
            self._start(one)
        if self.scenario.control != "adaptive":
            return {there[at].job.id: wish_of(there[at]) for at in chosen}
        claims = [self._claim(there[at], left[at]) for at in chosen]
        return self._arbiter.share(claims, lend=self.scenario.lend)

    def observe(self, one: Admitted, seen: Sample) -> None:
        """Have the governor learn from it."""
        if not one.running:
            one.line.advance(0.0, seen.dt)
            return
        governor = one.governor
        assert governor is not None
        if isinstance(governor, Hold):
            one.line.advance(seen.units, seen.dt)
        before = governor.model if isinstance(governor, Follow) else None
        governor.observe(seen)
        if isinstance(governor, Adaptive) and governor.untuned is not None:
            governor.adopt(searched(governor.untuned, governor.noise))
        elif isinstance(governor, Follow) and governor.model is not before:
            governor.adopt(governor.model, searched(governor.model, NOISE))

    def _start(self, one: Admitted) -> None:
        """Prepare a job that was not in memory in the last period."""
        if one.running:
            return
        if isinstance(one.governor, Adaptive | Follow):
            one.governor.rest()
        elif self.scenario.control == "open":
            one.governor = self._governor(one)

    def _governor(self, one: Admitted) -> Governor:
        job, period = one.job, self.scenario.period
        low, high = job.cap
        model = None if job.model is None else Model.first_order(job.model.a, job.model.b, delay=job.model.delay)
        if self.scenario.control == "adaptive":
            made = Adaptive(one.line, low, high, model, period)
            if made.untuned is not None:
                made.adopt(searched(made.untuned, made.noise))
            return made
        if self.scenario.control == "none":
            return Hold(max(low, min(1.0, high)))
        if model is None:
            return Hold(high)
        if self.scenario.control == "open":
            return Hold(min(high, max(low, one.reference / model.gain)))
        return Follow(one.line, model, searched(model, NOISE), low, high, period)

    def _remaining(self, one: Admitted) -> Remaining:
        governor, believed = one.governor, one.job.model
        gain = one.measured if believed is None else believed.b / (1.0 - believed.a)
        if isinstance(governor, Adaptive):
            gain = governor.gain
        # A job that waits for its disk gives less per core than its model says.
        gain = None if gain is None else gain * one.use
        return remaining_of(one, gain, self.scenario)

    def _claim(self, one: Admitted, left: Remaining) -> CpuClaim:
        governor = one.governor
        assert isinstance(governor, Adaptive)
        low, high = one.job.cap
        return CpuClaim(
            id=one.job.id,
            wish=governor.wish().cap,
            modelled=governor.modelled,
            low=low,
            high=high,
            slack=left.slack,
            starved=one.use < WARM,
        )


def searched(model: Model, noise: float) -> Tuned:
    """Return the controller for a model and noise that are rounded, so that a few searches serve all jobs."""
    return _searched(round(model.a[0], 2), model.delay, round(noise, 2))


@cache
def _searched(a: float, delay: int, noise: float) -> Tuned:
    return tune(Model.first_order(a, 1.0 - a, delay=delay), noise=noise)


def wish_of(one: Admitted) -> float:
    """Return the cap that a job's governor wishes, cores."""
    assert one.governor is not None
    return one.governor.wish().cap


@dataclass(slots=True)
class Leased:
    """Whole cores by earliest deadline, the paper's other system: it knows the true run times (ch. 8.5)."""

    scenario: Scenario

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job while the utilization of all of them stays within the leased cores."""
        part = self._part(job)
        if part > 1.0 or part + sum(self._part(one.job) for one in there) > self._cores:
            return None
        return Admitted(job, now, Line(job.work, job.deadline), self.scenario.period)

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Give the jobs with the earliest deadlines a core each."""
        by_deadline = sorted(there, key=lambda one: (one.accepted + one.job.deadline, one.job.id))
        places = self._cores if self.scenario.slots is None else min(self._cores, self.scenario.slots)
        return {one.job.id: min(1.0, one.job.cap[1]) for one in by_deadline[:places]}

    def observe(self, one: Admitted, seen: Sample) -> None:
        """Count what is left."""
        one.line.advance(seen.units, seen.dt)

    @property
    def _cores(self) -> int:
        return max(1, floor(self.scenario.usable + 1e-9))

    def _part(self, job: PlantJob) -> float:
        """Return its run time on a core over its deadline."""
        return job.work / (job.gain / self.scenario.period) / job.deadline
