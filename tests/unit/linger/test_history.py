"""What is kept of a node: means of the last hour, and the last episodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.linger.history import EPISODES, STEP, STEPS, Episode, History, Means

HOUR = STEP * STEPS


def test_means_of_steps_stand_in_order_and_what_was_not_seen_is_unknown():
    means = Means()
    for second in range(30):
        means.see(1000.0 + second, second / 10)
    assert means.last(1029.0, 1)[-4:] == [None, *(pytest.approx(mean, abs=1e-6) for mean in (0.45, 1.45, 2.45))]
    assert means.last(1029.0, 3)[-1] == pytest.approx(1.45, abs=1e-6)
    assert means.last(1049.0, 1)[-3:] == [pytest.approx(2.45, abs=1e-6), None, None]
    assert means.last(1029.0 + HOUR, 1) == [None] * STEPS


def test_a_pause_makes_the_steps_in_it_unknown():
    means = Means()
    means.see(0.0, 1.0)
    means.see(30.0, 0.5)
    assert means.last(30.0, 1)[-4:] == [1.0, None, None, 0.5]
    means.see(30.0 + 2 * HOUR, 0.25)
    assert means.last(30.0 + 2 * HOUR, 1) == [*[None] * (STEPS - 1), 0.25]


def test_a_clock_that_was_set_back_makes_all_unknown():
    means = Means()
    means.see(500.0, 1.0)
    means.see(100.0, 0.5)
    assert means.last(100.0, 1) == [*[None] * (STEPS - 1), 0.5]
    assert means.last(500.0, 1)[-1] is None


@given(st.lists(st.tuples(st.floats(0.1, 400.0), st.floats(0.0, 1.0)), min_size=1, max_size=40))
def test_the_last_hour_is_what_a_list_of_all_values_gives(seen):
    means, every, now = Means(), [], 0.0
    for pause, value in seen:
        now += pause
        means.see(now, value)
        every.append((now // STEP, value))
    expected = []
    for step in range(int(now // STEP) - STEPS + 1, int(now // STEP) + 1):
        values = [value for at, value in every if at == step]
        expected.append(pytest.approx(sum(values) / len(values), abs=1e-5) if values else None)
    assert means.last(now, 1) == expected


def test_an_episode_counts_when_it_is_over_and_the_last_ones_are_kept():
    history, now = History(), 0.0
    for number in range(1, EPISODES + 3):
        for age in (1.0, 60.0 + number):
            now += 1.0
            history.see(now, hosts=0.5, guests=0.4, episode=Episode(age, 0.1 * number))
        now += 1.0
        history.see(now, hosts=0.0, guests=0.9, episode=None)
    assert [one.length for one in history.episodes] == [63.0, 64.0, 65.0, 66.0, 67.0]
    assert history.episodes[-1].use == pytest.approx(0.7)
    assert history.guests.last(now, STEPS) == [pytest.approx((0.4 * 2 + 0.9) / 3, abs=0.05)]


def test_two_episodes_between_which_no_report_came_are_two():
    history = History()
    for now, age in ((0.0, 100.0), (300.0, 5.0)):
        history.see(now, hosts=0.5, guests=0.0, episode=Episode(age, 0.5))
    assert list(history.episodes) == [Episode(100.0, 0.5)]
