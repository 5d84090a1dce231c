"""What becomes of chunks and jobs: accounted, lost, failed, finished; and who looks after those that run."""

import heapq
import math
from dataclasses import dataclass

from punctual import reasons
from punctual.control.cost_estimation import Fetched
from punctual.scheduling.engine.health import SAID, finding
from punctual.scheduling.engine.job_state import ChunkObservation, JobState, Key, expected_end
from punctual.scheduling.engine.state import PoolState
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import DeleteJob, Emit, EndPod, Measured, SetPoint, StoreResult
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, InputVersion, PilotSample, Transfers, Verdict
from punctual.scheduling.model.processors import Occupant
from punctual.scheduling.model.wording import some, span
from punctual.theory.tolerance import tolerance

LOOK = 0.5
"""Seconds between two looks at all running chunks: what is found this way is counted in seconds.

A look in the future is none: the API server's clock was set back.
"""
LAST_WORD = 30.0
"""Seconds to wait for the agent to read the last answer of a pod that ended with an offer open."""
SEEN = 2.0
"""Seconds within which a pod's start or end is seen as it happens."""
GRACE = 2.0
"""Seconds that a pod told to end may go on: nothing it does then counts, and somebody waits for its processor."""
BLOCKED = 10.0
"""Seconds a node offers nothing after a pod did not fit there, and a job creates none after one was refused."""


