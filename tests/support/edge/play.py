"""One plan played: the scene, what users do, what goes wrong, and the story of it."""

import asyncio
import gc
import random
import shutil
import tempfile
from pathlib import Path

import orjson
from chaos_lib.ledger import Struck
from chaos_lib.scribe import Scribe

from edge.agents import Agent
from edge.apiserver import ApiServer, Refused
from edge.applications import Applications
from edge.faults import LEASE, Faults
from edge.history import History
from edge.jobs import JobController
from edge.link import Network
from edge.loop import Loop, Process
from edge.machines import Machines
from edge.plan import HARMLESS, POOL, SPACE
from edge.replica import ACCOUNT, SYSTEM, Replica, client_of
from edge.users import IN_SPACE, POOLS, Users
from edge.virtual import BEGIN

SETTLE = 400.0
"""Seconds after the last act within which everything has to end."""
SLOWEST = 90.0
"""Seconds that the last of it may take: offers, placeholders, labels, a change that only resync finds."""
REST, LONG_REST = 60.0, 600.0
"""Seconds without a write at the end of a play; the longer ones for each tenth seed."""
REFUSED = 300
IN_MEMORY = "/dev/shm"
"""Where the nodes' folders are, if the machine has it."""
MERGE = "application/merge-patch+json"


