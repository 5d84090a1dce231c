"""What is wrong with a running chunk, if anything: predicates named as the fact that failed, tried in order.

Each looks at one chunk, what was seen of it and the time, and answers with a Finding or None. The Pool acts on the
first. A silent agent is no evidence: a chunk that nobody looked at has not stalled.
"""

from typing import NamedTuple

from punctual import reasons
from punctual.scheduling.engine.job_state import ChunkObservation
from punctual.scheduling.model.job import Chunk, Job
from punctual.scheduling.model.wording import span

NO_VOLUME = "NoVolume"
"""Our own word for a pod that cannot be scheduled since a claim that it names is not there or not bound."""
NO_IMAGE = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", NO_VOLUME,
})  # fmt: skip
"""Waiting reasons of a container that its own template causes."""
NOMINATED = "Nominated"
"""Waiting reason of a pod for which the scheduler makes room: others are on their way out."""
NO_ROOM = frozenset({"Unschedulable", NOMINATED})
SAID = 300
"""Characters of what a step that failed has said, or the cluster of one that cannot start, passed on in an event."""
START_PATIENCE = 20.0
"""Seconds a pod may wait for its image or configuration: pulls are retried, hiccups pass."""
ROOM_PATIENCE = 5.0
"""Seconds a pod may be unschedulable on the node chosen for it."""


class Finding(NamedTuple):
    """Why a chunk must be ended: reason, message, and whether it is the work's own doing."""

    reason: str
    message: str
    own: bool


def cannot_start(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a container that waits for an image or a configuration that does not come."""
    pod = watch.pod
    if pod is None or pod.phase != "Pending" or pod.reason not in NO_IMAGE or 0 <= now - chunk.created < START_PATIENCE:
        return None
    why = f"{pod.reason}: {pod.message[:SAID]}" if pod.message else pod.reason
    return Finding(reasons.CHUNK_FAILED, f"pod {pod.name} cannot start: {why}", own=True)


def has_no_room(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a pod that its node has no room for: something else came in between."""
    pod = watch.pod
    patience = START_PATIENCE if pod is not None and pod.reason == NOMINATED else ROOM_PATIENCE
    if pod is None or pod.phase != "Pending" or pod.reason not in NO_ROOM or 0 <= now - chunk.created < patience:
        return None
    return Finding(reasons.CAPACITY_LOST, f"node {chunk.node} has no room for pod {pod.name}", own=False)


def has_stalled(job: Job, _chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a chunk that neither progresses nor uses CPU for stallTimeout."""
    if watch.running_since is None or not watch.looked_at(now):
        return None
    idle = now - watch.moved
    if idle < job.stall_timeout:
        return None
    return Finding(reasons.STALLED, f"neither progress nor CPU use for {span(idle)}", own=True)


def receives_nothing(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find an input step whose turn it is, and that gets nothing for stallTimeout: others may be waiting for it."""
    pod = watch.pod
    if chunk.turn is None or pod is None or pod.phase != "Pending" or pod.fetched:
        return None
    if not watch.looked_at(now):
        return None
    idle = now - max(watch.moved, chunk.turn)
    if idle < job.stall_timeout:
        return None
    return Finding(reasons.STALLED, f"its input step has received nothing for {span(idle)}", own=True)


CHECKS = (cannot_start, has_no_room, receives_nothing, has_stalled)


def finding(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Return the first thing found wrong with the chunk."""
    for check in CHECKS:
        if found := check(job, chunk, watch, now):
            return found
    return None
