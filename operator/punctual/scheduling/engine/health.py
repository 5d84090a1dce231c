"""Health checks of a running chunk: predicates named after the fault that they find, tried in order.

Each takes one chunk, its observations and the time, and returns a Finding or None. The pool acts on the first finding.
A silent agent is no evidence: a chunk without reports has not stalled.
"""

from typing import NamedTuple

from punctual import reasons
from punctual.scheduling.engine.job_state import ChunkObservation
from punctual.scheduling.model.events import NO_VOLUME, NOMINATED
from punctual.scheduling.model.job import Chunk, Job
from punctual.scheduling.model.wording import span

NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
"""Waiting reasons of a container with an image that cannot be pulled: a wrong name, or a registry that is away."""
NO_START = frozenset({
    "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    NO_VOLUME,
})  # fmt: skip
"""Waiting reasons of a container that its own template causes."""
NO_ROOM = frozenset({"Unschedulable", NOMINATED})
SAID = 300
"""Maximum characters of a container's, a step's or the cluster's failure message that an event passes on."""
START_PATIENCE = 20.0
"""Seconds that a pod may wait for its image or configuration: pulls are retried, and short faults pass."""
ROOM_PATIENCE = 5.0
"""Seconds that a pod may be unschedulable on its chosen node."""


class Finding(NamedTuple):
    """Reason why a chunk must be ended: reason, message, and whether the workload caused it."""

    reason: str
    message: str
    own: bool


def cannot_start(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a container that waits too long for an image or a configuration."""
    pod = watch.pod
    if pod is None or pod.phase != "Pending" or 0 <= now - chunk.created < START_PATIENCE:
        return None
    why = f"{pod.reason}: {pod.message[:SAID]}" if pod.message else pod.reason
    if pod.reason in NO_IMAGE:
        return Finding(reasons.IMAGE_UNAVAILABLE, f"pod {pod.name} cannot start: {why}", own=False)
    if pod.reason in NO_START:
        return Finding(reasons.CHUNK_FAILED, f"pod {pod.name} cannot start: {why}", own=True)
    return None


def has_no_room(_job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Find a pod that does not fit on its node because other pods took the capacity."""
    pod = watch.pod
    patience = START_PATIENCE if pod is not None and pod.reason == NOMINATED else ROOM_PATIENCE
    if pod is None or pod.phase != "Pending" or pod.reason not in NO_ROOM or 0 <= now - chunk.created < patience:
        return None
    return Finding(reasons.CAPACITY_LOST, f"node {chunk.node} has no free capacity for pod {pod.name}", own=False)


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
    return Finding(reasons.STALLED, f"its input step has received nothing for {span(idle)}", own=True)


CHECKS = (cannot_start, has_no_room, receives_nothing, has_stalled)


def last_words(log: str) -> str:
    """Return the last lines of a log as one line, separated by bars: at most about `SAID` characters."""
    lines = [line.strip() for line in log[-SAID:].splitlines()]
    if len(log) > SAID and len(lines) > 1:
        lines = lines[1:]  # it was cut
    return " | ".join(line for line in lines if line)


def finding(job: Job, chunk: Chunk, watch: ChunkObservation, now: float) -> Finding | None:
    """Return the first fault found in the chunk."""
    for check in CHECKS:
        if found := check(job, chunk, watch, now):
            return found
    return None
