"""The calendar against a list of windows and a look at every moment."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.placement.calendar import BookedSpan, Calendar

windows = st.builds(
    lambda start, length, n: BookedSpan(float(start), float(start + length), n),
    st.integers(0, 30),
    st.integers(1, 12),
    st.integers(1, 4),
)


def booked(windows, at):
    return sum(w.processors for w in windows if w.start <= at < w.end)


@given(st.lists(windows, max_size=12), st.booleans(), st.integers(-3, 45), st.integers(1, 15))
def test_the_most_booked_is_what_a_look_at_every_moment_finds(those, at_once, start, length):
    calendar = Calendar(those if at_once else ())
    for window in () if at_once else those:
        calendar.book(window)
    calendar.check()
    # windows have whole ends: half a second later stands for all of a second
    expected = max(booked(those, start + k + 0.5) for k in range(length))
    assert calendar.most(float(start), float(start + length)) == expected
    assert calendar.most(start + 0.25, start + 0.75) == booked(those, start + 0.5)


@given(st.lists(windows, max_size=10), st.data())
def test_what_is_released_was_never_booked(those, data):
    calendar = Calendar(those)
    gone = data.draw(st.lists(st.sampled_from(range(len(those))), unique=True)) if those else []
    for i in gone:
        calendar.release(those[i])
        calendar.check()
    left = [w for i, w in enumerate(those) if i not in gone]
    assert calendar.windows() == Calendar(left).windows()


@given(st.lists(windows, max_size=8), st.integers(0, 45))
def test_what_is_forgotten_lies_before(those, until):
    calendar = Calendar(those)
    calendar.forget(float(until))
    for at in range(until, 50):
        assert calendar.most(float(at), at + 1.0) == booked(those, at + 0.5)


@given(st.lists(windows, max_size=8), st.integers(1, 6), st.integers(1, 12), st.integers(0, 40))
def test_the_next_window_is_the_first_that_does(those, n, length, not_before):
    calendar = Calendar(those)
    found = calendar.next_window(n, float(length), capacity=5, not_before=float(not_before))
    if n > 5:
        assert found is None
        return
    # some edge, or the time asked for, is the earliest start
    candidates = sorted({float(not_before), *(w.end for w in those if w.end > not_before)})
    assert found == next(t for t in candidates if calendar.most(t, t + length) <= 5 - n)


@pytest.mark.parametrize(
    "window",
    [BookedSpan(1, 1, 1), BookedSpan(2, 1, 1), BookedSpan(1, inf, 1), BookedSpan(-inf, 1, 1), BookedSpan(0, 1, 0)],
)
def test_a_window_without_length_or_processors_is_refused(window):
    with pytest.raises(ValueError, match="window"):
        Calendar([window])
    with pytest.raises(ValueError, match="window"):
        Calendar().book(window)
