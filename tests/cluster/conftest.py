"""A real cluster with Punctual on it: kind (hack/cluster), or the current context with PUNCTUAL_CLUSTER=kubeconfig.

The cluster, the image on its nodes, the chart and the pool are made once per run and stay, so that the next run is
quick. PUNCTUAL_IMAGE names an image to take as it is; with an existing cluster it is needed, and so are two small nodes
with the label punctual.dev/pool=main.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from live import (
    LABEL,
    OWN_POOL,
    OWN_SPACE,
    POOL,
    ROOT,
    Cluster,
    Space,
    eventually,
    left_behind,
    pool_manifest,
    pool_status,
    room,
)

sys.path.insert(0, str(ROOT / "hack"))

from demo_lib import place

from punctual import errors
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.client import ApiClient


def pytest_collection_modifyitems(items):
    """Mark what is here as `cluster`; time tests without fixtures: a machine's first image is built for minutes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("cluster")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(420, func_only=True))
    items.sort(key=lambda item: item.path.name == "test_chaos.py")  # behind the others: it leaves no node alone


def _kind():
    subprocess.run([ROOT / "hack/cluster", "up"], check=True, stdout=-1)
    told = subprocess.run([ROOT / "hack/cluster", "env"], check=True, stdout=-1, text=True).stdout
    env = dict(os.environ)
    for line in told.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        env[name] = os.path.expandvars("".join(shlex.split(value)))
    cluster = Cluster(env, own=True)
    cluster.image = os.environ.get("PUNCTUAL_IMAGE") or _built(cluster)
    cluster.run(ROOT / "hack/cluster", "load-image", cluster.image)
    cluster.kubectl("label", "node", "-l", "!node-role.kubernetes.io/control-plane", f"{LABEL}={POOL}", "--overwrite")
    return cluster


def _clear(cluster):
    """Remove what a run that was broken off has left: its pods would take room for ever."""
    for kind, pattern in (("namespace", OWN_SPACE), ("pool", OWN_POOL)):
        if cluster.run("kubectl", "get", kind, check=False).returncode:
            continue  # there are no pools before the first installation
        names = cluster.kubectl("get", kind, "-o", "jsonpath={.items[*].metadata.name}").split()
        if left := [name for name in names if pattern.fullmatch(name)]:
            cluster.kubectl("delete", kind, *left, "--wait=false")


def _built(cluster):
    """Build the image, named by its contents so that pods of another are replaced."""
    tag = cluster.run(ROOT / "hack/image").stdout.strip()
    identity = cluster.run("docker", "image", "inspect", "--format", "{{.Id}}", tag).stdout.strip()
    image = f"{tag.partition(':')[0]}:{identity.removeprefix('sha256:')[:12]}"
    cluster.run("docker", "tag", tag, image)
    return image


@pytest.fixture(scope="session")
def alone():
    """The right to the local cluster: tests of two checkouts would take each other's processors and leaders."""
    with (Path(tempfile.gettempdir()) / "punctual-cluster-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def cluster(alone):
    """The cluster, with the chart of this checkout installed and the pool ready."""
    if place.own_cluster():
        cluster = _kind()
    else:
        cluster = Cluster(dict(os.environ), own=False)
        cluster.image = place.given_image()
    _clear(cluster)
    cluster.install()
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", f"{LABEL}={POOL}", "-o", "json"))["items"]
    cluster.nodes = sorted(node["metadata"]["name"] for node in nodes)
    assert len(cluster.nodes) >= 2, f"two nodes with the label {LABEL}={POOL} are needed"
    there = cluster.kubectl("get", "pool", POOL, "--ignore-not-found", "-o", "jsonpath={.spec.processor.cpu}")
    assert there in ("", "100m"), f"Pool {POOL} has processors of {there}, the tests need some of 100m"
    if not there:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(pool_manifest(POOL, {LABEL: POOL})))
    yield cluster
    if not there:
        cluster.kubectl("delete", "pool", POOL)


@pytest.fixture
async def client(cluster):
    """An `ApiClient` of the cluster's administrator, open."""
    async with ApiClient(cluster.kubeconfig) as client:
        yield client


@contextlib.asynccontextmanager
async def new_space(cluster, client):
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    await client.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    space = Space(cluster, client, namespace)
    following = [asyncio.ensure_future(space.follow(resource)) for resource in (JOBS, PODS)]
    try:
        yield space
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # a test may have deleted it
            await client.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
async def space(cluster, client, pool):
    """A namespace of the test's own; it goes with all that is in it."""
    async with new_space(cluster, client) as space:
        yield space


@pytest.fixture
async def another(cluster, client, pool):
    """A coroutine function that makes one more namespace of the test's own."""
    async with contextlib.AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(new_space(cluster, client))


@pytest.fixture
async def pool(cluster, client):
    """The pool's status, once it has all its processors, none is in use, and nothing of earlier tests takes room."""

    async def idle():
        if await left_behind(client):
            return None
        there = await room(client)
        status = await pool_status(client)
        lines = {n["name"]: n["processors"] for n in status.get("nodes") or ()}
        whole = lines == {name: there[name] for name in cluster.nodes}
        return status if whole and status["free"] == status["processors"] else None

    return await eventually(idle, within=180, every=0.3)
