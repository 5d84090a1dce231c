"""Admission by utilization, and which jobs are in memory."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.utilization import SWAP, Full, Remaining, choose, refusal

GAIN = 6.38 / 0.68


@pytest.mark.parametrize(
    ("left", "needed", "fraction", "slack"),
    [
        (Remaining(5000.0, 900.0, GAIN), 5000 / 900 / GAIN, 5000 / 900 / GAIN, 900 - 5000 / GAIN),
        (Remaining(5000.0, 900.0, None), 1.0, 1.0, 900.0),
        (Remaining(5000.0, 900.0, None, 2.0), 2.0, 1.0, 900.0),
        (Remaining(100.0, 10.0, 5.0, 4.0), 2.0, 0.5, 5.0),
        (Remaining(100.0, 10.0, 5.0, 1.0), 1.0, 2.0, -10.0),
        (Remaining(100.0, -1.0, 5.0), 1.0, math.inf, -21.0),
        (Remaining(0.0, 10.0, 5.0), 0.0, 0.0, 10.0),
        (Remaining(0.0, -10.0, 5.0), 0.0, 0.0, -10.0),
        (Remaining(-3.0, 10.0, 5.0), 0.0, 0.0, 10.0),
    ],
)
def test_what_is_left_says_what_is_needed(left, needed, fraction, slack):
    assert left.needed == pytest.approx(needed)
    assert left.fraction == pytest.approx(fraction)
    assert left.slack == pytest.approx(slack)


half = Remaining(50.0, 100.0, 1.0)


def test_the_bound_is_reached_exactly_and_not_exceeded():
    assert refusal(half, [half] * 13, cores=8, headroom=0.125) is None
    assert refusal(half, [half] * 14, cores=8, headroom=0.125) == Full(0.5, 0.0)


def test_a_job_whose_time_does_not_suffice_is_refused_on_an_empty_node():
    found = refusal(Remaining(150.0, 100.0, 1.0), [], cores=8, headroom=0.125)
    assert found == Full(1.5, 1.0)
    assert refusal(Remaining(100.0, 100.0, 1.0), [], cores=8, headroom=0.125) is None


def test_a_late_job_counts_with_its_largest_cap():
    assert refusal(half, [Remaining(1.0, -1.0, 1.0)] * 7, cores=8, headroom=0.125) == Full(0.5, 0.0)


@given(
    st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(-1e3, 1e4), st.floats(0.01, 10.0)), max_size=20),
    st.floats(0.0, 0.9),
)
@settings(max_examples=200, deadline=None)
def test_what_is_admitted_one_by_one_stays_within_the_bound(jobs, headroom):
    admitted = []
    for units, seconds, gain in jobs:
        job = Remaining(units, seconds, gain)
        if refusal(job, admitted, cores=4.0, headroom=headroom) is None:
            admitted.append(job)
    assert sum(one.needed for one in admitted) <= 4.0 * (1.0 - headroom) + 1e-5


def remaining(slack, seconds=1000.0):
    return Remaining(seconds - slack, seconds, 1.0)


def test_the_least_slack_is_in_memory():
    jobs = [remaining(s) for s in (500.0, 100.0, 300.0, 200.0)]
    assert choose(jobs, [False] * 4, 2) == [1, 3]
    assert choose(jobs, [False] * 4, None) == [0, 1, 2, 3]
    assert choose(jobs, [False] * 4, 9) == [0, 1, 2, 3]
    assert choose([], [], 2) == []


def test_a_running_job_is_not_swapped_for_a_hair():
    close = [remaining(200.0), remaining(200.0 - 0.9 * SWAP * 1000.0)]
    assert choose(close, [True, False], 1) == [0]
    far = [remaining(200.0), remaining(200.0 - 1.1 * SWAP * 1000.0)]
    assert choose(far, [True, False], 1) == [1]


def test_the_papers_order_takes_the_highest_need_first():
    # much time and much to do: little slack in part, much in seconds
    long, short = Remaining(9000.0, 10_000.0, 1.0), Remaining(50.0, 100.0, 1.0)
    assert choose([long, short], [False, False], 1, order="need") == [0]
    assert choose([long, short], [False, False], 1, order="slack") == [1]
    assert choose([Remaining(5.0, -1.0, 1.0), long], [False, True], 1, order="need") == [0]


@given(
    st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(-1e3, 1e4), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 5),
    st.sampled_from(["slack", "need"]),
)
@settings(max_examples=100, deadline=None)
def test_no_more_than_the_slots_and_none_twice(jobs, slots, order):
    found = choose([Remaining(u, s, 1.0) for u, s, _ in jobs], [r for *_, r in jobs], slots, order=order)
    assert len(found) == len(set(found)) == min(slots, len(jobs))
