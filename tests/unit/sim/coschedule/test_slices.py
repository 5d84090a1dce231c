"""Ranks that wait for each other on shared nodes: published and exact values, and what must hold of any run."""

import pytest
from coschedule import one

MS = 0.001

SPINNING = {
    1: (0.500, 0.411, 0.308, 0.215, 0.111, 0.029),
    5: (0.500, 0.405, 0.306, 0.206, 0.107, 0.107),
    20: (0.498, 0.401, 0.401, 0.401, 0.401, 0.401),
    50: (0.501, 0.501, 0.501, 0.501, 0.501, 0.501),
}
"""Rates of two spinning ranks, buckets of 50 of 100 ms, slices 0 to 50 ms apart, by grain in ms."""


@pytest.mark.parametrize(("grain", "rates"), SPINNING.items())
def test_two_spinning_ranks_lose_what_their_slices_do_not_share(grain, rates):
    found = [one(grain=grain * MS, policy="bucket", phases=[0.0, n * 10 * MS]).rate for n in range(6)]
    assert found == pytest.approx(rates, abs=0.001)


@pytest.mark.parametrize(("grain", "rate"), [(1, 0.525), (5, 0.505), (20, 0.501), (50, 0.501)])
@pytest.mark.parametrize("apart", [0, 50])
def test_ranks_that_block_keep_their_budgets_and_lose_nothing(grain, apart, rate):
    found = one(grain=grain * MS, policy="bucket", wait="block", phases=[0.0, apart * MS])
    assert found.rate == pytest.approx(rate, abs=0.001)
    assert found.spun == 0.0


@pytest.mark.parametrize(
    ("grain", "rates"), [(1, (0.5, 0.304, 0.021)), (5, (0.5, 0.302, 0.1)), (20, (0.498, 0.398, 0.398))]
)
def test_in_windows_ranks_that_block_lose_as_those_that_spin(grain, rates):
    for wait in ("block", "spin"):
        found = [one(grain=grain * MS, policy="windows", wait=wait, phases=[0.0, n * MS]).rate for n in (0, 20, 50)]
        assert found == pytest.approx(rates, abs=0.001)


def test_work_that_just_fits_into_a_window_does_not_wait_for_another_one():
    assert one(grain=50 * MS, policy="windows", phases=[0.0, 0.0]).iterations == 60
