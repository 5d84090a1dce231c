"""Random requests to two API servers, the model and a real one: do both give the product the same answers?

Requests go through the product's client. Of each answer only what the product looks at is compared: versions by their
order, uids by their first appearance, no times, of pods no defaults.
"""

import asyncio
import random
import time

from edge.apiserver import ApiServer
from edge.link import Network, Session
from edge.loop import WORLD
from edge.replica import AT
from punctual import errors
from punctual.kube.api.resources import CONFIG_MAPS, JOBS, LEASES, PODS, POOLS
from punctual.kube.cluster.client import ApiClient

STEPS = 14
WATCHED = 5
KINDS = {"DivisibleJob": JOBS, "ConfigMap": CONFIG_MAPS, "Pod": PODS, "Lease": LEASES, "Pool": POOLS}
DROPPED = {"creationTimestamp", "managedFields", "generateName", "selfLink", "remainingItemCount"}
GATE = "punctual.dev/test"


class RealTime:
    """The interface of the virtual loop, on a real one."""

    now = property(lambda _: asyncio.get_running_loop().time())

    def create_future(self):
        return asyncio.get_running_loop().create_future()

    def in_world(self, seconds, callback, *args):
        asyncio.get_running_loop().call_later(seconds, callback, *args)


class AtOnce(Network):
    """A network without latency."""

    def way(self):
        return 0.0


def model_client(server):
    """Return a client of the model, for a real loop."""
    network = AtOnce(RealTime(), server, random.Random(0))

    class Client(ApiClient):
        @staticmethod
        def _load(_):
            return AT

        def _connect(self, _):
            return Session(network, WORLD)

    return Client(None)


def model_server(*namespaces):
    """Return a model with these namespaces."""
    server = ApiServer(time.time)
    for name in namespaces:
        server.answer("POST", "/api/v1/namespaces", {}, {}, f'{{"metadata": {{"name": "{name}"}}}}'.encode())
    return server


def _body(rng, kind, name, namespace):
    meta = {"name": name, **({"namespace": namespace} if kind != "Pool" else {})}
    if rng.random() < 0.5:
        meta["labels"] = {"tier": rng.choice("ab")}
    if rng.random() < 0.3:
        meta["finalizers"] = [GATE]
    resource = KINDS[kind]
    body = {"apiVersion": resource.version, "kind": kind, "metadata": meta}
    container = {"name": "main", "image": "work:1"}
    match kind:
        case "DivisibleJob":
            body["spec"] = {
                "pool": "main",
                "units": rng.choice((10, 10, 0, "ten")),
                "deadline": rng.choice(("10m", "10m", "soon")),
                "cost": {"perUnit": "1s", "startup": "1s"},
                "template": {"spec": {"containers": [container]}},
            }
            if rng.random() < 0.2:
                body["spec"]["unknown"] = 1
        case "ConfigMap":
            body["data"] = {"a": "1"}
        case "Pod":
            body["spec"] = {"containers": [container]}
        case "Lease":
            body["spec"] = {"holderIdentity": rng.choice("xy"), "leaseTransitions": rng.randint(0, 3)}
        case "Pool":
            body["spec"] = {
                "nodeSelector": {"matchLabels": {"pool": "main"}},
                "processor": {"cpu": "1", "memory": rng.choice(("64Mi", "64Mi", "much"))},
            }
    return body


