"""Rounds real shares to whole units.

The cumulative sums are rounded, not the shares. Each cut then moves by at most half a unit and each share by less than
one, so the common finish moves by less than one unit's τ + χ. This also holds with one port, where a processor waits
for all before it. Rounding the shares themselves (largest remainder) adds their errors up along the port. Deadlines
must be tested after this rounding.
"""

import numpy as np
from numpy.typing import NDArray


def cut_points(shares: NDArray[np.float64], units: int) -> NDArray[np.int64]:
    """Return the N + 1 places at which to cut [0, ``units``): processor j gets [cuts[j], cuts[j + 1]).

    ``shares`` are scaled to ``units`` first. The first cut is 0, the last ``units``. A share of 0 is an empty range; a
    share below one unit may be empty, too.
    """
    sums = shares.cumsum()
    if units < 0 or not shares.size or not sums[-1] > 0.0:
        raise ValueError(f"cannot cut {units} units by {shares.size} shares with the sum {shares.sum()}")
    sums *= units / sums[-1]
    sums += 0.5
    cuts = np.zeros(shares.size + 1, dtype=np.int64)
    # Halves are always rounded up: rounding to even turns 0.5 and 1.5 into 0 and 2, a whole unit more.
    np.floor(sums, out=cuts[1:], casting="unsafe")
    np.minimum(cuts, units, out=cuts)  # for 10^15 units, a scaled sum may be one too high
    cuts[-1] = units
    return cuts
