"""The operations that wait, in one queue per key, and the order in which queues are served.

The operations of one key are served in order. A status replaces one of the same path that waits *directly* before it.
Annotations that are not urgent wait until no urgent operation waits. Behind these wait statuses of oversized objects
(slow), which are served one by one, and then statuses that are not urgent (progress). Progress has a rate limit of its
own, and is served at most once per object and some seconds, unless another operation waits behind it. An operation that
failed waits for its time. Nothing is carried out here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Annotate, DeletePod, Operation, PutStatus
from punctual.runtime.bucket import Bucket
from punctual.runtime.clock import ServerClock

CONCURRENCY = 32
"""Maximum operations that run at once."""
SLOW_AT_ONCE = 1
"""Maximum statuses of oversized objects among these. Each keeps a processor of the API server busy for seconds."""


class QueueState(Enum):
    """What a queue does."""

    IDLE = "nothing to do"
    READY = "ready to be written"
    READY_LATER = "waits until no urgent operation waits, and before what is slow or progress"
    READY_SLOW = "waits until no urgent operation waits, and no other of its kind runs"
    READY_PROGRESS = "waits until no urgent operation waits"
    DELAYED = "waits for its time"
    BUSY = "is being carried out"


@dataclass(slots=True)
class Entry:
    """An operation that waits or runs."""

    operation: Operation
    since: float
    attempts: int = 0
    version: str = ""
    """A resource version that the object of a PutStatus had before the first try; empty if none is known."""
    digest: bytes = b""
    """The digest of a status, once computed."""
    failed: float = 0.0
    """The time of its first failure."""
    error: str = ""
    """Its last error."""
    forgotten: bool = False
    """Its object was deleted while it was carried out, so it is not retried."""


@dataclass(slots=True)
class KeyQueue:
    """The operations of one key (a list, because queues are short and many)."""

    key: Key
    entries: list[Entry] = field(default_factory=list)
    state: QueueState = QueueState.IDLE
    timer: asyncio.TimerHandle | None = None
    retrying: bool = False
    """The first operation failed. Its timer is a back-off, which nothing shortens."""


class WriteQueues:
    """``await next()`` returns the next queue to serve; `rest` and `place`, or `delay`, must follow, and `freed`.

    ``skip_unchanged(queue)`` removes operations at the head of a queue that change nothing. ``progress_wait(key)``
    returns the seconds until its progress may be written. ``rate`` and ``progress_rate`` are operations per second.
    """

    def __init__(
        self,
        *,
        rate: float,
        progress_rate: float,
        skip_unchanged: Callable[[KeyQueue], None],
        progress_wait: Callable[[Key], float],
        clock: ServerClock,
    ) -> None:
        self._skip_unchanged = skip_unchanged
        self._progress_wait = progress_wait
        self._clock = clock
        self._bucket = Bucket(rate, max(1.0, rate / 5), clock)
        self._progress_bucket = Bucket(progress_rate, max(1.0, progress_rate / 5), clock)
        self._queues: dict[Key, KeyQueue] = {}
        self._ready: deque[KeyQueue] = deque()
        self._ready_later: deque[KeyQueue] = deque()
        self._ready_slow: deque[KeyQueue] = deque()
        self._ready_progress: deque[KeyQueue] = deque()
        self._running = 0
        self._running_slow = 0
        self._hurry = False  # during a flush progress does not wait
        self._closed = False
        self._wake = asyncio.Event()
        self.depth = 0
        """Operations that wait or run."""
        self.idle = asyncio.Event()
        """Set while there are none."""
        self.idle.set()
        self.caught_up = asyncio.Event()
        """Set while no urgent operation is ready."""
        self.caught_up.set()

    def __len__(self) -> int:
        return len(self._queues)

    # operations

    def submit(self, key: Key, operation: Operation) -> None:
        """Add an operation behind the others of its key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = KeyQueue(key)
        last = queue.entries[-1] if queue.entries else None
        if (
            last is not None
            and isinstance(operation, PutStatus)
            and isinstance(last.operation, PutStatus)
            and last.operation.path == operation.path
            and not (queue.state is QueueState.BUSY and len(queue.entries) == 1)
        ):
            last.operation = replace(operation, urgent=operation.urgent or last.operation.urgent)
            last.digest = b""
        else:
            queue.entries.append(Entry(operation, self._clock.monotonic()))
            self.depth += 1
            self.idle.clear()
        self.place(queue)

    def forget(self, key: Key) -> list[Entry]:
        """Drop and return the waiting operations of a key, except deletes of pods. A running one is not repeated."""
        queue = self._queues.get(key)
        if queue is None:
            return []
        busy = queue.state is QueueState.BUSY
        if busy:
            queue.entries[0].forgotten = True
        waiting = queue.entries[busy:]
        queue.entries[busy:] = [entry for entry in waiting if isinstance(entry.operation, DeletePod)]
        dropped = [entry for entry in waiting if not isinstance(entry.operation, DeletePod)]
        self.count_down(len(dropped))
        if not busy:
            self.rest(queue)
            self.place(queue)
        return dropped

    def count_down(self, operations: int) -> None:
        """Record that so many operations ended."""
        self.depth -= operations
        if self.depth == 0:
            self.idle.set()

    def head(self, key: Key) -> Entry | None:
        """Return the first operation of a key."""
        queue = self._queues.get(key)
        return queue.entries[0] if queue is not None and queue.entries else None

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest operation. 0 without any."""
        first = min((queue.entries[0].since for queue in self._queues.values() if queue.entries), default=None)
        return 0.0 if first is None else self._clock.monotonic() - first

    async def flush(self, within: float) -> bool:
        """Wait until no operation waits, with progress served at once. Returns False after ``within`` seconds."""
        self._hurry = True
        for queue in list(self._queues.values()):
            self.place(queue)
        try:
            async with asyncio.timeout(within):
                await self.idle.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return True

    def close(self) -> None:
        """Drop everything. `next` returns None from now on."""
        self._closed = True
        for queue in self._queues.values():
            self.rest(queue)
        self._queues.clear()
        self._ready.clear()
        self._ready_later.clear()
        self._ready_slow.clear()
        self._ready_progress.clear()
        self.count_down(self.depth)
        self._wake.set()
        self.caught_up.set()

    # order

    def place(self, queue: KeyQueue) -> None:
        """Put a queue where its first operation belongs. Operations that change nothing end here."""
        if queue.state is QueueState.BUSY or (queue.state is QueueState.DELAYED and queue.retrying):
            return
        self._skip_unchanged(queue)
        if not queue.entries:
            self.rest(queue)
            if self._queues.get(queue.key) is queue:
                del self._queues[queue.key]  # unless a new queue of this key was created meanwhile
            return
        head = queue.entries[0].operation
        if is_slow(head):
            self._make_ready(queue, QueueState.READY_SLOW, self._ready_slow)
        elif isinstance(head, Annotate) and not head.urgent and len(queue.entries) == 1:
            self._make_ready(queue, QueueState.READY_LATER, self._ready_later)
        elif self._hurry or len(queue.entries) > 1 or not isinstance(head, PutStatus) or head.urgent:
            self._make_ready(queue, QueueState.READY, self._ready)
        elif (wait := self._progress_wait(queue.key)) > 0:
            if queue.state is not QueueState.DELAYED:
                self.delay(queue, wait)
        else:
            self._make_ready(queue, QueueState.READY_PROGRESS, self._ready_progress)

    def _make_ready(self, queue: KeyQueue, state: QueueState, where: deque[KeyQueue]) -> None:
        if queue.state is not state:
            self.rest(queue)
            queue.state = state
            where.append(queue)  # its old entry elsewhere is skipped, because its state has changed
            if where is self._ready:
                self.caught_up.clear()
            self._wake.set()

    def delay(self, queue: KeyQueue, seconds: float, *, retrying: bool = False) -> None:
        """Serve a queue again after so many seconds; ``retrying``: whatever is submitted meanwhile."""
        self.rest(queue)
        queue.state = QueueState.DELAYED
        queue.retrying = retrying
        queue.timer = asyncio.get_running_loop().call_later(seconds, self._due, queue)

    def _due(self, queue: KeyQueue) -> None:
        self.rest(queue)
        self.place(queue)

    def rest(self, queue: KeyQueue) -> None:
        """Take a queue out of the order. `place` puts it back."""
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        queue.retrying = False
        queue.state = QueueState.IDLE

    async def next(self) -> KeyQueue | None:
        """Wait for the next queue to serve. None: closed."""
        while not self._closed:
            wait: float | None = None
            if self._running < CONCURRENCY:
                where = self._next_ready()
                if where is not self._ready:
                    self.caught_up.set()
                if where is not None:
                    wait = self._bucket.delay()
                    if wait == 0 and where is self._ready_progress:
                        wait = self._progress_bucket.delay()
                    if wait == 0:
                        self._bucket.take()
                        if where is self._ready_progress:
                            self._progress_bucket.take()
                        return self._serve(where.popleft())
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
        return None

    def _serve(self, queue: KeyQueue) -> KeyQueue:
        queue.state = QueueState.BUSY
        self._running += 1
        self._running_slow += is_slow(queue.entries[0].operation)
        return queue

    def freed(self, operation: Operation) -> None:
        """Record that an operation runs no more."""
        self._running -= 1
        self._running_slow -= is_slow(operation)
        self._wake.set()

    def _next_ready(self) -> deque[KeyQueue] | None:
        """Return the list with the next queue to serve, after removing stale entries."""
        for where, state in (
            (self._ready, QueueState.READY),
            (self._ready_later, QueueState.READY_LATER),
            (self._ready_slow, QueueState.READY_SLOW),
            (self._ready_progress, QueueState.READY_PROGRESS),
        ):
            while where and where[0].state is not state:
                where.popleft()
            if where and not (where is self._ready_slow and self._running_slow >= SLOW_AT_ONCE):
                return where
        return None


def is_slow(operation: Operation) -> bool:
    """Return whether an operation is about an oversized object."""
    return isinstance(operation, PutStatus) and operation.slow
