"""One guest job: its record, what is known of its chunks, and the transitions of both.

A unit is completed, owned by one chunk, or remaining (:mod:`punctual.scheduling.model.ledger`). A chunk that is cut is
offered the end that it has reached; the worker names the end that it will honour, and the rest remains. Until it has
answered, it owns its whole range. A pod that ends with an open offer counts only once its agent has said its last word:
it may have stopped before its own end.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from punctual import reasons
from punctual.guests.estimates import ChunkLength, StartTime, UnitCost
from punctual.guests.model import Action, Cause, ChunkSeen, Guest, LendTo
from punctual.linger.policy import Step
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import CreateChunk, Emit, EndPod, OfferEnd, StopPod, StoreResult
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, JobRecord, Verdict
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.timing import GRACE

LAST_WORD: Final = 30.0
"""Seconds to wait for the agent's last report of a pod that ended while an offer was open."""
ANSWER: Final = 5.0
"""Seconds in which a worker answers an offer: it looks several times a second, and its agent reports each second."""
REFUSED: Final = 10.0
"""Seconds without new chunks for a job with a refused pod."""

Key = tuple[str, int, int]


@dataclass(slots=True)
class Arrival:
    """A place that is kept for the rest of a chunk, until the chunk has answered or `ANSWER` is over."""

    node: str
    source: Key
    since: float


@dataclass(slots=True)
class ChunkState:
    """What is known of a chunk beside its record."""

    pod: PodObserved | None = None
    ran: float | None = None
    """When its pod was first seen to run."""
    done: int = 0
    cpu: float = 0.0
    """CPU seconds that it has used."""
    memory: int = 0
    moved: float = 0.0
    """When it last made progress or used CPU."""
    offered_at: float | None = None
    """When it was asked to stop early; None: this leader has not asked it."""
    answered: bool = False
    """Its worker has answered an offer, perhaps with the end that it has."""
    missed: bool = False
    """It has not answered in time."""
    over: bool = False
    """Its agent has said its last word."""
    ended_at: float | None = None
    """When its pod was seen to have ended while an offer was open."""
    evicted_at: float | None = None
    """When it was told to leave: its pod is ended if it is still there after `ANSWER`."""
    paused: bool = False
    told: tuple[Cause, Step] | None = None
    """The decision that was told last."""


