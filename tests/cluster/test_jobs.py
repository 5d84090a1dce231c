"""Ordinary Jobs with a deadline on real nodes: their own controller makes the pods, and Punctual lets each start."""

import asyncio
import json

from gitops import respecting
from lib.testbed import ROOT
from live import POOL, SYSTEM, beside, condition, eventually, pool_status

from punctual.kube.api.resources import BATCH_JOBS, JOBS, PODS
from punctual.labels import GATE, PLACEHOLDER, PROCESSOR

SIZE = {"cpu": "100m", "memory": "64Mi"}
OVER = {"Succeeded", "Failed"}
WORKS = "import os, time; time.sleep({seconds}); print('part', os.environ['JOB_COMPLETION_INDEX'])"


def job(cluster, space, name, *, completions, deadline, seconds=2, size=SIZE):
    container = {
        "name": "main",
        "image": cluster.image,
        "command": ["python", "-c", WORKS.format(seconds=seconds)],
        "resources": {"requests": size, "limits": SIZE},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": space.namespace,
            "labels": {"punctual.dev/pool": POOL},
            "annotations": {"punctual.dev/deadline": deadline, "punctual.dev/cost-per-unit": f"{seconds + 2}s"},
        },
        "spec": {
            "suspend": True,
            "completions": completions,
            "parallelism": completions,
            "completionMode": "Indexed",
            "template": {
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
            },
        },
    }


class Pods:
    """The pods of a Job, as they are seen: how many ran at once, and how often each index began."""

    def __init__(self, client, space, name):
        self._client, self._path = client, PODS.path(namespace=space.namespace)
        self._selector = f"batch.kubernetes.io/job-name={name}"
        self.most = 0
        self.began = {}

    async def follow(self):
        """Look at them, again and again."""
        while True:
            found = (await self._client.list(self._path, label_selector=self._selector)).items
            free = [
                pod for pod in found if not any(g["name"] == GATE for g in pod["spec"].get("schedulingGates") or ())
            ]
            self.most = max(self.most, sum(pod["status"].get("phase") not in OVER for pod in free))
            for pod in free:
                index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
                self.began.setdefault(index, set()).add(pod["metadata"]["uid"])
            await asyncio.sleep(0.2)


async def complete(client, space, name):
    """Return a Job once it is complete."""
    found = await client.get(BATCH_JOBS.path(namespace=space.namespace, name=name))
    return found if condition(found.get("status") or {}, "Complete").get("status") == "True" else None


async def test_a_job_is_promised_its_deadline_and_done_one_pod_after_the_other_on_each_processor(
    cluster, client, space
):
    processors = (await pool_status(client))["processors"]
    count = processors + 4
    pods = Pods(client, space, "parts")
    async with beside(pods.follow()):
        await space.apply(job(cluster, space, "parts", completions=count, deadline="4m"))
        done = await eventually(lambda: complete(client, space, "parts"), within=300, every=0.5)
    assert len(pods.began) == count
    assert {index: len(uids) for index, uids in pods.began.items() if len(uids) > 1} == {}, "no index ran twice"
    assert pods.most <= processors
    divisible = await eventually(lambda: space.is_so("parts", "Completed") and space.status("parts"))
    assert divisible["state"] == "Completed"
    assert divisible["units"]["done"] == count
    notes = done["metadata"]["annotations"]
    assert notes["punctual.dev/state"] in {"Running", "Completed"}


async def test_a_job_without_room_stays_suspended_and_runs_with_the_deadline_that_it_was_offered(
    cluster, client, space
):
    await space.apply(job(cluster, space, "hasty", completions=60, deadline="15s"))
    path = BATCH_JOBS.path(namespace=space.namespace, name="hasty")

    async def offered():
        found = await client.get(path)
        notes = found["metadata"]["annotations"]
        return (found, notes["punctual.dev/offer"]) if notes.get("punctual.dev/state") == "Refused" else None

    found, offer = await eventually(offered)
    assert found["spec"]["suspend"]
    assert not (await client.list(PODS.path(namespace=space.namespace))).items
    assert offer
    edit = {"metadata": {"annotations": {"punctual.dev/deadline": "10m"}}, "spec": {}}
    await space.kubectl("patch", "job", "hasty", "--type=merge", "-p", json.dumps(edit))

    async def begun():
        return not (await client.get(path))["spec"]["suspend"]

    await eventually(begun)
    await space.kubectl("delete", "job", "hasty", "--cascade=foreground", "--wait=false")

    async def gone():
        there = await client.list(JOBS.path(namespace=space.namespace))
        return not there.items and (await pool_status(client))["free"] == (await pool_status(client))["processors"]

    await eventually(gone, within=180, every=0.5)


async def test_what_small_pods_leave_of_their_processors_is_held_while_they_run(cluster, client, space):
    small = {"cpu": "40m", "memory": "64Mi"}
    path = PODS.path(namespace=SYSTEM)

    async def held():
        found = (await client.list(path, label_selector=PLACEHOLDER)).items
        return [pod for pod in found if pod["metadata"]["annotations"][PROCESSOR].startswith("60m ")]

    async def are_bound():
        there = await held()
        return there and all(pod["spec"].get("nodeName") for pod in there)

    async def are_none():
        return not await held()

    await space.apply(job(cluster, space, "small", completions=12, deadline="3m", seconds=5, size=small))
    await eventually(are_bound, within=60, every=0.2)
    await eventually(lambda: complete(client, space, "small"), within=240, every=0.5)
    assert await eventually(lambda: space.is_so("small", "Completed"))
    await eventually(are_none, within=30)


async def test_a_tool_that_applies_a_job_every_second_as_documented_disturbs_nothing(cluster, client, space):
    manifest = job(cluster, space, "synced", completions=8, deadline="4m")
    path = BATCH_JOBS.path(namespace=space.namespace, name="synced")
    pods = Pods(client, space, "synced")

    async def sync():
        while True:
            body = respecting(manifest, await client.get(path))
            await client.apply(path, body, field_manager="argocd-controller")
            await asyncio.sleep(1)

    async def begun():
        return not (await client.get(path))["spec"]["suspend"]

    await client.apply(path, manifest, field_manager="argocd-controller")
    await eventually(begun)
    async with beside(pods.follow()), beside(sync()):
        await eventually(lambda: complete(client, space, "synced"), within=240, every=0.5)
    assert sorted(map(int, pods.began)) == list(range(8))
    assert {index: len(uids) for index, uids in pods.began.items() if len(uids) > 1} == {}, "no index ran twice"
    divisible = await eventually(lambda: space.is_so("synced", "Completed") and space.status("synced"))
    assert divisible["state"] == "Completed"


async def test_a_cronjob_of_the_examples_is_promised(cluster, client, space):
    text = (ROOT / "examples/nightly/cronjob.yaml").read_text().replace("punctual:dev", cluster.image)
    await space.kubectl("apply", "-f", "-", stdin=text.replace("completions: 24", "completions: 4"))
    await space.kubectl("create", "job", "--from=cronjob/nightly", "tonight")
    await eventually(lambda: complete(client, space, "tonight"), within=240, every=0.5)
