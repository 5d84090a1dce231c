"""Inputs on a real API server: pods are told their turn one by one, whatever happens to the operator.

What they take is learned, and what was learned is what jobs are planned with. All must have read the same version.
"""

import json
import time

import pytest
from life import life
from stage import CONTAINER

from punctual.kube.api.resources import JOBS, POOLS, PROFILES
from punctual.kube.cluster.pod_manifest import STEP
from punctual.labels import ATTEMPT, BEGIN, TURN

INPUT = {"http": {"url": "http://files.example.com/data"}, "cut": "Lines"}
OPENING, TAU = 0.002, 0.001
"""Seconds before the first byte and per unit, as input steps tell them: less than anything takes here."""
SIZES = (1, 2, 3, 4, 5, 6)
WORK = 3.0
"""Seconds behind a turn: the operator that gave it and the one that sees the end tell the time within a second each."""
SEEN = {
    "nodeClass": "",
    "units": SIZES,
    "seconds": [0.5 + 100 * n for n in SIZES],
    "transfers": {"units": SIZES, "opening": [OPENING for _ in SIZES], "seconds": [OPENING + TAU * n for n in SIZES]},
}
"""As if six chunks had ended."""


async def fetched(stage, pod, size=3000):
    """Say that a pod has its input, of one unit, and runs; ``size``: of the whole input, as it was then."""
    now = stage._now()
    took = {"bytes": 1000, "waited": 0, "opening": OPENING, "seconds": OPENING + TAU}
    message = json.dumps({**took, "size": size, "validator": f'"{size}"'})
    step = {"terminated": {"exitCode": 0, "startedAt": now, "finishedAt": now, "message": message}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [{**CONTAINER, "name": STEP, "state": step}],
        "containerStatuses": [{**CONTAINER, "state": {"running": {"startedAt": now}}}],
    }
    await stage.client.patch_merge(stage.path(pod), {"status": status}, subresource="status")


async def done(stage, pod, code=0):
    """Say that a pod has ended; not when: however late that is seen, it counts."""
    body = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{**CONTAINER, "state": {"terminated": {"exitCode": code, "message": "done"}}}],
    }
    await stage.client.patch_merge(stage.path(pod), {"status": body}, subresource="status")


async def told(stage):
    """Return the pods that were told that it is their turn, by name."""
    return {p["metadata"]["name"]: p for p in await stage.chunks() if p["metadata"]["annotations"].get(TURN)}


async def planned(stage):
    """Return the pods of chunks on record, in the order in which their inputs are to come."""
    status = (await stage.client.get(JOBS.path(namespace=stage.namespace, name="job")))["status"]
    return [c["pod"] for c in sorted(status["chunks"], key=lambda c: c["inputTime"])]


async def add_profile(stage):
    """Make a profile that knows what six chunks took; return where it is."""
    meta = {"name": "table", "namespace": stage.namespace}
    body = {"apiVersion": PROFILES.version, "kind": "Profile", "metadata": meta, "spec": {}}
    await stage.client.create(PROFILES.path(namespace=stage.namespace), body)
    path = PROFILES.path(namespace=stage.namespace, name="table")
    status = {"status": {"classes": [{"pool": stage.pool, **SEEN}]}}
    await stage.client.patch_merge(path, status, subresource="status")
    return path


