"""In-memory state of one pool: jobs, processors, the plan, and pending writes.

All stages of a step (``lifecycle``, ``planner``, ``dispatcher``, ``pool``) work on one PoolState, which decides nothing
itself. The contents of the jobs' records survive a crash; all other state is deliberately lost.
"""

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import Any

from punctual import reasons
from punctual.control.miss_ratio import MissCount, MissRatio
from punctual.scheduling.admission.exact import ExactSchedule
from punctual.scheduling.admission.reservation_test import BookedReservations
from punctual.scheduling.admission.schedule import Schedule
from punctual.scheduling.engine.job_state import ChunkObservation, JobState, Key
from punctual.scheduling.engine.offer_searches import OfferSearches
from punctual.scheduling.model.actions import Action, CreateChunk, HoldCapacity, WritePool, WriteStatus
from punctual.scheduling.model.events import NodeObserved, PodObserved
from punctual.scheduling.model.job import Chunk, JobRecord, Verdict
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.processors import Occupant, Place, Processors
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.model.wording import amount, some
from punctual.scheduling.placement.plan import Plan
from punctual.theory.tolerance import tolerance

TELL = 0.5
"""Minimum seconds between two statuses of a job that differ only in progress."""
UNSEEN = ChunkObservation()
"""Observation of a chunk that has not been seen."""
LIVE = frozenset({"Measuring", "Promised", "Leftover"})
"""States that planning and dispatch must consider."""


