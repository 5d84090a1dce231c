"""Pools whose room others want: a stranger of a higher priority, a smaller pool, a second pool on the same node."""

import asyncio
import contextlib
import json
import uuid

import pytest
from lib import testbed
from live import (
    LABEL,
    SYSTEM,
    beside,
    covers,
    eventually,
    has_no_room,
    lend,
    note,
    pool_status,
    ready,
    stranger,
    taints,
)

from punctual.kube.api.resources import PODS, POOLS
from punctual.labels import PLACEHOLDER
from punctual.notation.duration import parse_time

COST = {"perUnit": "500ms", "startup": "3s"}


@pytest.fixture
def urgent(cluster):
    """The name of a priority class above that of chunks."""
    name = f"urgent-{uuid.uuid4().hex[:6]}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield name
    cluster.kubectl("delete", "priorityclass", name)


async def test_a_stranger_between_promise_and_start_takes_room_where_nodes_are_open_and_none_where_they_are_held(
    cluster, client, space, urgent
):
    """On each node a job that fills it and one promised behind it; then somebody more important comes to both."""
    first, second = cluster.nodes
    async with lend(cluster, client, first) as free, lend(cluster, client, second, hold="Taint") as held:
        sizes = await asyncio.gather(ready(client, free, first), ready(client, held, second))
        pools = zip((free, held), sizes, strict=True)
        await asyncio.gather(*(promised_behind_each_other(space, pool, size) for pool, size in pools))
        await space.apply(*(stranger(cluster, space, n, "100m", priorityClassName=urgent) for n in (first, second)))
        stories = (crowded(space, client, free, first, sizes[0]), untouched(space, client, held, second, sizes[1]))
        ends = await asyncio.gather(*stories, return_exceptions=True)
        if failures := [end for end in ends if isinstance(end, Exception)]:
            raise ExceptionGroup("not as told", failures)


async def test_placeholders_keep_the_room_of_a_promise_from_strangers_but_from_those_above_them(
    cluster, client, space, urgent
):
    node = cluster.nodes[0]
    polite = {"terminationGracePeriodSeconds": 1}
    async with lend(cluster, client, node, hold="Placeholder") as pool:
        size = await ready(client, pool, node)
        uid = (await client.get(POOLS.path(name=pool)))["metadata"]["uid"]

        async def keeps(count):
            path, selector = PODS.path(namespace=SYSTEM), f"{PLACEHOLDER}={uid}"
            pods = [p for p in (await client.list(path, label_selector=selector)).items if is_there(p)]
            return len(pods) == count

        await eventually(lambda: keeps(size))
        await space.apply(stranger(cluster, space, node, "100m", **polite))
        await eventually(lambda: has_no_room(space, f"stranger-100m-{node}"))
        async with watched(client, pool) as seen:
            await promised_behind_each_other(space, pool, size, units=(40, 5))
            for job in await kept(space, pool):
                assert {note(p, "attempt") for p in space.pods_of(job)} == {1}
        assert seen == {size}
        # who is more important takes the room as if nobody kept it
        await space.apply(stranger(cluster, space, node, "200m", priorityClassName=urgent, **polite))
        await eventually(lambda: has(client, pool, size - 2))
        strangers = [f"stranger-{cpu}-{node}" for cpu in ("200m", "100m")]
        await space.kubectl("delete", "pod", *strangers, "--ignore-not-found", "--wait=false")
        await eventually(lambda: has(client, pool, size))
        await eventually(lambda: keeps(size))
        await space.kubectl("patch", "pool", pool, "--type=merge", "-p", '{"spec": {"hold": "Taint"}}')
        await eventually(lambda: keeps(0))
        await eventually(lambda: taints(cluster, node))


def is_there(pod):
    return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"


@contextlib.asynccontextmanager
async def watched(client, pool):
    """Yield a set of all the numbers of processors that the pool says it has meanwhile."""
    seen = set()

    async def watch():
        one = f"metadata.name={pool}"
        events = client.watch(POOLS.path(), initial=True, field_selector=one, seconds=900, silence=910)
        async with contextlib.aclosing(events):
            async for event in events:
                if event["type"] != "BOOKMARK":
                    seen.add(event["object"]["status"]["processors"])

    async with beside(watch()):
        yield seen


