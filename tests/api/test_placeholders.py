"""Pools whose room placeholders keep: a real API server with the real scheduler, the test plays the kubelet.

The scheduler is what this is about: who may take whose room, and who has it when it becomes free.
"""

import asyncio
import contextlib
import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest
from kinds import teach

from punctual import errors
from punctual.kube.api.resources import NODES, PODS, POOLS, Resource
from punctual.labels import PLACEHOLDER
from punctual.notation.duration import format_time, parse_time

ROOT = Path(__file__).parents[2]
APISERVER = ROOT / "hack" / "apiserver"
OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses")
MANNER = {
    "priority": 0,
    "chunkClass": "chunks",
    "spec": {
        "priorityClassName": "placeholders",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [{"name": "placeholder", "image": "sleep:1"}],
    },
}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """An API server of this module alone, with a scheduler and the chart's priorities."""
    name = f"placeholders-{os.getpid()}"
    scheduler = None
    try:
        path = subprocess.run([APISERVER, "up", "--name", name], check=True, stdout=-1, text=True).stdout.strip()
        folder = subprocess.run([APISERVER, "bin"], check=True, stdout=-1, text=True).stdout.strip()
        teach(f"{folder}/kubectl", path)
        own = [f"--kubeconfig={path}", "--leader-elect=false", "--secure-port=0", "--authentication-skip-lookup"]
        with (tmp_path_factory.mktemp("scheduler") / "log").open("wb") as log:
            scheduler = subprocess.Popen([f"{folder}/kube-scheduler", *own], stdout=log, stderr=log)
        yield Path(path)
    finally:
        if scheduler:
            scheduler.terminate()
            scheduler.wait()
        subprocess.run([APISERVER, "down", "--name", name], check=True)


class World(OPERATOR["World"]):
    """A node of four processors whose room a pool keeps, and a kubelet."""

    async def prepare(self):
        for name, value, policy in (
            ("placeholders", 0, "Never"),
            ("chunks", 1, "PreemptLowerPriority"),
            ("urgent", 1000, "PreemptLowerPriority"),
        ):
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            with contextlib.suppress(errors.AlreadyExists):
                await self.client.create(CLASSES.path(), body)
        await self.add_node(cpu="4")
        await self.add_pool(hold="Placeholder")

    async def all_pods(self):
        return (await self.client.list(PODS.path(namespace=self.namespace))).items

    async def kubelet(self):
        """Run what is bound but for chunks, and see off what is to go."""
        while True:
            for pod in await self.all_pods():
                path = PODS.path(namespace=self.namespace, name=pod["metadata"]["name"])
                with contextlib.suppress(errors.ClusterError):
                    if pod["metadata"].get("deletionTimestamp"):
                        await self.client.delete(path, uid=pod["metadata"]["uid"], grace=0)
                    elif pod["spec"].get("nodeName") and "startTime" not in pod["status"]:
                        chunk = "punctual.dev/job" in pod["metadata"].get("labels", {})
                        begun = {"startTime": format_time(int(self.client.clock.now()))}
                        await self.set_pod(pod, **begun if chunk else {**begun, "phase": "Running"})
            await asyncio.sleep(0.1)

    async def placeholders(self, *, bound=True):
        """Return {name: uid} of those that are there, not going, and have room or wait for it."""
        return {
            p["metadata"]["name"]: p["metadata"]["uid"]
            for p in await self.all_pods()
            if PLACEHOLDER in p["metadata"].get("labels", {})
            and not p["metadata"].get("deletionTimestamp")
            and bool(p["spec"].get("nodeName")) == bound
        }

    async def keep(self, count):
        """Wait until so many processors are kept."""

        async def kept():
            found = await self.placeholders()
            return (found,) if len(found) == count else None

        return (await self.until(kept))[0]

    async def stranger(self, name, cpu="1", **spec):
        """Create a pod that comes after the hold: times are whole seconds here, and the same one is not later."""

        async def later():
            nodes = (await self.pool_status()).get("nodes") or []
            held = [parse_time(node["heldTime"]) for node in nodes if "heldTime" in node]
            return held and self.client.clock.now() >= max(held) + 2

        await self.until(later)
        here = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        required = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        main = {"name": "main", "image": "other:1", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "metadata": {"name": name},
            "spec": {
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
                "containers": [main],
                "automountServiceAccountToken": False,
                **spec,
            },
        }
        await self.client.create(PODS.path(namespace=self.namespace), body)

    async def is_out(self, name):
        """Whether the scheduler has said that a pod has no room."""
        pod = await self.client.get(PODS.path(namespace=self.namespace, name=name))
        said = OPERATOR["condition"](pod["status"], "PodScheduled")
        return said and said["status"] == "False" and said["reason"] == "Unschedulable"

    async def is_in(self, name):
        pod = await self.client.get(PODS.path(namespace=self.namespace, name=name))
        return bool(pod["spec"].get("nodeName"))

    async def pool_status(self):
        return (await self.client.get(POOLS.path(name=self.pool))).get("status") or {}

    async def has(self, processors):
        async def so():
            return (await self.pool_status()).get("processors") == processors

        await self.until(so)

    async def hold(self, how):
        await self.client.patch_merge(POOLS.path(name=self.pool), {"spec": {"hold": how}})

    async def bound(self, job, count):
        """Wait until so many of a job's pods have their node; return them."""

        async def so():
            pods = {n: p for n, p in (await self.pods(job)).items() if p["spec"].get("nodeName")}
            return pods if len(pods) == count else None

        return await self.until(so)