@dataclass(slots=True)
class Lifecycle:
    """Moves records on as pods and agents report."""

    state: PoolState

    def answered(self, now: float, st: JobState, chunk: Chunk, end: int) -> None:
        """Give the tail away now that the worker has said where it will stop."""
        st.record = ledger.cut(st.record, chunk, end)
        self.state.touch(st)
        kept = st.chunk(*chunk.key)
        assert kept is not None
        if kept.end < chunk.end:
            watch = st.watch(kept)
            if watch.done > 0:  # it ends earlier now: by its own pace, which an unkept plan does not know
                until = expected_end(kept._replace(promised_end=now), watch, now=now)
                st.record = st.record.changed(kept._replace(promised_end=min(kept.promised_end, until)))
            self.state.stale = True
        if kept.size == 0:  # nothing of it was begun
            self.end_and_lose(now, st, kept, reasons.OVERRUN, "gave its whole range back", own=False)

    def see_success(self, now: float, st: JobState, key: Key) -> None:
        """Account a chunk whose pod has succeeded, if it is still owned and its last word is known."""
        chunk = st.chunk(*key)
        watch = st.watches.get(key)
        if chunk and watch and watch.pod and watch.pod.phase == "Succeeded":
            self.succeeded(now, st, chunk, watch)

    def succeeded(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Account the chunk; where an offer is open, only once its last word is known."""
        pod = watch.pod
        assert pod is not None
        if fault := _fault(st, chunk, pod):
            self.end_and_lose(now, st, chunk, *fault, own=True, durable=False)
            return
        if chunk.offered is not None or (pod.offered and chunk.end == chunk.origin):
            # It may have stopped early: only its answer, read after its end, tells what was done.
            if watch.ended_at is None:
                watch.ended_at = now
                return
            if watch.ended_at != -math.inf:
                if abs(now - watch.ended_at) < LAST_WORD:
                    return
                text = f"pod {pod.name} ended without its answer"
                self.end_and_lose(now, st, chunk, reasons.CHUNK_FAILED, text, own=False)
                return
        ended = self._ended(now, chunk, watch, pod)
        st.last_end = max(st.last_end, ended)
        done = self._done(now, st)
        self.state.touch(st)
        self.state.freed(now, chunk)
        if chunk.kind == "Reduce":
            self._tell_cut(st, pod)
            st.record = st.record.without(chunk)
            self.finish(done, st)
        else:
            if st.job.reduce_duration is not None:
                self.state.before.append(StoreResult(st.job.uid, chunk.begin, chunk.end, pod.message))
            st.record = ledger.account(st.record, chunk)
            fetched = self._transferred(st, chunk, watch)
            if chunk.size:
                self._measured(now, st, chunk, fetched, seen_late=ended < now)
        self._forget(st, chunk)
        if chunk.kind != "Reduce":  # its log is the job's result: it stays as long as the job
            self.end(now, pod)
        self._maybe_finish(done, st)

    def see_input(self, now: float, st: JobState, chunk: Chunk, pod: PodObserved) -> bool:
        """Look which version of the input a chunk has read; return whether the chunk goes on.

        The first version seen is that of the whole job. It is on record before any unit counts, so every leader
        compares with the same. Where it is another, or the step does not say, the chunk does not count; where it is
        another no attempt would, so the job has failed.
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
        if pod.phase == "Failed":  # it stays to be read
            st.record = ledger.lose(st.record, chunk, own=True)
        text = (
            f"units {chunk.begin}-{chunk.end}, attempt {chunk.attempt}: {message}. The input must stay as it is while "
            "the job runs: create the job anew for the new one"
        )
        self.fail(now, st, reasons.INPUT_CHANGED, text)

    def _tell_cut(self, st: JobState, pod: PodObserved) -> None:
        """Tell that the message of a reduce is cut; its log is whole, and that is the job's result."""
        if pod.cut is not None:
            text = f"reduce: the message of pod {pod.name} is cut at {pod.cut} bytes; its log has all that it wrote"
            self.state.after.append(Emit(st.job.uid, "Warning", reasons.RESULT_CUT, text))

    def end_and_lose(
        self, now: float, st: JobState, chunk: Chunk, reason: str, message: str, *, own: bool, durable: bool = True
    ) -> None:
        """End the chunk's pod, if it has one, and take its units back."""
        pod = st.watch(chunk).pod
        if pod is None:
            self.state.processors.leave(self.state.occupant(st.job.uid, chunk))
        else:
            self.end(now, pod)
        self.lose(now, st, chunk, reason, message, own=own, durable=durable)

    def lose(
        self, now: float, st: JobState, chunk: Chunk, reason: str, message: str, *, own: bool, durable: bool = True
    ) -> None:
        """End an attempt without success and see what becomes of the job; an empty message is not told.

        ``durable``: whether what it has reported may count (``restart: Resume``).
        """
        watch = st.watch(chunk)
        counts = durable and chunk.kind != "Reduce" and (watch.input_known or not st.job.fetches)
        done = ledger.durable(st.job.restart, watch.done) if counts else 0
        if done and st.job.reduce_duration is not None:
            # what is durable has no termination message; reduce still sees that the range is there
            self.state.before.append(StoreResult(st.job.uid, chunk.begin, chunk.begin + min(done, chunk.size), ""))
        st.record = ledger.lose(st.record, chunk, durable=done, own=own)
        self._forget(st, chunk)
        self.state.touch(st)
        self.state.stale = True
        what = "reduce" if chunk.kind == "Reduce" else f"units {chunk.begin}-{chunk.end}"
        if message:
            text = f"{what}, attempt {chunk.attempt}: {message}"
            self.state.after.append(Emit(st.job.uid, "Warning", reason, text))
        if own:
            self.state.causes.setdefault(st.job.uid, reasons.CHUNK_FAILED)
            if st.record.failed.largest(chunk.begin, chunk.end) > st.job.chunk_retries:
                last = reasons.REDUCE_FAILED if chunk.kind == "Reduce" else reason
                self.fail(now, st, last, f"{what} failed {st.job.chunk_retries + 1} times: {message}")
                return
        self._maybe_finish(now, st)

    def _forget(self, st: JobState, chunk: Chunk) -> None:
        st.watches.pop(chunk.key, None)
        st.refused_until = 0.0  # there may be room in a quota again
        if not st.record.chunks:
            self.state.active.pop(st.job.uid, None)

    def end(self, now: float, pod: PodObserved) -> None:
        """Have a pod deleted, once: also one that is going already, for it may have been given a longer grace."""
        if pod.uid in self.state.ending:
            return
        self.state.ending[pod.uid] = Occupant(pod.job, pod.kind, pod.begin, pod.attempt), now + GRACE
        self.state.after.append(EndPod(pod.namespace, pod.name, pod.uid, 1.0 if pod.phase == "Succeeded" else GRACE))

    def running_since(self, now: float, chunk: Chunk, pod: PodObserved) -> float:
        """Tell since when a pod runs: from now on, unless it is seen late, by a new leader or behind an outage.

        Then it is the kubelet's word, in whole seconds on its node's clock: what cannot be is not believed.
        """
        if pod.started is None or not (self.state.recreate or pod.started < now - SEEN):
            return now
        return pod.started if chunk.created <= pod.started <= now else chunk.created

    def _ended(self, now: float, chunk: Chunk, watch: ChunkObservation, pod: PodObserved) -> float:
        """Tell when a pod ended: now, unless it had ended for a while before somebody saw it.

        Then it is the kubelet's word, in whole seconds: as a difference of two of its times it tells that much,
        whatever its clock. It is no measure of a unit: a small pilot's second is a part of every one.
        """
        if pod.started is None or pod.finished is None:
            return now
        since = watch.running_since or self.running_since(now, chunk, pod)
        end = since + (pod.finished - pod.started) + 1.0
        return end if end < now - SEEN else now

    def _measured(self, now: float, st: JobState, chunk: Chunk, fetched: Fetched | None, *, seen_late: bool) -> None:
        """Tell what its units took; of a pilot, note it: also late where there will be no other.

        What ends no later than it began, by a clock that was set back or stood still meanwhile, is no measure either.
        """
        # what it waited for its turn to fetch its input is nothing that it costs
        seconds = max(0.0, now - max(chunk.created, chunk.turn or chunk.created))
        measure = seconds > 0.0 and not seen_late
        if measure:
            if fetched is not None and fetched.seconds >= seconds:  # its image may be anybody's: that cannot be
                fetched = None
            self.state.after.append(Measured(st.job.uid, chunk.node, chunk.size, seconds, fetched))
        if chunk.kind == "Pilot" and (measure or not ledger.remaining(st.job.units, st.record)):
            st.record = st.record._replace(pilots=(*st.record.pilots, PilotSample(chunk.size, seconds)))

    @staticmethod
    def _transferred(st: JobState, chunk: Chunk, watch: ChunkObservation) -> Fetched | None:
        """Add up what its transfer took, and return it.

        The port is also idle while a turn is handed on: that opens a transfer too.
        """
        seen = watch.pod.transfer if watch.pod else None
        if seen is None:
            return None
        sending = seen.seconds - seen.opening
        opening = seen.opening
        if seen.waited > 0 and chunk.turn is not None and watch.fetched_at is not None:
            opening = max(opening, watch.fetched_at - chunk.turn - sending)
        units = chunk.origin - chunk.begin
        sums = st.record.transfers or Transfers()
        st.record = st.record._replace(transfers=sums.add(units, seen.size, opening=opening, sending=sending))
        return Fetched(units, opening, opening + sending)

    @staticmethod
    def _done(now: float, st: JobState) -> float:
        """Tell when what is accounted by now was done: when its last pod ended, also where nobody saw that in time.

        Of a job that was off its track that is not believed: an earlier leader may have seen another pod end late.
        """
        on_track = st.record.on_track
        return st.last_end if on_track and on_track.status == "True" else now

    def _maybe_finish(self, ended: float, st: JobState) -> None:
        if st.record.ended or st.record.chunks or not st.work_done or st.job.reduce_duration is not None:
            return
        self.finish(ended, st)

    def finish(self, ended: float, st: JobState) -> None:
        """End the job well: every unit is done, and reduce if there is one.

        ``ended``: when the last of it was done.
        """
        deadline = st.job.deadline
        taken = span(ended - (st.record.started or ended))
        if st.record.promise is None or ended <= deadline:
            verdict = Verdict("True", reasons.COMPLETED, f"{some(st.job.units, 'unit')} done in {taken}")
            kind: str = "Normal"
        else:
            verdict = Verdict("True", reasons.DEADLINE_MISSED, f"done in {taken}, {span(ended - deadline)} late")
            kind = "Warning"
        on_track = st.record.on_track
        if on_track and ended <= deadline:
            on_track = Verdict("True", reasons.ON_TRACK, f"finished {span(deadline - ended)} before the deadline")
        st.record = st.record._replace(
            completed_condition=verdict, on_track=on_track, finished=ended, eta=None, chunks=()
        )
        self._close(ended, st)
        self.state.after.append(
            Emit(st.job.uid, "Normal" if kind == "Normal" else "Warning", verdict.reason, verdict.message)
        )

    def fail(self, now: float, st: JobState, reason: str, message: str) -> None:
        """End the job without success: what runs of it is ended, what is done stays on the record."""
        for chunk in st.record.chunks:
            pod = st.watch(chunk).pod
            if pod is None:
                self.state.processors.leave(self.state.occupant(st.job.uid, chunk))
            else:
                self.end(now, pod)
        verdict = Verdict("True", reason, message)
        st.record = st.record._replace(
            chunks=(),
            failed_condition=verdict,
            on_track=Verdict("False", reason, message) if st.record.promise else None,
            finished=now,
            eta=None,
        )
        self._close(now, st)
        self.state.after.append(Emit(st.job.uid, "Warning", reason, message))

    def missed(self, now: float, st: JobState) -> None:
        """Say that the deadline of a job let in statistically has come, it not being done."""
        text = f"the deadline has come, {some(st.job.units - st.record.completed.total, 'unit')} are not done"
        if st.job.on_miss == "Stop":
            self.fail(now, st, reasons.LATE, f"{text}; spec.onMiss is Stop")
        elif st.state == "Promised":
            st.record = st.record._replace(on_track=Verdict("False", reasons.LATE, text))
            self.state.touch(st)
            self.state.after.append(Emit(st.job.uid, "Warning", reasons.LATE, text))

    def _close(self, ended: float, st: JobState) -> None:
        uid = st.job.uid
        st.watches.clear()
        self.state.active.pop(uid, None)
        self.state.causes.pop(uid, None)
        self.state.searches.drop(uid)
        if self.state.miss is not None:
            if st.record.completed_condition is not None:
                self.state.miss.ended(ended, uid)
            else:  # by its own doing: no bound would have helped
                self.state.miss.leave(uid)
        self.state.unbook(uid)
        self.state.touch(st)
        self.note_end(st)

    def note_end(self, st: JobState) -> None:
        """Have the job deleted when its time to live is over."""
        if st.job.ttl is not None and st.record.finished is not None:
            heapq.heappush(self.state.expiring, (st.record.finished + st.job.ttl, st.job.uid))

    def expire(self, now: float) -> None:
        """Delete ended jobs whose time to live is over."""
        while self.state.expiring and self.state.expiring[0][0] <= now:
            _, uid = heapq.heappop(self.state.expiring)
            st = self.state.jobs.get(uid)
            # an edit may have moved it since
            due = st.record.finished + st.job.ttl if st and st.record.finished and st.job.ttl is not None else math.inf
            if due <= now:
                self.state.after.append(DeleteJob(uid))

    def supervise(self, now: float) -> None:
        """Look after running chunks: what is wrong with them, whether they are late, what their agents shall hold."""
        assert self.state.spec is not None
        if abs(now - self.state.looked) < LOOK:
            return
        self.state.looked = now
        # where costs are estimates nobody was promised to be in time
        patience, moment = math.inf if self.state.spec.loose else self.state.spec.margin / 2, tolerance(now)
        self._give_up_measuring(now)
        for uid in list(self.state.active):
            st = self.state.jobs[uid]
            for chunk in st.record.chunks:
                if st.record.ended:  # by the one before
                    break
                watch = st.watches.get(chunk.key)
                if watch is not None and watch.pod is not None:
                    if watch.pod.phase == "Succeeded":
                        self.succeeded(now, st, chunk, watch)
                        continue
                    if found := finding(st.job, chunk, watch, now):
                        if found.reason == reasons.CAPACITY_LOST:
                            self.state.processors.blocked_until[chunk.node] = now + BLOCKED
                        self.end_and_lose(now, st, chunk, found.reason, found.message, own=found.own)
                        continue
                    self.aim(chunk, watch)
                if now > chunk.promised_end + patience + moment:
                    self._overrun(now, st, chunk, st.watch(chunk))

    def _give_up_measuring(self, now: float) -> None:
        """Reject jobs whose deadline has come while pilots were still to find out what a unit costs."""
        late = [st for st in self.state.live.values() if st.state == "Measuring" and now >= st.job.deadline]
        for st in late:
            for chunk in st.record.chunks:
                self.end_and_lose(now, st, chunk, reasons.MEASURING, "the deadline has come", own=False)
            if st.record.ended:
                continue
            measured = f"{some(len(st.record.pilots), 'pilot chunk')} had ended"
            text = f"the deadline came before pilot chunks had found out what a unit costs: {measured}"
            st.record = st.record._replace(admitted=Verdict("False", reasons.INFEASIBLE_STARTUP, text))
            self.state.touch(st)
            self.state.after.append(Emit(st.job.uid, "Warning", reasons.INFEASIBLE_STARTUP, text))

    def aim(self, chunk: Chunk, watch: ChunkObservation) -> None:
        """Tell the agent what to hold for the chunk, when that has changed."""
        assert self.state.spec is not None
        pod = watch.pod
        if pod is None or pod.phase not in {"Pending", "Running"}:
            return
        point = (self.state.spec.cpu, chunk.promised_end, pod.uid)
        if watch.set_point != point:
            watch.set_point = point
            self.state.after.append(
                SetPoint(
                    node=pod.node,
                    pod=pod.uid,
                    cap=self.state.spec.cpu,
                    period=self.state.spec.period,
                    units=chunk.origin - chunk.begin,
                    end=chunk.promised_end,
                )
            )

    def _overrun(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Book what a chunk needs beyond its planned end, if nobody else pays for it; else it is on its own.

        What is left is admitted again: with the pace it was seen to keep. Refused, the job goes on with leftover
        capacity (``onMiss: Stop`` ends it). Never at another job's cost.
        """
        watch.late = True
        cost = st.cost
        if cost is not None and watch.done > 0 and watch.running_since is not None:
            pace = (now - watch.running_since) / watch.done
            node = self.state.processors.nodes.get(chunk.node)  # whose slowness is not the work's
            st.slowed = max(st.slowed, pace / (cost.tau + cost.chi * (node.speed if node else 1.0)))
        end = expected_end(chunk, watch, now=now)
        st.record = st.record.changed(chunk._replace(promised_end=end))
        self.state.touch(st)
        self.state.stale = True
        if st.state == "Promised":
            self.state.causes.setdefault(st.job.uid, reasons.OVERRUN)


def _fault(st: JobState, chunk: Chunk, pod: PodObserved) -> tuple[str, str] | None:
    """Return the reason and the words why a chunk does not count though its pod has succeeded, if so."""
    if pod.cut is not None and st.job.reduce_duration is not None and chunk.kind != "Reduce":
        return reasons.RESULT_CUT, (
            f"pod {pod.name}: its result is cut: the kubelet passes on {pod.cut} bytes of each of its containers' "
            f"messages, so a result may have at most {pod.cut - 1} (PUNCTUAL_RESULT_LIMIT); store it elsewhere under a "
            "name made of its range and leave the name"
        )
    if st.job.fetches and chunk.kind != "Reduce" and not st.watch(chunk).input_known:
        return reasons.CHUNK_FAILED, f"pod {pod.name} has succeeded, and nothing tells that it has read its input"
    return None
