"""When a guest moves: the paper's cost and benefit, its policies, and what makes a node busy."""

from math import inf, isclose

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from punctual.linger.cost import Move
from punctual.linger.episode import Interval, Watch
from punctual.linger.policy import decide, lingers

SPEEDS = st.floats(0.01, 1.0)


@pytest.mark.parametrize(
    ("h", "l", "times"), [(0.5, 0.0, 2.0), (0.3, 0.05, 3.8), (0.2, 0.1, 9.0), (0.9, 0.1, 1.125), (1.0, 0.3, 1.0)]
)
def test_the_linger_time_is_that_of_the_paper(h, l, times):  # noqa: E741  the paper's letters
    assert isclose(Move(1.0 - h, 1.0 - l, 21.3).linger, times * 21.3)


@pytest.mark.parametrize("h", [0.0, 0.2, 0.3])
def test_no_guest_moves_to_a_node_that_is_no_less_used(h):
    move = Move(1.0 - h, 0.7, 1.0)
    assert move.linger == inf
    assert not move.pays(1e9)


@given(SPEEDS, SPEEDS, st.floats(0.1, 100.0), st.floats(0.0, 50.0), st.floats(0.1, 5000.0))
def test_a_move_pays_if_the_episode_lasts_as_long_again(stay, go, pause, lost, age):
    """The rule is 3.4: compare the work that is done until the episode ends, with a move now and without."""
    move = Move(stay, go, pause, lost)
    assume(go > stay)
    gained = go * (age - move.cost) - stay * age
    assume(abs(gained) > 1e-6 * go * (age + move.cost))
    assert move.pays(age) == (gained > 0.0)
    assert isclose(move.gain(age), gained / go, rel_tol=1e-6, abs_tol=1e-6)


@given(SPEEDS, SPEEDS, st.floats(0.1, 100.0), st.floats(0.1, 1e5))
def test_a_guest_that_is_done_sooner_where_it_is_stays(stay, go, pause, left):
    assume(go > stay)
    here, there = left / stay, pause + left / go
    assume(abs(here - there) > 1e-6 * here)
    assert Move(stay, go, pause, left=left).pays(1e12) == (there < here)


GOOD = Move(0.2, 1.0, 10.0)
FUTILE = Move(0.9, 0.9, 10.0)


@pytest.mark.parametrize(
    ("policy", "age", "move", "step"),
    [
        ("LingerLonger", None, GOOD, "Run"),
        ("LingerLonger", 12.0, GOOD, "Run"),
        ("LingerLonger", 12.5, GOOD, "Move"),
        ("LingerLonger", 1e6, None, "Run"),
        ("LingerLonger", 1e6, FUTILE, "Run"),
        ("LingerForever", 1e6, GOOD, "Run"),
        ("ImmediateEviction", None, GOOD, "Run"),
        ("ImmediateEviction", 1.0, FUTILE, "Move"),
        ("ImmediateEviction", 1.0, None, "Queue"),
        ("PauseAndMigrate", None, None, "Run"),
        ("PauseAndMigrate", 599.0, GOOD, "Pause"),
        ("PauseAndMigrate", 600.0, GOOD, "Move"),
        ("PauseAndMigrate", 900.0, None, "Pause"),
    ],
)
def test_each_policy_does_what_the_paper_says(policy, age, move, step):
    assert decide(policy, age, move).step == step


def test_a_decision_carries_its_numbers():
    said = decide("LingerLonger", 3.0, GOOD)
    assert (said.age, said.linger) == (3.0, GOOD.linger)
    assert [lingers(p) for p in ("LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_node_is_busy_at_once_and_idle_after_a_quiet_minute():
    watch = Watch(quiet=100.0)
    story = [(0.02, False), (0.5, True), *[(0.0, True)] * 29, (0.0, False)]
    for use, busy in story:
        watch.see(2.0, use)
        assert watch.now.busy is busy
    assert watch.now.age == 2.0


def test_an_interval_knows_its_age_and_its_mean_use():
    interval = Interval()
    assert interval.use == 0.0
    for seconds, use in ((2.0, 0.0), (4.0, 0.9)):
        interval.pass_by(seconds, use, busy=True)
    assert (interval.age, interval.use) == (6.0, pytest.approx(0.6))
    interval.pass_by(1.0, 0.1, busy=False)
    assert (interval.age, interval.use, interval.busy) == (1.0, pytest.approx(0.1), False)
