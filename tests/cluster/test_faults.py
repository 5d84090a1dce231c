"""Parts of Punctual die or are meddled with while jobs run; the jobs must not notice."""

from datetime import datetime

import pytest
from live import (
    POOL,
    SYSTEM,
    agents_never_restarted,
    container,
    covers,
    eventually,
    is_ready,
    note,
    pool_status,
    stalls,
)

from punctual import errors
from punctual.kube.api.resources import JOBS, LEASES, PODS, POOLS


def moment(text):
    return datetime.fromisoformat(text).timestamp()


async def _two_jobs(space):
    """Start a job that ends while nobody leads, and one that ends later; return when both work."""
    cost = {"perUnit": "500ms", "startup": "3s"}
    spec = {"cost": cost, "pause": 0.4, "reduce": "5s", "deadline": "4m"}
    await space.apply(
        space.manifest("short", units=130, processors={"min": 3, "max": 3}, **spec),
        space.manifest("long", units=240, processors={"min": 3, "max": 3}, **spec),
    )
    for name in ("short", "long"):
        assert (await space.answer(name))["reason"] == "Feasible"
        await eventually(lambda name=name: len(space.pods_of(name)) == 3)
        await space.running(name)
    await eventually(lambda: space.status("short")["units"]["done"] > 3)


@pytest.mark.parametrize("how", ["KILL", "STOP"])
async def test_a_leader_that_dies_or_freezes_is_followed_by_the_standby_and_nothing_counts_twice(
    cluster, client, space, how
):
    await eventually(cluster.in_order)
    await _two_jobs(space)
    leader = await eventually(cluster.leader)
    (standby,) = (p for p in cluster.pods("operator") if p["metadata"]["uid"] != leader["metadata"]["uid"])
    epoch = space.status("long")["epoch"]
    pods = {name: {p["metadata"]["name"] for p in space.pods_of(name)} for name in ("short", "long")}
    slowest = max(await _start_ups(client), default=0.0)
    cluster.signal(leader, how)
    killed = client.clock.now()

    async with stalls(client) as lost:
        await eventually(lambda: space.status("long")["epoch"] > epoch)
    lease = (await client.get(LEASES.path(namespace=SYSTEM, name="punctual")))["spec"]
    assert lease["holderIdentity"].startswith(standby["metadata"]["name"])
    took = moment(lease["acquireTime"]) - killed
    assert took <= lease["leaseDurationSeconds"] + 2 + sum(lost)
    await _fenced(client, space, epoch)
    if how == "STOP":  # it wakes up, believing that it leads
        cluster.signal(leader, "CONT")

    for name, units in (("short", 130), ("long", 240)):
        status = await space.end(name)
        assert space.is_so(name, "Completed", "Completed")
        assert moment(status["finishTime"]) <= moment(status["promise"]["deadline"])
        assert status["epoch"] == space.status("long")["epoch"]
        found = space.ranges(name)
        assert covers([r for r, _ in found], units)
        assert sum(int(said) for _, said in found) == units
        # what ran went on: no chunk was done anew
        assert pods[name] == {p["metadata"]["name"] for p in space.pods_of(name) if note(p, "attempt") == 1}
        epochs = [status["epoch"] for _, status in space.written(name)]
        assert epochs == sorted(epochs)
    await _created_late(space)
    await eventually(cluster.in_order, within=180)
    # what ran already when the new leader came did not start slowly: such samples would lengthen every margin
    assert max(await _start_ups(client)) <= max(slowest, 15, *(_started(p) + 5 for p in space.pods.values()))


async def _start_ups(client):
    return (await pool_status(client)).get("startup", {}).get("samples", [])


def _started(pod):
    """Return how many seconds after its creation a pod's container ran, as its kubelet says; 0: it never did."""
    (state,) = (c["state"] for c in pod["status"].get("containerStatuses") or [{"state": {}}])
    at = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return moment(at) - moment(pod["metadata"]["creationTimestamp"]) if at else 0


