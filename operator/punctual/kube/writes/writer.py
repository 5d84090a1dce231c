"""All writes of a leader, in the order that each object needs, under one rate limit.

Operations are values, submitted under a key (`punctual.kube.writes.keys`). The operations of one key are carried out
strictly in order, each until it is done or can never be. A chunk's pod is created after the write of the status that
records the chunk, and a range's pod is deleted after the write of the status that accounts it. Across keys, up to
`write_queues.CONCURRENCY` operations run at once.

A status replaces one of the same path that waits *directly* before it. With another operation between them it waits in
order, because a later status must not overtake a create that an earlier one announced. All statuses of a key are about
one object. A status equal to the last one written is not written. A key without work keeps only the digest of its last
status, because jobs are many. Statuses of oversized objects wait until no urgent operation waits, and are written one
by one, because the API server needs seconds for each. Statuses that are not urgent (progress) wait behind
both. They have a rate limit of their own and are written at most once per object and some seconds, unless another
operation waits behind them.

An operation that fails by time-out, 429 or 5xx is retried as long as this replica leads. Every operation is therefore
harmless when repeated, and the repetition finds out about lost answers: a create meets its own pod (409, then a GET
must show the same job, range and attempt; ``existed`` tells that its events may have come before), a delete finds
nothing (404). A final refusal by the API server goes to
its owner. After a refused status no pod is created until another status was accepted, because no pod may run
without a record. A status refused because of its epoch ends the writer: everything is dropped, its owner is told
once, and nothing is written any more. A Writer serves one term of one leader.
"""

import asyncio
import math
import random
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from punctual import errors
from punctual.kube.cluster.client import RIGHTS, ApiClient
from punctual.kube.writes.expected_pods import ExpectedPods
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import CreatePod, DeletePod, Operation, Outcome, PutStatus, StartPod, perform
from punctual.kube.writes.write_queues import Entry, KeyQueue, WriteQueues, is_slow
from punctual.kube.writes.written_statuses import WrittenStatuses, digest_of

FIRST_RETRY, LAST_RETRY = 0.2, 5.0
"""Seconds of back-off of one operation, doubled in between."""
FIRST_SLOW_RETRY, LAST_SLOW_RETRY = 5.0, 60.0
"""The same of one about an oversized object: the API server may still be busy with the try that came too late."""
TRIES = 5
"""Tries after which a failing operation counts as stuck while others succeed."""

log = structlog.get_logger()


class Holder(Protocol):
    """What knows whether this replica holds the Lease."""

    def leading(self) -> bool:
        """Return whether it may write."""


