"""The actor of one pool: wakes on mail or a tick, steps its Pool, hands the actions on.

It owns the Pool, so nothing else may touch it. It decides nothing and performs nothing: :class:`Executor` carries
actions out and says when what must be on record is. A Pool bounds its own work per step; while it says that more is
waiting the actor steps again at once, but lets the loop breathe between, so that reports and writes go on in a burst.

Any error ends the actor, and with it the leader's turn: what was decided is written down, so a new leader goes on from
there, and nothing is to be gained by going on with a Pool that may be wrong. A clock that is set back far ends it too:
a Pool waits by times of it that would not come for long, and a new one has none.

While the time is in doubt nothing is decided: a step at an hour that is not would break every promise for good. Mail
waits in the mailbox, newest per key.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from punctual.errors import ClusterError
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.actions import Action
from punctual.scheduling.model.events import Event

TICK: Final = 0.25
"""Seconds between steps when nothing happens: chunks start and jobs overrun by the clock alone."""
SET_BACK: Final = 60.0
"""Seconds by which the clock may be set back: what a Pool waits for comes so much later at most."""


class Core(Protocol):
    """What the actor needs of a :class:`punctual.scheduling.pool.Pool`."""

    @property
    def backlog(self) -> int:
        """Decisions still waiting for a step."""

    def restore(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Take in what is written down; answer with the stamps of the new epoch."""

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Take in events, decide a bounded amount, answer with actions."""


class Executor(Protocol):
    """Carries actions out, in order within one job."""

    def perform(self, action: Action) -> None:
        """Take an action on; returns at once."""

    async def flush(self) -> None:
        """Return when every urgent status taken on so far is written; raise if one cannot be."""


class PoolActor:
    """Steps one Pool. ``now`` is the API server's clock; ``timed`` is told the seconds that each step took.

    ``doubted`` tells whether that clock is in doubt: then steps are put off.
    """

    def __init__(
        self,
        core: Core,
        mailbox: Mailbox,
        hands: Executor,
        *,
        now: Callable[[], float],
        doubted: Callable[[], bool] = lambda: False,
        timed: Callable[[float], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mailbox = mailbox
        self._core = core
        self._hands = hands
        self._now = now
        self._doubted = doubted
        self._timed = timed
        self._monotonic = monotonic
        self._made = monotonic()
        self._ticked: float | None = None
        self._latest = -math.inf
        self._going = asyncio.Event()
        self._going.set()

    async def run(self, restored: Sequence[Event]) -> None:
        """Take over from what the API server holds, then step for ever.

        Nothing is decided before the stamps of the new epoch stand: from then on the API server refuses what an
        earlier leader still has under way.
        """
        await self._sure()
        self._perform(self._core.restore(self._now(), restored))
        await self._hands.flush()
        while True:
            await self._going.wait()
            await self._sure()
            self.step()
            if self._core.backlog:
                await asyncio.sleep(0)
            else:
                await self.mailbox.wait(at_most=TICK)

    async def _sure(self) -> None:
        """Return when the time is not in doubt. To wait for that is not to hang."""
        while self._doubted():
            self._look_alive()
            await asyncio.sleep(TICK)

    def halt(self) -> None:
        """Take no step before `go_on`: what the last one decided cannot be written down."""
        self._going.clear()

    def go_on(self) -> None:
        """Step again, from what was decided before."""
        self._look_alive()
        self._going.set()

    def _look_alive(self) -> None:
        """Count the time without a step from now on."""
        self._made = self._monotonic()
        if self._ticked is not None:
            self._ticked = self._made

    def step(self) -> None:
        """Take all mail and let the Pool answer it, once; ClusterError where the clock was set back far."""
        now = self._now()
        if now < self._latest - SET_BACK:
            raise ClusterError(f"the API server's clock was set back by {self._latest - now:.0f} s: begin anew")
        self._latest = max(self._latest, now)
        events = self.mailbox.take()
        began = self._monotonic()
        actions = self._core.step(now, events)
        self._ticked = ended = self._monotonic()
        self._timed(ended - began)
        self._perform(actions)

    @property
    def silent(self) -> float:
        """Seconds since the last step ended; 0 while it is halted, and before the first step: see `waiting`."""
        return 0.0 if self._ticked is None or not self._going.is_set() else self._monotonic() - self._ticked

    @property
    def waiting(self) -> float:
        """Seconds that it has waited for its first step; 0 from then on, and while it is halted."""
        return self._monotonic() - self._made if self._ticked is None and self._going.is_set() else 0.0

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._hands.perform(action)
