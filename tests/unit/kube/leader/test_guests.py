"""Guest jobs in a leader's term: their pods, what agents are told, takeovers, decisions."""

import asyncio
import json

import pytest

from punctual import errors, wire
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.pod_manifest import STEP
from punctual.notation.duration import format_time, parse_time

STAMP = "2030-01-01T00:00:00Z"


def guest(world, name, **spec):
    return world.job(name, **{"class": "Guest", "cost": {"perUnit": "10s"}, **spec})


def report(leader, *pods, hosts=None, **host):
    """Let the agent of the node report."""
    hosts = wire.Hosts(cores=4.0) if hosts is None else hosts
    said = wire.NodeReport(**{"hosts": hosts, "guest_priority": "weight", **host})
    leader.term.heard(wire.Report(node="n1", instance="a", sequence=1, host=said, pods=pods))


async def lent(world, **spec):
    """Return a leader with a guest job that has four pods, which run."""
    job = guest(world, "filler", **spec)
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: leader.term.leads)
    report(leader)
    await world.until(lambda: len(world.server.pods) == 4)
    for pod in world.server.pods:
        leader.see_pod(world.server.be(pod, "Running"))
    await world.until(lambda: len(set_points(leader)) == 4)
    return leader, job


def uids(pods):
    return [pod["metadata"]["uid"] for pod in pods]


def set_points(leader):
    """Return what the agent of the node is told, by pod."""
    answer = leader.term._given.set_points.answer("n1", now=0.0, epoch=1, pods={})
    return {point.uid: point for point in answer.pods}


async def test_a_guest_job_runs_wherever_its_pools_nodes_have_room_without_a_promise(world):
    _, job = await lent(world)
    status = world.status(job)
    assert world.admitted(job) == "Guest"
    assert "promise" not in status
    assert status["applied"] == {"suspend": False}
    assert {chunk["kind"] for chunk in status["chunks"]} == {"Guest"}
    assert {pod["metadata"]["labels"]["punctual.dev/kind"] for pod in world.server.pods} == {"Guest"}
    assert {json.dumps(pod["spec"]["containers"][0]["resources"]) for pod in world.server.pods} == {
        '{"requests": {}, "limits": {}}'
    }


async def test_agents_are_told_which_pods_are_guests_until_they_are_gone(world):
    leader, _ = await lent(world)
    told = set_points(leader)
    assert {(p.cap, p.rest_cap, p.mode) for p in told.values()} == {(0.01, 0.01, wire.GuestOrder(weight=100))}
    gone, *left = world.server.pods
    leader.caches.informers[1]._tell_deleted(gone)
    await world.until(lambda: set_points(leader).keys() == set(uids(left)))


@pytest.mark.parametrize(
    "host", [{"hosts": None}, {"can_write": False}, {"guest_priority": None}], ids=["unknown", "read-only", "no-cgroup"]
)
async def test_no_guest_starts_where_its_agent_cannot_hold_it_down(world, host):
    job = guest(world, "filler")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.admitted(job))
    said = wire.NodeReport(**{"hosts": wire.Hosts(cores=4.0), "guest_priority": "weight", **host})
    for _ in range(3):
        leader.term.heard(wire.Report(node="n1", instance="a", sequence=1, host=said))
        await asyncio.sleep(0.05)
    assert not world.server.pods
    report(leader)
    await world.until(lambda: world.server.pods)


async def test_a_guest_takes_no_processor_from_promises(world):
    leader, _ = await lent(world)
    promised = world.job("promised", processors={"min": 4})
    leader.observe("ADDED", promised)
    await world.until(lambda: world.status(promised).get("promise"))
    await world.until(lambda: len(world.server.pods) == 8)
    assert world.status(world.pool)["processors"] == 4


def edit_pool(world, *, finalizers=(), **spec):
    """Edit the pool unseen."""
    world.pool = world.server.put("Pool", "main", spec={**world.pool["spec"], **spec}, finalizers=finalizers)


def pods_of(world, kind):
    return [pod for pod in world.server.pods if pod["metadata"]["labels"]["punctual.dev/kind"] == kind]


