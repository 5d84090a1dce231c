"""A pool that namespaces share, through the whole operator, against a real API server."""

import runpy
from pathlib import Path

import pytest

from punctual.kube.api.resources import JOBS, POOLS
from punctual.notation.duration import parse_time

OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
World, condition, replica = OPERATOR["World"], OPERATOR["condition"], OPERATOR["replica"]


class Neighbour(World):
    """The same pool for another namespace."""

    def __init__(self, world, namespace):
        super().__init__(world.client, namespace)
        self.pool = world.pool


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    await made.add_node()
    await made.add_pool(maxShare="50%", promiseHorizon="2d")
    yield made
    await made.clean()


@pytest.fixture
async def neighbour(world, client):
    name = f"{world.namespace}-b"
    await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    made = Neighbour(world, name)
    yield made
    await made.clean()
    await client.delete(f"/api/v1/namespaces/{name}")


def work(seconds):
    """Work of so many processor seconds on the pool's four processors; each unit takes one."""
    return {"units": seconds, "cost": {"perUnit": "1s", "startup": "1s"}}


@pytest.mark.timeout(180, func_only=True)
async def test_no_team_gets_more_than_its_share_whichever_replica_leads(world, neighbour, replica):
    first = await replica()
    kept = await world.add_job(**work(1000), deadline="10m")  # of 1,040 that its share has without the headroom
    await world.answered(kept, "Feasible")
    refused = await world.add_job(**work(400), deadline="10m")
    status = await world.answered(refused, "ShareUsedUp")
    assert (
        f"namespace {world.namespace} may be promised 50% of 4 processors" in condition(status, "Admitted")["message"]
    )

    async def offered():
        return (await world.status(refused)).get("offer")

    offer = await world.until(offered)
    assert parse_time(offer["earliestDeadlineTime"]) > parse_time(status["applied"]["deadlineTime"])
    theirs = await neighbour.add_job(**work(800), deadline="10m")
    await neighbour.answered(theirs, "Feasible")
    far = await neighbour.add_job(**work(1), deadline="49h")
    status = await neighbour.answered(far, "DeadlineTooFar")
    assert "at most 2d ahead (its spec.promiseHorizon)" in condition(status, "Admitted")["message"]

    await first.kill()
    await world.let_go()
    await replica()
    again = await world.add_job(**work(400), deadline="10m")
    await world.answered(again, "ShareUsedUp")
    assert condition(await world.status(kept), "Admitted")["reason"] == "Feasible"

    shares = [{"namespace": world.namespace, "maxShare": "100%"}]
    await world.client.patch_merge(POOLS.path(name=world.pool), {"spec": {"namespaceShares": shares}})
    edit = {"spec": {"deadline": "2h"}}
    await world.client.patch_merge(JOBS.path(namespace=world.namespace, name=again["metadata"]["name"]), edit)
    await world.answered(again, "Feasible")


async def test_a_refused_job_that_goes_on_runs_beside_the_share(world, replica):
    await replica()
    await world.answered(await world.add_job(**work(900), deadline="10m"), "Feasible")
    more = await world.add_job(**work(400), deadline="10m", onRefusal="Continue")
    status = await world.answered(more, "ShareUsedUp")
    assert "it runs on leftover capacity without a promise" in condition(status, "Admitted")["message"]

    async def runs():
        return await world.pods(more)

    assert await world.until(runs)
