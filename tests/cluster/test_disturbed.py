"""What is done to jobs that run: deleted in every state, refused their pods, doubled agents and none at all."""

import asyncio
import json

from live import SYSTEM, agent_state, container, covers, eventually, kept_waiting, pool_status

from punctual import errors

QUICK = {"deadline": "4m", "cost": {"perUnit": "300ms", "startup": "3s"}, "pause": 0.2}
LONG = {"deadline": "5m", "cost": {"perUnit": "600ms", "startup": "3s"}, "pause": 0.5}
ONE = {"processors": {"max": 1}}
SLOW_REDUCE = {
    "duration": "60s",
    "template": {
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "command": ["sleep", "300"]}]}
    },
}


async def test_jobs_deleted_in_any_state_refused_their_pods_or_without_their_agent_leave_the_rest_alone(
    cluster, client, space, another, pool
):
    await queued(space)
    limited, doomed = await another(), await another()
    await promised_more_than_the_quota(limited)
    stories = (in_every_state(space), quota(limited), namespace(client, doomed), agents(cluster, space))
    ends = await asyncio.gather(*stories, return_exceptions=True)
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise ExceptionGroup("not as told", failures)
    await eventually(lambda: all_free(client))


async def all_free(client):
    status = await pool_status(client)
    return status["free"] == status["processors"]


async def queued(space):
    """Delete one that waits for its processors, and the one that has them all."""
    for n in range(3):  # what earlier tests have left may still go, and make room for both
        processors = (await pool_status(space.client))["processors"]
        names = f"all-{n}", f"behind-{n}"
        await space.apply(space.manifest(names[0], units=60 * processors, **LONG, processors={"min": processors}))
        await space.running(names[0], processors)
        await space.apply(space.manifest(names[1], units=10, **LONG))
        assert (await space.answer(names[1]))["reason"] == "Feasible"
        waited = not space.pods_of(names[1])
        await space.kubectl("delete", "dj", *reversed(names), "--wait=false")
        await eventually(lambda: not space.jobs)
        await eventually(lambda: all(name in space.gone for name in space.pods))
        if waited and not space.pods_of(names[1]):
            return
    raise AssertionError("it never had to wait")


async def in_every_state(space):
    """Each job is brought into its state, then all are deleted at once, one of them after what it owns."""
    reducing = space.manifest("reducing", units=4, **QUICK, **ONE)
    reducing["spec"]["reduce"] = json.loads(json.dumps(SLOW_REDUCE))
    reducing["spec"]["reduce"]["template"]["spec"]["containers"][0]["image"] = space.cluster.image
    await space.apply(
        reducing,
        space.manifest("elsewhere", units=4, pool="there-is-no-such-pool", **QUICK),
        space.manifest("refused", units=10**6, **QUICK),
        space.manifest("asked-only", units=4, dryRun=True, **QUICK),
        space.manifest("measuring", units=50, deadline="1h", pause=25),
        space.manifest("running", units=200, reduce="5s", **LONG, **ONE),
        space.manifest("paused", units=200, **LONG, **ONE),
        space.manifest("completed", units=4, reduce="5s", **QUICK, **ONE),
        space.manifest("failed", units=4, crash="always", chunkRetries=0, **QUICK, **ONE),
    )
    await space.running("paused")
    await space.edit("paused", suspend=True)
    wanted = {
        "elsewhere": ("Admitted", "PoolNotFound"),
        "refused": ("Admitted", "InfeasibleCapacity"),
        "asked-only": ("Admitted", "DryRun"),
        "measuring": ("Admitted", "Measuring"),
        "running": ("OnTrack", "OnTrack"),
        "paused": ("Admitted", "Suspended"),
        "completed": ("Completed", "Completed"),
        "failed": ("Failed", "ChunkFailed"),
        "reducing": ("Admitted", "Feasible"),
    }
    await eventually(lambda: all(space.condition(n, kind).get("reason") == r for n, (kind, r) in wanted.items()))
    await eventually(lambda: space.pods_of("reducing", "Reduce", phase="Running"))
    await space.running("running")
    await eventually(lambda: space.pods_of("measuring", "Pilot", phase="Running", gone=False))
    assert {c["kind"] for c in space.status("reducing")["chunks"]} == {"Reduce"}

    await space.kubectl("delete", "dj", "running", "--cascade=foreground", "--wait=false")
    await space.kubectl("delete", "dj", *(name for name in wanted if name != "running"), "--wait=false")
    mine = set(wanted)

    async def nothing_left():
        names = {p["metadata"]["labels"].get("punctual.dev/job") for n, p in space.pods.items() if n not in space.gone}
        maps = (await space.client.list(f"/api/v1/namespaces/{space.namespace}/configmaps")).items
        owned = [m for m in maps if m["metadata"].get("ownerReferences")]
        return not mine & (names | space.jobs.keys()) and not owned

    await eventually(nothing_left)


