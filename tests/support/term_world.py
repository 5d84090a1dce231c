"""A leader's term, and the API server's model of `edge` that it reaches through the real client."""

import asyncio
import contextlib
import time
from types import SimpleNamespace

import orjson
from edge.apiserver import APPLY, JSON_PATCH, Answer, ApiServer, Refused
from edge.kinds import BY_RESOURCE, kind_of
from edge.kinds import KINDS as SERVED
from edge.link import Body, Response

from punctual import errors
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.api.resources import PODS, Resource
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, _object
from punctual.kube.cluster.nodes import project_node
from punctual.kube.known.store import metadata_of
from punctual.kube.leader.parts import Surroundings
from punctual.kube.leader.term import Term
from punctual.kube.metrics import Metrics
from punctual.notation.duration import format_time
from punctual.runtime.clock import ServerClock

KINDS = {kind.kind: Resource(kind.version, kind.plural) for kind in SERVED if kind.model}
POD = BY_RESOURCE["v1", "pods"]
VERBS = {APPLY: "apply", JSON_PATCH: "patch by steps"}
CODES = {errors.Invalid: 422, errors.Forbidden: 403, errors.Conflict: 409, errors.Busy: 503}
NODE = {
    "metadata": {"name": "n1", "uid": "n1", "labels": {"pool": "main"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def path_of(body):
    """Return the path of an object of ours, or of a pod."""
    meta = body["metadata"]
    return KINDS.get(body["kind"], PODS).path(namespace=meta.get("namespace", ""), name=meta["name"])


class Server(ApiServer):
    """The API server's model, and what clients have asked of it.

    ``broken[path, verb]`` is what a request meets, ``gates`` hold the answers to lists.
    """

    def __init__(self, now=time.time):
        super().__init__(now)
        self.clock = ServerClock()
        self.objects = self.store.objects
        self.written = []  # (path, status)
        self.conflicts = []  # paths of statuses that were to be written over another version than the stored one
        self.stamped = []  # paths of statuses that were patched
        self.events = []
        self.notes = {}  # the newest by object
        self.pods = []  # as they were created
        self.deleted = []  # (name, uid) as it was asked for
        self.broken = {}
        self.gates = {}
        self.sent = []  # names of jobs in lists
        for name in ("default", "ns"):
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def ask(self, method, path, body=None):
        """Do what a user asks for; return the answer."""
        answer = self.answer(method, path, {}, {}, orjson.dumps(body or {}))
        assert answer.code < 300, answer.body
        return orjson.loads(answer.body)

    def put(self, kind, name, namespace="", *, spec, status=None, **meta):
        """Make or edit an object; return it."""
        path = KINDS[kind].path(namespace=namespace, name=name)
        if there := self.objects.get(path):
            made = self.ask("PUT", path, {**there, "metadata": {**there["metadata"], **meta}, "spec": spec})
        else:
            made = self.ask("POST", path.rpartition("/")[0], {"metadata": {"name": name, **meta}, "spec": spec})
        return self.ask("PUT", f"{path}/status", {**made, "status": status}) if status else made

    def of(self, *kinds):
        """Return the objects of these kinds, by path."""
        return {path: body for path, body in self.objects.items() if body["kind"] in kinds}

    @property
    def living(self):
        """Pods by path."""
        return self.of("Pod")

    def be(self, pod, phase, **status):
        """Let a pod be in a phase on its node, as the kubelet says; return it."""
        path = path_of(pod)
        spec = {**self.objects[path]["spec"], "nodeName": "n1"}
        return self.set(POD, path, spec=spec, status={"phase": phase, **status})

    async def meet(self, verb, path, _):
        """Let a request, with a deadline in seconds, meet what is on its way. Raises what it meets."""
        if error := self.broken.get((path, verb)):
            raise error

    async def request(self, method, path, *, params, data, headers, timeout, **_):  # noqa: ASYNC109  aiohttp's own
        """Return the response to a request, as aiohttp's session does."""
        await asyncio.sleep(0)
        verb = "try" if "dryRun" in (params or {}) else VERBS.get(headers.get("Content-Type"), method.lower())
        at = path.removesuffix("/status")
        try:
            await self.meet(verb, at, timeout.total)
        except errors.Unreachable as error:
            raise ConnectionResetError(str(error)) from error
        except errors.ClusterError as error:
            refused = Refused(CODES[type(error)], "", str(error), retryAfterSeconds=error.retry_after)
            answer = Answer(refused.code, refused.status())
        else:
            answer = self.answer(method, path, params or {}, headers, data)
        head = {"Date": self.date()}
        self._note(verb, at, orjson.loads(data or b"{}"), answer)
        if gate := method == "GET" and self.gates.get(path):
            await gate.wait()
        return Response(answer.code, head, Body(answer.body))

    def _note(self, verb, path, body, answer):
        name = path.rpartition("/")[2]
        match verb, name:
            case "put", _ if answer.code == 409:
                self.conflicts.append(path)
            case _ if answer.code >= 300:
                pass
            case "put", _:
                self.written.append((path, body["status"]))
            case "patch", _ if "status" in body:
                self.stamped.append(path)
            case "delete", _:
                self.deleted.append((name, body.get("preconditions", {}).get("uid", "")))
            case "post", "pods":
                self.pods.append(orjson.loads(answer.body))
            case "post", "events":
                self.events.append((body["regarding"]["name"], body["reason"]))
                self.notes[body["regarding"]["name"]] = body["note"]
            case "get", "divisiblejobs":
                found = orjson.loads(answer.body)
                if found["kind"] == "DivisibleJobList":
                    self.sent += [item["metadata"]["name"] for item in found["items"]]


class Client(ApiClient):
    """The product's client on a session that needs no credentials."""

    def __init__(self, session, clock):
        super().__init__(clock=clock)
        self._session = session

    async def _authorization(self, *, renew):
        return {}


class Replica:
    """Caches as kopf and the informers keep them, and a term on them when it leads."""

    def __init__(self, server, session=None):
        self.server = server
        self.client = Client(session or server, server.clock)
        self.caches = Caches(self.client)
        self.caches._on_node_change("ADDED", "n1", project_node(NODE))
        for body in self._there():
            self.observe(None, body)
        self.task = None

    def _there(self):
        """Return our objects, as they are read."""
        return _object("", orjson.dumps({"items": list(self.server.of(*KINDS).values())}))["items"]

    def catch_up(self):
        """Let its watches say all that has changed meanwhile."""
        there = self._there()
        uids = {body["metadata"]["uid"] for body in there}
        for kind, resource in KINDS.items():
            for uid, known in dict(self.caches.directory.store_of(resource.plural)).items():
                if uid not in uids:
                    self.observe("DELETED", {"kind": kind, "metadata": metadata_of(known)})
        for body in there:
            self.observe("MODIFIED", body)

    def observe(self, change, body):
        self.caches.observe(KINDS[body["kind"]].plural, change, body)

    def see_pod(self, body):
        self.caches.informers[1]._told(body)

    def lead(self, epoch, *, fall=None, **more):
        given = Surroundings(
            client=self.client,
            trials=self.client,
            caches=self.caches,
            metrics=Metrics(),
            set_points=SetPointStore(),
            instance="test",
            **more,
        )
        self.term = Term(epoch, given, SimpleNamespace(leads=lambda _: True), fall=fall)
        self.task = asyncio.create_task(self.term.run())

    async def end(self):
        if self.task:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None


class World:
    """A pool ``main`` with four processors, jobs in ``ns``. Its replicas end with the block that it is entered for.

    ``returning``: the next leader is the replica that led before. It has seen all that was changed since.
    """

    path = staticmethod(path_of)

    def __init__(self, server=None, *, returning=False):
        self.server = server or Server()
        self.replicas = []
        self.returning = returning
        self._former = None
        selector = {"matchLabels": {"pool": "main"}}
        self.pool = self.server.put(
            "Pool", "main", spec={"nodeSelector": selector, "processor": {"cpu": "1", "memory": "64Mi"}}
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for replica in self.replicas:
            await replica.end()

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
        standard = {"pool": "main", "units": 100, "template": template}
        due = {} if spec.get("class") == "Guest" else {"deadline": "10m"}
        cost = {} if "profile" in spec else {"cost": {"perUnit": "100ms", "startup": "1s"}}
        return self.server.put("DivisibleJob", name, "ns", spec={**standard, **due, **cost, **spec})

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

    def status(self, body):
        return self.server.objects[self.path(body)].get("status") or {}

    def say(self, body, **status):
        """Change parts of an object's status, as a leader of any epoch may; None removes one."""
        made = {name: part for name, part in {**self.status(body), **status}.items() if part is not None}
        self.server.ask("PUT", f"{self.path(body)}/status", {**self.server.objects[self.path(body)], "status": made})

    def found(self, body, **parts):
        """Let an object be what an older schema may have stored: nothing is checked. Return it."""
        return self.server.set(kind_of(self.path(body)), self.path(body), **parts)

    def remove(self, body):
        """Delete an object for good."""
        self.server.drop(kind_of(self.path(body)), self.path(body))

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
        await self._gone(first)

    async def settled(self, *bodies):
        """Let a first leader answer these without a promise, and go."""
        first = self.replica()
        first.lead(1)
        await self.until(lambda: all(self.admitted(b) for b in bodies))
        await self._gone(first)

    async def _gone(self, replica):
        await replica.end()
        self.replace(replica)
        self.server.written.clear()
        self.server.stamped.clear()

    def writes(self, body):
        """Return how many stamps and statuses were written onto an object since it was promised or settled."""
        path = self.path(body)
        return self.server.stamped.count(path) + sum(p == path for p, _ in self.server.written)

    def end(self, body):
        """Say in its status that a job has ended."""
        now = format_time(int(self.server.clock.now()))
        done = {"type": "Completed", "status": "True", "reason": "Completed", "message": "", "lastTransitionTime": now}
        conditions = [*self.status(body)["conditions"], done]
        ended = {"state": "Completed", "finishTime": now, "completed": [{"begin": 0, "end": 100}]}
        self.say(body, promise=None, chunks=None, conditions=conditions, **ended)
