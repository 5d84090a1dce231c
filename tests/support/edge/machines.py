"""Scheduler, kubelets and garbage collector: the model of `cluster_model`, on the objects of the API server's model.

A kubelet that is cut off keeps its pods running and writes their states when it can again. All of it acts in the
world's time.
"""

import asyncio
import copy
import math

import orjson
from cluster_model.cluster import Cluster

from edge.apiserver import ENDED
from edge.kinds import BY_RESOURCE
from edge.virtual import BEGIN as TIME
from punctual.labels import BEGIN as BEGIN_NOTE
from punctual.labels import END as END_NOTE
from punctual.labels import JOB_UID_LABEL, KIND_LABEL, OFFERED_END, PLACEHOLDER

HOSTNAME = "kubernetes.io/hostname"
POD = BY_RESOURCE["v1", "pods"]
NODE = BY_RESOURCE["v1", "nodes"]
NAMESPACE = BY_RESOURCE["v1", "namespaces"]
DEVICE = "example.com/gpu"
COLLECT = (0.2, 2.0)
"""Seconds until the garbage collector deletes what an owner leaves."""


class Machines:
    """``run()`` it. ``cut``: names of nodes. Their kubelets reach no API server."""

    def __init__(self, loop, server, random):
        self._loop, self._server, self._random = loop, server, random
        self.cluster = Cluster([])
        self.cut = set()
        self._places = {}  # key in the model, and path, by uid
        self._kicked = asyncio.Event()
        self._unwritten = {}  # keys of pods with a state that is to be written
        server.store.written.append(self._hear)

    # nodes

    def add_node(self, name, *, cpu, labels):
        """Make a node that is ready, with a device for each CPU."""
        room = {"cpu": cpu, "memory": "64Gi", "pods": "110", DEVICE: cpu}
        body = {"metadata": {"name": name, "labels": {**labels, HOSTNAME: name}}, "spec": {}}
        self._server.answer("POST", NODE.resource, {}, {}, orjson.dumps(body))
        path = f"{NODE.resource}/{name}"
        self._server.set(NODE, path, status={"allocatable": room, "conditions": _ready("True")})
        self.cluster.nodes.append(copy.deepcopy(self._server.store.objects[path]))

    def node_is(self, name, ready):
        """Let a node be ready, or not."""
        path = f"{NODE.resource}/{name}"
        there = self._server.store.objects[path]
        self._server.set(NODE, path, status={**there["status"], "conditions": _ready(ready)})

    def show_devices(self, name, *, shown):
        """Let a node have its devices, or none, as while their plugin restarts."""
        path = f"{NODE.resource}/{name}"
        there = self._server.store.objects[path]["status"]
        room = {**there["allocatable"], DEVICE: there["allocatable"]["cpu"] if shown else "0"}
        self._server.set(NODE, path, status={**there, "allocatable": room})
        self._node(name)["status"]["allocatable"] = room

    def _node(self, name):
        return next(node for node in self.cluster.nodes if node["metadata"]["name"] == name)

    # what the API server stores

    def _hear(self, resource, event):
        if resource == POD.resource:
            self._hear_pod(event)
            return
        if resource == NODE.resource and event.change == "MODIFIED" and event.body["spec"] != event.before["spec"]:
            self._node(event.body["metadata"]["name"])["spec"] = event.body["spec"]  # its taints
            self.cluster.wake()
            self._kicked.set()
        if event.change == "ADDED" and (owners := event.body["metadata"].get("ownerReferences")):
            if owners[0]["uid"] not in {body["metadata"]["uid"] for body in self._server.store.objects.values()}:
                self._loop.in_world(self._random.uniform(*COLLECT), self._collect, owners[0]["uid"])
        elif event.change == "DELETED":
            self._loop.in_world(self._random.uniform(*COLLECT), self._collect, event.body["metadata"]["uid"])
        elif resource == NAMESPACE.resource and "deletionTimestamp" in event.body["metadata"]:
            self._loop.in_world(self._random.uniform(*COLLECT), self._empty, event.body["metadata"]["name"])

    def _hear_pod(self, event):
        body, before, uid = event.body, event.before, event.body["metadata"]["uid"]
        if event.change == "ADDED":
            self._add(uid, event)
            return
        gone = event.change == "DELETED"
        key, _ = self._places.pop(uid, ("", "")) if gone else self._places.get(uid, ("", ""))
        if key not in self.cluster.pods:
            return
        if body["status"] != before["status"]:
            self._unwritten[key] = None  # a kubelet's word stands, also where another one was put over it
        ends = "deletionTimestamp" in body["metadata"] and "deletionTimestamp" not in before["metadata"]
        if body["spec"].get("schedulingGates") != before["spec"].get("schedulingGates"):
            model = self.cluster.pods[key]
            model["spec"] = {**model["spec"], "schedulingGates": None, **body["spec"]}
            for part in ("labels", "annotations"):
                model["metadata"][part] = body["metadata"].get(part)
            self.cluster.wake()
            self._kicked.set()
            return
        limited = body["spec"].get("activeDeadlineSeconds") != before["spec"].get("activeDeadlineSeconds")
        if gone or ends:
            self.cluster.delete(key)
        elif limited and key in self.cluster.lives:
            self.cluster.stop(key)
        else:
            return
        self._kicked.set()

    def _add(self, uid, event):
        labels = event.body["metadata"].get("labels") or {}
        if event.body["spec"].get("nodeName") and not {JOB_UID_LABEL, PLACEHOLDER} & labels.keys():
            return  # an agent's or an operator's pod: it is not modelled
        if event.body["status"]["phase"] in ENDED:
            return  # it was there before: a kubelet does not run it again
        copied = copy.deepcopy(event.body)
        copied["metadata"]["name"] = uid
        self._places[uid] = f"{copied['metadata']['namespace']}/{uid}", event.path
        self.cluster.now = TIME + self._loop.now
        self.cluster.create(copied)  # it gives a uid of its own, which nothing reads
        self._kicked.set()

    def lose(self, body):
        """Let no kubelet know a pod any more."""
        key = f"{body['metadata'].get('namespace')}/{body['metadata']['uid']}"
        if key in self.cluster.pods:
            self.cluster.lose(key)

    # time

    async def run(self):
        """Let time pass for pods."""
        while True:
            now = TIME + self._loop.now
            for key in self.cluster.advance(now):
                self._unwritten[key] = None
            self._write()
            pause = self.cluster.due() - now
            self._kicked.clear()
            try:
                async with asyncio.timeout(pause if pause < math.inf else None):
                    await self._kicked.wait()
            except TimeoutError:
                pass

    def _write(self):
        """Write what kubelets and scheduler have to say."""
        for key in list(self._unwritten):
            uid = key.partition("/")[2]
            pod = self.cluster.pods.get(key)
            _, path = self._places.get(uid, ("", ""))
            there = self._server.store.objects.get(path) if path else None
            if there is None or there["metadata"]["uid"] != uid:
                del self._unwritten[key]
                continue
            node = (pod or there)["spec"].get("nodeName")
            if node in self.cut:
                continue
            del self._unwritten[key]
            if pod is None:
                self._server.drop(POD, path)
                continue
            spec = {**there["spec"], **({"nodeName": node} if node else {})}
            status = copy.deepcopy(pod["status"])
            if status["phase"] == "Succeeded":
                self._say_result(there, status, self.cluster.lives[key])
            self._server.set(POD, path, spec=spec, status=status)

    def _say_result(self, pod, status, life):
        """Let a pod that ended well leave its result: the sum of its units' numbers, or all that its folder holds."""
        kind = (pod["metadata"].get("labels") or {}).get(KIND_LABEL)
        if kind is None:
            return
        if kind == "Reduce":
            said = "\n".join(self._results(pod))
        else:
            notes = pod["metadata"]["annotations"]
            begin, end = int(notes[BEGIN_NOTE]), life.agreed or int(notes[END_NOTE])
            said = str((begin + end - 1) * (end - begin) // 2)
        status["containerStatuses"][0]["state"]["terminated"]["message"] = said

    def _results(self, pod):
        """Return a line for each file of the results that a pod sees: "begin-end result"."""
        maps = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps"
        volumes = pod["spec"].get("volumes") or ()
        sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
        found = {}
        for wanted in (source["configMap"] for source in sources if "configMap" in source):
            data = self._server.store.objects.get(f"{maps}/{wanted['name']}", {}).get("data") or {}
            found |= {item["path"]: data[item["key"]] for item in wanted["items"] if item["key"] in data}
        return [f"{name} {found[name]}" for name in sorted(found, key=lambda name: int(name.partition("-")[0]))]

    def mend(self, node):
        """Let a kubelet reach the API server again."""
        self.cut.discard(node)
        self.kick()

    def kick(self):
        """Look at all pods again."""
        self._kicked.set()

    def pods_on(self, node):
        """Return (body, life) of the pods that run on a node, as their stored objects are."""
        for key, life in self.cluster.lives.items():
            uid = key.partition("/")[2]
            if life.body["spec"].get("nodeName") == node and uid in self._places:
                yield self._server.store.objects[self._places[uid][1]], life

    # the controller manager

    def _collect(self, owner):
        """Delete what an object that is gone has owned."""
        for path, body in list(self._server.store.objects.items()):
            owners = body["metadata"].get("ownerReferences") or ()
            if owners and all(ref["uid"] == owner for ref in owners):
                self._server.answer("DELETE", path, {}, {}, b"{}")

    def _empty(self, namespace):
        """Delete what is in a namespace, then itself."""
        head = f"/namespaces/{namespace}/"
        inside = [path for path in self._server.store.objects if head in path]
        for path in inside:
            self._server.answer("DELETE", path, {}, {}, b"{}")
        if any(head in path for path in self._server.store.objects):
            self._loop.in_world(1.0, self._empty, namespace)
        else:
            self._server.drop(NAMESPACE, f"{NAMESPACE.resource}/{namespace}")


def offered(body):
    """Return the end that the operator has offered a pod, if any."""
    value = (body["metadata"].get("annotations") or {}).get(OFFERED_END)
    return None if value is None else int(value)


def _ready(status):
    return [{"type": "Ready", "status": status}]
