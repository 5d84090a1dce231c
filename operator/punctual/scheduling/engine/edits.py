"""Edits of a job's spec, in every state of the job.

A job without a promise is tested again as a new job. A job with a promise keeps it, even if the edit is refused;
``suspend`` gives the promise up.
"""

from dataclasses import dataclass, replace

from punctual import reasons
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.admission_mode import AdmissionMode, KeptByBound
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.wording import span
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.tenants.share_bookings import ShareBookings
from punctual.verdict import Verdict


@dataclass(slots=True)
class Edits:
    """Applies edited specs."""

    state: PoolState
    lifecycle: Lifecycle
    mode: AdmissionMode
    shares: ShareBookings

    def apply(self, now: float, st: JobState) -> None:
        """Apply the edited spec as far as possible."""
        job = st.asked
        self.state.touch(st)
        state = st.state
        if state == "Ended":
            st.job = replace(st.job, ttl=job.ttl)
            self.lifecycle.note_end(st)
        elif state in {"Waiting", "Refused", "Answered"} and not (job.suspend and st.record.chunks):
            self._ask_anew(st, job)
        elif job.suspend and state != "Suspended":
            self._suspend(now, st, job)
        elif state == "Suspended":
            if job.suspend:
                st.job, st.record = job, ledger.within(st.record, job.units)
            else:
                self._ask_anew(st, job)
        elif st.record.goes_on and state == "Leftover":
            self._ask_beside_chunks(now, st, job)
        elif state == "Measuring" and job.units != st.job.units:
            if not self._take_back(now, st, reasons.MEASURING):
                self._ask_anew(st, job)
        elif state in {"Measuring", "Leftover"}:
            st.job = replace(job, units=st.job.units)
            promise = st.record.promise._replace(deadline=job.deadline) if st.record.promise else None
            applied = Verdict("True", reasons.APPLIED, "the change is in force")
            st.record = st.record._replace(promise=promise, spec_applied=applied)
        else:
            self._change_promised(now, st, job)

    def _ask_anew(self, st: JobState, job: Job) -> None:
        """Queue an edited job for a new decision; its completed units stay completed."""
        st.job = job
        record = ledger.within(st.record, job.units)
        st.record = record._replace(admitted=None, on_track=None, promise=None, offer=None, refused=None, goes_on=False)
        self.state.searches.drop(job.uid)  # the search was for the old spec
        self.state.ask(st)

    def _ask_beside_chunks(self, now: float, st: JobState, job: Job) -> None:
        """Ask for a job that runs without a promise. Nothing ends the pods of a Job, so its units go on meanwhile."""
        keeps = job.unit_pods and job.units == st.job.units
        if keeps or not self._take_back(now, st, reasons.APPLIED):
            self._ask_anew(st, job)

    def _take_back(self, now: float, st: JobState, reason: str) -> bool:
        """End all chunks of a job; return whether the job has ended because all its units were reported done."""
        for chunk in st.record.chunks:
            self.lifecycle.end_and_lose(now, st, chunk, reason, "", own=False)
        return st.record.ended

    def _change_promised(self, now: float, st: JobState, job: Job) -> None:
        """Test a new deadline or number of processors as a change; a refused edit changes nothing."""
        old = st.job
        promise = st.record.promise
        assert promise is not None
        fixed = replace(
            job,
            units=old.units,
            cost=old.cost,
            reduce_duration=old.reduce_duration,
            restart=old.restart,
            reservation=old.reservation,
            unit_pods=old.unit_pods,
        )
        if _tested(job) != _tested(old):
            changed = replace(st, job=fixed)
            kept = self.shares.objection(now, changed, old) or self.mode.test_change(now, changed)
            if isinstance(kept, str):
                st.job = replace(
                    fixed,
                    deadline=old.deadline,
                    min_processors=old.min_processors,
                    max_processors=old.max_processors,
                )
                text = f"{_named(job, old, now)} would {kept}; the previous promise stays in force"
                st.record = st.record._replace(spec_applied=Verdict("False", reasons.EDIT_REFUSED, text))
                self.state.outbox.add(Emit(job.uid, "Warning", reasons.EDIT_REFUSED, text))
                return
            processors = max(job.min_processors, min(promise.processors, job.max_processors or promise.processors))
            st.record = st.record._replace(promise=promise._replace(deadline=job.deadline, processors=processors))
            st.job = fixed
            self.mode.change(now, st, kept)
            if isinstance(kept, KeptByBound):
                self.state.misses.accept(job.uid, job.deadline)
        st.job = fixed
        st.record = st.record._replace(spec_applied=Verdict("True", reasons.APPLIED, "the change is in force"))

    def _suspend(self, now: float, st: JobState, job: Job) -> None:
        if self._take_back(now, st, reasons.SUSPENDED):
            return
        st.job = job
        self.state.misses.leave(job.uid)
        self.state.unbook(job.uid)
        self.state.outdated.work_changed()
        verdict = Verdict("False", reasons.SUSPENDED, "spec.suspend is true: the promise was given up")
        # Until a unit is completed, the input may change and the spec may name another.
        version = st.record.input if st.record.completed else None
        st.record = st.record._replace(
            admitted=verdict, on_track=None, promise=None, offer=None, eta=None, input=version, goes_on=False
        )
        self.state.outbox.add(Emit(job.uid, "Normal", reasons.SUSPENDED, verdict.message))


def _named(job: Job, old: Job, now: float) -> str:
    """Return what an edit of tested fields requests."""
    processors = f"processors.min {job.min_processors}, max {job.max_processors or 'none'}"
    if job.deadline == old.deadline:
        return processors
    deadline = f"a deadline {span(job.deadline - now)} from now"
    return deadline if _tested(job)[1:] == _tested(old)[1:] else f"{deadline} with {processors}"


def _tested(job: Job) -> tuple[float, int, int | None]:
    """Return the fields of a job's spec that its promise depends on and that may be edited."""
    return job.deadline, job.min_processors, job.max_processors
