"""Ordinary Jobs that tools apply again and again, against a real API server: no tool takes turns with the operator.

A tool that puts `spec.suspend: true` back gives the promise up, as a user does. With the stanza of docs/jobs.md it
leaves the field alone, and nothing happens.
"""

import asyncio
import contextlib
import json
import runpy
from pathlib import Path
from typing import NamedTuple

import pytest
from gitops import respecting

from punctual import errors, reasons
from punctual.kube.api.resources import BATCH_JOBS, EVENTS, JOBS
from punctual.notation.duration import format_time, parse_time

JOB_TESTS = runpy.run_path(str(Path(__file__).parent / "test_jobs.py"))
replica = JOB_TESTS["replica"]
PARALLELISM = 4
MINUTES = range(11, 16)
"""Deadlines that a tool applies, one after the other. Where the promise has the new one, the operator has seen all."""


class Seen:
    """The values of two fields of the Job in the order of its versions, each once while it stays."""

    def __init__(self):
        self.suspend, self.parallelism, self.version = [], [], ""
        self.begun = asyncio.Event()

    def take(self, body):
        self.version = body["metadata"]["resourceVersion"]
        for name in ("suspend", "parallelism"):
            values, value = getattr(self, name), body["spec"].get(name)
            if values[-1:] != [value]:
                values.append(value)


class World(JOB_TESTS["World"]):
    """With a Job that a tool applies."""

    def __init__(self, client, namespace, kubectl):
        super().__init__(client, namespace)
        self.kubectl = kubectl
        self._cleanup += [JOBS.path(namespace=namespace, name="nightly"), self.at()]

    def manifest(self, minutes=10):
        """Return what stands in a repository."""
        container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
        notes = {"punctual.dev/deadline": f"{minutes}m", "punctual.dev/cost-per-unit": "5s"}
        labels = {"punctual.dev/pool": self.pool}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "nightly", "namespace": self.namespace, "labels": labels, "annotations": notes},
            "spec": {
                "suspend": True,
                "completions": 4,
                "parallelism": PARALLELISM,
                "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }

    @contextlib.asynccontextmanager
    async def watched(self):
        """Yield what is seen of the Job; in the end, all of it was seen."""
        seen = Seen()
        task = asyncio.ensure_future(self._watch(seen))
        try:
            await seen.begun.wait()
            yield seen
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, seen):
        path = BATCH_JOBS.path(namespace=self.namespace)
        async with contextlib.aclosing(self.client.watch(path, initial=True, seconds=900, silence=910)) as events:
            async for event in events:
                if event["type"] == "BOOKMARK":
                    seen.begun.set()
                elif event["type"] != "DELETED":
                    seen.take(event["object"])

    async def promised(self, minutes):
        """Wait until the DivisibleJob has this deadline."""
        due = format_time(parse_time((await self.job())["metadata"]["creationTimestamp"]) + 60 * minutes)

        async def holds():
            there = await self.client.get(JOBS.path(namespace=self.namespace, name="nightly"))
            return there if there["spec"].get("deadlineTime") == due else None

        return await self.until(holds)

    async def up_to_date(self, seen):
        """Wait until the Job's newest version was seen."""

        async def holds():
            return seen.version == (await self.job())["metadata"]["resourceVersion"]

        await self.until(holds)

    async def told(self, reason, words):
        """Wait for an event of the Job."""

        async def holds():
            events = (await self.client.list(EVENTS.path(namespace=self.namespace))).items
            return any(
                (e["regarding"]["kind"], e["reason"]) == ("Job", reason) and words in e.get("note", "") for e in events
            )

        await self.until(holds)


@pytest.fixture
async def world(client, namespace, kubectl):
    made = World(client, namespace, kubectl)
    await made.add_node(cpu="2")
    await made.add_pool()
    yield made
    await made.clean()


async def server_side(world, body):
    """Apply on the server, by force."""
    await world.client.apply(world.at(), body, field_manager="argocd-controller")


async def client_side(world, body):
    """Apply as ``kubectl apply`` does: what is not as in the manifest is written."""
    await asyncio.to_thread(world.kubectl, "apply", "-f", "-", input=json.dumps(body), check=True)


