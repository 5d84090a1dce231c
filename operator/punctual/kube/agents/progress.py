"""What a report says of a chunk's pod, as the pod's Pool is told of it."""

from typing import Final

from punctual import wire
from punctual.kube.agents.responses import shown
from punctual.scheduling.model.events import Progress

_FAULTY: Final[dict[wire.Fault, str]] = {
    "missing": "was there and is gone",
    "empty": "is empty",
    "notANumber": "is not a number",
    "negative": "is negative",
    "beyondEnd": "is beyond the chunk's end",
    "backwards": "is lower than before",
    "notRegular": "is not a regular file",
    "tooLarge": "is longer than any valid number",
    "unreadable": "cannot be read",
}


def to_progress(pod: wire.PodReport) -> Progress:
    """Return the progress of a pod."""
    faults = frozenset(f"{file} {_FAULTY[kind]}" for file, kinds in pod.faults.items() for kind in kinds)
    return Progress(
        pod=pod.uid,
        done=pod.done,
        end=pod.end,
        cpu_seconds=pod.cpu_seconds,
        received=pod.received,
        over=pod.over,
        saturated=pod.followed.saturated_seconds if pod.followed is not None else 0.0,
        response=shown(pod.followed),
        faults=faults,
    )
