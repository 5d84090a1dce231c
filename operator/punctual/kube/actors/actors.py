"""The actors of the pools that this replica leads, by the pool's name: one for its promises, one for its guests.

Each has a core and an executor. It is started with all that is on record, told events, halted while the pool's
status cannot be written, and stopped. This part knows no object of Kubernetes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from punctual import metric_names as names
from punctual.kube.actors.executor import PoolExecutor
from punctual.kube.actors.runners import Runners
from punctual.kube.actors.tools import Tools
from punctual.kube.metrics import began
from punctual.kube.writes.keys import Key
from punctual.runtime.actor import Actor, Core
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.actions import Action
from punctual.scheduling.model.event_keys import key_of, merged
from punctual.scheduling.model.events import Event
from punctual.scheduling.view import Outlook, PoolView


class Life(Protocol):
    """The life of a term."""

    @property
    def leads(self) -> bool:
        """Whether anything is decided yet, or still: not during the takeover."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task of the term. Its failure ends the term."""


class PoolCore(Core[Event, Action], Protocol):
    """Interface of a :class:`punctual.scheduling.pool.Pool` that its actor and its readers use."""

    def view(self) -> PoolView:
        """Return a view of what the pool knows and plans, for readers."""


C = TypeVar("C", bound=Core[Any, Any])
E = TypeVar("E")
X = TypeVar("X", bound=PoolExecutor)


@dataclass(slots=True)
class _Running(Generic[C, E, X]):
    core: C
    actor: Actor[E, Any]
    executor: X
    task: asyncio.Task[None]


class Actors(Generic[C, E, X]):
    """An actor for each pool."""

    def __init__(self, tools: Tools, life: Life) -> None:
        self._tools = tools
        self._life = life
        self._running: dict[str, _Running[C, E, X]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)

    def runs(self, pool: str) -> bool:
        """Return whether a pool is led here."""
        return pool in self._running

    def run(self, pool: str, core: C, mailbox: Mailbox[E], executor: X, restored: Sequence[E]) -> None:
        """Start an actor. ``restored``: all that is on record about its pool."""
        clock, timed = self._tools.clock, self._tools.metrics.step_seconds.observe
        actor: Actor[E, Any] = Actor(core, mailbox, executor, now=clock.now, doubted=lambda: clock.doubted, timed=timed)
        self._running[pool] = _Running(core, actor, executor, self._life.spawn(actor.run(restored)))

    def stop(self, pool: str) -> bool:
        """Stop a pool that is gone. Returns whether it ran."""
        running = self._running.pop(pool, None)
        if running is not None:
            running.task.cancel()
        return running is not None

    def retire(self) -> None:
        """Let no pool decide anything more, and submit the progress that is not written yet."""
        for running in self._running.values():
            running.task.cancel()
            running.executor.submit_progress()

    def tell(self, pool: str, event: E) -> None:
        """Put an event into a pool's mailbox. For a pool that is not led here it has no effect."""
        if running := self._running.get(pool):
            running.actor.mailbox.put(event)

    def halt(self, pool: str) -> bool:
        """Let a pool take no step. Returns whether it runs."""
        if running := self._running.get(pool):
            running.actor.halt()
        return running is not None

    def go_on(self, pool: str) -> None:
        """Let a halted pool step again."""
        if running := self._running.get(pool):
            running.actor.go_on()

    def settled(self, key: Key) -> None:
        """Record that a status was written or never will be: no pool waits for it."""
        for running in self._running.values():
            running.executor.settled(key)

    def submit_progress(self, most: int) -> None:
        """Submit the waiting progress of at most ``most`` jobs of each pool."""
        for running in self._running.values():
            running.executor.submit_progress(most)

    @property
    def silent(self) -> float:
        """Seconds since the last step of the pool that has been silent longest."""
        return max((running.actor.silent for running in self._running.values()), default=0.0)

    @property
    def waiting(self) -> float:
        """Seconds that a pool has waited for its first step; 0 when all have begun."""
        return max((running.actor.waiting for running in self._running.values()), default=0.0)


class PoolActors(Actors[PoolCore, Event, PoolExecutor]):
    """The promises of each pool. ``core()`` makes a Pool."""

    def __init__(self, core: Callable[[], PoolCore], tools: Tools, runners: Runners, life: Life) -> None:
        super().__init__(tools, life)
        self._core = core
        self._runners = runners

    def start(self, pool: str, restored: Sequence[Event]) -> None:
        """Start a pool. ``restored``: all that is on record about it, its jobs and its reservations."""
        core, mailbox = self._core(), Mailbox(key_of, merged)
        self.run(pool, core, mailbox, PoolExecutor(pool, self._tools, self._runners, mailbox), restored)
        self._tools.metrics.begin_pool(pool)

        def gauges() -> dict[names.Metric, float]:
            shares = core.view().shares(self._tools.now())
            self._tools.metrics.shares(pool, {use.namespace: use.promised / use.share for use in shares})
            wanted = self._tools.promise_metrics.wanted(pool)
            return {**_gauges(mailbox, core.view().outlook(self._tools.now())), names.PROCESSORS_WANTED: wanted}

        self._tools.metrics.watch_pool(pool, gauges)

    def rewrite(self, pool: str) -> None:
        """Write the status of a pool again: what the Pool does not know of it has changed."""
        if running := self._running.get(pool):
            running.executor.rewrite()

    def views(self) -> dict[str, PoolView]:
        """Return a view of each pool that has taken its first step, by name."""
        return {name: running.core.view() for name, running in self._running.items() if not running.actor.waiting}


def _gauges(mailbox: Mailbox[Event], ahead: Outlook) -> dict[names.Metric, float]:
    """Return the gauges that are read at each scrape."""
    return {
        names.MAILBOX_DEPTH: mailbox.depth,
        names.MAILBOX_OLDEST: began(mailbox.age),
        names.PROCESSORS_RUNNING: ahead.running,
        names.PROCESSORS_PROMISED: ahead.promised,
        names.FREE_UNTIL: ahead.free_until or 0.0,
        names.PROCESSORS_RESERVED: ahead.reserved,
        names.NEXT_RESERVATION: ahead.next_window or 0.0,
    }