async def three_way(world, body):
    """Write what differs from the manifest, as ``helm upgrade`` does."""
    try:
        there = await world.job()
    except errors.NotFound:
        await world.client.create(BATCH_JOBS.path(namespace=world.namespace), body, field_manager="helm")
    else:
        await world.client.patch_merge(world.at(), differing(there, body), field_manager="helm")


def differing(there, wanted):
    """Return the fields that are not as wanted. Lists differ by defaults alone."""
    found = {}
    for name, value in wanted.items():
        if isinstance(value, dict):
            if inner := differing(there.get(name) or {}, value):
                found[name] = inner
        elif not isinstance(value, list) and there.get(name) != value:
            found[name] = value
    return found


class Tool(NamedTuple):
    """What applies a manifest, and its name as a field manager."""

    apply: object
    manager: str


TOOLS = {
    "server-side apply": Tool(server_side, "argocd-controller"),
    "kubectl apply": Tool(client_side, "kubectl-client-side-apply"),
    "helm upgrade": Tool(three_way, "helm"),
}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
async def test_a_tool_that_puts_suspend_back_gives_the_promise_up_once_and_is_named(world, replica, tool):
    await replica()
    async with world.watched() as seen:
        await tool.apply(world, world.manifest())
        await world.opened()
        await world.says("Running")
        for minutes in MINUTES:
            await tool.apply(world, world.manifest(minutes))
            await world.promised(minutes)
        notes = await world.says("Suspended")
        await world.up_to_date(seen)
    assert seen.suspend == [True, False, True]
    assert len(seen.parallelism) <= 3
    assert seen.parallelism[-1] == PARALLELISM
    assert f"{tool.manager} has set it" in notes["punctual.dev/message"]
    await world.told(reasons.SUSPENDED, f"{tool.manager} has set it")


@pytest.mark.parametrize("tool", [TOOLS["server-side apply"], TOOLS["kubectl apply"]], ids=["server", "client"])
async def test_with_the_stanza_of_the_documentation_a_tool_changes_nothing(world, replica, tool):
    await replica()
    async with world.watched() as seen:
        await tool.apply(world, world.manifest())
        await world.opened()
        await world.says("Running")
        for minutes in MINUTES:
            await tool.apply(world, respecting(world.manifest(minutes), await world.job()))
            promised = await world.promised(minutes)
        await world.up_to_date(seen)
    assert seen.suspend == [True, False]
    assert len(set(seen.parallelism)) == len(seen.parallelism), "no number comes again"
    assert not promised["spec"].get("suspend")
    await world.says("Running")


async def test_parallelism_that_a_tool_puts_back_is_left_to_it(world, replica):
    """The tool leaves `suspend` alone, and nothing else."""
    await replica()
    async with world.watched() as seen:
        await server_side(world, world.manifest())
        await world.opened()
        await world.says("Running")
        for minutes in MINUTES:
            body = world.manifest(minutes)
            body["spec"]["suspend"] = False
            await server_side(world, body)
            promised = await world.promised(minutes)
        await world.up_to_date(seen)
    assert seen.suspend == [True, False]
    assert len(seen.parallelism) <= 3, "lowered once, put back once"
    assert seen.parallelism[-1] == PARALLELISM
    assert promised["spec"]["processors"]["max"] == PARALLELISM


async def test_an_apply_on_the_server_without_force_is_refused_and_changes_nothing(world, replica):
    await replica()
    words = ("apply", "--server-side", "--field-manager=tool", "-f", "-")
    async with world.watched() as seen:
        first = json.dumps(world.manifest())
        await asyncio.to_thread(world.kubectl, *words, input=first, check=True)
        await world.opened()
        await world.says("Running")
        done = await asyncio.to_thread(world.kubectl, *words, input=json.dumps(world.manifest(20)))
        assert done.returncode != 0
        assert ".spec.suspend" in done.stderr
        await world.up_to_date(seen)
    assert seen.suspend == [True, False]
    assert (await world.job())["metadata"]["annotations"]["punctual.dev/deadline"] == "10m"