class World(Users, Faults):
    """All that a seed has. ``lines``: the story, as (time, source, what, …)."""

    account = ACCOUNT

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        seed = plan.seed
        self.loop = Loop(seed)
        self.random = random.Random(f"world {seed}")
        self.clock_step = 0.0
        self.server = ApiServer(lambda: BEGIN + self.loop.now + self.clock_step)
        self.server.admit.append(self._admit)
        self.history = History(self.server.store, lambda: BEGIN + self.loop.now)
        self.lines = []
        self.network = Network(self.loop, self.server, random.Random(f"net {seed}"), self.note_write)
        self.machines = Machines(self.loop, self.server, random.Random(f"machines {seed}"))
        self.jobs = JobController(self.loop, self.server, random.Random(f"jobs {seed}"))
        self.applications = Applications(self.machines, random.Random(f"timers {seed}"))
        self.replicas, self.agents = {}, {}
        self.watches = {}  # by process
        self.wishes = {}  # by name
        self.refused = set()  # names of Jobs that get no answer
        self.former = {}  # of jobs that are gone and have a namesake, by uid
        self.blind = False  # whether kopf sees nothing
        self.struck = []
        self.errors = []  # ends of replicas that were failures
        self.trespasses = []  # writes of replicas that do not hold the Lease
        self._told = 0.0
        self.losing = {}  # part of the events that kopf loses, by replica
        self.refuses_pods = False
        self.restored = None  # when the store was brought back
        self._user_name = "user"
        user = Process(self._user_name)
        self._user = self.loop.context_of(user)
        client = client_of(self.network, user)(user_agent="scribe")
        self.scribe = Scribe(client, SPACE, lambda *_: None, lambda *_: None)
        self._client = client

    def tell(self, *words):
        """Add a line to the story."""
        self.lines.append((self.loop.now, *words))

    def note_write(self, writer, method, path, body, code):
        """Add a write to the story. Only the replica that holds the Lease may change what all share."""
        line = (self.loop.now, writer, method, path, body, code)
        self.lines.append(line)
        shared = "/leases/" not in path and not path.endswith(("/leases", "/events", writer)) and "/events/" not in path
        known = self.loop.now >= self._told  # a holder learns at its next renewal that its Lease was deleted
        if (
            writer in self.replicas
            and code < REFUSED
            and shared
            and known
            and not self._holder().startswith(f"{writer}-")
        ):
            self.trespasses.append(line)

    # what parts of it ask

    def asked_rate(self):
        """Return what asks for the slices of aligned pods, as it is now: the TargetRate and its Pool."""
        return tuple(
            there and (there["metadata"]["uid"], there["metadata"]["generation"])
            for there in map(self.server.store.objects.get, (f"{IN_SPACE}/targetrates/solver", f"{POOLS}/{POOL}"))
        )

    def loses(self, process):
        """Return whether an event of kopf's is lost."""
        part = self.losing.get(process.name, 0.0)
        return self.blind or (part > 0 and self.random.random() < part)

    def ended(self, replica, error):
        """Note the end of a replica's process, and let its pod be started again, as a kubelet does."""
        self.tell(replica.name, "ended", repr(error) if error else "in good order")
        if error is not None:
            self.errors.append((self.loop.now, replica.name, error))
        self.loop.in_world(1.0, self._again, replica)

    def _again(self, replica):
        if replica.process is None or replica.over:
            replica.begin()
            self.tell(replica.name, "begins again")

    def service(self):
        """Return the replica that the Service selects."""
        for replica in self.replicas.values():
            pod = self.server.store.objects.get(f"/api/v1/namespaces/{SYSTEM}/pods/{replica.name}")
            if (pod["metadata"].get("labels") or {}).get("punctual.dev/leader") == "true":
                return replica
        return None

    def leader(self):
        """Return the replica that the Lease names, or any."""
        holder = self._holder()
        return next((r for r in self.replicas.values() if holder.startswith(r.name)), self.replicas["punctual-0"])

    def _holder(self):
        lease = self.server.store.objects.get(LEASE)
        return ((lease or {}).get("spec") or {}).get("holderIdentity") or ""

    def _admit(self, kind, body, before, _dry):
        if self.refuses_pods and kind.kind == "Pod" and before is None and body["metadata"]["namespace"] == SPACE:
            raise Refused(403, "Forbidden", f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: few')
        return body

    # the scene

    def scene(self):
        """Make namespaces, nodes, replicas and agents, and let them begin."""
        for name in ("default", "kube-system", SYSTEM, SPACE):
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for name, cpu in self.plan.nodes.items():
            self.machines.add_node(name, cpu=cpu, labels={"pool": POOL})
            self.agents[name] = Agent(self, name, self.folder / name)
        for i in range(self.plan.replicas):
            name = f"punctual-{i}"
            pod = {"metadata": {"name": name}, "spec": {"nodeName": "elsewhere", "containers": []}}
            self.call("POST", f"/api/v1/namespaces/{SYSTEM}/pods", pod)
            self.replicas[name] = Replica(self, name)
        self.call("POST", POOLS, self.plan.pool)
        self.loop.create_task(self.machines.run())
        self.loop.create_task(self._write_down(), context=self._user)
        for part in (*self.replicas.values(), *self.agents.values()):
            part.begin()

    async def _write_down(self):
        async with self._client:
            await self.scribe.run()

    def call(self, method, path, body=None):
        """Send a request as a user does; return code and answer."""
        headers = {"Content-Type": MERGE}
        answer = self.server.answer(method, path, {}, headers, orjson.dumps(body or {}))
        self.network.note("user", method, path, None, None, answer.code)
        self.tell("user", method, path, body, answer.code)
        return answer.code, orjson.loads(answer.body)

    # the play

    async def play(self):
        """Do all that the plan says, then wait until it has ended and rests. Returns what is wrong."""
        self.scene()
        running = [self.loop.create_task(self._do(act)) for act in self.plan.acts]
        for task in running:
            await task
        return await self._settle()

    async def _do(self, act):
        await asyncio.sleep(act.at)
        undo = getattr(self, f"_{act.what.replace(' ', '_')}")(act)
        if undo is None:
            return
        self.tell("fault", str(act))
        begin = BEGIN + self.loop.now
        await asyncio.sleep(act.seconds)
        undo()
        self.tell("fault", f"over: {act}")
        end = BEGIN + self.loop.now
        self.struck.append(Struck(act.what, begin, end, act.what not in HARMLESS, silences=True))

    # the end

    async def _settle(self):
        until = self.loop.now + SETTLE
        while any(not job.over for job in self.scribe.jobs.values()) and self.loop.now < until:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        # a job that was refused for its pool says something else once its deadline has passed
        deadlines = self.plan.window_ends() + [
            act.at + max(self.wishes[act.target].deadlines, default=0)
            for act in self.plan.acts
            if act.target in self.wishes
        ]
        quiet = max(self.loop.now + SLOWEST, max(deadlines, default=0) + 5)
        since, rest = self.loop.now, REST if self.plan.seed % 10 else LONG_REST
        while since < quiet and (left := since + rest - self.loop.now) > 0:
            await asyncio.sleep(left)
            since = max([since, *(line[0] for line in self.lines if _counts(line))])
        return [line for line in self.lines if line[0] > quiet and _counts(line)]


def _counts(line):
    """Return whether a line of the story is a write that a cluster at rest does not see.

    A target rate's status has the rate as it was measured last, every half minute.
    """
    return len(line) > 4 and "/leases/" not in line[3] and "/targetrates/" not in line[3]


def play(plan):
    """Play a plan in this process. What is left of it must not be dropped: leave by ``os._exit``."""
    random.seed(f"global {plan.seed}")
    gc.disable()
    folder = tempfile.mkdtemp(prefix="edge-", dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None)
    try:
        world = World(plan, Path(folder))
        writes = world.loop.run_until_complete(world.play())
    finally:
        shutil.rmtree(folder)
    return world, writes
