"""Target rates through the whole operator, against a real API server; the test plays kubelet, agent and application."""

import asyncio
import contextlib
import runpy
import time
from pathlib import Path

import aiohttp
import pytest
from counters import NAME, Counters

from punctual import wire
from punctual.kube.api.resources import PODS, TARGET_RATES

HERE = Path(__file__).parent
OPERATOR = runpy.run_path(str(HERE / "test_operator.py"))
REPORTS = runpy.run_path(str(HERE / "test_reports.py"))
condition = OPERATOR["condition"]
say, start, staff = REPORTS["say"], REPORTS["start"], REPORTS["staff"]

ALONE = 10.0
"""Iterations a second of the application alone."""


class World(OPERATOR["World"]):
    """With pods of the user's own, and target rates."""

    async def add_pod(self, name, *, request="500m", node=None, **labels):
        resources = {"requests": {"cpu": request}, "limits": {"cpu": "1"}}
        body = {
            "metadata": {"name": name, "labels": {"app": "solver", **labels}},
            "spec": {
                "nodeName": node or self.node,
                "containers": [{"name": "main", "image": "a", "resources": resources}],
            },
        }
        path = PODS.path(namespace=self.namespace)
        made = await self.client.create(path, body)
        running = {"status": {"phase": "Running"}}
        await self.client.patch_merge(f"{path}/{name}", running, subresource="status")
        return made["metadata"]["uid"]

    async def ask(self, name="r", **spec):
        spec = {"pool": self.pool, "selector": {"matchLabels": {"app": "solver"}}, "rate": "40%", **spec}
        body = {"apiVersion": TARGET_RATES.version, "kind": "TargetRate", "metadata": {"name": name}, "spec": spec}
        await self.client.create(TARGET_RATES.path(namespace=self.namespace), body)

    def at(self, name="r"):
        return TARGET_RATES.path(namespace=self.namespace, name=name)

    async def stands(self, kind, reason, name="r", **more):
        """Wait for a condition of a target rate, return its status."""

        async def holds():
            status = (await self.client.get(self.at(name))).get("status") or {}
            found = condition(status, kind)
            same = all(status.get(key) == value for key, value in more.items())
            return status if same and found and found["reason"] == reason else None

        return await self.until(holds, within=120.0)


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    await made.add_node()
    await made.add_pool()
    yield made
    await made.clean()


def percent(part):
    return f"{100 * part:.6f}".rstrip("0").rstrip(".") + "%"


