"""All writes of a leader, in the order that each object needs, under one rate limit.

Operations are values, submitted under a key (`punctual.kube.cluster.keys`). The operations of one key are carried out
strictly in order, each until it is done or can never be. A chunk's pod is created after the write of the status that
records the chunk, and a range's pod is deleted after the write of the status that accounts it. Across keys, up to
`CONCURRENCY` operations run at once.

A status replaces one of the same path that waits *directly* before it. With another operation between them it waits in
order, because a later status must not overtake a create that an earlier one announced. All statuses of a key are about
one object. A status equal to the last one written is not written. A key without work keeps only the digest of its last
status, because jobs are many. Statuses that are not urgent (progress) wait until no urgent operation waits. They have a
rate limit of their own and are written at most once per object and some seconds, unless another operation waits behind
them.

An operation that fails by time-out, 429 or 5xx is retried as long as this replica leads. Every operation is therefore
harmless when repeated, and the repetition finds out about lost answers: a create meets its own pod (409, then a GET
must show the same job, range and attempt), a delete finds nothing (404). A final refusal by the API server goes to
``on_outcome``. After a refused status no pod is created until another status was accepted, because no pod may run
without a record. A status refused because of its epoch ends the writer: everything is dropped, ``on_fenced`` is called
once, and nothing is written any more. A Writer serves one term of one leader.
"""

import asyncio
import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b

import orjson
import structlog

from punctual import errors
from punctual.kube.cluster.client import RIGHTS, ApiClient
from punctual.kube.cluster.keys import Key
from punctual.kube.cluster.operations import CreatePod, DeletePod, Operation, Outcome, PutStatus, perform
from punctual.kube.format.bucket import Bucket

CONCURRENCY = 32
FIRST_RETRY, LAST_RETRY = 0.2, 5.0
"""Seconds of back-off of one operation, doubled in between."""
TRIES = 5
"""Tries after which a failing operation counts as stuck while others succeed."""

log = structlog.get_logger()


class _State(Enum):
    IDLE = "nothing to do"
    READY = "ready to be written"
    READY_PROGRESS = "waits until no urgent operation waits"
    DELAYED = "waits for its time"
    BUSY = "is being carried out"


@dataclass(slots=True)
class _Entry:
    operation: Operation
    since: float
    attempts: int = 0
    digest: bytes = b""
    """The digest of a status, once computed."""
    failed: float = 0.0
    """The time of its first failure."""
    error: str = ""
    """Its last error."""
    forgotten: bool = False
    """Its object was deleted while it was carried out, so it is not retried."""


@dataclass(slots=True)
class _Line:
    """The queue of one key that has work (a list, because queues are short and many)."""

    key: Key
    queue: list[_Entry] = field(default_factory=list)
    state: _State = _State.IDLE
    timer: asyncio.TimerHandle | None = None
    retrying: bool = False
    """The first operation failed. Its timer is a back-off, which nothing shortens."""


