"""Regimes: which job is accepted, and which cap each gets. Ours, and those that the paper compares."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Protocol

from punctual.control.adaptive import Adaptive
from punctual.control.arbiter import Arbiter, Claim
from punctual.control.follow import Follow, Line
from punctual.control.governor import Governor, Hold, Sample
from punctual.control.model import Model
from punctual.control.pi import Tuned
from punctual.control.tuning import tune
from punctual.control.utilization import Remaining, choose, test
from punctual.sim.plants.scenario import PlantJob, Scenario

SPARE: float = 0.02
"""Part of a job's time by which its line ends before its deadline: a line that ends there is missed by noise."""
PERIODS: float = 3.0
"""The same in periods, if that is more."""
WARM: float = 0.9
"""Part of its cap below which a job that uses no more is held up by something else."""


@dataclass(slots=True)
class Admitted:
    """An accepted job as its regime knows it."""

    job: PlantJob
    accepted: float
    """Seconds from 0."""
    line: Line
    governor: Governor | None = None
    cap: float = 0.0
    """In the period that has begun; 0: it is not in memory."""
    running: bool = False
    use: float = 1.0
    """Part of its cap that it used lately."""

    @property
    def reference(self) -> float:
        """Progress of a period on its line, units."""
        if isinstance(self.governor, Adaptive | Follow) and self.governor.reference > 0.0:
            return self.governor.reference
        return 0.0


class Regime(Protocol):
    """Decides admission and caps. All times in s from 0."""

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job, or refuse it with None."""

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Return the caps of the jobs that run in the next period, cores."""

    def take(self, one: Admitted, seen: Sample) -> None:
        """Take what a job did in a period."""


def line_of(job: PlantJob, period: float) -> Line:
    """Return the line of a job that is accepted now."""
    return Line(job.work, job.deadline - max(PERIODS * period, SPARE * job.deadline))


@dataclass(slots=True)
class Ours:
    """Admission by utilization, the most urgent jobs in memory, a governor per job, one arbiter."""

    scenario: Scenario
    _arbiter: Arbiter = field(init=False)
    _tuned: dict[tuple[float, int, float], Tuned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with closed loops."""
        self._arbiter = Arbiter(self.scenario.cores, self.scenario.usable)

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job if the bound allows (C1)."""
        made = Admitted(job, now, line_of(job, self.scenario.period))
        made.governor = self._governor(made)
        asked = replace(self._remaining(made), seconds=job.deadline)
        if test(asked, map(self._remaining, there), cores=self.scenario.cores, headroom=self.scenario.headroom):
            return None
        return made

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Give each job in memory what it needs; lend the rest while others wait."""
        left = [self._remaining(one) for one in there]
        chosen = choose(left, [one.running for one in there], self.scenario.slots)
        claims = [self._claim(there[at], left[at]) for at in chosen]
        return self._arbiter.share(claims, lend=self.scenario.lends)

    def take(self, one: Admitted, seen: Sample) -> None:
        """Have the governor learn from it."""
        if not one.running:
            one.line.advance(0.0, seen.dt)
            return
        governor = one.governor
        assert governor is not None
        if isinstance(governor, Hold):
            one.line.advance(seen.units, seen.dt)
        governor.take(seen)
        if isinstance(governor, Adaptive) and governor.untuned is not None:
            governor.adopt(self._tune(governor.untuned, governor.noise))

    def _governor(self, one: Admitted) -> Governor:
        job, period = one.job, self.scenario.period
        low, high = job.cap
        model = None if job.model is None else Model.first_order(job.model.a, job.model.b, delay=job.model.delay)
        if self.scenario.control == "adaptive":
            made = Adaptive(one.line, low, high, model, period)
            if made.untuned is not None:
                made.adopt(self._tune(made.untuned, made.noise))
            return made
        if self.scenario.control == "none" or model is None:
            return Hold(high)
        if self.scenario.control == "open":
            return Hold(min(high, max(low, one.line.units / one.line.seconds * period / model.gain)))
        return Follow(one.line, model, self._tune(model, 0.05), low, high, period)

    def _tune(self, model: Model, noise: float) -> Tuned:
        key = round(model.a[0], 2), model.delay, round(noise, 2)
        if key not in self._tuned:
            self._tuned[key] = tune(Model.first_order(key[0], 1.0 - key[0], delay=key[1]), noise=key[2])
        return self._tuned[key]

    def _remaining(self, one: Admitted) -> Remaining:
        governor, believed = one.governor, one.job.model
        gain = None if believed is None else believed.b / (1.0 - believed.a)
        if isinstance(governor, Adaptive):
            gain = governor.gain
        # A job that waits for its disk gives less per core than its model says.
        gain = None if gain is None else gain * one.use
        return Remaining(
            one.line.units, one.line.seconds, None if gain is None else gain / self.scenario.period, one.job.cap[1]
        )

    def _claim(self, one: Admitted, left: Remaining) -> Claim:
        governor = one.governor
        assert governor is not None
        if not one.running and isinstance(governor, Adaptive | Follow):
            governor.rest()
        wish = governor.wish().cap
        modelled = governor.modelled if isinstance(governor, Adaptive | Follow) else wish
        low, high = one.job.cap
        return Claim(
            id=one.job.id,
            wish=wish,
            modelled=modelled,
            low=low,
            high=high,
            slack=left.slack,
            starved=one.use < WARM,
        )


@dataclass(slots=True)
class Leased:
    """Whole cores by earliest deadline, the paper's other system: it knows the true run times (ch. 8.5)."""

    scenario: Scenario

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job while the utilization of all of them stays within the leased cores."""
        asked = sum(self._part(one.job) for one in (*there, Admitted(job, now, Line(0.0, 0.0))))
        if self._part(job) > 1.0 or asked > self._cores:
            return None
        return Admitted(job, now, line_of(job, self.scenario.period))

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Give the jobs with the earliest deadlines a core each."""
        by_deadline = sorted(there, key=lambda one: (one.accepted + one.job.deadline, one.job.id))
        return {one.job.id: min(1.0, one.job.cap[1]) for one in by_deadline[: self._cores]}

    def take(self, one: Admitted, seen: Sample) -> None:
        """Count what is left."""
        one.line.advance(seen.units, seen.dt)

    @property
    def _cores(self) -> int:
        return max(1, floor(self.scenario.usable + 1e-9))

    def _part(self, job: PlantJob) -> float:
        """Return its run time on a core over its deadline."""
        return job.work / (job.gain / self.scenario.period) / job.deadline
