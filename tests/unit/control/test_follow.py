"""A chunk kept on its line, in its loop: no wind-up, no jump, and whatever its progress file and its clock say."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.adaptive import Adaptive
from punctual.control.follow import Follow, Line
from punctual.control.governor import Sample
from punctual.control.model import Model
from punctual.control.pi import Gains, Tuned
from punctual.control.tuning import tune

BLAST = Model.first_order(0.32, 6.38)


def follower(units=1000.0, seconds=300.0, *, model=BLAST, low=0.0, high=1.0):
    return Follow(Line(units, seconds), model, tune(model), low, high)


class Chunk:
    """A process, and the governor that steers it."""

    def __init__(self, governor, model=BLAST, *, noise=0.0, delay=0, period=1.0):
        self.governor, self.a, self.b, self.noise, self.period = governor, model.a[0], model.b[-1], noise, period
        self.p = self.expected = self.done = 0.0
        self.waiting = [0.0] * (delay + model.delay)
        self.random = random.Random(1)
        self.seen, self.adopted = [], []

    def run(self, periods, factor=1.0, limit=math.inf, *, says=lambda units: units):
        """Run some periods; return expected progress over reference, one per period."""
        ratios = []
        for _ in range(periods):
            if getattr(self.governor, "untuned", None):
                self.adopted.append(self.governor.untuned)
                self.governor.adopt(tune(self.governor.untuned, noise=self.governor.noise))
            cap = self.governor.wish().cap
            assert self.governor.low <= cap <= self.governor.high
            reference, cores = self.governor.reference, min(cap, limit)
            self.waiting.append(cores)
            drive = self.b * self.waiting.pop(0) * factor
            before = self.a * self.p + drive
            self.expected = self.a * self.expected + drive
            self.p = max(0.0, before * (1.0 + self.noise * self.random.gauss(0.0, 1.0)))
            self.done += self.p
            self.seen.append(cap)
            self.governor.observe(Sample(self.period, says(self.p), cores, cores))
            ratios.append(self.expected / reference if reference else math.inf)
        return ratios


def test_it_is_on_its_line_in_the_first_period_that_the_cap_allows():
    for delay in (0, 1, 2):
        model = Model.first_order(0.32, 6.38, delay=delay)
        ratios = Chunk(follower(model=model), model).run(50)
        assert all(abs(one - 1.0) < 0.05 for one in ratios[delay:])


@pytest.mark.parametrize("delay", [1, 2])
def test_the_first_periods_show_a_delay_that_the_profile_does_not_know(delay):
    governor = follower()
    ratios = Chunk(governor, delay=delay).run(80)
    assert governor.model.delay == delay
    assert all(abs(one - 1.0) < 0.05 for one in ratios[delay:])


def test_a_chunk_that_works_from_the_first_period_on_has_no_delay():
    governor = follower()
    Chunk(governor, noise=0.05).run(50)
    assert governor.model.delay == 0


def test_the_adaptive_follower_wants_new_gains_for_a_delay_that_showed():
    governor = Adaptive(Line(1000.0, 300.0), 0.0, 1.0, BLAST)
    chunk = Chunk(governor, delay=2, noise=0.05)
    chunk.run(4)
    assert [one.delay for one in chunk.adopted] == [0, 1, 2]
    assert all(abs(one - 1.0) < 0.1 for one in chunk.run(100))


def test_a_node_that_is_half_as_fast_needs_twice_the_cap():
    governor = follower()
    chunk = Chunk(governor)
    before = chunk.run(40) and chunk.seen[-1]
    ratios = chunk.run(40, factor=0.5)
    assert max(k for k, one in enumerate(ratios) if abs(one - 1.0) > 0.05) < 20
    assert chunk.seen[-1] == pytest.approx(
        2.0 * before * governor.line.units / governor.line.seconds * 300 / 1000, rel=0.1
    )
    again = chunk.run(40)
    assert max(k for k, one in enumerate(again) if abs(one - 1.0) > 0.05) < 20


@pytest.mark.parametrize(("noise", "band"), [(0.0, 0.05), (0.05, 0.1)])
@pytest.mark.parametrize("a", [0.0, 0.2, 0.4, 0.6])
def test_a_node_that_is_half_as_fast_is_not_taken_for_a_slow_process(a, noise, band):
    model = Model.first_order(a, 5.0)
    chunk = Chunk(Adaptive(Line(0.35 * model.gain * 600, 600.0), 0.0, 1.0, model), model, noise=noise)
    chunk.run(150)
    slower, given_back = chunk.run(150, factor=0.5), chunk.run(150)
    for ratios in (slower[40:], given_back[40:]):
        assert all(abs(one - 1.0) < band for one in ratios)
    assert all(one.a[0] < a + 0.2 for one in chunk.adopted), "nor is its controller tuned for one"


@pytest.mark.parametrize("governor", [follower(), Adaptive(Line(1000.0, 300.0), 0.0, 1.0, BLAST)])
def test_what_others_took_for_long_leaves_nothing_behind(governor):
    chunk = Chunk(governor)
    chunk.run(20)
    chunk.run(100, limit=0.1)
    ratios = chunk.run(20)
    # at once means within what a cap of 1 and the model's memory allow; nothing is above the line
    assert all(abs(one - 1.0) < 0.05 for one in ratios[2:])
    assert max(ratios) < 1.05


def test_a_line_that_is_out_of_reach_leaves_nothing_behind():
    governor = follower(units=5000.0)
    chunk = Chunk(governor)
    chunk.run(100)
    assert governor.wish().reason == "saturated"
    assert chunk.seen[-1] == 1.0
    governor.line.units -= 4000.0  # the chunk was cut
    assert all(abs(one - 1.0) < 0.05 for one in chunk.run(40)[3:])


def test_another_model_takes_over_without_a_jump():
    for wrong in (0.5, 1.0, 2.0):
        governor = follower(model=Model.first_order(0.32, 6.38 * wrong))
        chunk = Chunk(governor)
        chunk.run(100)
        before = chunk.seen[-1]
        governor.adopt(BLAST, tune(BLAST))
        assert governor.factor == pytest.approx(1.0, rel=0.02)
        chunk.run(1)
        assert chunk.seen[-1] == pytest.approx(before, rel=0.02)
        assert all(abs(one - 1.0) < 0.02 for one in chunk.run(50))


def test_a_suspended_chunk_begins_at_rest_again():
    governor = follower()
    chunk = Chunk(governor)
    chunk.run(50)
    factor = governor.factor
    governor.rest()
    governor.line.advance(0.0, 30.0)
    chunk.p = chunk.expected = 0.0
    ratios = chunk.run(30)
    assert all(abs(one - 1.0) < 0.05 for one in ratios)
    assert governor.factor == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize(
    "says",
    [
        lambda _: 0.0,  # stopped
        lambda _: -50.0,  # goes back
        lambda _: 1e9,  # jumps
        lambda _: 1e-300,
    ],
    ids=["stopped", "back", "jump", "tiny"],
)
def test_wrong_progress_leaves_caps_in_their_range_and_is_overcome(says):
    governor = follower(units=5e10, seconds=1e11)
    governor.line = Line(1000.0, 300.0)
    chunk = Chunk(governor)
    chunk.run(50)
    chunk.run(3, says=says)
    assert 0.0 <= governor.wish().cap <= 1.0
    governor.line = Line(1000.0, 300.0)
    ratios = chunk.run(120)
    assert all(abs(one - 1.0) < 0.05 for one in ratios[60:])


def test_no_progress_for_long_asks_for_all_and_what_comes_then_is_used():
    governor = follower()
    chunk = Chunk(governor)
    chunk.run(20)
    chunk.run(100, factor=0.0)
    assert chunk.seen[-1] == 1.0
    governor.line = Line(600.0, 180.0)
    assert all(abs(one - 1.0) < 0.05 for one in chunk.run(100)[60:])


def test_a_line_that_is_over_and_work_that_is_done():
    governor = follower(units=10.0, seconds=-5.0)
    governor.reference = 1.0
    assert governor.wish() == (governor.wish().__class__)(1.0, "late")
    done = follower(units=0.0)
    assert done.wish().cap == 0.0
    done.observe(Sample(1.0, 0.0, 0.0, 0.0))
    assert done.wish().cap == 0.0
    assert follower(units=5.0, seconds=0.0).wish().cap == pytest.approx(5.0 / 6.38)


def test_a_range_of_one_cap_gives_that_cap():
    chunk = Chunk(follower(low=0.4, high=0.4))
    chunk.run(50)
    assert set(chunk.seen) == {0.4}


def test_periods_that_slip_do_not_move_the_cap():
    governor = follower()
    expected, rng = 0.0, random.Random(2)
    for _ in range(80):
        cap, dt = governor.wish().cap, rng.uniform(0.5, 3.0)
        settled = 6.38 * cap / 0.68
        expected = settled + (expected - settled) * 0.32**dt
        governor.observe(Sample(dt, expected * dt, cap, cap))
        if governor.line.seconds > 20:
            assert governor.factor == pytest.approx(1.0, abs=0.1)


def test_a_period_without_length_changes_nothing():
    governor = follower()
    governor.wish()
    before = governor.line.units, governor.line.seconds, governor.factor
    governor.observe(Sample(0.0, 0.0, 0.0, 0.0))
    assert (governor.line.units, governor.line.seconds, governor.factor) == before
    adaptive = Adaptive(Line(1000.0, 300.0), 0.0, 1.0)
    adaptive.observe(Sample(0.0, 0.0, 0.0, 0.0))
    assert adaptive.needed is None
    assert 0.0 <= adaptive.wish().cap <= 1.0


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 10.0),
            st.floats(-1e6, 1e9),
            st.floats(0.0, 4.0),
            st.floats(0.0, 4.0),
        ),
        max_size=60,
    ),
    st.builds(Line, st.floats(0.0, 1e9), st.floats(-100.0, 1e6)),
    st.floats(0.0, 1.0),
    st.floats(0.0, 3.0),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_measured_the_cap_is_a_number_in_its_range(samples, line, low, more, known):
    high = low + more
    governor = Adaptive(line, low, high, BLAST if known else None)
    for sample in samples:
        wish = governor.wish()
        assert low <= wish.cap <= high
        governor.observe(Sample(*sample))
        if governor.untuned is not None:
            governor.adopt(Tuned(gains=Gains(0.1, 0.05), alpha=0.8))
    assert low <= governor.wish().cap <= high


@pytest.mark.parametrize("a", [0.0, 0.32, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_an_unknown_chunk_is_on_its_line_after_it_has_been_learned(a, noise):
    model = Model.first_order(a, 6.38)
    governor = Adaptive(Line(0.5 * model.gain * 500, 500.0), 0.0, 1.0)
    chunk = Chunk(governor, model, noise=noise)
    chunk.run(20)
    assert governor.needed is not None
    ratios = chunk.run(250)
    assert sum(abs(one - 1.0) > 0.05 for one in ratios[6:]) <= 12
    assert chunk.run(200)[0] < 1.1


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("a", [0.3, 0.6, 0.8, 0.9])
def test_a_chunk_whose_model_shows_exactly_is_at_once_on_its_line_however_late_its_cap_acts(a, delay):
    """The caps of exploring act still when the model is there."""
    model = Model.first_order(a, 1.0, delay=delay)
    ratios = Chunk(Adaptive(Line(0.6 * model.gain * 200, 200.0), 0.0, 1.0), model).run(150)
    first = next(k for k, one in enumerate(ratios[20:]) if abs(one - 1.0) <= 0.05)
    assert first <= 8
    assert all(abs(one - 1.0) <= 0.01 for one in ratios[20 + first + 1 :])


def test_a_model_that_fits_is_not_replaced_by_what_noise_suggests():
    model = Model.first_order(0.79, 1.9)
    chunk = Chunk(Adaptive(Line(0.6 * model.gain * 500, 500.0), 0.0, 1.0, model), model, noise=0.05)
    chunk.run(400)
    assert len(chunk.adopted) == 1


def test_a_model_that_does_not_fit_is_replaced_by_what_was_learned():
    wrong = Model.first_order(0.3, 20.0)
    chunk = Chunk(Adaptive(Line(0.5 * 9.4 * 600, 600.0), 0.0, 1.0, wrong), BLAST, noise=0.02)
    chunk.run(450)
    assert chunk.adopted[-1].gain == pytest.approx(BLAST.gain, rel=0.1)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(1.0, 1.0, 5e-324, 1.0),
        Sample(1.0, -1000.0, 0.5, 0.5),
        Sample(5e-324, 5.0, 1.0, 1.0),
        Sample(1.0, 5e-324, 1.0, 1.0),
    ],
    ids=["no CPU", "it goes back all the time", "a period of almost no length", "almost no progress"],
)
def test_samples_that_say_nothing_give_no_model(sample):
    governor = Adaptive(Line(1000.0, 300.0), 0.0, 1.0)
    for _ in range(60):
        governor.observe(sample)
        assert governor.needed is None
    Chunk(governor, noise=0.01).run(100)
    assert governor.needed is not None
