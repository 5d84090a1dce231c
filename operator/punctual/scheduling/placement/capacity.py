"""Capacity for one demand: the units that the first 1, 2, … processors could finish in time.

It bounds the search for the number of processors, with and without blackouts, and gives the arithmetic of a refusal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.placement.demand import Demand, Shortfall


class Capacity(NamedTuple):
    """Units by number of processors, in the order in which they can begin; those that could not do one are left out."""

    total: NDArray[np.float64] | NDArray[np.int64]

    @property
    def usable(self) -> int:
        """Number of processors that could do a unit in time."""
        return self.total.size

    def numbers(self, demand: Demand) -> tuple[int, int]:
        """Return the least number of processors that could be enough, and the most that the demand may have."""
        could, most = 1 + int(self.total.searchsorted(demand.ranges.total)), self._most(demand)
        return max(demand.least, min(demand.as_before, most), could), most

    def _most(self, demand: Demand) -> int:
        return min(self.usable, demand.most or self.usable)

    def shortfall(self, demand: Demand, *, processors: int, first: float) -> Shortfall:
        """Return why the demand cannot be in time; ``first``: when the first processor can begin; inf: none can."""
        cost, units, most = demand.cost, demand.ranges.total, self._most(demand)
        alone = int((demand.due - cost.setup - first) / cost.per_unit * (1 + 1e-12)) if first < demand.due else 0
        return Shortfall(
            uid=demand.uid,
            units=units,
            fit=int(self.total[most - 1]) if most > 0 else 0,
            needed=max(demand.least, -(-units // alone)) if alone > 0 else None,
            processors=processors,
            usable=self.usable,
            first_ready=first if first < np.inf else demand.due,
        )


def impossible(demand: Demand, processors: int) -> Shortfall | None:
    """Return why the demand can be placed on no processors, whenever they are free.

    Its reduce step cannot begin in time behind the job's running chunks, or it has fewer units than chunks that must
    begin at one time.
    """
    units = demand.ranges.total
    if demand.reduce and demand.running_until > demand.late:
        return Shortfall(demand.uid, units, 0, None, processors, 0, demand.running_until)
    if 0 < units < demand.least:
        return Shortfall(demand.uid, units, 0, None, processors, 0, demand.due)
    return None
