"""Statuses: the records of jobs and pool, written once per step and only if they have changed.

A record is written before anything acts on it. Progress alone is written at most every ``TELL`` seconds.
"""

from dataclasses import dataclass

from punctual import reasons
from punctual.scheduling.model.actions import Action, CreateChunk, StoreResult, WritePool, WriteStatus
from punctual.scheduling.model.job import Chunk, JobRecord
from punctual.scheduling.model.pool_spec import UNREAD, PoolRecord
from punctual.scheduling.model.wording import some
from punctual.scheduling.placement.plan import Plan, same_placements
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.scheduling.state.outage import why_none
from punctual.scheduling.state.pool_state import LIVE, PoolState
from punctual.verdict import Verdict

TELL = 0.5
"""Minimum seconds between two statuses of a job that differ only in progress."""
UNSEEN = ChunkObservation()
"""Observation of a chunk that has not been seen."""


@dataclass(slots=True)
class Statuses:
    """Turns the outbox of a step into its actions."""

    state: PoolState
    counted: Plan | None = None
    """The plan in which jobs were last counted ..."""
    unbegun: int = 0
    """... and how many of them had no chunk that has begun."""

    def flush(self, now: float) -> list[Action]:
        """Return the step's actions: results first, then statuses that changed, then the rest."""
        statuses, outbox = list[Action](), self.state.outbox
        for uid in outbox.touched:
            st = self.state.jobs.get(uid)
            if st is None or st.state == "Waiting":
                continue
            if st.state not in LIVE:
                self.state.live.drop(uid)
            record = self.stamped(st)
            if record == st.written:
                continue
            urgent = st.written is None or _has_moved(st.written, record)
            st.written, st.told = record, now
            if not record.chunks:
                st.record = record  # only the stamped values differ; saves memory, as most jobs own no chunk
            statuses.append(WriteStatus(uid, record, urgent))
        outbox.touched.clear()
        statuses += self._progress(now)
        actions, outbox.actions = self._without_lost(outbox.actions), []
        results = [action for action in actions if isinstance(action, StoreResult)]
        if results:
            actions = [action for action in actions if not isinstance(action, StoreResult)]
        out = [*results, *statuses, *actions]
        if self.state.outdated.recorded():
            pool, old = self.pool_record(), outbox.pool_written
            if pool != old:
                urgent = old is None or pool.ready != old.ready or pool.spec_applied != old.spec_applied
                outbox.pool_written = pool
                out.append(WritePool(pool, urgent))
        return out

    def _progress(self, now: float) -> list[Action]:
        """Return statuses that differ only in progress, if the last status of the job is at least TELL old."""
        statuses, progressed = list[Action](), self.state.outbox.progressed
        while progressed:
            uid = next(iter(progressed))
            st = self.state.jobs.get(uid)
            if st is not None and now < st.told + TELL:
                break
            del progressed[uid]
            if st is None or st.state == "Waiting":
                continue
            record = self.stamped(st)
            if record != st.written:
                st.written, st.told = record, now
                statuses.append(WriteStatus(uid, record, urgent=False))
        return statuses

    def stamp(self) -> list[Action]:
        """Return the records as an earlier leader left them, with the new epoch."""
        stamps: list[Action] = []
        for uid, st in self.state.jobs.items():
            if not st.record.ended:
                st.written = st.record._replace(epoch=self.state.epoch)
                stamps.append(WriteStatus(uid, st.written))
        if self.state.spec is not UNREAD:
            self.state.outbox.pool_written = self.pool_record()
            stamps.append(WritePool(self.state.outbox.pool_written, urgent=True))
        return stamps

    def stamped(self, st: JobState) -> JobRecord:
        """Return the record to write: with the current epoch and progress."""
        record, watches = st.record, st.watches
        chunks = tuple(_as_reported(c, watches.get(c.key, UNSEEN)) for c in record.chunks)
        work = [c for c in chunks if c.kind != "Reduce"]
        running, reported = sum(c.end - c.begin for c in work), sum(c.done for c in work)
        return record._replace(
            epoch=self.state.epoch,
            observed_generation=record.observed_generation if st.job.uid in self.state.edits else st.asked.generation,
            chunks=chunks,
            done=record.completed.total + reported,
            running=running,
        )

    def pool_record(self) -> PoolRecord:
        """Return the pool's own record to write."""
        asked, spec = self.state.request.spec, self.state.spec
        ready = (
            Verdict("True", reasons.READY, some(self.state.processors.total, "processor"))
            if self.state.processors.total
            else Verdict("False", reasons.NO_NODES, why_none(self.state.processors, spec))
        )
        scarcest = self.state.processors.scarcity.scarcest()
        return PoolRecord(
            epoch=self.state.epoch,
            observed_generation=asked.generation,
            ready=ready,
            spec_applied=self.state.request.verdict,
            applied=self.state.spec,
            processors=self.state.processors.total,
            free=self.state.processors.free,
            scarcest=scarcest[0] if scarcest else "",
            queue=len(self.state.waiting) + self._unbegun(),
            nodes=self.state.processors.lines(self.state.holding.since),
            miss=self.state.misses.count,
            startups=tuple(self.state.pods.startups.seen),
        )

    def _unbegun(self) -> int:
        """Return the number of jobs in the schedule of which no chunk has begun."""
        schedule = self.state.schedule
        planned = schedule.plan if schedule.counts_on_ends else None  # a queue is in no plan
        if planned is None or self.counted is None or not same_placements(planned, self.counted):
            self.counted = planned
            self.unbegun = sum(1 for uid in schedule.uids() if not self.state.jobs[uid].record.started)
        return self.unbegun

    def _without_lost(self, actions: list[Action]) -> list[Action]:
        """Leave out the creation of chunks that were lost within the same step: no record would hold their pods."""
        jobs = {a.job for a in actions if isinstance(a, CreateChunk)}
        there = {
            (uid, chunk.key) for uid in jobs if uid in self.state.jobs for chunk in self.state.jobs[uid].record.chunks
        }
        return [a for a in actions if not isinstance(a, CreateChunk) or (a.job, a.chunk.key) in there]


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
