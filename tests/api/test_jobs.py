"""Deadlines for ordinary Jobs, against a real API server: what it lets the operator change about Jobs and their pods.

The test plays the Job's controller and the kubelet.
"""

import asyncio
import copy
import itertools
import runpy
from pathlib import Path

import pytest
from batch_bodies import owned_by_job

from punctual import errors
from punctual.kube.api.resources import BATCH_JOBS, JOBS, PODS
from punctual.labels import GATE, JOB_UID_LABEL
from punctual.notation.duration import parse_time

OPERATOR = runpy.run_path(str(Path(__file__).parent / "test_operator.py"))
replica = OPERATOR["replica"]
condition = OPERATOR["condition"]
SIZE = {"requests": {"cpu": "1", "memory": "64Mi"}}


class World(OPERATOR["World"]):
    """With ordinary Jobs."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self._pods = itertools.count()

    async def add(self, name="nightly", **more):
        """Create a Job; return it as the API server has it."""
        made = await self.client.create(BATCH_JOBS.path(namespace=self.namespace), self.body(name, **more))
        self.clean_up(name)
        return made

    def clean_up(self, name):
        self._cleanup.append(self.at(name))
        self._cleanup.append(JOBS.path(namespace=self.namespace, name=name))

    def body(self, name, *, completions=4, parallelism=4, suspend=True, resources=SIZE, labels=None, **annotations):
        notes = {"punctual.dev/deadline": "10m", "punctual.dev/cost-per-unit": "5s", **annotations}
        container = {"name": "main", "image": "work:1", "resources": resources}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"punctual.dev/pool": self.pool} if labels is None else labels,
                "annotations": {key: value for key, value in notes.items() if value},
            },
            "spec": {
                "suspend": suspend,
                "completions": completions,
                "parallelism": parallelism,
                "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }

    def at(self, name="nightly"):
        return BATCH_JOBS.path(namespace=self.namespace, name=name)

    async def job(self, name="nightly"):
        return await self.client.get(self.at(name))

    async def says(self, state, name="nightly"):
        """Wait until a Job's annotations say a state; return them."""

        async def holds():
            notes = (await self.job(name))["metadata"].get("annotations") or {}
            return notes if notes.get("punctual.dev/state") == state else None

        return await self.until(holds)

    async def opened(self, name="nightly"):
        """Wait until a Job is not suspended."""

        async def holds():
            job = await self.job(name)
            return None if job["spec"].get("suspend") else job

        return await self.until(holds)

    async def add_pod(self, job, index):
        """Create the pod of an index, as the Job's controller would."""
        meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        labels = (template.get("metadata") or {}).get("labels") or {}
        body = {
            "metadata": {
                "name": f"{meta['name']}-{index}-{next(self._pods)}",
                "labels": labels,
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                "ownerReferences": [owned_by_job(meta["name"], meta["uid"])],
            },
            "spec": template["spec"],
        }
        return await self.client.create(PODS.path(namespace=self.namespace), body)

    async def pod(self, made):
        return await self.client.get(PODS.path(namespace=self.namespace, name=made["metadata"]["name"]))

    async def started(self, made):
        """Wait until a pod has lost the gate; return it."""

        async def holds():
            pod = await self.pod(made)
            return None if pod["spec"].get("schedulingGates") else pod

        return await self.until(holds)

    async def bind(self, pod):
        """Bind a pod, as kube-scheduler would by its selector."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": target}
        path = PODS.path(namespace=self.namespace, name=pod["metadata"]["name"], subresource="binding")
        await self.client.create(path, body)


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    await made.add_node(cpu="2")
    await made.add_pool()
    yield made
    await made.clean()


async def test_a_job_is_promised_and_its_pods_start_one_after_the_other(world, replica):
    await replica()
    made = await world.add(completions=4, parallelism=2)
    job = await world.opened()
    assert {"name": GATE} in job["spec"]["template"]["spec"]["schedulingGates"]
    notes = await world.says("Running")
    assert {"punctual.dev/eta", "punctual.dev/slack"} <= notes.keys()
    divisible = await world.client.get(JOBS.path(namespace=world.namespace, name="nightly"))
    assert divisible["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    due = parse_time(made["metadata"]["creationTimestamp"]) + 600
    assert parse_time(divisible["status"]["promise"]["deadline"]) == due
    for index in range(4):
        pod = await world.started(await world.add_pod(job, index))
        assert pod["metadata"]["labels"][JOB_UID_LABEL] == divisible["metadata"]["uid"]
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == world.node
        assert "punctual.dev/pool" in {one["key"] for one in pod["spec"]["tolerations"]}
        await world.bind(pod)
        await world.begin(pod)
        await world.end(pod, message="not a result")
    status = await world.answered(divisible, kind="Completed")
    assert status["units"]["done"] == 4
    assert "results" not in status
    assert (await world.says("Completed"))["punctual.dev/message"].startswith("4 units done")


async def test_a_refused_job_stays_suspended_until_the_offer_is_taken(world, replica):
    await replica()
    await world.add(completions=40, **{"punctual.dev/deadline": "30s"})
    notes = await world.says("Refused")
    assert (await world.job())["spec"]["suspend"]
    edit = {"metadata": {"annotations": {"punctual.dev/deadline": notes["punctual.dev/offer"]}}}
    await world.client.patch_merge(world.at(), edit)
    await world.opened()
    notes = await world.says("Running")
    assert "punctual.dev/offer" not in notes


WRONG = {
    "no duration": ({"punctual.dev/deadline": "soon"}, "metadata.annotations[punctual.dev/deadline]"),
    "both": ({"punctual.dev/deadline-time": "2030-01-02T15:04:05Z"}, "not both"),
    "too large": ({"resources": {"requests": {"cpu": "3"}}}, "a processor of the pool has 1"),
    "no requests": ({"resources": {}}, "resources.requests.cpu"),
    "begun already": ({"suspend": False}, "spec.suspend: true"),
}


async def test_a_job_that_cannot_be_asked_for_is_told_what_would_be_right(world, replica):
    await replica()
    for number, (more, said) in enumerate(WRONG.values()):
        await world.add(f"wrong-{number}", **more)
        assert said in (await world.says("Refused", f"wrong-{number}"))["punctual.dev/message"]
        with pytest.raises(errors.NotFound):
            await world.client.get(JOBS.path(namespace=world.namespace, name=f"wrong-{number}"))


async def test_a_suspended_job_gives_its_promise_up_and_asks_again(world, replica):
    await replica()
    await world.add()
    await world.opened()
    await world.says("Running")
    await world.client.patch_merge(world.at(), {"spec": {"suspend": True}})
    await world.says("Suspended")
    await world.client.patch_merge(world.at(), {"spec": {"suspend": False}})
    await world.says("Running")


async def test_the_plugin_submits_a_job_and_takes_its_offer(world, replica, plugin):
    async def submit(name, status, *words, **notes):
        body = world.body(name, completions=600, parallelism=2, **notes)
        world.clean_up(name)
        found = await asyncio.to_thread(plugin, "punctual", "submit", "-", *words, stdin=body)
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout

    await replica()
    refused = await submit("short", 1, **{"punctual.dev/deadline": "5m"})
    assert "short created: refused" in refused
    taken = await submit("taken", 0, "--accept-offer", **{"punctual.dev/deadline": "5m"})
    assert "taken created: promised by pool" in taken
    assert "with the deadline that was offered" in taken
    flawed = await submit("flawed", 1, **{"punctual.dev/deadline": "soon"})
    assert "'soon' is not a duration" in flawed
