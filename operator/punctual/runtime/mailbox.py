"""The mailbox of one pool's actor: what happened since it last looked, newest per key.

Anyone may put, from any thread (kopf has its own, reports and pods come on the actor's loop); one actor takes. Events
say how things are, not what changed, so an older one of the same key may be forgotten. What is taken is a subsequence
of what was put: the newest of each key, in the order of those puts, so that a deletion never overtakes an apply.

A pod's end and its disappearance are different keys on purpose: the first carries the exit code, and a pod that ends
and is deleted between two looks must not lose it.

Nothing is ever dropped in silence: keys are objects of the cluster, so the bound is met only when something is very
wrong, and then :meth:`Mailbox.take` raises; whoever holds the lease gives it up and rebuilds from the API server.
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
"""Keys: twenty times the jobs of the largest pool that is tested."""


def key_of(event: Event) -> Hashable:  # noqa: C901, PLR0911  one line for each kind
    """Return what the event is about; of two events with one key the newer one is all that matters."""
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
    """Return what is left of two events of one key: the newer, and of reports the newest line of each pod."""
    if isinstance(older, Reported) and isinstance(newer, Reported):
        lines = {p.pod: p for p in (*older.pods, *newer.pods)}
        return Reported(newer.node, tuple(lines.values()))
    return newer


class Mailbox:
    """Bounded, newest per key. ``put`` from any thread; ``wait`` and ``take`` on the loop that made it.

    ``monotonic`` is a clock in seconds, for :attr:`age` alone.
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
        """Take in one event; never blocks, never raises."""
        key = key_of(event)
        with self._lock:
            wake = not self._events
            if wake:
                self._since = self._monotonic()
            older = self._events.pop(key, None)  # and in again at the end: order is that of the newest puts
            if older is None and len(self._events) >= self._limit:
                self._full = True
                return
            self._events[key] = event if older is None else _merge(older, event)
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody will look any more
                self._loop.call_soon_threadsafe(self._mail.set)

    def take(self) -> list[Event]:
        """Take out everything, oldest put first; ClusterError if more came than it may hold."""
        with self._lock:
            if self._full:
                raise ClusterError(f"more than {self._limit} events waited: rebuild from the API server")
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
        """Events waiting."""
        return len(self._events)

    @property
    def age(self) -> float:
        """Seconds that the oldest of them has waited; 0 when there are none."""
        with self._lock:
            return self._monotonic() - self._since if self._events else 0.0

    def check(self) -> None:
        """Raise InvariantError unless every event lies under its own key."""
        with self._lock:
            for key, event in self._events.items():
                if key_of(event) != key:
                    raise InvariantError(f"{event} lies under {key}")
