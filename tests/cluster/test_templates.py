"""Pod templates of all kinds beside promises of another namespace: what the cluster makes of a pod was planned."""

import asyncio
import contextlib
import json

import pytest
from live import POOL, condition, eventually

from punctual.kube.format.duration import parse_time

COST = {"perUnit": "1s", "startup": "3s"}
WORK = "i=$PUNCTUAL_BEGIN; while [ $i -lt $PUNCTUAL_END ]; do sleep 0.8; i=$((i+1)); done"
HOST = "kubernetes.io/hostname"


@pytest.fixture
async def second_space(another):
    """A namespace of other tenants."""
    return await another()


def asked(space, name, *, units=4, deadline="2m", command=WORK, others=(), resources=None, **pod):
    """Return a job with this pod spec; ``others``: containers behind the work's."""
    more = {key: pod.pop(key) for key in ("processors", "chunkRetries", "podRetention") if key in pod}
    main = {"name": "main", "image": space.cluster.image, "command": ["sh", "-c", command]}
    if resources:
        main["resources"] = resources
    helpers = [{"image": space.cluster.image, **container} for container in others]
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [main, *helpers], **pod}}
    return space.manifest(name, units=units, deadline=deadline, cost=COST, template=template, **more)


def required(key, *values):
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["tape"]}]}}
        ]
    }
}
MISFITS = {
    "selector": ("PodFitsNoNode", "example.com/disk=ssd", {"nodeSelector": {"example.com/disk": "ssd"}}),
    "affinity": ("PodFitsNoNode", "zone in (moon)", {"affinity": required("zone", "moon")}),
    "memory": ("PodTooLarge", "30Gi", {"resources": {"requests": {"memory": "30Gi"}}}),
    "gpu": ("PodTooLarge", "nvidia.com/gpu", {"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
    "helper": (
        "PodTooLarge",
        "64Mi",
        {"others": [{"name": "shipper", "command": ["true"], "resources": {"requests": {"memory": "64Mi"}}}]},
    ),
    "brief": ("InvalidSpec", "activeDeadlineSeconds", {"activeDeadlineSeconds": 2}),
}


async def test_templates_that_cannot_run_are_refused_and_break_no_promise_of_another_namespace(space, second_space):
    """Two promised jobs fill the pool one after the other; a misfit of each kind comes between them."""
    size = (await second_space.client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}"))["status"]["processors"]
    everything = {"processors": {"min": size, "max": size}}
    await second_space.apply(asked(second_space, "first", units=6 * size, deadline="60s", **everything))
    assert (await second_space.answer("first"))["status"] == "True"
    await space.apply(*(asked(space, name, deadline="61s", **spec) for name, (_, _, spec) in MISFITS.items()))
    await second_space.apply(asked(second_space, "second", units=6 * size, deadline="75s", **everything))
    assert (await second_space.answer("second"))["status"] == "True"
    for name, (reason, number, _) in MISFITS.items():
        answer = await space.answer(name)
        assert (name, answer["status"], answer["reason"]) == (name, "False", reason)
        assert number in answer["message"]
    for name in ("first", "second"):
        status = await second_space.end(name)
        assert condition(status, "Completed").get("reason") == "Completed", status
    assert space.pods == {}


async def test_templates_that_fit_are_promised_and_completed_where_they_may_run(cluster, client, space):
    """Each is unusual and can run: none is refused."""
    node, tainted = cluster.nodes[0], cluster.nodes[1]
    async with taint(cluster, tainted):
        toleration = {"key": "example.com/own", "operator": "Exists"}
        await space.apply(
            asked(space, "selects", nodeSelector={HOST: node}),
            asked(space, "tolerates", nodeSelector={HOST: tainted}, tolerations=[toleration]),
            asked(space, "prefers", affinity=PREFERRED),
            asked(
                space,
                "helped",
                others=[{"name": "side", "command": ["sleep", "1"], "resources": {"limits": {"memory": "16Mi"}}}],
            ),
        )
        names = ("selects", "tolerates", "prefers", "helped")
        for name in names:
            assert (await space.answer(name))["status"] == "True"
        for name in names:
            assert condition(await space.end(name), "Completed").get("reason") == "Completed"
    where = {name: {pod["spec"]["nodeName"] for pod in space.pods_of(name)} for name in names}
    assert where == {"selects": {node}, "tolerates": {tainted}, "prefers": {node}, "helped": {node}}


@contextlib.asynccontextmanager
async def taint(cluster, node):
    cluster.kubectl("taint", "node", node, "example.com/own=us:NoSchedule", "--overwrite")
    try:
        yield
    finally:
        cluster.kubectl("taint", "node", node, "example.com/own-")


async def test_the_works_exit_counts_whatever_the_containers_beside_it_do(space):
    for_ever = {"name": "proxy", "command": ["sh", "-c", "while true; do sleep 1; done"]}
    fails = {"name": "shipper", "command": ["sh", "-c", "sleep 5; exit 3"]}
    once = {"chunkRetries": 0, "podRetention": "All", "processors": {"max": 1}}
    await space.apply(
        asked(space, "meshed", others=[for_ever], **once),
        asked(space, "shipped", others=[fails], **once),
        asked(space, "fails", command="exit 5", others=[for_ever], **once),
    )
    for name in ("meshed", "shipped"):
        assert condition(await space.end(name), "Completed").get("reason") == "Completed"
        assert len(space.pods_of(name)) == 1
    failed = condition(await space.end("fails"), "Failed")
    assert failed["status"] == "True"
    assert "5" in failed["message"]


async def test_pods_that_never_start_are_told_with_the_clusters_words_and_close_no_node(space, second_space):
    absent = asked(space, "absent", deadline="40s", chunkRetries=0)
    absent["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.invalid/nothere:1"
    await space.apply(absent, asked(space, "unserved", deadline="40s", schedulerName="vulcano", chunkRetries=0))
    for name in ("absent", "unserved"):
        await eventually(lambda name=name: space.condition(name, "OnTrack").get("status") == "False", within=30)
        assert space.condition(name, "OnTrack")["reason"] == "NotStarted"
    await second_space.apply(asked(second_space, "other"))
    assert (await second_space.answer("other"))["status"] == "True"
    assert condition(await second_space.end("other"), "Completed").get("reason") == "Completed"


async def test_a_limit_range_that_makes_pods_larger_breaks_no_promise_of_another_namespace(space, second_space):
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m"}, "default": {"cpu": "200m"}}]
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": {"limits": limits}}
    await space.kubectl("create", "-f", "-", stdin=json.dumps(body))
    size = (await second_space.client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}"))["status"]["processors"]
    await space.apply(asked(space, "large", units=40, others=[{"name": "side", "command": ["true"]}]))
    await second_space.apply(asked(second_space, "victim", units=4 * size, deadline="45s", processors={"max": size}))
    large, victim = await asyncio.gather(space.answer("large"), second_space.answer("victim"))
    assert (large["reason"], victim["status"]) == ("PodTooLarge", "True")
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
