"""Extended resources in a pool's processor, with a resource that no device plugin owns: kubelets keep such ones."""

import asyncio
import contextlib
import json

import pytest
from live import SYSTEM, eventually, guest, has_no_room, lend, note, pool_status, stranger

from punctual.kube.api.resources import PODS, POOLS
from punctual.labels import PLACEHOLDER

GPU = "example.com/gpu"
PROCESSOR = {"cpu": "100m", "memory": "64Mi", "resources": {GPU: 1}}
COST = {"perUnit": "500ms", "startup": "3s"}


def devices(cluster, node, count):
    """Let a node have so many devices; None: not know them."""
    paths = [f"/status/{field}/{GPU.replace('/', '~1')}" for field in ("capacity", "allocatable")]
    one = {"op": "remove"} if count is None else {"op": "add", "value": str(count)}
    patch = json.dumps([{**one, "path": path} for path in paths])
    cluster.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", patch)


@pytest.fixture
def node(cluster):
    """A node with two devices."""
    name = cluster.nodes[0]
    devices(cluster, name, 2)
    yield name
    devices(cluster, name, None)


async def has(client, pool, count):
    """Whether a pool has so many processors."""
    return (await pool_status(client, pool)).get("processors") == count


@contextlib.asynccontextmanager
async def lent(cluster, client, node, **spec):
    """Let a pool with a device per processor have the node; yield its name once it has two processors."""
    async with lend(cluster, client, node, processor=PROCESSOR, **spec) as pool:
        await eventually(lambda: has(client, pool, 2))
        yield pool


def with_devices(body, count):
    """Let the work of a job or pod name so many devices."""
    spec = body["spec"].get("template", body)["spec"]
    spec["containers"][0].setdefault("resources", {})["limits"] = {GPU: count}
    return body


def of(pod):
    """Return the devices that a pod's first container requests, and its limit."""
    resources = pod["spec"]["containers"][0]["resources"]
    return resources["requests"].get(GPU), resources["limits"].get(GPU)


async def test_a_promise_is_kept_on_devices_and_another_refused_because_of_them(cluster, client, space, node):
    async with lent(cluster, client, node, hold="Placeholder") as pool:
        status = await pool_status(client, pool)
        assert status["scarcest"] == GPU
        uid = (await client.get(POOLS.path(name=pool)))["metadata"]["uid"]

        async def placeholders():
            found = await client.list(PODS.path(namespace=SYSTEM), label_selector=f"{PLACEHOLDER}={uid}")
            return [pod for pod in found.items if pod["status"]["phase"] == "Running"]

        await eventually(lambda: _are_two(placeholders))
        assert {of(pod) for pod in await placeholders()} == {("1", "1")}
        await space.apply(with_devices(stranger(cluster, space, node), 1))
        await eventually(lambda: has_no_room(space, f"stranger-10m-{node}"))

        def job(name, units, deadline, **spec):
            return space.manifest(name, units=units, deadline=deadline, cost=COST, pause=0.2, pool=pool, **spec)

        await space.apply(
            job("kept", 12, "2m", processors={"min": 2}),
            job("too-soon", 140, "40s"),  # three processors would do, and the CPU of the node is enough for them
            job("too-wide", 12, "2m", processors={"min": 3}),
            with_devices(job("too-many", 12, "2m"), 2),
            with_devices(guest(space, "a-guest", 4, pause=0.2, pool=pool), 1),
        )
        names = ("kept", "too-soon", "too-wide", "too-many", "a-guest")
        answers = dict(zip(names, await asyncio.gather(*map(space.answer, names)), strict=True))
        assert answers["kept"]["reason"] == "Feasible"
        for name in ("too-soon", "too-wide"):
            assert answers[name]["reason"] == "InfeasibleCapacity"
            assert f"the scarcest on its nodes is {GPU}, enough for 2 processors" in answers[name]["message"]
        assert answers["too-many"]["reason"] == answers["a-guest"]["reason"] == "PodTooLarge"
        assert f"request 2 {GPU} (main 2); a processor of pool {pool} has 1" in answers["too-many"]["message"]
        assert f"request 1 {GPU}, which is a part of the processors" in answers["a-guest"]["message"]
        status = await space.end("kept")
        assert space.is_so("kept", "Completed", "Completed"), status["conditions"]
        assert status["finishTime"] <= status["promise"]["deadline"]
        pods = space.pods_of("kept")
        assert {of(pod) for pod in pods} == {("1", "1")}
        assert {note(pod, "attempt") for pod in pods} == {1}


async def _are_two(there):
    return len(await there()) == 2


async def test_chunks_outlive_devices_that_a_restart_of_their_plugin_hides_and_a_stranger_takes_one(
    cluster, client, space, node
):
    async with lent(cluster, client, node) as pool:
        await space.apply(with_devices(stranger(cluster, space, node), 1))
        await eventually(lambda: has(client, pool, 1))
        job = space.manifest("outlives", units=60, deadline="4m", cost=COST, pause=0.5, pool=pool)
        await space.apply(job)
        assert (await space.answer("outlives"))["reason"] == "Feasible"
        await space.running("outlives")
        devices(cluster, node, 0)
        await eventually(lambda: has(client, pool, 0))
        devices(cluster, node, 2)
        await eventually(lambda: has(client, pool, 1))
        await space.kubectl("delete", "pod", f"stranger-10m-{node}", "--wait=false")
        await eventually(lambda: has(client, pool, 2))
        status = await space.end("outlives")
        assert space.is_so("outlives", "Completed", "Completed"), status["conditions"]
        assert status["finishTime"] <= status["promise"]["deadline"]
        assert {note(pod, "attempt") for pod in space.pods_of("outlives")} == {1}
