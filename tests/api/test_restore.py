"""etcd is brought back to a snapshot while jobs run: nothing is accounted twice, and what ends is accounted soon.

The API server of these tests is their own, because it is stopped.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kinds import teach
from replica import Replica
from restored import RestoredStage, of_job
from stage import SERVICE

from punctual.errors import Fenced
from punctual.kube.api.resources import JOBS, LEASES, POOLS
from punctual.kube.cluster.client import ApiClient

KINDS = {"DivisibleJob": JOBS, "Pool": POOLS, "Lease": LEASES}
ROOT = Path(__file__).parents[2]
FALLS = {"versions fall": 0, "versions are bumped": 1_000_000}


class Server:
    """An API server of its own. In processes of its own: pytest sees none that it does not wait for."""

    def __init__(self):
        self.name = f"restore-{os.getpid()}"
        self.kubeconfig = Path(self.run("up").strip())
        teach(f"{self.run('bin').strip()}/kubectl", self.kubeconfig)

    def run(self, *words):
        command = [ROOT / "hack/apiserver", *map(str, words), "--name", self.name]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.run("down")


@pytest.fixture
async def stage(server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with ApiClient(str(server.kubeconfig), deadline=60) as client:
        made = RestoredStage(client, port)
        await made.prepare()
        yield made
        await made.clean()


class Operators:
    """One operator after the other, with one log."""

    def __init__(self, stage, server, log):
        self.stage, self.server, self.log = stage, server, log
        self.now = None

    def begin(self):
        self.now = Replica(self.server.kubeconfig, self.stage.namespace, self.log, **self.stage.env)
        return self.now

    async def succeed(self):
        """Kill it, and let another one lead."""
        before = self.stage.epoch
        self.now.kill()
        await self.now.ended()
        await self.stage.let_go()
        self.begin()
        await self.stage.until(lambda: self.stage.epoch > before)


@pytest.fixture
async def operators(stage, server, tmp_path):
    made = Operators(stage, server, tmp_path / "operator.log")
    yield made
    if made.now is not None and made.now.status is None:
        assert await made.now.end() == 0
    sys.stderr.write(made.log.read_text())  # pytest shows it where the test failed


async def live_on(operators, snapshot):
    """Save a snapshot beside a job that runs, then let happen what a restore takes back. Returns that job.

    Two more leaders, a chunk that was accounted, and two promises: to a job that came later, and to one that was
    suspended.
    """
    stage = operators.stage
    operators.begin()
    first = await stage.ask("first")
    one, _ = of_job(await stage.until(lambda: stage.working(2)), first)
    await stage.ask("waiting", suspend=True, processors={"min": 1, "max": 1})
    await stage.until(lambda: stage.answered("waiting", "Suspended"))
    await stage.until(lambda: stage.epoch == 1 and len(stage.runs) == 2)
    await asyncio.to_thread(operators.server.run, "save", snapshot)
    for _ in range(2):
        await operators.succeed()
    stage.finish = {one}
    await stage.until(lambda: stage.accounted("first"))
    await stage.client.patch_merge(JOBS.path(namespace=stage.namespace, name="waiting"), {"spec": {"suspend": False}})
    await stage.until(lambda: stage.answered("waiting"))
    await stage.ask("second", processors={"min": 1, "max": 1})
    await stage.until(lambda: stage.answered("second"))
    jobs = {f"{stage.namespace}/{name}" for name in ("first", "waiting", "second")}
    await stage.until(lambda: set(stage.told.values()) == jobs)
    return first


@pytest.mark.parametrize("survives", [True, False], ids=["the operator survives", "the operator begins anew"])
@pytest.mark.parametrize("bump", FALLS.values(), ids=FALLS)
async def test_jobs_go_on_after_etcd_was_brought_back(stage, operators, tmp_path, *, survives, bump):
    snapshot = tmp_path / "snapshot.db"
    async with stage.playing():
        first = await live_on(operators, snapshot)
        if not survives:
            operators.now.kill()
        stage.finish = set()
        await asyncio.to_thread(operators.server.run, "restore", snapshot, "--bump", bump)
        began = time.monotonic()
        if survives:
            assert await operators.now.ended() == 1
            assert "the store was set back" in operators.log.read_text()
        operators.begin()
        assert await stage.job("second") is None
        assert await stage.accounted("first") == 0
        one, _ = of_job(await stage.chunks(), first)
        stage.finish = {one}  # the kubelet runs it a second time: nothing says that it has ended
        await stage.until(lambda: stage.accounted("first"))
        sys.stderr.write(f"accounted {time.monotonic() - began:.1f} s after the API server answered\n")
        await stage.until(lambda: stage.epoch > 3)
        assert await stage.lease_epoch() == stage.epoch
        assert set(stage.refused) <= {"higherEpoch", "notLeading"}
        await stage.until(lambda: stage.has_events("EpochsFellBack", [stage.pool]))
        await stage.until(lambda: stage.has_events("PromiseLost", ["second", "waiting"]))
        await asyncio.wait_for(stage.run_all("first"), 60)


async def recreate(client, body):
    """Delete an object and create it again with what a backup has of it, its status, too, as a backup tool does."""
    meta = body["metadata"]
    path = KINDS[body["kind"]].path(namespace=meta.get("namespace", ""), name=meta["name"])
    await client.patch_merge(path, {"metadata": {"finalizers": None}})
    await client.delete(path)
    fields = ("name", "namespace", "labels", "annotations", "finalizers")
    made = {**body, "metadata": {field: meta[field] for field in fields if field in meta}}
    await client.create(path.rpartition("/")[0], made)
    if status := body.get("status"):
        with contextlib.suppress(Fenced):  # the operator was quicker: an older epoch is refused
            await client.patch_merge(path, {"status": status}, subresource="status")


@pytest.mark.parametrize("stopped", [False, True], ids=["beside the operator", "while no operator runs"])
async def test_jobs_that_a_backup_tool_creates_again_are_worked_off_once(stage, operators, *, stopped):
    client, space = stage.client, stage.namespace
    async with stage.playing():
        operators.begin()
        await stage.ask("first")
        one, two = sorted(p["metadata"]["name"] for p in await stage.until(lambda: stage.working(2)))
        stage.finish = {one}
        await stage.until(lambda: stage.accounted("first"))
        lease = LEASES.path(namespace=space, name=SERVICE)
        backup = [await client.get(path) for path in (POOLS.path(name=stage.pool), lease)]
        backup.append(await stage.job("first"))
        for _ in range(2):
            await operators.succeed()
        stage.finish = {one, two}
        await stage.until(lambda: stage.completed("first"))
        if stopped:
            operators.now.kill()
            await operators.now.ended()
            await stage.let_go()
        else:
            backup = backup[2:]
        for body in backup:
            await recreate(client, body)
        if stopped:
            operators.begin()
            assert await stage.accounted("first") == 20
            await stage.until(lambda: stage.has_events("EpochsFellBack", [stage.pool]))
            await stage.until(lambda: stage.epoch > 3)
        await asyncio.wait_for(stage.run_all("first"), 90)
        assert await stage.lease_epoch() == stage.epoch
        assert operators.now.status is None
