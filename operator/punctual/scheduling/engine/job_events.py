"""Events of jobs: a job is applied, edited, or deleted; after a takeover it comes with its record."""

from dataclasses import dataclass, replace

from punctual import reasons
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.model.events import JobApplied, UnitsCounted
from punctual.scheduling.model.job import JobRecord
from punctual.scheduling.model.node_rules import NodeRules
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import LIVE, PoolState
from punctual.scheduling.tenants.share_bookings import undone


@dataclass(slots=True)
class JobEvents:
    """Processes what users do with jobs. Edits are noted only; :mod:`punctual.scheduling.engine.edits` applies them."""

    state: PoolState
    lifecycle: Lifecycle

    def applied(self, event: JobApplied) -> None:
        """Take in a new job, with the record of an earlier leader if there is one, or note an edit."""
        job = event.job
        st = self.state.jobs.get(job.uid)
        if st is None:
            st = JobState(job, job)
            self.state.jobs[job.uid] = st
            if event.record is not None:
                self._take_record(st, event.record)
                # The job may come after a restore, too: a list may have lacked it.
                self.state.outdated.taken_over()
            if st.state == "Waiting":
                self.state.ask(st)
            return
        if job.rules != st.job.rules:
            self._change_rules(st, job.rules)
        if job != st.asked:
            st.asked = job
            self.state.edits[job.uid] = None

    def _change_rules(self, st: JobState, rules: NodeRules) -> None:
        """Let other rules about nodes be in force: no edit asks for them, so none is refused."""
        before = self.state.processors.eligible(st.job.rules)
        st.job, st.asked = replace(st.job, rules=rules), replace(st.asked, rules=rules)
        if st.job.uid in self.state.live:
            self.state.live[st.job.uid] = st
        if st.state in LIVE and before != self.state.processors.eligible(rules):
            self.state.outdated.caused_by(st.job.uid, reasons.CAPACITY_LOST)
            self.state.outdated.capacity_changed()

    def _take_record(self, st: JobState, record: JobRecord) -> None:
        """Take over a job that an earlier leader recorded."""
        st.record = ledger.within(record, st.job.units)
        st.written = record
        st.taken_over_late = record.on_track is not None and record.on_track.status == "False"
        if record.on_track is not None and record.on_track.reason == reasons.NOT_STARTED:
            st.unstarted = record.on_track.message  # until one of its pods runs
        # Something other than a leader wrote this record, and no leader could process it.
        chunks = {chunk.key: chunk for chunk in record.chunks}
        pilots = tuple(sample for sample in record.pilots if sample.units > 0)
        st.record = st.record._replace(chunks=tuple(chunks.values()), pilots=pilots)
        goes_on = record.goes_on and st.job.on_refusal == "Continue"
        no_promise = record.promise is None and not goes_on
        if st.state in LIVE and st.state != "Measuring" and (no_promise or st.cost is None):
            st.record = st.record._replace(admitted=None, goes_on=False)
        if st.state in LIVE:
            self.state.live[st.job.uid] = st
        asked, promise = st.asked, record.promise
        if promise is not None:  # the promise is in force, whatever a refused edit asks for
            st.job = replace(st.job, deadline=promise.deadline)
            # It was promised on fewer processors than its minimum if an earlier version took the minimum less strictly.
            st.job = replace(st.job, min_processors=min(asked.min_processors, promise.processors))
            refused = record.spec_applied is not None and record.spec_applied.status == "False"
            if refused or record.observed_generation < asked.generation:
                most = asked.max_processors
                st.job = replace(st.job, max_processors=None if most is None else max(most, promise.processors))
        for chunk in st.record.chunks:
            occupant = self.state.occupant(st.job.uid, chunk)
            self.state.processors.seat(occupant, chunk.node)
            self.state.active[st.job.uid] = None
            if chunk.turn is not None:  # until its pod is seen to have its input
                self.state.pods.sending.add(occupant)
        self.lifecycle.note_end(st)
        if not record.ended and record.observed_generation < st.asked.generation:
            self.state.edits[st.job.uid] = None

    def counted(self, now: float, event: UnitsCounted) -> None:
        """Take in what the controller of a Job has counted."""
        st = self.state.jobs.get(event.uid)
        if st is None or st.record.ended:
            return
        if event.failed:
            self.lifecycle.fail(now, st, reasons.JOB_FAILED, event.failed)
        else:
            self.lifecycle.count(now, st, event.done)

    def deleted(self, now: float, uid: str) -> None:
        """Forget a job, and end its pods."""
        st = self.state.jobs.pop(uid, None)
        if st is None:
            return
        self.state.outbox.drop(uid)
        self.state.active.pop(uid, None)
        self.state.live.drop(uid)
        self.state.edits.pop(uid, None)
        self.state.searches.drop(uid)
        self.state.misses.leave(uid)
        self.state.unbook(uid)
        self.state.shares.end(uid, undone(st))
        if self.state.schedule.counts_on_ends and (st.state in LIVE or st.record.chunks):
            self.state.outdated.work_changed()
        for chunk in st.record.chunks:
            self.lifecycle.end_pod(now, st, chunk)
