"""The faults: each one starts, lasts, and is undone, also when the run is aborted.

`disturbs` marks a fault that takes work or time from jobs, so that a promise may have to be given up. Any other fault
does not excuse a missed promise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from lib import testbed
from lib.testbed import SYSTEM

from chaos_lib.ground import CPU, NAMESPACES, Ground, NothingThere
from chaos_lib.jobs import NAMESPACE, POOL, Wish
from chaos_lib.scribe import JobSeen
from punctual.errors import Forbidden, NotFound, PunctualError
from punctual.kube.api.resources import BATCH_JOBS, JOBS, NODES, PODS, POOLS, Resource
from punctual.labels import DEADLINE, POOL_LABEL

Json = dict[str, Any]
QUOTAS = Resource("v1", "resourcequotas")
PRIORITIES = Resource("scheduling.k8s.io/v1", "priorityclasses")
PRIORITY = "punctual-chaos"
PATIENCE = 3
"""Restarts after which a container has to wait too long for the next."""
SUCCEEDS = 25.0
"""Seconds within which another replica leads if the leader is frozen: its lease, and some more."""
DECIDES = (3.0, 6.0)
"""Seconds for which a successor leads, at least and at most."""


@dataclass(frozen=True)
class Scene:
    """All that a fault may touch."""

    ground: Ground
    rng: Random
    wishes: dict[str, Wish]
    """By name of the job."""


NODE = frozenset({"node", "place"})
"""What a fault of a node takes hold of. "place": a job that only this node can run comes."""

Do = Callable[[Scene], contextlib.AbstractAsyncContextManager[str]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault; ``do`` yields what it hit."""

    name: str
    do: Do
    weight: float = 1.0
    seconds: tuple[float, float] = (0.0, 0.0)
    """How long it lasts, at least and at most; short ones are more frequent."""
    alone: frozenset[str] = frozenset()
    """Things of which only one fault at a time may take hold."""
    disturbs: bool = True
    silences: bool = False
    """Whether no replica can lead meanwhile, or be heard."""

    def lasts(self, rng: Random) -> float:
        """Draw how long."""
        least, most = self.seconds
        return least + (most - least) * rng.random() ** 2


def _once(hit: Callable[[Scene], Awaitable[str]]) -> Do:
    """Make a fault that is over at once."""

    @contextlib.asynccontextmanager
    async def do(scene: Scene) -> AsyncIterator[str]:
        yield await hit(scene)

    return do


# chunks


async def _chunk_killed(scene: Scene) -> str:
    pod = scene.ground.chunk(scene.rng)
    await scene.ground.signal(pod.body, "KILL")
    return pod.name


async def _chunk_deleted(scene: Scene) -> str:
    pod = scene.ground.chunk(scene.rng)
    grace = scene.rng.choice((None, 0, 1))
    pod.deleted = True
    await scene.ground.delete(PODS.path(namespace=NAMESPACE, name=pod.name), grace=grace)
    return pod.name


async def _chunk_evicted(scene: Scene) -> str:
    pod = scene.ground.chunk(scene.rng)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": NAMESPACE},
    }
    path = PODS.path(namespace=NAMESPACE, name=pod.name, subresource="eviction")
    pod.deleted = True
    try:
        await scene.ground.patiently(lambda: scene.ground.client.create(path, body))
    except NotFound:
        raise NothingThere("it has gone by itself") from None
    return pod.name


async def _chunk_hung(scene: Scene) -> str:
    pod = scene.ground.chunk(scene.rng, of_job=False)
    await scene.ground.signal(pod.body, "STOP")
    return pod.name


# operator and agents


@contextlib.asynccontextmanager
async def _frozen(scene: Scene, pod: Json) -> AsyncIterator[str]:
    await scene.ground.signal(pod, "STOP")
    try:
        yield pod["metadata"]["name"]
    finally:
        with contextlib.suppress(NothingThere):  # its probes have had it killed meanwhile
            await scene.ground.signal(pod, "CONT")


