"""The API server's clock, which is the clock of every promise.

Nodes and operators disagree about the time, and a deadline is written by the API server (creationTimestamp + the
deadline asked for). So time is told by its ``Date`` headers: `ApiClient` hands in each answer, planner and status
writers ask `now`. Such a header has a resolution of one second, but each answer gives an interval that the offset
(server clock - local monotonic clock) must lie in: a request sent at s and answered at r with ``Date`` D says

    D - r  <=  offset  <  D + 1 - s

and the intersection of many such intervals is as narrow as the round trip. The base is the monotonic clock: a jump of
the local wall clock does no harm. Intervals widen by `DRIFT` with age, so that the newest answers win in the end.

**One answer cannot move it far.** An answer that contradicts what is known by more than `HOLD` opens a doubt: `now`
goes on as before, and whoever decides waits while `doubted`. The next answers settle it:

    one agrees with what was known      the doubt is dismissed: a clock that was set does not tell its old time again
    all agree with the contradiction    it is followed, after `AGREED` seconds and at least `ANSWERS` answers

So of several servers behind one address the one with a wrong clock is never followed, however often it answers.
Where servers have contradicted each other lately, agreement takes `DISPUTED` seconds: chance must not look like it.
`ask_while_doubted` asks over new connections meanwhile, which lead to all servers, so the doubt ends soon.

At first nothing is known. Then the local wall clock is the second witness: an answer within `WITNESS` of it counts at
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
"""Seconds by which the two clocks may part per second (a quartz's 50 ppm, twice)."""
HOLD = 5.0
"""A correction of up to so many seconds is followed at once, a larger one opens a doubt. A correction backwards of up
to so many seconds holds the clock still."""
AGREED = 5.0
"""Seconds over which all answers must agree on another time until that counts."""
ANSWERS = 5
"""Answers that must agree on it, at least."""
DISPUTED = 30.0
"""The same as `AGREED` for `MEMORY` seconds after a doubt that was dismissed."""
MEMORY = 600.0
WITNESS = 60.0
"""Seconds by which the first answer and the local wall clock may differ: as far as a clock may be set back while a
Pool goes on (`punctual.runtime.actor`)."""
ASK = 0.25
"""Seconds between questions while the time is in doubt."""

Ending = Literal["dismissed", "followed"]

log = structlog.get_logger(__name__)


class ServerClock:
    """``now()`` is the API server's time as float seconds since 1970. Safe to use from several threads.

    Before the first answer it tells the local wall clock, and `error` is infinite.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.on_end: Callable[[Ending], None] = lambda _: None
        """Hears how each doubt ended, in the thread that brought the answer; must not block."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._guess = wall() - monotonic()
        self._low = self._high = 0.0  # the offset's interval, seconds
        self._since: float | None = None  # monotonic time that the interval holds for
        self._told = float("-inf")
        self._doubt: _Doubt | None = None
        self._dismissed = float("-inf")  # monotonic time at which a doubt was last dismissed

    def observe(self, date: float, *, sent: float, received: float) -> None:
        """Take in an answer: its ``Date`` in epoch seconds, and when it was asked for and came (monotonic)."""
        low, high = date - received, date + 1 - sent
        with self._lock:
            ahead = self._ahead(low, high)
            if ahead == 0.0:
                self._agree(low, high, received)
            else:
                self._contradict(low, high, received, ahead)

    def _ahead(self, low: float, high: float) -> float:
        """Return by how many seconds an answer contradicts what is known; 0: it does not."""
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
            if both[0] <= both[1]:  # else another server answered, whose clock differs a little: begin anew
                low, high = both
        self._low, self._high, self._since = low, high, received

    def _contradict(self, low: float, high: float, received: float, ahead: float) -> None:
        disputed = received - self._dismissed < MEMORY
        doubt = self._doubt
        if doubt is None or not doubt.joined_by(low, high):
            if doubt is None and not disputed:  # one line for servers that go on contradicting each other
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
        """Tell the API server's time in epoch seconds; never earlier than told before, but for a clock set back."""
        with self._lock:
            offset = self._guess if self._since is None else (self._low + self._high) / 2
            now = self._monotonic() + offset
            if not 0 < self._told - now <= HOLD:
                self._told = now
            return self._told

    @property
    def doubted(self) -> bool:
        """Whether answers contradict each other about the time: what is decided now may be wrong for good."""
        return self._doubt is not None

    @property
    def doubt(self) -> float:
        """Seconds since the time is in doubt; 0 while it is not."""
        doubt = self._doubt
        return 0.0 if doubt is None else self._monotonic() - doubt.opened

    @property
    def error(self) -> float:
        """Most seconds by which ``now()`` can be wrong, unless it is `doubted`."""
        with self._lock:
            if self._since is None:
                return float("inf")
            return (self._high - self._low) / 2 + DRIFT * (self._monotonic() - self._since)


class _Doubt:
    """A time that contradicts what is known, and the answers that agree on it."""

    def __init__(self, low: float, high: float, since: float, opened: float) -> None:
        self.low, self.high = low, high  # the offset's interval, by the first of them
        self.since = since  # of the first of them
        self.opened = opened  # of the first answer of all that contradicted what is known
        self.answers = 1

    def joined_by(self, low: float, high: float) -> bool:
        """Whether another answer tells the same time."""
        return low - self.high <= HOLD and self.low - high <= HOLD


async def ask_while_doubted(clock: ServerClock, ask: Callable[[], Awaitable[object]]) -> None:
    """Ask for the time, every `ASK` seconds while it is in doubt, until cancelled; ``ask()`` makes one call."""
    while True:
        await asyncio.sleep(ASK)
        if clock.doubted:
            with contextlib.suppress(ClusterError):
                await ask()
