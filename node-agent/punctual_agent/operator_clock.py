"""The leader's clock, as the exchange of reports and set points tells of it."""

from punctual.control.clock_offset import ClockOffset, Offset, RoundTrip
from punctual_agent.operator_client import Answered


class OperatorClock:
    """The clock of the newest leader. A leader with a higher epoch has another one."""

    def __init__(self) -> None:
        self.epoch = 0
        self._offset = ClockOffset()

    def hear(self, answered: Answered) -> None:
        """Learn from an answer that the agent accepted."""
        points = answered.points
        if points.epoch > self.epoch:
            self.epoch, self._offset = points.epoch, ClockOffset()
        if points.sent is not None:  # None: an operator of the release before
            self._offset.take(RoundTrip(answered.sent, answered.received, points.held, points.sent))

    def at(self, now: float) -> Offset | None:
        """Return by how much it is ahead of CLOCK_MONOTONIC at a time of that. None: it is not known yet."""
        return self._offset.estimate(now)

    @property
    def drift(self) -> float:
        """By how much it is faster than the node's, millionths."""
        return self._offset.drift
