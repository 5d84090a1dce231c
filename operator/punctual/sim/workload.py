"""The paper's workload: jobs that arrive at random (Mamat 2011, ch. 4, "Simulation Modeling").

Interarrival times are exponential with mean 1/λ, where SystemLoad = E(Avgσ, 1)·λ/N. Loads are normal with mean and
standard deviation Avgσ. Deadlines are uniform in [AvgD/2, 3AvgD/2] with AvgD = DCRatio·E(Avgσ, N), and longer than E(σ,
N). A load that is not positive, or for which the range has no such deadline, is drawn again. So the mean load becomes
about 1.2 Avgσ, and the offered load exceeds SystemLoad by the same factor. E(·, N) is (4.6) also if N is more than n*.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np

from punctual.sim.trace import JobLine, Trace
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time

RARE = 1e-3
"""Minimum part of the mean load that must have a deadline: otherwise only one in thousands of draws would be valid."""
LEAST, MOST = 1e-6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Parameters that the paper's figures vary. ``cost`` and ``processors`` are the pool's, ``load`` its SystemLoad."""

    cost: Cost
    processors: int
    load: float
    average: float
    """Avgσ, units."""
    dc_ratio: float

    def __post_init__(self) -> None:
        for name in ("processors", "load", "average", "dc_ratio"):
            if not LEAST <= getattr(self, name) <= MOST:
                raise ValueError(f"{name} must be from {LEAST} to {MOST}, not {getattr(self, name)}")
        if 1.5 * self.dc_ratio * self._alone < execution_time(RARE * self.average, self.processors, self.cost):
            raise ValueError("dc_ratio is so small that no deadline can be met, however small the load")

    @property
    def _alone(self) -> float:
        """E(Avgσ, N): time of an average job alone on all processors."""
        return execution_time(self.average, self.processors, self.cost)

    @property
    def rate(self) -> float:
        """λ, jobs per second."""
        return self.load * self.processors / execution_time(self.average, 1, self.cost)

    def draw(self, *, seed: int, tasks: int | None = None, horizon: float | None = None) -> Trace:
        """Draw ``tasks`` jobs, or those that arrive before ``horizon`` (s); the same seed gives the same jobs."""
        if tasks is None and horizon is None:
            raise ValueError("tasks or horizon is needed: the workload has no end of its own")
        rng = np.random.default_rng(seed)
        arrival, lines = 0.0, []
        for n in count() if tasks is None else range(tasks):
            arrival += float(rng.exponential(1.0 / self.rate))
            if horizon is not None and arrival >= horizon:
                break
            load, deadline = self._draw_one(rng)
            lines.append(JobLine(id=f"j{n + 1}", arrival=arrival, load=load, deadline=deadline))
        return Trace.of(lines)

    def _draw_one(self, rng: np.random.Generator) -> tuple[float, float]:
        middle = self.dc_ratio * self._alone
        while True:
            load = float(rng.normal(self.average, self.average))
            if load <= 0:
                continue
            least = execution_time(load, self.processors, self.cost)
            if least < 1.5 * middle:
                # Equals drawing from the whole range until the value exceeds ``least``.
                return load, float(rng.uniform(max(least, middle / 2), 1.5 * middle))
