"""Models from samples: a process that is one is found again, and samples that tell nothing are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.control.model import Model
from punctual.sim.plants.identification import fit


def run(model, inputs, noise=0.0, seed=1):
    """Outputs of a process that begins at rest; input k acts on output k + 1."""
    rng = np.random.default_rng(seed)
    order = max(len(model.a), len(model.b))
    y, u = [0.0] * order, [0.0] * order
    for x in inputs:
        u.append(x)
        y.append(model.forecast(y, u[:-1]) + noise * rng.standard_normal())
    return np.array(y), np.array(u)


def test_the_forecast_is_the_formula():
    model = Model(a=(0.5, -0.25), b=(2.0, 1.0))
    assert model.forecast([9.0, 4.0, 8.0], [9.0, 3.0, 5.0]) == 0.5 * 8 - 0.25 * 4 + 2 * 5 + 1 * 3


@given(st.floats(-0.9, 0.95), st.floats(0.1, 50.0), st.integers(0, 2**32 - 1))
def test_a_first_order_process_is_found_again(a, b, seed):
    inputs = np.random.default_rng(seed).uniform(-1, 1, 60)
    y, u = run(Model((a,), (b,)), inputs)
    found = fit(y, u)
    assert found.a == pytest.approx((a,), abs=1e-6)
    assert found.b == pytest.approx((b,), rel=1e-6)
    assert found.r2 == pytest.approx(1.0)


def test_a_second_order_process_is_found_through_noise():
    model = Model((0.9, -0.2), (0.5, 0.3))
    y, u = run(model, np.random.default_rng(3).choice([-1.0, 1.0], 4000), noise=0.1)
    found = fit(y, u, na=2, nb=2)
    assert found.a == pytest.approx(model.a, abs=0.03)
    assert found.b == pytest.approx(model.b, abs=0.03)
    assert 0.9 < found.r2 < 1.0


def test_the_gain_is_where_it_settles():
    model = Model((0.6,), (2.0,))
    y, _ = run(model, [1.0] * 200)
    assert y[-1] == pytest.approx(model.gain)
    with pytest.raises(ValueError, match="integrating"):
        _ = Model((1.0,), (2.0,)).gain


@pytest.mark.parametrize(
    ("outputs", "inputs", "how", "says"),
    [
        ([1, 2, 3], [1, 2], {}, "the same length"),
        ([1, 2, float("nan"), 3, 4, 5], [1, 2, 3, 4, 5, 6], {}, "finite"),
        ([1, 2, 3], [1, 2, 3], {}, "too few"),
        ([1] * 9, [1] * 9, {"nb": 0}, "nb must be at least 1"),
        ([3, 2, 1, 5, 6, 7, 8, 2, 1], [0] * 9, {}, "the input must move"),
        ([1] * 9, [1] * 9, {}, "the input must move"),
    ],
)
def test_samples_that_tell_nothing_are_refused(outputs, inputs, how, says):
    with pytest.raises(ValueError, match=says):
        fit(outputs, inputs, **how)
