"""The API server's clock, which is the clock of every promise.

The clocks of nodes and operators differ, and the API server sets the start of a deadline (creationTimestamp + the
requested deadline). The time is therefore taken from its ``Date`` headers: `ApiClient` passes in each answer, and
planner and status writers call `now`. Such a header has a resolution of one second, but each answer gives an interval
for the offset (server clock - local monotonic clock). A request sent at s and answered at r with ``Date`` D says

    D - r  <=  offset  <  D + 1 - s

and the intersection of many such intervals is as narrow as the round trip. The base is the monotonic clock, so a jump
of the local wall clock has no effect. Intervals widen by `DRIFT` with age, so the newest answers win in the end.

**One answer cannot move the clock far.** An answer that contradicts the known time by more than `HOLD` opens a doubt:
`now` continues as before, and decisions wait while `doubted`. The next answers settle it:

    one agrees with the known time      the doubt is dismissed: a clock that was set does not return its old time
    all agree with the contradiction    it is followed, after `AGREED` seconds and at least `ANSWERS` answers

If one of several servers behind an address has a wrong clock, it is therefore never followed, however often it answers.
If servers have contradicted each other recently, agreement takes `DISPUTED` seconds, because agreement by chance must
not count. Meanwhile `ask_while_doubted` asks over new connections, which reach all servers, so the doubt ends soon.

At first nothing is known, and the local wall clock is the second source. An answer within `WITNESS` of it counts at
once, another one only after agreement.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import structlog

from punctual.errors import ClusterError

DRIFT = 1e-4
"""Seconds per second by which the two clocks may diverge (twice the 50 ppm of a quartz)."""
HOLD = 5.0
"""Seconds. A smaller correction is followed at once, a larger one opens a doubt. A backward correction of up to this
size stops the clock until time has caught up."""
AGREED = 5.0
"""Seconds for which all answers must agree on another time before it counts."""
ANSWERS = 5
"""The minimum number of answers that must agree on it."""
DISPUTED = 30.0
"""Replaces `AGREED` for `MEMORY` seconds after a dismissed doubt."""
MEMORY = 600.0
WITNESS = 60.0
"""Maximum difference in seconds between the first answer and the local wall clock. It is the step back that a clock may
make while a Pool continues (`punctual.runtime.actor`)."""
ASK = 0.25
"""Seconds between two requests while the time is in doubt."""

Ending = Literal["dismissed", "followed"]

log = structlog.get_logger(__name__)


class ServerClock:
    """``now()`` is the API server's time as float seconds since 1970. Safe for use from several threads.

    Before the first answer it returns the local wall clock, and `error` is infinite.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.on_end: Callable[[Ending], None] = lambda _: None
        """Called with the outcome of each doubt, in the thread that received the answer. It must not block."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._guess = wall() - monotonic()
        self._low = self._high = 0.0  # the offset's interval, seconds
        self._since: float | None = None  # the monotonic time for which the interval holds
        self._told = float("-inf")
        self._doubt: _Doubt | None = None
        self._dismissed = float("-inf")  # monotonic time of the last dismissed doubt

    def monotonic(self) -> float:
        """Return this process's monotonic clock, in seconds: no clock that is set changes it."""
        return self._monotonic()

    def observe(self, date: float, *, sent: float, received: float) -> None:
        """Record an answer: its ``Date`` in epoch seconds, and the monotonic times of request and answer."""
        low, high = date - received, date + 1 - sent
        with self._lock:
            ahead = self._ahead(low, high)
            if ahead == 0.0:
                self._agree(low, high, received)
            else:
                self._contradict(low, high, received, ahead)

    def _ahead(self, low: float, high: float) -> float:
        """Return the seconds by which an answer contradicts the known time. 0: no contradiction."""
        if self._since is None:
            known_low = known_high = self._guess
            allowed = WITNESS
        else:
            known_low, known_high, allowed = self._low, self._high, HOLD
        if low - known_high > allowed:
            return low - known_high
        if known_low - high > allowed:
            return high - known_low
        return 0.0

    def _agree(self, low: float, high: float, received: float) -> None:
        if self._doubt is not None:
            self._dismissed = received
            self._end("dismissed")
        if self._since is not None:
            slack = DRIFT * abs(received - self._since)
            both = max(low, self._low - slack), min(high, self._high + slack)
            if both[0] <= both[1]:  # else another server answered with a slightly different clock: start again
                low, high = both
        self._low, self._high, self._since = low, high, received

    def _contradict(self, low: float, high: float, received: float, ahead: float) -> None:
        disputed = received - self._dismissed < MEMORY
        doubt = self._doubt
        if doubt is None or not doubt.joined_by(low, high):
            if doubt is None and not disputed:  # log one line only for servers that continue to contradict each other
                log.warning("clock_doubted", ahead=round(ahead, 1))
            self._doubt = _Doubt(low, high, received, doubt.opened if doubt else received)
            return
        doubt.answers += 1
        if doubt.answers >= ANSWERS and received - doubt.since >= (DISPUTED if disputed else AGREED):
            log.warning("clock_followed", ahead=round(ahead, 1), doubted=round(received - doubt.opened, 1))
            self._low, self._high, self._since = low, high, received
            self._end("followed")

    def _end(self, how: Ending) -> None:
        self._doubt = None
        self.on_end(how)

    def now(self) -> float:
        """Return the API server's time in epoch seconds.

        It never runs backwards, except when the server's clock was set back.
        """
        with self._lock:
            offset = self._guess if self._since is None else (self._low + self._high) / 2
            now = self._monotonic() + offset
            if not 0 < self._told - now <= HOLD:
                self._told = now
            return self._told

    @property
    def doubted(self) -> bool:
        """Whether answers contradict each other about the time. A decision made now may be wrong for good."""
        return self._doubt is not None

    @property
    def doubt(self) -> float:
        """Seconds since the time became doubtful. 0 while it is not."""
        doubt = self._doubt
        return 0.0 if doubt is None else self._monotonic() - doubt.opened

    @property
    def error(self) -> float:
        """Maximum error of ``now()`` in seconds, unless it is `doubted`."""
        with self._lock:
            if self._since is None:
                return float("inf")
            return (self._high - self._low) / 2 + DRIFT * (self._monotonic() - self._since)


class _Doubt:
    """A time that contradicts the known time, and the answers that agree on it."""

    def __init__(self, low: float, high: float, since: float, opened: float) -> None:
        self.low, self.high = low, high  # the offset's interval, by the first answer
        self.since = since  # of the first answer
        self.opened = opened  # of the first answer of all that contradicted the known time
        self.answers = 1

    def joined_by(self, low: float, high: float) -> bool:
        """Return whether another answer gives the same time."""
        return low - self.high <= HOLD and self.low - high <= HOLD


async def ask_while_doubted(clock: ServerClock, ask: Callable[[], Awaitable[object]]) -> None:
    """Request the time every `ASK` seconds while it is in doubt, until cancelled.

    ``ask()`` makes one call.
    """
    while True:
        await asyncio.sleep(ASK)
        if clock.doubted:
            with contextlib.suppress(ClusterError):
                await ask()