@pytest.fixture
async def world(client, namespace):
    await client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    made = World(client, namespace)
    await made.prepare()
    kubelet = asyncio.ensure_future(made.kubelet())
    yield made
    kubelet.cancel()
    await asyncio.gather(kubelet, return_exceptions=True)
    await made.clean()


@pytest.fixture
async def replica(kubeconfig, namespace, tmp_path):
    """A function that starts a replica that was told how placeholders are made."""
    started = []

    async def start():
        log = tmp_path / f"replica-{len(started)}.log"
        settings = {"PUNCTUAL_PLACEHOLDER": json.dumps(MANNER)}
        started.append(OPERATOR["Replica"](kubeconfig, namespace, log, **settings))
        return started[-1]

    yield start
    codes = [await one.end() for one in started if one.process.poll() is None]
    for one in started:
        print(one.log.read_text())  # pytest shows it where the test failed  # noqa: T201
    assert codes == [0] * len(codes)


JOB = {"units": 40, "deadline": "20m", "cost": {"perUnit": "1s", "startup": "5s"}}


@pytest.mark.timeout(600, func_only=True)
async def test_a_chunk_gets_the_room_of_a_placeholder_before_a_stranger_who_waits_for_it(world, replica):
    await replica()
    first = await world.keep(4)
    await world.stranger("stranger")
    await world.until(lambda: world.is_out("stranger"))
    job = await world.add_job(**JOB, processors={"min": 2, "max": 2})
    chunks = await world.bound(job, 2)
    left = await world.keep(2)
    assert left.items() < first.items()
    assert await world.is_out("stranger")
    assert {p["spec"]["priorityClassName"] for p in chunks.values()} == {"chunks"}

    # a chunk ends, and who waits may be quicker than a placeholder: it does not count, and goes when a chunk comes
    await world.work(job)
    await world.until(lambda: world.is_in("stranger"))
    await world.keep(3)
    assert (await world.pool_status())["processors"] == 4
    wide = await world.add_job(**JOB, processors={"min": 4, "max": 4})
    assert (await world.answered(wide, "Feasible"))["promise"]["processors"] == 4
    chunks = await world.bound(wide, 4)
    assert {p["metadata"]["annotations"]["punctual.dev/attempt"] for p in chunks.values()} == {"1"}
    with pytest.raises(errors.NotFound):
        await world.client.get(PODS.path(namespace=world.namespace, name="stranger"))
    await world.work(wide)
    assert OPERATOR["condition"](await world.status(wide), "Completed")["status"] == "True"
    await world.keep(4)


@pytest.mark.timeout(600, func_only=True)
async def test_placeholders_come_again_outlive_their_leader_and_go_with_what_they_were_for(world, replica):
    leader = await replica()
    first = await world.keep(4)
    gone, *_ = first
    await world.client.delete(PODS.path(namespace=world.namespace, name=gone))

    async def again():
        now = await world.placeholders()
        return now if len(now) == 4 and gone not in now else None

    first = await world.until(again)

    # who is more important takes the room, as without placeholders
    await world.stranger("urgent", "1500m", priorityClassName="urgent")
    await world.has(2)
    first = await world.keep(2)
    await world.client.delete(PODS.path(namespace=world.namespace, name="urgent"))
    await world.has(4)
    first = await world.keep(4)
    since = (await world.pool_status())["nodes"]

    # somebody comes while nobody leads: the next leader leaves the others where they are
    await leader.kill()
    await world.let_go()
    gone, *_ = first
    await world.stranger("stranger")
    await world.until(lambda: world.is_out("stranger"))
    await world.client.delete(PODS.path(namespace=world.namespace, name=gone))
    await world.until(lambda: world.is_in("stranger"))
    await replica()

    async def waits():
        return await world.placeholders(bound=False)

    await world.until(waits)
    assert (await world.placeholders()).items() == first.items() - {(gone, first[gone])}
    status = await world.pool_status()
    assert (status["processors"], status["nodes"]) == (4, since)
    await world.client.delete(PODS.path(namespace=world.namespace, name="stranger"))
    await world.keep(4)

    # the pool holds otherwise, not at all, and as before; then it goes
    def tainted(wanted):
        async def holds():
            taints = (await world.client.get(NODES.path(name=world.node)))["spec"].get("taints") or []
            return [t["effect"] for t in taints if t["key"] == "punctual.dev/pool"] == wanted

        return holds

    await world.hold("Taint")
    await world.keep(0)
    await world.until(tainted(["NoSchedule"]))
    await world.hold("Placeholder")
    await world.until(tainted([]))
    await world.keep(4)
    await world.hold("None")
    await world.keep(0)

    async def let_go():
        return all("heldTime" not in node for node in (await world.pool_status())["nodes"])

    await world.until(let_go)
    await world.hold("Placeholder")
    await world.keep(4)
    await world.client.delete(POOLS.path(name=world.pool))
    await world.keep(0)


@pytest.mark.timeout(600, func_only=True)
async def test_a_chunk_that_cannot_make_room_itself_is_made_room_for(world, replica):
    """Its template names a class that is no more important than placeholders."""
    await replica()
    await world.keep(4)
    spec = {"containers": [{"name": "main", "image": "work:1"}], "priorityClassName": "placeholders"}
    job = await world.add_job(**JOB, processors={"min": 2, "max": 2}, template={"spec": spec})
    await world.bound(job, 2)
    await world.work(job)
    assert OPERATOR["condition"](await world.status(job), "Completed")["status"] == "True"
    await world.keep(4)
