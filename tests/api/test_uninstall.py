"""What the chart runs before it is uninstalled: nothing that only the operator could release is left."""

import asyncio
import os
import re
import runpy
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from clocks import clock

from punctual import errors
from punctual.kube.api.resources import EVENTS, LEASES, NODES, PODS, POOLS
from punctual.kube.election.claim import NAME, Installation
from punctual.kube.kinds.pools.pools import FINALIZER
from punctual.kube.uninstall import uninstall

AT_ZERO = clock(now=lambda: 0.0)

OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
replica, world, condition = OPERATOR["replica"], OPERATOR["world"], OPERATOR["condition"]
TAINT = {"key": "punctual.dev/pool", "value": "x", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


@pytest.fixture
def hook(release):
    """Run the program under the operator's account; return what it says."""

    async def run():
        env = {
            **os.environ,
            "KUBECONFIG": str(release.own),
            "POD_NAMESPACE": release.namespace,
            "PUNCTUAL_CLAIM_NAMESPACE": release.namespace,
        }
        words = [sys.executable, "-m", "punctual.kube.uninstall"]
        done = await asyncio.to_thread(subprocess.run, words, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


async def gone(client, path):
    try:
        await client.get(path)
    except errors.NotFound:
        return True
    return False


async def test_nothing_is_left_that_only_the_operator_could_release(world, client, namespace, replica, hook):
    await world.add_node()
    await world.add_pool(hold="Taint")
    leader = await replica()
    job = await world.add_job(units=4000, deadline="130s")
    (pod,) = list((await world.given(job, 4)).values())[:1]
    await world.begin(pod)
    pool, node = POOLS.path(name=world.pool), NODES.path(name=world.node)

    async def held():
        taints = (await client.get(node))["spec"].get("taints") or ()
        finalizers = (await client.get(pool))["metadata"].get("finalizers")
        return finalizers == [FINALIZER] and [t["key"] for t in taints] == ["punctual.dev/pool"]

    await world.until(held)
    await client.delete(pool)
    assert not await gone(client, pool), "it waits for its jobs"

    said = await hook()
    assert re.match(r"\d+ pools? may be deleted at once\.\n\d+ nodes? lost the taint", said), "also other tests' pools"
    assert "another" not in said
    assert f"Pool {world.pool}: 4 pods of 1 job still run: {namespace}/{job['metadata']['name']}. They run on" in said
    assert await gone(client, pool)
    assert not (await client.get(node))["spec"].get("taints")
    assert '"leadership_ended"' in leader.log.read_text()
    assert leader.process.poll() is None
    assert len(await world.pods(job)) == 4, "they run on"
    events = (await client.list(EVENTS.path(namespace="default"), field_selector="reason=Uninstalled")).items
    assert [e["note"][:49] for e in events if e["regarding"]["name"] == world.pool] == [
        "Punctual is uninstalled while 4 pods of 1 job sti"
    ]

    again = await hook()
    assert "0 pools" in again
    assert "leadership_acquired" not in leader.log.read_text().partition("leadership_ended")[2]
    assert await leader.end() == 0

    await world.add_pool()
    await replica()
    for one in (await world.pods(job)).values():
        await world.end(one)
    await world.work(job)
    assert (await world.status(job))["units"]["done"] == 4000, "what the pods did meanwhile counts"


@pytest.fixture
async def left(client, namespace):
    """Objects as a leader that was killed leaves them: a pool, a node and a placeholder."""
    name = f"left-{uuid.uuid4().hex[:8]}"
    spec = {"nodeSelector": {"matchLabels": {"a": name}}, "processor": {"cpu": "1", "memory": "64Mi"}}
    meta = {"name": name, "finalizers": [FINALIZER, "example.org/other"]}
    await client.create(POOLS.path(), {"apiVersion": POOLS.version, "kind": "Pool", "metadata": meta, "spec": spec})
    await client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await client.patch_merge(NODES.path(name=name), {"spec": {"taints": [TAINT, OTHER]}})
    pod = {"metadata": {"name": name, "labels": {"punctual.dev/placeholder-of": "uid"}}}
    pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
    await client.create(PODS.path(namespace=namespace), pod)
    yield name
    await client.patch_merge(POOLS.path(name=name), {"metadata": {"finalizers": None}})
    for path in (POOLS.path(name=name), NODES.path(name=name)):
        await client.delete(path)


def lease(namespace, holder, name=NAME):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def test_objects_that_a_dead_leader_left_are_released_and_foreign_parts_stay(client, namespace, left):
    await client.create(LEASES.path(namespace=namespace), lease(namespace, "a replica that was killed", "punctual"))
    said = []
    await uninstall(client, Installation(namespace, "punctual", namespace), lease="punctual", tell=said.append)
    assert (await client.get(POOLS.path(name=left)))["metadata"]["finalizers"] == ["example.org/other"]
    assert (await client.get(NODES.path(name=left)))["spec"]["taints"] == [OTHER]
    assert await gone(client, PODS.path(namespace=namespace, name=left))
    assert "1 placeholder deleted." in said
    mark = await client.get(LEASES.path(namespace=namespace, name=NAME))
    assert mark["spec"]["holderIdentity"] == f"{namespace}/punctual/leaving"


async def test_nothing_is_released_while_another_installation_leads(client, namespace, left):
    path = LEASES.path(namespace=namespace, name=NAME)
    body = lease(namespace, "other/punctual")
    body["spec"]["leaseDurationSeconds"] = 60
    await client.create(LEASES.path(namespace=namespace), body)
    said = []
    here = Installation(namespace, "punctual", namespace)
    running = asyncio.ensure_future(uninstall(client, here, lease="punctual", tell=said.append))
    renewed = 0
    while not running.done():
        renewed += 1
        await client.patch_merge(path, {"spec": {"leaseTransitions": renewed}})
        await asyncio.sleep(0.2)
    await running
    assert said == ["The installation other/punctual leads in this cluster, so there is nothing to release."]
    assert FINALIZER in (await client.get(POOLS.path(name=left)))["metadata"]["finalizers"]
    assert (await client.get(path))["spec"]["holderIdentity"] == "other/punctual"


async def test_an_installation_that_is_gone_is_followed_when_its_claim_ends(client, namespace, left):
    await client.create(LEASES.path(namespace=namespace), lease(namespace, "other/punctual"))
    said = []
    await uninstall(client, Installation(namespace, "punctual", namespace), lease="punctual", tell=said.append)
    assert FINALIZER not in (await client.get(POOLS.path(name=left)))["metadata"]["finalizers"]


async def test_without_the_kinds_it_ends_well(namespace, monkeypatch):
    """A stub in place of the client: other tests use the kinds of the one server."""

    class Client:
        async def pages(self, path, **_):
            if "punctual.dev" in path:
                raise errors.NotFound("no such kind")
            return
            yield

        async def list(self, path, **_):
            return type("Listing", (), {"items": []})

        async def get(self, path):
            raise errors.NotFound("no Lease")

        async def create(self, path, body):
            return body

        clock = AT_ZERO

    said = []
    await uninstall(Client(), Installation(namespace, "punctual"), lease="punctual", tell=said.append)
    assert said[0] == "0 pools may be deleted at once."
