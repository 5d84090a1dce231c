"""Health checks of running chunks: predicates named after the fault that they find, tried in order.

Each takes one chunk, its observations and the time, and returns a Finding or None. :class:`HealthChecks` acts on the
first finding, and on chunks that run longer than planned. A silent agent is no evidence: a chunk without reports has
not stalled.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from punctual import reasons
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.set_points import SetPointSender
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, Job
from punctual.scheduling.model.pod_reasons import IMAGES, NO_ROOM, NO_VOLUME, NOMINATED, Row, row_of
from punctual.scheduling.model.timing import BLOCKED, LOOK
from punctual.scheduling.model.wording import SAID, some, span
from punctual.scheduling.state.forecast import forecast_end
from punctual.scheduling.state.job_state import SATURATED, ChunkObservation, JobState, expected_end
from punctual.scheduling.state.pool_state import PoolState

START_PATIENCE = 20.0
"""Seconds that a pod may wait for image, configuration or node: pulls are retried, and short faults pass."""
ROOM_PATIENCE = 5.0
"""Seconds that a pod may be unschedulable on its chosen node, and after which users are told why one does not start."""
START_LIMIT = 600.0
"""Seconds, or the job's imagePullTimeout if that is longer, that a pod may be prepared without a word from the cluster:
a large image takes its time, a volume that does not exist never comes."""

NO_CAPACITY = frozenset({NO_ROOM, NOMINATED})
"""Reasons of pods for which their node has no free processor."""


class Finding(NamedTuple):
    """Reason why a chunk must be ended: reason, message, and whether the workload caused it."""

    reason: str
    message: str
    own: bool


def waiting(watch: ChunkObservation) -> Row | None:
    """Return why the pod of a chunk does not start, if something is wrong; None: nothing is, or it has started."""
    pod = watch.pod
    if pod is None or not pod.waits:
        return None
    row = row_of(pod.reason)
    return None if row is None or row.fine or row.where not in {"waiting", "scheduled"} else row


def waits_since(chunk: Chunk, pod: PodObserved, now: float) -> float:
    """Return the time from which a pod's patience counts: that of its chunk.

    If the pod was deleted while there was no leader, the next one creates it again: then the time of the pod itself.
    """
    return pod.created if chunk.created < pod.created <= now else chunk.created


def cannot_start(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a container that waits too long for an image or a configuration, or for one that can never come."""
    pod, row = watch.pod, waiting(watch)
    if pod is None or row is None or row.where != "waiting":
        return None
    if row.heals and 0 <= now - waits_since(chunk, pod, now) < START_PATIENCE:
        return None
    why = _words(pod.reason, pod.message)
    if pod.reason in IMAGES:
        return Finding(reasons.IMAGE_UNAVAILABLE, f"pod {pod.name} cannot start: {why}", own=False)
    if row.owner == "Pod":
        return Finding(reasons.CHUNK_FAILED, f"pod {pod.name} cannot start: {why}", own=True)
    return Finding(reasons.NOT_STARTED, f"pod {pod.name} cannot start: {why}", own=False)


