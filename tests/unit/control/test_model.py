"""A linear model: what it forecasts, and where its process settles."""

import pytest

from punctual.control.model import Model


def test_a_forecast_is_the_published_equation():
    model = Model((0.5, 0.2), (3.0, 1.0))
    assert model.forecast([9.0, 1.0, 2.0], [9.0, 0.1, 0.2]) == pytest.approx(0.5 * 2 + 0.2 * 1 + 3 * 0.2 + 1 * 0.1)


def test_forecasts_begin_with_less_past_than_the_order():
    assert Model((0.5, 0.2), (3.0, 1.0)).forecast([], [2.0]) == 6.0
    assert Model((0.5,), (3.0,)).forecast([2.0], []) == 1.0


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_leading_zeros_are_the_delay(delay):
    model = Model.first_order(0.3, 2.0, delay=delay)
    assert model.delay == delay
    outputs, inputs = [], []
    for _ in range(6):
        outputs.append(model.forecast(outputs, inputs))
        inputs.append(1.0)
    assert [y > 0.0 for y in outputs] == [k > delay for k in range(6)]


@pytest.mark.parametrize(("a", "b", "gain"), [(0.32, 6.38, 9.382), (0.13, 1.28, 1.471), (0.0, 2.0, 2.0)])
def test_it_settles_at_its_gain(a, b, gain):
    model = Model.first_order(a, b, delay=1)
    assert model.gain == pytest.approx(gain, abs=1e-3)
    outputs, inputs = [0.0], [0.0]
    for _ in range(60):
        inputs.append(1.0)
        outputs.append(model.forecast(outputs, inputs))
    assert outputs[-1] == pytest.approx(gain, abs=1e-3)


def test_what_integrates_does_not_settle():
    with pytest.raises(ValueError, match="settle"):
        _ = Model((1.0,), (2.0,)).gain


def test_no_effect_is_a_delay_without_end():
    assert Model((0.5,), (0.0, 0.0)).delay == 2
