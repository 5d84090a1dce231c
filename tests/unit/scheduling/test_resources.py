"""Amounts of resources as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import NOTHING, Excess, Resources

GPU = "nvidia.com/gpu"
amounts = st.builds(
    lambda cpu, memory, gpu: Resources.of({"cpu": cpu / 1000, "memory": memory, GPU: gpu}),
    st.integers(0, 5000),
    st.integers(0, 2**40),
    st.integers(0, 3),
)


def test_what_is_zero_is_not_named():
    assert Resources.of({"cpu": 0.0, "memory": 0, GPU: 0}) == NOTHING
    assert not Resources.of({GPU: 0})
    assert Resources.of({GPU: 2, "a": 1}).names() == ("a", GPU)


def test_sums_of_floats_are_equal_in_any_order():
    tenths = [Resources(0.1), Resources(0.2), Resources(0.3)]
    assert Resources.sum(tenths) == Resources.sum(reversed(tenths)) == Resources(0.6)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (Resources(0.2, 64), Resources(0.1, 64), (Excess("cpu", 0.2, 0.1),)),
        (Resources(0.1 + 0.2), Resources(0.3), ()),
        (Resources(0.1, 65), Resources(0.1, 64), (Excess("memory", 65, 64),)),
        (Resources.of({GPU: 1}), Resources(8.0, 2**40), (Excess(GPU, 1, 0),)),
        (NOTHING, NOTHING, ()),
    ],
)
def test_what_is_larger_is_named_with_both_amounts(one, other, found):
    assert one.larger(other) == found
    assert one.fits(other) == (not found)


@given(amounts, amounts)
def test_a_sum_fits_what_is_left(one, other):
    both = one + other
    assert one.fits(both)
    assert both - other == one
    assert (one - both) == NOTHING
    assert hash(both) == hash(other + one)
    assert one.fits(one.largest(other))
    assert other.fits(one.largest(other))
    assert one * 3 == one + one + one
    assert (both * 4) // 4 == both


@pytest.mark.parametrize(
    ("cpu", "admission", "share"),
    [
        (0.5, "Exact", Resources(0.5, 64)),
        (0.5, "Utilization", Resources(0.166, 64)),
        (0.002, "Utilization", Resources(0.001, 64)),
    ],
)
def test_a_pods_share_of_a_processor_is_all_of_it_or_an_equal_part_of_its_cpu(cpu, admission, share):
    assert PoolSpec(name="main", cpu=cpu, memory=64, admission=admission, pods_per_processor=3).share == share