def is_not_placed(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a pod that no scheduler places, for another cause than a lack of capacity."""
    pod, row = watch.pod, waiting(watch)
    if pod is None or row is None or row.where != "scheduled" or pod.reason in NO_CAPACITY:
        return None
    if 0 <= now - waits_since(chunk, pod, now) < START_PATIENCE:
        return None
    if pod.reason == NO_VOLUME:
        return Finding(
            reasons.CHUNK_FAILED, f"pod {pod.name} cannot start: {_words(pod.reason, pod.message)}", own=True
        )
    text = f"pod {pod.name} is not placed: {_words(pod.reason, pod.message)}"
    return Finding(reasons.NOT_STARTED, text, own=row.owner == "Pod")


def has_no_room(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a pod that does not fit on its node because other pods took the capacity."""
    pod = watch.pod
    patience = START_PATIENCE if pod is not None and pod.reason == NOMINATED else ROOM_PATIENCE
    if pod is None or waiting(watch) is None or pod.reason not in NO_CAPACITY:
        return None
    if 0 <= now - waits_since(chunk, pod, now) < patience:
        return None
    said = f": {pod.message[:SAID]}" if pod.message else ""
    text = f"node {chunk.node} has no free capacity for pod {pod.name}{said}"
    return Finding(reasons.CAPACITY_LOST, text, own=False)


def is_not_prepared(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a pod with containers that do not begin, while the cluster gives no reason for it."""
    pod, limit = watch.pod, max(START_LIMIT, job.image_timeout)
    if pod is None or not pod.waits or pod.preparing:
        return None
    if 0 <= now - waits_since(chunk, pod, now) < limit:
        return None
    text = (
        f"pod {pod.name} has not started within {span(limit)} ({pod.reason or 'no reason is given'}): kubectl describe "
        f"pod {pod.name} shows what its kubelet waits for, such as a volume"
    )
    return Finding(reasons.NOT_STARTED, text, own=True)


def _words(reason: str, message: str) -> str:
    return f"{reason}: {message[:SAID]}" if message else reason


def has_stalled(job: Job, _chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a chunk that has neither made progress nor used CPU for stallTimeout."""
    if watch.running_since is None or not watch.looked_at(now):
        return None
    idle = now - watch.moved
    if idle < job.stall_timeout:
        return None
    return Finding(reasons.STALLED, f"neither progress nor CPU use for {span(idle)}", own=True)


def receives_nothing(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find an input step that has the transfer turn and receives nothing for stallTimeout: others may wait for it."""
    pod = watch.pod
    if chunk.turn is None or pod is None or pod.phase != "Pending" or pod.fetched:
        return None
    if not watch.looked_at(now):
        return None
    idle = now - max(watch.moved, chunk.turn)
    if idle < job.stall_timeout:
        return None
    return without_input(job, f"its input step has received nothing for {span(idle)}", now)


def without_input(job: Job, message: str, now: float) -> Finding:
    """Return the finding about a chunk with an input that does not come: until the deadline, no failure of the work."""
    own = now >= job.deadline
    text = message if own else f"{message}; not counted as a failure before the deadline"
    return Finding(reasons.INPUT_UNAVAILABLE, text, own)


CHECKS = (cannot_start, is_not_placed, has_no_room, is_not_prepared, receives_nothing, has_stalled)


def finding(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Return the first fault found in the chunk."""
    for check in CHECKS:
        if found := check(job, chunk, watch, now):
            return found
    return None


@dataclass(slots=True)
class HealthChecks:
    """Supervises running chunks."""

    state: PoolState
    lifecycle: Lifecycle
    set_points: SetPointSender
    looked: float = -math.inf
    """Time of the last supervision."""

    def run(self, now: float) -> None:
        """Supervise running chunks: find faults and lateness, and update the agents' set points."""
        if abs(now - self.looked) < LOOK:
            return
        self.looked = now
        patience = self.state.terms.patience(now)
        self._give_up_measuring(now)
        for uid in list(self.state.active):
            st = self.state.jobs[uid]
            self._supervise(now, st, patience)
            if not st.record.ended:
                self._see_starts(now, st)

    def _supervise(self, now: float, st: JobState, patience: float) -> None:
        """Look at each chunk of a job. ``patience``: seconds after its planned end from which a chunk is late."""
        for chunk in st.record.chunks:
            if st.record.ended:  # an earlier chunk of the job ended it
                break
            watch = st.watches.get(chunk.key)
            if watch is not None and watch.pod is not None:
                if watch.pod.outcome == "Succeeded":
                    self.lifecycle.succeeded(now, st, chunk, watch)
                    continue
                if found := finding(st.job, chunk, watch, now):
                    self._end_faulty(now, st, chunk, found)
                    continue
                self.set_points.aim(now, st, chunk, watch)
            if now > _last_moment(st, chunk) + patience:
                self._overrun(now, st, chunk, st.watch(chunk))
            elif not chunk.late and watch is not None and watch.saturated >= SATURATED:
                self._call_for_help(now, st, chunk, watch, patience)

    def _call_for_help(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation, patience: float) -> None:
        """Let idle processors take a part of a chunk that no cap keeps on its line, before its planned end has passed.

        Its planned end stays: with help it may still be met.
        """
        if watch.looked_at(now) and forecast_end(chunk, watch, now=now) > chunk.promised_end + patience:
            st.record = st.record.changed(chunk._replace(late=True))
            self.state.touch(st)

    def _see_starts(self, now: float, st: JobState) -> None:
        """Note why pods of a job do not start, in the cluster's words, until all that it has can, and one runs."""
        for chunk in st.record.chunks:
            watch = st.watch(chunk)
            row = waiting(watch)
            if watch.pod is None or row is None or row.reason in NO_CAPACITY:
                continue
            if not row.heals or not 0 <= now - waits_since(chunk, watch.pod, now) < ROOM_PATIENCE:
                told = bool(st.unstarted)
                st.unstarted = f"{watch.pod.unstarted}; {row.do}" if row.do else watch.pod.unstarted
                if not told and st.state != "Promised":  # of a promise, the condition tells, and its event
                    self.state.outbox.add(Emit(st.job.uid, "Warning", reasons.NOT_STARTED, st.unstarted))
                return
        if st.unstarted and now >= st.refused_until + ROOM_PATIENCE and _starts(st):
            st.unstarted = ""

    def _end_faulty(self, now: float, st: JobState, chunk: Chunk, found: Finding) -> None:
        if found.reason == reasons.CAPACITY_LOST:
            node = self.state.processors.nodes.get(chunk.node)
            no = st.job.rules.objection(node) if node else None
            if no is None:
                self.state.processors.blocked_until[chunk.node] = now + BLOCKED
            else:  # its rules or the node have changed since: other pods may run there
                found = found._replace(message=f"node {chunk.node} may not run its pods any more: {no}")
        elif not st.watch(chunk).began:
            self.state.outdated.caused_by(st.job.uid, reasons.NOT_STARTED)
        pod = st.watch(chunk).pod
        held_back = pod is not None and pod.waits and found.reason != reasons.CAPACITY_LOST
        cause = reasons.INPUT_UNAVAILABLE if found.reason == reasons.INPUT_UNAVAILABLE else reasons.NOT_STARTED
        if found.reason == reasons.IMAGE_UNAVAILABLE:
            found = _without_image(now, st, chunk, found)
        self.lifecycle.end_and_lose(now, st, chunk, found.reason, found.message, own=found.own)
        if held_back and not st.record.ended:
            self.lifecycle.hold_back(now, st, chunk, cause)

    def _give_up_measuring(self, now: float) -> None:
        """Reject jobs with deadlines that passed while pilots still measured the cost of a unit, unless they go on."""
        late = [
            st for st in self.state.live.unpromised()
            if st.state == "Measuring" and now >= st.job.deadline and st.job.on_refusal == "Stop"
        ]  # fmt: skip
        for st in late:
            for chunk in st.record.chunks:
                self.lifecycle.end_and_lose(now, st, chunk, reasons.MEASURING, "the deadline has passed", own=False)
            if st.record.ended:
                continue
            measured = f"{some(len(st.record.pilots), 'pilot chunk')} had ended"
            text = f"the deadline passed before pilot chunks had measured the cost of a unit: {measured}"
            self.lifecycle.refuse(now, st, reasons.INFEASIBLE_STARTUP, text)
            self.state.touch(st)

    def _overrun(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Reserve the time that a chunk needs beyond its planned end if no other job pays for it.

        The remaining work is admitted again, at the pace observed so far. If it is refused, the job continues on
        leftover capacity (``onMiss: Stop`` ends it). Other jobs are unaffected.
        """
        cost = st.cost
        if cost is not None and not st.job.unit_pods and watch.done > 0 and watch.running_since is not None:
            pace = self.state.terms.worked(watch, now - watch.running_since) / watch.done
            node = self.state.processors.nodes.get(chunk.node)  # a node's slowness is not the workload's
            st.overrun = max(st.overrun, pace / (cost.tau + cost.chi * (node.speed if node else 1.0)))
        end = expected_end(chunk, watch, now=now)
        if _awaits_start(st, chunk):
            end = max(end, expected_end(chunk._replace(promised_end=now), watch, now=now) + st.work(chunk))
        st.record = st.record.changed(chunk._replace(promised_end=end, late=True))
        self.state.touch(st)
        self.state.outdated.times_changed()
        if st.state == "Promised":
            self.state.outdated.caused_by(st.job.uid, reasons.OVERRUN if watch.began else reasons.NOT_STARTED)


def _starts(st: JobState) -> bool:
    """Whether a job's work runs, none of its pods waits for a cause, and those that repeat an attempt have begun."""
    watches = [st.watch(chunk) for chunk in st.record.chunks]
    repeated = [st.watch(chunk) for chunk in st.record.chunks if chunk.attempt > 1]
    if any(waiting(watch) is not None for watch in watches) or not all(watch.began for watch in repeated):
        return False
    return any(watch.running_since is not None for watch in watches)


def _awaits_start(st: JobState, chunk: Chunk) -> bool:
    """Whether the pod of a planned chunk has yet to start its work; a transfer under way has a plan of its own."""
    watch = st.watch(chunk)
    if watch.pod is None or chunk.kind != "Chunk" or (st.job.fetches and watch.began):
        return False
    return watch.pod.waits


def _last_moment(st: JobState, chunk: Chunk) -> float:
    """Return when a chunk, as it is, should have ended, or started: what starts later ends later than planned."""
    return chunk.promised_end - (st.work(chunk) if _awaits_start(st, chunk) else 0.0)


def _without_image(now: float, st: JobState, chunk: Chunk, found: Finding) -> Finding:
    """Return the finding as the cluster's fault, or as the work's once the job's imagePullTimeout is over."""
    if st.imageless_since is None or now < st.imageless_since:  # the clock was set back
        pod = st.watch(chunk).pod
        st.imageless_since = min(now, waits_since(chunk, pod, now) if pod else chunk.created)
    if now < st.imageless_since + st.job.image_timeout:
        patience = span(st.job.image_timeout)
        text = f"{found.message}; not counted as a failure in the first {patience} (spec.imagePullTimeout)"
        return found._replace(message=text)
    return Finding(reasons.CHUNK_FAILED, found.message, own=True)
