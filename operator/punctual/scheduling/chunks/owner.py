"""What owns chunks: a job with its record, what is seen of its chunks, and the transitions of both.

Each transition changes the record and returns what is to be told. What else follows is the owner's own: a Pool frees
processors and plans again, guests start the rest elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from punctual.scheduling.chunks import ledger
from punctual.scheduling.chunks.life import Observation
from punctual.scheduling.model.actions import Emit, OfferEnd, StoreResult
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, JobRecord, Work

Key = tuple[str, int, int]
W = TypeVar("W", bound=Work)
S = TypeVar("S", bound=Observation)


class Lost(NamedTuple):
    """An attempt without success, in words."""

    text: str
    exhausted: str | None
    """Why the job fails now; None: the units may run again."""


@dataclass(slots=True)
class ChunkOwner(Generic[W, S]):
    """A job that owns chunks."""

    job: W
    """The spec in force, without refused edits."""
    record: JobRecord = field(default=JobRecord(), kw_only=True)
    watches: dict[Key, S] = field(default_factory=dict, kw_only=True)
    """What is seen of its chunks."""
    remarked: frozenset[str] = field(default=frozenset(), kw_only=True)
    """What was told of containers beside the work."""

    @staticmethod
    def unseen() -> Any:
        """Return what is known of a chunk at first."""
        raise NotImplementedError

    def watch(self, chunk: Chunk) -> S:
        """Return what is seen of a chunk, empty at first."""
        key = chunk.key
        seen = self.watches.get(key)
        if seen is None:
            seen = self.watches[key] = self.unseen()
        return seen

    def chunk(self, kind: str, begin: int, attempt: int) -> Chunk | None:
        """Return the owned chunk with this identity."""
        for c in self.record.chunks:
            if c.begin == begin and c.attempt == attempt and c.kind == kind:
                return c
        return None

    def offer(self, now: float, chunk: Chunk, end: int) -> OfferEnd:
        """Record that a running chunk may stop at an end; return what tells its pod."""
        seen = self.watch(chunk)
        assert seen.pod is not None
        seen.offered_at = now
        self.record = self.record.changed(chunk._replace(offered=end))
        return OfferEnd(seen.pod.namespace, seen.pod.name, seen.pod.uid, end)

    def shorten(self, chunk: Chunk, end: int) -> Chunk:
        """Let a chunk end where its worker will: the tail remains. Return the chunk, which may own nothing more."""
        self.record = ledger.cut(self.record, chunk, end)
        kept = self.chunk(*chunk.key)
        assert kept is not None
        return kept

    def end_attempt(self, chunk: Chunk, *, done: int, own: bool, message: str) -> Lost:
        """Take back the units of a chunk but for those ``done`` that count. ``own``: the workload caused it."""
        self.record = ledger.lose(self.record, chunk, durable=done, own=own)
        what, retries = chunk.what, self.job.chunk_retries
        fails = own and self.record.failed.largest(chunk.begin, chunk.end) > retries
        exhausted = f"{what} failed {retries + 1} times: {message}" if fails else None
        return Lost(f"{what}, attempt {chunk.attempt}: {message}", exhausted)

    def keep_result(self, chunk: Chunk, pod: PodObserved, *, for_reduce: bool = False) -> StoreResult | Emit | None:
        """Return what stores the termination message of a chunk that is accounted.

        For people, only a complete one is stored, otherwise they are told; ``for_reduce``: the reduce step reads it.
        """
        if not for_reduce:
            if fault := pod.result_fault:
                text = f"{chunk.what}: no result is kept: the message of pod {pod.name} {fault.text}"
                return Emit(self.job.uid, "Warning", fault.reason, text)
            if not pod.message:
                return None
            self.record = self.record._replace(results=True)
        return StoreResult(self.job.uid, chunk.begin, chunk.end, pod.message, for_reduce)

    def remarks(self, pod: PodObserved) -> Iterator[Emit]:
        """Yield one event per job and container for what containers beside the work do: all its pods have the same."""
        for remark in pod.remarks:
            if remark.key not in self.remarked:
                self.remarked |= {remark.key}
                yield Emit(self.job.uid, "Warning" if remark.warning else "Normal", remark.reason, remark.text)
