"""The API server's clock, which is the clock of every promise.

Nodes and operators disagree about the time, and a deadline is written by the API server (creationTimestamp + the
deadline asked for). So time is told by its ``Date`` headers: `ApiClient` hands in each answer, planner and status
writers ask `now`. Such a header has a resolution of one second, but each answer gives an interval that the offset
(server clock - local monotonic clock) must lie in: a request sent at s and answered at r with ``Date`` D says

    D - r  <=  offset  <  D + 1 - s

and the intersection of many such intervals is as narrow as the round trip. The base is the monotonic clock: a jump of
the local wall clock does no harm. Intervals widen by `DRIFT` with age, so that the newest answers win in the end.
"""

import threading
import time
from collections.abc import Callable

DRIFT = 1e-4
"""Seconds by which the two clocks may part per second (a quartz's 50 ppm, twice)."""
HOLD = 5.0
"""A correction backwards of up to so many seconds holds the clock still; a larger one is followed."""


class ServerClock:
    """``now()`` is the API server's time as float seconds since 1970. Safe to use from several threads.

    Before the first answer it tells the local wall clock, and `error` is infinite.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._guess = wall() - monotonic()
        self._low = self._high = 0.0  # the offset's interval, seconds
        self._since: float | None = None  # monotonic time that the interval holds for
        self._told = float("-inf")

    def observe(self, date: float, *, sent: float, received: float) -> None:
        """Take in an answer: its ``Date`` in epoch seconds, and when it was asked for and came (monotonic)."""
        low, high = date - received, date + 1 - sent
        with self._lock:
            if self._since is not None:
                slack = DRIFT * abs(received - self._since)
                low, high = max(low, self._low - slack), min(high, self._high + slack)
                if low > high:  # a clock was set, or another server with another clock answered: begin anew
                    low, high = date - received, date + 1 - sent
            self._low, self._high, self._since = low, high, received

    def now(self) -> float:
        """Tell the API server's time in epoch seconds; never earlier than told before, but for a clock set back."""
        with self._lock:
            offset = self._guess if self._since is None else (self._low + self._high) / 2
            now = self._monotonic() + offset
            if not 0 < self._told - now <= HOLD:
                self._told = now
            return self._told

    @property
    def error(self) -> float:
        """Most seconds by which ``now()`` can be wrong."""
        with self._lock:
            if self._since is None:
                return float("inf")
            return (self._high - self._low) / 2 + DRIFT * (self._monotonic() - self._since)
