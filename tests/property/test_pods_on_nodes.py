"""Where a pool says that processors are free, they are: whatever pods are there, and whatever these claim to be."""

import copy
from collections import Counter
from types import SimpleNamespace

from clocks import NO_CLIENT
from hypothesis import given
from hypothesis import strategies as st

from punctual.kube.actors.pod_events import TermPods
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.chunk_pods import see_pod
from punctual.kube.cluster.pod_manifest import chunk_pod
from punctual.kube.cluster.requests import requested
from punctual.kube.known.jobs import Owner
from punctual.scheduling.model.actions import CreateChunk, HoldCapacity
from punctual.scheduling.model.events import JobApplied, JobDeleted, NodeGone, NodeObserved, PoolApplied
from punctual.scheduling.model.job import Chunk, Job
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost

SPEC = PoolSpec(name="main", cpu=0.1, memory=64, margin=0.0, headroom=0.0, hold="Placeholder")
"""Its Pool says how many processors of each node are free: it keeps them with placeholders."""
NODES = ("n1", "n2")
ALLOCATABLE = Resources(0.6, 1000)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
CREATED = "2030-01-01T00:00:00Z"
JOBS = ("own", "elsewhere", "guest", "waiting")
"""A job of the pool, one of a pool that does not exist, a guest job, and one that waits for its pods' trial."""


def owner(job):
    return Owner(job, "ns", job, "none" if job == "elsewhere" else "main", 100)


