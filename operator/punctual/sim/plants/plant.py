"""The true behaviour of one job: what its CPU makes of its progress. Controllers do not see into it."""

import random
from collections import deque
from dataclasses import dataclass, field

from punctual.sim.plants.scenario import PlantJob


@dataclass(slots=True)
class Plant:
    """One job's process, stepped once per period."""

    job: PlantJob
    seed: int
    expected: float = 0.0
    """Progress of the last period without any noise, under the caps that were in force."""
    measured: float = 0.0
    """Progress of the last period, units."""
    done: float = 0.0
    _caps: deque[float] = field(init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Begin at rest, with random numbers of its own: a change of one job leaves the others as they were."""
        self._caps = deque([0.0] * self.job.delay, maxlen=self.job.delay)
        self._random = random.Random(f"{self.seed}/{self.job.id}")  # noqa: S311  a simulation

    def would(self, now: float, cap: float) -> float:
        """Return the progress that the period from ``now`` would have without noise and with enough disk, units."""
        return self.job.a * self.measured + self.job.b * self._acting(cap) * self.factor(now)

    def step(self, now: float, cap: float, scale: float) -> None:
        """Run the period from ``now``, with a cap (cores) and the part of its progress for which the disk suffices."""
        drive = self.job.b * self._acting(cap) * self.factor(now)
        before = self.job.a * self.measured + drive
        self._caps.append(cap)
        self.expected = scale * (self.job.a * self.expected + drive)
        noise = self.job.noise * before * self._random.gauss(0.0, 1.0)
        self.measured = scale * max(0.0, before + noise)
        self.done += self.measured

    def suspend(self) -> None:
        """Leave memory: it begins at rest again."""
        self.expected = self.measured = 0.0
        self._caps.extend([0.0] * self.job.delay)

    def factor(self, now: float) -> float:
        """Return the product of the disturbances in force."""
        found = 1.0
        for one in self.job.disturbances:
            if one.at <= now and (one.until is None or now < one.until):
                found *= one.factor
        return found

    def _acting(self, cap: float) -> float:
        """Return the cap that acts in this period if ``cap`` is the newest one."""
        return self._caps[0] if self._caps else cap
