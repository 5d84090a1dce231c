#!/usr/bin/env python3
"""One ordinary Job with many indexes on a real cluster: when it ends against its forecast.

    tests/bench/indexes.py [--completions 200] [--seconds 2] [--pool main]

Prints JSON. Needs an installed operator and a pool of which all processors are free. The Job is run twice, with its
cost declared and without one, which the first indexes then measure. Each asks for a deadline that cannot be kept, is
refused, and takes the offer: so it needs all processors, and its forecast is not that of a plan with a few of them.

- forecast: from the Job's creation until the first ETA that was told with its promise; end: until the finish time in
  the status of its DivisibleJob.
- again: indexes that began more than once, though no pod of theirs had failed.
- most_at_once: pods that had left the gate and had not ended, at any moment of the watch.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
import uuid

from installed import Installed

from punctual import errors
from punctual.kube.api.resources import BATCH_JOBS, JOBS, PODS, POOLS
from punctual.kube.cluster.client import ApiClient
from punctual.labels import COST_PER_UNIT, DEADLINE, GATE, POOL_LABEL
from punctual.notation.duration import parse_duration, parse_time

TARGET = {"ratio": 1.05, "again": 0}
NAMESPACES = "/api/v1/namespaces"
INDEX = "batch.kubernetes.io/job-completion-index"
OVER = frozenset({"Succeeded", "Failed"})
ENDED = frozenset({"Completed", "Missed", "Failed"})


def news(line):
    """Say what is going on."""
    print(f"indexes: {line}", file=sys.stderr, flush=True)  # noqa: T201  news


class Watched:
    """The Job's pods, and its DivisibleJob, as they were seen."""

    def __init__(self):
        self.status = {}
        self.forecast = None
        """The first ETA with a promise."""
        self.most = 0
        self.failed = set()
        """Indexes of which a pod has failed."""
        self._begun = {}  # pods (uid) that left the gate, by index
        self._free = set()  # those that have not ended
        self.changed = asyncio.Event()

    def take_job(self, what, body):
        """Take in a change of the DivisibleJob."""
        self.status = body.get("status") or {}
        if self.forecast is None and "promise" in self.status and "eta" in self.status:
            self.forecast = parse_time(self.status["eta"])
        self.changed.set()

    def take_pod(self, what, body):
        """Take in a change of a pod."""
        meta, phase = body["metadata"], body["status"].get("phase")
        if any(gate["name"] == GATE for gate in body["spec"].get("schedulingGates") or ()):
            return
        index = meta["annotations"][INDEX]
        self._begun.setdefault(index, set()).add(meta["uid"])
        if phase == "Failed":
            self.failed.add(index)
        if phase in OVER or what == "DELETED":
            self._free.discard(meta["uid"])
        else:
            self._free.add(meta["uid"])
        self.most = max(self.most, len(self._free))

    @property
    def again(self):
        """How many indexes began more than once without need."""
        return sum(len(pods) > 1 and index not in self.failed for index, pods in self._begun.items())


async def follow(client, path, take):
    """Take in what happens below a path, for ever."""
    while True:
        with contextlib.suppress(errors.ClusterError):
            there = await client.list(path)
            for body in there.items:
                take("ADDED", body)
            events = client.watch(path, resource_version=there.resource_version, seconds=900, silence=910)
            async with contextlib.aclosing(events):
                async for event in events:
                    if event["type"] != "BOOKMARK":
                        take(event["type"], event["object"])
        await asyncio.sleep(0.1)


def manifest(options, image, processor):
    """Return the Job. Each index sleeps."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", f"{options.seconds:g}"],
        "resources": {"requests": processor, "limits": processor},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "indexes",
            "labels": {POOL_LABEL: options.pool},
            "annotations": {DEADLINE: f"{options.ask:g}s"},
        },
        "spec": {
            "suspend": True,
            "completions": options.completions,
            "parallelism": options.completions,
            "completionMode": "Indexed",
            "template": {
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
            },
        },
    }


async def take_offer(client, path, seen, began):
    """Ask for what a Job is offered, if it is, without the minute that an offer leaves for an edit."""
    offer = seen.status.get("offer") or {}
    if seen.status.get("state") == "Refused" and "earliestDeadline" in offer:
        deadline = f"{time.time() - began + parse_duration(offer['earliestDeadline']):.0f}s"
        news(f"offered {deadline}")
        seen.status = {}
        await client.patch_merge(path, {"metadata": {"annotations": {DEADLINE: deadline}}})


async def run(client, options, body, processors):
    """Run a Job in a namespace of its own; return how it went."""
    namespace, seen = f"bench-{uuid.uuid4().hex[:8]}", Watched()
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    tasks = [
        asyncio.ensure_future(follow(client, JOBS.path(namespace=namespace), seen.take_job)),
        asyncio.ensure_future(follow(client, PODS.path(namespace=namespace), seen.take_pod)),
    ]
    try:
        created = await client.create(BATCH_JOBS.path(namespace=namespace), body)
        began = parse_time(created["metadata"]["creationTimestamp"])
        async with asyncio.timeout(options.within):
            while seen.status.get("state") not in ENDED:
                await take_offer(client, BATCH_JOBS.path(namespace=namespace, name="indexes"), seen, began)
                seen.changed.clear()
                await seen.changed.wait()
    except TimeoutError:
        sys.exit(f"indexes: not done in time: {seen.status}")
    finally:
        for task in tasks:
            task.cancel()
        await client.delete(f"{NAMESPACES}/{namespace}")
    forecast, end = seen.forecast - began, parse_time(seen.status["finishTime"]) - began
    return {
        "state": seen.status["state"],
        "forecast_s": round(forecast, 1),
        "end_s": round(end, 1),
        "ratio": round(end / forecast, 3),
        "again": seen.again,
        "failed": len(seen.failed),
        "most_at_once": seen.most,
        "most_over_processors": round(seen.most / processors, 2),
    }


async def measure(options):
    """Run the Job with its cost declared, and without."""
    async with ApiClient(os.environ.get("KUBECONFIG"), user_agent="punctual-bench") as client:
        pool = await client.get(POOLS.path(name=options.pool))
        free, processors = pool["status"]["free"], pool["status"]["processors"]
        if free < processors or pool["status"]["queue"]:
            sys.exit(f"indexes: pool {options.pool} is at work: {free} of {processors} processors are free")
        image = options.image or Installed(options.namespace).pods()[0]["spec"]["containers"][0]["image"]
        processor = {name: pool["spec"]["processor"][name] for name in ("cpu", "memory")}
        found = {}
        for how, cost in (("declared", {COST_PER_UNIT: f"{options.seconds:g}s"}), ("measured", {})):
            news(f"{options.completions} indexes of {options.seconds:g} s on {processors} processors, {how}")
            body = manifest(options, image, processor)
            body["metadata"]["annotations"] |= cost
            found[how] = await run(client, options, body, processors)
            await idle(client, options)
        return {"completions": options.completions, "processors": processors, **found}


async def idle(client, options):
    """Wait until all processors are free again."""
    async with asyncio.timeout(120):
        while True:
            status = (await client.get(POOLS.path(name=options.pool)))["status"]
            if status["free"] == status["processors"]:
                return
            await asyncio.sleep(0.5)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--ask", type=float, default=40, help="seconds of the first deadline: too few")
    parser.add_argument("--within", type=int, default=600, help="seconds that a run may take")
    parser.add_argument("--pool", default="main")
    parser.add_argument("--image", help="with sleep in it; default: the operator's")
    parser.add_argument("--namespace", default="punctual", help="the operator's")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"indexes": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
