"""Models of samples and responses in seconds, both ways, and which responses are not believed."""

import math
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.learner import DELAYS, LARGEST_A
from punctual.control.model import Model
from punctual.control.response import FAR, LARGEST_NOISE, LONGEST_DELAY, LONGEST_LAG, Response, middle

SAMPLES = st.floats(1.0, 60.0)
RESPONSE = Response(cpu_per_unit=0.5, lag=10.0, delay=4.0, noise=0.1)


@pytest.mark.parametrize(
    ("model", "noise", "sample", "wanted"),
    [
        (Model.first_order(0.0, 4.0), 0.05, 1.0, Response(0.25, 0.0, 0.0, 0.05)),
        (Model.first_order(0.5, 2.0), 0.05, 1.0, Response(0.25, 1.0 / math.log(2.0), 0.0, 0.05)),
        (Model.first_order(0.5, 8.0, delay=1), 0.05, 4.0, Response(0.25, 4.0 / math.log(2.0), 4.0, 0.1)),
        (Model.first_order(math.exp(-1), 1.0 - math.exp(-1), delay=2), 0.0, 60.0, Response(60.0, 60.0, 120.0, 0.0)),
    ],
)
def test_what_a_model_tells_in_seconds(model, noise, sample, wanted):
    found = Response.of(model, noise, sample)
    assert astuple(found) == pytest.approx(astuple(wanted))


@pytest.mark.parametrize(
    ("sample", "a", "b", "delay", "noise"),
    [
        (1.0, math.exp(-0.1), 2.0 * (1.0 - math.exp(-0.1)), 2, 0.1),  # a delay of four samples: two are the most
        (4.0, math.exp(-0.4), 8.0 * (1.0 - math.exp(-0.4)), 1, 0.05),
        (10.0, math.exp(-1.0), 20.0 * (1.0 - math.exp(-1.0)), 0, 0.1 / math.sqrt(10.0)),
    ],
)
def test_one_response_as_models_of_different_samples(sample, a, b, delay, noise):
    model = RESPONSE.model(sample)
    assert (model.a[0], model.b[-1], model.delay) == pytest.approx((a, b, delay))
    assert RESPONSE.noise_in(sample) == pytest.approx(noise)
    assert model.gain == pytest.approx(sample / 0.5), "what a core gives in the long run depends on no sample"


def test_a_lag_that_no_learner_would_find_becomes_the_longest_one():
    assert Response(1.0, 1e300, 0.0, 0.0).model(1.0).a[0] == LARGEST_A
    assert Response(1.0, 1e-300, 0.0, 0.0).model(60.0).a[0] == 0.0


@given(st.floats(0.0, LARGEST_A), st.floats(-6.0, 6.0), st.integers(0, DELAYS - 1), st.floats(0.0, 1.0), SAMPLES)
@settings(deadline=None)
def test_a_model_is_the_same_after_a_way_through_seconds(a, exponent, delay, noise, sample):
    b = 10.0**exponent
    response = Response.of(Model.first_order(a, b, delay=delay), noise, sample)
    again = response.model(sample)
    assert again.a[0] == pytest.approx(a, abs=1e-9)
    assert again.b[-1] == pytest.approx(b, rel=1e-6)
    assert again.delay == delay
    assert response.noise_in(sample) == pytest.approx(noise)


@given(st.floats(-6.0, 6.0), st.floats(0.1, 10.0), st.integers(0, 2), SAMPLES, SAMPLES)
@settings(deadline=None)
def test_what_is_learned_in_samples_of_one_length_is_so_in_those_of_another(exponent, lags, delays, first, second):
    """As far as the other samples can show it: ``a`` and the delay of a model have their limits."""
    seen = Response(10.0**exponent, lags * first, delays * first, 0.1)
    again = Response.of(seen.model(second), seen.noise_in(second), second)
    assert again.cpu_per_unit == pytest.approx(seen.cpu_per_unit)
    assert again.noise == pytest.approx(seen.noise)
    assert abs(again.delay - seen.delay) <= max(0.5 * second, seen.delay - (DELAYS - 1) * second) + 1e-9
    assert again.lag == pytest.approx(min(seen.lag, -second / math.log(LARGEST_A)), rel=1e-6)


@pytest.mark.parametrize(
    ("more", "believed"),
    [
        ({}, True),
        ({"cpu_per_unit": 0.5 * FAR * 0.999}, True),
        ({"cpu_per_unit": 0.5 / FAR * 1.001}, True),
        ({"cpu_per_unit": 0.5 * FAR * 1.001}, False),
        ({"cpu_per_unit": 0.5 / FAR * 0.999}, False),
        ({"cpu_per_unit": 0.0}, False),
        ({"cpu_per_unit": -0.5}, False),
        ({"lag": 0.0, "delay": 0.0, "noise": 0.0}, True),
        ({"lag": LONGEST_LAG, "delay": LONGEST_DELAY, "noise": LARGEST_NOISE}, True),
        *[
            ({name: wrong}, False)
            for name in ("cpu_per_unit", "lag", "delay", "noise")
            for wrong in (math.nan, math.inf)
        ],
        *[({name: -1e-9}, False) for name in ("lag", "delay", "noise")],
    ],
)
def test_what_cannot_be_true_is_not_believed(more, believed):
    fields = {"cpu_per_unit": 0.5, "lag": 10.0, "delay": 4.0, "noise": 0.1}
    assert Response(**(fields | more)).believable(0.5) == believed


WIRE = st.builds(
    Model.first_order,
    st.floats(0.0, 1.0, exclude_max=True),
    st.floats(0.0, exclude_min=True, allow_infinity=False) | st.floats(0.01, 100.0),
    delay=st.integers(0, 2),
)
"""What the wire lets pass."""


@given(WIRE, st.floats(0.0, allow_infinity=False) | st.floats(0.0, 1.0), SAMPLES, SAMPLES)
@settings(deadline=None)
def test_whatever_an_agent_may_send_what_is_believed_makes_a_model_that_may_be_sent(model, noise, first, second):
    response = Response.of(model, noise, first)
    if not response.believable(1.0):
        return
    model = response.model(second)
    assert 0.0 <= model.a[0] <= LARGEST_A
    assert 0.0 < model.b[-1] < math.inf
    assert 0 <= model.delay < DELAYS
    assert 0.0 <= response.noise_in(second) < math.inf


def test_of_several_chunks_one_that_is_far_off_does_not_count():
    usual = [Response(0.5, 10.0, 0.0, 0.05), Response(0.52, 11.0, 1.0, 0.06), Response(0.48, 9.0, 0.0, 0.04)]
    found = middle([*usual, Response(5.0, 900.0, 100.0, 3.0), Response(0.51, 10.5, 0.0, 0.05)])
    assert found == Response(0.51, 10.5, 0.0, 0.05)
    assert middle([]) is None


def test_on_a_slower_processor_a_unit_takes_more_cpu():
    assert RESPONSE.slower(3.0) == Response(1.5, 10.0, 4.0, 0.1)