class World:
    """Caches, the routing of pods, and a Pool; the API server and the kubelets are the moves of a test."""

    def __init__(self):
        self.now = 0.0
        self.events = []
        self.pods = {}  # bodies by key
        self.asked = {}  # pods that the Pool has created, not bound yet
        self.dispatched = Counter()  # by node
        self.free = {}  # processors, by node
        self.caches = Caches(NO_CLIENT)
        self.caches.listener = self
        actors = SimpleNamespace(tell=lambda _, event: self.events.append(event))
        guests = SimpleNamespace(tell=lambda _, event: None)
        self.routing = TermPods(self.caches, actors, guests, None)
        self.caches.inventory.observe_pool("main", created=0.0, selects=lambda labels: True)
        for job in JOBS:
            meta = {"name": job, "namespace": "ns", "uid": job, "generation": 1, "creationTimestamp": CREATED}
            spec = {"pool": owner(job).pool, "units": 100} | ({"class": "Guest"} if job == "guest" else {})
            self.caches.observe("divisiblejobs", None, {"metadata": meta, "spec": spec})
            if job in {"own", "guest"}:
                self.caches.directory.jobs[job].term.pool = "main"
        for name in NODES:
            self.node(name, ready=True)
        self.pool = Pool(1)
        job = Job(
            uid="own",
            namespace="ns",
            name="own",
            arrival=0.0,
            units=100,
            deadline=300.0,
            cost=Cost(10.0, 0.0, 0.0, 1.0),
        )
        self.pool.restore(0.0, [PoolApplied(SPEC), JobApplied(job)])
        self.step()

    def __getattr__(self, name):
        return lambda *_, **__: None

    # what the caches tell

    def counting(self, pod):
        return self.routing.counting(pod)

    def pod(self, _key, job, event):
        self.routing.changed(job, event)

    def tell(self, _pool, event):
        assert isinstance(event, NodeObserved | NodeGone)
        self.events.append(event)

    # moves

    def node(self, name, *, ready):
        status = {
            "allocatable": {"cpu": "600m", "memory": "1000", "pods": "110"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        self.caches.informers[0]._told({"metadata": {"name": name, "uid": name}, "status": status})

    def see(self, body):
        key = f"ns/{body['metadata']['name']}"
        self.pods[key] = body
        self.caches._on_pod_change("MODIFIED", key, see_pod(body, "default"))

    def bind(self, body, name, cpu, beside):
        """Bind a pod to a node; ``cpu`` millis are what its first container asks for, ``beside`` what was added."""
        made = copy.deepcopy(body)
        meta = {"uid": f"uid-{len(self.pods)}-{self.now}", "creationTimestamp": CREATED, "resourceVersion": "1"}
        made["metadata"] |= meta
        made["spec"]["nodeName"] = name
        if cpu is not None:
            made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{cpu}m", "memory": str(cpu)}}
        if beside:
            made["spec"]["containers"].append({"name": "b", "resources": {"requests": {"cpu": f"{beside}m"}}})
        made["status"] = {"phase": "Running"}
        self.see(made)

    def claiming(self, job, kind, attempt):
        chunk = Chunk(begin=0, end=9, origin=9, node="n1", attempt=attempt, created=0.0, promised_end=9.0, kind=kind)
        return chunk_pod(owner(job), chunk, TEMPLATE, processor=SPEC, epoch=1)

    def move(self, kind, number, node, cpu, beside):  # noqa: C901  one arm per kind
        keys = sorted(self.pods)
        match kind:
            case "start" if self.asked:  # of a chunk of the Pool's
                name = sorted(self.asked)[number % len(self.asked)]
                self.bind(self.asked.pop(name), node, None, beside)
            case "forge":
                kinds = ("Chunk", "Guest", "Reduce", "Pilot")
                body = self.claiming(JOBS[number % 4], kinds[number // 4 % 4], 70 + number)
                if f"ns/{body['metadata']['name']}" not in self.pods:
                    self.bind(body, node, cpu, beside)
            case "foreign":
                body = {"metadata": {"name": f"f{number}", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}]}}
                if f"ns/f{number}" not in self.pods:
                    self.bind(body, node, cpu, beside)
            case "fail" if keys:
                body = copy.deepcopy(self.pods[keys[number % len(keys)]])
                body["status"]["phase"] = "Failed"
                self.see(body)
            case "go" if keys:
                key = keys[number % len(keys)]
                self.caches._on_pod_change("DELETED", key, see_pod(self.pods.pop(key), "default"))
            case "lose" | "return":
                self.node(node, ready=kind == "return")
            case "delete" if "own" in self.caches.directory.jobs:
                self.caches.observe("divisiblejobs", "DELETED", {"metadata": {"uid": "own"}})
                self.events.append(JobDeleted("own"))
            case "tell":
                self.caches.directory.jobs["waiting"].term.pool = "main"

    def step(self):
        self.now += 1.0
        events, self.events = self.events, []
        for action in self.pool.step(self.now, events):
            match action:
                case CreateChunk():
                    body = chunk_pod(owner(action.job), action.chunk, TEMPLATE, processor=SPEC, epoch=1)
                    self.asked[body["metadata"]["name"]] = body
                    self.dispatched[action.chunk.node] += 1
                case HoldCapacity():
                    self.free = {name: kept.placeholders for name, kept in action.nodes.items()}

    def left(self):
        """Return the processors of each node that no pod has taken, except the Pool's own chunks."""
        return {name: self.free.get(name, 0) + self.dispatched[name] for name in NODES}

    def check(self):
        self.pool.check()
        for name in NODES:
            free = self.free.get(name, 0)
            live = [
                b for b in self.pods.values() if b["spec"]["nodeName"] == name and b["status"]["phase"] == "Running"
            ]
            taken = Resources.sum(requested(body["spec"]) for body in live)
            if free:
                assert (taken + SPEC.share * free).fits(ALLOCATABLE), (name, free, taken)


moves = st.tuples(
    st.sampled_from(
        (
            "start",
            "start",
            "start",
            "forge",
            "forge",
            "foreign",
            "fail",
            "go",
            "go",
            "lose",
            "return",
            "return",
            "delete",
            "tell",
        )
    ),
    st.integers(0, 20),
    st.sampled_from(NODES),
    st.integers(0, 400),
    st.sampled_from((0, 0, 0, 5, 50, 150)),
)


@given(st.lists(st.tuples(moves, st.booleans()), max_size=30))
def test_a_free_processor_is_there_whatever_pods_are_on_its_node(story):
    world = World()
    for move, step in story:
        world.move(*move)
        if step:
            world.step()
            world.check()
    world.step()
    world.check()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 300)), max_size=6, unique_by=lambda one: one[0]))
def test_pods_that_claim_to_be_chunks_take_no_more_than_foreign_ones(forged):
    """The owner of a job cannot take processors of others with many small pods."""
    world, plain = World(), World()
    for number, cpu in forged:
        world.move("forge", number, "n1", cpu, 0)
        plain.move("foreign", number, "n1", cpu, 0)
    for one in (world, plain):
        one.step()
    assert world.left() == plain.left()
