"""Loads of a trace in the Pool's units, and their true costs, which may differ from the estimates.

The Pool counts whole units, but loads here are real numbers. So a unit is a tiny part of a load: a power of two small
enough that a float holds any load exactly, and large enough for the Pool's integers.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from punctual.scheduling.model.job import Job
from punctual.sim.observations import NAMESPACE
from punctual.sim.options import Options
from punctual.sim.trace import JobLine, Trace
from punctual.theory.cost import Cost

DIGITS = 52
"""Bits of a load: the largest load has as many tiny units as a float can count exactly."""
SECOND = 1.0
"""With tiny units: minimum seconds of work in a chunk, and between two reads of an offer by a worker."""


@dataclass(slots=True)
class Loads:
    """Translates lines into jobs of the Pool, and draws their true costs."""

    options: Options
    scale: float
    """Units of the Pool in a load of 1."""
    rng: np.random.Generator
    true: dict[str, Cost] = field(default_factory=dict)
    """True costs of a load of 1, by job."""
    costs: dict[tuple[str, float], Cost] = field(default_factory=dict)
    """True costs of a unit, by job and speed."""

    @classmethod
    def of(cls, trace: Trace, options: Options) -> "Loads":
        """Choose the unit for a trace."""
        loads = [line.load for line in trace.lines if isinstance(line, JobLine)]
        scale = 1.0 if options.integer_units else 2.0 ** math.floor(DIGITS - math.log2(max([1.0, *loads])))
        return cls(options, scale, np.random.default_rng(options.seed))

    def units(self, load: float) -> int:
        """Return a load in the Pool's units; if the load has whole units, one."""
        return 1 if self.options.integer_units else max(1, round(load * self.scale))

    def job(self, line: JobLine) -> Job:
        """Return the job of a line as the Pool gets it, and draw its true cost."""
        options = self.options
        estimate = replace(
            options.cost,
            **{
                name: given
                for name in ("chi", "tau", "theta_cm", "theta_cp")
                if (given := getattr(line, name)) is not None
            },
        )
        low, high = options.actual
        slow_tau, slow_chi = self.rng.uniform(low, high, 2).tolist() if low < high else (low, low)
        self.true[line.id] = replace(estimate, tau=estimate.tau * slow_tau, chi=estimate.chi * slow_chi)
        return Job(
            uid=line.id,
            namespace=NAMESPACE,
            name=line.id,
            arrival=line.arrival,
            units=max(1, round(line.load * self.scale)),
            deadline=line.arrival + line.deadline,
            cost=replace(estimate, tau=estimate.tau / self.scale, chi=estimate.chi / self.scale),
            least_chunk=self.units(max(estimate.setup, SECOND) / estimate.per_unit),
            restart=options.restart,
            chunk_retries=2**31,
            stall_timeout=math.inf,
        )

    def true_cost(self, uid: str, p: int) -> Cost:
        """Return the true cost of a unit of the Pool on a processor."""
        speed = self.options.speeds[p] if self.options.speeds else 1.0
        if (known := self.costs.get((uid, speed))) is not None:
            return known
        cost = self.true[uid]
        made = self.costs[uid, speed] = replace(cost, chi=cost.chi * speed / self.scale, tau=cost.tau / self.scale)
        return made
