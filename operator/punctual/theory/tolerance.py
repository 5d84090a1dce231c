"""By how much two sums of the same times may differ: the one tolerance that admission and placement use."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PART = 2.0**-40


def tolerance(at: float) -> float:
    """Return by how many seconds two sums of the same times may differ: 1.6 ms on a clock that counts from 1970.

    This is what one unit's rounding amounts to where a load on thousands of processors is cut into as many units as a
    float counts. A test that sums in another order is off by thousands of times less. So a cut may end one tolerance
    after the due time (`Demand.late`). A test before the cut refuses only what ends two tolerances after it
    (`Demand.surely_late`), and accepts only what ends by it (the sufficient test). Between these the cut decides.
    """
    return max(1.0, abs(at)) * _PART


def tolerances(at: Floats) -> Floats:
    """Return the same of many times; 0 where one is infinite."""
    return np.where(np.isinf(at), 0.0, np.maximum(1.0, np.abs(at)) * _PART)
