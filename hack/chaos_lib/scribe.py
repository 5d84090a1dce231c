"""Records the changes of jobs and pods from the API server: each status in the order of its writes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lib.testbed import Json, condition

from punctual.errors import ClusterError, Gone
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.client import ApiClient
from punctual.labels import ATTEMPT, BEGIN, END, JOB_UID_LABEL, KIND_LABEL


@dataclass
class JobSeen:
    """One job."""

    body: Json
    statuses: list[tuple[int, Json]] = field(default_factory=list)
    """(resource version, status) of each that was seen."""
    times: list[float] = field(default_factory=list)
    """When each of them was seen."""
    gone: bool = False
    gaps: int = 0
    """How often the API server could not tell what came in between."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def status(self) -> Json:
        """As last seen."""
        return self.body.get("status") or {}

    def condition(self, kind: str) -> Json:
        """Return a condition, {} where it is not there."""
        return condition(self.status, kind)

    @property
    def over(self) -> bool:
        """Whether nothing more is to come: it has ended, or was refused."""
        if self.gone or self.status.get("finishTime"):
            return True
        return self.condition("Admitted").get("status") == "False" and not self.status.get("chunks")


@dataclass
class PodSeen:
    """One pod of a job."""

    body: Json
    born: int | None
    """Resource version it was created with; None where that was not seen."""
    succeeded: float | None = None
    """When its work was first seen to have."""
    deleted: bool = False
    """Whether it was deleted by then, or about to be: one that has ended goes at once."""
    gone: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def job(self) -> str:
        """Uid of its job; empty for a foreign pod."""
        return str((self.body["metadata"].get("labels") or {}).get(JOB_UID_LABEL, ""))

    @property
    def of_job(self) -> bool:
        """Whether the controller of an ordinary Job has made it."""
        return any(owner["kind"] == "Job" for owner in self.body["metadata"].get("ownerReferences") or ())

    @property
    def kind(self) -> str:
        """Chunk, Pilot or Reduce."""
        return str(self.body["metadata"]["labels"][KIND_LABEL])

    @property
    def range(self) -> tuple[int, int]:
        """The units it was created for."""
        notes = self.body["metadata"]["annotations"]
        return int(notes[BEGIN]), int(notes[END])

    @property
    def attempt(self) -> int:
        """Which attempt at them."""
        return int(self.body["metadata"]["annotations"][ATTEMPT])

    @property
    def phase(self) -> str:
        """As last seen."""
        return str((self.body.get("status") or {}).get("phase", "Pending"))

    @property
    def message(self) -> str:
        """What its first container said at its end."""
        for one in (self.body.get("status") or {}).get("containerStatuses") or ():
            ended = (one.get("state") or {}).get("terminated") or {}
            return str(ended.get("message") or "").strip()
        return ""


def _ended_well(pod: Json) -> bool:
    """Whether a pod's work has, which is its first container, whatever the others do."""
    status, containers = pod.get("status") or {}, pod["spec"]["containers"]
    if len(containers) == 1:
        return bool(status.get("phase") == "Succeeded")
    of_work = (one for one in status.get("containerStatuses") or () if one["name"] == containers[0]["name"])
    return any((one.get("state") or {}).get("terminated", {}).get("exitCode") == 0 for one in of_work)


class Scribe:
    """Follows one namespace.

    ``news(job, before)`` hears of each change of a job's status, ``pod(pod, what)`` of pods that come, move on and go.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        news: Callable[[JobSeen, Json], None],
        pod: Callable[[PodSeen, str], None],
    ) -> None:
        self.jobs: dict[str, JobSeen] = {}
        """By uid."""
        self.pods: dict[str, PodSeen] = {}
        """By uid."""
        self._client = client
        self._namespace = namespace
        self._news = news
        self._pod = pod

    def job(self, name: str) -> JobSeen | None:
        """Return the newest job of that name."""
        return next((job for job in reversed(self.jobs.values()) if job.name == name), None)

    def pods_of(self, uid: str) -> list[PodSeen]:
        """Return all pods that a job has had."""
        return [pod for pod in self.pods.values() if pod.job == uid]

    async def run(self) -> None:
        """Take down what happens until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(JOBS.path(namespace=self._namespace), self._take_job, self.jobs))
            group.create_task(self._follow(PODS.path(namespace=self._namespace), self._take_pod, self.pods))

    async def _follow(
        self, path: str, take: Callable[[str, Json], None], known: dict[str, JobSeen] | dict[str, PodSeen]
    ) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(path, take, known)
                events = self._client.watch(path, resource_version=version, seconds=60, silence=75)
                async with contextlib.aclosing(events):
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            take(event["type"], event["object"])
            except Gone:
                version = ""
            except ClusterError as error:
                await asyncio.sleep(error.retry_after)

    async def _list(
        self, path: str, take: Callable[[str, Json], None], known: dict[str, JobSeen] | dict[str, PodSeen]
    ) -> str:
        found = await self._client.list(path)
        there = {body["metadata"]["uid"] for body in found.items}
        for uid, seen in known.items():
            seen.gone = seen.gone or uid not in there
            if isinstance(seen, JobSeen):
                seen.gaps += not seen.over
        for body in found.items:
            take("LISTED", body)
        return found.resource_version

    def _take_job(self, what: str, body: Json) -> None:
        uid = body["metadata"]["uid"]
        job = self.jobs.get(uid)
        if job is None:
            job = self.jobs[uid] = JobSeen({"metadata": body["metadata"]})
        before = job.status
        job.body, job.gone = body, what == "DELETED"
        if job.status != before:
            job.statuses.append((int(body["metadata"]["resourceVersion"]), job.status))
            job.times.append(time.time())
            self._news(job, before)

    def _take_pod(self, what: str, body: Json) -> None:
        uid = body["metadata"]["uid"]
        pod = self.pods.get(uid)
        if pod is None:
            born = int(body["metadata"]["resourceVersion"]) if what == "ADDED" else None
            pod = self.pods[uid] = PodSeen(body, born)
        before = "" if pod.body is body else pod.phase
        pod.body, pod.gone = body, what == "DELETED"
        if pod.succeeded is None and _ended_well(body):
            pod.succeeded, pod.deleted = time.time(), pod.deleted or "deletionTimestamp" in body["metadata"]
        if pod.gone or pod.phase != before:
            self._pod(pod, "gone" if pod.gone else pod.phase)


async def eventually(true: Callable[[], object], *, within: float, every: float = 0.2) -> bool:
    """Whether ``true()`` became true within so many seconds."""
    end = time.monotonic() + within
    while not true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(every)
    return True
