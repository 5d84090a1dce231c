"""What a real API server makes of pods: LimitRanges, RuntimeClasses, resources of the pod as a whole."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from punctual import reasons
from punctual.kube.actors.placeholders import Placeholders
from punctual.kube.api.resources import PODS, Resource
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings
from punctual.kube.cluster.requests import beside, requested
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.directory import Directory
from punctual.scheduling.model.actions import HeldCapacity, HoldCapacity
from punctual.scheduling.model.resources import Resources

CREATED = "2030-01-01T00:00:00Z"
MI = 2**20
QUOTAS = Resource("v1", "resourcequotas")
LIMIT_RANGES = Resource("v1", "limitranges")
RUNTIME_CLASSES = Resource("node.k8s.io/v1", "runtimeclasses")
HELPER = {"name": "helper", "image": "img", "restartPolicy": "Always"}


GPU = "example.com/gpu"
GENERATIONS = itertools.count(1)


@pytest.fixture
def devices():
    """The extended resources of the pool's processors."""
    return {}


@pytest.fixture
async def gate(client, devices):
    """Return the gate of a pool with processors of 100m and 64Mi, and its directory."""
    directory = Directory()
    meta = {"name": "main", "uid": "p1", "generation": 1, "creationTimestamp": CREATED}
    spec = {"nodeSelector": {}, "processor": {"cpu": "100m", "memory": "64Mi", "resources": devices}}
    directory.pools.observe({"metadata": meta, "spec": spec})
    caches = Caches(client)
    caches.directory = directory
    made = AdmissionGate(client, caches, lambda _: None)
    yield made, directory
    await made.close()


async def default(client, namespace, **amounts):
    limits = {"spec": {"limits": [{"type": "Container", "defaultRequest": amounts}]}}
    await client.create(LIMIT_RANGES.path(namespace=namespace), {"metadata": {"name": "defaults"}, **limits})


async def answered(gate, namespace, **pod):
    """Return the refusal of a job with such pods."""
    intake, directory = gate
    template = {"spec": {"containers": [{"name": "main", "image": "img"}], **pod}}
    generation = next(GENERATIONS)
    meta = {"name": "j1", "namespace": namespace, "uid": "j1", "generation": generation, "creationTimestamp": CREATED}
    asked = {"pool": "main", "units": 5, "deadline": "1h", "cost": {"perUnit": "1s"}, "template": template}
    known = directory.jobs.observe({"metadata": meta, "spec": asked})
    async with asyncio.timeout(30):
        while (job := intake.job(known, decided=False)) is None:  # noqa: ASYNC110  the API server's answer
            await asyncio.sleep(0.01)
    return job.refusal


async def test_a_limit_ranges_default_as_large_as_a_processor_refuses_the_job(client, namespace, gate):
    await default(client, namespace, cpu="100m", memory="16Mi")
    reason, said = await answered(gate, namespace, initContainers=[HELPER])
    assert reason == reasons.POD_TOO_LARGE
    assert said.startswith("its pods request 200m CPU (main 100m, helper 100m); a processor of pool main has 100m: ")


async def test_the_work_gives_way_to_a_small_default(client, namespace, gate):
    await default(client, namespace, cpu="20m", memory="16Mi")
    assert await answered(gate, namespace, initContainers=[HELPER]) is None
    processor = gate[0]._processor(gate[1].pools.named("main"))
    assert gate[0].others("j1", "Chunk", {}, processor) == Resources(0.02, 16 * MI)


async def test_work_that_would_have_less_than_the_least_is_refused_in_the_words_of_the_server(client, namespace, gate):
    spec = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "90m"}, "min": {"cpu": "90m"}}]}
    await client.create(LIMIT_RANGES.path(namespace=namespace), {"metadata": {"name": "least"}, "spec": spec})
    reason, said = await answered(gate, namespace, initContainers=[HELPER])
    assert reason == reasons.POD_REFUSED
    assert "minimum cpu usage per Container is 90m, but request is 10m" in said


async def test_the_overhead_of_a_runtime_class_counts(client, namespace, gate):
    name = f"runtime-{namespace}"
    overhead = {"podFixed": {"cpu": "30m", "memory": "8Mi"}}
    path = RUNTIME_CLASSES.path()
    meta = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    await client.create(path, {**meta, "handler": "h", "overhead": overhead})
    try:
        async with asyncio.timeout(30):  # admission reads it from a watch
            while await answered(gate, namespace, runtimeClassName=name) is not None:
                gate[0]._trials._answers.clear()
    finally:
        await client.delete(RUNTIME_CLASSES.path(name=name))
    processor = gate[0]._processor(gate[1].pools.named("main"))
    assert gate[0].others("j1", "Chunk", {}, processor) == Resources(0.03, 8 * MI)