async def promised_behind_each_other(space, pool, size, *, units=(50, 5)):
    """Run a job on all processors, so many units on each, and have another promised that is planned behind it."""
    now, then = f"{pool}-now", f"{pool}-then"
    spec = {"pool": pool, "cost": COST, "pause": 0.4, "reduce": "3s", "chunkRetries": 0, "deadline": "3m"}
    await space.apply(space.manifest(now, units=units[0] * size, **spec, processors={"min": size}))
    assert (await space.answer(now))["reason"] == "Feasible"
    await space.apply(space.manifest(then, units=units[1] * size, **spec))
    assert (await space.answer(then))["reason"] == "Feasible"
    await space.running(now, size)
    start = next(status["promise"]["start"] for _, status in space.written(then) if "promise" in status)
    chunks = [c for _, status in space.written(now) for c in status.get("chunks", ()) if c["kind"] == "Chunk"]
    assert len({c["begin"] for c in chunks}) == size
    assert parse_time(start) >= min(parse_time(c["promisedEnd"]) for c in chunks)


async def crowded(space, client, pool, node, size):
    """Hold None: the scheduler preempts chunks; their units and the job that waits are planned on what is left."""
    name = f"stranger-100m-{node}"
    await eventually(lambda: space.pods.get(name, {}).get("status", {}).get("phase") == "Running")
    await eventually(lambda: has(client, pool, size - 1))
    now, _ = await kept(space, pool)
    assert "is being evicted" in (await space.events(now))["CapacityLost"]
    assert len([p for p in space.pods_of(now) if note(p, "attempt") == 2]) >= 1
    assert name not in space.gone
    await space.kubectl("delete", "pod", name, "--wait=false")
    await eventually(lambda: has(client, pool, size))


async def untouched(space, client, pool, node, size):
    """Hold Taint: the stranger stays outside. A pool cannot be shrunk below its promises, nor shared."""
    young = f"{pool}-2"
    overlapping = testbed.pool(young, nodeSelector={"matchLabels": {LABEL: pool}})
    await space.kubectl("create", "-f", "-", stdin=json.dumps(overlapping))
    try:
        await space.kubectl("patch", "pool", pool, "--type=merge", "-p", shrunk("700m"))
        await eventually(lambda: says(client, pool, "SpecApplied", "False", "EditRefused"))
        assert (await pool_status(client, pool))["applied"]["processor"]["cpu"] == "100m"
        await eventually(lambda: says(client, young, "NodesOverlap", "True", "NodesOverlap"))
        lone = space.manifest(f"{young}-job", units=1, deadline="1m", cost=COST, pause=0.1, pool=young)
        await space.apply(lone)
        assert (await space.answer(f"{young}-job"))["reason"] == "InfeasibleCapacity"
        now, then = await kept(space, pool)
        for job in (now, then):
            assert {note(p, "attempt") for p in space.pods_of(job)} == {1}
        assert space.pods[f"stranger-100m-{node}"]["status"]["phase"] == "Pending"
        # what no promise stands against is applied
        await space.kubectl("patch", "pool", pool, "--type=merge", "-p", shrunk("200m"))
        await eventually(lambda: has(client, pool, size // 2))
        assert await says(client, pool, "SpecApplied", "True", "Applied")
    finally:
        await space.kubectl("delete", "pool", young, "--wait=false")


async def kept(space, pool):
    """Wait until both jobs have ended, in time and with each unit accounted once; return their names."""
    names = (f"{pool}-now", f"{pool}-then")
    for name in names:
        status = await space.end(name)
        assert space.is_so(name, "Completed", "Completed"), status["conditions"]
        assert status["finishTime"] <= status["promise"]["deadline"]
        found = space.ranges(name)
        assert covers([r for r, _ in found], status["units"]["total"])
        assert sum(int(said) for _, said in found) == status["units"]["total"]
    return names


def shrunk(cpu):
    return json.dumps({"spec": {"processor": {"cpu": cpu}}})


async def has(client, pool, count):
    return (await pool_status(client, pool)).get("processors") == count


async def says(client, pool, kind, status, reason):
    """Whether the pool's condition is so."""
    found = (await pool_status(client, pool)).get("conditions") or ()
    return (kind, status, reason) in {(c["type"], c["status"], c["reason"]) for c in found}
