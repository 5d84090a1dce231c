"""The chunk pods of the cluster, by name, job, node and uid, and which pod is one.

Anyone can write a job's labels onto a pod. So a pod is a chunk pod only if its name and range are those of a chunk of
its job (`is_chunk_of`). A pod may be seen before its job: it claims the job until that is known. A pod may be seen only
after its job is gone: then it was expected. Pods are keyed by "namespace/name".
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from punctual.kube.cluster.application_pods import ApplicationPod, application_pod
from punctual.kube.cluster.batch_jobs import GatedPod, job_behind, project_gated
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.placeholder_pod import Placeholder, placeholder
from punctual.kube.cluster.pods import ForeignPod, foreign_pod, project_pod
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import is_chunk_of
from punctual.scheduling.model.events import PodObserved

EXPECTED: Final = 1000
"""Maximum number of expected pods of deleted jobs. A pod that never appears is not reported."""


class SeenPod(NamedTuple):
    """A pod as it was last seen."""

    claim: PodObserved | None
    """Its state, if its labels claim that it belongs to a job."""
    foreign: ForeignPod | None
    """The capacity that it takes on its node."""
    placeholder: Placeholder | None = None
    """Its state, if it is a placeholder."""
    application: ApplicationPod | None = None
    """Its state, if it is a user's own pod on a node."""
    batch: str = ""
    """Uid of the Job that it claims to be of, beside ours."""
    gated: GatedPod | None = None
    """Its state, if it waits at the gate."""


def see_pod(body: Json, namespace: str) -> SeenPod | None:
    """Return what is kept of a pod's body. ``namespace`` is that of placeholders. None: the pod is of no interest."""
    if found := placeholder(body, namespace):
        return SeenPod(None, None, found)
    if gated := project_gated(body):
        return SeenPod(None, None, gated=gated)
    pod = project_pod(body)
    if isinstance(pod, PodObserved):
        return SeenPod(pod, foreign_pod(body, requests=pod.requests), batch=job_behind(body))
    return (
        SeenPod(None, pod, application=application_pod(body, node=pod.node, request=pod.requests.cpu)) if pod else None
    )


class ChunkPods:
    """The chunk pods, the pods that claim an unknown job, and the expected pods of deleted jobs."""

    def __init__(self) -> None:
        self.by_key: dict[str, PodObserved] = {}
        self._of_job: dict[str, dict[str, None]] = {}  # their keys, by job
        self._on_node: dict[str, dict[str, None]] = {}  # their uids, by node
        self._jobs: dict[str, str] = {}  # their jobs, by uid
        self._of_batch: set[str] = set()  # those that the controller of a Job has created, by uid
        self._claims: dict[str, dict[str, SeenPod]] = {}  # pods that claim an unknown job, by job and key
        self._claimed: dict[str, str] = {}  # the claimed job, by key
        self._expected: dict[str, Owner] = {}  # pods of deleted jobs that the term asked for, by key

    def forget_term(self) -> None:
        """Forget what a term has asked for. What watches said stays."""
        self._expected.clear()

    def job_of(self, pod: str) -> str | None:
        """Return the job of a chunk pod (uid)."""
        return self._jobs.get(pod)

    def of_job(self, job: str) -> list[PodObserved]:
        """Return the chunk pods of a job (uid)."""
        return [self.by_key[key] for key in self._of_job.get(job, ())]

    def on_node(self, node: str) -> Mapping[str, None]:
        """Return the uids of the chunk pods on a node."""
        return self._on_node.get(node, {})

    def is_ours(self, key: str, claim: PodObserved, job: Owner | None, batch: str = "") -> bool:
        """Return whether a pod belongs to a job, belonged to one before its deletion, or was expected of one.

        ``job`` is the job that it claims, if it is known. ``batch``: uid of the Job that made it.
        """
        owner = job or self._expected.get(key)
        if owner is not None and owner.uid == claim.job:
            return (
                owner.namespace == claim.namespace and owner.batch == batch
                if owner.batch
                else is_chunk_of(owner, claim)
            )
        before = self.by_key.get(key)
        return before is not None and (before.uid, before.job) == (claim.uid, claim.job)

    def is_of_batch(self, pod: str) -> bool:
        """Return whether the controller of a Job has created a chunk pod (uid)."""
        return pod in self._of_batch

    def remember(self, key: str, pod: PodObserved, batch: str = "") -> None:
        """Record the present state of a chunk pod. ``batch``: uid of the Job that it is of."""
        self._take_out(key)
        if batch:
            self._of_batch.add(pod.uid)
        self.by_key[key] = pod
        self._of_job.setdefault(pod.job, {})[key] = None
        self._expected.pop(key, None)
        self._jobs[pod.uid] = pod.job
        if pod.node:
            self._on_node.setdefault(pod.node, {})[pod.uid] = None

    def forget(self, key: str) -> None:
        """Remove a chunk pod."""
        pod = self.by_key[key]
        self._take_out(key)
        self._jobs.pop(pod.uid, None)
        self._of_batch.discard(pod.uid)
        there = self._on_node.get(pod.node, {})
        there.pop(pod.uid, None)
        if not there:
            self._on_node.pop(pod.node, None)

    def _take_out(self, key: str) -> None:
        if (pod := self.by_key.pop(key, None)) is not None:
            keys = self._of_job[pod.job]
            del keys[key]
            if not keys:
                del self._of_job[pod.job]

    def claim(self, key: str, job: str, pod: SeenPod) -> None:
        """Record that a pod claims a job (uid) that is not known."""
        self._claims.setdefault(job, {})[key] = pod
        self._claimed[key] = job

    def unclaim(self, key: str) -> None:
        """Remove a pod's claim."""
        if (job := self._claimed.pop(key, None)) is not None:
            claims = self._claims[job]
            del claims[key]
            if not claims:
                del self._claims[job]

    def claims_of(self, job: str) -> list[tuple[str, SeenPod]]:
        """Return the pods that claim a job (uid), by key."""
        return list(self._claims.get(job, {}).items())

    def claimed(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each unknown job (uid) that pods claim, with their keys."""
        for job, pods in self._claims.items():
            yield job, list(pods)

    def expect(self, owner: Owner, pods: Iterable[str]) -> None:
        """Expect pods of a job that is gone. They count as chunk pods when they appear."""
        self._expected |= dict.fromkeys(pods, owner)
        for key in list(islice(self._expected, max(0, len(self._expected) - EXPECTED))):
            del self._expected[key]
