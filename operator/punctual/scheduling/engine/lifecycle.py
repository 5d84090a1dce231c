"""State transitions of chunks and jobs: account, lose, fail, finish, refuse, expire."""

import heapq
import math
from dataclasses import dataclass, field

from punctual import reasons
from punctual.scheduling.chunks import ledger, life
from punctual.scheduling.engine.measurements import Measurements
from punctual.scheduling.model.actions import DeleteJob, Emit, StoreResult, WithdrawChunk
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import WITHOUT_PROMISE, Chunk, InputVersion
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.timing import BLOCKED
from punctual.scheduling.model.wording import SAID, some, span
from punctual.scheduling.state.endings import Endings
from punctual.scheduling.state.job_state import ChunkObservation, JobState, expected_end
from punctual.scheduling.state.pool_state import PoolState
from punctual.verdict import Verdict

LONGEST_BLOCK = 300.0
"""Maximum seconds without new pods for a job with pods that do not start; doubled from `BLOCKED` with each attempt."""


@dataclass(slots=True)
class Lifecycle:
    """Updates records as pods and agents report."""

    state: PoolState
    measurements: Measurements
    endings: Endings
    expiring: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (end of ttl, uid)."""

    def answered(self, now: float, st: JobState, chunk: Chunk, end: int) -> None:
        """Release the tail of the chunk's range after the worker has named the end that it will honour."""
        kept = st.shorten(chunk, end)
        self.state.touch(st)
        if kept.end < chunk.end:
            watch = st.watch(kept)
            if watch.done > 0:  # the new end follows from the observed pace, not from the planned one
                until = expected_end(kept._replace(promised_end=now), watch, now=now)
                st.record = st.record.changed(kept._replace(promised_end=min(kept.promised_end, until)))
            self.state.outdated.work_changed()
        if kept.size == 0:  # it had begun no unit
            self.end_and_lose(now, st, kept, reasons.OVERRUN, "gave its whole range back", own=False)

    def succeeded(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Account the chunk; if it may have stopped early, only once it is known how many units are done."""
        pod = watch.pod
        assert pod is not None
        if fault := _fault(st, chunk, pod):
            self.end_and_lose(now, st, chunk, *fault, own=True, durable=False)
            return
        if (found := life.state(now, chunk, watch)) != "Done":
            if found == "Ended":
                watch.ended_at = now
                if pod.detained:
                    self.endings.end(now, pod, pod.grace)
            elif found == "Silent":
                text = f"pod {pod.name} ended without its answer"
                self.end_and_lose(now, st, chunk, reasons.CHUNK_FAILED, text, own=False)
            return
        ended = self.measurements.ended(now, chunk, watch, pod)
        st.last_end = max(st.last_end, ended)
        done = self._done(now, st)
        self.state.touch(st)
        self.state.freed(now, None if pod.detained else chunk)
        self.state.outbox.add(*st.remarks(pod))
        if chunk.kind == "Reduce":
            self._tell_fault(st, pod)
            st.record = st.record.without(chunk)
            self.finish(done, st)
        else:
            for_reduce = st.job.reduce_duration is not None
            if (kept := st.keep_result(chunk, pod, for_reduce=for_reduce)) is not None:
                self.state.outbox.add(kept)
            st.record = ledger.account(st.record, chunk)
            fetched = self.measurements.transferred(st, chunk, watch)
            if chunk.size:
                self.measurements.record(now, st, chunk, watch, fetched, seen_late=ended < now)
        self._forget(st, chunk)
        self.endings.leave(now, pod, st.job.retention)
        self._maybe_finish(done, st)

    def count(self, now: float, st: JobState, done: Ranges) -> None:
        """Account units that are done although no chunk of theirs was seen to end: pods of an earlier record did them.

        A chunk with a pod that was seen is left to what is seen of that.
        """
        for chunk in st.record.chunks:
            if st.watch(chunk).pod is None and done & Ranges.of((chunk.begin, chunk.end)):
                self.end_pod(now, st, chunk)
                st.record = ledger.account(st.record, chunk)
                self._forget(st, chunk)
        st.record = st.record._replace(
            completed=st.record.completed | (done & ledger.remaining(st.job.units, st.record))
        )
        self.state.touch(st)
        self.state.outdated.work_changed()
        self._maybe_finish(now, st)

    def see_input(self, now: float, st: JobState, chunk: Chunk, pod: PodObserved) -> bool:
        """Check which version of the input a chunk has read; return whether the chunk continues.

        The first version seen becomes the version of the whole job. It is recorded before any unit counts, so every
        leader compares with the same version. A chunk with another version, or without one, does not count. Another
        version also fails the job, since no further attempt could succeed.
        """
        watch = st.watch(chunk)
        if pod.input_changed:
            self._change_input(now, st, chunk, pod, f"pod {pod.name}: {pod.message[:SAID]}")
        elif pod.fetched and not watch.input_known and st.job.fetches and chunk.kind != "Reduce":
            if pod.input is None:
                text = (
                    f"pod {pod.name}: its input step does not say which version of the input it has read: the image "
                    "(spec.input.image) must have the operator's version of punctual.fetch"
                )
                self.end_and_lose(now, st, chunk, reasons.CHUNK_FAILED, text, own=True, durable=False)
            elif st.record.input not in (None, pod.input):
                text = f"pod {pod.name} has read an input of {pod.input}; the job began with {st.record.input}"
                self._change_input(now, st, chunk, pod, text)
            else:
                watch.input_known = True
                self._begin_with(st, pod.input)
        return st.chunk(*chunk.key) is not None

    def _begin_with(self, st: JobState, version: InputVersion) -> None:
        if st.record.input is None:
            st.record = st.record._replace(input=version)
            self.state.touch(st)

    def _change_input(self, now: float, st: JobState, chunk: Chunk, pod: PodObserved, message: str) -> None:
        if pod.phase == "Failed":  # a failed pod stays for inspection
            st.record = ledger.lose(st.record, chunk, own=True)
        text = (
            f"{chunk.what}, attempt {chunk.attempt}: {message}. The input must stay as it is while "
            "the job runs: create a new job for the new input"
        )
        self.fail(now, st, reasons.INPUT_CHANGED, text)

    def _tell_fault(self, st: JobState, pod: PodObserved) -> None:
        """Emit an event if the message of a reduce is not what it has left. Its log is, and is the job's result."""
        if fault := pod.result_fault:
            text = f"reduce: its log has the complete output, but the message of pod {pod.name} {fault.text}"
            self.state.outbox.add(Emit(st.job.uid, "Warning", fault.reason, text))

    def hold_back(self, now: float, st: JobState, chunk: Chunk, reason: str) -> None:
        """Delay the job's next pod, longer with each attempt: what kept this one from starting may still be there.

        The cause is the job's own, or one node's, so other jobs' processors do not wait.
        """
        tries = max(0, st.record.tried.largest(chunk.begin, chunk.end) - 1)
        st.refused_until = max(st.refused_until, now + min(BLOCKED * 2.0 ** min(tries, 10), LONGEST_BLOCK))
        st.refused_for = reason
        self.state.outdated.caused_by(st.job.uid, reason)

    def end_pod(self, now: float, st: JobState, chunk: Chunk) -> None:
        """End the pod of a chunk. One that was never seen is ended when it appears."""
        if (pod := st.watch(chunk).pod) is not None:
            self.endings.end(now, pod)
        elif st.job.unit_pods:  # nothing ends a pod of a Job: if it has started, it keeps its processor
            self.state.outbox.add(WithdrawChunk(st.job.uid, chunk))
        else:
            self.state.processors.leave(self.state.occupant(st.job.uid, chunk))

    def end_and_lose(
        self, now: float, st: JobState, chunk: Chunk, reason: str, message: str, *, own: bool, durable: bool = True
    ) -> None:
        """End the chunk's pod, if it has one, and take its units back."""
        self.end_pod(now, st, chunk)
        self.lose(now, st, chunk, reason, message, own=own, durable=durable)

    def lose(
        self, now: float, st: JobState, chunk: Chunk, reason: str, message: str, *, own: bool, durable: bool = True
    ) -> None:
        """Record an attempt without success and update the job; an empty message emits no event.

        ``durable``: whether its reported progress may count (``restart: Resume``).
        """
        watch = st.watch(chunk)
        counts = durable and chunk.kind != "Reduce" and (watch.input_known or not st.job.fetches)
        done = ledger.durable(st.job.restart, watch.done) if counts else 0
        if done and st.job.reduce_duration is not None:
            # Durable units have no termination message; the result entry still shows reduce that the range is complete.
            self.state.outbox.add(StoreResult(st.job.uid, chunk.begin, chunk.begin + min(done, chunk.size), ""))
        lost = st.end_attempt(chunk, done=done, own=own, message=message)
        self._forget(st, chunk)
        self.state.touch(st)
        self.state.outdated.work_changed()
        if message:
            self.state.outbox.add(Emit(st.job.uid, "Warning", reason, lost.text))
        if own:
            self.state.outdated.caused_by(st.job.uid, reasons.CHUNK_FAILED)
        if lost.exhausted:
            self.fail(now, st, reasons.REDUCE_FAILED if chunk.kind == "Reduce" else reason, lost.exhausted)
            return
        self._maybe_finish(now, st)

    def _forget(self, st: JobState, chunk: Chunk) -> None:
        watch = st.watches.pop(chunk.key, None)
        if watch and watch.pod and (watch.pod.namespace, watch.pod.name) not in self.state.pods.seen:
            self.state.pods.watched.pop(watch.pod.uid, None)
        st.refused_until = 0.0  # its quota may have free capacity again
        if not st.record.chunks:
            self.state.active.pop(st.job.uid, None)

    @staticmethod
    def _done(now: float, st: JobState) -> float:
        """Return when the units accounted so far were complete: when the last pod ended, even if that was seen later.

        For a job that an earlier leader called late it is ``now``: that leader may have seen a pod end after the
        deadline.
        """
        return now if st.taken_over_late else st.last_end

    def _maybe_finish(self, ended: float, st: JobState) -> None:
        if st.record.ended or st.record.chunks or not st.work_done or st.job.reduce_duration is not None:
            return
        self.finish(ended, st)

    def finish(self, ended: float, st: JobState) -> None:
        """End the job with success: every unit is done, and reduce if there is one.

        ``ended``: when its last work was done, seconds.
        """
        deadline = st.job.deadline
        taken = span(ended - (st.record.started or ended))
        missed = (st.record.promise is not None or st.record.goes_on) and ended > deadline
        if missed:
            verdict = Verdict("True", reasons.DEADLINE_MISSED, f"done in {taken}, {span(ended - deadline)} late")
        else:
            verdict = Verdict("True", reasons.COMPLETED, f"{some(st.job.units, 'unit')} done in {taken}")
        on_track = st.record.on_track
        if on_track and ended <= deadline:
            on_track = Verdict("True", reasons.ON_TRACK, f"finished {span(deadline - ended)} before the deadline")
        elif on_track and on_track.status == "True" and missed:
            on_track = Verdict("False", reasons.LATE, f"finished {span(ended - deadline)} after the deadline")
        st.record = st.record._replace(
            completed_condition=verdict, on_track=on_track, finished=ended, eta=None, chunks=()
        )
        self._close(ended, st)
        self.state.outbox.add(Emit(st.job.uid, "Warning" if missed else "Normal", verdict.reason, verdict.message))

    def fail(self, now: float, st: JobState, reason: str, message: str) -> None:
        """End the job without success: its running pods are ended, its completed units stay on record."""
        for chunk in st.record.chunks:
            self.end_pod(now, st, chunk)
        verdict = Verdict("True", reason, message)
        st.record = st.record._replace(
            chunks=(),
            failed_condition=verdict,
            on_track=Verdict("False", reason, message) if st.record.promise else None,
            finished=now,
            eta=None,
        )
        self._close(now, st)
        self.state.outbox.add(Emit(st.job.uid, "Warning", reason, message))

    def refuse(self, now: float, st: JobState, reason: str, message: str) -> None:
        """Refuse the job: it is finished until an edit of its spec requests a new decision, or goes on all the same."""
        job = st.job
        since: float | None = now if st.record.refused is None else st.record.refused
        goes_on = job.on_refusal == "Continue" and not job.dry_run and reason in WITHOUT_PROMISE
        if goes_on:
            message, since = f"{message}; it runs on leftover capacity without a promise", None
        else:
            for chunk in [chunk for chunk in st.record.chunks if chunk.leftover]:  # it ran without a promise
                self.end_and_lose(now, st, chunk, reason, "", own=False)
        if st.record.ended:
            return
        st.record = st.record._replace(
            admitted=Verdict("False", reason, message), promise=None, refused=since, goes_on=goes_on
        )
        self.note_end(st)
        self.state.outbox.add(Emit(st.job.uid, "Warning", reason, message))

    def missed(self, now: float, st: JobState) -> None:
        """Record that the deadline of a statistically admitted job has passed before it was done."""
        text = f"the deadline has passed, and {some(st.job.units - st.record.completed.total, 'unit')} are not done"
        if st.job.on_miss == "Stop":
            self.fail(now, st, reasons.LATE, f"{text}; spec.onMiss is Stop")
        elif st.state == "Promised" and (st.record.on_track is None or st.record.on_track.status == "True"):
            st.record = st.record._replace(on_track=Verdict("False", reasons.LATE, text))
            self.state.touch(st)
            self.state.outbox.add(Emit(st.job.uid, "Warning", reasons.LATE, text))

    def _close(self, ended: float, st: JobState) -> None:
        uid = st.job.uid
        st.watches.clear()
        st.kept_demand = None
        self.state.active.pop(uid, None)
        self.state.outdated.causes.pop(uid, None)
        self.state.searches.drop(uid)
        if st.record.completed_condition is not None:
            self.state.misses.ended(ended, uid)
        else:  # caused by the job itself: no bound would have prevented it
            self.state.misses.leave(uid)
        self.state.unbook(uid)
        self.state.touch(st)
        self.note_end(st)

    def note_end(self, st: JobState) -> None:
        """Schedule the job's deletion for the end of its time to live."""
        if st.job.ttl is not None and st.record.over is not None:
            heapq.heappush(self.expiring, (st.record.over + st.job.ttl, st.job.uid))

    def expire(self, now: float) -> None:
        """Delete ended and refused jobs that have exceeded their time to live."""
        while self.expiring and self.expiring[0][0] <= now:
            _, uid = heapq.heappop(self.expiring)
            st = self.state.jobs.get(uid)
            # An edit or a new decision may have moved the time since.
            over = st.record.over if st else None
            due = math.inf if st is None or st.job.ttl is None or over is None else over + st.job.ttl
            if due <= now:
                self.state.outbox.add(DeleteJob(uid))


def _fault(st: JobState, chunk: Chunk, pod: PodObserved) -> tuple[str, str] | None:
    """Return the reason and message if a chunk does not count although its pod has succeeded; None: it counts."""
    fault = pod.result_fault
    if fault is not None and st.job.reduce_duration is not None and chunk.kind != "Reduce":
        return fault.reason, f"pod {pod.name}: its result {fault.text}"
    if st.job.fetches and chunk.kind != "Reduce" and not st.watch(chunk).input_known:
        return reasons.CHUNK_FAILED, f"pod {pod.name} has succeeded without a record that it has read its input"
    return None
