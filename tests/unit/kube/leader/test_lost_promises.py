"""What the API server's store has lost is told where pods still show it, and nothing else is."""

import orjson
import pytest

from punctual import wire
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.pod_manifest import chunk_pod
from punctual.kube.known.jobs import Owner
from punctual.kube.leader.lost_promises import MOST, WITHIN, Fall
from punctual.labels import BEGIN, JOB_UID_LABEL
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec


async def leads(world, epoch=2, *, fall=None):
    leader = world.replica()
    leader.lead(epoch, fall=fall)
    await world.until(lambda: leader.term.leads)
    return leader


def hear(leader, **pods):
    """Let the agent report pods: their jobs by uid."""
    reported = [wire.PodReport(uid=uid.replace("_", "-"), job=job, over="over" in uid) for uid, job in pods.items()]
    leader.term.heard(wire.Report(node="n1", instance="a", sequence=1, pods=reported))


def lost(world):
    return sorted(name for name, reason in world.server.events if reason == "PromiseLost")


async def only(world, leader, *names):
    """Wait for the event about a job that is asked for last, and assert which others there were."""
    hear(leader, last="ns/last")
    await world.until(lambda: "last" in lost(world))
    assert lost(world) == sorted([*names, "last"])


@pytest.mark.parametrize(("fall", "told"), [(Fall(3, 8, 0.0), 1), (None, 0)])
async def test_a_term_that_begins_above_the_agents_epochs_says_so_on_each_pool(world, fall, told):
    leader = await leads(world, 9, fall=fall)
    await only(world, leader)
    assert world.server.events.count(("main", "EpochsFellBack")) == told
    if told:
        note = world.server.notes["main"]
        assert "heard another leader with epoch 8" in note
        assert "this one had epoch 3" in note
        assert "goes on with epoch 9" in note


async def test_a_pod_that_the_store_has_lost_tells_of_its_jobs_promise(world):
    leader = await leads(world)
    hear(leader, ghost="ns/lost")
    await world.until(lambda: lost(world) == ["lost"])
    assert "pod ghost runs on node n1, and the API server does not have it, nor this job" in world.server.notes["lost"]
    assert "create the job again" in world.server.notes["lost"]


async def test_a_job_that_is_answered_again_is_told_that_an_earlier_promise_is_lost(world):
    job = world.job("again")
    leader = await leads(world)
    await world.until(lambda: world.admitted(job))
    hear(leader, ghost="ns/again")
    await world.until(lambda: lost(world) == ["again"])
    assert "The job was answered again, or will be" in world.server.notes["again"]


async def test_what_was_answered_by_the_leader_that_found_the_fall_was_answered_again(world):
    """It led for a moment with an epoch that was too low, and answered what it found."""
    job = world.job("again")
    before = world.server.clock.now()
    await world.promised(job)
    leader = await leads(world, 9, fall=Fall(1, 8, before))
    hear(leader, ghost="ns/again")
    await world.until(lambda: lost(world) == ["again"])
    assert leader.term.began == before


async def test_a_promise_that_is_on_record_is_not_lost(world):
    job = world.job("kept")
    await world.promised(job)
    stored = world.status(job)["conditions"]
    world.say(job, conditions=[{**one, "lastTransitionTime": "2026-01-01T00:00:00Z"} for one in stored])
    leader = await leads(world)
    hear(leader, ghost="ns/kept")
    await only(world, leader)


async def test_what_tells_of_no_loss_is_not_told(world):
    leader = await leads(world)
    late = {"metadata": {"name": "late", "namespace": "ns"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = world.server.ask("POST", PODS.path(namespace="ns"), late)  # its watch has not said so yet
    hear(leader, over="ns/ended", unnamed=None, **{made["metadata"]["uid"].replace("-", "_"): "ns/late"})
    await only(world, leader)


async def test_reports_are_looked_at_while_a_term_is_young(world, monkeypatch):
    leader = await leads(world)
    clock = world.server.clock
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + WITHIN + 1)
    hear(leader, old="ns/old")
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    await only(world, leader)


async def test_a_node_cannot_have_any_number_of_jobs_looked_at(world):
    leader = await leads(world)
    hear(leader, **{f"p{number}": f"ns/j{number}" for number in range(MOST + 5)})
    assert len(leader.term._parts.lost._seen) == MOST


@pytest.mark.parametrize("fall", [Fall(3, 8, 0.0), None])
async def test_pods_of_an_earlier_job_of_the_name_tell_of_its_promise_after_a_fall(world, fall):
    job = world.job("back")
    owner = Owner("before", "ns", "back", "main", 100)
    chunk = Chunk(begin=0, end=9, origin=9, node="n1", attempt=1, created=0.0, promised_end=9.0)
    template = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}
    pod = chunk_pod(owner, chunk, template, processor=PoolSpec(name="main", cpu=1.0, memory=64 * 2**20), epoch=1)
    pod = world.server.ask("POST", PODS.path(namespace="ns"), pod)
    replica = world.replica()
    replica.see_pod(world.server.be(pod, "Running"))
    replica.lead(9, fall=fall)
    await world.until(lambda: world.admitted(job))
    if fall is not None:
        await world.until(lambda: lost(world) == ["back"])
    await only(world, replica, *(["back"] if fall else []))


async def test_a_job_that_a_backup_tool_creates_again_goes_on_from_its_old_status(world):
    """It has another uid, and the status of an earlier epoch: what was accounted there is not done again."""
    job = world.job("back")
    await world.promised(job)
    done = [{"begin": 0, "end": 40}]
    backup = {**world.status(job), "completed": done}
    backup["chunks"] = [{**chunk, "begin": 40} for chunk in backup["chunks"]]
    leader = await leads(world, 5)
    world.remove(job)
    leader.observe("DELETED", job)
    again = world.server.put("DivisibleJob", "back", "ns", spec=job["spec"], status=backup)
    assert again["metadata"]["uid"] != job["metadata"]["uid"]
    leader.observe("ADDED", again)
    created = await world.until(
        lambda: [p for p in world.server.pods if p["metadata"]["labels"][JOB_UID_LABEL] == again["metadata"]["uid"]]
    )
    assert min(int(pod["metadata"]["annotations"][BEGIN]) for pod in created) == 40
    status = world.status(again)
    assert status["completed"] == done
    assert status["epoch"] == 5


async def test_an_old_status_that_comes_after_the_leaders_answer_is_refused(world):
    job = world.job("back")
    await world.promised(job)
    backup = {**world.status(job), "completed": [{"begin": 0, "end": 40}]}
    leader = await leads(world, 5)
    world.remove(job)
    leader.observe("DELETED", job)
    again = world.job("back")
    leader.observe("ADDED", again)
    await world.until(lambda: world.status(again).get("epoch") == 5)
    path = f"{world.path(again)}/status"
    body = orjson.dumps({**world.server.objects[world.path(again)], "status": backup})
    assert world.server.answer("PUT", path, {}, {}, body).code == 422
    assert "completed" not in world.status(again)