class Agent:
    """The agent of the node, and the application: as many iterations as its cap allows."""

    def __init__(self, node, token, *pods):
        self.node, self.token = node, token
        self.done = dict.fromkeys(pods, 0.0)
        self.points = {}
        self.complete = False
        self.sequence = 0
        self.ports = []
        self.writes = True

    async def run(self):
        """Report once a second until cancelled, and do what the answer says."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for pod in self.done:
                cap = self.points[pod].cap if pod in self.points else 1.0
                self.done[pod] += ALONE * cap * (now - last)
            last = now
            self.sequence += 1
            pods = [self.line(pod) for pod in self.points if pod in self.done]
            body = wire.Report(node=self.node, instance="i", sequence=self.sequence, pods=pods).model_dump_json()
            for port in self.ports:
                with contextlib.suppress(OSError, aiohttp.ClientError):
                    status, answer = await say(port, self.token, body)
                    if status == 200:
                        self.take(wire.SetPoints.model_validate(answer))

    def line(self, pod):
        point = self.points[pod]
        if not self.writes:
            return wire.PodReport(uid=pod, cap=point.cap, period=point.period, cpu_seconds=1.0)
        written = (self.done[pod] % 1.0) / (ALONE * point.cap)
        return wire.PodReport(
            uid=pod, done=int(self.done[pod]), written=written, cap=point.cap, period=point.period, cpu_seconds=1.0
        )

    def take(self, points):
        now = {p.uid: p for p in points.pods}
        assert all(p.mode.kind == "Application" and p.rest_cap == p.cap for p in points.pods)
        self.complete = points.applications_complete
        self.points = now if self.complete else {**self.points, **now}


async def test_pods_are_held_at_a_rate_that_is_edited_outlives_a_leader_and_ends(world, client, start, staff):
    pods = [await world.add_pod(f"solver-{n}") for n in range(2)]
    await world.ask(maxRate="10/s")
    agent = Agent(world.node, await staff.token(world.node), *pods)
    async with contextlib.AsyncExitStack() as stack:
        task = asyncio.ensure_future(agent.run())
        stack.callback(task.cancel)
        leader = await start()
        agent.ports = [leader.reports]
        status = await world.stands("OnTarget", "OnTarget")
        assert condition(status, "Admitted")["reason"] == "Feasible"
        assert (status["target"], status["maxRate"], status["pods"]) == ("40%", "10/s", 2)
        assert 0.37 <= float(status["rate"].rstrip("%")) / 100 <= 0.43
        assert agent.points.keys() == set(pods)

        await client.patch_merge(world.at(), {"spec": {"rate": "20%"}})
        status = await world.stands("OnTarget", "OnTarget", target="20%")
        assert [p.cap for p in agent.points.values()] == pytest.approx([0.2, 0.2], abs=0.03)
        await world.stands("OnTarget", "OnTarget", utilization=percent(agent.points[pods[0]].cap))

        before = dict(agent.points)
        await leader.kill()
        await world.let_go()
        heir = await start()
        agent.ports = [heir.reports]
        agent.complete = False

        async def complete():
            return agent.complete

        await world.until(complete)
        for pod in pods:
            assert agent.points[pod].cap == pytest.approx(before[pod].cap, abs=1e-6)
            assert agent.points[pod].period == pytest.approx(before[pod].period, rel=1e-6)

        await client.delete(world.at())

        async def released():
            return not agent.points

        await world.until(released)


async def test_what_cannot_be_held_is_refused_with_node_numbers_and_pod(world, client, start):
    await world.add_node(name=f"other-{world.node}", pool="none")
    await world.ask("lost", pool="nowhere")
    await world.ask("far", selector={"matchLabels": {"app": "far"}})
    await world.add_pod("far", app="far", node=f"other-{world.node}")
    await world.add_pod("solver-0", request="300m")
    await world.ask("r")
    await start()
    await world.stands("Admitted", "PoolNotFound", "lost")
    status = await world.stands("Admitted", "PodOutsidePool", "far")
    assert f"far is on node other-{world.node}" in condition(status, "Admitted")["message"]
    status = await world.stands("Admitted", "RatesDoNotFit")
    said = condition(status, "Admitted")["message"]
    assert f"node {world.node} is asked for 0.4 CPU" in said
    assert "has 0.3" in said
    assert "30% would fit" in said
    assert "target" not in status

    await client.patch_merge(world.at(), {"spec": {"rate": "30%"}})
    await world.stands("Admitted", "Feasible", target="30%")
    await client.patch_merge(world.at(), {"spec": {"rate": "50%"}})
    status = await world.stands("Admitted", "EditRefused", target="30%")
    assert "30% stays in force" in condition(status, "Admitted")["message"]

    await asyncio.sleep(1.0)  # ages are whole seconds
    await world.ask("second", selector={"matchLabels": {"app": "solver"}}, rate="10%")
    status = await world.stands("Admitted", "PodShared", "second")
    assert f"TargetRate {world.namespace}/r selects pod" in condition(status, "Admitted")["message"]
    await client.delete(world.at("r"))
    await world.stands("Admitted", "Feasible", "second")


async def test_pods_that_write_no_file_are_held_at_what_prometheus_counts(world, client, start, staff, tmp_path):
    pods = [await world.add_pod(f"solver-{n}") for n in range(2)]
    agent = Agent(world.node, await staff.token(world.node), *pods)
    agent.writes = False
    series = [
        ({"namespace": world.namespace, "pod": f"solver-{n}"}, lambda pod=pod: int(agent.done[pod]))
        for n, pod in enumerate(pods)
    ]
    await world.ask(maxRate="10/s", epsilon="10%", iterations={"query": "another_total"})
    async with Counters(tmp_path, series) as counters, contextlib.AsyncExitStack() as stack:
        task = asyncio.ensure_future(agent.run())
        stack.callback(task.cancel)
        leader = await start(PUNCTUAL_PROMETHEUS=counters.url)
        agent.ports = [leader.reports]
        status = await world.stands("OnTarget", "NotCounted")
        assert "no series has pod=solver-" in condition(status, "OnTarget")["message"]
        await client.patch_merge(world.at(), {"spec": {"iterations": {"query": NAME}}})
        status = await world.stands("OnTarget", "OnTarget")
        assert 0.3 <= float(status["rate"].rstrip("%")) / 100 <= 0.5
