"""An accepted job as its regime knows it, and what a regime decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from punctual.control.adaptive import Adaptive
from punctual.control.follow import Follow, Line
from punctual.control.governor import Governor, Sample
from punctual.control.utilization import Remaining
from punctual.sim.plants.scenario import PlantJob, Scenario

SPARE: Final = 0.02
"""Part of a job's time by which its line ends before its deadline: a line that ends there is missed by noise."""
PERIODS: Final = 3.0
"""The same in periods, if that is more."""
MEASURED: Final = 20
"""Periods in memory from which on a job without a model counts by what they showed."""


@dataclass(slots=True)
class Admitted:
    """An accepted job as its regime knows it."""

    job: PlantJob
    accepted: float
    """Seconds from 0."""
    line: Line
    period: float
    governor: Governor | None = None
    running: bool = False
    """It is in memory."""
    use: float = 1.0
    """Part of its cap that it used lately."""
    periods: int = 0
    units: float = 0.0
    cores: float = 0.0
    """Periods in memory, and their progress and CPU (core periods)."""

    @property
    def reference(self) -> float:
        """Progress of a period on its line, units."""
        if isinstance(self.governor, Adaptive | Follow) and self.governor.reference > 0.0:
            return self.governor.reference
        return max(0.0, self.line.units) / max(self.line.seconds / self.period, 1.0)

    @property
    def measured(self) -> float | None:
        """Units per core and period so far; None: there are not enough periods."""
        return self.units / self.cores if self.periods >= MEASURED and self.cores > 0.0 else None

    def count(self, seen: Sample) -> None:
        """Count a period in memory."""
        self.periods += 1
        self.units += seen.units
        self.cores += seen.cores


class Regime(Protocol):
    """Decides admission and caps. All times in s from 0."""

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job, or refuse it with None."""

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Return the caps of the jobs that run in the next period, cores."""

    def observe(self, one: Admitted, seen: Sample) -> None:
        """Take what a job did in a period."""


def line_of(job: PlantJob, scenario: Scenario) -> Line:
    """Return the line of a job that is accepted now."""
    spare = max(PERIODS * scenario.period, SPARE * job.deadline) if scenario.lines == "early" else 0.0
    return Line(job.work, job.deadline - spare)


def remaining_of(one: Admitted, gain: float | None, scenario: Scenario) -> Remaining:
    """Return what is left of a job; ``gain``: units per core and period, None: unknown.

    A job without a gain counts as one core, or as all that is promised of a smaller node: else that accepts none.
    """
    most = one.job.cap[1] if gain is not None else min(1.0, one.job.cap[1], scenario.usable)
    return Remaining(one.line.units, one.line.seconds, None if gain is None else gain / scenario.period, most)
