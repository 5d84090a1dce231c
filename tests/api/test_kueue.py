"""Jobs of Kueue and of Punctual in one namespace: each starts its own, and neither touches the other's."""

import runpy
from pathlib import Path

import kueue
import pytest

from punctual import errors
from punctual.kube.api.resources import JOBS, NODES, Resource
from punctual.kube.writes.operations import FIELD_MANAGER
from punctual.labels import GATE

JOB_TESTS = runpy.run_path(str(Path(__file__).parent / "test_jobs.py"))
replica = JOB_TESTS["replica"]
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
ELSEWHERE = {"example.com/nodes": "kueue"}
"""Label of the nodes that are Kueue's."""
PLURALS = ("resourceflavors", "clusterqueues", "localqueues", "workloads")
FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS = (Resource(kueue.GROUP, plural) for plural in PLURALS)


class World(JOB_TESTS["World"]):
    """With a queue of Kueue."""

    async def add_queue(self):
        name = self.pool
        for resource, body in (
            (FLAVORS, kueue.flavor(name, ELSEWHERE)),
            (CLUSTER_QUEUES, kueue.cluster_queue(name, name, cpu="100", memory="100Gi")),
            (LOCAL_QUEUES, kueue.local_queue("team", self.namespace, name)),
        ):
            meta = body["metadata"]
            await self.client.create(resource.path(namespace=meta.get("namespace", "")), body)
            self._cleanup.append(resource.path(namespace=meta.get("namespace", ""), name=meta["name"]))


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    await made.add_node(cpu="2")
    await made.add_pool(hold="Taint")
    yield made
    await made.clean()


@pytest.fixture
async def controller(kubeconfig, kubectl, tmp_path):
    """Kueue's own, with its kinds."""
    kueue.teach(kubectl)
    async with kueue.running(kubeconfig, tmp_path):
        yield


def writers(body):
    """Return which controllers have written it: the operator, Kueue, or both."""
    managers = {entry["manager"] for entry in body["metadata"]["managedFields"]}
    return {name for name in (FIELD_MANAGER, "kueue") if any(manager.startswith(name) for manager in managers)}


def notes(body):
    return [name for name in body["metadata"].get("annotations") or {} if name.startswith("punctual.dev/")]


async def workloads(world):
    """Return the names of the Jobs that Kueue has taken."""
    found = await world.client.list(WORKLOADS.path(namespace=world.namespace))
    return {owner["name"] for item in found.items for owner in item["metadata"]["ownerReferences"]}


async def test_each_starts_its_own_jobs_and_one_of_both_is_refused(world, replica, controller):
    await replica()
    await world.add_queue()
    await world.add("theirs", labels=QUEUE, **{"punctual.dev/deadline": "", "punctual.dev/cost-per-unit": ""})
    await world.add("ours", completions=2)
    await world.add("both", labels={**QUEUE, "punctual.dev/pool": world.pool})

    ours = await world.opened("ours")
    assert writers(ours) == {FIELD_MANAGER}
    assert GATE in {gate["name"] for gate in ours["spec"]["template"]["spec"]["schedulingGates"]}
    for index in range(2):
        pod = await world.started(await world.add_pod(ours, index))
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": world.node}
        await world.bind(pod)
        await world.begin(pod)
        await world.end(pod)
    await world.says("Completed", "ours")

    theirs = await world.opened("theirs")
    assert writers(theirs) == {"kueue"}
    assert notes(theirs) == []
    template = theirs["spec"]["template"]["spec"]
    assert template["nodeSelector"] == ELSEWHERE
    assert "schedulingGates" not in template
    node = await world.client.get(NODES.path(name=world.node))
    assert not ELSEWHERE.items() & node["metadata"]["labels"].items()
    held = {taint["key"] for taint in node["spec"]["taints"]}
    assert "punctual.dev/pool" in held - {one["key"] for one in template.get("tolerations") or ()}

    both = await world.opened("both")  # by Kueue
    said = (await world.says("Refused", "both"))["punctual.dev/message"]
    assert said == "it belongs to the queue team of Kueue, which starts it: remove that, or the label punctual.dev/pool"
    assert "schedulingGates" not in both["spec"]["template"]["spec"]
    for name in ("theirs", "both"):
        with pytest.raises(errors.NotFound):
            await world.client.get(JOBS.path(namespace=world.namespace, name=name))
    assert await workloads(world) == {"theirs", "both"}
