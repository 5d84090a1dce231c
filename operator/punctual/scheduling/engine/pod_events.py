"""Events of pods: what the API server, agents and refused creations tell of chunks.

A report counts only from the node of its pod, and a success only if the chunk still owns its range.
"""

from dataclasses import dataclass

from punctual import reasons
from punctual.scheduling.chunks import ledger, life
from punctual.scheduling.engine.dispatcher import Dispatcher
from punctual.scheduling.engine.health import Finding, without_input
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.set_points import SetPointSender
from punctual.scheduling.model.actions import CreateChunk, DropSetPoint, Emit
from punctual.scheduling.model.events import CreateRefused, PodObserved, Reported
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pod_reasons import CAPACITY
from punctual.scheduling.model.processors import Occupant
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.timing import BLOCKED
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.scheduling.state.pool_state import PoolState
from punctual.theory.tolerance import tolerance

USED = 0.01
"""Seconds of CPU time that count as work. Less may come from an exec or a probe and is not progress."""


@dataclass(slots=True)
class PodEvents:
    """Processes what is observed of pods."""

    state: PoolState
    lifecycle: Lifecycle
    dispatcher: Dispatcher
    set_points: SetPointSender

    def observed(self, now: float, pod: PodObserved) -> None:
        """Seat a pod, and account, lose or keep its chunk. A pod without a chunk is ended."""
        state = self.state
        pod = life.continued(state.pods.seen.get((pod.namespace, pod.name)), pod)
        state.pods.seen[pod.namespace, pod.name] = pod
        st = state.jobs.get(pod.job)
        occupant = Occupant(pod.job, pod.kind, pod.begin, pod.attempt)
        chunk = st.chunk(pod.kind, pod.begin, pod.attempt) if st else None
        if pod.over:
            if state.take_away(pod):
                state.freed(now, chunk)
            state.outbox.add(DropSetPoint(pod.node, pod.uid))
        else:
            state.place(pod)
        self._see_sending(pod, occupant)
        if st is None or chunk is None:
            self._end_unowned(now, st, pod)
            return
        watch = st.watch(chunk)
        if pod.fetched and watch.pod is not None and not watch.pod.fetched:
            watch.fetched_at = now
            if chunk.sent is not None and abs(now - chunk.sent) > tolerance(now):
                state.outdated.times_changed()  # the port is free, earlier or later than planned
        watch.told_turn = watch.told_turn or pod.turn
        watch.pod = pod
        state.pods.watched[pod.uid] = (pod.job, chunk.key)
        if pod.held_by:
            state.outbox.add(*st.remarks(pod))
        self.set_points.aim(now, st, chunk, watch)
        if (pod.runs or pod.detained) and watch.running_since is None:
            watch.running_since = self.lifecycle.measurements.running_since(now, chunk, pod)
            st.imageless_since = None
            watch.moved = now
            if chunk.created < watch.running_since and not state.outdated.pods and not st.job.fetches:
                start_up = watch.running_since - chunk.created
                state.pods.startups.add(st.job.uid, start_up)
                if st.record.completed:
                    st.least_start_up = min(st.least_start_up, start_up)
        self._judge_pod(now, st, chunk, watch, pod)

    def _see_sending(self, pod: PodObserved, occupant: Occupant) -> None:
        """Note whether the pod's input may be in transfer, even if no job owns the pod any more."""
        if pod.fetched or pod.phase != "Pending":
            self.state.pods.sending.discard(occupant)
        elif pod.turn:
            self.state.pods.sending.add(occupant)

    def _judge_pod(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation, pod: PodObserved) -> None:
        """Account, lose, query or keep the chunk, according to its pod's state."""
        if not self.lifecycle.see_input(now, st, chunk, pod):
            return
        match life.state(now, chunk, watch):
            case "Done" | "Ended" | "Owing" | "Silent":
                self.lifecycle.succeeded(now, st, chunk, watch)
            case "Failed":
                self._fail(now, st, chunk, pod)
            case "Leaving":
                # A person, an eviction or the scheduler (for a higher priority) deletes it. Its end may take its whole
                # grace period, which no margin covers.
                text = f"pod {pod.name} is being {'evicted' if pod.disrupted else 'deleted'}"
                self.lifecycle.end_and_lose(now, st, chunk, reasons.CAPACITY_LOST, text, own=False)
            case "Unsent":
                assert chunk.offered is not None
                self.dispatcher.offer(now, st, chunk, chunk.offered)

    def _fail(self, now: float, st: JobState, chunk: Chunk, pod: PodObserved) -> None:
        """Lose the chunk of a pod with work that has failed, or that something has ended."""
        own = pod.own_failure
        found = Finding(reasons.CHUNK_FAILED if own else reasons.CAPACITY_LOST, pod.failure, own)
        if pod.input_unavailable:
            found = without_input(st.job, pod.failure, now)
        self.lifecycle.lose(now, st, chunk, found.reason, found.message, own=found.own)
        self.lifecycle.endings.leave(now, pod, st.job.retention)
        if pod.reason in CAPACITY:  # its kubelet has no processor free, though the scheduler thought so
            self.state.processors.blocked_until[pod.node] = now + BLOCKED
        elif not own and pod.started is None and not pod.disrupted and not st.record.ended:
            self.lifecycle.hold_back(now, st, chunk, found.reason if pod.input_unavailable else reasons.NOT_STARTED)

    def _end_unowned(self, now: float, st: JobState | None, pod: PodObserved) -> None:
        """End a pod that no longer owns its units: its work is not accounted.

        A new leader may hear late of a reduce pod, which has ended since, and must not delete what stays to be read.
        """
        if st is not None and pod.outcome is not None:
            self.lifecycle.endings.leave(now, pod, st.job.retention)
        elif st is not None and pod.kind == "Reduce" and st.record.completed_condition is not None:
            self.lifecycle.endings.stop(now, pod)
        elif st is not None or pod.phase != "Failed":
            self.lifecycle.endings.end(now, pod)

    def gone(self, now: float, namespace: str, name: str) -> None:
        """Free the processor of a pod that the API server no longer has; its chunk, if any, is lost."""
        state = self.state
        pod = state.pods.seen.pop((namespace, name), None)
        if pod is None:
            return
        state.pods.ending.pop(pod.uid, None)
        if state.take_away(pod):
            state.outdated.capacity_changed()
        if not pod.over:  # otherwise the set point was already dropped
            state.outbox.add(DropSetPoint(pod.node, pod.uid))
        st = state.jobs.get(pod.job)
        chunk = st.chunk(pod.kind, pod.begin, pod.attempt) if st else None
        if st and chunk and pod.ended == "Succeeded" and st.watch(chunk).ended_at is not None:
            return  # it was ended for its helpers' sake; only the last answer of its work is awaited
        state.pods.watched.pop(pod.uid, None)
        if st and chunk:
            self.lifecycle.lose(now, st, chunk, reasons.CAPACITY_LOST, f"pod {name} was deleted", own=False)

    def reported(self, now: float, report: Reported) -> None:
        """Note what the agent of a node says of its pods: progress, answers to offers, file faults."""
        for p in report.pods:
            uid, key = self.state.pods.watched.get(p.pod, ("", None))
            st = self.state.jobs.get(uid)
            chunk = st.chunk(*key) if st and key else None
            if st is None or chunk is None:
                continue
            watch = st.watch(chunk)
            if watch.pod is None or watch.pod.node != report.node:
                continue  # a report about a pod counts only from the pod's own node
            if watch.reported is not None and not watch.looked_at(now):
                watch.moved += now - watch.reported  # there was no report in between: perhaps the whole node was paused
            watch.reported, watch.saturated = now, p.saturated
            self.set_points.see_response(st, chunk, watch, p.response)
            self._tell_faults(st, watch.pod.name, p.faults)
            done = min(life.reported(chunk, p.done), chunk.size)
            if done > watch.done or p.cpu_seconds > watch.cpu + USED:
                # This is kept in memory only: small amounts each second add up.
                watch.moved, watch.cpu = now, max(watch.cpu, p.cpu_seconds)
            if done > watch.done:
                watch.report_done(now, done)
                self.state.outbox.progressed[st.job.uid] = None
            if p.received is not None and p.received > watch.received:
                watch.moved, watch.received = now, p.received
                self.state.outbox.progressed[st.job.uid] = None
            if p.end is not None and p.end < chunk.end and life.was_asked(chunk, watch.pod):
                self.lifecycle.answered(now, st, chunk, p.end)
            # The arrival time of the report does not decide: it may have been read before the end and delayed.
            watch.over |= p.over and watch.ended_at is not None
            if watch.pod.outcome == "Succeeded" and (kept := st.chunk(*chunk.key)) is not None:
                self.lifecycle.succeeded(now, st, kept, watch)

    def _tell_faults(self, st: JobState, pod: str, faults: frozenset[str]) -> None:
        """Emit one event per job for faults in its workers' files: all its chunks run the same program."""
        if new := faults - st.faults:
            st.faults |= new
            text = f"pod {pod}: {', '.join(sorted(new))}; the last valid value is used"
            self.state.outbox.add(Emit(st.job.uid, "Warning", reasons.FILE_FAULT, text))

    def refused(self, now: float, event: CreateRefused) -> None:
        """Take back a chunk with a pod that the API server refused, and delay the job's next pod.

        The cause is the job's own (its namespace's quota, its template), so other jobs' processors do not wait.
        """
        st = self.state.jobs.get(event.job)
        chunk = st.chunk(event.kind, event.begin, event.attempt) if st else None
        if st is None or chunk is None:
            self._withdrawn(event)
            return
        if event.instead is not None and self._does_another(st, chunk, event.instead):
            return
        self.state.processors.leave(self.state.occupant(event.job, chunk))
        self.lifecycle.lose(now, st, chunk, reasons.POD_REFUSED, event.message, own=False)
        if not event.taken:
            st.refused_until, st.refused_for = now + BLOCKED, reasons.POD_REFUSED

    def _does_another(self, st: JobState, chunk: Chunk, unit: int) -> bool:
        """Let a chunk of one unit do another one, on its processor. Return whether that one is free."""
        one = Ranges.of((unit, unit + 1))
        if not one & ledger.remaining(st.job.units, st.record):
            return False
        record = ledger.lose(st.record, chunk)
        attempt = ledger.next_attempt(record, unit, unit + 1)
        other = chunk._replace(begin=unit, end=unit + 1, origin=unit + 1, attempt=attempt)
        self.state.processors.leave(self.state.occupant(st.job.uid, chunk))
        st.record = record._replace(chunks=(*record.chunks, other))
        st.watches.pop(chunk.key, None)
        self.state.processors.seat(self.state.occupant(st.job.uid, other), other.node)
        self.state.touch(st)
        self.state.outdated.work_changed()
        self.state.outbox.add(CreateChunk(st.job.uid, other))
        return True

    def _withdrawn(self, event: CreateRefused) -> None:
        """Free the processor of a chunk that was withdrawn, unless its pod was seen meanwhile."""
        occupant = Occupant(event.job, event.kind, event.begin, event.attempt)
        seen = (pod for pod in self.state.pods.seen.values() if not pod.over)
        if any(Occupant(pod.job, pod.kind, pod.begin, pod.attempt) == occupant for pod in seen):
            return
        if self.state.processors.leave(occupant):
            self.state.outdated.capacity_changed()