@pytest.mark.parametrize(
    ("resources", "memory"),
    [
        ({"requests": {"memory": "160Mi"}, "limits": {"memory": "300Mi"}}, "160Mi"),
        ({"limits": {"memory": "300Mi"}}, "300Mi"),
        ({"requests": {"memory": "32Mi"}, "limits": {"memory": "300Mi"}}, None),
    ],
)
async def test_memory_of_the_pod_as_a_whole_is_what_the_pod_says(namespace, gate, resources, memory):
    refusal = await answered(gate, namespace, resources=resources)
    if memory is None:
        assert refusal is None
    else:
        assert refusal[0] == reasons.POD_TOO_LARGE
        assert f"request {memory} memory (the pod as a whole {memory}); a processor of pool main has 64Mi" in refusal[1]


@pytest.mark.parametrize("devices", [{GPU: 2}])
async def test_a_chunk_requests_the_devices_of_a_processor_and_no_more(namespace, gate):
    assert await answered(gate, namespace) is None
    processor = gate[0]._processor(gate[1].pools.named("main"))
    needs = next(iter(gate[0]._trials._answers.values()))
    assert needs.requests == processor.processor == Resources(0.1, 64 * MI, ((GPU, 2),))
    reason, said = await answered(gate, namespace, initContainers=[{**HELPER, "resources": {"limits": {GPU: 3}}}])
    assert reason == reasons.POD_TOO_LARGE
    assert said.startswith(f"its pods request 3 {GPU} (helper 3); a processor of pool main has 2: leave it out")


async def test_a_placeholder_requests_all_that_a_processor_has(client, namespace):
    asked, processor = [], Resources(0.1, 64 * MI, ((GPU, 2),))
    writer = SimpleNamespace(submit=lambda _key, operation: asked.append(operation))
    placeholders = Placeholders(PlaceholderSettings(namespace=namespace), client.clock, writer, None)
    placeholders.want("p1", "main", HoldCapacity({"n1": HeldCapacity(0.0, 1)}, processor))
    (create,) = asked
    made = await client.create(PODS.path(namespace=namespace), create.body, dry_run=True, strict=True)
    assert requested(made["spec"]) == processor


@pytest.mark.parametrize("devices", [{GPU: 2}])
async def test_a_quota_bounds_the_devices_of_chunks(client, namespace, gate):
    hard, path = {f"requests.{GPU}": "1"}, QUOTAS.path(namespace=namespace)
    await client.create(path, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    # the controller that would do so is not here
    status = {"status": {"hard": hard, "used": {f"requests.{GPU}": "0"}}}
    await client.patch_merge(QUOTAS.path(namespace=namespace, name="few"), status, subresource="status")
    async with asyncio.timeout(30):  # admission reads it from a watch
        while (refusal := await answered(gate, namespace)) is None:
            gate[0]._trials._answers.clear()
    assert refusal[0] == reasons.POD_REFUSED
    assert f"exceeded quota: few, requested: requests.{GPU}=2" in refusal[1]


@pytest.mark.parametrize("devices", [{GPU: 2}])
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"default": {GPU: "3"}}, None),
        ({"max": {GPU: "1"}}, f"maximum {GPU} usage per Container is 1, but limit is 2"),
        ({"min": {GPU: "3"}}, f"minimum {GPU} usage per Container is 3, but request is 2"),
    ],
)
async def test_a_limit_range_may_bound_devices_and_gives_no_chunk_its_default(client, namespace, gate, limits, said):
    spec = {"limits": [{"type": "Container", **limits}]}
    await client.create(LIMIT_RANGES.path(namespace=namespace), {"metadata": {"name": "devices"}, "spec": spec})
    refusal = await answered(gate, namespace)
    assert (refusal is None) == (said is None)
    if refusal:
        assert refusal[0] == reasons.POD_REFUSED
        assert said in refusal[1]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
        {
            "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}],
            "initContainers": [
                {**HELPER, "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}},
                {"name": "b", "image": "i", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1.7"}}},
            ],
        },
        {
            "containers": [{"name": "a", "image": "i", "resources": {"requests": {"memory": "10Mi"}}}],
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
        },
        {
            "containers": [{"name": "a", "image": "i", "resources": {"limits": {"hugepages-2Mi": "2Mi", "cpu": 1}}}],
            "resources": {"limits": {"memory": "1Gi"}},
        },
    ],
)
async def test_a_template_is_read_as_its_pod_will_be(client, namespace, spec):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    made = await client.create(PODS.path(namespace=namespace), body, dry_run=True)
    assert requested(made["spec"]) == requested(spec)
    assert beside(made["spec"], "a") == beside(spec, "a")