class Writer:
    """``writer.submit(key, operation)`` in the loop of ``await writer.run()``. One per term of a leader.

    ``leading()`` is checked before each request (`Elector.leads`). When it is False, the writer ends as if fenced.
    ``on_outcome(outcome)`` is called for each finished operation, and ``on_write(kind, result, seconds)`` for each
    request, for metrics: the operation's class name and one word. ``rate`` and ``progress_rate`` are operations per
    second, ``progress_every`` is seconds per object.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        on_outcome: Callable[[Outcome], None],
        on_fenced: Callable[[], None],
        leading: Callable[[], bool] = lambda: True,
        on_write: Callable[[str, str, float], None] = lambda _kind, _result, _seconds: None,
        rate: float = 500.0,
        progress_rate: float = 20.0,
        progress_every: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._on_outcome = on_outcome
        self._on_fenced = on_fenced
        self._leading = leading
        self._on_write = on_write
        self._progress_every = progress_every
        self._monotonic = monotonic
        self._bucket = Bucket(rate, max(1.0, rate / 5), monotonic)
        self._progress_bucket = Bucket(progress_rate, max(1.0, progress_rate / 5), monotonic)
        self._lines: dict[Key, _Line] = {}
        # by key: digest of the last written status, and its resource version; without an entry the stored one is
        # unknown
        self._written: dict[Key, tuple[bytes, str]] = {}
        self._progress_at: dict[Key, float] = {}  # by key: time of the last written progress
        self._ready: deque[_Line] = deque()
        self._ready_progress: deque[_Line] = deque()
        # pods ("namespace/name") with a create that waits, runs, or is done but not observed yet, by key
        self._expected: dict[Key, dict[str, None]] = {}
        self._expects: dict[str, Key] = {}  # key by pod
        self._depth = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._answered = -math.inf  # end of the last operation
        self._hurry = False  # during a flush progress does not wait
        self._over = False

    def submit(self, key: Key, operation: Operation) -> None:
        """Queue an operation behind the others of its key. Never blocks. After the end of the term it has no effect."""
        if self._over:
            return
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
        if isinstance(operation, CreatePod):
            pod = _pod(operation)
            self._expected.setdefault(key, {})[pod] = None
            self._expects[pod] = key
        last = line.queue[-1] if line.queue else None
        if (
            last is not None
            and isinstance(operation, PutStatus)
            and isinstance(last.operation, PutStatus)
            and last.operation.path == operation.path
            and not (line.state is _State.BUSY and len(line.queue) == 1)
        ):
            last.operation = replace(operation, urgent=operation.urgent or last.operation.urgent)
            last.digest = b""
        else:
            line.queue.append(_Entry(operation, self._monotonic()))
            self._depth += 1
            self._idle.clear()
        self._schedule(line)

    def forget(self, key: Key) -> frozenset[str]:
        """Drop a key's waiting operations and its state, because its object is gone.

        A running operation is completed, and waiting deletes of pods are still carried out. Returns the pods
        ("namespace/name") that exist or may soon, since their create is done, tried or running, but which were not
        `observed`.
        """
        line = self._lines.get(key)
        self._written.pop(key, None)
        self._progress_at.pop(key, None)
        unseen = self._expected.pop(key, {})
        for pod in unseen:
            self._expects.pop(pod, None)
        if line is None:
            return frozenset(unseen)
        busy = line.state is _State.BUSY
        if busy:
            line.queue[0].forgotten = True
        waiting = line.queue[busy:]
        line.queue[busy:] = [entry for entry in waiting if isinstance(entry.operation, DeletePod)]
        self._count_down(busy + len(waiting) - len(line.queue))
        if not busy:
            self._rest(line)
            self._schedule(line)
        # the answer of a create that was tried may be lost
        never = {_pod(e.operation) for e in waiting if isinstance(e.operation, CreatePod) and not e.attempts}
        return frozenset(unseen.keys() - never)

    def observed(self, pod: str) -> None:
        """Record that the informer has seen this pod ("namespace/name"). It is no longer expected."""
        key = self._expects.pop(pod, None)
        if key is not None:
            pods = self._expected[key]
            del pods[pod]
            if not pods:
                del self._expected[key]

    @property
    def depth(self) -> int:
        """Operations that wait or run."""
        return self._depth

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest of them. 0 without any."""
        first = min((line.queue[0].since for line in self._lines.values() if line.queue), default=None)
        return 0.0 if first is None else self._monotonic() - first

    def stuck(self, key: Key) -> str | None:
        """Return why the first operation of a key is not done after `TRIES` tries, while other keys' are.

        None: it is not stuck.
        """
        line = self._lines.get(key)
        head = line.queue[0] if line is not None and line.queue else None
        if head is None or head.attempts < TRIES or self._answered <= head.failed:
            return None
        return head.error

    async def run(self) -> None:
        """Write until cancelled or fenced."""
        try:
            async with asyncio.TaskGroup() as group:
                while (line := await self._next()) is not None:
                    line.state = _State.BUSY
                    task = group.create_task(self._carry_out(line))
                    self._tasks.add(task)
                    task.add_done_callback(self._finished)
        finally:
            self.drop_all()

    async def flush(self, within: float) -> bool:
        """Wait until no operation waits. Progress is written at once.

        Returns False after ``within`` seconds.
        """
        self._hurry = True
        for line in list(self._lines.values()):
            self._schedule(line)
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return True

    async def caught_up(self) -> None:
        """Wait until no urgent operation is ready. Running operations and progress do not count."""
        await self._caught_up.wait()

    def drop_all(self) -> None:
        """End the term: drop waiting operations, abandon running ones, accept no more."""
        self._over = True
        for line in self._lines.values():
            self._rest(line)
        self._lines.clear()
        self._written.clear()
        self._progress_at.clear()
        self._ready.clear()
        self._ready_progress.clear()
        self._expected.clear()
        self._expects.clear()
        self._count_down(self._depth)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._wake.set()
        self._caught_up.set()

    # scheduling

    def _schedule(self, line: _Line) -> None:
        """Put a queue where its first operation belongs. Operations that change nothing end here."""
        if line.state is _State.BUSY or (line.state is _State.DELAYED and line.retrying):
            return
        self._skip_unchanged(line)
        if not line.queue:
            self._rest(line)
            if self._lines.get(line.key) is line:
                del self._lines[line.key]  # unless a new queue of this key was created meanwhile
            return
        head = line.queue[0].operation
        if self._hurry or len(line.queue) > 1 or not isinstance(head, PutStatus) or head.urgent:
            self._stand(line, _State.READY, self._ready)
        elif (wait := self._progress_wait(line.key)) > 0:
            if line.state is not _State.DELAYED:
                self._delay(line, wait)
        else:
            self._stand(line, _State.READY_PROGRESS, self._ready_progress)

    def _skip_unchanged(self, line: _Line) -> None:
        while line.queue:
            head = line.queue[0]
            if not isinstance(head.operation, PutStatus):
                return
            if not head.digest:
                data = orjson.dumps(head.operation.body, option=orjson.OPT_SORT_KEYS)
                head.digest = blake2b(data, digest_size=16).digest()
            if self._written.get(line.key, (b"",))[0] != head.digest:
                return
            del line.queue[0]
            self._tell(Outcome(line.key, head.operation, "done"))

    def _progress_wait(self, key: Key) -> float:
        """Return the seconds until its progress may be written again."""
        return self._progress_at.get(key, -math.inf) + self._progress_every - self._monotonic()

    def _stand(self, line: _Line, state: _State, where: deque[_Line]) -> None:
        if line.state is not state:
            self._rest(line)
            line.state = state
            where.append(line)  # its old entry elsewhere is skipped, because its state has changed
            if where is self._ready:
                self._caught_up.clear()
            self._wake.set()

    def _delay(self, line: _Line, seconds: float, *, retrying: bool = False) -> None:
        self._rest(line)
        line.state = _State.DELAYED
        line.retrying = retrying
        line.timer = asyncio.get_running_loop().call_later(seconds, self._due, line)

    def _due(self, line: _Line) -> None:
        self._rest(line)
        self._schedule(line)

    def _rest(self, line: _Line) -> None:
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        line.retrying = False
        line.state = _State.IDLE

    async def _next(self) -> _Line | None:
        """Wait for the next queue to serve. None: the term is over."""
        while not self._over:
            wait: float | None = None
            if len(self._tasks) < CONCURRENCY:
                where = self._standing()
                if where is not self._ready:
                    self._caught_up.set()
                if where is not None:
                    wait = self._bucket.delay()
                    if wait == 0 and where is self._ready_progress:
                        wait = self._progress_bucket.delay()
                    if wait == 0:
                        self._bucket.take()
                        if where is self._ready_progress:
                            self._progress_bucket.take()
                        return where.popleft()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
        return None

    def _standing(self) -> deque[_Line] | None:
        """Return the list with the next queue to serve, after removing stale entries."""
        for where, state in (
            (self._ready, _State.READY),
            (self._ready_progress, _State.READY_PROGRESS),
        ):
            while where and where[0].state is not state:
                where.popleft()
            if where:
                return where
        return None

    # execution

    async def _carry_out(self, line: _Line) -> None:
        entry = line.queue[0]
        kind = type(entry.operation).__name__
        if not self._leading():
            self._end_term("no longer leading")
            return
        operation, version = entry.operation, ""
        if isinstance(entry.operation, PutStatus):
            # before the request: if its answer gets lost, it is unknown which of the two statuses is stored
            _, version = self._written.pop(line.key, (b"", ""))
            if entry.attempts:
                # the first-seen version is stale too if that write was done: another try with it would only conflict
                operation = replace(entry.operation, version="")
        began = self._monotonic()
        try:
            outcome = await perform(self._client, line.key, operation, version=version)
        except errors.ClusterError as error:
            self._on_write(kind, type(error).__name__.lower(), self._monotonic() - began)
            if isinstance(error, errors.Fenced):
                self._end_term(str(error))
            elif self._over:
                pass
            elif (
                isinstance(error, errors.NoRight)
                and isinstance(entry.operation, CreatePod)
                and entry.attempts + 1 >= RIGHTS
            ):
                self._finish(line, entry, Outcome(line.key, entry.operation, "refused", str(error)))
            else:
                self._try_again(line, entry, error)
        else:
            self._on_write(kind, outcome.result, self._monotonic() - began)
            if not self._over:
                self._finish(line, entry, outcome)

    def _try_again(self, line: _Line, entry: _Entry, error: errors.ClusterError) -> None:
        entry.attempts += 1
        entry.error = str(error)
        if entry.attempts == 1:
            entry.failed = self._monotonic()
        if entry.attempts in {1, 10} or entry.attempts % 100 == 0:
            kind = type(entry.operation).__name__
            log.warning("write_failed", key=str(line.key), kind=kind, attempts=entry.attempts, error=str(error))
        if entry.forgotten and not isinstance(entry.operation, DeletePod):
            del line.queue[0]
            self._count_down(1)
            self._rest(line)
            self._schedule(line)
            return
        wait = max(error.retry_after, min(FIRST_RETRY * 2 ** min(entry.attempts - 1, 10), LAST_RETRY))
        # jitter: operations that failed together must not be retried together
        self._delay(line, wait * random.uniform(1.0, 1.25), retrying=True)  # noqa: S311  no secret

    def _finish(self, line: _Line, entry: _Entry, outcome: Outcome) -> None:
        operation = entry.operation
        self._answered = self._monotonic()
        if isinstance(operation, PutStatus):
            if not entry.forgotten:
                self._note_written(entry, outcome)
        elif isinstance(operation, DeletePod):
            self.observed(f"{operation.namespace}/{operation.name}")
        elif isinstance(operation, CreatePod) and outcome.result != "done":
            self.observed(_pod(operation))
        del line.queue[0]
        told = [outcome]
        if outcome.result == "refused":
            log.warning(
                "write_refused", key=str(line.key), kind=type(operation).__name__, message=outcome.message[:500]
            )
            if isinstance(operation, PutStatus):
                told += self._take_unrecorded(line)
        self._rest(line)
        for one in told:
            self._tell(one)
        self._schedule(line)

    def _note_written(self, entry: _Entry, outcome: Outcome) -> None:
        """Record the stored state of a status."""
        assert isinstance(entry.operation, PutStatus)
        if not entry.operation.urgent:
            self._progress_at[outcome.key] = self._monotonic()
        if outcome.result == "done":
            self._written[outcome.key] = entry.digest, outcome.body.get("metadata", {}).get("resourceVersion", "")

    def _take_unrecorded(self, line: _Line) -> list[Outcome]:
        """Remove the creates that a refused status was to record. Those behind the next status have another record."""
        kinds = [type(entry.operation) for entry in line.queue]
        until = kinds.index(PutStatus) if PutStatus in kinds else len(kinds)
        creates = [entry.operation for entry in line.queue[:until] if isinstance(entry.operation, CreatePod)]
        line.queue[:until] = [e for e in line.queue[:until] if not isinstance(e.operation, CreatePod)]
        for create in creates:
            self.observed(_pod(create))
        return [Outcome(line.key, c, "refused", "the status that was to record it was refused") for c in creates]

    def _tell(self, outcome: Outcome) -> None:
        self._on_outcome(outcome)
        if not self._over:
            self._count_down(1)  # at the end: operations that the outcome submits belong to the same flush

    def _end_term(self, why: str) -> None:
        if not self._over:
            log.warning("writer_fenced", why=why, dropped=self._depth)
            self.drop_all()
            self._on_fenced()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake.set()

    def _count_down(self, operations: int) -> None:
        self._depth -= operations
        if self._depth == 0:
            self._idle.set()


def _pod(operation: CreatePod) -> str:
    return f"{operation.namespace}/{operation.body['metadata']['name']}"