@dataclass(slots=True)
class PoolState:
    """In-memory state of one pool."""

    epoch: int
    leave: float = 0.0
    """Seconds from the deletion of a pod until its processor is certainly empty."""
    spec: PoolSpec | None = None
    """The spec in force."""
    asked: PoolSpec | None = None
    """The spec as last applied."""
    asked_nodes: tuple[NodeObserved, ...] | None = None
    """The nodes that ``asked`` would select; None: the same nodes."""
    edited: bool = False
    """``asked`` is new and not yet tested."""
    deleting: bool = False
    spec_applied: Verdict | None = None
    jobs: dict[str, JobState] = field(default_factory=dict)
    edits: dict[str, None] = field(default_factory=dict)
    """Jobs with a new ``asked`` that is not yet tested. They are tested only after a restore has read all records."""
    live: dict[str, JobState] = field(default_factory=dict)
    """Jobs that planning and dispatch must consider. Jobs that no longer need it may still be included."""
    active: dict[str, None] = field(default_factory=dict)
    """Uids of the jobs that own chunks, in order."""
    processors: Processors = field(default_factory=Processors)
    schedule: Schedule[Any] = field(default_factory=ExactSchedule)
    """The promised work that waits for processors."""
    miss: MissRatio | None = None
    """The controller of the utilization bound, if the pool has one."""
    miss_found: MissCount | None = None
    """The counts of an earlier leader, until the controller continues from them."""
    ahead: BookedReservations = field(default_factory=BookedReservations)
    """Accepted reservations."""
    startups: StartupTimes = field(default_factory=StartupTimes)
    searches: OfferSearches = field(default_factory=OfferSearches)
    waiting: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (arrival, uid): jobs that wait for a decision."""
    expiring: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (end of ttl, uid)."""
    pods: dict[tuple[str, str], PodObserved] = field(default_factory=dict)
    """(namespace, name) -> last observation."""
    watched: dict[str, tuple[str, Key]] = field(default_factory=dict)
    """Pod uid -> its job's uid and chunk."""
    ending: dict[str, tuple[Occupant, float]] = field(default_factory=dict)
    """Uid of a pod that was told to end -> its processor's occupant, and the end of its grace period."""
    held: set[str] = field(default_factory=set)
    """Nodes that carry this pool's taint."""
    held_since: dict[str, float] = field(default_factory=dict)
    """Node -> time since when placeholders keep its capacity."""
    room: HoldCapacity | None = None
    """The capacity that placeholders were told to keep; None: no action was sent yet."""
    sending: set[Occupant] = field(default_factory=set)
    """Occupants that have a transfer turn and were not seen to have their input. Includes pods without a chunk."""
    stale: bool = False
    """The plan may be suboptimal or no longer valid."""
    causes: dict[str, str] = field(default_factory=dict)
    """Job uid -> reason: jobs that made the plan stale themselves."""
    recreate: bool = False
    """A restore has just happened: pods that were not seen must be created (again)."""
    changed: bool = True
    """The pool's own record may have changed, or a processor may be free."""
    looked: float = -math.inf
    """Time of the last supervision of running chunks."""
    given: float = -math.inf
    """Time of the last dispatch."""
    due: float | None = None
    """Time of the next dispatch without an event; None: not before an event."""
    touched: dict[str, None] = field(default_factory=dict)
    """Jobs with a record that may have changed in this step."""
    progressed: dict[str, None] = field(default_factory=dict)
    """Jobs of which only the progress has changed; the longest waiting comes first."""
    pool_written: PoolRecord | None = None
    before: list[Action] = field(default_factory=list)
    """Actions to carry out before the statuses are written."""
    after: list[Action] = field(default_factory=list)
    """Actions to carry out after the statuses are written."""

    @property
    def plan(self) -> Plan:
        """The work that is fixed on a place and at a time."""
        return self.schedule.plan

    def with_job(self, st: JobState) -> "PoolState":
        """Return the state with another state of one job, for a trial; all else is shared and must not be changed."""
        uid = st.job.uid
        return replace(self, jobs={**self.jobs, uid: st}, live={**self.live, uid: st})

    def occupant(self, uid: str, chunk: Chunk) -> Occupant:
        """Return the occupant that stands for a chunk on a processor."""
        return Occupant(uid, chunk.kind, chunk.begin, chunk.attempt)

    def on(self, place: Place) -> tuple[JobState, Chunk] | None:
        """Return the job and chunk on a place; None: the place is free or its chunk is no longer owned."""
        occupant = self.processors.occupants.get(place)
        st = self.jobs.get(occupant.job) if occupant else None
        chunk = st.chunk(occupant.kind, occupant.begin, occupant.attempt) if st and occupant else None
        return (st, chunk) if st and chunk else None

    def ask(self, st: JobState) -> None:
        """Queue a job for a decision."""
        heapq.heappush(self.waiting, (st.job.arrival, st.job.uid))

    def freed(self, now: float, chunk: Chunk | None) -> None:
        """Note that a processor is free. If it became free exactly when planned, the schedule stays valid."""
        if chunk is None:
            self.stale = True
        elif self.schedule.counts_on_ends:
            self.stale = self.stale or chunk.kind != "Chunk" or abs(now - chunk.promised_end) > tolerance(now)

    def unbook(self, uid: str) -> None:
        """Remove a job's waiting work from the schedule."""
        if self.schedule.remove(uid):
            self.stale = True

    def touch(self, st: JobState) -> None:
        """Note that the job's status may have to be written."""
        self.changed = True
        self.touched[st.job.uid] = None

    def stamped(self, st: JobState) -> JobRecord:
        """Return the record to write: with the current epoch, progress and ETA."""
        record, watches = st.record, st.watches
        chunks = tuple(_as_reported(c, watches.get(c.key, UNSEEN)) for c in record.chunks)
        work = [c for c in chunks if c.kind != "Reduce"]
        running, reported = sum(c.end - c.begin for c in work), sum(c.done for c in work)
        eta = None
        if not record.ended and record.promise is not None and st.state == "Promised":
            eta = record.promise.finish
        return record._replace(
            epoch=self.epoch,
            observed_generation=record.observed_generation if st.job.uid in self.edits else st.asked.generation,
            chunks=chunks,
            done=record.completed.total + reported,
            running=running,
            eta=eta,
        )

    def pool_record(self) -> PoolRecord:
        """Return the pool's own record to write."""
        ready = (
            Verdict("True", reasons.READY, some(self.processors.total, "processor"))
            if self.processors.total
            else Verdict("False", reasons.NO_NODES, self._why_none())
        )
        queue = len(self.waiting) + sum(1 for uid in self.schedule.uids() if not self.jobs[uid].record.started)
        assert self.asked is not None
        return PoolRecord(
            epoch=self.epoch,
            observed_generation=self.asked.generation,
            ready=ready,
            spec_applied=self.spec_applied,
            applied=self.spec,
            processors=self.processors.total,
            free=self.processors.free,
            queue=queue,
            nodes=self.processors.lines(self.held_since),
            miss=self.miss.count if self.miss else self.miss_found,
            startups=tuple(self.startups.seen),
        )

    def _why_none(self) -> str:
        """Return why the pool has no processor."""
        nodes, spec = self.processors.nodes.values(), self.spec
        assert spec is not None
        if not nodes:
            return "no node has the labels that spec.nodeSelector asks for"
        usable = [node for node in nodes if node.ready and node.left_out is None]
        if not usable:
            return f"{some(len(nodes), 'node')} selected, none of them ready and free to use: see status.nodes"
        most = max(node.cpu for node in usable), max(node.memory for node in usable)
        return (
            f"no node has capacity for a processor of {spec.cpu:g} CPU and {amount(spec.memory)}: beside other pods "
            f"at most {most[0]:g} CPU and {amount(most[1])} are left on one"
        )

    def _without_lost(self, actions: list[Action]) -> list[Action]:
        """Leave out the creation of chunks that were lost within the same step: no record would hold their pods."""
        jobs = {a.job for a in actions if isinstance(a, CreateChunk)}
        there = {(uid, chunk.key) for uid in jobs if uid in self.jobs for chunk in self.jobs[uid].record.chunks}
        return [a for a in actions if not isinstance(a, CreateChunk) or (a.job, a.chunk.key) in there]

    def flush(self, now: float) -> list[Action]:
        """Return the step's actions: results first, then statuses that changed, then the rest."""
        statuses: list[Action] = []
        for uid in self.touched:
            st = self.jobs.get(uid)
            if st is None or st.state == "Waiting":
                continue
            if st.state not in LIVE:
                self.live.pop(uid, None)
            record = self.stamped(st)
            if record == st.written:
                continue
            urgent = st.written is None or _has_moved(st.written, record)
            st.written, st.told = record, now
            if not record.chunks:
                st.record = record  # only the stamped values differ; saves memory, as most jobs own no chunk
            statuses.append(WriteStatus(uid, record, urgent))
        self.touched.clear()
        statuses += self._progress(now)
        out = [*self.before, *statuses, *self._without_lost(self.after)]
        self.before, self.after = [], []
        if self.spec is not None and self.changed:
            self.changed = False
            pool = self.pool_record()
            if pool != self.pool_written:
                urgent = (
                    self.pool_written is None
                    or pool.ready != self.pool_written.ready
                    or (pool.spec_applied != self.pool_written.spec_applied)
                )
                self.pool_written = pool
                out.append(WritePool(pool, urgent))
        return out

    def _progress(self, now: float) -> list[Action]:
        """Return statuses that differ only in progress, if the last status of the job is at least TELL old."""
        statuses: list[Action] = []
        while self.progressed:
            uid = next(iter(self.progressed))
            st = self.jobs.get(uid)
            if st is not None and now < st.told + TELL:
                break
            del self.progressed[uid]
            if st is None or st.state == "Waiting":
                continue
            record = self.stamped(st)
            if record != st.written:
                st.written, st.told = record, now
                statuses.append(WriteStatus(uid, record, urgent=False))
        return statuses


def _as_reported(chunk: Chunk, watch: ChunkObservation) -> Chunk:
    """Return the chunk with its last reported progress."""
    done = watch.done and min(watch.done, chunk.size)
    if chunk.done == done and chunk.received == watch.received:
        return chunk
    return chunk._replace(done=done, received=watch.received)


def _has_moved(old: JobRecord, new: JobRecord) -> bool:
    """Whether more than the progress has changed."""
    return len(old.chunks) != len(new.chunks) or _without_progress(old) != _without_progress(new)


def _without_progress(record: JobRecord) -> JobRecord:
    """Return the record without values that change continuously: a change in those alone is not urgent."""
    promise = record.promise._replace(finish=0.0, start=0.0, processors=0) if record.promise else None
    chunks = tuple(c._replace(done=0, received=0) if c.done or c.received else c for c in record.chunks)
    return record._replace(done=0, running=0, eta=None, promise=promise, chunks=chunks)
