"""The token bucket: so many at once, so many per second after that."""

import pytest
from clocks import clock

from punctual.runtime.bucket import Bucket


def test_a_burst_then_a_steady_rate():
    now = 0.0
    bucket = Bucket(10.0, 3.0, clock(lambda: now))
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    assert bucket.delay() == pytest.approx(0.1)
    now = 0.1
    assert [bucket.take(), bucket.take()] == [True, False]
    now = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_waiting_as_long_as_it_says_is_enough_however_the_floats_fall():
    now = 1e6
    bucket = Bucket(3.0, 1.0, clock(lambda: now))
    for _ in range(1000):
        now += bucket.delay()
        assert bucket.take()
