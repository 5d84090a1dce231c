"""Agents: each second a report to the replica that the Service selects, by the product's own messages."""

import asyncio

from edge.loop import Process
from edge.machines import offered
from edge.users import IN_SPACE
from edge.virtual import BEGIN
from punctual import wire
from punctual.kube.cluster.pods import JOB_UID_LABEL
from punctual.kube.trust.identity import NODE_NAME

EVERY, TIMEOUT = 1.0, 3.0
OK = 200


class Agent:
    """The agent of one node. ``begin()`` starts a process of it, a further one after `kill`."""

    def __init__(self, world, node):
        self.world, self.node = world, node
        self.process = None
        self._count = 0

    def begin(self):
        self._count += 1
        world = self.world
        self.process = Process(f"agent-{self.node}", rate=world.random.uniform(0.9999, 1.0001))
        token = f"token-{self.node}"
        user = {"username": world.account, "extra": {NODE_NAME: [self.node]}}
        world.server.reviews[token] = {"authenticated": True, "audiences": [wire.AUDIENCE], "user": user}
        world.loop.start(self.process, self._run(token, f"{self.node}-{self._count}"))

    def kill(self):
        self.world.loop.kill(self.process)

    async def _run(self, token, instance):
        loop = self.world.loop
        born, sequence, epoch, replica = loop.time(), 0, 0, None
        hosts = wire.Hosts(cores=float(self.world.plan.nodes[self.node]))
        host = wire.NodeReport(hosts=hosts, guest_priority="weight")
        while True:
            await asyncio.sleep(EVERY)
            sequence += 1
            report = wire.Report(
                node=self.node,
                instance=instance,
                sequence=sequence,
                started=loop.time() - born,
                epoch=epoch,
                host=host,
                pods=self._pods(),
            )
            replica = replica or self.world.service()
            if replica is None:
                continue
            try:
                async with asyncio.timeout(TIMEOUT):
                    code, text = await self.world.network.report(self.process, replica, token, report.model_dump_json())
            except TimeoutError:
                code = None
            if code != OK:
                replica = None
                continue
            points = wire.SetPoints.model_validate_json(text)
            if points.epoch < epoch:
                replica = None
                continue
            epoch = points.epoch
            wanted = f"{IN_SPACE}/targetrates/solver" in self.world.server.store.objects
            self.world.applications.obey(self.node, points, BEGIN + loop.now, wanted=wanted)

    def _pods(self):
        """Read what the pods of the node have done. A worker sees its offer, and answers."""
        now = BEGIN + self.world.loop.now
        pods = []
        for body, life in self.world.machines.pods_on(self.node):
            if JOB_UID_LABEL not in (body["metadata"].get("labels") or {}) or now < life.began:
                continue
            before = life.agreed
            done, end = life.work(now, offered=offered(body))
            if end != before:
                self.world.machines.kick()
            pods.append(
                wire.PodReport(uid=body["metadata"]["uid"], done=done, end=end, cpu_seconds=max(0.0, now - life.began))
            )
        for uid, app in self.world.applications.on(self.node, now).items():
            cap, period = app.limit or (None, None)
            pods.append(wire.PodReport(uid=uid, done=int(app.count), written=app.since_last(), cap=cap, period=period))
        return pods
