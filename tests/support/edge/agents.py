"""Agents: the product's own, on folders that look like a node's. The way to the operator is the net's.

Workers write their files when an agent is about to read them, so that what it reads depends on the seed alone.
"""

import asyncio
import os
import shutil
import time
from pathlib import Path

from trees import Tree

from edge.link import within
from edge.loop import Process, near
from edge.machines import offered
from edge.timers import Timers
from edge.users import IN_SPACE
from edge.virtual import BEGIN
from punctual import wire
from punctual.kube.agents.identity import NODE_NAME
from punctual.labels import JOB_UID_LABEL
from punctual_agent.agent import Agent as Core
from punctual_agent.aligned_pods import AlignedPods
from punctual_agent.metrics import AgentMetrics
from punctual_agent.operator_client import Answered, ExchangeError, question, understood
from punctual_agent.rounds import Rounds
from punctual_agent.state import LEASE, State

TIMEOUT = 3.0
PATIENCE = 60.0
TICK = 1e-6
"""Seconds that a sleep takes at least: the clock would stand still in a shorter one."""
VOLUME = "volumes/kubernetes.io~empty-dir/punctual"


class Agent:
    """The agent of one node. ``begin()`` starts a process of it, a further one after `kill`. Files outlive it."""

    def __init__(self, world, node, folder):
        self.world, self.node = world, node
        self.process = None
        self._rate = near(world.random)
        (folder / "state").mkdir(parents=True)
        self._folders = Folders(world, node, folder)
        self._state = folder / "state"
        self._core = None
        self.answered = 0.0
        """When the operator last answered it, in the world's time."""

    def begin(self):
        world = self.world
        self.process = Process(f"agent-{self.node}", rate=self._rate)
        token = f"token-{self.node}"
        user = {"username": world.account, "extra": {NODE_NAME: [self.node]}}
        world.server.reviews[token] = {"authenticated": True, "audiences": [wire.AUDIENCE], "user": user}
        world.loop.start(self.process, self._run(token))

    def kill(self):
        self.world.loop.kill(self.process)
        if self._core is not None:
            self._core._lock.release()  # as the kernel does when a process ends

    async def _run(self, token):
        mail, now = _Newest(), time.monotonic()
        metrics = AgentMetrics()
        self._core = _Core(
            self._folders,
            node=self.node,
            hierarchy=self._folders.tree.hierarchy(clock=time.monotonic),
            pods_root=str(self._folders.tree.pods),
            state=State(self._state),
            metrics=metrics,
            now=now,
            lease=LEASE,
            patience=PATIENCE,
            wall=time.time,
        )
        self._core.steer_by(Timers(self.world, time.monotonic, self.world.asked_rate))
        rounds = Rounds(self._core, mail.put, metrics, now + self.world.random.random())
        exchange = asyncio.create_task(self._exchange(token, mail, rounds))
        while not exchange.done():
            following = rounds.look(time.monotonic())
            await asyncio.sleep(max(following - time.monotonic(), TICK))
        exchange.result()

    async def _exchange(self, token, mail, rounds):
        """Send the newest report, again and again, to the replica that the Service selected when it last connected."""
        replica = None
        while True:
            report = await mail.get()
            replica = replica or self.world.service()
            try:
                said = await self._asked(replica, token, report)
                self.answered = self.world.loop.now
            except ExchangeError as error:
                said, replica = error, None
            rounds.hear(said, time.monotonic())
            self._folders.obeyed()

    async def _asked(self, replica, token, report):
        if replica is None:
            raise ExchangeError("unreachable", "the Service selects no pod")
        sent = time.monotonic()
        try:
            future = self.world.network.report(self.process, replica, token, question(report).decode())
            status, text = await within(TIMEOUT, future)
        except TimeoutError as error:
            raise ExchangeError("timeout", "no answer") from error
        return Answered(understood(report, status, text.encode()), sent, time.monotonic())


class _Core(Core):
    """The product's agent. Workers write before a tick: only a tick reads their files, a glance does not."""

    def __init__(self, folders, **more):
        super().__init__(**more)
        self._folders = folders

    def steer_by(self, timers):
        """Steer the slices of aligned pods by these timers, without a thread."""
        self.phases = timers
        self._aligned = AlignedPods(timers)

    def tick(self, now):
        self._folders.work()
        report = super().tick(now)
        self._folders.obeyed()
        return report


class _Newest:
    """A report that waits. A newer one takes its place."""

    def __init__(self):
        self._report = None
        self._there = asyncio.Event()

    def put(self, report):
        self._report = report
        self._there.set()

    async def get(self):
        await self._there.wait()
        self._there.clear()
        return self._report


class Folders:
    """A node's pods and cgroups as files: what workers write, and which limits an agent has put on users' own pods."""

    def __init__(self, world, node, folder):
        self._world, self._node = world, node
        self.tree = Tree(folder, version="v2", driver="cgroupfs")
        (self.tree.root / "cpuset.cpus.effective").write_text(f"0-{int(world.plan.nodes[node]) - 1}\n")
        self._written = {}  # files with their values, by uid
        self._held = False  # whether users' own pods were there at the last look

    def work(self):
        """Let workers write what they have done. One that sees its offer answers it."""
        now, there = BEGIN + self._world.loop.now, {}
        for body, life in self._world.machines.pods_on(self._node):
            if JOB_UID_LABEL not in (body["metadata"].get("labels") or {}) or now < life.began:
                continue
            before = life.agreed
            done, end = life.work(now, offered=offered(body))
            if end != before:
                self._world.machines.kick()
            there[body["metadata"]["uid"]] = {"progress": (done, now), "end": (end, now)}
        applications = self._world.applications.on(self._node, now)
        self._held = bool(applications)
        for uid, app in applications.items():
            there[uid] = {"progress": (int(app.count), now - app.since_last())}
            if uid not in self._written:
                self.tree.pod(uid, containers=1)
        for uid in self._written.keys() - there.keys():
            shutil.rmtree(self.tree.pods / uid)
            shutil.rmtree(self.tree.pod_folder(uid), ignore_errors=True)
            del self._written[uid]
        for uid, files in there.items():
            self._write(uid, files)

    def _write(self, uid, files):
        before = self._written.get(uid)
        if before is None:
            (self.tree.pods / uid / VOLUME).mkdir(parents=True)
            before = self._written[uid] = {}
        for name, (value, at) in files.items():
            if value is not None and value != before.get(name):
                before[name] = value
                path = self.tree.pods / uid / VOLUME / name
                path.write_text(str(value))
                os.utime(path, (at, at))

    def obeyed(self):
        """Note the limits that users' own pods have now."""
        if not self._held:
            return
        now = BEGIN + self._world.loop.now
        wanted = f"{IN_SPACE}/targetrates/solver" in self._world.server.store.objects
        for uid, app in self._world.applications.on(self._node, now).items():
            if uid in self._written:
                self._world.applications.limit(app, _limit(self.tree.pod_folder(uid)), now, wanted=wanted)


def _limit(folder: Path):
    """Return the CPU limit of a pod as (cores, period): its own or its container's. None: it has none."""
    found = []
    for part in (folder, folder / "c0"):
        quota, period = (part / "cpu.max").read_text().split()
        if quota != "max":
            found.append((int(quota) / int(period), int(period) / 1e6))
    return min(found, default=None)