class WriterOwner(Holder, Protocol):
    """What a writer works for: a term."""

    def finished(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation."""

    def fenced(self) -> None:
        """Take in that a newer leader has written."""

    def count_write(self, kind: str, result: str, seconds: float) -> None:
        """Count a request: the operation's class name, and how it ended in one word."""


class Writer:
    """``writer.submit(key, operation)`` in the loop of ``await writer.run()``. One per term of a leader.

    Before each request it checks whether its owner leads. If not, the writer ends as if fenced. ``rate`` and
    ``progress_rate`` are operations per second, ``progress_every`` is seconds per object.
    """

    def __init__(
        self,
        client: ApiClient,
        owner: WriterOwner,
        *,
        rate: float = 500.0,
        progress_rate: float = 20.0,
        progress_every: float = 5.0,
    ) -> None:
        self._client = client
        self._owner = owner
        self._clock = clock = client.clock
        self._statuses = WrittenStatuses(progress_every, clock)
        self._expected = ExpectedPods()
        self._queues = WriteQueues(
            rate=rate,
            progress_rate=progress_rate,
            skip_unchanged=self._skip_unchanged,
            progress_wait=self._statuses.progress_wait,
            clock=clock,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = -math.inf  # end of the last operation
        self._over = False

    def submit(self, key: Key, operation: Operation) -> None:
        """Queue an operation behind the others of its key. Never blocks. After the end of the term it has no effect."""
        if self._over:
            return
        if isinstance(operation, CreatePod):
            self._expected.add(key, operation)
        self._queues.submit(key, operation)

    def forget(self, key: Key) -> frozenset[str]:
        """Drop a key's waiting operations and its state, because its object is gone.

        A running operation is completed, and waiting deletes of pods are still carried out. Returns the pods
        ("namespace/name") that exist or may soon, since their create is done, tried or running, but which were not
        `observed`.
        """
        self._statuses.forget(key)
        unseen = self._expected.forget(key)
        dropped = self._queues.forget(key)
        # the answer of a create that was tried may be lost
        return unseen - {e.operation.pod for e in dropped if isinstance(e.operation, CreatePod) and not e.attempts}

    def observed(self, pod: str) -> None:
        """Record that the informer has seen this pod ("namespace/name"). It is no longer expected."""
        self._expected.observed(pod)

    def unseen(self, seconds: float) -> list[tuple[Key, CreatePod]]:
        """Return the creates that were done that long ago, of pods that the informer has not seen since."""
        return list(self._expected.unseen(self._clock.monotonic() - seconds))

    @property
    def depth(self) -> int:
        """Operations that wait or run."""
        return self._queues.depth

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest of them. 0 without any."""
        return self._queues.oldest

    def stuck(self, key: Key) -> str | None:
        """Return why the first operation of a key is not done after `TRIES` tries, while other keys' are.

        None: it is not stuck.
        """
        head = self._queues.head(key)
        if head is None or head.attempts < TRIES or self._answered <= head.failed:
            return None
        return head.error

    async def run(self) -> None:
        """Write until cancelled or fenced."""
        try:
            async with asyncio.TaskGroup() as group:
                while (queue := await self._queues.next()) is not None:
                    task = group.create_task(self._carry_out(queue))
                    self._tasks.add(task)
                    task.add_done_callback(partial(self._finished, queue.entries[0].operation))
        finally:
            self.drop_all()

    async def flush(self, within: float) -> bool:
        """Wait until no operation waits. Progress is written at once.

        Returns False after ``within`` seconds.
        """
        return await self._queues.flush(within)

    async def caught_up(self) -> None:
        """Wait until no urgent operation is ready. Running operations and progress do not count."""
        await self._queues.caught_up.wait()

    def drop_all(self) -> None:
        """End the term: drop waiting operations, abandon running ones, accept no more."""
        self._over = True
        self._queues.close()
        self._statuses.clear()
        self._expected.clear()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _skip_unchanged(self, queue: KeyQueue) -> None:
        """End the statuses at the head of a queue that are stored already."""
        while queue.entries:
            head = queue.entries[0]
            if not isinstance(head.operation, PutStatus):
                return
            head.digest = head.digest or digest_of(head.operation)
            if not self._statuses.is_stored(queue.key, head.digest):
                return
            del queue.entries[0]
            self._tell(Outcome(queue.key, head.operation, "done"))

    # execution

    async def _carry_out(self, queue: KeyQueue) -> None:
        entry = queue.entries[0]
        kind = type(entry.operation).__name__
        if not self._owner.leading():
            self._end_term("no longer leading")
            return
        operation, version = entry.operation, ""
        if isinstance(entry.operation, PutStatus):
            version = self._statuses.begin_write(queue.key)
            entry.version = entry.version or version or entry.operation.version
            if entry.attempts:
                # the first-seen version is stale too if that write was done: another try with it would only conflict
                operation = replace(entry.operation, version="")
        began = self._clock.monotonic()
        try:
            outcome = await perform(self._client, queue.key, operation, version=version, before=entry.version)
        except errors.ClusterError as error:
            self._owner.count_write(kind, type(error).__name__.lower(), self._clock.monotonic() - began)
            if isinstance(error, errors.Fenced):
                self._end_term(str(error))
            elif self._over:
                pass
            elif (
                isinstance(error, errors.NoRight)
                and isinstance(entry.operation, CreatePod)
                and entry.attempts + 1 >= RIGHTS
            ):
                self._finish(queue, entry, Outcome(queue.key, entry.operation, "refused", str(error)))
            else:
                self._try_again(queue, entry, error)
        else:
            self._owner.count_write(kind, outcome.result, self._clock.monotonic() - began)
            if not self._over:
                self._finish(queue, entry, outcome)

    def _try_again(self, queue: KeyQueue, entry: Entry, error: errors.ClusterError) -> None:
        entry.attempts += 1
        entry.error = str(error)
        if entry.attempts == 1:
            entry.failed = self._clock.monotonic()
        if entry.attempts in {1, 10} or entry.attempts % 100 == 0:
            kind = type(entry.operation).__name__
            log.warning("write_failed", key=str(queue.key), kind=kind, attempts=entry.attempts, error=str(error))
        if entry.forgotten and not isinstance(entry.operation, DeletePod):
            del queue.entries[0]
            self._queues.count_down(1)
            self._queues.rest(queue)
            self._queues.place(queue)
            return
        slow = is_slow(entry.operation)
        first, last = (FIRST_SLOW_RETRY, LAST_SLOW_RETRY) if slow else (FIRST_RETRY, LAST_RETRY)
        wait = max(error.retry_after, min(first * 2 ** min(entry.attempts - 1, 10), last))
        # jitter: operations that failed together must not be retried together
        self._queues.delay(queue, wait * random.uniform(1.0, 1.25), retrying=True)  # noqa: S311  no secret

    def _finish(self, queue: KeyQueue, entry: Entry, outcome: Outcome) -> None:
        operation = entry.operation
        self._answered = self._clock.monotonic()
        if isinstance(operation, PutStatus):
            if not entry.forgotten:
                self._note_written(entry, outcome)
        elif isinstance(operation, DeletePod):
            self.observed(f"{operation.namespace}/{operation.name}")
        elif isinstance(operation, CreatePod):
            if outcome.result == "done":
                self._expected.made(operation.pod, self._answered)
            else:
                self.observed(operation.pod)
        del queue.entries[0]
        outcomes = [outcome]
        if outcome.result == "refused":
            log.warning(
                "write_refused", key=str(queue.key), kind=type(operation).__name__, message=outcome.message[:500]
            )
            if isinstance(operation, PutStatus):
                outcomes += self._take_unrecorded(queue)
        self._queues.rest(queue)
        for one in outcomes:
            self._tell(one)
        self._queues.place(queue)

    def _note_written(self, entry: Entry, outcome: Outcome) -> None:
        """Record the stored state of a status."""
        assert isinstance(entry.operation, PutStatus)
        if not entry.operation.urgent:
            self._statuses.note_progress(outcome.key)
        if outcome.result == "done":
            version = outcome.body.get("metadata", {}).get("resourceVersion", "")
            self._statuses.note(outcome.key, entry.digest, version)

    def _take_unrecorded(self, queue: KeyQueue) -> list[Outcome]:
        """Remove the creates that a refused status was to record. Those behind the next status have another record."""
        kinds = [type(entry.operation) for entry in queue.entries]
        until = kinds.index(PutStatus) if PutStatus in kinds else len(kinds)
        starts = [
            entry.operation for entry in queue.entries[:until] if isinstance(entry.operation, CreatePod | StartPod)
        ]
        queue.entries[:until] = [e for e in queue.entries[:until] if not isinstance(e.operation, CreatePod | StartPod)]
        for start in starts:
            if isinstance(start, CreatePod):
                self.observed(start.pod)
        return [Outcome(queue.key, s, "refused", "the status that was to record it was refused") for s in starts]

    def _tell(self, outcome: Outcome) -> None:
        self._owner.finished(outcome)
        if not self._over:
            self._queues.count_down(1)  # at the end: operations that the outcome submits belong to the same flush

    def _end_term(self, why: str) -> None:
        if not self._over:
            log.warning("writer_fenced", why=why, dropped=self.depth)
            self.drop_all()
            self._owner.fenced()

    def _finished(self, operation: Operation, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._queues.freed(operation)
