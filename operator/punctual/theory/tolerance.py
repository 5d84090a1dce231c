"""Tolerance of sums of times: the one that admission and placement use."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PART = 2.0**-40


def tolerance(at: float) -> float:
    """Return the seconds by which two sums of the same times may differ: 1.6 ms on a clock that counts from 1970.

    This equals the rounding of one unit if a load on thousands of processors is divided into as many units as a float
    can count. A test that sums in another order is off by thousands of times less. So a partition may end one tolerance
    after the due time (`Demand.late`). A test before partitioning refuses only demands that end two tolerances after it
    (`Demand.surely_late`), and accepts only demands that end by it (the sufficient test). In between, the partition
    decides.
    """
    return max(1.0, abs(at)) * _PART


def tolerances(at: Floats) -> Floats:
    """Return the tolerances of many times; 0 for an infinite one."""
    return np.where(np.isinf(at), 0.0, np.maximum(1.0, np.abs(at)) * _PART)
