"""What the API server's store has lost, as far as pods still show it. It is told; nothing is decided here.

After a restore the store has neither the promises that were made since its backup, nor their pods. Two things may be
left of them, and both are compared with the API server anew, because a watch may only be late:

    a pod that an agent reports with the job that its set point named, and that the API server does not have: its
    kubelet runs on what it knew before
    a pod with the labels of a job that is not there, beside a job of the same name: a backup tool has deleted jobs and
    created them again

A job that is there and has no promise from before this term is asked again, as any job without an answer. One that is
not there can only be created again by its user. In both cases the job's event says that a promise was lost.
"""

import contextlib
import math
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import structlog

from punctual import reasons, wire
from punctual.errors import ClusterError, NotFound
from punctual.kube import api
from punctual.kube.actors.actors import Life
from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.client import METADATA_LIST, ApiClient, Json
from punctual.kube.cluster.events import Regarding
from punctual.labels import JOB_LABEL, JOB_UID_LABEL
from punctual.notation.duration import parse_time

WITHIN: Final = 120.0
"""Seconds of a term in which agents' reports are looked at: later, a pod without an object was deleted by force."""
MOST: Final = 100
"""Jobs and pods that a term looks at: the names come from nodes and from labels."""

log = structlog.get_logger(__name__)


class Fall(NamedTuple):
    """Epochs that fell: agents have heard of them, and the store has not."""

    recorded: int
    """The epoch that a leader had by what was recorded."""
    known: int
    """The highest one that an agent has heard of another leader. It is not lower."""
    since: float
    """When that leader began to decide, on the API server's clock: older promises are on record."""


class LostPromises:
    """Tells of lost promises, for one term. ``fall``: why it begins, if epochs fell back."""

    def __init__(self, tools: Tools, client: ApiClient, life: Life) -> None:
        self._tools = tools
        self._client = client
        self._life = life
        self._until = -math.inf  # on the monotonic clock
        self.began = 0.0
        """When a leader began to decide about what the store has, on the API server's clock."""
        self._seen: set[str] = set()  # uids that were looked at: pods that agents report, jobs that pods claim

    def begin(self, fall: Fall | None) -> None:
        """Begin: the takeover is done."""
        clock = self._tools.clock
        self._until = clock.monotonic() + WITHIN
        self.began = clock.now() if fall is None else fall.since
        if fall is None:
            return
        text = (
            f"agents have heard another leader with epoch {fall.known}, and by what the API server has, this one had "
            f"epoch {fall.recorded}: its store was set back, as by a restore. This leader goes on with epoch "
            f"{self._tools.epoch}. What was promised and accounted since that backup is lost, and is done again where "
            "its job is still there"
        )
        for pool in self._tools.directory.pools.values():
            self._tools.recorder.emit(Regarding.pool(pool.name, pool.uid), "Warning", reasons.EPOCHS_FELL_BACK, text)
        for job, pods in islice(self._tools.caches.pods.claimed(), MOST):
            self._life.spawn(self._look_at_claim(job, pods[0]))

    def heard(self, node: str, pods: Iterable[wire.PodReport]) -> None:
        """Take in pods that an agent reports, and that no object stands for."""
        if self._tools.clock.monotonic() > self._until:
            return
        for pod in pods:
            if pod.job and not pod.over and pod.uid not in self._seen and len(self._seen) < MOST:
                self._seen.add(pod.uid)
                self._life.spawn(self._look_at_report(node, pod.uid, pod.job))

    async def _look_at_report(self, node: str, uid: str, job: str) -> None:
        namespace, _, name = job.partition("/")
        shown = f"pod {uid} runs on node {node}, and the API server does not have it"
        try:
            async with contextlib.aclosing(
                self._client.pages(PODS.path(namespace=namespace), accept=METADATA_LIST)
            ) as pages:
                async for page in pages:
                    if any(pod["metadata"]["uid"] == uid for pod in page.items):
                        return
            self._tell(namespace, name, await self._job(namespace, name), shown)
        except ClusterError as error:
            log.warning("lost_promise_not_read", job=job, error=str(error))

    async def _look_at_claim(self, uid: str, key: str) -> None:
        """Look at a pod ("namespace/name") of a job (uid) that is not there."""
        namespace, _, pod = key.partition("/")
        try:
            labels = (await self._client.metadata(PODS.path(namespace=namespace, name=pod))).get("labels") or {}
            name = labels.get(JOB_LABEL, "")
            if labels.get(JOB_UID_LABEL) == uid and name and (job := await self._job(namespace, name)) is not None:
                self._tell(namespace, name, job, f"pod {pod} belongs to an earlier job of this name, with uid {uid}")
        except NotFound:
            return
        except ClusterError as error:
            log.warning("lost_promise_not_read", pod=key, error=str(error))

    async def _job(self, namespace: str, name: str) -> Json | None:
        try:
            return await self._client.get(JOBS.path(namespace=namespace, name=name))
        except NotFound:
            return None

    def _tell(self, namespace: str, name: str, job: Json | None, shown: str) -> None:
        """Tell that a job's promise was lost, unless its answer is older than this term."""
        if job is not None and self._is_older(job):
            return
        if job is None:
            regarding = Regarding(api.API_VERSION, "DivisibleJob", namespace, name, "")
            text = (
                f"{shown}, nor this job. Unless the job was deleted, the API server's store was set back to a time "
                "before it, and its promise is lost: create the job again"
            )
        else:
            regarding = Regarding.of(job)
            text = f"{shown}: what was promised for it is lost. The job was answered again, or will be"
        log.warning("promise_lost", namespace=namespace, job=name, shown=shown)
        self._tools.recorder.emit(regarding, "Warning", reasons.PROMISE_LOST, text)

    def _is_older(self, job: Json) -> bool:
        """Return whether a job was promised before this term: what it was promised is on record."""
        for one in (job.get("status") or {}).get("conditions") or ():
            if one.get("type") == "Admitted" and one.get("status") == "True":
                return parse_time(one["lastTransitionTime"]) < math.floor(self.began)  # it may be in whole seconds
        return False
