"""A world of `term_world` in which replicas lead in turn, with watches, pods that run, and links that are cut.

A replica that is frozen past its lease, and then leads again, has in memory what it knew of its own earlier term. A
frozen process does nothing; what it does when it goes on is to end its term. So its term is cancelled at the very
write at which it froze, and its watches say what they missed when it leads again (or only later: ``deaf``).
"""

import asyncio
import copy

from term_world import Replica, Server, World

from punctual import errors, wire
from punctual.kube.cluster.pods import BEGIN, END, JOB_UID_LABEL, KIND_LABEL
from punctual.kube.format.clock import ServerClock
from punctual.kube.format.duration import format_time

WRITES = ("create", "delete", "patch_merge", "patch_json", "put_status", "apply")
MODES = ("before", "after", "unanswered")
"""A replica is cut off before a write is done, after its answer, or in between: the answer is lost."""


class LiveServer(Server):
    """An API server with watches that tell of each change, with pods and ConfigMaps.

    ``runs``: pods start and succeed at once; else they do what `run`, `succeed` and `fail` say.
    """

    def __init__(self):
        super().__init__()
        self.passed = 0.0
        self.clock = ServerClock(monotonic=lambda: self.passed, wall=lambda: 1_900_000_000.0)
        self.living = {}  # pods by path
        self.maps = {}  # the data of ConfigMaps by path
        self.watching = []  # replicas
        self.runs = False
        self.succeeded = []  # (job, kind, begin, end) of each pod that did
        self._pods = 0

    def later(self, seconds):
        """Let time pass."""
        self.passed += seconds

    def _tell(self, change, body):
        for replica in self.watching:
            replica.hear(change, copy.deepcopy(body))

    # pods

    async def create(self, path, body, *, dry_run=False, **more):
        if dry_run or not path.endswith("/pods"):
            if path.endswith("/configmaps") and not dry_run:
                self.maps[f"{path}/{body['metadata']['name']}"] = dict(body.get("data") or {})
            return await super().create(path, body, dry_run=dry_run, **more)
        await asyncio.sleep(0)
        at = f"{path}/{body['metadata']['name']}"
        if at in self.living:
            raise errors.AlreadyExists(at)
        self.pods.append(body)
        return copy.deepcopy(self.add_pod(body))

    def add_pod(self, body, *, age=0.0):
        """Let a pod be there that was made so many seconds ago."""
        self._pods += 1
        meta = {
            "uid": f"pod-{self._pods}",
            "creationTimestamp": format_time(int(self.clock.now() - age)),
            "resourceVersion": str(self._pods),
        }
        pod = copy.deepcopy(body)
        pod["metadata"] |= meta
        pod["status"] = {"phase": "Pending"}
        at = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self.living[at] = pod
        self._tell("ADDED", pod)
        if self.runs:
            asyncio.get_running_loop().call_soon(self._run_through, pod)
        return pod

    def _run_through(self, pod):
        if pod in self.living.values():
            self.run(pod)
            self.succeed(pod)

    def run(self, pod):
        """Let a pod run on the node that it is meant for."""
        began = {"running": {"startedAt": format_time(int(self.clock.now()))}}
        self._be(pod, "Running", began)

    def succeed(self, pod):
        """Let a pod end well."""
        meta = pod["metadata"]
        begin, end = (int(meta["annotations"][key]) for key in (BEGIN, END))
        self.succeeded.append((meta["labels"][JOB_UID_LABEL], meta["labels"][KIND_LABEL], begin, end))
        self._over(pod, "Succeeded", code=0, message=f"{begin}-{end}")

    def fail(self, pod):
        """Let a pod fail."""
        self._over(pod, "Failed", code=1, message="")

    def _over(self, pod, phase, *, code, message):
        now = format_time(int(self.clock.now()))
        self._be(
            pod, phase, {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now, "message": message}}
        )

    def _be(self, pod, phase, state):
        name = pod["spec"]["containers"][0]["name"]
        pod["spec"]["nodeName"] = "n1"
        pod["status"] = {"phase": phase, "containerStatuses": [{"name": name, "state": state}]}
        self._tell("MODIFIED", pod)

    def vanish(self, path):
        """Let a pod be gone."""
        self._tell("DELETED", self.living.pop(path))

    # the other verbs

    async def get(self, path):
        await asyncio.sleep(0)
        if path in self.living:
            return copy.deepcopy(self.living[path])
        if path in self.maps:
            return {"data": dict(self.maps[path])}
        return await super().get(path)

    async def delete(self, path, *, uid="", **_):
        await asyncio.sleep(0)
        there = self.living.get(path) or self.objects.get(path)
        if there is None:
            raise errors.NotFound(path)
        if uid and there["metadata"]["uid"] != uid:
            raise errors.Replaced(path)
        self.deleted.append((path.rpartition("/")[2], uid))
        if path in self.living:
            self.vanish(path)
        else:
            self.remove(path)
        return {}

    async def patch_json(self, path, patch, **_):
        await asyncio.sleep(0)
        for step in patch:
            if step["op"] == "add" and step["path"] == "/metadata/finalizers":
                self.objects[path]["metadata"]["finalizers"] = step["value"]
                self._tell("MODIFIED", self.objects[path])
        return {}

    async def patch_merge(self, path, patch, **more):
        if path in self.maps:
            self.maps[path] |= patch["data"]
            return {}
        if path in self.living:
            self.living[path]["metadata"]["annotations"] |= patch["metadata"]["annotations"]
            return copy.deepcopy(self.living[path])
        if "status" not in patch:
            raise errors.NotFound(path)
        answer = await super().patch_merge(path, patch, **more)
        self._tell("MODIFIED", self.objects[path])
        return answer

    async def put_status(self, path, body, **more):
        answer = await super().put_status(path, body, **more)
        self._tell("MODIFIED", self.objects[path])
        return answer

    async def apply(self, path, body, **_):
        await asyncio.sleep(0)
        self.maps.setdefault(path, dict(body.get("data") or {}))
        return {}

    # what people do

    def put(self, kind, name, namespace="", **more):
        body = super().put(kind, name, namespace, **more)
        self._tell("MODIFIED", body)
        return body

    def remove(self, path):
        """Delete an object for good, and as the garbage collector what it owns."""
        gone = self.objects.pop(path)
        self._tell("DELETED", gone)
        for at, pod in list(self.living.items()):
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in pod["metadata"]["ownerReferences"]):
                self.vanish(at)


