"""Two releases of the chart in one cluster: the first goes on undisturbed, the second says which leads and waits."""

import json
import runpy
from pathlib import Path

import pytest

from punctual.kube.api.resources import LEASES
from punctual.kube.election.claim import NAME

OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))


@pytest.fixture
async def world(client, namespace):
    made = OPERATOR["World"](client, namespace)
    yield made
    await made.clean()


def said(replica, event):
    """Return the entries of a replica's log about an event."""
    lines = [line for line in replica.log.read_text().splitlines() if line.startswith("{")]
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


async def test_the_second_names_the_first_and_leads_when_it_is_gone(world, client, kubeconfig, namespace, tmp_path):
    await world.add_node()
    await world.add_pool()
    second_space = f"{namespace}-second"
    await client.create("/api/v1/namespaces", {"metadata": {"name": second_space}})

    def start(space, release):
        more = {"PUNCTUAL_CLAIM_NAMESPACE": namespace, "PUNCTUAL_RELEASE": release}
        return OPERATOR["Replica"](kubeconfig, space, tmp_path / f"{space}.log", **more)

    async def has_said(replica, event):
        assert replica.process.poll() is None, replica.log.read_text()
        return said(replica, event)

    replicas = [start(namespace, "here")]
    try:
        (first,) = replicas
        await world.until(lambda: has_said(first, "term_begun"), within=200)
        await world.answered(await world.add_job(), "Feasible")
        replicas.append(second := start(second_space, "there"))
        (told,) = await world.until(lambda: has_said(second, "another_installation_leads"), within=200)
        assert f"the release here in namespace {namespace} leads in this cluster" in told["message"]
        await world.answered(await world.add_job(), "Feasible")
        assert len(said(first, "term_begun")) == 1
        assert not said(second, "leadership_acquired")

        assert await first.end() == 0
        await client.delete(LEASES.path(namespace=namespace, name=NAME))
        await world.until(lambda: has_said(second, "term_begun"))
        await world.answered(await world.add_job(), "Feasible")
    finally:
        for one in replicas:
            if one.process.poll() is None:
                await one.end()
