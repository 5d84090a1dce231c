"""What of a job asks for processors, and why it could not get them."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.ranges import Ranges
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What of a job is still to be placed."""

    order: Order
    ranges: Ranges
    """Units that no chunk owns."""
    cost: Cost
    """With headroom."""
    due: float
    """Chunks must end by then: the deadline less margin and reduce."""
    kept_back: float = 0.0
    """Seconds between that and the deadline."""
    least: int = 1
    most: int | None = None
    least_chunk: int = 1
    """Units of the least chunk that is worth its set-up."""
    not_before: float = 0.0
    """No chunk may start earlier: processors.max is used up by running ones until then, or its pods are refused."""
    full_until: float = 0.0
    """Until then processors.max is used up by its running chunks: only where they are booked may others follow them."""
    running_until: float = 0.0
    """Latest expected end of its running chunks: the reduce step waits for it."""
    reduce: float = 0.0
    """Seconds of the reduce step, set-up included; 0: none."""
    inside: int | None = None
    """Number of the reservation inside of which it is to be; None: it is to be outside of all."""
    work: float = field(init=False, compare=False)
    """Processor seconds it takes at least."""
    late: float = field(init=False, compare=False)
    """The edge: a cut that ends later than this is late."""
    surely_late: float = field(init=False, compare=False)
    """One tolerance behind the edge: a look before the cut may refuse what would end later than this, nothing else.

    It sums the same times in another order: at the edge itself it would refuse by an ulp what the cut has in time.
    """

    def __post_init__(self) -> None:
        """Count its work, and find the edge, once: all that wait are asked for both at every question."""
        object.__setattr__(self, "work", self.ranges.total * self.cost.per_unit)
        object.__setattr__(self, "late", self.due + tolerance(self.due))
        object.__setattr__(self, "surely_late", self.due + 2.0 * tolerance(self.due))

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.order.uid

    def begun(self, owned: Ranges, chunks: int, until: float) -> "Demand":
        """Return what is still to be placed when so many chunks own these units, ``until`` the last of them ends."""
        most, full_until = self.most, self.full_until
        if most is not None and most > chunks:
            most -= chunks
        elif most is not None:
            full_until = max(full_until, until)
        left = self.ranges - owned
        return replace(self, ranges=left, least=1, most=most, full_until=full_until, running_until=until)

    def anew(self) -> "Demand":
        """Return what is to be placed on whatever processors."""
        if self.full_until <= self.not_before:
            return self
        return replace(self, not_before=self.full_until, full_until=0.0)


class Shortfall(NamedTuple):
    """Why a demand could not be placed: the arithmetic of a rejection."""

    uid: str
    units: int
    fit: int
    """Units that all processors together finish by the due time."""
    needed: int | None
    """Processors that would do if all were free now; None: no number would."""
    processors: int
    usable: int
    """Processors that become ready early enough to finish at least one unit."""
    first_ready: float
    placements: int = 1
    """Placements it took to find out."""
