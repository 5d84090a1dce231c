"""A create meets a pod of its name: it is taken for what it is, and the job ends whatever it is."""

import pytest
from returning import LiveWorld

from punctual.kube.cluster.pod_manifest import chunk_pod
from punctual.kube.known.jobs import Owner
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec

TEMPLATE = {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}
LONG_AGO = 3600.0


@pytest.fixture
async def world():
    async with LiveWorld() as made:
        yield made


def reduce_pod(job):
    """Return the pod of the job's first attempt to reduce."""
    meta, spec = job["metadata"], job["spec"]
    owner = Owner(meta["uid"], "ns", meta["name"], "main", spec["units"])
    units = spec["units"]
    chunk = Chunk(
        begin=units, end=units + 1, origin=units + 1, node="n1", attempt=1, created=0.0, promised_end=1.0, kind="Reduce"
    )
    return chunk_pod(owner, chunk, TEMPLATE, processor=PoolSpec(name="main", cpu=1.0, memory=2**26), epoch=1)


def there(world, job, *, age, phase, stranger=False):
    """Let a pod be there that has the name of the job's reduce pod."""
    body = reduce_pod(job)
    if stranger:
        body["metadata"] |= {"labels": {}, "annotations": {}, "ownerReferences": []}
    pod = world.server.add_pod(body, age=age)
    if stranger:
        world.server.be(pod, phase)
    else:
        world.server.run(pod)
        if phase != "Running":
            (world.server.succeed if phase == "Succeeded" else world.server.fail)(pod)
    return pod


def in_phase(world, phase):
    """Return the uids of the pods in a phase."""
    return [pod["metadata"]["uid"] for pod in world.server.living.values() if pod["status"]["phase"] == phase]


@pytest.mark.parametrize(
    ("what", "reduces"),
    [
        ({"age": LONG_AGO, "phase": "Succeeded"}, 2),
        ({"age": LONG_AGO, "phase": "Failed"}, 1),
        ({"age": LONG_AGO, "phase": "Running"}, 1),
        ({"age": 0.0, "phase": "Succeeded"}, 1),
        ({"age": 0.0, "phase": "Running"}, 1),
        ({"age": LONG_AGO, "phase": "Succeeded", "stranger": True}, 1),
        ({"age": 0.0, "phase": "Running", "stranger": True}, 1),
    ],
    ids=[
        "ours, ended long ago",
        "ours, failed long ago",
        "ours, runs since long",
        "ours, has just ended",
        "ours, runs",
        "a stranger's, ended",
        "a stranger's, runs",
    ],
)
async def test_a_job_whose_reduce_pod_has_the_name_of_another_ends(world, what, reduces):
    """The reduce of this very attempt counts; that of an attempt long before its chunk does not, nor its failure."""
    job = world.job("job", chunkRetries=0, reduce={"duration": "1s", "template": TEMPLATE})
    leader = world.replica()
    pod = there(world, job, **what)
    world.server.runs = True
    leader.lead(1)
    if what == {"age": 0.0, "phase": "Running"}:
        await world.until(lambda: "Reduce" in str(world.status(job).get("chunks")))
        world.server.succeed(pod)
    await world.until(lambda: world.status(job).get("state") == "Completed")
    ran = [kind for _, kind, _, _ in world.server.succeeded if kind == "Reduce"]
    if what.get("stranger"):
        assert pod["metadata"]["uid"] in in_phase(world, what["phase"])
    elif what["phase"] == "Running":
        await world.until(lambda: pod["metadata"]["uid"] not in in_phase(world, "Running"))
    assert len(ran) == reduces
