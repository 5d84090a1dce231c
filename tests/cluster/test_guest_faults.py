"""Guest jobs while parts of Punctual die, hosts and other programs meddle, and guests themselves behave badly.

Each of the two nodes is smaller than what a guest can use, so it takes one guest at a time.
"""

import asyncio
import contextlib

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
    note,
)

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


async def on_nodes(space, name, count):
    """Wait until a guest job runs on so many nodes; return its pods."""

    def there():
        found = guests(space, name, phase="Running", gone=False)
        return found if len({pod["spec"]["nodeName"] for pod in found}) == count else None

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

    def drift():
        return cluster.metrics(agent_beside(cluster, pod)["metadata"]["name"], 9464)["punctual_cgroup_drift_total"]

    await eventually(lambda: is_lowest(cluster, pod) and FLOOR[0] < inner_cap(cluster, pod)[0])
    before = drift()
    inner = next(folder for folder in cluster.caps(pod) if container(pod) in folder)
    cluster.set_quota(pod["spec"]["nodeName"], inner, 1234)
    await eventually(lambda: inner_cap(cluster, pod)[0] != 1234)
    await eventually(lambda: drift() > before)
    before = drift()
    cluster.set_priority(pod)
    await eventually(lambda: is_lowest(cluster, pod))
    await eventually(lambda: drift() > before)


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
