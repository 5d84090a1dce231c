"""A node that suddenly has less CPU: its agent slows the least urgent chunks first, and gives back what they lost."""

from live import BURNS, container, eventually, lend

COST = {"perUnit": "200ms", "startup": "5s"}


async def test_the_least_urgent_chunks_are_slowed_first_on_a_node_that_is_suddenly_half_as_fast(cluster, client, space):
    node = cluster.nodes[-1]
    async with lend(cluster, client, node, progressControl="Feedback") as pool:
        two, four = {"min": 2, "max": 2}, {"min": 4, "max": 4}
        await space.apply(
            space.manifest("urgent", units=600, deadline="5m", program=BURNS, cost=COST, pool=pool, processors=two),
            space.manifest("relaxed", units=1600, deadline="15m", program=BURNS, cost=COST, pool=pool, processors=four),
        )
        for name in ("urgent", "relaxed"):
            assert (await space.answer(name))["reason"] == "Feasible"
        urgent, relaxed = await space.running("urgent", 2), await space.running("relaxed", 4)
        await eventually(lambda: space.status("urgent").get("units", {}).get("done", 0) > 20)
        whole = cluster.cpus(node)
        cluster.give_cpus(node, whole / 2)
        try:
            await eventually(lambda: cut(cluster, relaxed) and not cut(cluster, urgent), every=1.0)
        finally:
            cluster.give_cpus(node, whole)
        await eventually(lambda: not cut(cluster, relaxed), every=1.0)
        status = await space.end("urgent")
        assert status["finishTime"] <= status["promise"]["deadline"]
        status = await space.end("relaxed", within=600)
        assert status["finishTime"] <= status["promise"]["deadline"]


def cut(cluster, pods):
    """Whether the CPU limits of pods add up to clearly less than a processor each."""
    caps = [cluster.caps(pod) for pod in pods]
    inner = [
        quota
        for pod, found in zip(pods, caps, strict=True)
        for folder, (quota, _) in found.items()
        if container(pod) in folder
    ]
    return sum(inner) < 0.75 * 10000 * len(inner)
