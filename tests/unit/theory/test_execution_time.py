from math import inf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shares import opr_shares

from punctual.theory.cost import Cost
from punctual.theory.execution_time import (
    execution_time,
    execution_time_equal,
    n_min,
    n_min_equal,
    n_star,
    n_star_equal,
    workload_derivative,
)
from punctual.theory.partition import least_processors, partition

costs = st.builds(
    Cost,
    chi=st.floats(0.01, 1000.0),
    tau=st.just(0.0) | st.floats(1e-9, 20.0),
    theta_cm=st.just(0.0) | st.floats(0.001, 500.0),
    theta_cp=st.just(0.0) | st.floats(0.001, 500.0),
)
loads = st.floats(0.1, 1e4)
counts = st.integers(1, 200)


def test_one_processor_alone_takes_what_its_chunk_costs():
    cost = Cost(chi=7.0, tau=2.0, theta_cm=3.0, theta_cp=5.0)
    assert execution_time(11, 1, cost) == cost.seconds(11) == execution_time_equal(11, 1, cost)


def test_two_processors_by_hand():
    # 1 + 4 a1 = T and 1 + a1 + 1 + 4 a2 = T with a1 + a2 = 7
    cost = Cost(chi=3.0, tau=1.0, theta_cm=1.0)
    assert opr_shares(7, 2, cost) == pytest.approx([29 / 7, 20 / 7])
    assert execution_time(7, 2, cost) == pytest.approx(123 / 7)
    assert execution_time_equal(7, 2, cost) == 2 + 7 + 10.5


def test_nothing_sent_and_no_setup_is_a_plain_division():
    assert execution_time(100, 8, Cost(chi=2.0)) == 25.0 == execution_time_equal(100, 8, Cost(chi=2.0))


@given(loads, counts, costs)
def test_tau_to_zero_is_continuous(load, n, cost):
    none, little = (Cost(cost.chi, tau, cost.theta_cm, cost.theta_cp) for tau in (0.0, 1e-12 * cost.chi))
    assert execution_time(load, n, little) == pytest.approx(execution_time(load, n, none), rel=1e-7)


@given(loads, counts, costs)
def test_the_closed_form_is_the_partition_of_processors_that_start_together(load, n, cost):
    n = n_star(load, cost, limit=n)
    got = partition(load, np.zeros(n), cost, one_port=True)
    assert execution_time(load, n, cost) == pytest.approx(got.finish, rel=1e-9)
    assert opr_shares(load, n, cost) == pytest.approx(got.shares, abs=1e-9 * load)


@given(loads, counts, costs)
def test_beyond_n_star_the_partition_skips_the_rest(load, limit, cost):
    n = n_star(load, cost, limit=limit)
    got = partition(load, np.zeros(limit), cost, one_port=True)
    assert got.finish == pytest.approx(execution_time(load, n, cost), rel=1e-9)
    assert not (got.shares[n:] > 1e-9 * load).any()


@given(loads, counts, costs)
def test_n_star_is_where_e_is_least(load, limit, cost):
    assume(cost.theta_cm > 0.0)
    times = [execution_time(load, n, cost) for n in range(1, limit + 1)]
    assert times[n_star(load, cost, limit=limit) - 1] == pytest.approx(min(times), rel=1e-12)


@given(loads, counts, costs)
def test_n_star_of_equal_shares_is_where_their_own_e_is_least(load, limit, cost):
    times = [execution_time_equal(load, n, cost) for n in range(1, limit + 1)]
    n = n_star_equal(load, cost, limit=limit)
    assert times[n - 1] == pytest.approx(min(times), rel=1e-12)
    if cost.theta_cm == 0.0:
        assert n == limit


@pytest.mark.parametrize(("sigma_chi", "n"), [(1.9, 1), (2.1, 2), (5.9, 2), (6.1, 3), (1e300, 100)])
def test_one_more_equal_share_helps_while_it_computes_less_by_more_than_a_transfer_is_set_up(sigma_chi, n):
    # θcm = 1: from n to n + 1 the chunk gets shorter by σχ/(n(n + 1))
    assert n_star_equal(1, Cost(chi=sigma_chi, tau=9.0, theta_cm=1.0, theta_cp=7.0), limit=100) == n


@given(loads, counts, costs)
def test_opr_is_never_slower_than_epr(load, n, cost):
    n = n_star(load, cost, limit=n)
    assert execution_time(load, n, cost) <= execution_time_equal(load, n, cost) * (1.0 + 1e-12)


@given(loads, counts, costs, st.floats(0.01, 3.0))
def test_n_min_is_the_first_that_fits(load, limit, cost, part):
    window = execution_time(load, max(1, n_star(load, cost, limit=limit) // 2), cost) * part
    first = next((n for n in range(1, limit + 1) if execution_time(load, n, cost) <= window), None)
    assert n_min(load, cost, window=window, limit=limit) == first
    exact = any(abs(execution_time(load, n, cost) - window) < 1e-9 * window for n in range(1, limit + 1))
    if not exact:
        ready = np.zeros(limit)
        assert least_processors(load, ready, cost, deadline=window, one_port=True) == first


@given(loads, counts, costs, st.floats(0.01, 3.0))
def test_n_min_equal_is_the_first_that_fits(load, limit, cost, part):
    window = execution_time_equal(load, max(1, limit // 2), cost) * part
    first = next((n for n in range(1, limit + 1) if execution_time_equal(load, n, cost) <= window), None)
    assert n_min_equal(load, cost, window=window, limit=limit) == first


@pytest.mark.parametrize("count", [n_min, n_min_equal])
@pytest.mark.parametrize("window", [-1.0, 0.0, 1e-300])
@pytest.mark.parametrize("cost", [Cost(1), Cost(1, 1), Cost(1, 1, 1, 1)])
def test_no_time_no_processors(count, window, cost):
    assert count(10, cost, window=window, limit=9) is None


def test_more_processors_than_there_are():
    assert n_min(100, Cost(1), window=10.0, limit=10) == 10
    assert n_min(100, Cost(1), window=10.0, limit=9) is None
    assert n_min_equal(100, Cost(1), window=10.0, limit=9) is None


def test_a_window_without_end_wants_one():
    assert n_min(100, Cost(1, 1), window=inf, limit=9) == 1


@pytest.mark.parametrize(
    ("cost", "n", "derivative"),
    [
        (Cost(chi=5.0), 4, 0.0),  # nothing is sent: ten processors do in all what one does
        (Cost(chi=5.0, theta_cp=3.0), 4, 3.0),  # each is set up
        (Cost(chi=3.0, tau=1.0), 1, 2 * 40 * 4 / (1 + 0.75) - 40 * 4),  # the second waits for the port
    ],
)
def test_one_processor_more_than_needed_costs_what_it_waits_and_is_set_up(cost, n, derivative):
    assert workload_derivative(40.0, n, cost) == pytest.approx(derivative, abs=1e-9)
