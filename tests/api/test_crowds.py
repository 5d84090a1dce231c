"""Many at once against the real API server: the operator, a process, decides meanwhile, and its memory is bounded.

``make test`` has a fraction of each crowd, ``make nightly`` the whole.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import uuid

import pytest
from lib.testbed import condition
from process import OperatorProcess
from server import job, pool
from settled import settle

from punctual import errors, reasons
from punctual.kube.api.resources import JOBS, NODES, PODS, POOLS
from punctual.kube.cluster.client import ApiClient

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
JOBS_AT_ONCE = 10_000 if NIGHTLY else 400
TEMPLATES_AT_ONCE = 6_000 if NIGHTLY else 300
PODS_AT_ONCE = 5_000 if NIGHTLY else 500
SETTLED = 20_000 if NIGHTLY else 1_000
"""Jobs that are refused or have ended before a takeover."""
UNDER_WAY = 32
"""Creates under way at once."""
PATIENCE = 90.0
"""Seconds in which a decision is seen meanwhile: for a machine that does other things too; usual is a tenth of it."""

pytestmark = pytest.mark.timeout(1200 if NIGHTLY else 600, func_only=True)


@pytest.fixture
async def operator(kubeconfig, namespace, tmp_path):
    operator = OperatorProcess(kubeconfig, namespace, tmp_path / "operator.log")
    async with asyncio.timeout(120):
        while not operator.leads:  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
    yield operator
    status = await asyncio.to_thread(operator.end)
    said = operator.log.read_text()
    sys.stderr.write(said)  # pytest shows it where the test failed
    assert status == 0
    assert '"status_refused"' not in said


class Crowd:
    """A pool of made up nodes, and a watcher that knows when each job was answered."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.pool = f"crowd-{uuid.uuid4().hex[:8]}"
        self.answered = {}
        """Name -> (seconds, reason)."""
        self.changed = asyncio.Event()

    async def prepare(self, *, nodes, cpu, pods=110):
        await asyncio.gather(*(self._add_node(f"{self.pool}-{n}", cpu, pods) for n in range(nodes)))
        await self.client.create(POOLS.path(), pool(self.pool))
        async with asyncio.timeout(90):
            while (await self.status()).get("processors") != nodes * cpu:  # noqa: ASYNC110  the API server's state
                await asyncio.sleep(0.05)

    async def _add_node(self, name, cpu, pods):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": self.pool}}}
        await self.client.create(NODES.path(), node)
        # admission taints a new node until a controller, that is not here, sees it ready
        await self.client.patch_merge(NODES.path(name=name), {"spec": {"taints": None}})
        room = {"cpu": str(cpu), "memory": "256Gi", "pods": str(pods)}
        status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch_merge(NODES.path(name=name), {"status": status}, subresource="status")

    async def watch(self):
        path = JOBS.path(namespace=self.namespace)
        while True:
            # a server that has only just learned of the kind may refuse its first watches
            with contextlib.suppress(errors.ClusterError):
                listing = await self.client.list(path)
                for item in listing.items:
                    self._see(item)
                watch = self.client.watch(path, resource_version=listing.resource_version, seconds=600, silence=60.0)
                async with contextlib.aclosing(watch) as events:
                    async for event in events:
                        if event["type"] in {"ADDED", "MODIFIED"}:
                            self._see(event["object"])

    def _see(self, body):
        answer = condition(body.get("status") or {}, "Admitted")
        if answer:
            self.answered.setdefault(body["metadata"]["name"], (time.monotonic(), answer["reason"]))
            self.changed.set()

    async def create(self, path, bodies):
        slots = asyncio.Semaphore(UNDER_WAY)

        async def create(body):
            async with slots:
                await self.client.create(path, body)

        await asyncio.gather(*(create(body) for body in bodies))

    async def ask(self, name, **spec):
        """Create a job; return seconds until its answer, and the reason."""
        began = time.monotonic()
        body = job(name, self.namespace, self.pool, **spec)
        await self.client.create(JOBS.path(namespace=self.namespace), body)
        await self.seen([name], within=PATIENCE)
        at, reason = self.answered[name]
        return at - began, reason

    async def seen(self, names, *, within):
        async with asyncio.timeout(within):
            while any(name not in self.answered for name in names):
                self.changed.clear()
                await self.changed.wait()

    async def status(self):
        return (await self.client.get(POOLS.path(name=self.pool))).get("status") or {}

    async def forget_others(self):
        """Delete the jobs that other tests have left on this server."""
        jobs = (await self.client.list(JOBS.path())).items
        for namespace in {body["metadata"]["namespace"] for body in jobs} - {self.namespace}:
            await self.client.delete(JOBS.path(namespace=namespace), grace=0)

    async def clean(self):
        for path in (JOBS.path(namespace=self.namespace), PODS.path(namespace=self.namespace)):
            await self.client.delete(path, grace=0)
        await self.client.patch_merge(POOLS.path(name=self.pool), {"metadata": {"finalizers": None}})
        await self.client.delete(POOLS.path(name=self.pool))
        for item in (await self.client.list(NODES.path(), label_selector=f"pool={self.pool}")).items:
            await self.client.delete(NODES.path(name=item["metadata"]["name"]))


