"""Options of a simulation: the pool, the processors, and how they differ from what the pool is told."""

from dataclasses import dataclass, field

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import Restart
from punctual.scheduling.model.pool_spec import Admission, PoolSpec
from punctual.theory.cost import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The simulated pool. ``speeds``: factor of χ per processor; None: all are equal."""

    processors: int = 16
    cost: Cost = field(default_factory=lambda: Cost(chi=100.0, tau=1.0))
    speeds: tuple[float, ...] | None = None
    discipline: Discipline = field(default_factory=lambda: Discipline(network="OnePort"))
    admission: Admission = "Exact"
    threshold: int = 300
    """Hybrid: number of waiting jobs from which the fast test decides."""
    bound: float | None = None
    miss_set_point: float | None = None
    sample_period: float = 100_000.0
    headroom: float = 0.0
    margin: float = 0.0
    restart: Restart = "Redo"
    actual: tuple[float, float] = (1.0, 1.0)
    """Range of the factors on estimated costs: one for τ and one for χ, per job."""
    silent_faults: bool = False
    """Whether faults are hidden from the Pool: chunks on the processors concerned never end (Mamat 2011, 7.3.2)."""
    offers: bool = True
    """Whether the earliest deadline is searched for refused jobs."""
    integer_units: bool = False
    seed: int = 0

    @property
    def spec(self) -> PoolSpec:
        """The pool's spec for the core."""
        return PoolSpec(
            name="simulated",
            cpu=1.0,
            headroom=self.headroom,
            margin=self.margin,
            discipline=self.discipline,
            admission=self.admission,
            threshold=self.threshold,
            bound=self.bound,
            miss_set_point=self.miss_set_point,
            sample_period=self.sample_period,
        )
