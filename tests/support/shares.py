"""The shares of the optimal partitioning rule by the paper's closed form, to compare partitions with."""

import numpy as np

from punctual.theory.execution_time import execution_time
from punctual.theory.geometric import partial_sum


def opr_shares(load, n, cost):
    """Return σα_j, j = 1..n, in units: α_j = α_1 β^(j−1) − φ(1 − β^(j−1))/(1 − β), below (4.5)."""
    first, step = (execution_time(load, n, cost) - cost.setup) / cost.per_unit, cost.theta_cm / cost.per_unit
    rest = cost.tau / cost.per_unit  # 1 − β without its cancellation
    return np.array([first * cost.beta**j - step * partial_sum(j, rest) for j in range(n)])
