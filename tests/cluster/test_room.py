"""Pools whose room others want: a stranger of a higher priority, a smaller pool, a second pool on the same node."""

import asyncio
import json
import uuid

import pytest
from live import LABEL, covers, eventually, lend, note, pool_manifest, pool_status, stranger

COST = {"chi": "500ms", "thetaCp": "3s"}


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
        for pool, size in zip((free, held), sizes, strict=True):
            await promised_behind_each_other(space, pool, size)
        await space.apply(*(stranger(cluster, space, n, "200m", priorityClassName=urgent) for n in (first, second)))
        stories = (crowded(space, client, free, first, sizes[0]), untouched(space, client, held, second, sizes[1]))
        ends = await asyncio.gather(*stories, return_exceptions=True)
        if failures := [end for end in ends if isinstance(end, Exception)]:
            raise ExceptionGroup("not as told", failures)


async def promised_behind_each_other(space, pool, size):
    spec = {"pool": pool, "cost": COST, "pause": 0.4, "reduce": "3s", "chunkRetries": 0, "deadline": "100s"}
    await space.apply(space.manifest(f"{pool}-now", units=20 * size, **spec, processors={"min": size}))
    await space.running(f"{pool}-now", size)
    await space.apply(space.manifest(f"{pool}-then", units=10 * size, **spec))
    assert (await space.answer(f"{pool}-then"))["reason"] == "Feasible"
    assert not space.pods_of(f"{pool}-then")


async def crowded(space, client, pool, node, size):
    """Hold None: the scheduler preempts chunks; their units and the job that waits are planned on what is left."""
    name = f"stranger-200m-{node}"
    await eventually(lambda: space.pods.get(name, {}).get("status", {}).get("phase") == "Running", within=60)
    await eventually(lambda: has(client, pool, size - 2), within=20)
    now, _ = await kept(space, pool)
    assert "is being evicted" in (await space.events(now))["CapacityLost"]
    assert len([p for p in space.pods_of(now) if note(p, "attempt") == 2]) >= 1
    assert name not in space.gone
    await space.kubectl("delete", "pod", name, "--wait=false")
    await eventually(lambda: has(client, pool, size), within=20)


async def untouched(space, client, pool, node, size):
    """Hold Taint: the stranger stays outside. A pool cannot be shrunk below its promises, nor shared."""
    young = f"{pool}-2"
    overlapping = pool_manifest(young, {LABEL: pool})
    await space.kubectl("create", "-f", "-", stdin=json.dumps(overlapping))
    try:
        await space.kubectl("patch", "pool", pool, "--type=merge", "-p", shrunk("700m"))
        await eventually(lambda: says(client, pool, "SpecApplied", "False", "EditRefused"), within=20)
        assert (await pool_status(client, pool))["applied"]["processor"]["cpu"] == "100m"
        await eventually(lambda: says(client, young, "NodesOverlap", "True", "NodesOverlap"), within=20)
        lone = space.manifest(f"{young}-job", units=1, deadline="1m", cost=COST, pause=0.1, pool=young)
        await space.apply(lone)
        assert (await space.answer(f"{young}-job"))["reason"] == "InfeasibleCapacity"
        now, then = await kept(space, pool)
        for job in (now, then):
            assert {note(p, "attempt") for p in space.pods_of(job)} == {1}
        assert space.pods[f"stranger-200m-{node}"]["status"]["phase"] == "Pending"
        # what no promise stands against is applied
        await space.kubectl("patch", "pool", pool, "--type=merge", "-p", shrunk("200m"))
        await eventually(lambda: has(client, pool, size // 2), within=20)
        assert await says(client, pool, "SpecApplied", "True", "Applied")
    finally:
        await space.kubectl("delete", "pool", young, "--wait=false")


async def kept(space, pool):
    """Wait until both jobs have ended, in time and with each unit accounted once; return their names."""
    names = (f"{pool}-now", f"{pool}-then")
    for name in names:
        status = await space.end(name, within=150)
        assert space.is_so(name, "Completed", "Completed"), status["conditions"]
        assert status["finishedAt"] <= status["promise"]["deadline"]
        found = space.ranges(name)
        assert covers([r for r, _ in found], status["units"]["total"])
        assert sum(int(said) for _, said in found) == status["units"]["total"]
    return names


def shrunk(cpu):
    return json.dumps({"spec": {"processor": {"cpu": cpu}}})


async def ready(client, pool, node):
    """Wait until the pool has the node; return how many processors that is."""

    async def there():
        status = await pool_status(client, pool)
        return status if [n["name"] for n in status.get("nodes") or ()] == [node] and status["processors"] else None

    return (await eventually(there, within=30))["processors"]


async def has(client, pool, count):
    return (await pool_status(client, pool)).get("processors") == count


async def says(client, pool, kind, status, reason):
    """Whether the pool's condition is so."""
    found = (await pool_status(client, pool)).get("conditions") or ()
    return (kind, status, reason) in {(c["type"], c["status"], c["reason"]) for c in found}
