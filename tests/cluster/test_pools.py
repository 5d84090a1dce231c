"""A pool and its nodes: what others leave, a node held for the pool alone, and both ends of that."""

import pytest
from live import (
    LABEL,
    container,
    covers,
    eventually,
    give_back,
    has_no_room,
    lend,
    note,
    pool_status,
    ready,
    stranger,
    taints,
)

PERIOD = 20000


@pytest.fixture
async def own(cluster, client, space):
    """A pool of the test's own on one of the nodes, which the pool that all share lends for so long."""
    processor = {"cpu": "100m", "memory": "64Mi", "period": f"{PERIOD // 1000}ms"}
    async with lend(cluster, client, cluster.nodes[-1], processor=processor) as name:
        yield name


async def test_processors_are_what_others_leave_and_a_held_node_takes_nobody_else(cluster, client, space, own):
    node = cluster.nodes[-1]

    async def processors(count):
        return await eventually(lambda: _has(client, own, count))

    def phase(name):
        return space.pods.get(name, {}).get("status", {}).get("phase")

    whole = await ready(client, own, node)

    # a foreign pod of three processors' CPU takes three, and leaves them again
    await space.apply(stranger(cluster, space, node, cpu="300m"))
    await processors(whole - 3)
    await space.kubectl("delete", "pod", f"stranger-300m-{node}")
    await processors(whole)

    # held: the taint comes, strangers stay out, jobs of the pool get in; the cap has the pool's period
    cluster.kubectl("patch", "pool", own, "--type=merge", "-p", '{"spec": {"hold": "Taint"}}')
    await eventually(lambda: taints(cluster, node))
    assert taints(cluster, node) == [{"key": LABEL, "value": own, "effect": "NoSchedule"}]
    await space.apply(
        # long enough for all that is looked at while it runs
        space.manifest(
            "inside", units=400, deadline="9m", cost={"perUnit": "500ms", "startup": "3s"}, pause=0.4, pool=own
        )
    )
    (pod,) = await space.running("inside")
    await space.apply(stranger(cluster, space, node))
    assert pod["spec"]["nodeName"] == node
    wanted = (PERIOD // 10, PERIOD)
    await eventually(lambda: wanted in {f: c for f, c in cluster.caps(pod).items() if container(pod) in f}.values())
    await eventually(lambda: set(cluster.caps(pod).values()) >= {wanted})
    await eventually(lambda: has_no_room(space, f"stranger-10m-{node}"))
    assert phase(f"stranger-10m-{node}") == "Pending"

    # the pool waits for its job; when it goes, the taint goes and the stranger comes in
    cluster.kubectl("delete", "pool", own, "--wait=false")
    await space.apply(
        space.manifest("late", units=1, deadline="90s", cost={"perUnit": "1s", "startup": "3s"}, pause=0.1, pool=own)
    )
    assert (await space.answer("late"))["reason"] == "PoolDeleted"
    assert taints(cluster, node)
    await space.hurry(pod)
    await space.end("inside")
    assert space.is_so("inside", "Completed", "Completed")
    await eventually(lambda: not taints(cluster, node))
    await eventually(lambda: phase(f"stranger-10m-{node}") == "Running")
    await eventually(lambda: cluster.kubectl("get", "pool", own, "--ignore-not-found") == "")


async def test_what_ran_on_a_node_that_leaves_the_pool_is_done_elsewhere_in_time(cluster, client, space):
    cost = {"perUnit": "500ms", "startup": "3s"}
    spec = {"deadline": "4m", "cost": cost, "pause": 0.4, "reduce": "5s", "processors": {"min": 2, "max": 2}}
    await space.apply(space.manifest("moved", units=100, **spec))
    assert (await space.answer("moved"))["reason"] == "Feasible"
    pods = await space.running("moved", 2)
    leaving = pods[0]["spec"]["nodeName"]  # both may be there
    there = {p["metadata"]["name"] for p in pods if p["spec"]["nodeName"] == leaving}
    await eventually(lambda: space.status("moved")["units"]["done"] > 2)
    try:
        cluster.kubectl("label", "node", leaving, f"{LABEL}=none", "--overwrite")
        await eventually(lambda: there <= space.gone)
        status = await space.end("moved")
    finally:
        await give_back(cluster, client, leaving)
    assert space.is_so("moved", "Completed", "Completed")
    assert status["finishTime"] <= status["promise"]["deadline"]
    again = [p for p in space.pods_of("moved") if note(p, "attempt") > 1]
    assert again
    assert leaving not in {p["spec"]["nodeName"] for p in again}
    found = space.ranges("moved")
    assert covers([r for r, _ in found], 100)
    assert sum(int(said) for _, said in found) == 100
    assert "NodeLost" in await space.events("moved")


async def _has(client, name, count):
    return (await pool_status(client, name)).get("processors") == count
