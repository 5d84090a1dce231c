"""Work at a rate that changes: what is done, and when it ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.sim.work import Work


@pytest.mark.parametrize(
    ("changes", "now", "done", "ends"),
    [
        ((), 4.0, 0, 25.0),  # it begins at 5
        ((), 9.0, 2, 25.0),
        (((9.0, 0.5),), 13.0, 3, 41.0),
        (((9.0, 2.0),), 13.0, 6, 17.0),
        (((9.0, 0.0),), 99.0, 2, math.inf),
        (((9.0, 0.0), (20.0, 1.0)), 22.0, 3, 36.0),
        (((1.0, 0.5),), 9.0, 1, 45.0),  # before it begins
        (((30.0, 0.0),), 40.0, 10, 30.0),  # it is done
    ],
)
def test_what_is_done_and_when_it_ends(changes, now, done, ends):
    work = Work(10, 2.0, 5.0)
    for at, rate in changes:
        work.set_rate(at, rate)
    assert (work.done(now), work.ends) == (done, ends)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.sampled_from([0.0, 0.25, 1.0, 1.5, 3.0])), max_size=6).map(sorted),
    st.integers(1, 50),
)
def test_units_never_become_fewer_and_all_are_done_at_the_end(changes, size):
    work, before = Work(size, 2.0, 5.0), 0
    for at, rate in changes:
        assert work.done(at) >= before
        work.set_rate(at, rate)
        assert work.done(at) >= before
        before = work.done(at)
    if math.isfinite(work.ends):
        assert work.done(work.ends) == size
        assert work.done(work.ends - 0.01) < size or work.ends <= changes[-1][0]
