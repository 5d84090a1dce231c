"""Mailbox of one pool's actor: the events since its last step, newest per key.

Any thread may put (kopf has its own; reports and pods come on the actor's loop); one actor takes. Events describe
states, not changes, so an older event of the same key may be dropped. The events taken are a subsequence of the events
put: the newest of each key, in the order of those puts. So a deletion never overtakes an apply.

A pod's end and its disappearance have different keys on purpose: the first carries the exit code, which must not be
lost if a pod ends and is deleted between two steps.

No event is dropped silently. Keys are objects of the cluster, so the limit is reached only after a serious fault. Then
:meth:`Mailbox.take` raises, and the leader gives up its lease and rebuilds from the API server.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable

from punctual.errors import ClusterError, InvariantError
from punctual.scheduling.model.events import (
    CreateRefused,
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PoolApplied,
    Reported,
    ReservationApplied,
    ReservationDeleted,
)

LIMIT = 200_000
"""Maximum number of keys: twenty times the jobs of the largest tested pool."""


def key_of(event: Event) -> Hashable:  # noqa: C901, PLR0911  one line for each kind
    """Return the key of an event; of two events with one key, only the newer matters."""
    match event:
        case PoolApplied():
            return ("pool",)
        case JobApplied():
            return ("job", event.job.uid)
        case JobDeleted():
            return ("job", event.uid)
        case PodObserved():
            return ("pod", event.uid)
        case PodGone():
            return ("gone", event.namespace, event.name, event.uid)
        case CreateRefused():
            return ("refused", event.job, event.kind, event.begin, event.attempt)
        case NodeObserved() | NodeGone():
            return ("node", event.name)
        case Reported():
            return ("report", event.node)
        case ReservationApplied():
            return ("reservation", event.reservation.uid)
        case ReservationDeleted():
            return ("reservation", event.uid)


def _merge(older: Event, newer: Event) -> Event:
    """Merge two events of one key: the newer one, and for reports the newest line of each pod."""
    if isinstance(older, Reported) and isinstance(newer, Reported):
        lines = {p.pod: p for p in (*older.pods, *newer.pods)}
        return Reported(newer.node, tuple(lines.values()))
    return newer


class Mailbox:
    """Bounded mailbox, newest per key. ``put`` from any thread; ``wait`` and ``take`` on the loop that created it.

    ``monotonic`` is a clock in seconds, used only for :attr:`age`.
    """

    def __init__(self, *, limit: int = LIMIT, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._events: dict[Hashable, Event] = {}
        self._since = 0.0
        self._full = False
        self._loop = asyncio.get_running_loop()
        self._mail = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add one event; never blocks, never raises."""
        key = key_of(event)
        with self._lock:
            wake = not self._events
            if wake:
                self._since = self._monotonic()
            older = self._events.pop(key, None)  # inserted again at the end: the order is that of the newest puts
            if older is None and len(self._events) >= self._limit:
                self._full = True
                return
            self._events[key] = event if older is None else _merge(older, event)
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no reader any more
                self._loop.call_soon_threadsafe(self._mail.set)

    def take(self) -> list[Event]:
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._mail.wait()

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
                if key_of(event) != key:
                    raise InvariantError(f"{event} is stored under {key}")