async def _kill(scene: Scene, pod: Json) -> None:
    """Kill -9. The kubelet lets a container wait twice as long each time: often killed, its pod goes too."""
    await scene.ground.signal(pod, "KILL")
    if pod["status"]["containerStatuses"][0]["restartCount"] >= PATIENCE:
        await scene.ground.delete(PODS.path(namespace=SYSTEM, name=pod["metadata"]["name"]), grace=0)


async def _leader_killed(scene: Scene) -> str:
    pod = await scene.ground.operator(leading=True)
    await _kill(scene, pod)
    return str(pod["metadata"]["name"])


@contextlib.asynccontextmanager
async def _leader_frozen(scene: Scene) -> AsyncIterator[str]:
    async with _frozen(scene, await scene.ground.operator(leading=True)) as name:
        yield name


@contextlib.asynccontextmanager
async def _leader_returns(scene: Scene) -> AsyncIterator[str]:
    """Freeze the leader past its lease, let its successor decide, then hold that up until the first leads again.

    The first is frozen for less than its probes wait. The successor is killed in the end, as often as a leader is.
    """
    ground = scene.ground
    first, second = await ground.operator(leading=True), await ground.operator(leading=False)
    async with _frozen(scene, first) as name:
        await ground.lead(second, within=SUCCEEDS)
        await asyncio.sleep(scene.rng.uniform(*DECIDES))
    async with _frozen(scene, second):
        await ground.lead(first, within=SUCCEEDS)
        await _kill(scene, second)
    yield name


async def _leader_deleted(scene: Scene) -> str:
    pod = await scene.ground.operator(leading=True)
    name = str(pod["metadata"]["name"])
    await scene.ground.delete(PODS.path(namespace=SYSTEM, name=name))
    return name


async def _standby_killed(scene: Scene) -> str:
    pod = await scene.ground.operator(leading=False)
    await _kill(scene, pod)
    return str(pod["metadata"]["name"])


async def _agent_killed(scene: Scene) -> str:
    pod = await scene.ground.agent(scene.rng)
    await _kill(scene, pod)
    return f"on {pod['spec']['nodeName']}"


@contextlib.asynccontextmanager
async def _agent_frozen(scene: Scene) -> AsyncIterator[str]:
    pod = await scene.ground.agent(scene.rng)
    async with _frozen(scene, pod):
        yield f"on {pod['spec']['nodeName']}"


async def _agent_deleted(scene: Scene) -> str:
    pod = await scene.ground.agent(scene.rng)
    await scene.ground.delete(PODS.path(namespace=SYSTEM, name=pod["metadata"]["name"]))
    return f"on {pod['spec']['nodeName']}"


# nodes


@contextlib.asynccontextmanager
async def _node_paused(scene: Scene) -> AsyncIterator[str]:
    node = scene.rng.choice(scene.ground.workers)
    await scene.ground.pause(node)
    try:
        yield node
    finally:
        await scene.ground.unpause(node)


@contextlib.asynccontextmanager
async def _kubelet_stopped(scene: Scene) -> AsyncIterator[str]:
    node = scene.rng.choice(scene.ground.workers)
    await scene.ground.on_node(node, "systemctl stop kubelet")
    try:
        yield node
    finally:
        await scene.ground.on_node(node, "systemctl start kubelet")


@contextlib.asynccontextmanager
async def _node_taken(scene: Scene) -> AsyncIterator[str]:
    node = scene.rng.choice(scene.ground.workers)
    path = NODES.path(name=node)
    await scene.ground.patch(path, {"metadata": {"labels": {POOL_LABEL: "none"}}})
    try:
        yield node
    finally:
        await scene.ground.patch(path, {"metadata": {"labels": {POOL_LABEL: POOL}}})


# the API server


@contextlib.asynccontextmanager
async def _api_server_frozen(scene: Scene) -> AsyncIterator[str]:
    await scene.ground.signal_api_server("STOP")
    try:
        yield ""
    finally:
        await scene.ground.signal_api_server("CONT")