@pytest.fixture
async def crowd(kubeconfig, namespace):
    async with ApiClient(str(kubeconfig), deadline=120.0) as client:  # thousands are deleted by one call
        crowd = Crowd(client, namespace)
        watcher = asyncio.create_task(crowd.watch())
        yield crowd
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        await crowd.clean()


async def test_a_crowd_of_jobs_is_answered_and_what_comes_meanwhile_too(crowd, operator):
    await crowd.prepare(nodes=4, cpu=50)
    await crowd.ask("first")
    quiet = operator.resident
    names = [f"crowd-{n}" for n in range(JOBS_AT_ONCE)]
    began = time.monotonic()
    # half of them fit behind each other, half are refused at once: both kinds of answer, in one heap
    bodies = [job(name, crowd.namespace, crowd.pool, deadline="8h" if n % 2 else "2s") for n, name in enumerate(names)]
    creating = asyncio.create_task(crowd.create(JOBS.path(namespace=crowd.namespace), bodies))
    peak, deepest, meanwhile = 0.0, 0.0, []
    while not creating.done() or any(name not in crowd.answered for name in names):
        seconds, reason = await crowd.ask(f"meanwhile-{len(meanwhile)}")
        assert reason == reasons.FEASIBLE
        meanwhile.append(seconds)
        peak = max(peak, operator.resident)
        deepest = max(deepest, (await asyncio.to_thread(operator.metrics))["punctual_writer_queue_depth"])
        await asyncio.sleep(0.5)  # between two looks, not for anything to happen
    took = time.monotonic() - began
    await creating
    wrong = {n: r for n in names if (r := crowd.answered[n][1]) not in {reasons.FEASIBLE, reasons.INFEASIBLE_STARTUP}}
    assert not wrong
    report(
        jobs=JOBS_AT_ONCE,
        seconds=round(took, 1),
        per_second=round(JOBS_AT_ONCE / took),
        meanwhile_worst=round(max(meanwhile), 2),
        quiet_mib=round(quiet),
        peak_mib=round(peak),
        deepest=deepest,
    )
    assert peak < quiet + 40 + 0.03 * JOBS_AT_ONCE, "more than 30 kB a job"
    assert operator.alive


async def test_a_crowd_of_templates_keeps_no_status_waiting(crowd, operator):
    """Each has to be tried; another namespace's job is answered meanwhile, and told what becomes of it."""
    await crowd.prepare(nodes=2, cpu=50)
    elsewhere = f"{crowd.namespace}-crowd"
    meta = {"name": elsewhere}
    await crowd.client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    await crowd.ask("first")
    bodies = []
    for n in range(TEMPLATES_AT_ONCE):
        template = {"spec": {"containers": [{"name": "main", "image": f"work:{n}"}]}}
        bodies.append(job(f"crowd-{n}", elsewhere, crowd.pool, template=template, dryRun=True))
    path = JOBS.path(namespace=elsewhere)
    creating = asyncio.create_task(crowd.create(path, bodies))
    meanwhile, left = [], TEMPLATES_AT_ONCE
    async with asyncio.timeout(1000):
        while left:
            seconds, reason = await crowd.ask(f"meanwhile-{len(meanwhile)}", deadline="4h", dryRun=True)
            assert reason == reasons.DRY_RUN
            meanwhile.append(seconds)
            if creating.done():
                there = [condition(j.get("status") or {}, "Admitted") for j in (await crowd.client.list(path)).items]
                left = sum(1 for c in there if c.get("reason") in {None, reasons.ANSWER_DELAYED})
            await asyncio.sleep(0.5)  # between two looks, not for anything to happen
    await creating
    report(templates=TEMPLATES_AT_ONCE, meanwhile_worst=round(max(meanwhile), 2), looks=len(meanwhile))
    log = operator.log.read_text()
    assert '"write_failed"' not in log, "no status had to be written twice"
    assert operator.alive
    await crowd.client.delete(path)


