"""Nodes, pods and time: what was created is admitted, bound and run; ``advance`` tells what has changed."""

import copy
import math

from cluster_model.admission import admitted
from cluster_model.clock import BEGIN, written
from cluster_model.kubelet import Life
from cluster_model.scheduler import objection, place

BIND = 0.1
"""Seconds that the scheduler takes."""


class Cluster:
    """``plugins``: admission by namespace. ``pods`` and ``lives`` are by "namespace/name"."""

    def __init__(self, nodes, plugins=None):
        self.nodes = nodes
        self.plugins = plugins or {}
        self.pods = {}
        self.lives = {}
        self.now = BEGIN
        self._serial = 0
        self._changed = {}  # keys of pods that were created or deleted since the last look
        self._look = math.inf  # when the scheduler looks at its queue
        self._shown = {}  # statuses as they were told last

    def try_out(self, body):
        """Return a pod as it would be stored (dry run)."""
        return admitted(body, self.plugins.get(body["metadata"]["namespace"], ()))

    def create(self, body):
        """Store a pod; return it."""
        stored = self.try_out(body)
        meta = stored["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if key in self.pods:
            raise KeyError(key)
        self._serial += 1
        meta |= {"uid": f"pod-{self._serial}", "creationTimestamp": written(self.now)}
        stored["status"] = {"phase": "Pending"}
        self.pods[key] = stored
        self._changed[key] = None
        if stored["spec"].get("nodeName"):
            self._admit(key)
        self._look = min(self._look, self.now + BIND)
        return stored

    def delete(self, key):
        """Delete a pod, with grace if it is on a node."""
        self._changed[key] = None
        if life := self.lives.get(key):
            life.delete(self.now)
        else:
            self._remove(key)

    def lose(self, key):
        """Let a pod be gone at once, as if it had never been."""
        self._remove(key)

    def wake(self):
        """Let the scheduler look at its queue: a pod has lost its gates."""
        self._look = min(self._look, self.now + BIND)

    def stop(self, key):
        """Let the kubelet end a pod's containers; its object stays."""
        life = self.lives[key]
        life.limit(max(1, self.now - life.bound))

    def due(self):
        """Return the next moment at which something changes by itself."""
        times = [at for life in self.lives.values() for at in life.times() if at > self.now]
        return min([*times, self._look])

    def advance(self, now):
        """Move time; return the keys of pods that have changed, in order. One that is gone is in no ``pods``."""
        self.now = now
        for key, life in list(self.lives.items()):
            if life.gone(now):
                self._remove(key)
        changed, self._changed = self._changed, {}
        if now >= self._look or any(key not in self.pods for key in changed):
            self._look = math.inf
            changed |= self._schedule()
        for key, life in self.lives.items():
            status = life.status(now)
            if status != self._shown.get(key):
                self._shown[key] = self.pods[key]["status"] = status
                changed[key] = None
                if status["phase"] in {"Succeeded", "Failed"}:
                    self._look = now + BIND  # there is room
        return list(changed)

    def there(self):
        """Return the pods that take something of a node."""
        return [
            p
            for p in self.pods.values()
            if p["spec"].get("nodeName") and p["status"]["phase"] not in {"Succeeded", "Failed"}
        ]

    def places(self, body, *, among=None, beside=None, most=100):
        """Return how many copies of a pod nodes have room for now, beside all pods that are there."""
        nodes = self.nodes if among is None else among
        there, found = self.there() if beside is None else list(beside), 0
        while found < most:
            copied = copy.deepcopy(body)
            node, _ = place(copied, nodes, there)
            if node is None:
                break
            copied["spec"]["nodeName"] = node
            there.append(copied)
            found += 1
        return found

    def _schedule(self):
        changed = {}
        for key, pod in self.pods.items():
            if pod["spec"].get("nodeName"):
                continue
            node, condition = place(pod, self.nodes, self.there())
            if node is not None:
                self._bind(key, node)
                changed[key] = None
            elif condition and [condition] != pod["status"].get("conditions"):
                pod["status"] = {"phase": "Pending", "conditions": [condition]}
                changed[key] = None
        return changed

    def _admit(self, key):
        """Let a kubelet take or reject a pod that names its node itself: no scheduler has looked at it."""
        pod = self.pods[key]
        name = pod["spec"]["nodeName"]
        node = next((n for n in self.nodes if n["metadata"]["name"] == name), None)
        if node is None:
            return  # no kubelet
        there = [p for p in self.there() if p is not pod and p["spec"]["nodeName"] == name]
        found = objection(pod, node, there)
        if found is None or found.startswith("node(s) had untolerated"):  # kubelets only heed NoExecute
            self._bind(key, name)
        else:
            reason = f"OutOf{found.split()[-1]}" if found.startswith("Insufficient") else "NodeAffinity"
            pod["status"] = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {found}"}

    def _bind(self, key, node):
        self.pods[key]["spec"]["nodeName"] = node
        self.lives[key] = Life(self.pods[key], self.now)

    def _remove(self, key):
        self.pods.pop(key)
        self.lives.pop(key, None)
        self._shown.pop(key, None)
        self._changed[key] = None
