"""What the learner finds in a chunk's samples, and what it does not believe."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.adaptive import LEVELS
from punctual.control.learner import ENOUGH, LEAST_R2, Learner


def feed(learner, periods, *, a=0.4, b=6.4, delay=0, noise=0.0, cap=lambda k: LEVELS[k % len(LEVELS)], seed=1):
    """Have it watch a process; return when it had a model first."""
    rng, p, waiting, first = random.Random(seed), 0.0, [0.0] * delay, None
    for k in range(periods):
        cores = cap(k)
        waiting.append(cores)
        p = max(0.0, (a * p + b * waiting.pop(0)) * (1.0 + noise * rng.gauss(0.0, 1.0)))
        learner.learn(p, cores)
        if first is None and learner.model is not None:
            first = k + 1
    return first


@given(st.floats(0.0, 0.95), st.floats(-2.0, 2.0), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_without_noise_it_finds_the_process_within_twenty_periods(a, exponent, delay):
    learner, b = Learner(), 10.0**exponent
    assert feed(learner, 20, a=a, b=b, delay=delay) <= 20
    assert learner.model.delay == delay
    assert learner.model.a[0] == pytest.approx(a, abs=0.01)
    assert learner.model.b[-1] == pytest.approx(b, rel=0.02)


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("a", [0.0, 0.13, 0.32, 0.6])
def test_through_noise_it_finds_the_gain_and_the_delay(a, delay):
    for seed in range(5):
        learner = Learner()
        assert feed(learner, 20, a=a, delay=delay, noise=0.05, seed=seed) is not None
        feed(learner, 40, a=a, delay=delay, noise=0.05, seed=seed)
        assert learner.model.gain == pytest.approx(6.4 / (1.0 - a), rel=0.1)
        assert learner.model.delay == delay


def test_the_noise_that_it_names_is_the_noise():
    learner = Learner()
    feed(learner, 200, noise=0.05)
    assert learner.noise == pytest.approx(0.05, rel=0.3)


def test_noise_alone_is_no_model():
    rng = random.Random(3)
    learner = Learner()
    for k in range(300):
        learner.learn(max(0.0, rng.gauss(5.0, 1.0)), LEVELS[k % len(LEVELS)])
    assert learner.model is None


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.3, -2.0), (1.0, 0.5), (1.05, 0.5)],
    ids=["more CPU, less progress", "it does not settle", "it grows"],
)
def test_models_that_cannot_be_are_refused(a, b):
    learner, p = Learner(), 20.0
    for k in range(60):
        cores = LEVELS[k % len(LEVELS)]
        p = a * p + b * cores + (10.0 if b < 0.0 else 0.0)
        learner.learn(p, cores)
        assert learner.model is None or (learner.model.b[-1] > 0.0 and learner.model.a[0] < 1.0)
    if b < 0.0:
        assert learner.model is None


def test_a_model_explains_what_it_was_learned_from():
    for seed in range(20):
        learner = Learner()
        feed(learner, 60, noise=0.3, seed=seed)
        assert learner.model is None or learner.model.r2 >= LEAST_R2


def test_a_cap_that_stands_still_teaches_nothing_and_nothing_is_forgotten():
    learner = Learner()
    feed(learner, 60, noise=0.05)
    known = learner.model
    feed(learner, 2000, noise=0.05, cap=lambda _: 0.5)
    assert learner.dull
    assert learner.model.gain == pytest.approx(known.gain, rel=0.1)
    feed(learner, 40, noise=0.05, seed=2)
    assert not learner.dull
    assert learner.model.gain == pytest.approx(6.4 / 0.6, rel=0.15)
    assert learner.model.a[0] == pytest.approx(0.4, abs=0.15)


def test_a_process_that_changes_is_learned_anew():
    learner = Learner()
    feed(learner, 60, b=6.4)
    feed(learner, 300, b=3.2)
    assert learner.model.gain == pytest.approx(3.2 / 0.6, rel=0.05)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.5])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_process_that_changes_suddenly_is_never_taken_for_one_that_explains_both(factor, noise):
    for seed in range(5):
        rng, learner, p = random.Random(seed), Learner(), 0.0
        found = []
        for k in range(200):
            cores = LEVELS[k % len(LEVELS)]
            drive = 6.4 * cores * (1.0 if k < 100 else factor)
            p = (0.4 * p + drive) * (1.0 + noise * rng.gauss(0.0, 1.0))
            learner.learn(p, cores)
            found.append(learner.model)
        assert all(model.a[0] == pytest.approx(0.4, abs=0.25) for model in found[ENOUGH + 4 :])
        assert found[-1].gain == pytest.approx(factor * 6.4 / 0.6, rel=0.05)


def test_a_sample_that_is_no_noise_changes_no_model():
    learner = Learner()
    feed(learner, 60, noise=0.02)
    known = learner.model
    learner.learn(1000.0, 1.0)
    assert learner.model is known
    assert learner.samples == 0
    assert learner.noise < 0.05, "nor is it counted as noise"


def test_what_follows_an_interruption_is_not_taken_for_what_followed():
    learner = Learner()
    feed(learner, 40)
    known = learner.model
    for _ in range(20):
        learner.interrupt()
        learner.learn(0.0, 1.0)
    assert learner.model is known


def test_it_has_too_few_samples_at_first():
    learner = Learner()
    feed(learner, ENOUGH + 1)
    assert learner.model is None


@pytest.mark.parametrize("progress", [0.0, -5.0])
def test_progress_that_is_nothing_or_less_gives_no_model(progress):
    learner = Learner()
    for k in range(200):
        learner.learn(progress, LEVELS[k % len(LEVELS)])
    assert learner.model is None
    feed(learner, 300)
    assert learner.model.gain == pytest.approx(6.4 / 0.6, rel=0.1)


@given(st.lists(st.tuples(st.floats(-1e9, 1e12), st.floats(0.0, 64.0)), max_size=80))
@settings(max_examples=60, deadline=None)
def test_whatever_it_sees_its_model_can_be_followed(samples):
    learner = Learner()
    for progress, cores in samples:
        learner.learn(progress, cores)
        if learner.model is not None:
            assert 0.0 <= learner.model.a[0] < 1.0
            assert 0.0 < learner.model.gain < float("inf")
            assert learner.noise >= 0.0
