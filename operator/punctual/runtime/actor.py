"""Actor of one core, such as a Pool: wakes on mail or a tick, steps its core and passes the actions on.

It owns the core, so nothing else may access it. It makes no decisions and performs no I/O: :class:`Executor` carries
actions out and reports when the required records are written. A core bounds its own work per step. While it has a
backlog, the actor steps again at once, but yields to the event loop in between, so that reports and writes continue in
a burst.

Any error ends the actor, and with it the leader's term. All decisions are recorded, so a new leader continues from
there; continuing with a core that may be inconsistent is dangerous. A clock that is set back far ends the actor, too: a
Pool waits for times that would not come for long, and a new Pool has no such times.

While the clock is in doubt, nothing is decided: a step at a wrong time would break every promise permanently. Mail
waits in the mailbox, newest per key.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from punctual.errors import ClusterError
from punctual.runtime.mailbox import Mailbox

E = TypeVar("E")
A = TypeVar("A")
E_contra = TypeVar("E_contra", contravariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

TICK: Final = 0.25
"""Seconds between steps without events: chunks start and jobs overrun by the clock alone."""
SET_BACK: Final = 60.0
"""Maximum seconds by which the clock may be set back: the Pool's timers are delayed by as much at most."""


class Core(Protocol[E_contra, A_co]):
    """What decides: events in, actions out."""

    @property
    def backlog(self) -> int:
        """Decisions that wait for a further step."""

    def restore(self, now: float, events: Sequence[E_contra]) -> Sequence[A_co]:
        """Read the recorded state; return the stamps of the new epoch."""

    def step(self, now: float, events: Sequence[E_contra]) -> Sequence[A_co]:
        """Process events, make a bounded number of decisions, return actions."""


class Executor(Protocol[A_contra]):
    """Carries actions out, in order within one object."""

    def perform(self, action: A_contra) -> None:
        """Accept an action; returns at once."""

    async def flush(self) -> None:
        """Return when every urgent status accepted so far is written; raise if one cannot be."""


class Actor(Generic[E, A]):
    """Steps one core. ``now`` is the core's clock; ``timed`` is called with the seconds of each step.

    ``doubted`` returns whether the API server's clock is in doubt: then steps are postponed.
    """

    def __init__(
        self,
        core: Core[E, A],
        mailbox: Mailbox[E],
        executor: Executor[A],
        *,
        now: Callable[[], float],
        doubted: Callable[[], bool] = lambda: False,
        timed: Callable[[float], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mailbox = mailbox
        self._core = core
        self._executor = executor
        self._now = now
        self._doubted = doubted
        self._timed = timed
        self._monotonic = monotonic
        self._made = monotonic()
        self._ticked: float | None = None
        self._latest = -math.inf
        self._going = asyncio.Event()
        self._going.set()

    async def run(self, restored: Sequence[E]) -> None:
        """Take over from the state of the API server, then step until an error.

        Nothing is decided before the stamps of the new epoch are written: from then on the API server refuses pending
        writes of an earlier leader.
        """
        await self._sure()
        self._perform(self._core.restore(self._now(), restored))
        await self._executor.flush()
        while True:
            await self._going.wait()
            await self._sure()
            self.step()
            if self._core.backlog:
                await asyncio.sleep(0)
            else:
                await self.mailbox.wait(at_most=TICK)

    async def _sure(self) -> None:
        """Return when the clock is not in doubt. This wait does not count as a stall."""
        while self._doubted():
            self._look_alive()
            await asyncio.sleep(TICK)

    def halt(self) -> None:
        """Take no step before `go_on`: the last step's decisions cannot be written."""
        self._going.clear()

    def go_on(self) -> None:
        """Step again, from the last decisions."""
        self._look_alive()
        self._going.set()

    def _look_alive(self) -> None:
        """Restart the measurement of the time without a step."""
        self._made = self._monotonic()
        if self._ticked is not None:
            self._ticked = self._made

    def step(self) -> None:
        """Take all mail and step the core once; ClusterError if the clock was set back far."""
        now = self._now()
        if now < self._latest - SET_BACK:
            raise ClusterError(
                f"the API server's clock was set back by {self._latest - now:.0f} s: a new leader must take over"
            )
        self._latest = max(self._latest, now)
        events = self.mailbox.take()
        began = self._monotonic()
        actions = self._core.step(now, events)
        self._ticked = ended = self._monotonic()
        self._timed(ended - began)
        self._perform(actions)

    @property
    def silent(self) -> float:
        """Seconds since the last step ended; 0 while halted, and before the first step: see `waiting`."""
        return 0.0 if self._ticked is None or not self._going.is_set() else self._monotonic() - self._ticked

    @property
    def waiting(self) -> float:
        """Seconds that it has waited for its first step; 0 after that, and while halted."""
        return self._monotonic() - self._made if self._ticked is None and self._going.is_set() else 0.0

    def _perform(self, actions: Sequence[A]) -> None:
        for action in actions:
            self._executor.perform(action)
