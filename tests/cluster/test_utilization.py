"""Jobs that share a processor: three of them, each of which could use all of it, end in time side by side."""

from live import BURNS, eventually, lend, pool_status, room

SECONDS = {"first": 60, "second": 80, "third": 100}
PART = 0.27
"""Part of the processor that each job needs."""


async def test_three_jobs_share_one_processor_and_all_are_in_time(cluster, client, space):
    node = cluster.nodes[-1]
    millis = 60 * (await room(client))[node]  # so much that only one fits
    shares = {"admission": "Utilization", "utilization": {"podsPerProcessor": 4}}
    async with lend(cluster, client, node, processor={"cpu": f"{millis}m", "memory": "64Mi"}, **shares) as pool:
        await eventually(lambda: _has_one(client, pool))
        per_unit = 20.0 / (millis / 1000)  # milliseconds that a unit takes on a whole processor
        cost = {"perUnit": f"{per_unit:.0f}ms", "startup": "5s"}
        for name, seconds in SECONDS.items():
            units = int(PART * (seconds - 10) * 1000 / per_unit)
            made = space.manifest(name, units=units, deadline=f"{seconds}s", program=BURNS, cost=cost, pool=pool)
            await space.apply(made)
        for name in SECONDS:
            assert (await space.answer(name))["reason"] == "Feasible"
        for name in SECONDS:
            await space.running(name, 1)  # at the same time, on one processor
        too_much = int(0.6 * 60 * 1000 / per_unit)
        await space.apply(space.manifest("fourth", units=too_much, deadline="70s", program=BURNS, cost=cost, pool=pool))
        assert (await space.answer("fourth"))["reason"] == "InfeasibleCapacity"
        await eventually(lambda: space.status("fourth").get("offer", {}).get("earliestDeadline"))
        for name in SECONDS:
            status = await space.end(name, within=180)
            assert status["finishTime"] <= status["promise"]["deadline"]


async def _has_one(client, pool):
    return (await pool_status(client, pool)).get("processors") == 1