async def _fenced(client, space, epoch):
    """What a leader of that epoch still writes is refused by the API server, of pools and jobs alike."""
    written = {JOBS.path(namespace=space.namespace, name=name): space.jobs[name] for name in ("short", "long")}
    written[POOLS.path(name=POOL)] = await client.get(POOLS.path(name=POOL))
    for path, body in written.items():
        meta = {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
        late = {**body, "metadata": meta, "status": {**body["status"], "epoch": epoch}}
        with pytest.raises(errors.Fenced):
            await client.apply(path, late, field_manager="punctual-operator", subresource="status")


async def _created_late(space):
    """A pod that an old leader still creates, of an attempt that was accounted long ago, is ended by the new one."""
    pod = space.pods_of("short")[0]
    name, first = pod["metadata"]["name"], pod["metadata"]["uid"]
    await eventually(lambda: name in space.gone)
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "labels", "annotations", "ownerReferences")}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    path = PODS.path(namespace=space.namespace)
    again = await space.client.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert again["metadata"]["uid"] != first
    accounted = space.status("short")

    async def ended():
        try:
            return (await space.client.get(f"{path}/{name}"))["metadata"]["uid"] != again["metadata"]["uid"]
        except errors.NotFound:
            return True

    await eventually(ended)
    assert space.status("short") == accounted


async def test_caps_changed_by_hand_are_put_back_and_a_silent_or_lost_agent_costs_nothing(cluster, space):
    await agents_never_restarted(cluster)
    spec = {"cost": {"perUnit": "500ms", "startup": "3s"}, "pause": 0.4, "deadline": "8m", "reduce": "5s"}
    await space.apply(space.manifest("watched", units=600, processors={"max": 1}, **spec))
    (pod,) = await space.running("watched")
    await eventually(lambda: space.status("watched")["units"]["done"] > 0)
    node = pod["spec"]["nodeName"]

    def agent():
        return next((p for p in cluster.pods("agent") if p["spec"]["nodeName"] == node and is_ready(p)), None)

    def drift():
        return cluster.metrics(agent()["metadata"]["name"], 9464)["punctual_cgroup_drift_total"]

    async def meddle():
        """Narrow the container's cap by hand, and see it put back and counted."""
        inner = next(folder for folder in cluster.caps(pod) if container(pod) in folder)
        assert cluster.caps(pod)[inner] == (10000, 100000)
        before = drift()
        cluster.set_quota(node, inner, 5000)
        await eventually(lambda: cluster.caps(pod)[inner] == (10000, 100000))
        await eventually(lambda: drift() == before + 1)

    await meddle()
    first = agent()
    leader = (await eventually(cluster.leader))["metadata"]["name"]

    def told(series):
        return cluster.metrics(leader, 8080)[series]

    await eventually(lambda: told("punctual_reported_drift") >= 1)
    await eventually(lambda: told("punctual_agents_silent") == 0)
    cluster.signal(first, "STOP")
    await eventually(lambda: told("punctual_agents_silent") == 1)
    cluster.signal(first, "CONT")
    # it has ended itself for having hung; where it has ended before, the kubelet takes its time to start it again
    await eventually(lambda: told("punctual_agents_silent") == 0, within=180)

    cluster.kubectl(
        "delete", "pod", "-n", SYSTEM, first["metadata"]["name"], "--force", "--grace-period=0", "--wait=false"
    )
    await eventually(lambda: agent() and agent()["metadata"]["uid"] != first["metadata"]["uid"])
    done = space.status("watched")["units"]["done"]
    await eventually(lambda: space.status("watched")["units"]["done"] > done)
    await meddle()

    await space.hurry(pod)
    status = await space.end("watched")
    assert space.is_so("watched", "Completed", "Completed")
    assert len(space.pods_of("watched")) == 1
    assert moment(status["finishTime"]) <= moment(status["promise"]["deadline"])
