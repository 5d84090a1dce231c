"""Target rates through the whole operator, against a real API server; the test plays kubelet, agent and application."""

import asyncio
import contextlib
import math
import runpy
import time
from pathlib import Path

import aiohttp
import pytest
from counters import NAME, Counters

from punctual import wire
from punctual.kube.api.resources import PODS, POOLS, TARGET_RATES

HERE = Path(__file__).parent
OPERATOR = runpy.run_path(str(HERE / "test_operator.py"))
REPORTS = runpy.run_path(str(HERE / "test_reports.py"))
condition = OPERATOR["condition"]
start, staff = REPORTS["start"], REPORTS["staff"]

ALONE = 10.0
"""Iterations a second of the application alone."""
STEERED = 0.0005
"""Error from which on the agent moves a phase, s."""


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
        self.epoch = 0
        self.begins = {}
        """A begin of the periods of each pod, on this clock."""
        self.moves = 0
        self.offset = None
        """The leader's clock less this one, by the answer with the shortest round trip from this leader."""
        self.bound = math.inf
        self.worst = 0.0
        """The bounds of the first answers of all leaders: the estimate of a clock is never worse."""

    async def run(self):
        """Report once a second until cancelled, and do what the answer says."""
        # a kept connection: each handshake would make the leader's clock uncertain
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False), headers={"Authorization": f"Bearer {self.token}"}
        ) as session:
            await self.report(session)

    async def report(self, session):
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
            clock = None if self.offset is None else wire.ClockReport(bound=self.bound)
            report = wire.Report(
                node=self.node,
                instance="i",
                sequence=self.sequence,
                epoch=self.epoch,
                modes=["Application"],
                host=wire.NodeReport(clock=clock),
                pods=pods,
            )
            for port in self.ports:
                with contextlib.suppress(OSError, aiohttp.ClientError):
                    body, before = report.model_dump_json(), time.monotonic()
                    async with session.post(f"https://127.0.0.1:{port}{wire.REPORT_PATH}", data=body) as answer:
                        said, after = await answer.text(), time.monotonic()
                    if answer.status == 200:
                        points = wire.SetPoints.model_validate_json(said)
                        self.hear(points, before, after)
                        self.take(points)

    def hear(self, points, before, after):
        """Learn the leader's clock."""
        if points.epoch > self.epoch:
            self.epoch, self.bound = points.epoch, math.inf
        half = (after - before - points.held) / 2
        assert half >= 0.0, "the leader says that it had the report for longer than it can have had it"
        if math.isinf(self.bound):
            self.worst += half
        if half < self.bound:
            self.bound, self.offset = half, points.sent - (after - half)

    def line(self, pod):
        point = self.points[pod]
        more = {"cap": point.cap, "period": point.period, "cpu_seconds": 1.0}
        if point.mode.grid is not None:
            more |= {"phase": self.phase(pod, point), "throttled": 1.0}
        if self.writes:
            written = (self.done[pod] % 1.0) / (ALONE * point.cap)
            more |= {"done": int(self.done[pod]), "written": written}
        return wire.PodReport(uid=pod, **more)

    def phase(self, pod, point):
        """Begin the periods of a pod where its grid asks once it asks for a begin, and report this."""
        begins = point.mode.grid.begins
        here = self.begins.setdefault(pod, 0.0)
        if begins is None:
            return wire.PhaseReport(begins=here + self.offset, half=self.bound)
        error = math.remainder(here + self.offset - begins, point.period)
        if abs(error) > STEERED:
            self.begins[pod] -= error
            self.moves += 1
            error = 0.0
        return wire.PhaseReport(begins=self.begins[pod] + self.offset, half=self.bound, error=error, moves=self.moves)

    def take(self, points):
        now = {p.uid: p for p in points.pods}
        assert all(p.mode.kind == "Application" and p.rest_cap == p.cap for p in points.pods)
        self.complete = points.applications_complete
        self.points = now if self.complete else {**self.points, **now}


@contextlib.asynccontextmanager
async def reporting(agent, start, **environ):
    """A leader, and an agent that reports to it."""
    task = asyncio.ensure_future(agent.run())
    try:
        leader = await start(**environ)
        agent.ports = [leader.reports]
        yield leader
    finally:
        task.cancel()


async def test_pods_are_held_at_a_rate_that_is_edited_outlives_a_leader_and_ends(world, client, start, staff):
    pods = [await world.add_pod(f"solver-{n}") for n in range(2)]
    await world.ask(maxRate="10/s")
    agent = Agent(world.node, await staff.token(world.node), *pods)
    async with reporting(agent, start) as leader:
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
    async with Counters(tmp_path, series) as counters, reporting(agent, start, PUNCTUAL_PROMETHEUS=counters.url):
        status = await world.stands("OnTarget", "NotCounted")
        assert "no series has pod=solver-" in condition(status, "OnTarget")["message"]
        await client.patch_merge(world.at(), {"spec": {"iterations": {"query": NAME}}})
        status = await world.stands("OnTarget", "OnTarget")
        assert 0.3 <= float(status["rate"].rstrip("%")) / 100 <= 0.5


async def test_slices_of_all_pods_begin_together_and_stay_where_they_are_under_the_next_leader(
    world, client, start, staff
):
    pods = [await world.add_pod(f"solver-{n}") for n in range(2)]
    await world.ask(maxRate="10/s", coscheduling="Aligned", epsilon="10%")
    agent = Agent(world.node, await staff.token(world.node), *pods)
    async with reporting(agent, start) as leader:
        status = await world.stands("Aligned", "Aligned")
        assert (status["offset"], status["period"]) == ("0s", 0.1)
        assert status["skew"].endswith("s")
        grids = [agent.points[pod].mode.grid for pod in pods]
        assert grids[0] == grids[1]
        assert grids[0].slice == pytest.approx(0.04, abs=0.011)
        begins = dict(agent.begins)

        await leader.kill()
        await world.let_go()
        heir = await start()
        epoch, agent.ports = agent.epoch, [heir.reports]

        async def goes_on():
            told = [agent.points[pod].mode.grid for pod in pods]
            return agent.epoch > epoch and all(grid is not None and grid.begins is not None for grid in told)

        await world.until(goes_on)
        await world.stands("Aligned", "Aligned", epoch=agent.epoch)
        for pod in pods:
            moved = math.remainder(agent.begins[pod] - begins[pod], 0.1)
            assert abs(moved) <= 2 * agent.worst + STEERED, "no more than the clocks are uncertain"

        pool = POOLS.path(name=world.pool)
        await client.patch_merge(pool, {"spec": {"maxSlice": "2ms"}})
        status = await world.stands("Admitted", "EditRefused", target="40%")
        assert "maxSlice of its pool is 2 ms" in condition(status, "Admitted")["message"]
        await client.patch_merge(world.at(), {"spec": {"coscheduling": "None"}})
        await world.stands("Admitted", "Feasible")

        async def off_the_grid():
            return all(agent.points[pod].mode.grid is None for pod in pods)

        await world.until(off_the_grid)
    status = (await client.get(world.at()))["status"]
    assert not {"offset", "skew"} & status.keys()
    assert condition(status, "Aligned") is None
