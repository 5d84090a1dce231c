"""A token bucket: a burst at once, then a fixed number per second.

The clock is an argument. The bucket never waits.
"""

from punctual.runtime.clock import ServerClock


class Bucket:
    """Holds at most ``burst`` tokens and gains ``rate`` per second."""

    __slots__ = ("_at", "_burst", "_clock", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, clock: ServerClock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock.monotonic()

    def take(self) -> bool:
        """Take a token if there is one. Returns whether there was."""
        if self.delay() > 0:
            return False
        self._tokens -= 1
        return True

    def delay(self) -> float:
        """Seconds until the next token. 0 if there is one now."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        # a rounding error must not delay a waiter by 0 s for ever
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate
