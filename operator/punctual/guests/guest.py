"""One guest job: its record, what is known of its chunks, and the transitions of both.

A unit is completed, owned by one chunk, or remaining (:mod:`punctual.scheduling.chunks.ledger`). A chunk that is cut is
offered the end that it has reached. Its life is that of any chunk (:mod:`punctual.scheduling.chunks.life`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from punctual import reasons
from punctual.guests.estimates import ChunkLength, StartTime, UnitCost
from punctual.guests.model import Action, Cause, ChunkSeen, Guest, LendTo
from punctual.linger.policy import Step
from punctual.scheduling.chunks import ledger, life
from punctual.scheduling.chunks.life import Observation
from punctual.scheduling.chunks.owner import ChunkOwner, Key
from punctual.scheduling.model.actions import CreateChunk, Emit, EndPod, StopPod
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.timing import GRACE
from punctual.verdict import Verdict

ANSWER: Final = 5.0
"""Seconds in which a worker answers an offer: it looks several times a second, and its agent reports each second."""


@dataclass(slots=True)
class Arrival:
    """A place that is kept for the rest of a chunk, until the chunk has answered or `ANSWER` is over."""

    node: str
    source: Key
    since: float


@dataclass(slots=True)
class ChunkState(Observation):
    """What is known of a guest's chunk beside its record."""

    memory: int = 0
    answered: bool = False
    """Its worker has answered an offer, perhaps with the end that it has."""
    missed: bool = False
    """It has not answered in time."""
    evicted_at: float | None = None
    """When it was told to leave: its pod is ended if it is still there after `ANSWER`."""
    paused: bool = False
    told: tuple[Cause, Step] | None = None
    """The decision that was told last."""


@dataclass(slots=True)
class GuestState(ChunkOwner[Guest, ChunkState]):
    """A guest job."""

    unseen = ChunkState
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
    deleted: bool = False
    """It was told that its time to live is over."""
    told: list[Action] = field(default_factory=list)
    """What is to be done. Results are stored before the next status, which says so; all else follows it."""

    # what follows from the record

    @property
    def cpu_per_unit(self) -> float:
        """CPU seconds of a unit, by all that is known."""
        return self.unit.seconds(self.job.cpu_per_unit)

    @property
    def remaining(self) -> Ranges:
        """Units that are neither completed nor owned."""
        return ledger.remaining(self.job.units, self.record)

    @property
    def stopped(self) -> bool:
        """Whether no chunk of it may start."""
        return self.record.ended or self.job.suspend or self.job.refusal is not None

    @property
    def wants(self) -> bool:
        """Whether more chunks of it may run. Those that have handed back their rest do not count."""
        if self.stopped or len(self.record.chunks) >= ledger.most_chunks(self.record):
            return False
        running = sum(chunk.end == chunk.origin for chunk in self.record.chunks)
        return (self.job.most is None or running < self.job.most) and bool(self.remaining)

    @property
    def share(self) -> float:
        """What it got and will get for the chunks that it has, CPU seconds over its weight."""
        return self.served + sum(map(self.ahead, self.record.chunks)) / self.job.weight

    def running(self) -> Iterator[tuple[Chunk, ChunkState, PodObserved]]:
        """Yield the chunks with a pod that runs and is not being ended."""
        for chunk in self.record.chunks:
            known = self.watch(chunk)
            if known.pod is not None and known.pod.runs and not known.pod.deleting:
                yield chunk, known, known.pod

    def loss(self, chunk: Chunk) -> float:
        """Return the CPU seconds that are lost if a chunk's pod is killed now: those since the last saved unit."""
        known = self.watch(chunk)
        saved = known.done * self.cpu_per_unit if self.job.restart == "Resume" else 0.0
        return max(0.0, known.cpu - saved)

    def ahead(self, chunk: Chunk) -> float:
        """Return the CPU seconds that a chunk still takes."""
        return max(0.0, chunk.size * self.cpu_per_unit - self.watch(chunk).cpu)

    def left(self, chunk: Chunk) -> float:
        """Return the seconds of work that a chunk could hand back: all but the unit that it has begun."""
        return max(0, chunk.size - self.watch(chunk).done - 1) * self.cpu_per_unit / self.job.cores

    # transitions

    def emit(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Tell something by an event on the job."""
        self.told.append(Emit(self.job.uid, kind, reason, message))

    def begin(self, now: float, node: str, units: Range, rate: float) -> None:
        """Start a chunk of remaining units on a node where it works at a rate."""
        record = self.record
        attempt = ledger.next_attempt(record, units.begin, units.end)
        took = units.size * self.cpu_per_unit / self.job.cores / rate
        end = now + self.start.seconds + took
        chunk = Chunk(units.begin, units.end, units.end, node, attempt, now, end, kind="Guest")
        started = now if record.started is None else record.started
        self.record = record._replace(chunks=(*record.chunks, chunk), started=started)
        self.told.append(CreateChunk(self.job.uid, chunk))

    def cut(self, now: float, chunk: Chunk, goal: str | None = None, *, evict: bool = False) -> None:
        """Ask a running chunk to stop at what it has done. ``goal``: a place is kept there for the rest.

        ``evict``: its pod is ended if it is still there after `ANSWER`.
        """
        known = self.watch(chunk)
        if evict and known.evicted_at is None:
            known.evicted_at = now
        if known.offered_at is not None:
            return
        self.pause(chunk, paused=False)  # a paused worker answers no offer
        self.told.append(self.offer(now, chunk, chunk.begin + known.done))
        if goal is not None:
            self.arrivals.append(Arrival(goal, chunk.key, now))

    def pause(self, chunk: Chunk, *, paused: bool) -> None:
        """Let a running chunk have its least CPU only, or let it go on."""
        known = self.watch(chunk)
        if known.pod is not None and known.paused != paused:
            known.paused = paused
            self._lend(chunk, known.pod, paused=paused)

    def _lend(self, chunk: Chunk, pod: PodObserved, *, paused: bool) -> None:
        units = chunk.origin - chunk.begin
        self.told.append(LendTo(pod.node, pod.uid, units, self.job.weight, paused))

    def lose(self, chunk: Chunk, *, own: bool, message: str = "") -> None:
        """End an attempt without success. ``own``: the workload caused it. Its pod, if it is known, is ended."""
        known = self.watches.pop(chunk.key, ChunkState())
        if chunk.size and known.cpu > 0.0:
            self.length.lost()
        if known.pod is not None and own and known.pod.outcome == "Failed":
            self.leave(known.pod)
        elif known.pod is not None:
            self.end(known.pod)
        done = ledger.durable(self.job.restart, known.done)
        lost = self.end_attempt(chunk, done=done, own=own, message=message)
        if own:
            self.emit("Warning", reasons.CHUNK_FAILED, lost.text)
        if lost.exhausted:
            self.record = self.record._replace(failed_condition=Verdict("True", reasons.CHUNK_FAILED, lost.exhausted))
            self.emit("Warning", reasons.CHUNK_FAILED, lost.exhausted)
            for other in self.record.chunks:
                self.lose(other, own=False)
            self.arrivals.clear()

    def end(self, pod: PodObserved) -> None:
        """End a pod. Helpers that still run after the end of the work get the pod's grace period."""
        self.told.append(EndPod(pod.namespace, pod.name, pod.uid, pod.grace if pod.detained else GRACE))

    def leave(self, pod: PodObserved) -> None:
        """End what is to end of a pod after the end of its work."""
        match life.left_behind(pod, self.job.retention):
            case "Stop":
                self.told.append(StopPod(pod.namespace, pod.name, pod.uid))
            case "End":
                self.end(pod)

    # what pods and agents say

    def observe(self, now: float, chunk: Chunk, pod: PodObserved) -> None:
        """Take in the state of a chunk's pod."""
        known = self.watch(chunk)
        if known.pod is None and pod.node and pod.phase in {"Pending", "Running"}:
            self._lend(chunk, pod, paused=False)
        known.pod = pod = life.continued(known.pod, pod)
        found = life.state(now, chunk, known)
        if found in {"Running", "Asked", "Unsent"} and known.running_since is None:
            known.running_since = known.moved = now
            self.start.measure((now if pod.started is None else pod.started) - chunk.created)
        if found == "Unsent" and chunk.offered is not None:
            self.told.append(self.offer(now, chunk, chunk.offered))
        self.conclude(now, chunk)

    def conclude(self, now: float, chunk: Chunk) -> None:
        """Account a chunk, or lose it, if its pod's end or deletion is known."""
        known = self.watch(chunk)
        if (pod := known.pod) is None:
            return
        match life.state(now, chunk, known):
            case "Done":
                self._account(chunk, known, pod)
            case "Ended":
                known.ended_at = now
                if pod.detained:
                    self.end(pod)
            case "Failed":
                self.lose(chunk, own=pod.own_failure, message=pod.failure)
            case "Leaving" | "Silent":
                self.lose(chunk, own=False)

    def _account(self, chunk: Chunk, known: ChunkState, pod: PodObserved) -> None:
        if (kept := self.keep_result(chunk, pod)) is not None:
            self.told.append(kept)
        self.record = ledger.account(self.record, chunk)
        self.unit.measure(chunk.size, known.cpu)
        self.length.saved()
        del self.watches[chunk.key]
        self.told += self.remarks(pod)
        self.leave(pod)

    def report(self, now: float, chunk: Chunk, seen: ChunkSeen) -> None:
        """Take in what a node's agent says of a chunk."""
        known = self.watch(chunk)
        done = life.reported(chunk, seen.done)
        if done > known.done or seen.cpu_seconds > known.cpu:
            known.moved = now
        self.served += max(0.0, seen.cpu_seconds - known.cpu) / self.job.weight
        known.done = max(known.done, min(done, chunk.size))
        known.cpu, known.memory = max(known.cpu, seen.cpu_seconds), seen.memory
        known.over |= seen.over
        if seen.end is not None and life.was_asked(chunk, known.pod):
            if not known.answered:
                known.answered, self.missed_at = True, -math.inf
            if seen.end < chunk.end:
                chunk = self.shorten(chunk, seen.end)
        if chunk.size == 0:  # it had begun no unit
            self.lose(chunk, own=False)
        elif known.ended_at is not None:
            self.conclude(now, chunk)
