"""Whatever a fifth of the chunks met, the true cost is found again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from punctual.control.cost_estimation import Timed, estimate


def observed(seed, *, chi, theta_share, count, outliers, noise=0.03):
    """Chunks of sizes that differ by up to 25 times, their times off by 3 %, some of them 1.5 to 10 times too long.

    ``theta_share``: θ in parts of what the units of a middle-sized chunk take.
    """
    rng = np.random.default_rng(seed)
    middle = 10 ** rng.uniform(1, 4)
    theta = theta_share * chi * middle
    units = np.maximum(1, np.round(middle * 10 ** rng.uniform(-0.7, 0.7, count))).astype(int)
    seconds = (theta + chi * units) * np.exp(noise * rng.standard_normal(count))
    slow = rng.choice(count, int(outliers * count), replace=False)
    seconds[slow] *= rng.uniform(1.5, 10.0, slow.size)
    return theta, [Timed(int(n), float(s)) for n, s in zip(units, seconds, strict=True)]


@given(
    st.integers(0, 2**32 - 1),
    st.floats(1e-3, 10.0),
    st.floats(0.1, 1.0),
    st.integers(40, 64),
    st.floats(0.0, 0.2),
)
def test_the_true_numbers_are_found_though_a_fifth_are_outliers(seed, chi, theta_share, count, outliers):
    theta, seen = observed(seed, chi=chi, theta_share=theta_share, count=count, outliers=outliers)
    found = estimate(seen)
    for timed in seen:  # what a chunk is planned with
        true = theta + chi * timed.units
        assert abs(found.theta + found.chi * timed.units - true) < 0.1 * true
    assert abs(found.chi - chi) < 0.1 * chi
    assert found.outliers >= 0.8 * int(outliers * count)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 10.0), st.floats(0.0, 1.0), st.integers(5, 64))
def test_without_noise_they_are_found_exactly(seed, chi, theta_share, count):
    theta, seen = observed(seed, chi=chi, theta_share=theta_share, count=count, outliers=0.0, noise=0.0)
    found = estimate(seen)
    if found.r2 is not None:
        assert abs(found.chi - chi) < 1e-6 * chi
        assert abs(found.theta - theta) < 1e-6 * (theta + chi)


@given(
    st.lists(st.builds(Timed, st.integers(1, 10**15), st.floats(1e-3, 1e9)), max_size=70),
    st.none() | st.just(0.0) | st.floats(1e-9, 1e6),
    st.none() | st.floats(0, 1e6),
)
def test_whatever_was_seen_the_numbers_are_such_as_a_cost_can_have(seen, chi, theta):
    found = estimate(seen, chi=chi, theta=theta)
    if found is not None:
        assert 0.0 <= found.theta < float("inf")
        assert (found.chi == chi == 0.0) or 0.0 < found.chi < float("inf")
        assert found.r2 is None or 0.0 <= found.r2 <= 1.0
        assert 0 <= found.outliers < found.samples