async def guests_run(world, leader, many):
    """Let an agent report until so many guests have pods, and let those run."""

    def made():
        report(leader)
        return len(pods_of(world, "Guest")) == many

    await world.until(made)
    for pod in pods_of(world, "Guest"):
        leader.see_pod(world.server.be(pod, "Running"))
    await world.until(lambda: len([one for one in set_points(leader).values() if one.mode.kind == "Guest"]) == many)


@pytest.mark.parametrize(("ahead", "state"), [(600, "Booked"), (4, "Active")])
async def test_guests_run_on_reserved_processors_before_their_window_and_in_it(world, ahead, state):
    edit_pool(world, reservations={"namespaces": ["ns"], "horizon": "1d"})
    now = world.server.clock.now()
    times = {"start": format_time(int(now) + ahead), "end": format_time(int(now) + ahead + 3600)}
    window = world.server.put("Reservation", "night", "ns", spec={"pool": "main", "processors": 4, **times})
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.status(window).get("state") == state)
    leader.observe("ADDED", guest(world, "filler"))
    await guests_run(world, leader, 4)
    assert world.status(window)["state"] == state


async def test_guests_run_on_the_processors_of_promised_chunks_that_wait_for_the_port(world):
    edit_pool(world, network="OnePort")
    cost = {"perUnit": "1s", "transferPerUnit": "2s"}
    data = {"http": {"url": "http://files/data"}}
    promised = world.job("promised", units=40, cost=cost, input=data, processors={"min": 4}, deadline="1h")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: len(pods_of(world, "Chunk")) == 4)
    for pod in pods_of(world, "Chunk"):
        assert [step["name"] for step in pod["spec"]["initContainers"]] == [STEP]
        leader.see_pod(world.server.be(pod, "Pending"))
    turns = [parse_time(chunk["inputTime"]) for chunk in world.status(promised)["chunks"]]
    assert len(set(turns)) == 4  # one after the other
    leader.observe("ADDED", guest(world, "filler"))
    await guests_run(world, leader, 4)


async def test_a_new_leader_goes_on_with_the_pods_that_there_are(world):
    leader, job = await lent(world)
    chunks = world.status(job)["chunks"]
    await leader.end()
    world.replicas.remove(leader)
    new = world.replica()
    for pod in world.server.living.values():
        new.see_pod(pod)
    new.lead(2)
    await world.until(lambda: world.status(job)["epoch"] == 2)
    report(new)
    await world.until(lambda: len(set_points(new)) == 4)
    assert len(world.server.pods) == 4
    assert world.status(job)["chunks"] == chunks


async def test_a_decision_is_told_on_its_pod(world):
    leader, _ = await lent(world, restart="Resume")
    busy = wire.Hosts(cores=4.0, used=3.6, busy=True, age=1.0, mean=3.6)
    pods = [wire.PodReport(uid=uid, done=1, cpu_seconds=1.0) for uid in uids(world.server.pods)]
    report(leader, *pods, hosts=busy)
    names = {pod["metadata"]["name"] for pod in world.server.pods}
    await world.until(lambda: {(name, "GuestStays") for name in names} <= set(world.server.events))
    assert not any("Busy times" in world.server.notes[name] for name in names), "it was not busy before"


async def test_a_decision_tells_how_long_the_node_was_busy_before(world):
    leader, _ = await lent(world, restart="Resume")
    pods = [wire.PodReport(uid=uid, done=1, cpu_seconds=1.0) for uid in uids(world.server.pods)]
    busy = [wire.Hosts(cores=4.0, used=used, busy=True, age=age, mean=used) for age, used in ((130.0, 2.0), (1.0, 3.6))]
    report(leader, hosts=busy[0])
    report(leader)
    report(leader, *pods, hosts=busy[1])
    [told, *_] = [pod["metadata"]["name"] for pod in world.server.pods]
    await world.until(lambda: told in world.server.notes)
    assert world.server.notes[told].endswith("Busy times of n1 before, the newest first: 2m10s at 50%.")
    assert world.server.notes[told].startswith("This chunk stays on node n1.")


