"""Guest jobs while parts of Punctual die, hosts and other programs meddle, and guests themselves behave badly.

Each of the two nodes is smaller than what a guest can use, so it takes one guest at a time.
"""

import asyncio
import contextlib
import json
import random

from lib import testbed
from live import (
    LOWEST,
    agent_state,
    agents_never_restarted,
    container,
    covers,
    eventually,
    guest,
    is_ready,
    kept_waiting,
    lend,
    note,
    stranger,
)

from punctual import errors
from punctual.kube.api.resources import PODS

PATIENT = {"pause": 0.3, "cost": {"perUnit": "100ms"}}
"""Long chunks that use next to no CPU, until they are told to hurry."""
FLOOR = (1000, 100000)
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def guests(space, name, **more):
    """Return the pods of a guest job."""
    return space.pods_of(name, "Guest", **more)


async def on_nodes(space, name, count=1):
    """Wait until a guest job runs on so many nodes; return its pods."""

    def there():
        found = guests(space, name, phase="Running", gone=False)
        return found if len({pod["spec"]["nodeName"] for pod in found}) >= count else None

    return await eventually(there)


async def hurried(space, name):
    """Let a guest job end soon; return its status."""
    told = set()
    while not space.status(name).get("finishTime"):
        for pod in guests(space, name, phase="Running", gone=False):
            if pod["metadata"]["uid"] not in told:
                with contextlib.suppress(AssertionError):  # it has just ended
                    await space.hurry(pod)
                    told.add(pod["metadata"]["uid"])
        await asyncio.sleep(0.2)
    return space.status(name)


async def counted_once(space, name, units):
    """See that a job is done, and that its results are those of all its units, each once."""
    status = space.status(name)
    assert space.is_so(name, "Completed", "Completed"), status["conditions"]
    assert status["units"]["done"] == units
    path = f"/api/v1/namespaces/{space.namespace}/configmaps/{status['results']}"
    # the result of a chunk is written before its status, but by another request
    found = sorted((await space.client.get(path))["data"].items())
    ranges = [tuple(map(int, key.split("-"))) for key, _ in found]
    assert covers(ranges, units), ranges
    assert [int(said) for _, said in found] == [end - begin for begin, end in ranges]


async def test_guests_go_on_when_agent_and_leader_are_killed_and_their_limits_are_rewritten(cluster, client, space):
    await agents_never_restarted(cluster)
    await eventually(cluster.in_order)
    await space.kubectl("label", "namespace", space.namespace, "pod-security.kubernetes.io/enforce=restricted")
    job = guest(space, "watched", 1500, **PATIENT)
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = RESTRICTED
    await space.apply(job)
    pods = await on_nodes(space, "watched", 2)
    await limits_are_put_back(cluster, pods[0])
    await asyncio.gather(without_agent(cluster, pods[0]), without_leader(cluster, space))
    await hurried(space, "watched")
    await counted_once(space, "watched", 1500)
    assert {pod["metadata"]["uid"] for pod in pods} <= {pod["metadata"]["uid"] for pod in guests(space, "watched")}
    assert {note(pod, "attempt") for pod in guests(space, "watched")} == {1}  # nothing was done anew
    epochs = [status["epoch"] for _, status in space.written("watched")]
    assert epochs == sorted(epochs)
    await eventually(cluster.in_order, within=180)


def agent_beside(cluster, pod):
    """Return the agent of a pod's node."""
    return next(p for p in cluster.pods("agent") if p["spec"]["nodeName"] == pod["spec"]["nodeName"])


def inner_cap(cluster, pod):
    """Return quota and period of a pod's container."""
    return next(cap for folder, cap in cluster.caps(pod).items() if container(pod) in folder)


def is_lowest(cluster, pod):
    """Whether the kernel has a pod at the lowest priority."""
    found = set(cluster.priority(pod).values())
    return bool(found) and found <= LOWEST


async def limits_are_put_back(cluster, pod):
    """Rewrite cap and priority of a guest by hand; both are put back and counted."""
    await eventually(lambda: is_lowest(cluster, pod) and FLOOR[0] < inner_cap(cluster, pod)[0])
    node = pod["spec"]["nodeName"]
    inner = next(folder for folder in cluster.caps(pod) if container(pod) in folder)
    await put_back_and_counted(
        cluster, pod, lambda: cluster.set_quota(node, inner, 1234), lambda: inner_cap(cluster, pod)[0] != 1234
    )
    await put_back_and_counted(cluster, pod, lambda: cluster.set_priority(pod), lambda: is_lowest(cluster, pod))


async def put_back_and_counted(cluster, pod, rewrite, there):
    """Rewrite a limit of a guest by hand until its agent has put it back and counted it.

    A guest's cap changes often. If the agent reads it, then another program writes, and then the agent, the agent has
    put the other's value back without seeing it.
    """

    def drift():
        return cluster.metrics(agent_beside(cluster, pod)["metadata"]["name"], 9464)["punctual_cgroup_drift_total"]

    before = drift()
    for _ in range(6):
        rewrite()
        await eventually(there)
        with contextlib.suppress(AssertionError):
            await eventually(lambda: drift() > before, within=10)
            return
    raise AssertionError("the agent counts no drift")


