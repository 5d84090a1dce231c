"""A node while its API server is brought back to an earlier state: kubelet and agent go on as if nothing had been.

The kubelet runs what it once saw, also pods that the API server has no longer: a kubelet that watches from a version of
the future learns nothing. It runs a pod that the API server has again once more, as a kubelet does.
"""

import asyncio
import contextlib
import itertools
import json

import aiohttp
from beside import beside
from server import job
from stage import SERVICE, Stage

from punctual import errors, wire
from punctual.kube.api.resources import JOBS, LEASES
from punctual.labels import BEGIN, END, JOB_UID_LABEL

MODES = ("Hold", "Line")
"""What the agent can do with pods."""


class RestoredStage(Stage):
    """``async with playing():`` the kubelet starts what is bound to it and ends what `finish` names."""

    def __init__(self, client, port):
        super().__init__(client, port)
        self.runs = {}
        """uid -> pod, of all that the kubelet runs: what the API server has lost, too."""
        self.finish = set()
        """Names of pods that end well."""
        self.epoch = 0
        """The highest epoch that the agent has heard."""
        self.refused = []
        """The reasons why reports were refused."""
        self.told = {}
        """uid of a pod -> its job, as the agent was told."""
        self._named = set()
        """Pods of the last answer."""
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def playing(self):
        """Let kubelet and agent do their work."""
        async with beside(self._run_pods(), self._tell()):
            yield self

    async def ask(self, name, **spec):
        """Create a job of forty units, on two processors."""
        template = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
        standard = {"units": 40, "deadline": "20m", "cost": {"perUnit": "1s", "startup": "1s"}, "template": template}
        spec = {**standard, "processors": {"min": 2, "max": 2}, **spec}
        return await self._served(JOBS.path(namespace=self.namespace), job(name, self.namespace, self.pool, **spec))

    async def job(self, name):
        """Return a job, None if there is none."""
        try:
            return await self.client.get(JOBS.path(namespace=self.namespace, name=name))
        except errors.NotFound:
            return None

    async def accounted(self, name):
        """Return how many units of a job are accounted."""
        found = ((await self.job(name)) or {}).get("status") or {}
        return sum(part["end"] - part["begin"] for part in found.get("completed") or ())

    async def completed(self, name):
        """Return whether a job has completed; if so, each of its units was accounted once."""
        found = await self.job(name)
        status = found.get("status") or {}
        if status.get("state") != "Completed":
            return False
        assert status["completed"] == [{"begin": 0, "end": found["spec"]["units"]}]
        return True

    async def lease_epoch(self):
        """Return the epoch in the Lease."""
        return (await self.client.get(LEASES.path(namespace=self.namespace, name=SERVICE)))["spec"]["leaseTransitions"]

    async def has_events(self, reason, about):
        """Return whether events with this reason are about these: this pool, or jobs of this namespace."""
        found = await self.client.list("/apis/events.k8s.io/v1/events")
        names = [event["regarding"] for event in found.items if event["reason"] == reason]
        return sorted(one["name"] for one in names if self.namespace in (one["name"], one.get("namespace"))) == about

    async def run_all(self, *names):
        """Let all pods of these jobs end well, until the jobs have completed."""
        while not all([await self.completed(name) for name in names]):
            with contextlib.suppress(errors.ClusterError):
                self.finish |= {pod["metadata"]["name"] for pod in await self.chunks()}
            await asyncio.sleep(0.1)

    async def _run_pods(self):
        while True:
            with contextlib.suppress(errors.ClusterError):
                for pod in await self.chunks():
                    await self._live(pod)
            await asyncio.sleep(0.1)

    async def _live(self, pod):
        meta, phase = pod["metadata"], pod["status"]["phase"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            if meta.get("deletionTimestamp"):
                self.runs.pop(meta["uid"], None)
                await self.vanish(pod)
            elif phase == "Pending":
                await self._start(pod)
                self.runs[meta["uid"]] = pod
            elif phase == "Running" and meta["name"] in self.finish:
                self.runs.pop(meta["uid"], None)
                begin, end = (int(meta["annotations"][note]) for note in (BEGIN, END))
                await self._end(pod, begin=begin, end=end)

    def _pod_report(self, uid, number):
        job = None if uid in self._named else self.told.get(uid)
        return wire.PodReport(uid=uid, done=1, cpu_seconds=float(number), job=job)

    async def _tell(self):
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, force_close=True),
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=5),
        ) as session:
            while True:
                await asyncio.sleep(0.5)
                number = next(self._numbers)
                pods = [self._pod_report(uid, number) for uid in self.runs]
                report = wire.Report(
                    node=self.node, instance="agent", sequence=number, epoch=self.epoch, modes=MODES, pods=pods
                )
                url = f"https://127.0.0.1:{self.port}{wire.REPORT_PATH}"
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with session.post(url, data=report.model_dump_json()) as answer:
                        said = json.loads(await answer.text())
                        if answer.status == 200:
                            assert said["epoch"] >= self.epoch
                            self.epoch = said["epoch"]
                            told = {point["uid"]: point.get("job") for point in said["pods"]}
                            self.told |= told
                            self._named = set(told)
                        else:
                            self.refused.append(said["reason"])


def of_job(pods, made):
    """Return the names of the pods of a job."""
    return sorted(
        p["metadata"]["name"] for p in pods if p["metadata"]["labels"][JOB_UID_LABEL] == made["metadata"]["uid"]
    )
