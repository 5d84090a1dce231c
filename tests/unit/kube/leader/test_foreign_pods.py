"""What pods take of a pool's nodes: none hides what it requests, whatever it claims, and none counts twice."""

import pytest

from punctual import errors
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.pod_manifest import chunk_pod, owner_reference
from punctual.kube.known.jobs import Owner
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec

PROCESSOR = PoolSpec(name="main", cpu=1.0, memory=64 * 2**20)


def claiming(world, job, kind, cpu, *, pool="main", attempt=77, phase="Running"):
    """Make a bound pod as its job's owner can: named and labelled like a chunk's."""
    about = job["metadata"]
    owner = Owner(about["uid"], about["namespace"], about["name"], pool, 100)
    chunk = Chunk(begin=0, end=9, origin=9, node="n1", attempt=attempt, created=0.0, promised_end=9.0, kind=kind)
    template = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
    made = chunk_pod(owner, chunk, template, processor=PROCESSOR, epoch=1)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    assert made["metadata"]["ownerReferences"] == [owner_reference(owner)]
    made = world.server.ask("POST", PODS.path(namespace="ns"), made)
    return world.server.be(made, phase) if phase == "Running" else made


def gone(leader, body):
    leader.caches.informers[1]._tell_deleted(body)


def ends(world, pod):
    """Return whether a pod is the one that was ended."""
    return world.server.deleted == [(pod["metadata"]["name"], pod["metadata"]["uid"])]


def counts(world):
    """Return the processors of the pool and the free ones, as its status says."""
    status = world.status(world.pool)
    return status.get("processors"), status.get("free")


async def lead(world, *bodies, epoch=1):
    """Return a leader that has answered these jobs."""
    leader = world.replica()
    leader.lead(epoch)
    await world.until(lambda: all(world.admitted(body) for body in bodies) and counts(world)[0] is not None)
    return leader


@pytest.mark.parametrize("what", ["ended", "guest", "no pool", "waiting", "another kind"])
@pytest.mark.parametrize("when", ["in the term", "before the term"])
async def test_a_pod_that_claims_to_be_a_chunk_takes_what_it_requests(world, what, when):
    kind, pool = "Guest", "main"
    if what == "guest":
        job = world.job("own", **{"class": "Guest"})
    elif what == "no pool":
        kind, pool = "Chunk", "other"
        job = world.job("own", pool="other")
    elif what == "waiting":
        kind = "Chunk"
        job = world.job("own")
        world.server.broken[PODS.path(namespace="ns"), "try"] = errors.Busy(
            "a webhook does not answer", retry_after=9.0
        )
    else:
        job = world.job("own", suspend=True)
    before = world.replica()
    before.lead(1)
    await world.until(lambda: counts(world) == (4, 4))
    await before.end()
    leader = world.replica() if when == "before the term" else before
    pod = claiming(world, job, kind, "3", pool=pool)
    if when == "before the term":
        leader.see_pod(pod)
    leader.lead(2)
    await world.until(lambda: leader.term.leads)
    if when == "in the term":
        leader.see_pod(pod)
    await world.until(lambda: counts(world) == (1, 1))
    if what == "guest":
        await world.until(lambda: pod["metadata"]["uid"] in [uid for _, uid in world.server.deleted])
    gone(leader, pod)
    await world.until(lambda: counts(world) == (4, 4))


@pytest.mark.parametrize(("cpu", "found"), [("3", (2, 1)), ("1", (4, 3)), ("500m", (3, 3))])
async def test_a_claimed_chunk_of_a_running_job_takes_what_it_requests_until_it_is_ended(world, cpu, found):
    job = world.job("own", suspend=True)
    leader = await lead(world, job)
    pod = claiming(world, job, "Chunk", cpu)
    leader.see_pod(pod)
    await world.until(lambda: counts(world) == found)
    await world.until(lambda: ends(world, pod))
    gone(leader, pod)
    await world.until(lambda: counts(world) == (4, 4))


async def test_a_claimed_chunk_that_is_bound_nowhere_takes_nothing(world):
    job = world.job("own", suspend=True)
    leader = await lead(world, job)
    pod = claiming(world, job, "Chunk", "400", phase="Pending")
    leader.see_pod(pod)
    await world.until(lambda: ends(world, pod))
    assert counts(world) == (4, 4)


async def test_a_chunks_pod_that_turns_out_larger_takes_what_it_requests_and_a_new_leader_counts_the_same(world):
    job = world.job("own", processors={"max": 1})
    leader = await lead(world, job)
    await world.until(lambda: world.server.pods)
    await world.until(lambda: counts(world) == (4, 3))
    pod = world.server.be(world.server.pods[0], "Running")
    injected = {"name": "injected", "resources": {"requests": {"cpu": "1500m"}}}
    pod = world.found(pod, spec={**pod["spec"], "containers": [*pod["spec"]["containers"], injected]})
    leader.see_pod(pod)
    await world.until(lambda: counts(world) == (2, 1))
    await leader.end()
    again = await lead(world, epoch=2)
    again.see_pod(pod)
    await world.until(lambda: counts(world) == (2, 1))
    gone(again, pod)
    await world.until(lambda: counts(world)[0] == 4)


async def test_a_pod_that_outlives_its_job_is_counted_once(world):
    job = world.job("own", processors={"max": 1})
    leader = await lead(world, job)
    await world.until(lambda: world.server.pods)
    pod = world.server.be(world.server.pods[0], "Running")
    leader.see_pod(pod)
    leader.observe("DELETED", job)
    await world.until(lambda: world.server.deleted)
    await world.until(lambda: counts(world) == (4, 3))
    await leader.end()
    world.remove(job)
    again = world.replica()
    again.see_pod(pod)
    again.lead(2)
    await world.until(lambda: again.term.leads)
    await world.until(lambda: counts(world) == (3, 3))


async def test_pods_of_a_guest_job_that_is_gone_are_ended(world):
    job = world.job("own", **{"class": "Guest"})
    leader = await lead(world, job)
    pod = claiming(world, job, "Guest", "0")
    leader.caches.pods.expect(
        leader.caches.directory.jobs[job["metadata"]["uid"]].owner, [f"ns/{pod['metadata']['name']}"]
    )
    leader.observe("DELETED", job)
    leader.see_pod(pod)
    await world.until(lambda: ends(world, pod))
    assert counts(world) == (4, 4)
