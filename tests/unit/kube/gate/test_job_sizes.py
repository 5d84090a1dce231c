"""What the Pool is told of the pods of ordinary Jobs, and which are refused when the pool is known at last."""

import asyncio

import pytest
from batch_bodies import batch_body
from clocks import clock

from punctual import reasons
from punctual.kube.cluster.batch_jobs import project_job
from punctual.kube.cluster.caches import Caches
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.kinds.batch.contract import divisible_job
from punctual.scheduling.model.job import PodSize
from punctual.scheduling.model.resources import Resources

CREATED = "2030-01-01T00:00:00Z"
GPU = "example.com/gpu"


class Server:
    """An API server that takes every pod as it is."""

    def __init__(self):
        self.clock = clock()

    async def create(self, _path, body, **_):
        return body


class Desk:
    """A gate that knows a Job and its DivisibleJob, and a pool."""

    def __init__(self, **processor):
        server = Server()
        self.caches = Caches(server)
        meta = {"name": "main", "uid": "p1", "generation": 1, "creationTimestamp": CREATED}
        spec = {"nodeSelector": {}, "processor": {"cpu": "1", "memory": "1Gi", **processor}}
        self.caches.directory.pools.observe({"metadata": meta, "spec": spec})
        self.gate = AdmissionGate(server, self.caches, lambda _: None)

    async def job(self, body, *, decided=False):
        """Return what the Pool is told of a Job's DivisibleJob."""
        batch = project_job(body)
        self.caches.batch.observe(batch, gone=False)
        made = divisible_job(batch, 0.0)
        made["metadata"] |= {"uid": "d1", "generation": 1, "creationTimestamp": CREATED}
        known = self.caches.directory.jobs.observe(made)
        while (found := self.gate.job(known, decided=decided)) is None:  # noqa: ASYNC110  the gate has no event
            await asyncio.sleep(0)
        await self.gate.close()
        return found


@pytest.mark.parametrize("decided", [False, True])
async def test_the_pool_is_told_what_pods_take(decided):
    found = await Desk().job(batch_body(cpu="400m", memory="1Gi"), decided=decided)
    assert found.refusal is None
    assert found.unit_pods
    assert found.pod == PodSize(Resources(0.4, 2**30), None)


async def test_their_own_limit_is_told_and_devices_of_the_processor_may_be_left_out():
    limits = {"cpu": "500m", GPU: "1"}
    resources = {"requests": {"cpu": "400m"}, "limits": limits}
    pod = {"containers": [{"name": "work", "image": "w:1", "resources": resources}]}
    found = await Desk(resources={GPU: 2}).job(batch_body(pod=pod))
    assert found.refusal is None
    assert found.pod == PodSize(Resources(0.4, 0, ((GPU, 1),)), 0.5)
    assert found.rules.devices == (), "its nodes are those with processors"


@pytest.mark.parametrize("more", [{"cpu": "1500m"}, {"memory": "2Gi"}])
async def test_pods_that_were_asked_for_before_their_pool_was_there_are_compared_with_it(more):
    found = await Desk().job(batch_body(**more))
    assert found.refusal[0] == reasons.POD_TOO_LARGE
    assert "and a processor of the pool has 1" in found.refusal[1]
    assert (await Desk().job(batch_body(**more), decided=True)).refusal is None, "its promise stands"


async def test_of_a_job_that_is_gone_nothing_is_known():
    desk = Desk()
    desk.caches.batch.observe = lambda *_, **__: None
    assert (await desk.job(batch_body())).pod is None
