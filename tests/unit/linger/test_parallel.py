"""Parallel guests: what a barrier costs on busy nodes, and how many processes are fastest."""

import numpy as np
import pytest

from punctual.linger.parallel import BurstLoad, phase_time, power_of_two, processes

QUIET = BurstLoad(run=0.0, run_variance=0.0, idle=0.03, idle_variance=0.0009)


def busy(use: float, *, bursty: float = 1.0) -> BurstLoad:
    """A node with idle bursts of 10 ms, exponential, and run bursts with a multiple of an exponential's variance."""
    run = 0.01 * use / (1.0 - use)
    return BurstLoad(run, bursty * run**2, 0.01, 0.01**2)


def test_a_phase_takes_as_long_as_the_host_lets_it():
    """Against a thousand drawn phases: mean and variance."""
    load, work = busy(0.3), 0.5
    rng = np.random.default_rng(1)
    times = []
    for _ in range(1000):
        idle = np.cumsum(rng.exponential(load.idle, 200))
        bursts = int(np.searchsorted(idle, work))
        times.append(work + rng.exponential(load.run, bursts).sum())
    mean, variance = load.phase(work)
    assert mean == pytest.approx(np.mean(times), rel=0.01)
    assert variance == pytest.approx(np.var(times), rel=0.15)


@pytest.mark.parametrize(("most", "power"), [(0, 0), (1, 1), (2, 2), (3, 2), (31, 16), (32, 32)])
def test_power_of_two(most, power):
    assert power_of_two(most) == power


def test_a_barrier_waits_for_the_slowest():
    alone, together = phase_time(0.5, [busy(0.2)]), phase_time(0.5, [busy(0.2)] * 16)
    assert phase_time(0.5, [QUIET] * 16) == 0.5
    assert 0.5 < alone < together
    assert phase_time(0.5, [QUIET] * 15 + [busy(0.2)]) <= together


@pytest.mark.parametrize(
    ("most", "loads", "many", "because"),
    [
        (8, [], 0, "no node"),
        (8, [QUIET] * 8, 8, "all are idle"),
        (8, [QUIET] * 7, 4, "seven nodes have room for four"),
        (6, [QUIET] * 8, 4, "a power of two"),
        (8, [QUIET] * 7 + [busy(0.2)], 8, "one process a fifth slower is better than four processes less"),
        (8, [QUIET] * 4 + [busy(0.8)] * 4, 4, "processes at a fifth of the speed hold the others up"),
        (8, [QUIET] * 4 + [busy(0.2, bursty=2000.0)] * 4, 4, "long bursts make each phase wait"),
    ],
)
def test_as_many_processes_as_are_fastest(most, loads, many, because):
    assert processes(most, 0.5, loads) == many, because
