"""Tenants of one pool: their jobs go through the gate and the caches to a Pool, and its pods to a modelled cluster.

The edge's own parts read templates and pods and build pods; the writes between them are calls. Time jumps from one
change to the next, and by a second at most, as a leader's ticks do.
"""

import asyncio
from types import SimpleNamespace

from clocks import NO_CLIENT, clock
from cluster_model.clock import BEGIN, written
from cluster_model.cluster import Cluster

from punctual.kube.actors.pod_events import TermPods
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.pod_manifest import chunk_pod
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.scheduling.model.actions import CreateChunk, EndPod, OfferEnd, StopPod, WriteStatus
from punctual.scheduling.model.event_keys import key_of, merged
from punctual.scheduling.model.events import JobApplied, PoolApplied, Progress, Reported
from punctual.scheduling.pool import Pool

TICK = 1.0
POOL = "main"
OVER = {"Succeeded", "Failed"}
TRIED = {"kind": "Chunk", "begin": 0, "end": 1, "origin": 1, "attempt": 0, "node": "", "turn": None}


def node(name, processors, *, taints=(), labels=None, **others):
    """Return a node with room for so many processors of 100m and 64Mi."""
    allocatable = {"cpu": f"{processors * 100}m", "memory": f"{processors * 64}Mi", "pods": "110", **others}
    labels = {"kubernetes.io/hostname": name, **(labels or {})}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable, "conditions": [ready]},
    }


class Tenants:
    """A pool of all nodes: processors of 100m and 64Mi, and the default margin. ``plugins``: admission by namespace."""

    def __init__(self, nodes, plugins=None):
        self.now = BEGIN
        self.cluster = Cluster(nodes, plugins)
        self.records = {}
        self._mail = {}  # events by key
        self._again = set()
        self._offered = {}  # ends that were offered, by pod (uid)
        self._loop = asyncio.new_event_loop()
        self.caches = Caches(NO_CLIENT)
        self.caches.listener = self
        self.gate = AdmissionGate(
            SimpleNamespace(create=self._try_out, clock=clock(lambda: self.now)),
            self.caches,
            self._again.add,
        )
        actors = SimpleNamespace(tell=self.tell)
        self._pods = TermPods(self.caches, actors, SimpleNamespace(), None)
        self.counting = self._pods.counting
        meta = {"name": POOL, "uid": "p", "generation": 1, "creationTimestamp": written(self.now)}
        spec = {"nodeSelector": {}, "processor": {"cpu": "100m", "memory": "64Mi"}, "headroom": "0%"}
        self.caches.observe("pools", None, {"metadata": meta, "spec": spec})
        for body in nodes:
            self.caches.informers[0]._told(body)
        self.pool = Pool(1)
        self.spec = self.gate._processor(self.caches.directory.pools.named(POOL))
        self.pool.restore(self.now, [PoolApplied(self.spec), *self.caches.inventory.events_of(POOL)])
        self.step()

    def close(self):
        self._loop.run_until_complete(self.gate.close())
        self._loop.close()

    # what caches tell a term; of all else nothing is to be heard

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def pod(self, _key, job, event):
        self._pods.changed(job, event)

    def tell(self, _pool, event):
        key = key_of(event)
        older = self._mail.pop(key, None)
        self._mail[key] = event if older is None else merged(older, event)

    # what people do

    def stranger(self, name, spec):
        """Run a pod that has nothing to do with the pool."""
        self.cluster.create({"metadata": {"name": name, "namespace": "strangers"}, "spec": spec})

    def apply(self, namespace, name, template, **spec):
        """Create a job; return its uid. It is decided in the next step."""
        uid = f"{namespace}-{name}"
        meta = {"name": name, "namespace": namespace, "uid": uid, "generation": 1}
        meta["creationTimestamp"] = written(self.now)
        body = {"metadata": meta, "spec": {"pool": POOL, "template": template, **spec}}
        self.caches.observe("divisiblejobs", "ADDED", body)
        job = self._loop.run_until_complete(self._through_the_gate(uid))
        self.caches.directory.jobs[uid].term.pool = POOL
        self.tell(POOL, JobApplied(job))
        self.step()
        return uid

    async def _through_the_gate(self, uid):
        known = self.caches.directory.jobs[uid]
        while (job := self.gate.job(known, decided=False)) is None:
            async with asyncio.timeout(30):
                while uid not in self._again:  # noqa: ASYNC110  the gate's
                    await asyncio.sleep(0)
            self._again.discard(uid)
        return job

    async def _try_out(self, _path, body, **_):
        return self.cluster.try_out(body)

    def trial(self, uid):
        """Return a pod of a job as it would be stored, its node left open."""
        known = self.caches.directory.jobs[uid]
        body = self.cluster.try_out(self._pod(known, SimpleNamespace(**TRIED)))
        affinity = known.template()["template"]["spec"].get("affinity")
        body["spec"]["affinity"] = affinity or {}
        return body

    def _pod(self, known, chunk):
        template = known.template()["template"]
        others = self.gate.others(known.owner.uid, chunk.kind, template, self.spec)
        return chunk_pod(known.owner, chunk, template, processor=self.spec, epoch=1, others=others)

    # time

    def run(self, until):
        """Let time pass, up to so many seconds from the beginning."""
        while self.now < BEGIN + until - 1e-9:
            self.now = min(BEGIN + until, self.now + TICK, max(self.now + 1e-3, self.cluster.due()))
            self.step()

    def step(self):
        for key in self.cluster.advance(self.now):
            self._show(key)
        self._report()
        while True:
            mail, self._mail = list(self._mail.values()), {}
            for action in self.pool.step(self.now, mail):
                self._carry_out(action)
            if not self.pool.backlog:
                break
        self.pool.check()

    def _show(self, key):
        body, informer = self.cluster.pods.get(key), self.caches.informers[1]
        if body is None:
            if key in informer.items:
                informer._tell_gone(key)
        else:
            informer._told(body)

    def _report(self):
        """Let each node's agent say how far the work of its pods has come."""
        told = {}
        for key, life in self.cluster.lives.items():
            body, seen = life.body, self.caches.pods.by_key.get(key)
            if seen is None or self.now < life.began:
                continue
            done, end = life.work(self.now, offered=self._offered.get(seen.uid))
            over = body["status"]["phase"] in OVER
            progress = Progress(pod=seen.uid, done=done, end=end, cpu_seconds=0.0, over=over)
            told.setdefault(seen.node, []).append(progress)
        for name, pods in told.items():
            self.tell(POOL, Reported(name, tuple(pods)))

    def _carry_out(self, action):
        match action:
            case WriteStatus(uid, record):
                record.check(self.caches.directory.jobs[uid].owner.units)
                self.records[uid] = record
            case CreateChunk(uid, chunk):
                self.cluster.create(self._pod(self.caches.directory.jobs[uid], chunk))
            case EndPod(namespace, name):
                self._of(namespace, name, action.uid, self.cluster.delete)
            case StopPod(namespace, name):
                self._of(namespace, name, action.uid, self.cluster.stop)
            case OfferEnd(_, _, uid, end):
                self._offered[uid] = end

    def _of(self, namespace, name, uid, does):
        key = f"{namespace}/{name}"
        if key in self.cluster.pods and self.cluster.pods[key]["metadata"]["uid"] == uid:
            does(key)