async def test_a_job_of_a_billion_units_is_a_job_like_any_other(crowd, operator):
    await crowd.prepare(nodes=1, cpu=4)
    # 10^9 units of 10 us: 10,000 s of work, on at least three processors
    _, reason = await crowd.ask("billion", units=10**9, deadline="70m", cost={"perUnit": "10us", "startup": "1s"})
    assert reason == reasons.FEASIBLE
    _, refused = await crowd.ask("beside", units=10**15, deadline="600h", cost={"perUnit": "1ms", "startup": "1s"})
    assert refused == reasons.INFEASIBLE_CAPACITY
    path = JOBS.path(namespace=crowd.namespace, name="billion")
    async with asyncio.timeout(90):
        while len(chunks := (await crowd.client.get(path))["status"].get("chunks") or ()) < 3:  # noqa: ASYNC110  theirs
            await asyncio.sleep(0.05)
    assert sum(c["end"] - c["begin"] for c in chunks) == 10**9
    assert operator.alive


async def test_a_crowd_of_pods_on_the_pools_nodes_takes_its_room_and_gives_it_back(crowd, operator):
    nodes = 8
    await crowd.prepare(nodes=nodes, cpu=100, pods=1000)
    await crowd.ask("first", deadline="4h")
    quiet = operator.resident
    meta = {"namespace": crowd.namespace, "labels": {"app": "crowd"}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    bodies = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**meta, "name": f"crowd-{n}"},
            "spec": {"nodeName": f"{crowd.pool}-{n % nodes}", "containers": [container]},
        }
        for n in range(PODS_AT_ONCE)
    ]
    before = (await crowd.status())["processors"]
    assert before == 100 * nodes
    creating = asyncio.create_task(crowd.create(PODS.path(namespace=crowd.namespace), bodies))
    left = (100 - (PODS_AT_ONCE // nodes) // 10) * nodes  # ten such pods take a processor
    meanwhile, began = [], time.monotonic()
    while not creating.done() or (await crowd.status())["processors"] > left:
        seconds, reason = await crowd.ask(f"meanwhile-{len(meanwhile)}", deadline="4h")
        assert reason == reasons.FEASIBLE
        meanwhile.append(seconds)
        assert time.monotonic() - began < 500
    took = time.monotonic() - began
    await creating
    peak = operator.resident
    report(
        pods=PODS_AT_ONCE,
        seconds=round(took, 1),
        meanwhile_worst=round(max(meanwhile), 2),
        quiet_mib=round(quiet),
        after_mib=round(peak),
    )
    assert peak < quiet + 40 + 0.01 * PODS_AT_ONCE, "more than 10 kB a pod"
    await crowd.client.delete(f"{PODS.path(namespace=crowd.namespace)}?labelSelector=app%3Dcrowd", grace=0)
    async with asyncio.timeout(120):
        while (await crowd.status())["processors"] != before:  # noqa: ASYNC110  the API server's state
            await asyncio.sleep(0.2)
    assert operator.alive


async def test_a_crowd_of_settled_jobs_keeps_no_new_leader_from_its_first_decision(
    crowd, kubeconfig, namespace, tmp_path
):
    await crowd.forget_others()
    await settle(crowd.client, namespace, crowd.pool, SETTLED)
    operator = OperatorProcess(kubeconfig, namespace, tmp_path / "operator.log")
    try:
        await crowd.prepare(nodes=4, cpu=50)
        _, reason = await crowd.ask("asked")
        assert reason == reasons.FEASIBLE
        said = [json.loads(line) for line in operator.log.read_text().splitlines() if line.startswith("{")]
        (begun,) = (line for line in said if line["event"] == "term_begun")
        assert begun["aside"] == SETTLED, "not each of them was left aside, or another job was"
        assert operator.metrics()["punctual_takeover_begin_timestamp_seconds"] == 0.0
        listing = await crowd.client.list(JOBS.path(namespace=namespace))
        written = [b["metadata"]["name"] for b in listing.items if b["status"]["epoch"] != 1]
        assert written == ["asked"], "settled jobs were written"
        # one of them is edited: it is stamped, asked again and promised
        name = "settled-1"
        path = JOBS.path(namespace=namespace, name=name)
        await crowd.client.patch_merge(path, {"spec": {"deadline": "8h"}})
        async with asyncio.timeout(PATIENCE):
            while not (status := (await crowd.client.get(path))["status"]).get("promise"):  # noqa: ASYNC110  theirs
                await asyncio.sleep(0.05)
        assert status["epoch"] > 1
        report(settled=SETTLED, took=begun["seconds"])
    finally:
        code = await asyncio.to_thread(operator.end)
        sys.stderr.write(operator.log.read_text())  # pytest shows it where the test failed
    assert code == 0


def report(**numbers):
    """What was seen, for whoever asks (pytest -rP)."""
    print(json.dumps(numbers))  # noqa: T201  shown on demand
