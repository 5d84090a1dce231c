"""The leader's clock as an agent knows it: whatever the network does, the bound holds."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.control.clock_offset import ENOUGH, FREQUENCY, KEPT, ClockOffset, RoundTrip

LEAD = 5000.0


@dataclass
class Clocks:
    """A leader's clock that is ahead of the node's, and drifts by ``ppm``."""

    ahead: float = LEAD
    ppm: float = 0.0

    def offset(self, at):
        """Return by how much the leader is ahead at a time of the node."""
        return self.ahead + self.ppm * 1e-6 * at

    def trip(self, sent, there=0.0003, held=0.0, back=0.0003):
        """Return a round trip with these delays, seconds of the node's clock."""
        left = sent + there + held
        return RoundTrip(sent, left + back, held * (1 + self.ppm * 1e-6), left + self.offset(left))


delays = st.floats(0.0, 0.5)
trips = st.lists(st.tuples(st.floats(0.01, 5.0), delays, st.floats(0.0, 10.0), delays), min_size=1, max_size=100)


@given(trips, st.floats(-50.0, 50.0), st.floats(-1e6, 1e6), st.floats(0.0, 300.0))
def test_the_bound_holds_for_any_delays_and_any_drift(happened, ppm, ahead, later):
    clocks, clock, now = Clocks(ahead, ppm), ClockOffset(), 0.0
    for pause, there, held, back in happened:
        trip = clocks.trip(now + pause, there, held, back)
        clock.take(trip)
        now = trip.received
        for at in (now, now + later, trip.sent):
            found = clock.estimate(at)
            assert abs(found.offset - clocks.offset(at)) <= found.bound + 1e-8


@given(trips)
def test_no_trip_makes_a_steady_clock_less_known(happened):
    clocks, clock, now = Clocks(), ClockOffset(), 0.0
    for pause, there, held, back in happened[:KEPT]:
        trip = clocks.trip(now + pause, there, held, back)
        now = trip.received
        before = clock.estimate(now)
        clock.take(trip)
        assert before is None or clock.estimate(now).bound <= before.bound + 1e-8


@pytest.mark.parametrize(("there", "back"), [(0.0203, 0.0003), (0.0003, 0.0203)])
def test_an_asymmetric_delay_raises_the_bound_and_the_error_stays_below_it(there, back):
    clocks, clock = Clocks(), ClockOffset()
    for second in range(KEPT):
        clock.take(clocks.trip(float(second), there, back=back))
    found = clock.estimate(59.1)
    assert 0.0103 <= found.bound < 0.0104
    assert 0.0099 < abs(found.offset - LEAD) <= found.bound


def test_one_quick_answer_among_slow_ones_counts_until_it_is_old():
    clocks, clock = Clocks(), ClockOffset()
    clock.take(clocks.trip(0.0, 0.0001, back=0.0001))
    for second in range(1, KEPT):
        clock.take(clocks.trip(float(second), 0.02, back=0.001))
    assert clock.estimate(60.0).bound == pytest.approx(0.0001 + 60 * FREQUENCY)
    clock.take(clocks.trip(60.0, 0.02, back=0.001))
    assert clock.estimate(61.0).bound > 0.0105


@pytest.mark.parametrize("ppm", [-50.0, -3.0, 0.0, 20.0, 50.0])
def test_the_drift_is_found_beneath_the_noise_of_delays(ppm):
    clocks, clock = Clocks(ppm=ppm), ClockOffset()
    for n in range(KEPT):
        slow = 0.02 if n % 7 == 3 else 0.0
        clock.take(clocks.trip(1000.0 + n, 0.0003 + 0.00005 * (n % 3) + slow, 0.001, 0.0003))
    assert clock.drift == pytest.approx(ppm, abs=1.0)


def test_few_trips_tell_no_drift():
    clocks, clock = Clocks(ppm=50.0), ClockOffset()
    for n in range(ENOUGH - 1):
        clock.take(clocks.trip(float(n), back=0.001 * n))
    assert clock.drift == 0.0


def test_trips_at_one_moment_tell_no_drift():
    clock = ClockOffset()
    for _ in range(ENOUGH):
        clock.take(Clocks().trip(7.0))
    assert clock.drift == 0.0


def test_nothing_is_known_without_a_trip():
    assert ClockOffset().estimate(0.0) is None


def test_a_trip_that_ended_before_it_began_is_left_out():
    clock = ClockOffset()
    clock.take(RoundTrip(sent=10.0, received=10.1, held=5.0, answered=70.0))
    assert clock.estimate(11.0) is None


@pytest.mark.parametrize("jump", [-3600.0, -0.01, 0.01, 3600.0])
def test_a_clock_that_stood_still_is_known_again_after_one_trip(jump):
    clock = ClockOffset()
    for second in range(5):
        clock.take(Clocks().trip(float(second)))
    clock.take(Clocks(LEAD + jump).trip(5.0))
    found = clock.estimate(5.1)
    assert abs(found.offset - LEAD - jump) <= found.bound < 0.001