@dataclass(slots=True)
class GuestState:
    """A guest job. ``after``: the actions that the next status allows; ``before``: those that it says are done."""

    guest: Guest
    record: JobRecord = field(default_factory=JobRecord)
    chunks: dict[Key, ChunkState] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    length: ChunkLength = field(default_factory=ChunkLength)
    unit: UnitCost = field(default_factory=UnitCost)
    start: StartTime = field(default_factory=StartTime)
    served: float = 0.0
    """CPU seconds that its chunks got, over its weight; raised to that of others when it begins to run."""
    active: bool = False
    refused_at: float = -math.inf
    missed_at: float = -math.inf
    """When one of its chunks did not answer an offer in time, and none has answered since."""
    remarked: frozenset[str] = frozenset()
    """What was told of containers beside the work."""
    deleted: bool = False
    """It was told that its time to live is over."""
    before: list[Action] = field(default_factory=list)
    after: list[Action] = field(default_factory=list)

    # what follows from the record

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.guest.uid

    @property
    def cpu_per_unit(self) -> float:
        """CPU seconds of a unit, by all that is known."""
        return self.unit.seconds(self.guest.cpu_per_unit)

    @property
    def remaining(self) -> Ranges:
        """Units that are neither completed nor owned."""
        return ledger.remaining(self.guest.units, self.record)

    @property
    def stopped(self) -> bool:
        """Whether no chunk of it may start."""
        return self.record.ended or self.guest.suspend or self.guest.refusal is not None

    @property
    def wants(self) -> bool:
        """Whether more chunks of it may run. Those that have handed back their rest do not count."""
        if self.stopped or len(self.record.chunks) >= ledger.most_chunks(self.record):
            return False
        running = sum(chunk.end == chunk.origin for chunk in self.record.chunks)
        return (self.guest.most is None or running < self.guest.most) and bool(self.remaining)

    @property
    def share(self) -> float:
        """What it got and will get for the chunks that it has, CPU seconds over its weight."""
        return self.served + sum(map(self.ahead, self.record.chunks)) / self.guest.weight

    def of(self, chunk: Chunk) -> ChunkState:
        """Return what is known of a chunk."""
        return self.chunks.setdefault(chunk.key, ChunkState())

    def chunk(self, begin: int, attempt: int) -> Chunk | None:
        """Return the owned chunk with this identity."""
        return next((c for c in self.record.chunks if (c.begin, c.attempt) == (begin, attempt)), None)

    def running(self) -> Iterator[tuple[Chunk, ChunkState, PodObserved]]:
        """Yield the chunks with a pod that runs and is not being ended."""
        for chunk in self.record.chunks:
            known = self.of(chunk)
            if known.pod is not None and known.pod.runs and not known.pod.deleting:
                yield chunk, known, known.pod

    def loss(self, chunk: Chunk) -> float:
        """Return the CPU seconds that are lost if a chunk's pod is killed now: those since the last saved unit."""
        known = self.of(chunk)
        saved = known.done * self.cpu_per_unit if self.guest.restart == "Resume" else 0.0
        return max(0.0, known.cpu - saved)

    def ahead(self, chunk: Chunk) -> float:
        """Return the CPU seconds that a chunk still takes."""
        return max(0.0, chunk.size * self.cpu_per_unit - self.of(chunk).cpu)

    def left(self, chunk: Chunk) -> float:
        """Return the seconds of work that a chunk could hand back: all but the unit that it has begun."""
        return max(0, chunk.size - self.of(chunk).done - 1) * self.cpu_per_unit / self.guest.cores

    # transitions

    def emit(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Tell something by an event on the job."""
        self.after.append(Emit(self.uid, kind, reason, message))

    def begin(self, now: float, node: str, units: Range, rate: float) -> None:
        """Start a chunk of remaining units on a node where it works at a rate."""
        record = self.record
        attempt = ledger.next_attempt(record, units.begin, units.end)
        took = units.size * self.cpu_per_unit / self.guest.cores / rate
        end = now + self.start.seconds + took
        chunk = Chunk(units.begin, units.end, units.end, node, attempt, now, end, kind="Guest")
        started = now if record.started is None else record.started
        self.record = record._replace(chunks=(*record.chunks, chunk), started=started)
        self.after.append(CreateChunk(self.uid, chunk))

    def cut(self, now: float, chunk: Chunk, goal: str | None = None, *, evict: bool = False) -> None:
        """Ask a running chunk to stop at what it has done. ``goal``: a place is kept there for the rest.

        ``evict``: its pod is ended if it is still there after `ANSWER`.
        """
        known = self.of(chunk)
        if evict and known.evicted_at is None:
            known.evicted_at = now
        if known.offered_at is not None:
            return
        self.pause(chunk, paused=False)  # a paused worker answers no offer
        self._offer(now, chunk, chunk.begin + known.done)
        if goal is not None:
            self.arrivals.append(Arrival(goal, chunk.key, now))

    def _offer(self, now: float, chunk: Chunk, end: int) -> None:
        known = self.of(chunk)
        if (pod := known.pod) is not None:
            known.offered_at = now
            self.record = self.record.changed(chunk._replace(offered=end))
            self.after.append(OfferEnd(pod.namespace, pod.name, pod.uid, end))

    def pause(self, chunk: Chunk, *, paused: bool) -> None:
        """Let a running chunk have its least CPU only, or let it go on."""
        known = self.of(chunk)
        if known.pod is not None and known.paused != paused:
            known.paused = paused
            self._lend(chunk, known.pod, paused=paused)

    def _lend(self, chunk: Chunk, pod: PodObserved, *, paused: bool) -> None:
        units = chunk.origin - chunk.begin
        self.after.append(LendTo(pod.node, pod.uid, units, self.guest.weight, paused))

    def lose(self, chunk: Chunk, *, own: bool, message: str = "") -> None:
        """End an attempt without success. ``own``: the workload caused it. Its pod, if it is known, is ended."""
        known = self.chunks.pop(chunk.key, ChunkState())
        if chunk.size and known.cpu > 0.0:
            self.length.lost()
        if known.pod is not None and own and known.pod.outcome == "Failed":
            self.leave(known.pod)
        elif known.pod is not None:
            self.end(known.pod)
        self.record = ledger.lose(self.record, chunk, durable=ledger.durable(self.guest.restart, known.done), own=own)
        if not own:
            return
        what = f"units {chunk.begin}-{chunk.end}"
        self.emit("Warning", reasons.CHUNK_FAILED, f"{what}, attempt {chunk.attempt}: {message}")
        if self.record.failed.largest(chunk.begin, chunk.end) > self.guest.chunk_retries:
            text = f"{what} failed {self.guest.chunk_retries + 1} times: {message}"
            self.record = self.record._replace(failed_condition=Verdict("True", reasons.CHUNK_FAILED, text))
            self.emit("Warning", reasons.CHUNK_FAILED, text)
            for other in self.record.chunks:
                self.lose(other, own=False)
            self.arrivals.clear()

    def end(self, pod: PodObserved) -> None:
        """End a pod. Helpers that still run after the end of the work get the pod's grace period."""
        self.after.append(EndPod(pod.namespace, pod.name, pod.uid, pod.grace if pod.detained else GRACE))

    def leave(self, pod: PodObserved) -> None:
        """End a pod after the end of its work, unless it stays to be looked at: then only its helpers are ended."""
        kept = {"All"} if pod.outcome == "Succeeded" else {"All", "Failed"}
        if self.guest.retention not in kept:
            if pod.over or pod.detained:
                self.end(pod)
        elif pod.detained:
            self.after.append(StopPod(pod.namespace, pod.name, pod.uid))

    # what pods and agents say

    def observe(self, now: float, chunk: Chunk, pod: PodObserved) -> None:
        """Take in the state of a chunk's pod."""
        known = self.of(chunk)
        if known.pod is None and pod.node and pod.phase in {"Pending", "Running"}:
            self._lend(chunk, pod, paused=False)
        if known.pod is not None and known.pod.uid == pod.uid and known.pod.ended is not None and pod.ended is None:
            pod = pod._replace(ended=known.pod.ended)  # what ends the pod afterwards does not change how its work ended
        known.pod = pod
        if pod.outcome == "Succeeded":
            self.succeed(now, chunk, pod)
        elif pod.outcome == "Failed":
            self.lose(chunk, own=pod.own_failure, message=pod.failure)
        elif pod.deleting:
            self.lose(chunk, own=False)
        elif pod.runs:
            if known.ran is None:
                known.ran = known.moved = now
                self.start.measure((now if pod.started is None else pod.started) - chunk.created)
            if chunk.offered is not None and known.offered_at is None:
                # An earlier leader recorded the offer and may have crashed before it sent it.
                self._offer(now, chunk, chunk.offered)

    def succeed(self, now: float, chunk: Chunk, pod: PodObserved) -> None:
        """Account a chunk with a pod that ended well; with an open offer, only after its last report."""
        known = self.of(chunk)
        asked = chunk.offered is not None or (pod.offered and chunk.end == chunk.origin)
        if asked and not known.over:
            if known.ended_at is None:
                known.ended_at = now
                if pod.detained:  # its agent says its last word when all containers have ended
                    self.end(pod)
            elif abs(now - known.ended_at) >= LAST_WORD:
                self.lose(chunk, own=False)
            return
        self._keep_result(chunk, pod)
        self.record = ledger.account(self.record, chunk)
        self.unit.measure(chunk.size, known.cpu)
        self.length.saved()
        del self.chunks[chunk.key]
        for remark in pod.remarks:
            if remark.key not in self.remarked:
                self.remarked |= {remark.key}
                self.emit("Warning" if remark.warning else "Normal", remark.reason, remark.text)
        self.leave(pod)

    def _keep_result(self, chunk: Chunk, pod: PodObserved) -> None:
        if fault := pod.result_fault:
            text = f"units {chunk.begin}-{chunk.end}: no result is kept: the message of pod {pod.name} {fault.text}"
            self.emit("Warning", fault.reason, text)
        elif pod.message:
            self.record = self.record._replace(results=True)
            self.before.append(StoreResult(self.uid, chunk.begin, chunk.end, pod.message, for_reduce=False))

    def report(self, now: float, chunk: Chunk, seen: ChunkSeen) -> None:
        """Take in what a node's agent says of a chunk."""
        known = self.of(chunk)
        # A value beyond the chunk is no count of it.
        done = seen.done if seen.done is not None and seen.done <= chunk.origin - chunk.begin else 0
        if done > known.done or seen.cpu_seconds > known.cpu:
            known.moved = now
        self.served += max(0.0, seen.cpu_seconds - known.cpu) / self.guest.weight
        known.done = max(known.done, min(done, chunk.size))
        known.cpu, known.memory = max(known.cpu, seen.cpu_seconds), seen.memory
        # An end that gives no unit back may answer an offer of an earlier leader, so it answers none.
        asked = chunk.offered is not None or chunk.end < chunk.origin or (known.pod is not None and known.pod.offered)
        if asked and seen.end is not None and not known.answered:
            known.answered, self.missed_at = True, -math.inf
        known.over |= seen.over
        kept: Chunk | None = chunk
        if asked and seen.end is not None and seen.end < chunk.end:
            self.record = ledger.cut(self.record, chunk, seen.end)
            kept = self.chunk(chunk.begin, chunk.attempt)
        assert kept is not None
        if kept.size == 0:  # it had begun no unit
            self.lose(kept, own=False)
        elif known.ended_at is not None and known.pod is not None:
            self.succeed(now, kept, known.pod)
