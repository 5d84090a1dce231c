"""Mamat 2011, ch. 4: its formulas as printed, against ours, and the numbers it gives."""

from itertools import pairwise
from math import ceil, log, sqrt

import numpy as np
import pytest
from shares import opr_shares

from punctual.theory.cost import Cost
from punctual.theory.execution_time import (
    execution_time,
    execution_time_equal,
    n_min,
    n_min_equal,
    n_star,
    n_star_equal,
)
from punctual.theory.partition import partition

BASE = Cost(chi=1000.0, tau=1.0, theta_cm=500.0, theta_cp=500.0)  # the basic simulation model of 4.5.1
GRID = [(1000.0, BASE)] + [
    (load, Cost(chi, tau, theta_cm, theta_cp=50.0))
    for load in (200.0, 5000.0)
    for chi in (100.0, 10000.0)
    for tau in (1.0, 20.0)
    for theta_cm in (0.0, 5.0, 500.0)
]


def printed_b(n, beta, phi):
    return (1 - beta) / (1 - beta**n) + n * phi / (1 - beta**n) - phi / (1 - beta)


@pytest.mark.parametrize(("load", "cost"), GRID)
@pytest.mark.parametrize("n", [1, 2, 16, 63, 256])
def test_4_6_as_printed(load, cost, n):
    beta = cost.chi / (cost.tau + cost.chi)
    phi = cost.theta_cm / (load * (cost.tau + cost.chi))
    first = printed_b(n, beta, phi)
    time = cost.theta_cm + cost.theta_cp + load * (cost.tau + cost.chi) * first
    assert execution_time(load, n, cost) == pytest.approx(time, rel=1e-9)
    alphas = [first * beta ** (j - 1) - phi * (1 - beta ** (j - 1)) / (1 - beta) for j in range(1, n + 1)]
    assert sum(alphas) == pytest.approx(1.0, rel=1e-9)
    assert opr_shares(load, n, cost) / load == pytest.approx(np.array(alphas), abs=1e-9)


@pytest.mark.parametrize(("load", "cost"), GRID)
def test_4_2_to_4_4_every_processor_ends_at_the_same_time(load, cost):
    n = n_star(load, cost, limit=64)
    shares = opr_shares(load, n, cost)
    sent = np.arange(1, n + 1) * cost.theta_cm + shares.cumsum() * cost.tau
    ends = sent + cost.theta_cp + shares * cost.chi
    assert ends == pytest.approx(np.full(n, execution_time(load, n, cost)), rel=1e-9)
    assert shares.min() > 0.0


@pytest.mark.parametrize(("load", "cost"), GRID)
def test_every_share_positive_and_n_up_to_n_star_are_the_same_bound(load, cost):
    n = n_star(load, cost, limit=300)
    assert opr_shares(load, n, cost)[-1] > 0.0
    if n < 300:
        assert opr_shares(load, n + 1, cost)[-1] <= 1e-9 * load


def test_figure_4_5_b_n_star_is_63():
    assert n_star(1000, BASE, limit=256) == 63
    assert min(range(1, 257), key=lambda n: execution_time(1000, n, BASE)) == 63
    assert np.count_nonzero(partition(1000, np.zeros(256), BASE, one_port=True).shares) == 63


def test_figure_4_5_a_without_setup_costs_more_processors_are_always_faster():
    cost = Cost(chi=1000.0, tau=1.0)
    times = [execution_time(1000, n, cost) for n in range(1, 257)]
    assert all(later < sooner for sooner, later in pairwise(times))
    assert n_star(1000, cost, limit=256) == 256


@pytest.mark.parametrize(("load", "cost"), [(200.0, Cost(100.0, 1.0)), (1000.0, Cost(1000.0, 20.0))])
@pytest.mark.parametrize("stretch", [1.01, 1.5, 10.0, 1e4])
def test_n_min_without_setup_costs_is_the_logarithm(load, cost, stretch):
    window = load * cost.tau * stretch
    expected = ceil(log(1 - load * cost.tau / window) / log(cost.beta))
    assert n_min(load, cost, window=window, limit=10**7) == expected


@pytest.mark.parametrize(
    ("why", "omega", "n"),
    [
        ("no root: -4 < 0", 2.0, None),
        ("one root, an integer: 2", 4.0, 2),
        ("two roots, 1 and 4", 5.0, 1),
        ("two roots, 0.76 and 5.24: from 1", 6.0, 1),
        ("two roots, 1.6 and 2.6: rounded up", 4.2, 2),
    ],
)  # fmt: skip
def test_4_10_the_three_cases(why, omega, n):
    # theta_cm = 1, sigma chi = 4: n² − ωn + 4 <= 0
    cost = Cost(chi=4.0, tau=0.0, theta_cm=1.0, theta_cp=7.0)
    assert n_min_equal(1, cost, window=omega + 7.0, limit=100) == n


def test_4_10_one_root_that_is_no_integer():
    # theta_cm = 1, sigma chi = 6.25: the only root is 2.5
    assert n_min_equal(1, Cost(chi=6.25, theta_cm=1.0), window=5.0, limit=100) is None


def test_4_10_both_roots_below_one():
    assert n_min_equal(1, Cost(chi=2.0, theta_cm=8.0), window=8.0, limit=100) is None  # 0.5 twice
    assert n_min_equal(1, Cost(chi=2.0, theta_cm=8.0), window=9.0, limit=100) is None  # 0.36 and 0.69


def test_4_10_two_roots_without_an_integer_between_them():
    # theta_cm = 1, sigma chi = 2.16, omega = 3: roots 1.2 and 1.8; the printed third case answers 2
    cost = Cost(chi=2.16, theta_cm=1.0)
    low = (3.0 - sqrt(9.0 - 4 * 2.16)) / 2
    assert ceil(low) == 2
    assert execution_time_equal(1, 2, cost) > 3.0
    assert n_min_equal(1, cost, window=3.0, limit=100) is None


def test_opr_and_epr_become_one_as_computing_slows_down():
    def gap(chi):
        cost = Cost(chi, 1.0, 0.0, 0.0)
        return execution_time_equal(1000, 64, cost) / execution_time(1000, 64, cost) - 1.0

    assert gap(100) > 0.2
    assert gap(1000) < 0.035
    assert gap(10000) < 0.0035


def test_n_star_of_epr_is_where_4_8_is_least_and_not_that_of_4_6():
    assert n_star_equal(1000, BASE, limit=256) == 45
    assert min(range(1, 257), key=lambda n: execution_time_equal(1000, n, BASE)) == 45
    assert n_star_equal(1000, BASE, limit=30) == 30
