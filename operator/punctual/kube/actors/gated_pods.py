"""Pods of ordinary Jobs: their own controller creates them, and each waits at a gate until a chunk is planned for it.

A chunk of such a job is one unit: one index of an Indexed Job, or any pod of another one. To start it, its pod gets the
chunk's labels and a node, and loses the gate, in one write. A chunk without a pod waits here: the Job's controller
creates one in a moment, or after its back-off if the one before has failed. What waits is in the job's status, too, so
a new leader starts it again.

No pod of a Job is ever deleted here: its controller would count that as a failure.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.batch_jobs import GatedPod
from punctual.kube.cluster.nodes import HOSTNAME
from punctual.kube.cluster.pod_manifest import label
from punctual.kube.known.jobs import KnownJob
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Operation, Outcome, StartPod
from punctual.labels import ATTEMPT, BEGIN, END, EPOCH, JOB_LABEL, JOB_UID_LABEL, KIND_LABEL, POOL_LABEL, WORK
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import CreateRefused, PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec


class GatedPods:
    """The runner that lets pods of Jobs start. Its methods are those of `runners.Runner`, and `arrived`."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._waiting: dict[str, dict[tuple[str, int, int], Chunk]] = {}  # chunks without a pod, by job (uid) and key
        self._chosen: dict[str, set[str]] = {}  # pods (uid) at the gate with a start on its way, by job

    def start(self, known: KnownJob, chunk: Chunk, processor: PoolSpec) -> list[Operation] | CreateRefused:  # noqa: ARG002
        """Return the start of a pod, if there is one. Otherwise `arrived` submits it."""
        if known.flaw:
            text, at = known.flaw, chunk
            return CreateRefused(job=known.uid, kind=at.kind, begin=at.begin, attempt=at.attempt, message=text)
        self._waiting.setdefault(known.uid, {})[chunk.key] = chunk
        return list(self._starts(known))

    def arrived(self, batch: str) -> None:
        """Start the pods of a Job (uid) that have come to the gate, if a chunk waits for them."""
        known = self._tools.directory.jobs.of_batch(batch)
        if known is not None and known.uid in self._waiting:
            for start in self._starts(known):
                self._tools.writer.submit(Key(JOBS, known.uid), start)

    def end(self, pod: EndPod | StopPod) -> list[Operation]:  # noqa: ARG002
        """Return nothing: the Job's controller ends its pods."""
        return []

    def settled(self, outcome: Outcome) -> Iterator[CreateRefused | PodObserved]:
        """Yield that a pod was refused. One that is gone has a successor, which its chunk waits for."""
        start, job = outcome.operation, outcome.key.name
        assert isinstance(start, StartPod)
        chunk = start.chunk
        if outcome.result == "refused":
            self._chosen.get(job, set()).discard(start.pod)
            yield CreateRefused(
                job=job,
                kind=chunk.kind,
                begin=chunk.begin,
                attempt=chunk.attempt,
                message=outcome.message,
            )
        elif outcome.result == "gone" and (known := self._tools.directory.jobs.get(job)) is not None:
            self._waiting.setdefault(job, {})[chunk.key] = chunk
            self.arrived(known.owner.batch)  # the successor may have come before

    def forget(self, job: str) -> None:
        """Forget a job (uid)."""
        self._waiting.pop(job, None)
        self._chosen.pop(job, None)

    def _starts(self, known: KnownJob) -> Iterator[StartPod]:
        """Yield the starts of chunks that have waited and have a pod now."""
        waiting, record = self._waiting[known.uid], known.term.record
        # one that the Pool has given up meanwhile must not run
        recorded = {chunk.key for chunk in record.chunks} if record else set()
        for key in waiting.keys() - recorded:
            del waiting[key]
        gated = self._tools.caches.batch.gated(known.owner.batch)
        # until a pod is seen to have left the gate, no other chunk gets it
        chosen = self._chosen[known.uid] = self._chosen.get(known.uid, set()) & {pod.uid for pod in gated}
        free = [pod for pod in gated if pod.uid not in chosen]
        for key, chunk in list(waiting.items()):
            pod = next(_fitting(free, chunk), None)
            if pod is not None:
                free.remove(pod)
                del waiting[key]
                chosen.add(pod.uid)
                yield self._start(known, chunk, pod)
        if not waiting:
            del self._waiting[known.uid]

    def _start(self, known: KnownJob, chunk: Chunk, pod: GatedPod) -> StartPod:
        labels = {
            POOL_LABEL: label(known.owner.pool),
            JOB_LABEL: label(known.owner.name),
            JOB_UID_LABEL: known.uid,
            KIND_LABEL: chunk.kind,
        }
        notes = {
            BEGIN: str(chunk.begin),
            END: str(chunk.origin),
            ATTEMPT: str(chunk.attempt),
            EPOCH: str(self._tools.epoch),
            WORK: orjson.loads(known.spec)["template"]["spec"]["containers"][0]["name"],
        }
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid, "labels": labels, "annotations": notes},
            "spec": {
                "schedulingGates": [{"name": gate} for gate in pod.gates] or None,
                "nodeSelector": {HOSTNAME: self._tools.caches.inventory.hostname(chunk.node)},
            },
        }
        return StartPod(PODS.path(namespace=pod.namespace, name=pod.name), body, chunk)


def _fitting(pods: Iterable[GatedPod], chunk: Chunk) -> Iterator[GatedPod]:
    """Yield the pods that may do a chunk."""
    return (pod for pod in pods if pod.unit is None or pod.unit == chunk.begin)
