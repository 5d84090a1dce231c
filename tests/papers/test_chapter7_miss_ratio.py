"""Chapter 7 in small: what estimates that are wrong by up to a factor of ten cost, without and with the controller.

Published (N = 16, τ' = 1, χ' = 100, Avgσ = 200, factors uniform in [0.1, 2]): under heavy load 25 % of the accepted
miss without control, 5 % with it.
"""

import numpy as np
import pytest

from punctual.control.identification import fit
from punctual.scheduling.bound import GAINS, IDENTIFIED, MissRatio
from punctual.sim.jobs import Options, simulate
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

COST = Cost(chi=100.0, tau=1.0)


def run(seed, *, tasks, **how):
    workload = Workload(cost=COST, processors=16, load=1.0, average=200.0, dc_ratio=2.0)
    options = Options(processors=16, cost=COST, offers=False, actual=(0.1, 2.0), seed=seed, **how)
    return simulate(workload.draw(seed=seed, tasks=tasks), options)


class Jumps:
    """In place of the controller: the bound jumps at random between two values, so that its effect shows."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.output, self.before = 0.9, None

    def step(self, error):
        self.before = error
        self.output = float(self.rng.choice([0.4, 0.9]))
        return self.output


def test_the_model_that_the_gains_are_made_from_is_found_again(monkeypatch):
    begin = MissRatio.going_on.__func__

    def jumping(*args, **how):
        made = begin(*args, **how)
        made.loop = Jumps(1)
        return made

    monkeypatch.setattr(MissRatio, "going_on", classmethod(jumping))
    found = run(1, tasks=1500, miss_set_point=0.05, sample_period=50_000.0)
    ratios, bounds = np.array([(p.miss_ratio, p.bound) for p in found.periods[1:-1]]).T
    assert ratios.size > 25
    model = fit(ratios - ratios.mean(), bounds - bounds.mean())
    assert model.a == pytest.approx(IDENTIFIED.a, abs=0.3)
    assert model.b == pytest.approx(IDENTIFIED.b, abs=0.12)
    assert model.r2 > 0.5


def test_with_the_gains_all_settles_where_the_bound_does_up_to_four_times_what_it_does_in_the_model():
    (a,), (b,) = IDENTIFIED.a, IDENTIFIED.b
    for times, most in ((0.25, 0.9), (1.0, 0.5), (2.0, 0.01), (3.9, 0.96)):
        poles = np.roots([1.0, times * b * (GAINS.kp + GAINS.ki) - 1.0 - a, a - times * b * GAINS.kp])
        assert np.abs(poles).max() < most + 1e-9


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
