"""Pod templates of all kinds beside promises of another namespace: what the cluster makes of a pod was planned."""

import asyncio
import contextlib
import json

import pytest
from chaos_lib.templates import LIMIT_RANGE, TAINT, TEMPLATES, Template
from live import POOL, condition, eventually

from punctual.notation.duration import parse_time

COST = {"perUnit": "1s", "startup": "3s"}
PLAIN = Template()


@pytest.fixture
async def second_space(another):
    """A namespace of other tenants."""
    return await another()


def asked(space, name, *, units=4, deadline="2m", **more):
    """Return a job with the template of that name, with a plain one where there is none."""
    template = TEMPLATES.get(name, PLAIN)
    fields = {"units": units, "deadline": deadline, "cost": COST, **template.job, **more}
    return space.manifest(name, template=template.body(space.cluster.image, space.cluster.nodes), **fields)


REFUSED = [name for name, template in TEMPLATES.items() if template.right == "refused" and not template.limited]


async def test_templates_that_cannot_run_are_refused_and_break_no_promise_of_another_namespace(space, second_space):
    """Two promised jobs fill the pool one after the other; a misfit of each kind comes between them."""
    size = (await second_space.client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}"))["status"]["processors"]
    everything = {"processors": {"min": size, "max": size}}
    await second_space.apply(asked(second_space, "first", units=6 * size, deadline="60s", **everything))
    assert (await second_space.answer("first"))["status"] == "True"
    await space.apply(*(asked(space, name, deadline="61s") for name in REFUSED))
    await second_space.apply(asked(second_space, "second", units=6 * size, deadline="75s", **everything))
    assert (await second_space.answer("second"))["status"] == "True"
    for name in REFUSED:
        answer = await space.answer(name)
        assert (name, answer["status"], answer["reason"]) == (name, "False", TEMPLATES[name].reason)
        assert TEMPLATES[name].words in answer["message"]
    for name in ("first", "second"):
        status = await second_space.end(name)
        assert condition(status, "Completed").get("reason") == "Completed", status
    assert space.pods == {}


async def test_templates_that_fit_are_promised_and_completed_where_they_may_run(cluster, client, space):
    """Each is unusual and can run: none is refused."""
    names = ("selects", "tolerates", "prefers", "helped")
    node, tainted = cluster.nodes[:2]
    async with taint(cluster, tainted):
        await space.apply(*(asked(space, name) for name in names))
        for name in names:
            assert (await space.answer(name))["status"] == "True"
        for name in names:
            assert condition(await space.end(name), "Completed").get("reason") == "Completed"
    where = {name: {pod["spec"]["nodeName"] for pod in space.pods_of(name)} for name in names}
    assert where == {"selects": {node}, "tolerates": {tainted}, "prefers": {node}, "helped": {node}}


@contextlib.asynccontextmanager
async def taint(cluster, node):
    cluster.kubectl("taint", "node", node, f"{TAINT}=us:NoSchedule", "--overwrite")
    try:
        yield
    finally:
        cluster.kubectl("taint", "node", node, f"{TAINT}-")


async def test_the_works_exit_counts_whatever_the_containers_beside_it_do(space):
    once = {"chunkRetries": 0, "podRetention": "All", "processors": {"max": 1}}
    await space.apply(*(asked(space, name, **once) for name in ("meshed", "shipped", "fails")))
    for name in ("meshed", "shipped"):
        assert condition(await space.end(name), "Completed").get("reason") == "Completed"
        assert len(space.pods_of(name)) == 1
    failed = condition(await space.end("fails"), "Failed")
    assert failed["status"] == "True"
    assert "5" in failed["message"]


async def test_pods_that_never_start_are_told_with_the_clusters_words_and_close_no_node(space, second_space):
    await space.apply(*(asked(space, name, deadline="40s") for name in ("absent", "unserved")))
    for name in ("absent", "unserved"):
        await eventually(lambda name=name: space.condition(name, "OnTrack").get("status") == "False", within=30)
        assert space.condition(name, "OnTrack")["reason"] == "NotStarted"
    await second_space.apply(asked(second_space, "other"))
    assert (await second_space.answer("other"))["status"] == "True"
    assert condition(await second_space.end("other"), "Completed").get("reason") == "Completed"


async def test_a_limit_range_that_makes_pods_larger_breaks_no_promise_of_another_namespace(space, second_space):
    await space.kubectl("create", "-f", "-", stdin=json.dumps(LIMIT_RANGE))
    size = (await second_space.client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}"))["status"]["processors"]
    await space.apply(asked(space, "limited", units=40))
    await second_space.apply(asked(second_space, "victim", units=4 * size, deadline="45s", processors={"max": size}))
    limited, victim = await asyncio.gather(space.answer("limited"), second_space.answer("victim"))
    assert (limited["reason"], victim["status"]) == ("PodTooLarge", "True")
    assert condition(await second_space.end("victim"), "Completed").get("reason") == "Completed"


async def test_as_many_processors_as_the_minimum_begin_together(client, space):
    size = (await client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}"))["status"]["processors"]
    least = size - 4
    await space.apply(asked(space, "long", units=16 * (size - 2), deadline="90s", processors={"max": size - 2}))
    await space.running("long")
    await space.apply(asked(space, "gang", units=size, deadline="90s", processors={"min": least, "max": least}))
    assert (await space.answer("gang"))["status"] == "True"
    assert condition(await space.end("gang"), "Completed").get("reason") == "Completed"
    created = sorted(parse_time(p["metadata"]["creationTimestamp"]) for p in space.pods_of("gang"))
    assert len(created) >= least
    assert created[least - 1] - created[0] <= 1
