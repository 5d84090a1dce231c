"""Inputs over one port on a real API server: pods are told their turn one by one, whatever happens to the operator."""

import json

from life import life
from stage import CONTAINER

from punctual.kube.directory import JOBS, POOLS
from punctual.kube.podspec import STEP, TURN

INPUT = {"http": {"url": "http://files.example.com/data"}, "cut": "Lines"}
COST = {"chi": "1s", "tau": "100ms", "thetaCm": "500ms", "thetaCp": "500ms"}


async def fetched(stage, pod):
    """Say that a pod has its input, and runs."""
    now = stage._now()
    message = json.dumps({"bytes": 1000, "waited": 0, "opening": 0.25, "seconds": 1.25})
    step = {"terminated": {"exitCode": 0, "startedAt": now, "finishedAt": now, "message": message}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [{**CONTAINER, "name": STEP, "state": step}],
        "containerStatuses": [{**CONTAINER, "state": {"running": {"startedAt": now}}}],
    }
    await stage.client.patch_merge(stage.path(pod), {"status": status}, subresource="status")


async def told(stage):
    """Return the pods that were told that it is their turn, by name."""
    return {p["metadata"]["name"]: p for p in await stage.chunks() if p["metadata"]["annotations"].get(TURN)}


async def planned(stage):
    """Return the pods of chunks on record, in the order in which their inputs are to come."""
    status = (await stage.client.get(JOBS.path(namespace=stage.namespace, name="job")))["status"]
    return [c["pod"] for c in sorted(status["chunks"], key=lambda c: c["inputBy"])]


async def test_turns_go_on_one_by_one_as_planned_though_the_operator_is_killed_in_each(client, kubeconfig, tmp_path):
    async with life(client, kubeconfig, tmp_path, plays=False, job=False) as (stage, _, start):
        await client.patch_merge(POOLS.path(name=stage.pool), {"spec": {"network": "OnePort"}})
        await stage.add_job(input=INPUT, cost=COST, processors={"min": 3, "max": 3})
        operator = start()
        assert await stage.until(lambda: stage.working(3))
        order = await planned(stage)
        for nth in range(3):

            async def given(nth=nth):
                found = await told(stage)
                return found if len(found) > nth else None

            pods = await stage.until(given)
            assert set(pods) == set(order[: nth + 1])
            operator.kill()
            await operator.ended()
            await stage.let_go()
            operator = start()
            await stage.add_job(f"asks-{nth}", units=1, dryRun=True)
            await stage.until(lambda nth=nth: stage.answered(f"asks-{nth}", "DryRun"))
            assert set(await told(stage)) == set(pods)
            await fetched(stage, pods[order[nth]])
