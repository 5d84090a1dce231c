"""The partition against what it claims: all the load, one finish, the optimum.

The oracle serves every ordered subset of the processors by the definition alone, with bisection, and takes the best.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import least_processors, partition

numbers = st.floats(0.01, 100.0)
costs = st.builds(
    Cost,
    chi=numbers,
    tau=st.just(0.0) | st.floats(0.001, 20.0),
    theta_cm=st.just(0.0) | st.floats(0.001, 50.0),
    theta_cp=st.just(0.0) | st.floats(0.001, 50.0),
)
loads = st.floats(0.1, 1e4)
whole_loads = st.integers(1, 2000)
times = st.floats(0.0, 1000.0) | st.integers(0, 10).map(float)  # the integers make ties


def lines(most):
    return st.lists(times, min_size=1, max_size=most).map(np.array)


def serve(end, ready, per_unit, cost):
    """Return shares and starts with one port when each processor ends at ``end``: the definition."""
    port, shares, starts = -np.inf, [], []
    for r, p in zip(ready, per_unit, strict=True):
        start = max(r, port)
        share = max(0.0, (end - start - cost.setup) / p)
        if share > 0.0:
            port = start + cost.theta_cm + share * cost.tau
        shares.append(share)
        starts.append(start)
    return shares, starts


def bisect(done, load, low, high):
    assert done(high) >= load
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (low, middle) if done(middle) >= load else (middle, high)
    return high


def best_of_all(load, ready, cost, *, speeds=None):
    """Return the earliest finish that any ordered subset reaches through one port."""
    n = len(ready)
    per_unit = cost.tau + cost.chi * (np.ones(n) if speeds is None else speeds)
    best = np.inf
    for size in range(1, n + 1):
        for order in map(list, permutations(range(n), size)):
            line = ready[order], per_unit[order]

            def done(end, line=line):
                return sum(serve(end, *line, cost)[0])

            alone = line[0].max() + cost.setup + 1.001 * load * line[1][0]
            best = min(best, bisect(done, load, line[0].min() + cost.setup, alone))
    return best


def relative(finish, ready):
    return finish - np.min(ready)


@given(loads, lines(60), costs, st.booleans())
def test_all_the_load_is_cut_and_the_busy_end_together(load, ready, cost, one_port):
    got = partition(load, ready, cost, one_port=one_port)
    assert got.shares.sum() == pytest.approx(load, rel=1e-9)
    assert (got.shares >= 0.0).all()
    assert (got.starts >= ready).all()
    busy = got.shares > 0.0
    ends = got.starts + cost.setup + got.shares * cost.per_unit
    assert ends[busy] == pytest.approx(got.finish, rel=1e-9)
    # who is skipped could not have processed anything by then
    assert (got.starts[~busy] + cost.setup >= got.finish - 1e-9 * got.finish).all()


@given(loads, lines(30), costs)
def test_one_transfer_at_a_time(load, ready, cost):
    got = partition(load, ready, cost, one_port=True)
    port = -np.inf
    for start, share in zip(got.starts, got.shares, strict=True):
        if share > 0.0:
            assert start >= port - 1e-9 * abs(start)
            port = start + cost.theta_cm + share * cost.tau


@given(loads, lines(60), costs)
def test_concurrent_finish_is_that_of_a_bisection(load, ready, cost):
    got = partition(load, ready, cost)
    best = bisect(
        lambda end: np.maximum(0.0, end - ready - cost.setup).sum() / cost.per_unit,
        load,
        ready.min() + cost.setup,
        ready.min() + cost.setup + 1.001 * load * cost.per_unit,
    )
    assert relative(got.finish, ready) == pytest.approx(relative(best, ready), rel=1e-9)


@given(loads, st.lists(st.tuples(times, numbers), min_size=1, max_size=40), costs)
def test_concurrent_with_different_speeds(load, processors, cost):
    ready, speeds = map(np.array, zip(*processors, strict=True))
    per_unit = speeds * cost.chi + cost.tau
    got = partition(load, ready, cost, speeds=speeds)
    assert got.shares.sum() == pytest.approx(load, rel=1e-9)
    ends = ready + cost.setup + got.shares * per_unit
    busy = got.shares > 0.0
    assert ends[busy] == pytest.approx(got.finish, rel=1e-9)
    assert (ends[~busy] >= got.finish - 1e-9 * got.finish).all()


@given(loads, lines(4), costs)
def test_one_port_with_equal_processors_is_the_optimum_of_all_ordered_subsets(load, ready, cost):
    ready.sort()
    got = partition(load, ready, cost, one_port=True).finish
    assert relative(got, ready) == pytest.approx(relative(best_of_all(load, ready, cost), ready), rel=1e-9)


@given(loads, st.lists(st.tuples(times, numbers), min_size=1, max_size=4), costs)
def test_one_port_with_different_speeds_only_is_the_optimum_too(load, processors, cost):
    cost = replace(cost, theta_cm=0.0)
    ready, speeds = map(np.array, zip(*sorted(processors), strict=True))
    got = partition(load, ready, cost, one_port=True, speeds=speeds).finish
    best = best_of_all(load, ready, cost, speeds=speeds)
    assert relative(got, ready) == pytest.approx(relative(best, ready), rel=1e-9)


@given(loads, lines(6), costs)
@example(9.0, np.array([100.0, 0.0]), Cost(10, 1))
@example(3.0, np.array([5.0, 0.0, 4.0, 0.5]), Cost(1, 5, 3, 0))
def test_one_port_in_any_order_ends_at_the_least_time_that_does(load, ready, cost):
    got = partition(load, ready, cost, one_port=True)
    assert got.shares.sum() == pytest.approx(load, rel=1e-9)
    per_unit = np.full(ready.size, cost.per_unit)
    early = np.linspace(ready.min(), got.finish, 200, endpoint=False)
    done = [sum(serve(end, ready, per_unit, cost)[0]) for end in early]
    assert max(done) <= load * (1.0 + 1e-9)


@given(loads, lines(40), costs, st.randoms(use_true_random=False))
def test_the_concurrent_optimum_knows_no_order(load, ready, cost, random):
    order = list(range(ready.size))
    random.shuffle(order)
    got, mixed = partition(load, ready, cost), partition(load, ready[order], cost)
    assert mixed.finish == pytest.approx(got.finish, rel=1e-12)
    assert mixed.shares == pytest.approx(got.shares[order], abs=1e-9 * load)


@given(loads, st.lists(times, min_size=1, max_size=10), costs, st.booleans(), st.data())
def test_equal_ready_times_may_change_places(load, ready, cost, one_port, data):
    ready = np.sort(np.array(ready * 2))
    mixed = np.array(data.draw(st.permutations(list(ready))))
    mixed = mixed[np.argsort(mixed, kind="stable")]
    got, other = (partition(load, line, cost, one_port=one_port) for line in (ready, mixed))
    assert got.finish == other.finish
    assert got.shares.tolist() == other.shares.tolist()


@given(loads, lines(40), costs, st.booleans(), st.floats(1.0, 3.0))
def test_more_load_ends_later_and_one_more_processor_never_does(load, ready, cost, one_port, more):
    ready.sort()
    got = partition(load, ready, cost, one_port=one_port).finish
    slack = 1e-9 * abs(got)
    assert partition(load * more, ready, cost, one_port=one_port).finish >= got - slack
    if ready.size > 1:
        assert partition(load, ready[:-1], cost, one_port=one_port).finish >= got - slack
    assert partition(load, ready, replace(cost, chi=cost.chi * more), one_port=one_port).finish >= got - slack
    assert partition(load, ready + more, cost, one_port=one_port).finish >= got + more - slack


@given(loads, lines(20), costs)
def test_one_port_is_never_faster_and_the_same_where_nothing_is_sent(load, ready, cost):
    ready.sort()
    slack = 1e-9 * load * cost.per_unit
    concurrent = partition(load, ready, cost).finish
    assert partition(load, ready, cost, one_port=True).finish >= concurrent - slack
    free = replace(cost, tau=0.0, theta_cm=0.0)
    got, same = (partition(load, ready, free, one_port=one) for one in (True, False))
    assert got.finish == pytest.approx(same.finish, rel=1e-12)
    assert got.shares == pytest.approx(same.shares, abs=1e-9 * load)


@given(
    load=loads,
    ready=lines(12),
    cost=costs,
    one_port=st.booleans(),
    least=st.integers(1, 3),
    stretch=st.floats(1.0, 20.0),
)
def test_least_processors_is_the_first_that_fits(*, load, ready, cost, one_port, least, stretch):
    ready.sort()
    deadline = ready[0] + cost.setup + load * cost.per_unit / stretch
    ends = [
        partition(load, ready[:n], cost, one_port=one_port).finish
        for n in range(1, ready.size + 1)
    ]  # fmt: skip
    assume(min(abs(end - deadline) for end in ends) > 1e-6 * deadline)  # an exact fit may fall either way
    first = next((n for n, end in enumerate(ends, 1) if n >= least and end <= deadline), None)
    assert least_processors(load, ready, cost, deadline=deadline, least=least, one_port=one_port) == first


@given(loads, lines(12), costs, st.booleans())
@example(16.25, np.array([0.0, 1.0, 172.0]), Cost(21.0), True)
@example(1.0, np.array([0.0, 0.0, 1.0, 2.0]), Cost(2.0, 3.0, 1.0), True)  # two of these are summed in groups, four not
def test_a_partition_fits_the_deadline_it_ends_at(load, ready, cost, one_port):
    ready.sort()
    end = partition(load, ready, cost, one_port=one_port).finish
    n = least_processors(load, ready, cost, deadline=end, one_port=one_port)
    assert n is not None
    assert partition(load, ready[:n], cost, one_port=one_port).finish <= end


@given(whole_loads, lines(40), costs, st.booleans())
def test_cut_points_are_whole_near_the_shares_and_cost_less_than_one_unit(units, ready, cost, one_port):
    ready.sort()
    got = partition(units, ready, cost, one_port=one_port)
    cuts = cut_points(got.shares, units)
    sizes = np.diff(cuts)
    assert (cuts[0], cuts[-1]) == (0, units)
    assert (sizes >= 0).all()
    assert (sizes[got.shares == 0.0] == 0).all()
    assert (np.abs(sizes - got.shares) < 1.0 + 1e-9).all()
    assert run(sizes, ready, cost, one_port=one_port) < got.finish + cost.per_unit * (1.0 + 1e-9)


def run(sizes, ready, cost, *, one_port):
    """Return when the last of these chunks ends."""
    port, ends = -np.inf, []
    for size, r in zip(sizes, ready, strict=True):
        if size:
            start = max(r, port) if one_port else r
            port = start + cost.theta_cm + size * cost.tau
            ends.append(port + cost.theta_cp + size * cost.chi)
    return max(ends)


# Different speeds through one port: how far ready-time order is from the best ordered subset (docs/papers.md).


def test_a_slow_processor_costs_more_setup_than_it_brings():
    ready, speeds, cost = np.array([0.0, 1.0]), np.array([50.0, 1.0]), Cost(1, 0, 10, 0)
    got = partition(20, ready, cost, one_port=True, speeds=speeds).finish
    assert got > best_of_all(20, ready, cost, speeds=speeds) * 1.2


@pytest.mark.parametrize(
    ("tau", "theta_cm", "mean", "worst"),
    [(50, 0, 0.0, 0.0), (10, 100, 0.0001, 0.0024), (50, 100, 0.0032, 0.0511), (50, 500, 0.0199, 0.1808)],
)
def test_how_far_ready_time_order_is_off_in_a_fixed_sample(tau, theta_cm, mean, worst):
    rng = np.random.default_rng(7)
    off = []
    for _ in range(60):
        ready, load = np.sort(rng.uniform(0.0, 1500.0, 3)), rng.uniform(5.0, 60.0)
        speeds = rng.uniform(0.25, 4.0, 3)
        cost = Cost(chi=100.0, tau=tau, theta_cm=theta_cm)
        got = partition(load, ready, cost, one_port=True, speeds=speeds).finish
        best = best_of_all(load, ready, cost, speeds=speeds)
        assert got >= best * (1.0 - 1e-9)
        off.append(relative(got, ready) / relative(best, ready) - 1.0)
    assert np.mean(off) == pytest.approx(mean, abs=0.0005)
    assert max(off) == pytest.approx(worst, abs=0.001)
