"""What Punctual answers, and what the API server refuses, before anything runs."""

import asyncio
import json

from live import eventually, pool_status

from punctual.notation.duration import parse_time
from punctual.scheduling.admission.offers import ALLOWANCE

COST = {"perUnit": "1s", "startup": "2s"}


async def test_a_refused_job_is_admitted_with_the_deadline_it_was_offered_and_deleted_while_it_runs(space, pool):
    # nine tenths of what the pool does in ten minutes, wanted in five
    units = int(0.9 * pool["processors"] * 600)
    await space.apply(space.manifest("too-soon", units=units, deadline="5m", cost=COST, pause=0.5))
    answer = await space.answer("too-soon")
    assert (answer["status"], answer["reason"]) == ("False", "InfeasibleCapacity")
    assert f"{pool['processors']}" in answer["message"]
    offer = await eventually(lambda: space.status("too-soon").get("offer"))
    assert 0 < offer["largestLoad"] < units
    assert not space.pods_of("too-soon")

    # nine tenths: half a minute for its answer
    load = int(0.9 * offer["largestLoad"])
    await space.apply(space.manifest("as-much", units=load, deadline="5m", cost=COST, pause=0.5, dryRun=True))
    assert (await space.answer("as-much"))["status"] == "True"

    name = await as_offered(space, units, offer)
    processors = space.status(name)["promise"]["processors"]
    await space.running(name, min(processors, 2))

    await space.kubectl("delete", "dj", name, "--wait=false")
    await eventually(lambda: name not in space.jobs)
    await eventually(lambda: not space.pods_of(name, gone=False))
    await eventually(lambda: _all_free(space.client))


async def as_offered(space, units, offer):
    """Submit what was offered, anew while its answer comes later than the offer allows for; return the job's name."""
    for n in range(5):
        name = f"as-offered-{n}"
        job = space.manifest(name, units=units, deadline=offer["earliestDeadline"], cost=COST, pause=0.5)
        await space.apply(job)
        answer = await space.answer(name)
        created = parse_time(space.jobs[name]["metadata"]["creationTimestamp"])
        if answer["reason"] == "Feasible" or parse_time(answer["lastTransitionTime"]) <= created + ALLOWANCE - 1:
            break
        offer = await eventually(lambda name=name: space.status(name).get("offer"))
    assert answer["reason"] == "Feasible", answer
    return name


async def test_a_dry_run_is_answered_and_books_nothing(space):
    sizes = {"fits": 10, "does-not": 10_000}
    jobs = [space.manifest(name, units=n, deadline="1m", cost=COST, pause=1, dryRun=True) for name, n in sizes.items()]
    await space.apply(*jobs)
    fits, does_not = await asyncio.gather(*(space.answer(name) for name in sizes))
    assert (fits["status"], fits["reason"]) == ("True", "DryRun")
    assert "a dry run reserves nothing" in fits["message"]
    assert (does_not["status"], does_not["reason"]) == ("False", "InfeasibleCapacity")
    # a real one behind it runs: had the dry run been booked, its pods would be there by now too
    await space.apply(space.manifest("real", units=4, deadline="1m", cost=COST, pause=0.1))
    await space.end("real")
    assert not space.pods_of("fits")
    assert "promise" not in space.status("fits")


async def test_what_a_job_may_not_say_is_refused_by_the_api_server(cluster, space):
    job = space.manifest("greedy", units=10, deadline="1m", cost=COST, pause=1)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    said = cluster.refused("apply", "-f", "-", stdin=json.dumps(job))
    assert "cpu" in said.lower()
    assert "greedy" in said
    job = space.manifest("endless", units=10, deadline="1m", cost=COST, pause=1)
    del job["spec"]["deadline"]
    assert "deadline" in cluster.refused("apply", "-f", "-", stdin=json.dumps(job))
    assert not space.jobs


async def test_a_quota_that_would_not_have_the_pods_refuses_the_job(space):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await space.kubectl("apply", "-f", "-", stdin=json.dumps(quota))
    await eventually(lambda: _used(space))
    await space.apply(space.manifest("unwanted", units=10, deadline="1m", cost=COST, pause=1))
    answer = await space.answer("unwanted")
    assert (answer["status"], answer["reason"]) == ("False", "PodRefused")
    assert "exceeded quota: none" in answer["message"]


async def _used(space):
    """Whether the quota controller has counted: before that the quota refuses with another sentence."""
    found = await space.client.get(f"/api/v1/namespaces/{space.namespace}/resourcequotas/none")
    return (found.get("status") or {}).get("used")


async def _all_free(client):
    status = await pool_status(client)
    return status["free"] == status["processors"]