@contextlib.asynccontextmanager
async def _api_server_killed(scene: Scene) -> AsyncIterator[str]:
    await scene.ground.signal_api_server("KILL")
    yield ""
    await asyncio.sleep(2)
    if not await scene.ground.answers(within=120):
        raise PunctualError("the API server answers no more")
    await scene.ground.nodes_work()


# what people do


async def _pool_edited(scene: Scene) -> str:
    rng = scene.rng
    cpu = rng.choice((CPU, 0.11, 0.12))  # never less: costs were declared for CPU
    spec = {
        "margin": f"{rng.uniform(1, 6):.1f}s",
        "headroom": f"{rng.uniform(5, 20):.1f}%",
        "processor": {"cpu": f"{cpu * 1000:.0f}m"},
    }
    await scene.ground.patch(POOLS.path(name=POOL), {"spec": spec})
    return f"margin {spec['margin']}, headroom {spec['headroom']}, cpu {spec['processor']['cpu']}"  # type: ignore[index]  # a dict


@contextlib.asynccontextmanager
async def _pool_held(scene: Scene) -> AsyncIterator[str]:
    path = POOLS.path(name=POOL)
    await scene.ground.patch(path, {"spec": {"hold": "Taint"}})
    try:
        yield "hold: Taint"
    finally:
        await scene.ground.patch(path, {"spec": {"hold": "None"}})


def _open_job(scene: Scene, *, promised: bool) -> tuple[JobSeen, Wish]:
    """Return a job that has not ended."""
    found = [
        (job, scene.wishes[job.name])
        for job in scene.ground.scribe.jobs.values()
        if not job.over and job.name in scene.wishes and (not promised or "promise" in job.status)
    ]
    if not found:
        raise NothingThere("no such job is open")
    return scene.rng.choice(sorted(found, key=lambda pair: pair[0].name))


def _path(wish: Wish) -> str:
    """Return where its user finds a job."""
    return (BATCH_JOBS if wish.job else JOBS).path(namespace=NAMESPACE, name=wish.name)


async def _job_edited(scene: Scene) -> str:
    job, wish = _open_job(scene, promised=True)
    seconds = float(round(wish.deadlines[-1] * scene.rng.uniform(0.5, 1.6)))
    wish.deadlines.append(seconds)
    text = f"{seconds:.0f}s"
    edit: Json = {"metadata": {"annotations": {DEADLINE: text}}} if wish.job else {"spec": {"deadline": text}}
    await scene.ground.patch(_path(wish), edit)
    return f"{job.name}: deadline {seconds:.0f}s"


@contextlib.asynccontextmanager
async def _job_suspended(scene: Scene) -> AsyncIterator[str]:
    job, wish = _open_job(scene, promised=False)
    path = _path(wish)
    if wish.job and (await scene.ground.get(path))["spec"]["suspend"]:
        raise NothingThere("it has not begun")
    await scene.ground.patch(path, {"spec": {"suspend": True}})
    try:
        yield job.name
    finally:
        with contextlib.suppress(NotFound):
            await scene.ground.patch(path, {"spec": {"suspend": False}})


async def _job_deleted(scene: Scene) -> str:
    job, wish = _open_job(scene, promised=False)
    wish.deleted = True
    await scene.ground.delete(_path(wish), propagation="Background")
    return job.name


@contextlib.asynccontextmanager
async def _stranger(scene: Scene, *, pushing: bool) -> AsyncIterator[str]:
    """Put a foreign pod on the pool's nodes for a while."""
    cpu = scene.rng.choice((100, 200, 300))
    spec: Json = {"requests": {"cpu": f"{cpu}m"}, "nodeSelector": {POOL_LABEL: POOL}}
    if pushing:
        spec["priorityClassName"] = PRIORITY
        meta = {"name": PRIORITY}
        first = {"apiVersion": PRIORITIES.version, "kind": "PriorityClass", "metadata": meta, "value": 1000}
        await scene.ground.create(PRIORITIES.path(), first)
    name = f"stranger-{scene.rng.randrange(10**9):x}"
    body = testbed.pod(name, NAMESPACE, scene.ground.image, ["sleep", "600"], **spec)
    try:
        await scene.ground.create(PODS.path(namespace=NAMESPACE), body)
    except Forbidden:
        raise NothingThere("a quota keeps it out") from None
    try:
        yield f"{cpu}m"
    finally:
        await scene.ground.delete(PODS.path(namespace=NAMESPACE, name=name), grace=0)


