"""Names of what the operator creates for a job: each follows from the job alone, so a second create finds the first."""

from typing import Final

from punctual.kube.api.names import LONGEST_NAME, shorten, with_digest
from punctual.kube.known.jobs import Owner
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk

_RESULTS: Final = "-results"
_LONGEST: Final = 53
"""Characters of a pod's name. It is a hostname too, which has at most 63."""


def pod_name(owner: Owner, chunk: Chunk | PodObserved) -> str:
    """Return the unique name of this attempt's pod."""
    about = f"{owner.uid}/{chunk.kind}/{chunk.begin}/{chunk.attempt}"
    return with_digest(owner.name, about, _LONGEST)


def results_name(job: str) -> str:
    """Return the name of the ConfigMap with the results of a job (its name) without a reduce step."""
    return f"{shorten(job, LONGEST_NAME - len(_RESULTS))}{_RESULTS}"


def is_chunk_of(owner: Owner, pod: PodObserved) -> bool:
    """Return whether a pod is in the job's namespace under the name of the attempt that it claims to be."""
    return (pod.namespace, pod.name) == (owner.namespace, pod_name(owner, pod))
