"""A leader's term, and an API server of dictionaries that it runs against."""

import asyncio
import contextlib
import copy
from types import SimpleNamespace

from punctual import errors
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.api.resources import JOBS, POOLS, PROFILES, RESERVATIONS, TARGET_RATES
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.nodes import project_node
from punctual.kube.format.clock import ServerClock
from punctual.kube.format.duration import format_time
from punctual.kube.known.store import HIGHEST, metadata_of
from punctual.kube.leader.term import Term
from punctual.kube.metrics import Metrics

API = "punctual.dev/v1alpha1"
KINDS = {
    "DivisibleJob": JOBS,
    "Pool": POOLS,
    "Profile": PROFILES,
    "Reservation": RESERVATIONS,
    "TargetRate": TARGET_RATES,
}
NODE = {
    "metadata": {"name": "n1", "uid": "n1", "labels": {"pool": "main"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class Server:
    """Objects by path, and what was applied to statuses. ``broken[path, verb]`` is raised, ``gates`` hold lists."""

    def __init__(self):
        self.clock = ServerClock()
        self.objects = {}
        self.written = []  # (path, status)
        self.conflicts = []  # paths of statuses that were to be written over another version than the stored one
        self.stamped = []  # paths of what was patched
        self.events = []
        self.notes = {}  # the newest by object
        self.pods = []  # as they were created
        self.deleted = []  # (name, uid) of pods
        self.broken = {}
        self.gates = {}
        self.selects = True  # by the fields that the CRD makes selectable; an older one does not
        self.sent = []  # names of jobs in lists
        self._count = 0

    def put(self, kind, name, namespace="", *, spec, status=None, **meta):
        """Make or edit an object; return it."""
        path = KINDS[kind].path(namespace=namespace, name=name)
        old = self.objects.get(path)
        self._count += 1
        self.objects[path] = {
            "apiVersion": API,
            "kind": kind,
            "metadata": {
                "name": name,
                "uid": old["metadata"]["uid"] if old else f"{name}-{self._count}",
                "generation": old["metadata"]["generation"] + 1 if old else 1,
                "creationTimestamp": format_time(int(self.clock.now())),
                "resourceVersion": str(self._count),
                **({"namespace": namespace} if namespace else {}),
                **meta,
            },
            "spec": spec,
            **({"status": status or old["status"]} if status or (old and "status" in old) else {}),
        }
        return copy.deepcopy(self.objects[path])

    def _there(self, path, verb):
        if error := self.broken.get((path, verb)):
            raise error
        if path not in self.objects:
            raise errors.NotFound(path)
        return self.objects[path]

    def _fence(self, there, body):
        if body["status"].get("epoch", HIGHEST) < there.get("status", {}).get("epoch", 0):
            raise errors.Fenced("epoch must not fall")

    def _stored(self, there):
        there["metadata"]["resourceVersion"] += "+"  # another one
        return copy.deepcopy(there)

    async def pages(self, path, *, field_selector="", **_):
        await asyncio.sleep(0)
        if field_selector and not self.selects:
            raise errors.Invalid("field label not supported: status.state")
        unlike = [wanted.removeprefix("status.state!=") for wanted in filter(None, field_selector.split(","))]
        items = [copy.deepcopy(o) for o in self.objects.values() if KINDS[o["kind"]].path() == path]
        items = [o for o in items if o.get("status", {}).get("state") not in unlike]
        if gate := self.gates.get(path):
            await gate.wait()
        if path == JOBS.path():
            self.sent += [o["metadata"]["name"] for o in items]
        yield SimpleNamespace(items=items, rest="")

    async def first(self, path, *, field_selector=""):
        await asyncio.sleep(0)
        if field_selector and not self.selects:
            raise errors.Invalid("field label not supported: status.state")
        items = [o for o in self.objects.values() if KINDS[o["kind"]].path() == path]
        return SimpleNamespace(items=items[:1], left=max(0, len(items) - 1))

    async def get(self, path):
        await asyncio.sleep(0)
        return copy.deepcopy(self._there(path, "get"))

    async def create(self, path, body, *, dry_run=False, **_):
        await asyncio.sleep(0)
        if dry_run and (error := self.broken.get((path, "try"))):
            raise error
        if path.endswith("/events"):
            self.events.append((body["regarding"]["name"], body["reason"]))
            self.notes[body["regarding"]["name"]] = body["note"]
        elif path.endswith("/pods") and not dry_run:
            self.pods.append(body)
        return {**body, "metadata": {"uid": "made", **body["metadata"]}}

    async def delete(self, path, *, uid="", **_):
        await asyncio.sleep(0)
        self.deleted.append((path.rpartition("/")[2], uid))
        return {}

    async def patch_merge(self, path, patch, **_):
        await asyncio.sleep(0)
        there = self._there(path, "patch")
        self._fence(there, patch)
        self.stamped.append(path)
        there["status"] = {**there.get("status", {}), **patch["status"]}
        return self._stored(there)

    async def patch_json(self, path, *_, **__):
        await asyncio.sleep(0)
        return {}

    async def metadata(self, path):
        return (await self.get(path))["metadata"]

    async def put_status(self, path, body, **_):
        await asyncio.sleep(0)
        there = self._there(path, "put")
        self._fence(there, body)
        if body["metadata"].get("resourceVersion", "") not in {"", there["metadata"]["resourceVersion"]}:
            self.conflicts.append(path)
            raise errors.Conflict("the object has been modified")
        self.written.append((path, body["status"]))
        there["status"] = body["status"]
        return self._stored(there)

    async def apply(self, path, *_, **__):
        await asyncio.sleep(0)
        return self._there(path, "apply")


class Replica:
    """Caches as kopf and the informers keep them, and a term on them when it leads."""

    def __init__(self, server):
        self.server = server
        self.caches = Caches(server)
        self.caches._on_node_change("ADDED", "n1", project_node(NODE))
        for body in copy.deepcopy(list(server.objects.values())):
            self.observe(None, body)
        self.task = None

    def catch_up(self):
        """Let its watches say all that has changed meanwhile."""
        there = {body["metadata"]["uid"] for body in self.server.objects.values()}
        for kind, resource in KINDS.items():
            for uid, known in dict(self.caches.directory.of(resource.plural)).items():
                if uid not in there:
                    self.observe("DELETED", {"kind": kind, "metadata": metadata_of(known)})
        for body in copy.deepcopy(list(self.server.objects.values())):
            self.observe("MODIFIED", body)

    def observe(self, change, body):
        self.caches.observe(KINDS[body["kind"]].plural, change, body)

    def see_pod(self, body):
        self.caches.informers[1]._told(body)

    def lead(self, epoch, **more):
        self.term = Term(
            epoch,
            client=self.server,
            trials=self.server,
            caches=self.caches,
            metrics=Metrics(),
            set_points=SetPointStore(),
            instance="test",
            leading=lambda: True,
            **more,
        )
        self.task = asyncio.create_task(self.term.run())

    async def end(self):
        if self.task:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None


class World:
    """A pool ``main`` with four processors, jobs in ``ns``.

    ``returning``: the next leader is the replica that led before. It has seen all that was changed since.
    """

    def __init__(self, server=None, *, returning=False):
        self.server = server or Server()
        self.replicas = []
        self.returning = returning
        self._former = None
        selector = {"matchLabels": {"pool": "main"}}
        self.pool = self.server.put(
            "Pool", "main", spec={"nodeSelector": selector, "processor": {"cpu": "1", "memory": "64Mi"}}
        )

    def replica(self):
        former, self._former = self._former, None
        if former is not None:
            former.catch_up()
        self.replicas.append(former or Replica(self.server))
        return self.replicas[-1]

    def replace(self, replica):
        """Let a replica go, or lead again later."""
        self.replicas.remove(replica)
        if self.returning:
            self._former = replica

    def job(self, name, **spec):
        template = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
        standard = {"pool": "main", "units": 100, "deadline": "10m", "template": template}
        cost = {} if "profile" in spec else {"cost": {"perUnit": "100ms", "startup": "1s"}}
        return self.server.put("DivisibleJob", name, "ns", spec={**standard, **cost, **spec})

    def profile(self, chi):
        return self.server.put("Profile", "fast", "ns", spec={"perUnit": chi, "startup": "1s"})

    def reservation(self, name, **spec):
        """Make a reservation of an hour, from tomorrow on."""
        start = int(self.server.clock.now()) + 86400
        standard = {"pool": "main", "start": format_time(start), "end": format_time(start + 3600), "processors": 1}
        return self.server.put("Reservation", name, "ns", spec={**standard, **spec})

    def rate(self, name, **spec):
        standard = {"pool": "main", "selector": {"matchLabels": {"app": name}}, "rate": "40%", "maxRate": "8/min"}
        return self.server.put("TargetRate", name, "ns", spec={**standard, **spec})

    def path(self, body):
        meta = body["metadata"]
        return KINDS[body["kind"]].path(namespace=meta.get("namespace", ""), name=meta["name"])

    def status(self, body):
        return self.server.objects[self.path(body)].get("status") or {}

    def admitted(self, body):
        """Return the reason of its answer, None before that."""
        conditions = self.status(body).get("conditions") or ()
        return next((c["reason"] for c in conditions if c["type"] == "Admitted"), None)

    async def until(self, holds):
        for replica in self.replicas:
            assert replica.task is None or not replica.task.done(), replica.task.exception()
        async with asyncio.timeout(30):
            while not (found := holds()):  # noqa: ASYNC110  it is the server's state
                await asyncio.sleep(0.01)
        return found

    async def promised(self, *bodies):
        """Let a first leader promise these, and go."""
        first = self.replica()
        first.lead(1)
        await self.until(lambda: all(self.status(b).get("chunks") for b in bodies))
        await self.until(lambda: len(self.server.pods) >= sum(len(self.status(b)["chunks"]) for b in bodies))
        await first.end()
        self.replace(first)
        self.server.written.clear()
        self.server.stamped.clear()

    async def settled(self, *bodies):
        """Let a first leader answer these without a promise, and go."""
        first = self.replica()
        first.lead(1)
        await self.until(lambda: all(self.admitted(b) for b in bodies))
        await first.end()
        self.replace(first)
        self.server.written.clear()
        self.server.stamped.clear()

    def writes(self, body):
        """Return how many stamps and statuses were written onto an object since it was promised or settled."""
        path = self.path(body)
        return self.server.stamped.count(path) + sum(p == path for p, _ in self.server.written)

    def end(self, body):
        """Say in its status that a job has ended."""
        done = {"type": "Completed", "status": "True", "reason": "Completed", "message": ""}
        since = {"lastTransitionTime": format_time(int(self.server.clock.now()))}
        status = self.status(body)
        del status["promise"], status["chunks"]
        status["completed"] = [{"begin": 0, "end": 100}]
        status |= {"state": "Completed", "finishTime": since["lastTransitionTime"]}
        status["conditions"].append({**done, **since})
