"""One seed played: the scene, what users do, what goes wrong, and the story of it."""

import asyncio
import gc
import random

import orjson

from edge.agents import Agent
from edge.apiserver import ApiServer
from edge.kinds import BY_RESOURCE
from edge.link import Network
from edge.loop import Loop
from edge.machines import Machines
from edge.replica import ACCOUNT, SYSTEM, Replica
from edge.virtual import BEGIN

OURS = "punctual.dev/v1alpha1"
SPACE = "work"


class World:
    """All that a seed has."""

    account = ACCOUNT

    def __init__(self, seed):
        self.seed = seed
        self.loop = Loop(seed)
        self.random = random.Random(f"world {seed}")
        self.clock_step = 0.0
        self.server = ApiServer(lambda: BEGIN + self.loop.now + self.clock_step)
        self.lines = []
        self.network = Network(self.loop, self.server, random.Random(f"net {seed}"), self.tell)
        self.machines = Machines(self.loop, self.server, random.Random(f"machines {seed}"))
        self.replicas = []
        self.agents = []
        self.watches = {}
        self.missing = 0.0
        """Part of the events that kopf loses."""

    def tell(self, *words):
        """Add a line to the story."""
        self.lines.append((self.loop.now, *words))

    def loses(self):
        """Return whether an event of kopf's is lost."""
        return self.missing > 0 and self.random.random() < self.missing

    def ended(self, replica, error):
        """Let a replica's pod be started again, as a kubelet does."""
        self.tell(replica.name, "ended", repr(error))
        self.loop.in_world(1.0, replica.begin)

    def service(self):
        """Return the replica that the Service selects."""
        for replica in self.replicas:
            pod = self.server.store.objects.get(f"/api/v1/namespaces/{SYSTEM}/pods/{replica.name}")
            if pod and (pod["metadata"].get("labels") or {}).get("punctual.dev/leader") == "true":
                return replica
        return None

    def create(self, version, plural, body, namespace=""):
        """Create an object, as a user."""
        kind = BY_RESOURCE[version, plural]
        path = kind.resource.replace(plural, f"namespaces/{namespace}/{plural}") if namespace else kind.resource
        answer = self.server.answer("POST", path, {}, {}, orjson.dumps(body))
        found = orjson.loads(answer.body)
        self.tell("user", "POST", f"{path}/{body['metadata']['name']}", None, answer.code)
        return answer.code, found

    def get(self, plural, name, namespace=SPACE):
        """Return an object of ours, None if it is gone."""
        space = f"/namespaces/{namespace}" if namespace else ""
        return self.server.store.objects.get(f"/apis/{OURS}{space}/{plural}/{name}")

    def scene(self, *, replicas=2, nodes=2):
        """Make namespaces, nodes, replicas and agents."""
        for name in ("default", "kube-system", SYSTEM, SPACE):
            self.create("v1", "namespaces", {"metadata": {"name": name}})
        for i in range(nodes):
            name = f"n{i + 1}"
            self.machines.add_node(name, cpu="2", labels={"pool": "main"})
            self.agents.append(Agent(self, name))
        for i in range(replicas):
            name = f"punctual-{i}"
            self.create("v1", "pods", {"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": []}}, SYSTEM)
            self.replicas.append(Replica(self, name))

    def begin(self):
        """Let all processes begin."""
        self.loop.start(self.loop.home.process, self.machines.run())
        for part in (*self.replicas, *self.agents):
            part.begin()


def run(seed, story):
    """Play a seed: ``await story(world)``; return the world."""
    random.seed(f"global {seed}")
    gc.disable()
    world = World(seed)
    world.loop.run_until_complete(story(world))
    return world


async def first(world):
    """The thinnest story: a pool, a job, its end."""
    world.scene()
    world.begin()
    world.create(
        OURS,
        "pools",
        {
            "apiVersion": OURS,
            "kind": "Pool",
            "metadata": {"name": "main"},
            "spec": {"nodeSelector": {"matchLabels": {"pool": "main"}}, "processor": {"cpu": "1", "memory": "64Mi"}},
        },
    )
    await asyncio.sleep(5)
    for i in range(10):
        world.create(OURS, "divisiblejobs", job(f"j{i}"), SPACE)
    await asyncio.sleep(600)


def job(name, **spec):
    return {
        "apiVersion": OURS,
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "pool": "main",
            "units": 100,
            "deadline": "10m",
            "cost": {"perUnit": "200ms", "startup": "1s"},
            "template": {"spec": {"containers": [{"name": "main", "image": "work:0.2"}]}},
            **spec,
        },
    }
