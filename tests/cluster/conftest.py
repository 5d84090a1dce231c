"""A real cluster with Punctual on it: kind (hack/cluster), or the current context with PUNCTUAL_CLUSTER=kubeconfig.

The cluster, the image on its nodes, the chart and the pool are made once per run and stay, so that the next run is
quick. PUNCTUAL_IMAGE names an image to take as it is; with an existing cluster it is needed, and so are two small nodes
with the label punctual.dev/pool=main.
"""

import asyncio
import contextlib
import json
import os
import uuid
from pathlib import Path
from unittest import mock

import pytest
from lib import testbed
from live import (
    LABEL,
    OWN_POOL,
    OWN_SPACE,
    POOL,
    Cluster,
    Space,
    eventually,
    left_behind,
    pool_status,
    room,
)

from punctual import errors
from punctual.cli.kubectl import Kubectl
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


@pytest.fixture(scope="session")
def alone():
    """The right to the local cluster."""
    with testbed.alone():
        yield


@pytest.fixture(scope="session")
def cluster(alone):
    """The cluster, with the chart of this checkout installed and the pool ready."""
    own = testbed.own_cluster()
    with mock.patch.dict(os.environ):  # other tests keep their environment
        if own:
            testbed.bring_up()
        image = testbed.own_image() if own and not os.environ.get("PUNCTUAL_IMAGE") else testbed.given_image()
        if own:
            testbed.command("hack/cluster", "load-image", image)
        kubectl = Kubectl()
        # pods of a run that was broken off would take room for ever
        testbed.remove(kubectl, namespaces=OWN_SPACE, pools=OWN_POOL, wait=False)
        cluster = Cluster(dict(os.environ), image, testbed.label_nodes(kubectl, own=own), own=own)
    cluster.install()
    assert len(cluster.nodes) >= 2, f"two nodes with the label {LABEL}={POOL} are needed"
    there = cluster.kubectl("get", "pool", POOL, "--ignore-not-found", "-o", "jsonpath={.spec.processor.cpu}")
    assert there in ("", "100m"), f"Pool {POOL} has processors of {there}, the tests need some of 100m"
    if not there:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(testbed.pool(POOL)))
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