class Link:
    """What a replica reaches the server by. ``cut(nth, mode, then)``: the nth write from now on is its last."""

    def __init__(self, server):
        self._server = server
        self._nth, self._mode, self._then = 0, "", lambda: None
        self.writes = 0

    def cut(self, nth, mode, then):
        self._nth, self._mode, self._then = self.writes + nth, mode, then

    def mend(self):
        """Let writes come through again."""
        self._nth = 0

    def __getattr__(self, name):
        call = getattr(self._server, name)
        return call if name not in WRITES else lambda *args, **more: self._write(call, *args, **more)

    async def _write(self, call, *args, **more):
        if more.get("dry_run") or args[0].endswith("/events"):
            return await call(*args, **more)
        self.writes += 1
        if self.writes < self._nth or not self._nth:
            return await call(*args, **more)
        if self.writes == self._nth and self._mode != "before":
            answer = await call(*args, **more)
            if self._mode == "after":
                asyncio.get_running_loop().call_soon(self._then)
                return answer
        self._then()
        await asyncio.Event().wait()
        return None


class LiveReplica(Replica):
    """A replica with watches. ``deaf``: they say nothing, until it `hears`."""

    def __init__(self, server):
        self.link = Link(server)
        super().__init__(self.link)
        self.deaf = False
        self._seen = {}  # pods as they were last told of, by path
        for path, pod in server.living.items():
            self._see(path, "ADDED", pod)
        server.watching.append(self)

    def hear(self, change, body):
        if self.deaf:
            return
        if body.get("kind") == "Pod" or "ownerReferences" in body["metadata"]:
            meta = body["metadata"]
            self._see(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", change, body)
        else:
            self.observe(change, body)

    def _see(self, path, change, body):
        if change == "DELETED":
            self._seen.pop(path, None)
            self.caches.informers[1]._tell_deleted(body)
        else:
            self._seen[path] = copy.deepcopy(body)
            self.caches.informers[1]._told(body)

    def hears_of_pods(self):
        """Let its informers say what they missed."""
        for path, pod in list(self._seen.items()):
            if self.server.living.get(path, {}).get("metadata", {}).get("uid") != pod["metadata"]["uid"]:
                self._see(path, "DELETED", pod)
        for path, pod in list(self.server.living.items()):
            if self._seen.get(path) != pod:
                self._see(path, "MODIFIED", pod)

    def hears(self):
        """Let all its watches say what they missed, and go on."""
        if self.deaf:
            self.deaf = False
            self.catch_up()
            self.hears_of_pods()

    def lend(self):
        """Let the agent of the node report a node without work of its own."""
        said = wire.NodeReport(hosts=wire.Hosts(cores=4.0), guest_priority="weight")
        self.term.heard(wire.Report(node="n1", instance="a", sequence=1, host=said))


class LiveWorld(World):
    """`World` on a `LiveServer`: whoever leads, does so until told otherwise."""

    def __init__(self):
        super().__init__(LiveServer())

    def replica(self):
        self.replicas.append(LiveReplica(self.server))
        return self.replicas[-1]

    def job(self, name, **spec):
        body = super().job(name, **spec)
        if spec.get("class") == "Guest":
            self.server.objects[self.path(body)]["spec"].pop("deadline")
        return body


def ended(world, body):
    return world.status(body).get("state") in {"Completed", "Missed", "Failed"}


async def quiet(world, leader):
    """Wait until a leader has nothing more to do. Progress may wait to be written."""
    server, same, before = world.server, 0, None

    def rests():
        nonlocal same, before
        now = [*map(len, (server.written, server.stamped, server.pods, server.deleted, server.events))]
        idle = leader.term.leads and leader.term._parts.writer._queues.caught_up.is_set()
        same, before = (same + 1 if idle and now == before else 0), now
        return same > 10

    await world.until(rests)