class Side:
    """One of the two servers, as a sequence sees it."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.names = {}  # of uids
        self.versions = set()
        self.last = {}  # bodies by path, as last answered

    def same(self, value):
        """Return what is compared of an answer."""
        if isinstance(value, list):
            return [self.same(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {}
        for name, one in value.items():
            if name in DROPPED:
                continue
            if name == "uid":
                found[name] = self.names.setdefault(one, f"uid-{len(self.names)}")
            elif name == "resourceVersion":
                found[name] = self._rank(one)
            elif name == "deletionTimestamp":
                found[name] = "set"
            elif name == "namespace":
                found[name] = "ns"
            else:
                found[name] = self.same(one)
        if "phase" in (found.get("status") or {}):
            found["spec"], found["status"] = {}, {"phase": found["status"]["phase"]}
        return found

    def _rank(self, version):
        """Return how a version compares with those that were seen: new ones are higher than all."""
        if not version:
            return ""
        number = int(version)
        rank = (
            "new" if all(number > old for old in self.versions) else "known" if number in self.versions else "between"
        )
        self.versions.add(number)
        return rank


def draw(seed):
    """Return the steps of a sequence: functions of a Side that return an answer."""
    rng = random.Random(f"requests {seed}")
    steps = []
    for _ in range(STEPS):
        kind = rng.choice(list(KINDS))
        name = f"{kind.lower()}-{rng.randint(1, 2)}"
        steps.append(_step(rng, kind, name))
    return steps


def _step(rng, kind, name):  # noqa: C901, PLR0915  a table
    resource = KINDS[kind]

    def named(side):
        return f"{name}-{side.namespace}" if kind == "Pool" else name  # pools have no namespace

    def at(side):
        return resource.path(namespace="" if kind == "Pool" else side.namespace, name=named(side))

    def collection(side):
        return resource.path(namespace="" if kind == "Pool" else side.namespace)

    def known(side, part, otherwise):
        return side.last.get(at(side), {}).get("metadata", {}).get(part, otherwise)

    what = rng.choices(
        ("create", "get", "metadata", "replace", "status", "merge", "merge status", "json", "delete", "list", "apply"),
        (6, 1, 1, 2, 4, 4, 2, 3, 3, 2, 0.5),
    )[0]
    draw = random.Random(rng.random())
    fresh, other, number = draw.random() < 0.7, draw.random() < 0.2, draw.randint(1, 4)
    options = {"dry_run": draw.random() < 0.15, "strict": draw.random() < 0.2}
    state = draw.getstate()

    async def do(side):  # noqa: C901, PLR0911, PLR0912  a table
        draw.setstate(state)
        client = side.client
        uid = "another" if other else known(side, "uid", "none")
        version = known(side, "resourceVersion", "1") if fresh else "1"
        match what:
            case "create":
                return await client.create(collection(side), _body(draw, kind, named(side), side.namespace), **options)
            case "get":
                return await client.get(at(side))
            case "metadata":
                return await client.metadata(at(side))
            case "replace":
                body = _body(draw, kind, named(side), side.namespace)
                body["metadata"] |= {"resourceVersion": version, "uid": uid}
                return await client.replace(at(side), body)
            case "status" if kind in {"DivisibleJob", "Pool"}:
                meta = {"name": named(side), "uid": uid, "resourceVersion": version}
                if kind != "Pool":
                    meta["namespace"] = side.namespace
                status = {"epoch": number, "observedGeneration": draw.randint(1, 2)}
                if draw.random() < 0.1:
                    status["unknown"] = 1
                body = {"apiVersion": resource.version, "kind": kind, "metadata": meta, "status": status}
                return await client.put_status(at(side), body, field_manager="test")
            case "merge":
                patch = {"metadata": {"annotations": {"note": str(number), "old": None}}}
                if draw.random() < 0.5:
                    patch["metadata"]["uid"] = uid
                if draw.random() < 0.3:
                    patch["metadata"]["resourceVersion"] = version
                if draw.random() < 0.3:
                    patch["metadata"]["finalizers"] = None
                if kind == "DivisibleJob" and draw.random() < 0.5:
                    patch["spec"] = {"units": draw.choice((20, -1)), "unknown": 2}
                return await client.patch_merge(at(side), patch)
            case "merge status" if kind in {"DivisibleJob", "Pool"}:
                patch = {"metadata": {"uid": uid}, "status": {"epoch": number}}
                return await client.patch_merge(at(side), patch, subresource="status")
            case "json":
                tests = draw.choice(
                    (
                        [{"op": "test", "path": "/metadata/uid", "value": uid}],
                        [{"op": "test", "path": "/metadata/finalizers", "value": None}],
                        [],
                    )
                )
                add = draw.choice(
                    (
                        {"op": "add", "path": "/metadata/finalizers", "value": [GATE]},
                        {"op": "add", "path": "/metadata/labels", "value": {"tier": "c"}},
                        {"op": "add", "path": "/metadata/finalizers", "value": []},
                        {"op": "remove", "path": "/metadata/finalizers"},
                    )
                )
                return await client.patch_json(at(side), [*tests, add])
            case "delete":
                grace = draw.choice((None, 0, 5))
                return await client.delete(at(side), uid=uid if draw.random() < 0.5 else "", grace=grace)
            case "list":
                selector = draw.choice(("", "tier=a", "tier!=a", "tier"))
                listed = await client.list(collection(side), label_selector=selector, page=draw.choice((1, 2, 500)))
                items = [
                    one for one in listed.items if kind != "Pool" or one["metadata"]["name"].endswith(side.namespace)
                ]
                return {"items": sorted(items, key=lambda one: one["metadata"]["name"])}
            case "apply" if kind == "ConfigMap":
                body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": {"b": str(number)}}
                return await client.apply(at(side), body, field_manager="test")
        return await client.get(at(side))

    do.what = f"{what} {kind} {name}"
    return do


async def compare(seed, model, real, namespace):
    """Run a sequence on both. Returns the first difference, as a sentence, or None.

    After each WATCHED-th sequence, watches from its beginning must have the same events.
    """
    sides = [Side(model, namespace), Side(real, namespace)]
    since = [(await side.client.list(CONFIG_MAPS.path(namespace=namespace))).resource_version for side in sides]
    for step in draw(seed):
        answers = [await _answer(step, side) for side in sides]
        if answers[0] != answers[1]:
            return f"{step.what}:\n  model {answers[0]}\n  real  {answers[1]}"
    if seed % WATCHED == 0:
        ours, theirs = await asyncio.gather(*map(_events, sides, since))
        for what, events in ours.items():
            if events != theirs[what]:
                return f"watch {what}:\n  model {events}\n  real  {theirs[what]}"
    return None


async def _events(side, since):
    """Return the events of each kind since a version, of all its objects and of one of them. It takes a second."""
    watches = {(kind, only): _watched(side, since, kind, only) for kind in KINDS for only in (False, True)}
    found = await asyncio.gather(*watches.values())
    return {
        what: [(change, side.same(body)) for change, body in events]
        for what, events in zip(watches, found, strict=True)
    }


async def _watched(side, since, kind, only):
    name = f"{kind.lower()}-1" + (f"-{side.namespace}" if kind == "Pool" else "")
    path = KINDS[kind].path(namespace="" if kind == "Pool" else side.namespace)
    selector = f"metadata.name={name}" if only else ""
    events = [
        (event["type"], event["object"])
        async for event in side.client.watch(path, resource_version=since, field_selector=selector, seconds=1)
    ]
    return [
        (change, body)
        for change, body in events
        if change != "BOOKMARK" and (kind != "Pool" or body["metadata"]["name"].endswith(side.namespace))
    ]


async def _answer(step, side):
    try:
        found = await step(side)
    except errors.ClusterError as error:
        return type(error).__name__
    answer = side.same(found)
    for body in (found, *found.get("items", ())) if isinstance(found, dict) else ():
        if "metadata" in body and "kind" in body and body["metadata"].get("uid"):
            meta, resource = body["metadata"], KINDS.get(body["kind"])
            if resource and meta.get("resourceVersion"):
                side.last[resource.path(namespace=meta.get("namespace", ""), name=meta["name"])] = body
    return answer
