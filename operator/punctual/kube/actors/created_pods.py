"""Pods that the operator creates: one for each chunk, by the template of its job.

A pod's name follows from its attempt, so a create that is repeated finds its own pod. If it finds another one, or is
refused, no pod runs and the chunk's Pool is told. The same holds if a pod was created and is gone before it was seen.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import structlog

from punctual.errors import ClusterError, NotFound
from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.client import ApiClient
from punctual.kube.cluster.pod_manifest import InputStep, chunk_pod
from punctual.kube.cluster.pods import project_pod
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.pod_names import is_chunk_of
from punctual.kube.writes.operations import CreatePod, DeletePod, LimitPod, Operation, Outcome
from punctual.kube.writes.writer import Writer, WriterOwner
from punctual.labels import ATTEMPT, BEGIN, KIND_LABEL
from punctual.runtime.clock import WITNESS
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import CreateRefused, PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec

PATIENCE: Final = 30.0
"""Seconds after its create in which a pod is seen, mostly: a watch that is silent for longer is begun anew."""
LOOK: Final = 10.0
"""Seconds between two looks."""

log = structlog.get_logger(__name__)


class CreatedPods:
    """The runner that creates a pod for each chunk, and deletes it. Its methods are those of `runners.Runner`."""

    def __init__(self, tools: Tools, gate: AdmissionGate) -> None:
        self._tools = tools
        self._gate = gate

    def start(self, known: KnownJob, chunk: Chunk, processor: PoolSpec) -> list[Operation] | CreateRefused:
        """Return the create of a chunk's pod. Before a reduce pod's, see whether its results are still there."""
        tools, uid, reduce = self._tools, known.uid, chunk.kind == "Reduce"
        spec = known.template()
        part = spec.get("reduce") if reduce else spec
        # an edit removed the recorded step, or it never existed; or an earlier operator took an oversized spec
        if part is None or known.flaw:
            text = known.flaw or "spec.reduce is missing"
            return CreateRefused(job=uid, kind=chunk.kind, begin=chunk.begin, attempt=chunk.attempt, message=text)
        results = tools.results.by_job.get(uid) if reduce else None
        body = chunk_pod(
            known.owner,
            chunk,
            part["template"],
            processor=processor,
            epoch=tools.epoch,
            results=results.sources() if results else (),
            priority_class=tools.caches.placeholder_settings.chunk_class,
            step=InputStep.of(spec, image=tools.image, version=known.term.record.input if known.term.record else None),
            others=self._gate.others(uid, chunk.kind, part["template"], processor),
        )
        create = CreatePod(known.namespace, body, _same(known, chunk))
        return [*(results.look() if results else ()), create]

    def end(self, pod: EndPod | StopPod) -> list[Operation]:
        """Return the delete of a pod, or the time limit that ends its containers."""
        if isinstance(pod, EndPod):
            return [DeletePod(*pod)]
        return [LimitPod(PODS.path(namespace=pod.namespace, name=pod.name), pod.uid)]

    def settled(self, outcome: Outcome) -> Iterator[CreateRefused | PodObserved]:
        """Yield that a pod was refused, or that one of its name was there, which may have no event any more."""
        if outcome.result in {"refused", "conflict"}:
            assert isinstance(outcome.operation, CreatePod)
            meta = outcome.operation.body["metadata"]
            yield CreateRefused(
                job=outcome.key.name,
                kind=meta["labels"][KIND_LABEL],
                begin=int(meta["annotations"][BEGIN]),
                attempt=int(meta["annotations"][ATTEMPT]),
                message=outcome.message,
                taken=outcome.result == "conflict",
            )
        if outcome.existed:  # behind the refusal: a pod of an earlier attempt is not this chunk's
            # a pod that the watch has not shown yet has its events still to come
            there = outcome.body["metadata"]["uid"]
            yield from (pod for pod in self._tools.caches.pods.of_job(outcome.key.name) if pod.uid == there)


class UnseenPods:
    """Looks for pods of one term that were created and not seen, until cancelled. One that is gone was not created.

    An informer that is cut off lists anew, and tells what it knew and no longer finds. A pod that came and went
    meanwhile it never knew: nothing would tell its Pool, which would wait for it for ever.
    """

    def __init__(self, client: ApiClient, writer: Writer, owner: WriterOwner) -> None:
        self._client = client
        self._writer = writer
        self._owner = owner

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            for key, create in self._writer.unseen(PATIENCE):
                if key.resource is PODS:
                    continue  # placeholders look after themselves
                try:
                    await self._client.get(PODS.path(namespace=create.namespace, name=create.body["metadata"]["name"]))
                except NotFound:
                    log.warning("pod_never_seen", pod=create.pod)
                    self._writer.observed(create.pod)
                    text = f"pod {create.pod} was deleted before it was seen"
                    self._owner.finished(Outcome(key, create, "conflict", text))
                except ClusterError as error:
                    log.warning("unseen_pod_not_read", pod=create.pod, error=str(error))


def _same(known: KnownJob, chunk: Chunk) -> Callable[[Mapping[str, Any]], bool]:
    """Return a test whether an existing pod is this attempt, and will be seen as such.

    An attempt of the same number may have been long before: of units that the job had, gave up and has again. Its pod
    tells nothing of this one.
    """
    owner = known.owner
    wanted = (owner.uid, chunk.kind, chunk.begin, chunk.origin, chunk.attempt)

    def same(pod: Mapping[str, Any]) -> bool:
        seen = project_pod(pod)
        return (
            isinstance(seen, PodObserved)
            and wanted == (seen.job, seen.kind, seen.begin, seen.end, seen.attempt)
            and is_chunk_of(owner, seen)
            and seen.created >= chunk.created - WITNESS
        )

    return same
