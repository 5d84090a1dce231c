"""The port between dispatch and pods: what starts the chunks of a job, and ends them."""

from collections.abc import Iterable
from typing import Protocol

from punctual.kube.actors.created_pods import CreatedPods
from punctual.kube.actors.gated_pods import GatedPods
from punctual.kube.actors.tools import Tools
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.jobs import KnownJob
from punctual.kube.writes.operations import Operation, Outcome
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import CreateRefused, PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec


class Runner(Protocol):
    """Turns decisions about pods into writes, and what becomes of these into events.

    It chooses neither chunk nor node nor time, and submits nothing. The informer tells which of its pods run, have
    ended or are lost (`PodEvents`).
    """

    def start(self, known: KnownJob, chunk: Chunk, processor: PoolSpec) -> list[Operation] | CreateRefused:
        """Return the writes after which a chunk runs on its node, or why it never can.

        They are carried out after the status that records the chunk. A new leader starts a chunk again if it does not
        see the pod: this must neither fail nor make a second pod.
        """

    def end(self, pod: EndPod | StopPod) -> list[Operation]:
        """Return the writes that end a pod (`EndPod`), or its containers alone (`StopPod`). Its job may be gone."""

    def settled(self, outcome: Outcome) -> Iterable[CreateRefused | PodObserved]:
        """Return what the outcome of a start says about a chunk: that it has no pod, or a pod that was there before."""


class Runners:
    """The runners of a term. Here alone it is decided which of them a job has."""

    def __init__(self, tools: Tools, gate: AdmissionGate) -> None:
        self._jobs = tools.directory.jobs
        self._pods = tools.caches.pods
        self._created = CreatedPods(tools, gate)
        self.gated = GatedPods(tools)

    def runner_of(self, job: str) -> Runner:
        """Return the runner of a job (uid)."""
        known = self._jobs.get(job)
        return self.gated if known is not None and known.owner.batch else self._created

    def runner_of_pod(self, pod: str) -> Runner:
        """Return the runner of a pod (uid) that is to be ended. Its job may be gone."""
        return self.gated if self._pods.is_of_batch(pod) else self._created
