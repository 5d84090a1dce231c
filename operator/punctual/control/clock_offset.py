"""By how much the leader's clock is ahead of a node's, from the agent's reports and the leader's answers.

An answer left the leader at some time between ``sent`` + ``held`` and ``received`` of the agent's clock, and at
``answered`` of the leader's. The offset is known to half of this round trip, however the way there and the way back
share it. Both clocks are CLOCK_MONOTONIC, so setting a wall clock changes nothing. The agent uses this module, so it
needs the standard library only.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KEPT: Final = 60
"""Round trips that are kept: those of the last minute."""
FREQUENCY: Final = 50e-6
"""Frequency error of a clock that is assumed, seconds a second: what is known of the offset ages by it."""
ROUNDING: Final = 1e-6
"""Seconds to which the times of long-running clocks are exact."""
UNCERTAIN: Final = 0.1
"""Part of a slice. By a clock that may be wrong by more, no slice is moved."""
ENOUGH: Final = 10
"""Round trips that tell the drift: the delays of fewer outweigh it."""


class Offset(NamedTuple):
    """The leader's clock shows ``offset`` ± ``bound`` seconds more than the node's."""

    offset: float
    bound: float


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A report and its answer.

    ``sent`` and ``received`` are times of the node's clock. ``answered`` is when the leader sent its answer, by its own
    clock, and ``held`` are the seconds that it had the report before.
    """

    sent: float
    received: float
    held: float
    answered: float

    @property
    def left(self) -> float:
        """When the answer left the leader by the node's clock, as far as is known."""
        return (self.sent + self.held + self.received) / 2

    @property
    def delay(self) -> float:
        """Seconds under way, there and back."""
        return self.received - self.sent - self.held

    def offset(self, at: float) -> Offset:
        """Return what it tells of the offset at a time of the node's clock."""
        age = max(at - self.sent, self.received - at)
        return Offset(self.answered - self.left, max(self.delay, 0.0) / 2 + FREQUENCY * age)

    def contradicts(self, other: "RoundTrip") -> bool:
        """Return whether both cannot be true of clocks that only drift."""
        one, two = self.offset(self.received), other.offset(self.received)
        return abs(one.offset - two.offset) > one.bound + two.bound


@dataclass(slots=True)
class ClockOffset:
    """The offset of one leader's clock. Another leader, that is a higher epoch, has another clock: begin anew."""

    trips: deque[RoundTrip] = field(default_factory=lambda: deque(maxlen=KEPT))

    def take(self, trip: RoundTrip) -> None:
        """Learn from a round trip. One that was answered before it arrived, by more than its clocks drift, is left out.

        DANGER: a suspended node's clock stands still, and a time service may slew a clock faster than FREQUENCY. What
        was learned before then contradicts the newest trip, and is dropped.
        """
        if trip.delay >= -FREQUENCY * trip.held - ROUNDING:
            self.trips = deque((old for old in self.trips if not trip.contradicts(old)), KEPT)
            self.trips.append(trip)

    def estimate(self, at: float) -> Offset | None:
        """Return the offset at a time of the node's clock, by the trip that knows it best then. None: there is none."""
        return min((trip.offset(at) for trip in self.trips), key=lambda found: found.bound, default=None)

    @property
    def drift(self) -> float:
        """By how much the leader's clock is faster than the node's, millionths. 0 until there are ENOUGH trips.

        A line through the offsets by least squares: a trip counts by the inverse square of its delay.
        """
        if len(self.trips) < ENOUGH:
            return 0.0
        first = self.trips[0]
        points = [(t.left - first.left, t.answered - t.left, max(t.delay, 1e-6) ** -2) for t in self.trips]
        total = sum(weight for _, _, weight in points)
        mean = sum(at * weight for at, _, weight in points) / total
        spread = sum((at - mean) ** 2 * weight for at, _, weight in points)
        slope = sum((at - mean) * (offset - points[0][1]) * weight for at, offset, weight in points)
        return 1e6 * slope / spread if spread > 0.0 else 0.0
