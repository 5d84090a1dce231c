"""The controller in its loop: poles where they were put, no wind-up, no jump."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.control.model import Model
from punctual.control.pi import PI, Gains, place_poles

poles = st.floats(0.0, 0.95)


@given(st.floats(0.0, 0.99), st.floats(0.1, 50.0) | st.floats(-50.0, -0.1), poles, poles)
def test_the_loop_has_the_poles_it_was_given(a, b, first, second):
    gains = place_poles(Model((a,), (b,)), first, second)
    roots = np.roots([1.0, b * (gains.kp + gains.ki) - 1.0 - a, a - b * gains.kp])
    assert np.sort(np.abs(roots)) == pytest.approx(sorted([first, second]), abs=1e-4)


def follow(model, loop, target, steps):
    (a,), (b,) = model.a, model.b
    y, seen = 0.0, []
    for _ in range(steps):
        y = a * y + b * loop.step(target - y)
        seen.append(y)
    return np.array(seen)


def test_the_output_settles_on_the_target_without_swinging():
    model = Model((0.7,), (3.0,))
    seen = follow(model, PI(place_poles(model, 0.5, 0.5), output=0.0, low=-10, high=10), 6.0, 60)
    assert seen[-1] == pytest.approx(6.0)
    assert seen.max() < 6.0 * 1.05


def test_it_settles_although_the_model_is_wrong_by_half():
    gains = place_poles(Model((0.7,), (3.0,)), 0.6, 0.6)
    for wrong in (0.5, 1.5):
        seen = follow(Model((0.7,), (3.0 * wrong,)), PI(gains, output=0.0, low=-10, high=10), 6.0, 200)
        assert seen[-1] == pytest.approx(6.0, rel=1e-3)


def test_what_it_asked_in_vain_for_long_is_forgotten_at_once():
    model = Model((0.7,), (3.0,))
    loop = PI(place_poles(model, 0.5, 0.5), output=0.0, low=0.0, high=1.0)
    follow(model, loop, 1000.0, 500)  # out of reach: 10 is all that the limit gives
    assert loop.output == 1.0
    seen = follow(model, loop, 2.0, 40)
    assert seen[-1] == pytest.approx(2.0, rel=1e-3)


def test_it_takes_over_without_a_jump():
    loop = PI(Gains(kp=5.0, ki=0.1), output=0.4, low=0.0, high=1.0)
    assert loop.step(0.2) == pytest.approx(0.4 + 0.1 * 0.2)


@pytest.mark.parametrize(
    ("model", "where", "says"),
    [
        (Model((0.5, 0.1), (1.0,)), (0.5, 0.5), "first-order"),
        (Model((0.5,), (0.0,)), (0.5, 0.5), "no effect"),
        (Model((0.5,), (1.0,)), (1.0, 0.5), "in \\[0, 1\\)"),
        (Model((0.5,), (1.0,)), (0.5, -0.1), "in \\[0, 1\\)"),
    ],
)
def test_what_cannot_be_controlled_is_refused(model, where, says):
    with pytest.raises(ValueError, match=says):
        place_poles(model, *where)


def test_an_output_outside_its_limits_is_refused():
    with pytest.raises(ValueError, match="must be in"):
        PI(Gains(1.0, 1.0), output=2.0, low=0.0, high=1.0)