@contextlib.asynccontextmanager
async def _quota(scene: Scene) -> AsyncIterator[str]:
    path = QUOTAS.path(namespace=NAMESPACE)
    most = scene.rng.randint(2, 8)
    body = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(most)}}}
    await scene.ground.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **body})
    try:
        yield f"{most} pods in the namespace"
    finally:
        await scene.ground.delete(QUOTAS.path(namespace=NAMESPACE, name="few"))


async def tidy(ground: Ground) -> None:
    """Remove what is not in the namespace."""
    await ground.delete(PRIORITIES.path(name=PRIORITY))
    await ground.get(NAMESPACES.path(name=NAMESPACE))


FAULTS = (
    Fault("chunk killed", _once(_chunk_killed), 4),
    Fault("chunk deleted", _once(_chunk_deleted), 3),
    Fault("chunk evicted", _once(_chunk_evicted), 2),
    Fault("chunk hung", _once(_chunk_hung)),
    Fault("leader killed", _once(_leader_killed), 2, alone=frozenset({"operator"})),
    Fault("leader frozen", _leader_frozen, 2, (3, 30), frozenset({"operator"}), silences=True),
    Fault("leader returns", _leader_returns, 1, alone=frozenset({"operator", "api", "node"}), silences=True),
    Fault("leader deleted", _once(_leader_deleted), 1, alone=frozenset({"operator"})),
    Fault("standby killed", _once(_standby_killed), 1, alone=frozenset({"operator"}), disturbs=False),
    Fault("agent killed", _once(_agent_killed), 2, alone=frozenset({"agent"}), disturbs=False),
    Fault("agent frozen", _agent_frozen, 1, (3, 20), frozenset({"agent"}), disturbs=False),
    Fault("agent deleted", _once(_agent_deleted), 1, alone=frozenset({"agent"}), disturbs=False),
    Fault("node paused", _node_paused, 2, (3, 50), NODE),
    Fault("kubelet stopped", _kubelet_stopped, 2, (3, 60), NODE),
    Fault("node taken from the pool", _node_taken, 1, (5, 20), NODE),
    Fault("API server frozen", _api_server_frozen, 2, (2, 15), frozenset({"api"}), silences=True),
    Fault("API server killed", _api_server_killed, 0.5, alone=frozenset({"api"}), silences=True),
    Fault("pool edited", _once(_pool_edited), 2, alone=frozenset({"pool"}), disturbs=False),
    Fault("pool held", _pool_held, 1, (5, 20), frozenset({"pool"}), disturbs=False),
    Fault("job edited", _once(_job_edited), 3, disturbs=False),
    Fault("job suspended", _job_suspended, 1, (2, 20), frozenset({"job"}), disturbs=False),
    Fault("job deleted", _once(_job_deleted), 2, alone=frozenset({"job"}), disturbs=False),
    Fault("stranger", lambda scene: _stranger(scene, pushing=False), 3, (5, 30)),
    Fault("stranger that pushes", lambda scene: _stranger(scene, pushing=True), 1, (5, 20), frozenset({"priority"})),
    Fault("quota", _quota, 1, (5, 20), frozenset({"quota"})),
)
FIRST = next(fault for fault in FAULTS if fault.name == "leader returns")
"""The first of each run, however short it is: what a replica remembers of an earlier term shows in no other."""
FEW = ("chunk killed", "chunk deleted", "chunk evicted", "leader killed", "stranger")
"""Faults of a run with ordinary Jobs alone: lost pods, killed leaders, strangers."""


def drawn(number: int, rng: Random, faults: Sequence[Fault] = FAULTS) -> Fault:
    """Return the n-th fault of a run with these."""
    if number == 1 and FIRST in faults:
        return FIRST
    return rng.choices(faults, [fault.weight for fault in faults])[0]
