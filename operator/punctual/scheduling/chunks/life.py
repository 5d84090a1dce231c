"""The states of a chunk, told from its record and from what is seen of its pod.

    state     what is seen                                          what its owner does
    Created   no pod                                                creates the pod (again, after a takeover)
    Starting  its work has not begun
    Running   its work runs
    Asked     ... with an offer to stop early                       waits for the end that its worker names
    Unsent    ... that only an earlier leader may have sent         sends the offer
    Leaving   something else ends its pod                           loses the chunk
    Failed    its work has failed, or was ended                     loses the chunk
    Ended     its work has ended well with an offer open: it may    notes the time, and ends helpers that keep the
              have stopped early                                    pod: then its agent says its last word
    Owing     ... and its agent's last word is awaited              waits
    Silent    ... and has not come in time                          loses the chunk
    Done      its work has ended well at a known end                accounts the chunk

Until its worker has named an end, a chunk owns its whole range. The owners are the jobs of a Pool and guest jobs
(:mod:`punctual.scheduling.chunks.owner`).
"""

from dataclasses import dataclass
from typing import Final, Literal

from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, Retention

LAST_WORD: Final = 30.0
"""Seconds to wait for the agent's last report of a pod that ended while an offer was open."""
State = Literal[
    "Created", "Starting", "Running", "Asked", "Unsent", "Leaving", "Failed", "Ended", "Owing", "Silent", "Done"
]


@dataclass(slots=True)
class Observation:
    """What is seen of a chunk: kept in memory only, so a new leader starts without it."""

    pod: PodObserved | None = None
    running_since: float | None = None
    done: int = 0
    cpu: float = 0.0
    """CPU seconds that it has used."""
    moved: float = 0.0
    """When it last made progress or used CPU."""
    offered_at: float | None = None
    """When it was offered an end; None: this leader has offered none."""
    ended_at: float | None = None
    """When its pod was seen to have ended well while an offer was open."""
    over: bool = False
    """Its agent has said its last word: what it has not answered by then, it never will."""


def state(now: float, chunk: Chunk, seen: Observation) -> State:  # noqa: PLR0911  one line per state reads best
    """Return the state of a chunk, by the table above."""
    if (pod := seen.pod) is None:
        return "Created"
    if pod.outcome is None and not pod.deleting:
        if not pod.runs or chunk.offered is None:
            return "Running" if pod.runs else "Starting"
        return "Unsent" if seen.offered_at is None else "Asked"
    if pod.outcome != "Succeeded":
        return "Leaving" if pod.outcome is None else "Failed"
    open_offer = chunk.offered is not None or (pod.offered and chunk.end == chunk.origin)
    if not open_offer or seen.over:
        return "Done"
    if seen.ended_at is None:
        return "Ended"
    return "Owing" if abs(now - seen.ended_at) < LAST_WORD else "Silent"


def was_asked(chunk: Chunk, pod: PodObserved | None) -> bool:
    """Whether an end that a chunk's worker names is an answer.

    One that gives no unit back may answer an offer of an earlier leader, which this leader does not know of. An end
    that was given may still be drawn in further.
    """
    return chunk.offered is not None or chunk.end < chunk.origin or (pod is not None and pod.offered)


def reported(chunk: Chunk, done: int | None) -> int:
    """Return the units that a chunk has done, by a report.

    An agent that does not know the chunk's length yet passes on what it reads: a value beyond the chunk is no count.
    """
    return done if done is not None and done <= chunk.origin - chunk.begin else 0


def continued(before: PodObserved | None, pod: PodObserved) -> PodObserved:
    """Return a pod as it is after it was seen before: what ends it later does not change how its work ended."""
    if before is not None and before.uid == pod.uid and before.ended is not None and pod.ended is None:
        return pod._replace(ended=before.ended)
    return pod


def left_behind(pod: PodObserved, retention: Retention) -> Literal["Stop", "End"] | None:
    """Return what becomes of a pod after the end of its work: its containers are stopped, or the pod is deleted.

    ``retention``: which pods stay for inspection (podRetention). A reduce pod's log is the job's result, so it stays as
    long as the job if its work has succeeded. None: only the kubelet has yet to end it, or it stays as it is.
    """
    if pod.outcome == "Succeeded" or (pod.kind == "Reduce" and pod.exit_code == 0):
        kept = pod.kind == "Reduce" or retention == "All"
    else:
        kept = retention != "None"
    if pod.detained:
        return "Stop" if kept else "End"
    return "End" if pod.over and not kept else None