@pytest.mark.timeout(300, func_only=True)  # four operators begin
async def test_turns_go_on_one_by_one_as_planned_though_the_operator_is_killed_in_each(client, kubeconfig, tmp_path):
    async with life(client, kubeconfig, tmp_path, plays=False, job=False) as (stage, _, start):
        await client.patch_merge(POOLS.path(name=stage.pool), {"spec": {"network": "OnePort"}})
        profile = await add_profile(stage)
        # one unit each: nothing of a chunk can be given to another
        job = {"units": 3, "processors": {"min": 3, "max": 3}, "cost": None, "reduce": None}
        await stage.add_job(input=INPUT, profile="table", **job)
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
            await stage.add_job(f"asks-{nth}", units=1, processors={"min": 1}, dryRun=True)
            await stage.until(lambda nth=nth: stage.answered(f"asks-{nth}", "DryRun"))
            assert set(await told(stage)) == set(pods)
            await fetched(stage, pods[order[nth]])

        path = JOBS.path(namespace=stage.namespace, name="job")
        cost = (await client.get(path))["status"]["cost"]
        assert (cost["transferPerUnit"], cost["transferSetup"]) == (pytest.approx(TAU), pytest.approx(OPENING))
        assert (cost["perUnit"], cost["startup"]) == (pytest.approx(100.0), pytest.approx(0.5))
        turned = time.monotonic()

        async def worked():
            return time.monotonic() >= turned + WORK

        await stage.until(worked)
        for pod in pods.values():
            await done(stage, pod)

        async def over():
            return (await client.get(path))["status"].get("finishTime")

        await stage.until(over)
        assert await operator.end() == 0  # what it has learned and not written yet it writes now
        status = (await client.get(profile))["status"]
        transfers = status["classes"][0]["transfers"]
        assert transfers["units"] == [*SIZES, 1, 1, 1]
        assert transfers["opening"][6:] == [OPENING] * 3
        assert transfers["seconds"][6:] == [OPENING + TAU] * 3
        assert (status["transferPerUnit"], status["transferSetup"]) == (pytest.approx(TAU), pytest.approx(OPENING))
        assert len(status["classes"][0]["seconds"]) == 9


@pytest.mark.timeout(300, func_only=True)  # two operators begin
async def test_a_job_whose_input_has_grown_fails_whichever_leader_sees_it(client, kubeconfig, tmp_path):
    """Both first pods fetch before anybody knows a version; the second one after lines were added."""
    async with life(client, kubeconfig, tmp_path, plays=False, job=False) as (stage, _, start):
        await stage.add_job(input=INPUT, units=2, cost={"perUnit": "100ms", "startup": "500ms"}, reduce=None)
        path = JOBS.path(namespace=stage.namespace, name="job")
        operator = start()

        async def status():
            return (await client.get(path)).get("status") or {}

        async def begun_with():
            return (await status()).get("input")

        async def again():
            """Return the pod of another attempt at the first unit."""
            found = [p for p in await stage.chunks() if p["metadata"]["annotations"][ATTEMPT] == "2"]
            return found[0] if found else None

        assert await stage.until(lambda: stage.working(2))
        first, second = sorted(await stage.chunks(), key=lambda p: int(p["metadata"]["annotations"][BEGIN]))
        for pod in (first, second):
            assert "PUNCTUAL_INPUT_SIZE" not in environment(pod)
        await fetched(stage, first, 1000)
        seen = await stage.until(begun_with)
        assert (seen["size"], seen["validator"], seen["transfers"]) == (1000, '"1000"', 0)

        # who comes later is told: its step reads no other
        await done(stage, first, code=1)
        later = environment(await stage.until(again))
        assert (later["PUNCTUAL_INPUT_SIZE"], later["PUNCTUAL_INPUT_VALIDATOR"]) == ("1000", '"1000"')

        # who was made before is found, also where it has ended while nobody led
        operator.kill()
        await operator.ended()
        await stage.let_go()
        await fetched(stage, second, 1500)
        await done(stage, second)
        operator = start()

        async def over():
            found = await status()
            return found if found.get("finishTime") else None

        end = await stage.until(over)
        (failed,) = (c for c in end["conditions"] if c["type"] == "Failed" and c["status"] == "True")
        assert failed["reason"] == "InputChanged"
        assert 'an input of 1500 bytes, validator "1500"; the job began with 1000 bytes' in failed["message"]
        assert not end.get("completed")
        assert (end["input"]["size"], end["units"]["done"]) == (1000, 0)
        assert await operator.end() == 0


def environment(pod):
    """Return what a pod's input step is told."""
    (step,) = (c for c in pod["spec"]["initContainers"] if c["name"] == STEP)
    return {e["name"]: e["value"] for e in step["env"]}
