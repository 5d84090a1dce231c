"""Chapter 7 in small: what estimates that are wrong by up to a factor of ten cost, without and with the controller.

Published (N = 16, τ' = 1, χ' = 100, Avgσ = 200, factors uniform in [0.1, 2]): under heavy load 25 % of the accepted
miss without control, 5 % with it. Long runs are those of `figures.letter7`, which decides as the Pool does;
``make nightly`` has the Pool make one too.
"""

import os
from statistics import median

import numpy as np
import pytest
from figures.letter7 import LETTER, OURS, READ, Cluster, at_miss_ratio, factors

from punctual.control.miss_ratio import GAINS, HIGH, IDENTIFIED, LOW
from punctual.control.pi import PI
from punctual.sim.loads import SECOND
from punctual.sim.options import Options
from punctual.sim.plants.identification import fit
from punctual.sim.run import simulate
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
COST = Cost(chi=100.0, tau=1.0)


WORKLOAD = Workload(cost=COST, processors=16, load=1.0, average=200.0, dc_ratio=2.0)


def pool(seed, *, tasks, **how):
    options = Options(processors=16, cost=COST, offers=False, actual=(0.1, 2.0), seed=seed, **how)
    return simulate(WORKLOAD.draw(seed=seed, tasks=tasks), options)


def reference(seed, *, tasks, reading=OURS, **how):
    cluster = Cluster(reading, COST, 16, **how)
    return cluster, cluster.run(WORKLOAD.draw(seed=seed, tasks=tasks), factors(seed, tasks))


@pytest.mark.parametrize("bound", [0.5, 1.0])
def test_the_reference_decides_as_the_pool_does(bound):
    found, (cluster, metrics) = pool(1, tasks=60, bound=bound), reference(1, tasks=60, bound=bound)
    assert cluster.fates == {job.id: job.met for job in found.jobs}
    assert metrics["rejected"] == found.metrics()["reject_ratio"]
    assert metrics["utilization"] == pytest.approx(found.metrics()["utilization"], rel=1e-9)


def test_no_chunk_is_what_truncation_has_left_of_a_load():
    found = pool(1, tasks=60, bound=0.9)
    assert min(chunk.load for chunk in found.chunks) >= SECOND / COST.per_unit


def test_where_as_many_miss_short_chunks_use_more_than_algorithm_12_to_the_letter():
    """The span of the seeds is 5 points, so that each is compared with itself."""

    def used(reading, seed):
        return at_miss_ratio(reading, WORKLOAD, seed, 2.5e5)[1]

    seeds = range(1, 6)
    ours = [used(OURS, seed) for seed in seeds]
    assert median(a - used(LETTER, seed) for a, seed in zip(ours, seeds, strict=True)) > 0.03
    assert median(a - used(READ, seed) for a, seed in zip(ours, seeds, strict=True)) > 0.03, "with m = 2"


class Jumps:
    """In place of the controller: the bound jumps at random between two values, so that its effect shows."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.output, self.before = 0.9, None

    def step(self, error):
        self.before = error
        self.output = float(self.rng.choice([0.4, 0.9]))
        return self.output


def test_the_model_that_the_gains_are_made_from_is_found_again():
    cluster, _ = reference(1, tasks=3000, loop=Jumps(1), bound=0.9)
    ratios, bounds = np.array(cluster.samples[1:-1]).T
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
    missed = [reference(seed, tasks=1000, bound=1.0)[1]["missed"] for seed in (1, 2, 3)]
    assert 0.12 < np.mean(missed) < 0.3


def test_with_control_the_miss_ratio_settles_at_its_set_point():
    loop = PI(GAINS, output=1.0, low=LOW, high=HIGH)
    cluster, _ = reference(1, tasks=3000, loop=loop)
    settled = [ratio for ratio, _ in cluster.samples[len(cluster.samples) // 2 :]]
    assert len(settled) > 15
    assert np.mean(settled) == pytest.approx(0.05, abs=0.025)
    assert all(0.0 < bound < 1.5 for _, bound in cluster.samples)


def test_the_pool_moves_its_bound_each_period():
    found = pool(1, tasks=150, miss_set_point=0.05, sample_period=50_000.0)
    assert len(found.periods) > 2
    assert all(0.0 < period.bound < 1.5 for period in found.periods)
    assert found.periods[-1].bound < 1.0, "more than 5 % miss at 1"
    assert sum(period.utilization for period in found.periods) > 0


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: make nightly")
@pytest.mark.timeout(3600)
def test_with_the_pools_own_controller_the_miss_ratio_settles_at_its_set_point():
    found = pool(1, tasks=1600, miss_set_point=0.05, sample_period=50_000.0)
    settled = [period.miss_ratio for period in found.periods[len(found.periods) // 2 :]]
    assert len(settled) > 15
    assert np.mean(settled) == pytest.approx(0.05, abs=0.025)
    assert all(0.0 < period.bound < 1.5 for period in found.periods)
    assert sum(period.utilization for period in found.periods) > 0
