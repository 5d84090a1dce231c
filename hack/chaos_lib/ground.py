"""The environment of the run: the kind cluster, access to its nodes, and the parts of Punctual that run there."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from lib import testbed
from lib.testbed import SYSTEM, Json, is_ready

from chaos_lib.jobs import LIMITED, POOL, SPACES
from chaos_lib.scribe import JobSeen, PodSeen, Scribe, eventually
from chaos_lib.templates import LIMIT_RANGE, TAINT
from punctual.cli.kubectl import Kubectl
from punctual.errors import AlreadyExists, ClusterError, Conflict, Forbidden, Invalid, NoRight, NotFound, PunctualError
from punctual.kube.api.resources import LEASES, NODES, PODS, POOLS, Resource
from punctual.kube.cluster.client import ApiClient
from punctual.labels import LEADER_LABEL, POOL_LABEL

T = TypeVar("T")

CPU = 0.1
PERIOD = 0.1
NAMESPACES = Resource("v1", "namespaces")
LIMITS = Resource("v1", "limitranges")

FIND = """for p in /proc/[0-9]*; do if [ "$(cat $p/comm 2>/dev/null)" = {name} ]; then echo ${{p#/proc/}}; fi; done"""


class NothingThere(Exception):  # noqa: N818  an outcome
    """There is nothing that this fault could hit now."""


@dataclass
class Ground:
    """The cluster. What it is asked is asked again while the API server is away: that is part of the game."""

    client: ApiClient
    scribe: Scribe
    image: str
    borrowed: testbed.Borrowed
    control_plane: str
    others: tuple[Scribe, ...] = ()
    """Namespaces that faults leave alone."""
    held_up: set[str] = field(default_factory=set)
    """Nodes on which nothing can be run now."""
    busy: Counter[str] = field(default_factory=Counter)
    """Commands of ours that run on each node."""

    @property
    def workers(self) -> list[str]:
        """Names of the nodes that the chunks are on."""
        return sorted(self.borrowed.labels)

    @property
    def jobs(self) -> list[JobSeen]:
        """All jobs of the run."""
        return [job for scribe in (self.scribe, *self.others) for job in scribe.jobs.values()]

    @property
    def pods(self) -> list[PodSeen]:
        """All pods of the run."""
        return [pod for scribe in (self.scribe, *self.others) for pod in scribe.pods.values()]

    # commands

    async def run(self, *argv: str, check: bool = True) -> str:
        """Run a command to its end; return what it prints."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            env={**os.environ, "HOME": os.environ.get("HOME", "/root")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode and check:
            raise PunctualError(f"{' '.join(argv[:4])} …: {err.decode(errors='replace').strip()[-500:]}")
        return out.decode(errors="replace")

    async def on_node(self, node: str, script: str) -> str:
        """Run a shell script as root on a node."""
        if node in self.held_up:
            raise NothingThere(f"{node} is held up")
        self.busy[node] += 1
        try:
            return await self.run("docker", "exec", node, "sh", "-ec", script)
        finally:
            self.busy[node] -= 1

    async def patiently(self, call: Callable[[], Awaitable[T]], *, within: float = 90) -> T:
        """Ask the API server until it answers."""
        end = asyncio.get_running_loop().time() + within
        while True:
            try:
                return await call()
            except ClusterError as error:
                # a server that starts knows no rights yet
                if isinstance(error, NotFound | Conflict | Invalid | Forbidden) and not isinstance(error, NoRight):
                    raise
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(max(0.5, error.retry_after))

    async def get(self, path: str) -> Json:
        """Read an object."""
        return await self.patiently(lambda: self.client.get(path))

    async def patch(self, path: str, body: Json) -> Json:
        """Change an object."""
        return await self.patiently(lambda: self.client.patch_merge(path, body))

    async def create(self, path: str, body: Json) -> None:
        """Create an object; one that is there has been created by a call that lost its answer."""
        try:
            await self.patiently(lambda: self.client.create(path, body))
        except AlreadyExists:
            return

    async def delete(self, path: str, **how: Any) -> None:
        """Delete an object, if it is there."""
        try:
            await self.patiently(lambda: self.client.delete(path, **how))
        except (NotFound, Conflict):
            return

    # what is there

    async def parts(self, component: str) -> list[Json]:
        """Return the pods of operator or agent that are not going, in order of their names."""
        selector = f"app.kubernetes.io/component={component}"
        path = PODS.path(namespace=SYSTEM)
        found = await self.patiently(lambda: self.client.list(path, label_selector=selector))
        pods = [p for p in found.items if not p["metadata"].get("deletionTimestamp")]
        return sorted(pods, key=lambda p: str(p["metadata"]["name"]))

    async def operator(self, *, leading: bool) -> Json:
        """Return the operator's pod that holds the lease, or one that does not."""
        lease = await self.get(LEASES.path(namespace=SYSTEM, name="punctual"))
        holder = lease["spec"].get("holderIdentity") or ""
        for pod in await self.parts("operator"):
            if is_ready(pod) and holder.startswith(pod["metadata"]["name"]) == leading:
                return pod
        raise NothingThere("no such operator")

    async def lead(self, pod: Json, *, within: float) -> None:
        """Wait until an operator's pod holds the lease."""
        end, name = time.monotonic() + within, pod["metadata"]["name"]
        while time.monotonic() < end:
            lease = await self.get(LEASES.path(namespace=SYSTEM, name="punctual"))
            if (lease["spec"].get("holderIdentity") or "").startswith(name):
                return
            await asyncio.sleep(0.2)
        raise NothingThere(f"{name} does not lead within {within:.0f} s")

    async def agent(self, rng: Random) -> Json:
        """Return an agent that runs."""
        found = [p for p in await self.parts("agent") if is_ready(p) and p["spec"].get("nodeName") in self.workers]
        if not found:
            raise NothingThere("no agent runs")
        return rng.choice(found)

    def chunk(self, rng: Random, *, of_job: bool = True) -> PodSeen:
        """Return a chunk's pod that runs. ``of_job``: it may be an ordinary Job's, which only its user ends."""
        found = [
            pod
            for pod in self.scribe.pods.values()
            if not pod.gone
            and pod.job
            and pod.phase == "Running"
            and (of_job or not pod.of_job)
            and not pod.body["metadata"].get("deletionTimestamp")
            and pod.body["spec"].get("nodeName") not in self.held_up
        ]
        if not found:
            raise NothingThere("no chunk runs")
        return rng.choice(sorted(found, key=lambda pod: pod.name))

    async def pool(self) -> Json:
        """Return the pool."""
        return await self.get(POOLS.path(name=POOL))

    # what can be done to it

    async def signal(self, pod: Json, name: str) -> None:
        """Send a signal to the processes of a pod's first container."""
        try:
            await self.on_node(pod["spec"]["nodeName"], testbed.signalling(testbed.container(pod), name))
        except PunctualError as error:
            raise NothingThere(f"its process is gone: {error}") from error

    async def pause(self, node: str) -> None:
        """Hold a node up. Not in the middle of a command there: Docker would wait for its end, that cannot come."""
        self.held_up.add(node)
        if not await eventually(lambda: not self.busy[node], within=30):
            self.held_up.discard(node)
            raise NothingThere(f"a command runs on {node}")
        await self.run("docker", "pause", node)

    async def unpause(self, node: str) -> None:
        """Let a node go on."""
        await self.run("docker", "unpause", node)
        self.held_up.discard(node)

    async def open(self, node: str) -> bool:
        """Whether pods may come to a node: not at once when it goes on."""
        there = await self.get(NODES.path(name=node))
        return not any(taint["key"].startswith("node.kubernetes.io/") for taint in there["spec"].get("taints") or ())

    async def taint(self, node: str, *, on: bool) -> None:
        """Give a worker the taint that one of the templates tolerates, or take it away."""
        path, ours = NODES.path(name=node), [{"key": TAINT, "value": "us", "effect": "NoSchedule"}] if on else []
        while True:
            there = await self.get(path)
            taints = there["spec"].get("taints") or []
            wanted = [taint for taint in taints if taint["key"] != TAINT] + ours
            if wanted == taints:
                return
            meta = {"resourceVersion": there["metadata"]["resourceVersion"]}
            try:
                await self.patch(path, {"metadata": meta, "spec": {"taints": wanted}})
            except Conflict:  # the node's status changes every few seconds
                await asyncio.sleep(0.2)

    async def signal_api_server(self, name: str) -> None:
        """Send a signal to the API server."""
        await self.on_node(self.control_plane, f"kill -{name} $({FIND.format(name='kube-apiserver')})")

    async def answers(self, *, within: float) -> bool:
        """Whether the API server answers, some time soon."""

        async def ask() -> Json:
            return await self.client.get("/version", deadline=3)

        try:
            await self.patiently(ask, within=within)
        except ClusterError:
            return False
        return True

    async def nodes_work(self) -> None:
        """See each worker start a pod behind an API server that was away; PunctualError where one does not.

        A server that answers again forbids a kubelet its own pods until it has learned which pod runs where: for a
        minute or more nothing starts, though all look well.
        """
        paths = {node: PODS.path(namespace=SYSTEM, name=f"canary-{node}") for node in self.workers}
        started: set[str] = set()
        end = asyncio.get_running_loop().time() + 180
        try:
            for node in paths:
                canary = testbed.pod(f"canary-{node}", SYSTEM, self.image, ["sleep", "600"], nodeName=node)
                canary["spec"]["tolerations"] = [{"operator": "Exists"}]
                await self.create(PODS.path(namespace=SYSTEM), canary)
            while started != paths.keys() and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.5)
                for node in paths.keys() - started:
                    if (await self.get(paths[node])).get("status", {}).get("phase") in ("Running", "Succeeded"):
                        started.add(node)
        finally:
            for path in paths.values():
                await self.delete(path, grace=0)
        if started != paths.keys():
            raise PunctualError("a node starts no pods")

    # before and after

    async def prepare(self) -> int:
        """Have namespaces and a pool of our own on the workers; return how many processors it has."""
        for name in SPACES:
            await self.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self.create(LIMITS.path(namespace=LIMITED), LIMIT_RANGE)
        await self.label()
        await self.create(POOLS.path(), pool_manifest())
        status = await asyncio.to_thread(testbed.ready_pool, Kubectl(), POOL, nodes=self.workers)
        return int(status["processors"])

    async def label(self) -> None:
        """Give the workers to the pool."""
        for node in self.workers:
            await self.patch(NODES.path(name=node), {"metadata": {"labels": {POOL_LABEL: POOL}}})

    async def heal(self) -> None:
        """Take back what a fault that was broken off may have left; harmless where there is nothing."""
        for node in self.workers:
            await self.run("docker", "unpause", node, check=False)
        self.held_up.clear()
        go_on = f"kill -CONT $({FIND.format(name='kube-apiserver')})"
        await self.run("docker", "exec", self.control_plane, "sh", "-c", go_on, check=False)
        if not await self.answers(within=180):
            raise PunctualError("the API server does not come back")
        for node in self.workers:
            await self.on_node(node, "systemctl start kubelet")
            await self.taint(node, on=False)
        await self.label()
        await self.nodes_work()

    async def calm(self) -> str:
        """Wait until nodes, operator and agents are in order; return what is not, in a word."""
        trouble = "not looked yet"
        for _ in range(360):
            if not (trouble := await self._trouble()):
                return ""
            await asyncio.sleep(0.5)
        return trouble

    async def _trouble(self) -> str:
        nodes = (await self.patiently(lambda: self.client.list(NODES.path()))).items
        for node in nodes:
            ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
            if ready != ["True"]:
                return f"node {node['metadata']['name']} is not ready"
        operators, agents = await self.parts("operator"), await self.parts("agent")
        if [is_ready(pod) for pod in operators] != [True, True]:
            return "not both operators are ready"
        if [is_ready(pod) for pod in agents] != [True] * len(self.workers):
            return "not all agents are ready"
        leading = [p["metadata"]["name"] for p in operators if p["metadata"]["labels"].get(LEADER_LABEL)]
        lease = await self.get(LEASES.path(namespace=SYSTEM, name="punctual"))
        holder = lease["spec"].get("holderIdentity") or ""
        if len(leading) != 1 or not holder.startswith(leading[0]):
            return f"the leader's label is on {leading}, the lease {holder!r}'s"
        return ""


def pool_manifest() -> Json:
    """Return the pool."""
    processor = {"cpu": f"{CPU * 1000:.0f}m", "memory": "64Mi", "period": f"{PERIOD * 1000:.0f}ms"}
    return testbed.pool(POOL, processor=processor)