async def without_agent(cluster, pod):
    """Kill the agent of a guest: the watchdog puts the guest at its floor, and the next agent gives it more again."""
    for _ in range(6):
        if not await kept_waiting(cluster, lambda: agent_beside(cluster, pod)):
            continue
        count, _ = agent_state(agent_beside(cluster, pod))
        await eventually(lambda: inner_cap(cluster, pod) == FLOOR)
        after, now = agent_state(agent_beside(cluster, pod))
        if after == count and "waiting" in now:
            break
    else:
        raise AssertionError("the agent was always there first")
    assert is_lowest(cluster, pod)
    await eventually(lambda: is_ready(agent_beside(cluster, pod)), within=240)
    await eventually(lambda: inner_cap(cluster, pod)[0] > FLOOR[0])


async def without_leader(cluster, space):
    """Kill the leader: the next one goes on with the same pods."""
    epoch = space.status("watched")["epoch"]
    cluster.signal(await eventually(cluster.leader), "KILL")
    await eventually(lambda: space.status("watched")["epoch"] > epoch)
    done = space.status("watched")["units"]["done"]
    await eventually(lambda: space.status("watched")["units"]["done"] > done)


UNRULY = """
trap '' TERM
for n in $(seq 1000); do
    sleep 600 &
done
while :; do
    :
done
"""
"""It has 1,001 processes that ignore SIGTERM, knows nothing of units and offers, and takes all CPU that it gets."""
GREEDY = """
import time

with open("/tmp/full", "wb") as file:
    for _ in range(100):
        file.write(bytes(2**20))
while True:
    time.sleep(0.01)
"""
"""It writes 100 MiB, and ignores SIGTERM as the first process of its container."""
QUOTA = {"limits": {"ephemeral-storage": "20Mi"}}
DEFAULTS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "100m"}, "defaultRequest": {"cpu": "50m"}}]},
}


async def test_guests_that_behave_badly_harm_nobody_and_guests_deleted_in_any_state_leave_nothing(
    cluster, client, space, another, pool
):
    limited = await another()
    await limited.kubectl("apply", "-f", "-", stdin=json.dumps(DEFAULTS))
    greedy = guest(space, "greedy", 10, program=GREEDY, chunkRetries=0, processors={"max": 1})
    greedy["spec"]["template"]["spec"]["containers"][0]["resources"] = QUOTA
    unruly = guest(space, "unruly", 10)
    unruly["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", UNRULY]
    await space.apply(greedy)
    await on_nodes(space, "greedy")
    await space.apply(unruly)
    first, *_ = await on_nodes(space, "unruly")
    await eventually(lambda: processes(cluster, first) > 1000)
    cost = {"perUnit": "500ms", "startup": "3s"}
    await space.apply(
        space.manifest(
            "promised", units=60, deadline="4m", cost=cost, pause=0.4, reduce="5s", processors={"min": 2, "max": 2}
        ),
        guest(space, "good", 40, pause=0.1),
        guest(space, "paused", 10, pause=0.1, suspend=True),
        guest(space, "elsewhere", 10, pool="there-is-no-such-pool"),
    )
    await limited.apply(guest(limited, "refused", 10))

    refusal = await limited.answer("refused")
    assert refusal["reason"] == "PodRefused"
    assert "LimitRange" in refusal["message"]
    await space.end("greedy")
    assert "Evicted" in space.condition("greedy", "Failed")["message"]
    promised = await space.end("promised")
    assert space.is_so("promised", "Completed", "Completed")
    assert promised["finishTime"] <= promised["promise"]["deadline"]
    assert covers([units for units, _ in space.ranges("promised")], 60)

    # an unruly pod answers no offer, so all of its units are done again
    await space.edit("unruly", suspend=True)
    await eventually(lambda: guests(space, "unruly") and not guests(space, "unruly", gone=False))
    await space.end("good")
    await counted_once(space, "good", 40)
    await space.edit("unruly", suspend=False)
    await on_nodes(space, "unruly", 2)
    await space.apply(guest(space, "waiting", 10))
    assert (await space.answer("waiting"))["reason"] == "Guest"

    for name in ("unruly", "greedy"):
        assert {status["units"]["done"] for _, status in space.written(name)} == {0}
    await asyncio.gather(*(one.kubectl("delete", "dj", "--all", "--wait=false") for one in (space, limited)))
    await eventually(lambda: nothing_left(space))
    await eventually(lambda: nothing_left(limited))


def processes(cluster, pod):
    """Return how many processes a pod's container has."""
    find = f"find /sys/fs/cgroup -path '*{container(pod)}*' -name cgroup.procs"
    return int(cluster.on_node(pod["spec"]["nodeName"], f"cat $({find} | head -n 1) | wc -l"))


