"""Slices: published and exact values, and what must hold for all of them."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.theory.slices import (
    Slices,
    all_open,
    blocking_rate,
    load_index,
    parallel_part,
    power_weights,
    relative_load,
    spinning_rate,
    spinning_rate_of_two,
)

HALF = Slices(0.05, 0.1)
MS = 0.001

periods = st.floats(0.01, 1.0)
shares = st.floats(0.02, 0.98)
slices = st.builds(lambda period, share: Slices(share * period, period), periods, shares)


@pytest.mark.parametrize(
    ("load", "parallel"),
    [(0.0, 90), (0.5, 90), (1.0, 80), (1.5, 70), (2.0, 60), (2.5, 50), (3.0, 40), (3.5, 30), (4.0, 20), (9.0, 10)],
)
def test_table_2_1(load, parallel):
    assert parallel_part(load) == pytest.approx(parallel / 100)
    assert parallel_part(load + 0.01) == pytest.approx(max(parallel - 10, 10) / 100 if load > 0.0 else 0.9)


def test_the_thesis_examples_of_slices():
    """IP 1 s, RLA 0.5: LS 100 ms, PS 900 ms. IP 100 ms, Q 0.75: 20 and 80 ms."""
    assert 1.0 * parallel_part(0.5) == pytest.approx(0.9)
    assert 0.1 * parallel_part(0.75) == pytest.approx(0.08)


def test_2_1_remembers_a_minute():
    assert load_index(0.0, 1.0, 10.0) == pytest.approx(1.0 - exp(-1 / 6))
    assert (load_index(1.0, 0.0, 10.0), load_index(0.0, 1.0, 10.0)) == pytest.approx((0.846, 0.154), abs=0.001)


@given(st.floats(0, 100), st.floats(0, 100), st.lists(st.floats(0.1, 60), min_size=1, max_size=8))
def test_a_load_index_depends_on_the_time_and_not_on_how_often_it_is_updated(last, mean, times):
    index = last
    for elapsed in times:
        index = load_index(index, mean, elapsed)
    assert index == pytest.approx(load_index(last, mean, sum(times)), abs=1e-9)


def test_2_2_and_2_3_a_node_of_half_the_power_is_as_loaded_with_half_the_tasks():
    weights = power_weights([10.0, 20.0])
    assert weights == [1.0, 0.5]
    assert relative_load([2.0], weights[:1]) == relative_load([1.0], weights[1:]) == 2.0
    assert relative_load([2.0, 1.0], weights) == 2.0
    assert relative_load([2.0, 1.0]) == 1.5


def test_loads_and_weights_of_no_node_are_refused():
    with pytest.raises(ValueError, match="there is no node"):
        relative_load([])
    with pytest.raises(ValueError, match="times must be positive"):
        power_weights([1.0, 0.0])
    with pytest.raises(ValueError, match="times must be positive"):
        power_weights([])


@pytest.mark.parametrize(
    ("seconds", "supply", "least"),
    [(-1.0, 0, 0), (0.03, 30, 0), (0.05, 50, 0), (0.08, 50, 30), (0.1, 50, 50), (0.13, 80, 50), (0.2, 100, 100)],
)
def test_what_slices_of_50_in_100_ms_supply(seconds, supply, least):
    assert HALF.supply(seconds) == pytest.approx(supply * MS)
    assert HALF.least_supply(seconds) == pytest.approx(least * MS, abs=1e-12)


@pytest.mark.parametrize(
    ("work", "seconds"), [(0, 0), (30, 30), (50, 50), (60, 110), (100, 150), (101, 201), (150, 250)]
)
def test_work_is_stretched_by_the_gaps_between_its_slices(work, seconds):
    """c + LS · ⌊c/PS⌋, one gap less where c fills its slices exactly."""
    assert HALF.stretch(work * MS) == pytest.approx(seconds * MS)


@given(slices, st.floats(0.001, 5.0))
def test_the_stretch_is_the_inverse_of_the_supply(made, work):
    assert made.supply(made.stretch(work)) == pytest.approx(work, rel=1e-6)
    assert made.supply(made.stretch(work) * (1 - 1e-6)) < work


@given(slices, st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.floats(0.001, 1.0))
def test_no_begin_is_worse_than_the_end_of_a_slice(made, start, phase, work):
    took = made.finish(start, work, phase) - start
    assert work - 1e-9 <= took <= made.gap + made.stretch(work) + 1e-9
    assert made.least_supply(took) <= work + 1e-6


@pytest.mark.parametrize(("nodes", "open_"), [(2, 0.36), (4, 0.1296), (8, 0.0168)])
def test_windows_of_random_phases_are_seldom_all_open(nodes, open_):
    assert all_open(0.6, nodes) == pytest.approx(open_, abs=1e-4)


@pytest.mark.parametrize(("grain", "rate"), [(1, 0.525), (5, 0.505), (20, 0.501), (50, 0.501)])
def test_ranks_that_block_have_what_their_budgets_have(grain, rate):
    assert blocking_rate(HALF, grain * MS, 0.05 * MS) == pytest.approx(rate, abs=0.0005)
    assert blocking_rate(Slices(0.1, 0.1), grain * MS, 0.05 * MS) == 1.0


WINDOWS = {1: (0.500, 0.304, 0.021), 5: (0.500, 0.302, 0.100), 20: (0.498, 0.398, 0.398)}
"""Rates in windows 0, 20 and 50 ms apart, by grain in ms."""


@pytest.mark.parametrize(("grain", "rates"), WINDOWS.items())
def test_two_spinning_ranks(grain, rates):
    found = [spinning_rate(HALF, grain * MS, [0.0, apart * MS], 0.05 * MS) for apart in (0, 20, 50)]
    assert found == pytest.approx(rates, abs=0.005)


@given(slices, st.floats(0.02, 1.0), st.floats(0.0, 1.0))
def test_the_law_of_two_spinning_ranks_is_within_one_grain_a_period(made, fill, apart):
    grain, apart = fill * made.length, apart * made.period
    exact = spinning_rate(made, grain, [0.0, apart])
    assert abs(exact - spinning_rate_of_two(made, grain, apart)) <= 1.02 * grain / made.period


@given(slices, st.floats(0.02, 2.0), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_no_rank_is_ahead_of_its_slices_and_aligned_ones_lose_least(made, fill, parts):
    grain, phases = fill * made.length, [part * made.period for part in parts]
    rate = spinning_rate(made, grain, phases)
    assert rate <= made.share + 0.02 * fill
    assert rate <= spinning_rate(made, grain, phases[:1]) + 0.02 * fill


@given(slices, st.floats(0.02, 1.0), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5), st.floats(0.0, 1.0))
def test_only_differences_of_phases_count(made, fill, parts, more):
    grain, phases = fill * made.length, [part * made.period for part in parts]
    moved = [phase + more * made.period for phase in reversed(phases)]
    assert spinning_rate(made, grain, moved) == pytest.approx(spinning_rate(made, grain, phases), abs=0.05 * fill)
