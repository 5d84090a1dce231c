"""Pods of ordinary Jobs: their own controller creates them, and each waits at a gate until a chunk is planned for it.

A chunk of such a job is one unit: one index of an Indexed Job, or any pod of another one. To start it, its pod gets the
chunk's labels and a node, and loses the gate, in one write. A chunk without a pod waits here: the Job's controller
creates one in a moment, or after its back-off if the one before has failed. What waits is in the job's status, too, so
a new leader starts it again.

No pod of a Job is ever deleted here: its controller would count that as a failure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.batch_jobs import GatedPod
from punctual.kube.cluster.nodes import HOSTNAME
from punctual.kube.cluster.pod_manifest import chunk_marks
from punctual.kube.known.jobs import KnownJob
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Operation, Outcome, StartPod
from punctual.labels import EPOCH, WORK
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import CreateRefused, PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec


class GatedPods:
    """The runner that lets pods of Jobs start. Its methods are those of `runners.Runner`, and `arrived`."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._waiting: dict[str, dict[tuple[str, int, int], Chunk]] = {}  # chunks without a pod, by job (uid) and key
        self._started: dict[str, tuple[str, Chunk]] = {}  # by pod (uid), until it is seen: its job, and its chunk
        self._without: set[tuple[str, tuple[str, int, int]]] = set()  # that waited at the last look: job, and key
        self._written: set[str] = set()  # those of them of which the start was written
        self._gone: dict[str, str] = {}  # pods (uid) that are gone, and may still be seen at the gate, with their job
        self._withdrawn: dict[str, str] = {}  # pods (uid) that were to end, with their job

    def start(self, known: KnownJob, chunk: Chunk, processor: PoolSpec) -> list[Operation] | CreateRefused:  # noqa: ARG002
        """Return the start of a pod, if there is one. Otherwise `arrived` submits it."""
        if known.flaw:
            return _no_pod(known.uid, chunk, known.flaw, taken=False)
        self._waiting.setdefault(known.uid, {})[chunk.key] = chunk
        return list(self._starts(known))

    def arrived(self, batch: str) -> None:
        """Start the pods of a Job (uid) that have come to the gate, if a chunk waits for them."""
        known = self._tools.directory.jobs.of_batch(batch)
        if known is not None and known.uid in self._waiting:
            for start in self._starts(known):
                self._tools.writer.submit(Key(JOBS, known.uid), start)

    def end(self, pod: EndPod | StopPod) -> list[Operation]:
        """Return nothing: the Job's controller ends its pods. One without a node is withdrawn (`kept`)."""
        if (job := self._tools.caches.pods.job_of(pod.uid)) is not None:
            self._withdrawn[pod.uid] = job
        return []

    def kept(self, batch: str) -> int | None:
        """Return how many pods of a Job (uid) are to stay while some without a node are withdrawn. None: all are."""
        pods = self._tools.caches.batch.started(batch)
        leaving = [pod for pod in pods if pod.uid in self._withdrawn and not pod.node]
        return len(pods) - len(leaving) if leaving else None

    def settled(self, outcome: Outcome) -> Iterator[CreateRefused | PodObserved]:
        """Yield that a pod was refused. One that is gone has a successor, which its chunk waits for."""
        start, job, gone = outcome.operation, outcome.key.name, outcome.result == "gone"
        assert isinstance(start, StartPod)
        known = self._tools.directory.jobs.get(job)
        if known is None:
            return
        if outcome.result == "done":
            self._written.add(start.pod)
            return
        self._started.pop(start.pod, None)
        if gone:
            self._gone[start.pod] = job
        if gone and start.chunk.key in _recorded(known):
            self._waiting.setdefault(job, {})[start.chunk.key] = start.chunk
            self.arrived(known.owner.batch)  # the successor may have come before
        else:
            yield _no_pod(job, start.chunk, outcome.message, taken=gone)

    def lost(self) -> Iterator[CreateRefused]:
        """Yield the chunks of pods that have started and went before they were seen.

        An informer that was cut off tells nothing of such a pod but that none waits at the gate.
        """
        pods = self._tools.caches.pods
        gated = {pod.uid for job in {job for job, _ in self._started.values()} for pod in self._gated_of(job)}
        for pod in [pod for pod in self._written if pod not in gated]:
            self._written.discard(pod)
            job, chunk = self._started.pop(pod, ("", None))
            if chunk is not None and pods.job_of(pod) is None:
                yield _no_pod(job, chunk, "its pod has started, and was gone before it was seen", taken=True)

    def stuck(self) -> Iterator[CreateRefused]:
        """Yield the chunks that have waited since the last look while pods of other units wait at the gate.

        With `backoffLimitPerIndex`, an index that has failed has no pod while these fill the Job's parallelism.
        """
        waited = {(job, key) for job, chunks in self._waiting.items() for key in chunks}
        stay, self._without = waited & self._without, waited
        for job, key in sorted(stay):
            known, chunk = self._tools.directory.jobs.get(job), self._waiting[job][key]
            owned = {begin for _, begin, _ in _recorded(known)} if known else set()
            pods = [pod for pod in self._gated_of(job) if pod.uid not in self._started]
            units = sorted(pod.unit for pod in pods if pod.unit is not None and pod.unit not in owned)
            if units and chunk.begin not in {pod.unit for pod in pods}:
                del self._waiting[job][key]
                text = "it has no pod yet, and others of its Job wait at the gate"
                yield replace(_no_pod(job, chunk, text, taken=True), instead=units[0])
                return  # the next one at the next look: then this one owns its unit

    def withdraw(self, job: str, chunk: Chunk) -> CreateRefused | None:
        """Do not start a chunk. Return that it has no pod; None: its start was submitted."""
        self._waiting.get(job, {}).pop(chunk.key, None)
        if any((uid, started.key) == (job, chunk.key) for uid, started in self._started.values()):
            return None
        return _no_pod(job, chunk, "", taken=True)

    def forget(self, job: str) -> None:
        """Forget a job (uid)."""
        self._waiting.pop(job, None)
        self._started = {pod: started for pod, started in self._started.items() if started[0] != job}
        self._written &= self._started.keys()
        self._gone = {pod: of for pod, of in self._gone.items() if of != job}
        self._withdrawn = {pod: of for pod, of in self._withdrawn.items() if of != job}

    def _gated_of(self, job: str) -> list[GatedPod]:
        known = self._tools.directory.jobs.get(job)
        return self._tools.caches.batch.gated(known.owner.batch) if known else []

    def _starts(self, known: KnownJob) -> Iterator[StartPod]:
        """Yield the starts of chunks that have waited and have a pod now."""
        waiting = self._waiting[known.uid]
        for key in waiting.keys() - _recorded(known):  # one that the Pool has given up meanwhile must not run
            del waiting[key]
        gated = self._tools.caches.batch.gated(known.owner.batch)
        free = [pod for pod in gated if pod.uid not in self._started and pod.uid not in self._gone]
        for key, chunk in list(waiting.items()):
            pod = next(_fitting(free, chunk), None)
            if pod is not None:
                free.remove(pod)
                del waiting[key]
                self._started[pod.uid] = known.uid, chunk
                yield self._start(known, chunk, pod)
        if not waiting:
            del self._waiting[known.uid]

    def _start(self, known: KnownJob, chunk: Chunk, pod: GatedPod) -> StartPod:
        marks = chunk_marks(known.owner, chunk)
        work = orjson.loads(known.spec)["template"]["spec"]["containers"][0]["name"]
        notes = {**marks.notes, EPOCH: str(self._tools.epoch), WORK: work}
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid, "labels": marks.labels, "annotations": notes},
            "spec": {
                "schedulingGates": [{"name": gate} for gate in pod.gates] or None,
                "nodeSelector": {HOSTNAME: self._tools.caches.inventory.hostname(chunk.node)},
            },
        }
        return StartPod(PODS.path(namespace=pod.namespace, name=pod.name), body, chunk)


def _recorded(known: KnownJob) -> set[tuple[str, int, int]]:
    """Return the keys of the chunks that a job has."""
    record = known.term.record
    return {chunk.key for chunk in record.chunks} if record else set()


def _fitting(pods: Iterable[GatedPod], chunk: Chunk) -> Iterator[GatedPod]:
    """Yield the pods that may do a chunk."""
    return (pod for pod in pods if pod.unit is None or pod.unit == chunk.begin)


def _no_pod(job: str, chunk: Chunk, message: str, *, taken: bool) -> CreateRefused:
    """Return that a chunk has no pod. ``taken``: the next one need not wait."""
    return CreateRefused(
        job=job, kind=chunk.kind, begin=chunk.begin, attempt=chunk.attempt, message=message, taken=taken
    )