async def test_the_history_of_a_node_ends_with_the_node(world):
    leader, _ = await lent(world)
    guests = leader.term._parts.guests
    assert guests._histories.keys() == {"n1"}
    leader.caches.inventory.forget_node("n1")
    await world.until(lambda: not guests._histories)


async def test_an_edit_of_the_pool_changes_what_its_guests_do(world):
    leader, _ = await lent(world)
    spec = {**world.pool["spec"], "guests": {"policy": "PauseAndMigrate"}}
    leader.observe("MODIFIED", world.server.put("Pool", "main", spec=spec))
    busy = wire.Hosts(cores=4.0, used=3.6, busy=True, age=1.0, mean=3.6)

    def paused():
        report(leader, hosts=busy)
        return all(point.mode.paused for point in set_points(leader).values())

    await world.until(paused)


async def test_a_refused_pod_of_a_guest_is_tried_again_later_and_the_job_stays(world):
    job = guest(world, "filler")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.admitted(job))
    path = PODS.path(namespace="ns")
    world.server.broken[path, "post"] = errors.Forbidden("exceeded quota")
    report(leader)
    await world.until(lambda: world.status(job).get("tried") and not world.status(job).get("chunks"))
    assert world.admitted(job) == "Guest"
    assert not world.status(job).get("failed")


async def test_a_guest_job_without_its_pool_waits_for_it_and_goes_when_it_is_deleted(world):
    job = guest(world, "filler", pool="other")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.admitted(job) == "PoolNotFound")
    leader.observe("ADDED", world.server.put("Pool", "other", spec=world.pool["spec"]))
    await world.until(lambda: world.admitted(job) == "Guest")
    leader.observe("DELETED", job)
    await world.until(lambda: job["metadata"]["uid"] not in leader.caches.directory.jobs)


async def test_a_pool_that_is_being_deleted_does_not_wait_for_its_guests(world):
    leader, job = await lent(world)
    edit_pool(world, finalizers=["somebodys/own"])
    leader.observe("MODIFIED", world.server.ask("DELETE", world.path(world.pool)))
    await world.until(lambda: world.admitted(job) == "PoolDeleted")
    report(leader, *(wire.PodReport(uid=uid, done=1, end=2) for uid in uids(world.server.pods)))
    for pod in world.server.pods:
        ended = [{"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": STAMP}}}]
        leader.see_pod(world.server.be(pod, "Succeeded", containerStatuses=ended))
    report(leader, *(wire.PodReport(uid=uid, done=2, end=2, over=True) for uid in uids(world.server.pods)))
    await world.until(lambda: not world.status(job).get("chunks"))
    report(leader)
    assert len(world.server.pods) == 4


async def test_a_report_is_split_once_and_pods_that_are_not_on_the_node_are_counted(world, monkeypatch):
    leader, _ = await lent(world)
    promised = world.job("promised", processors={"min": 1, "max": 1})
    leader.observe("ADDED", promised)
    await world.until(lambda: len(world.server.pods) == 5)
    leader.see_pod(world.server.be(world.server.pods[-1], "Running"))
    leader.see_pod(plain("own", "n1"))
    leader.see_pod(plain("elsewhere", "n2"))
    parts, heard = leader.term._parts, []
    monkeypatch.setattr(parts.guests, "reported", lambda node, _, pods: heard.append([pod.uid for pod in pods]))
    monkeypatch.setattr(parts.rates, "reported", lambda node, pods: heard.append([pod.uid for pod in pods]))
    monkeypatch.setattr(parts.actors, "tell", lambda pool, event: heard.append([pod.pod for pod in event.pods]))
    first, *_, last, chunk = (pod["metadata"]["uid"] for pod in world.server.living.values())
    told = ("own", first, "elsewhere", chunk, "stranger", last)
    report(leader, *(wire.PodReport(uid=uid) for uid in told), wire.PodReport(uid="ended", over=True))
    assert heard == [[chunk], [first, last], ["own"]]
    assert leader.term._given.metrics.refusals.labels("unknownPod")._value.get() == 2.0


def plain(name, node):
    """Return a running pod of a user."""
    meta = {"name": name, "uid": name, "namespace": "lab", "resourceVersion": "1", "creationTimestamp": format_time(0)}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": {"phase": "Running"}}
