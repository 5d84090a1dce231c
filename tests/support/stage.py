"""The life of one job on a bare API server: a pool of one node, its kubelet and agent, and all that was seen.

The job has a story: of its two chunks one fails and is done again, the other is slow, is offered an end, answers it,
and a third does the rest; then the results are put together. Whatever happens to the operator meanwhile, `Stage.judge`
says whether the end is the right one.
"""

import asyncio
import contextlib
import itertools
import json
import uuid
from collections import Counter

import aiohttp
from beside import beside
from server import job, pool

from punctual import errors, wire
from punctual.kube import api
from punctual.kube.api.resources import CONFIG_MAPS, JOBS, LEASES, NODES, PODS, POOLS
from punctual.kube.known.translate import to_record
from punctual.labels import BEGIN, END, JOB_UID_LABEL, KIND_LABEL, OFFERED_END
from punctual.notation.duration import format_time
from punctual.scheduling.model.ranges import Ranges

UNITS = 40
SERVICE = "punctual"
CONTAINER = {"name": "main", "image": "work:1", "imageID": "", "ready": False, "restartCount": 0}


class Stage:
    """``prepare()`` it; ``async with running():`` the kubelet and the agent play; ``finished()``; ``judge()``."""

    def __init__(self, client, port):
        self.client = client
        self.namespace = f"s-{uuid.uuid4().hex[:10]}"
        self.pool = self.node = self.namespace
        self.label = f"pool={self.pool}"
        self.port = port
        """Where the operator is to hear the agent."""
        self.etcd = ""
        """Where the server's etcd listens, for those who play with it."""
        self.uid = ""
        self.jobs = []
        """All versions of the job that were seen."""
        self.pods = {}
        """uid -> pod as last seen, of all there were."""
        self.there = {}
        """uid -> name of those that are there."""
        self.born = {}
        """uid -> resource version at its creation."""
        self.did = {}
        """(begin, end) -> what the attempt said that ended well."""
        self._fails = None  # uid of the one that does
        self._slow = None
        self._answers = {}  # uid -> the end it will honour
        self._heard = set()  # uids whose answer the operator has acknowledged
        self._sequence = itertools.count(1)

    @property
    def env(self):
        """What the operator must know of this place."""
        return {"PUNCTUAL_REPORT_PORT": str(self.port)}

    @property
    def status(self):
        """The job's status as last seen."""
        return (self.jobs[-1].get("status") or {}) if self.jobs else {}

    # the scene

    async def prepare(self):
        """Make namespace, node, agent and pool."""
        create = self.client.create
        await create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await create(NODES.path(), {"metadata": {"name": self.node, "labels": {"pool": self.pool}}})
        # admission taints a new node until a controller, that is not here, sees it ready
        await self.client.patch_merge(NODES.path(name=self.node), {"spec": {"taints": None}})
        await self.node_is(ready=True)
        await self._served(POOLS.path(), pool(self.pool, margin="1s"))
        await self._hire()

    async def node_is(self, *, ready):
        """Let the node be ready or not."""
        room = {"cpu": "3", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": room, "conditions": [{"type": "Ready", "status": str(ready)}]}
        await self.client.patch_merge(NODES.path(name=self.node), {"status": status}, subresource="status")

    async def add_job(self, name="job", **spec):
        """Create a job; the first one is the one that is followed."""
        template = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
        standard = {
            "units": UNITS,
            "deadline": "20m",
            "cost": {"perUnit": "100ms", "startup": "500ms"},
            "processors": {"min": 2, "max": 2},
            "reduce": {"duration": "1s", "template": template},
        }
        body = job(name, self.namespace, self.pool, **{**standard, **spec})
        body["spec"] = {field: value for field, value in body["spec"].items() if value is not None}
        made = await self._served(JOBS.path(namespace=self.namespace), body)
        self.uid = self.uid or made["metadata"]["uid"]
        return made

    async def _served(self, path, body):
        """Create an object of ours: just after our kinds came into being the server asks for a moment's patience."""
        while True:
            try:
                return await self.client.create(path, body)
            except errors.Busy as error:
                await asyncio.sleep(error.retry_after)

    async def _hire(self):
        """Give the agent its account, its pod on the node and its token."""
        here, account = f"/api/v1/namespaces/{self.namespace}", f"{SERVICE}-agent"
        await self.client.create(f"{here}/serviceaccounts", {"metadata": {"name": account}})
        spec = {"serviceAccountName": account, "nodeName": self.node, "containers": [{"name": "a", "image": "a"}]}
        pod = await self.client.create(f"{here}/pods", {"metadata": {"name": "agent"}, "spec": spec})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": pod["metadata"]["uid"]}
        asked = {"spec": {"audiences": [wire.AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}}
        answer = await self.client.create(f"{here}/serviceaccounts/{account}/token", asked)
        self._token = answer["status"]["token"]

    async def clean(self):
        """Take away what others on this server would see."""
        with contextlib.suppress(errors.NotFound):
            await self.client.patch_merge(POOLS.path(name=self.pool), {"metadata": {"finalizers": None}})
            await self.client.delete(POOLS.path(name=self.pool))
        for item in (await self.client.list(JOBS.path(namespace=self.namespace))).items:
            await self.client.delete(JOBS.path(namespace=self.namespace, name=item["metadata"]["name"]))
        for item in (await self.client.list(PODS.path(namespace=self.namespace))).items:
            path = PODS.path(namespace=self.namespace, name=item["metadata"]["name"])
            with contextlib.suppress(errors.NotFound):
                await self.client.delete(path, grace=0)
        await self.client.delete(NODES.path(name=self.node))

    # who plays

    @contextlib.asynccontextmanager
    async def running(self):
        """Let kubelet, agent and those who watch do their work."""
        async with beside(self._follow(JOBS), self._follow(PODS), self._report()):
            yield self

    async def _follow(self, resource):
        path = resource.path(namespace=self.namespace)
        version = ""
        while True:
            with contextlib.suppress(errors.Unreachable, errors.Busy):
                watch = self.client.watch(path, resource_version=version, initial=not version, seconds=300, silence=310)
                async with contextlib.aclosing(watch):
                    async for event in watch:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] == "BOOKMARK":
                            continue
                        if resource is JOBS:
                            if event["object"]["metadata"]["uid"] == self.uid:
                                self.jobs.append(event["object"])
                        else:
                            await self._kubelet(event["type"], event["object"])
            await asyncio.sleep(0.1)

    async def _kubelet(self, change, pod):
        """Do what the kubelet would: run what is pending, end what is deleted."""
        meta = pod["metadata"]
        uid = meta["uid"]
        if (meta.get("labels") or {}).get(JOB_UID_LABEL) is None:
            return
        self.pods[uid] = pod
        self.born.setdefault(uid, int(meta["resourceVersion"]))
        if change == "DELETED":
            self.there.pop(uid, None)
            return
        self.there[uid] = meta["name"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            if meta.get("deletionTimestamp"):
                await self.vanish(pod)
            elif pod["status"]["phase"] == "Pending":
                await self._start(pod)
            elif pod["status"]["phase"] == "Running":
                await self._go_on(pod)

    def path(self, pod):
        """Return where a pod is."""
        return PODS.path(namespace=self.namespace, name=pod["metadata"]["name"])

    async def _start(self, pod):
        if "nodeName" not in pod["spec"]:
            await self.bind(pod)
        await self._set(pod, "Running", {"running": {"startedAt": self._now()}})

    async def _go_on(self, pod):
        begin, end = _range(pod)
        uid = pod["metadata"]["uid"]
        if begin == 0 and self._fails in (None, uid):
            self._fails = uid
            await self._end(pod, code=1)
            return
        if self._slow in (None, uid) and 0 < begin < UNITS:
            self._slow = uid
            offered = pod["metadata"]["annotations"].get(OFFERED_END)
            if offered is not None:
                self._answers[uid] = min(end, int(offered))
            return  # it goes on when the operator has heard its answer
        await self._end(pod, begin=begin, end=end)

    async def _end(self, pod, *, code=0, begin=0, end=0):
        said = f"{begin} to {end}" if code == 0 else ""
        if code == 0:
            self.did[begin, end] = said
        now = self._now()
        ended = {"exitCode": code, "startedAt": now, "finishedAt": now, "message": said}
        await self._set(pod, "Succeeded" if code == 0 else "Failed", {"terminated": ended})

    async def _set(self, pod, phase, state):
        status = {"phase": phase, "containerStatuses": [{**CONTAINER, "state": state}]}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self.client.patch_merge(self.path(pod), body, subresource="status")

    def _now(self):
        return format_time(int(self.client.clock.now()))

    async def _report(self):
        """Report as the agent does; whoever leads hears it."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, force_close=True),  # whom it trusts is another test
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=5),
        ) as session:
            while True:
                await asyncio.sleep(0.5)
                sequence = next(self._sequence)
                pods = [
                    wire.PodReport(uid=u, done=1, end=self._answers.get(u), cpu_seconds=float(sequence))
                    for u in self.there
                ]
                report = wire.Report(node=self.node, instance="agent", sequence=sequence, pods=pods)
                url = f"https://127.0.0.1:{self.port}{wire.REPORT_PATH}"
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with session.post(url, data=report.model_dump_json()) as answer:
                        if answer.status == 200:
                            await self._leave_off({p.uid: p.end for p in pods if p.end is not None})

    async def _leave_off(self, heard):
        """End those whose answer has been heard: they have come to that end by now."""
        for uid, end in heard.items():
            if uid not in self._heard and uid in self.there:
                self._heard.add(uid)
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    await self._end(self.pods[uid], begin=_range(self.pods[uid])[0], end=end)

    # what people do

    async def let_go(self):
        """Release the Lease in the name of a holder that was killed: how long a takeover takes is another test's."""
        path = LEASES.path(namespace=self.namespace, name=SERVICE)
        with contextlib.suppress(errors.NotFound):
            await self.client.patch_merge(path, {"spec": {"holderIdentity": None}})

    async def delete_job(self, name):
        """Delete a job."""
        await self.client.delete(JOBS.path(namespace=self.namespace, name=name))

    async def delete_pool(self):
        """Delete the pool, whoever wants it kept."""
        path = POOLS.path(name=self.pool)
        await self.client.patch_merge(path, {"metadata": {"finalizers": None}})
        await self.client.delete(path)

    async def answered(self, name, reason="Feasible"):
        """Return whether a job was answered so."""
        status = (await self.client.get(JOBS.path(namespace=self.namespace, name=name))).get("status") or {}
        return any((c["type"], c["reason"]) == ("Admitted", reason) for c in status.get("conditions", ()))

    async def chunks(self):
        """Return the pods of jobs that are there."""
        found = await self.client.list(PODS.path(namespace=self.namespace), label_selector=JOB_UID_LABEL)
        return found.items

    async def working(self, count):
        """Return the pods of jobs once there are so many."""
        found = await self.chunks()
        return found if len(found) == count else None

    async def bind(self, pod):
        """Put a pod on the node: from now on it is the kubelet's to say when it is gone."""
        target = {"kind": "Node", "name": self.node}
        body = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
        await self.client.create(f"{self.path(pod)}/binding", body)

    async def vanish(self, pod):
        """Say that a pod is gone."""
        await self.client.delete(self.path(pod), uid=pod["metadata"]["uid"], grace=0)

    async def room(self, *, free):
        """Return whether so many of the pool's processors are free."""
        status = (await self.client.get(POOLS.path(name=self.pool))).get("status") or {}
        return status.get("free") == free

    async def queue(self, length):
        """Return whether so many jobs wait in the pool."""
        status = (await self.client.get(POOLS.path(name=self.pool))).get("status") or {}
        return status.get("queue") == length

    async def until(self, holds, *, within=60.0):
        """Wait until ``holds()``, a function or coroutine function, gives something true; return that."""
        async with asyncio.timeout(within):
            while not (found := await _value(holds)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # much of it is the API server's state
        return found

    async def finished(self, *, within=90.0):
        """Wait until the job has ended and the pool is as if it had never been."""
        await self.until(lambda: self.status.get("finishTime"), within=within)

        async def at_rest():
            there = await self.client.get(POOLS.path(name=self.pool))
            status = there.get("status") or {}
            return status.get("free") == 3 and not status["queue"] and not there["metadata"].get("finalizers")

        await self.until(at_rest, within=within)
        await self.until(lambda: all(_ended(self.pods[u]) for u in self.there), within=within)

    # what came of it

    def told(self):
        """Return what was last seen of job and pods, for whoever asks why it does not go on."""
        pods = {p["metadata"]["name"]: _seen(p) for u, p in self.pods.items() if u in self.there}
        return json.dumps({"status": self.status, "pods": pods}, indent=1)

    async def judge(self):
        """Assert that no unit was lost, none accounted twice, the promise kept, and nothing left behind."""
        await self._look_at_results()
        said = {c["type"]: (c["status"], c["reason"]) for c in self.status["conditions"]}
        assert said["Admitted"] == ("True", "Feasible")
        assert said["Completed"] == ("True", "Completed")
        assert self.status["completed"] == [{"begin": 0, "end": UNITS}]
        assert "chunks" not in self.status
        self._judge_history()
        self._judge_pods()

    def _judge_history(self):
        """Every version that ever stood there is sound, follows from the one before, and promises the same."""
        deadline, epoch, done = None, 0, Ranges()
        for body in self.jobs:
            status = api.parse_status(api.DivisibleJobStatus, body)
            if status is None:
                continue
            record = to_record(status)
            record.check(UNITS)
            assert record.epoch >= epoch
            assert not done - record.completed, "accounted units are to do again"
            assert deadline is None or (record.promise and record.promise.deadline == deadline)
            epoch, done = record.epoch, record.completed
            deadline = record.promise.deadline if record.promise else deadline

    def _judge_pods(self):
        """Each attempt was recorded, then created once; what is left is to be read, and reduce saw each unit once."""
        recorded = {}
        for body in self.jobs:
            for chunk in (body.get("status") or {}).get("chunks", ()):
                recorded.setdefault(chunk["pod"], int(body["metadata"]["resourceVersion"]))
        pods = {u: p for u, p in self.pods.items() if p["metadata"]["labels"][JOB_UID_LABEL] == self.uid}
        names = Counter(p["metadata"]["name"] for p in pods.values())
        assert set(names.values()) == {1}, f"an attempt was made twice: {names}"
        for uid, pod in pods.items():
            name = pod["metadata"]["name"]
            assert recorded[name] < self.born[uid], f"{name} was created before it was recorded"
        there = [pod for uid, pod in pods.items() if uid in self.there]
        left = Counter((pod["metadata"]["labels"][KIND_LABEL], pod["status"]["phase"]) for pod in there)
        assert left == {("Chunk", "Failed"): 1, ("Reduce", "Succeeded"): 1}
        ends = dict(self.results_seen)
        at = 0
        while at in ends:
            at = ends.pop(at)
        assert (at, ends) == (UNITS, {}), f"reduce saw {sorted(self.results_seen)}"
        assert set(self.results_seen) <= set(self.did)

    async def _look_at_results(self):
        """Read what the reduce pod found mounted: [(begin, end)], and that each says what its attempt said."""
        (reduce,) = (p for p in map(self.pods.get, self.there) if p["metadata"]["labels"][KIND_LABEL] == "Reduce")
        volume = next(v for v in reduce["spec"]["volumes"] if v["name"] == "punctual-results")
        self.results_seen = []
        for source in volume["projected"]["sources"]:
            wanted = source["configMap"]
            path = CONFIG_MAPS.path(namespace=self.namespace, name=wanted["name"])
            data = (await self.client.get(path))["data"]
            for key in [i["key"] for i in wanted["items"]] if "items" in wanted else data:
                begin, _, end = key.partition("-")
                self.results_seen.append((int(begin), int(end)))
                assert data[key] == self.did[int(begin), int(end)]


def _range(pod):
    notes = pod["metadata"]["annotations"]
    return int(notes[BEGIN]), int(notes[END])


def _seen(pod):
    notes = {key.partition("/")[2]: value for key, value in pod["metadata"].get("annotations", {}).items()}
    return {**notes, "phase": pod["status"]["phase"], "node": pod["spec"].get("nodeName")}


def _ended(pod):
    return pod["status"]["phase"] in ("Succeeded", "Failed")


async def _value(holds):
    found = holds()
    return await found if asyncio.iscoroutine(found) else found