async def nothing_left(space):
    """Whether a namespace has no jobs, no pods, and no results."""
    maps = (await space.client.list(f"/api/v1/namespaces/{space.namespace}/configmaps")).items
    owned = [each for each in maps if each["metadata"].get("ownerReferences")]
    return not space.jobs and space.pods.keys() <= space.gone and not owned


HOST = """
import time

while True:
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
    time.sleep(1)
"""
SEED = 15
EVICTIONS = 30
UNITS = 3000
LATE = 0.3
"""Part of the pods that are evicted only after a while."""


async def test_thirty_random_evictions_a_node_cordoned_and_hosts_that_come_and_go_lose_no_unit(cluster, space, pool):
    rng = random.Random(SEED)
    busy = cluster.nodes[0]
    await space.apply(guest(space, "evicted", UNITS, pause=0.1, cost={"perUnit": "100ms"}))
    evicted = set()
    for at, disturb in (
        (8, lambda: cordoned(cluster, space, cluster.nodes[1])),
        (14, lambda: space.apply(host(cluster, space, busy))),
        (20, lambda: suspended_and_resumed(space)),
        (26, lambda: space.kubectl("delete", "pod", "host", "--wait=false")),
        (EVICTIONS, lambda: hurried(space, "evicted")),
    ):
        while len(evicted) < at:
            pod = await candidate(space, late=rng.random() < LATE)
            if await evict(space, pod, rng.choice(["delete", "kill", "evict"])):
                evicted.add(pod["metadata"]["uid"])
            await eventually(lambda name=pod["metadata"]["name"]: is_going(space, name))
        await disturb()
    await counted_once(space, "evicted", UNITS)
    assert max(status["units"]["done"] for _, status in space.written("evicted")) == UNITS


async def candidate(space, *, late):
    """Wait for a guest that is not being ended; ``late``: until the job's status has told progress since then, too."""

    def there():
        found = guests(space, "evicted", gone=False)
        return [pod for pod in found if not is_going(space, pod["metadata"]["name"])]

    found = await eventually(there)
    if late:
        before = space.status("evicted")["units"]["done"]
        await eventually(lambda: space.status("evicted")["units"]["done"] != before)
        found = await eventually(there)
    return found[0]


def is_going(space, name):
    """Whether a pod has ended, or is being ended."""
    pod = space.pods[name]
    ended = pod["status"]["phase"] in ("Succeeded", "Failed")
    return name in space.gone or ended or "deletionTimestamp" in pod["metadata"]


async def evict(space, pod, how):
    """End a pod orderly, by force, or as a drain does; return whether it was there."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    path = PODS.path(namespace=space.namespace, name=name)
    try:
        if how == "evict":
            options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 2}
            meta = {"name": name, "namespace": space.namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
            await space.client.create(f"{path}/eviction", body)
        else:
            await space.client.delete(path, uid=uid, grace=0 if how == "kill" else 2)
    except errors.NotFound:
        return False
    return True


async def suspended_and_resumed(space):
    """Suspend the job while it works: what it has begun is counted, and all else is handed back."""
    await space.edit("evicted", suspend=True)
    await eventually(lambda: not guests(space, "evicted", gone=False))
    await space.edit("evicted", suspend=False)


async def cordoned(cluster, space, node):
    """Cordon a node while a guest runs there: its guest leaves, none starts there, and the rest is done elsewhere."""

    def there():
        return [pod for pod in guests(space, "evicted", gone=False) if pod["spec"].get("nodeName") == node]

    await on_nodes(space, "evicted", 2)
    cluster.kubectl("cordon", node)
    try:
        await eventually(lambda: not there())
        await on_nodes(space, "evicted", 1)
    finally:
        cluster.kubectl("uncordon", node)
    await eventually(there)


def host(cluster, space, node):
    """Return a pod that takes what CPU it gets each other second."""
    body = stranger(cluster, space, node)
    body["metadata"]["name"] = "host"
    body["spec"]["containers"][0]["command"] = ["python3", "-c", HOST]
    return body


async def test_guests_leave_when_their_pool_is_deleted_and_go_on_when_it_is_back(cluster, client, space, pool):
    async with lend(cluster, client, cluster.nodes[-1]) as own:
        await space.apply(guest(space, "moved", 200, pool=own, **PATIENT))
        (pod,) = await on_nodes(space, "moved")
        await eventually(lambda: space.status("moved")["units"]["done"] > 0)
        cluster.kubectl("delete", "pool", own, "--wait=false")
        await eventually(lambda: space.condition("moved", "Admitted").get("reason") == "PoolNotFound")
        await eventually(lambda: pod["metadata"]["name"] in space.gone)
        assert not space.status("moved").get("chunks")
        kept = space.status("moved")["units"]["done"]
        assert kept > 0
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(testbed.pool(own)))
        await hurried(space, "moved")
        await counted_once(space, "moved", 200)
        assert note(guests(space, "moved")[-1], "begin") > 0
