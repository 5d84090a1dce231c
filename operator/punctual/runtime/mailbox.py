"""Mailbox of one actor: the events since its last step, newest per key.

Any thread may put (kopf has its own; reports and pods come on the actor's loop); one actor takes. Events describe
states, not changes, so an older event of the same key may be dropped. The events taken are a subsequence of the events
put: the newest of each key, in the order of those puts. So a deletion never overtakes an apply.

No event is dropped silently. Keys are objects of the cluster, so the limit is reached only after a serious fault. Then
:meth:`Mailbox.take` raises, and the leader gives up its lease and rebuilds from the API server.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from punctual.errors import ClusterError, InvariantError

E = TypeVar("E")

LIMIT = 200_000
"""Maximum number of keys: twenty times the jobs of the largest tested pool."""


class Mailbox(Generic[E]):
    """Bounded mailbox, newest per key. ``put`` from any thread; ``wait`` and ``take`` on the loop that created it.

    ``key`` returns the key of an event, ``merge(older, newer)`` one event for two of one key; default: the newer.
    ``monotonic`` is a clock in seconds, used only for :attr:`age`.
    """

    def __init__(
        self,
        key: Callable[[E], Hashable],
        merge: Callable[[E, E], E] = lambda _, newer: newer,
        *,
        limit: int = LIMIT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._merge = merge
        self._limit = limit
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._events: dict[Hashable, E] = {}
        self._since = 0.0
        self._full = False
        self._loop = asyncio.get_running_loop()
        self._mail = asyncio.Event()

    def put(self, event: E) -> None:
        """Add one event; never blocks, never raises."""
        key = self._key(event)
        with self._lock:
            wake = not self._events
            if wake:
                self._since = self._monotonic()
            older = self._events.pop(key, None)  # inserted again at the end: the order is that of the newest puts
            if older is None and len(self._events) >= self._limit:
                self._full = True
                return
            self._events[key] = event if older is None else self._merge(older, event)
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no reader any more
                self._loop.call_soon_threadsafe(self._mail.set)

    def take(self) -> list[E]:
        """Take all events, oldest put first; ClusterError if the limit was exceeded."""
        with self._lock:
            if self._full:
                raise ClusterError(
                    f"more than {self._limit} events waited: a new leader must rebuild from the API server"
                )
            events = list(self._events.values())
            self._events.clear()
            self._mail.clear()
        return events

    async def wait(self, *, at_most: float) -> None:
        """Return when there is mail, or after ``at_most`` seconds."""
        timer = self._loop.call_later(at_most, self._mail.set)  # cheaper than a timeout that cancels the wait
        try:
            await self._mail.wait()
        finally:
            timer.cancel()

    @property
    def depth(self) -> int:
        """Number of waiting events."""
        return len(self._events)

    @property
    def age(self) -> float:
        """Seconds for which the oldest event has waited; 0 if there is none."""
        with self._lock:
            return self._monotonic() - self._since if self._events else 0.0

    def check(self) -> None:
        """Raise InvariantError unless every event is stored under its own key."""
        with self._lock:
            for key, event in self._events.items():
                if self._key(event) != key:
                    raise InvariantError(f"{event} is stored under {key}")
