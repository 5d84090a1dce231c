"""Chapter 7 in small: what estimates that are wrong by up to a factor of ten cost, without and with the controller.

Published (N = 16, τ' = 1, χ' = 100, Avgσ = 200, factors uniform in [0.1, 2]): under heavy load 25 % of the accepted
miss without control, 5 % with it.
"""

import numpy as np
import pytest

from punctual.sim.jobs import Options, simulate
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

COST = Cost(chi=100.0, tau=1.0)


def run(seed, *, tasks, **how):
    workload = Workload(cost=COST, processors=16, load=1.0, average=200.0, dc_ratio=2.0)
    options = Options(processors=16, cost=COST, offers=False, actual=(0.1, 2.0), seed=seed, **how)
    return simulate(workload.draw(seed=seed, tasks=tasks), options)


def test_without_control_a_fifth_of_the_accepted_miss():
    missed = [run(seed, tasks=300, bound=1.0).metrics()["miss_ratio"] for seed in (1, 2, 3)]
    assert 0.12 < np.mean(missed) < 0.3


def test_with_control_the_miss_ratio_settles_at_its_set_point():
    found = run(1, tasks=1600, miss_set_point=0.05, sample_period=50_000.0)
    settled = [period.miss_ratio for period in found.periods[len(found.periods) // 2 :]]
    assert len(settled) > 15
    assert np.mean(settled) == pytest.approx(0.05, abs=0.025)
    assert all(0.0 < period.bound < 1.5 for period in found.periods)
    assert sum(period.utilization for period in found.periods) > 0
