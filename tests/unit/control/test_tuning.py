"""The search for gains: its poles are those of the real loop, its promises hold in simulated loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.model import Model
from punctual.control.tuning import BAND, alike, noise_gain, overshoot_of, settling_time, tune, tune_alike


def step_response(model, kp, ki, alpha, periods=400):
    """Return the output of the loop after a step of its reference: filter, PI and process, one after the other."""
    (a,), b, delay = model.a, model.b[-1], model.delay
    y = seen = u = before = 0.0
    waiting, found = [0.0] * delay, []
    for _ in range(periods):
        waiting.append(u)
        y = a * y + b * waiting.pop(0)
        seen = alpha * seen + (1.0 - alpha) * y
        error = 1.0 - seen
        u += kp * (error - before) + ki * error
        before = error
        found.append(y)
    return np.array(found)


def published_step(kp, ki, alpha, periods=300):
    """Return the published loop's answer: the filter (16) is a period later."""
    y = seen = u = before = 0.0
    found = []
    for _ in range(periods):
        error = 1.0 - seen
        u += (kp + ki) * error - kp * before
        before = error
        seen = alpha * seen + (1.0 - alpha) * y
        y = 0.32 * y + 6.38 * u
        found.append(y)
    return np.array(found)


def published_poles(kp, ki, alpha):
    """Return the poles of (17) with BLAST's model."""
    loop = np.polymul(np.polymul([1.0, -0.32], [1.0, -alpha]), [1.0, -1.0])
    return np.roots(np.polyadd(loop, 6.38 * (1.0 - alpha) * np.array([kp + ki, -kp])))


@given(st.floats(0.0, 0.95), st.integers(0, 2), st.sampled_from([0.0, 0.05]))
@settings(max_examples=25, deadline=None)
def test_the_simulated_loop_settles_and_overshoots_as_promised(a, delay, noise):
    model = Model.first_order(a, 1.0 - a, delay=delay)
    tuned = tune(model, noise=noise)
    assert tuned.overshoot <= 0.05
    found = step_response(model, tuned.gains.kp, tuned.gains.ki, tuned.alpha)
    assert found[-1] == pytest.approx(1.0, abs=1e-3)
    outside = max((k for k, one in enumerate(found) if abs(one - 1.0) > 0.01), default=0)
    # a pole forgets to 1 % within its settling time; several of about the same size take somewhat longer
    assert outside <= 2.0 * tuned.settling + 5


@given(st.floats(0.0, 0.95), st.integers(0, 2))
@settings(max_examples=15, deadline=None)
def test_the_loop_stays_calm_within_the_noise(a, delay):
    model = Model.first_order(a, 1.0 - a, delay=delay)
    tuned = tune(model, noise=0.05)
    gain = tuned.calm * (tuned.gains.kp + tuned.gains.ki)
    zero = tuned.gains.kp / (tuned.gains.kp + tuned.gains.ki)
    assert tuned.calm > 0.0
    (found,) = noise_gain(a, delay, tuned.alpha, np.array([zero]), np.array([gain]))
    assert found * 0.05 <= BAND * 1.0001 or tuned.calm == pytest.approx(1e-4)


def test_scale_of_the_process_does_not_matter():
    one, other = tune(Model.first_order(0.3, 0.7)), tune(Model.first_order(0.3, 70.0))
    assert one == other


def test_an_overshoot_that_may_be_larger_is_faster():
    slow, fast = (tune(Model.first_order(0.32, 0.68, delay=1), alpha=0.85, overshoot=limit) for limit in (0.05, 0.2))
    assert fast.settling <= slow.settling
    assert slow.overshoot <= 0.05
    assert fast.overshoot <= 0.2


@pytest.mark.parametrize(
    ("poles", "settling", "overshoot"),
    [
        ([0.5, 0.1], math.log(100) / math.log(2), 0.0),
        ([-0.5, 0.1], math.log(100) / math.log(2), 0.5),
        ([0.5j, -0.5j], math.log(100) / math.log(2), 0.25),
        ([0.9 * np.exp(0.3j), 0.9 * np.exp(-0.3j)], math.log(100) / -math.log(0.9), 0.9 ** (math.pi / 0.3)),
        ([1.0, 0.2], math.inf, 0.0),
        ([-1.2, 0.2], math.inf, 1.0),
    ],
)
def test_settling_and_overshoot_follow_from_the_largest_pole(poles, settling, overshoot):
    at = np.array([poles], dtype=np.complex128)
    assert settling_time(at)[0] == pytest.approx(settling)
    assert overshoot_of(at)[0] == pytest.approx(overshoot)


def test_a_pole_at_zero_settles_at_once():
    assert settling_time(np.zeros((1, 2), dtype=np.complex128))[0] < 0.5


@pytest.mark.parametrize("alpha", [0.8, 0.85, 0.9])
def test_the_published_gains_of_blast_do_what_the_figures_show(alpha):
    """Fig. 5: 0.005 and 0.007 are good, 0.012 and 0.018 oscillate, 0.0016 and 0.0024 are slow."""
    good, aggressive, slow = (
        published_step(*gains, alpha) for gains in ((0.005, 0.007), (0.012, 0.018), (0.0016, 0.0024))
    )
    for found in (good, aggressive, slow):
        assert found[-1] == pytest.approx(1.0, abs=0.02)
    assert aggressive.max() > 1.25
    assert good.max() < 1.15
    assert slow.max() < 1.001
    crossings = [int((np.diff(np.sign(found[:100] - 1.0)) != 0).sum()) for found in (aggressive, good, slow)]
    assert crossings[0] >= 4
    assert crossings[1:] == [2, 0]
    outside = [max(k for k, one in enumerate(found) if abs(one - 1.0) > 0.05) for found in (good, slow)]
    assert outside[0] < 60
    assert outside[1] > 90


def test_the_published_settling_times_are_those_of_the_poles():
    """With the published filter a good controller takes 13 to 28 periods."""
    for alpha in (0.8, 0.85, 0.9):
        found = settling_time(published_poles(0.005, 0.007, alpha)[None])[0]
        answer = published_step(0.005, 0.007, alpha)
        outside = max(k for k, one in enumerate(answer) if abs(one - 1.0) > 0.01)
        assert outside == pytest.approx(found, rel=0.6)


@pytest.mark.parametrize("model", [Model((1.0,), (1.0,)), Model((-0.1,), (1.0,)), Model((0.2, 0.1), (1.0,))])
def test_other_models_are_refused(model):
    with pytest.raises(ValueError, match="first-order"):
        tune(model)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ((0.0, 0, 0.0), (0.0, 0, 0.0)),
        ((0.52, 1, 0.021), (0.5, 1, 0.05)),
        ((0.53, 1, 0.05), (0.55, 1, 0.05)),
        ((0.99, 2, 9.0), (0.95, 2, 0.5)),
    ],
)
def test_models_that_differ_little_are_alike_and_noise_is_rounded_up(model, found):
    assert alike(*model) == pytest.approx(found)
    assert tune_alike(alike(*model)).gains.ki > 0.0