async def promised_more_than_the_quota(space):
    """Promise a job eight processors where six pods may be: a create on trial of one of them passes."""
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "six"}, "spec": {"hard": {"pods": "6"}}}
    await space.kubectl("apply", "-f", "-", stdin=json.dumps(limit))

    async def counted():
        found = await space.client.get(f"/api/v1/namespaces/{space.namespace}/resourcequotas/six")
        return (found.get("status") or {}).get("used")

    await eventually(counted)
    await space.apply(space.manifest("eight", units=240, reduce="5s", **QUICK, processors={"min": 8}))
    assert (await space.answer("eight"))["reason"] == "Feasible"
    assert space.status("eight")["promise"]["processors"] == 8


async def quota(space):
    """The seventh chunk is refused: six at a time, the job goes on, its promise is kept."""
    await eventually(lambda: refused(space))
    status = await space.end("eight")
    assert space.is_so("eight", "Completed", "Completed"), status["conditions"]
    assert status["finishTime"] <= status["promise"]["deadline"]
    found = space.ranges("eight")
    assert covers([r for r, _ in found], 240)
    assert sum(int(said) for _, said in found) == 240
    assert len(space.pods_of("eight")) > 6


async def refused(space):
    return "exceeded quota: six" in (await space.events("eight")).get("PodRefused", "")


async def namespace(client, space):
    """Its namespace goes while it runs: nothing of it is left, and nothing holds the namespace back."""
    await space.apply(space.manifest("with-it", units=200, reduce="5s", **LONG, processors={"min": 2, "max": 2}))
    await space.running("with-it", 2)
    path = f"/api/v1/namespaces/{space.namespace}"
    await client.delete(path)

    async def missing():
        try:
            await client.get(path)
        except errors.NotFound:
            return True

    await eventually(missing, within=240)
    assert not space.jobs
    assert not space.pods_of("with-it", gone=False)


async def agents(cluster, space):
    """Two agents on a node, then none: the younger speaks, one of them writes, the watchdog holds what is safe."""
    await space.apply(space.manifest("watched", units=1200, **{**LONG, "deadline": "20m"}, **ONE))
    (pod,) = await space.running("watched")
    node = pod["spec"]["nodeName"]
    await progress(space)
    inner = next(folder for folder in cluster.caps(pod) if container(pod) in folder)

    def agent():
        return next(p for p in cluster.pods("agent") if p["spec"]["nodeName"] == node)

    def refusals():
        leader = cluster.leader()
        series = cluster.metrics(leader["metadata"]["name"], 8080) if leader else {}
        return series.get('punctual_exchange_refusals_total{reason="oldInstance"}', 0)

    async def put_back():
        cluster.set_quota(node, inner, 5000)
        await eventually(lambda: cluster.caps(pod)[inner] == (10000, 100000))

    async def put_back_without():
        """Kill the agent; whether all is put back before it may begin again, for which it waits longer each time."""
        if not await kept_waiting(cluster, agent):
            return False
        count, _ = agent_state(agent())
        await put_back()
        after, now = agent_state(agent())
        return after == count and "waiting" in now

    before = await asyncio.to_thread(refusals)
    twin = twin_of(agent())
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(twin))
    try:
        await eventually(lambda: refusals() >= before + 3, every=1.0)
        await progress(space)
        await put_back()
    finally:
        words = ("delete", "pod", "-n", SYSTEM, twin["metadata"]["name"], "--force", "--grace-period=0")
        await asyncio.to_thread(cluster.kubectl, *words)
    await progress(space)  # the older one speaks again

    for _ in range(6):
        if await put_back_without():
            break
    else:
        raise AssertionError("the agent was always there first")
    assert "watchdog_activated" in cluster.kubectl("logs", "-n", SYSTEM, agent()["metadata"]["name"], "-c", "watchdog")
    await progress(space)  # and so does the one that was begun again
    assert space.is_so("watched", "OnTrack", "OnTrack")
    assert [p["metadata"]["uid"] for p in space.pods_of("watched")] == [pod["metadata"]["uid"]]
    await space.kubectl("delete", "dj", "watched", "--wait=false")
    await eventually(lambda: not space.pods_of("watched", gone=False))


async def progress(space):
    done = space.status("watched").get("units", {}).get("done", 0)
    await eventually(lambda: space.status("watched").get("units", {}).get("done", 0) > done)


def twin_of(agent):
    """Return another agent for the same node, as a DaemonSet that lost sight of the first would make it."""
    spec = {k: v for k, v in agent["spec"].items() if k not in ("tolerations", "priority", "preemptionPolicy")}
    meta = {"name": f"{agent['metadata']['name']}-twin", "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
