#!/usr/bin/env python3
"""Ordinary Jobs beside DivisibleJobs: how long their answers take, and how many there are in a second.

    tests/bench/jobs.py [--idle 100] [--burst 1000] [--rounds 2]
    tests/bench/jobs.py --installed [--kubeconfig FILE]

Prints JSON. Both kinds are measured in one run, with the same load and deadline. A time runs from the answer to a
create until a watcher sees the condition Admitted: for a Job, of the DivisibleJob that the operator makes for it.
``told`` runs until the Job's own annotation has the state. First come single jobs on a quiet operator, a pair each
time, the one and the other kind first in turn. Then so many at once, each burst into an empty pool: in each round both
kinds, in every other round in the opposite order. ``ratio``: that of Jobs over that of DivisibleJobs.

Nodes, API server and operator are those of decisions.py, and so are the options. On a bare API server no controller
makes the pods of Jobs.
"""

import asyncio
import contextlib
import time

from decisions import Bench, carry_out, command_line, news, one_burst, quantile, stage

from punctual.kube.api.resources import BATCH_JOBS
from punctual.labels import COST_PER_UNIT, DEADLINE, POOL_LABEL, STATE

TARGET = {"p99_ratio": 1.3, "rate_ratio": 0.6}
KINDS = ("divisible", "job")
QUIET = 0.4
"""Seconds after an answer until what follows it is done."""
UNITS = 4
"""Of a Job. Each takes 2.5 s, so that the load is that of a DivisibleJob of decisions.py."""


class Pair(Bench):
    """A bench to which jobs of both kinds come."""

    def __init__(self, client):
        super().__init__(client)
        self.kind = KINDS[0]
        self.told = {}
        """Name of a Job -> when its annotation was seen to have a state."""

    async def create(self, name, *, deadline="4h"):
        """Create a job of the present kind."""
        if self.kind == "divisible":
            return await super().create(name, deadline=deadline)
        resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
        container = {"name": "main", "image": "work:1", "resources": resources}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {POOL_LABEL: self.namespace},
                "annotations": {DEADLINE: deadline, COST_PER_UNIT: "2500ms"},
            },
            "spec": {
                "suspend": True,
                "completions": UNITS,
                "parallelism": 1,
                "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }
        created = await self.client.create(BATCH_JOBS.path(namespace=self.namespace), body)
        return time.monotonic(), created["metadata"]

    def _note(self, body):
        if "completions" not in body["spec"]:
            super()._note(body)
        elif STATE in (body["metadata"].get("annotations") or {}):
            self.told.setdefault(body["metadata"]["name"], time.monotonic())
            self.changed.set()

    async def one(self, kind, number):
        """Return the milliseconds to the answer of a job of a kind, and until the Job is told, on a quiet operator."""
        self.kind, name = kind, f"idle-{kind}-{number}"
        answered, _ = await self.create(name)
        await self.decided([name], within=30)
        async with asyncio.timeout(30):
            while kind == "job" and name not in self.told:
                self.changed.clear()
                await self.changed.wait()
        await asyncio.sleep(QUIET)
        return [1000 * max(0.0, seen[name] - answered) for seen in (self.seen, self.told) if name in seen]

    async def clear(self):
        """Delete all Jobs, then the rest."""
        kept = BATCH_JOBS.path(namespace=self.namespace)
        for item in (await self.client.list(kept)).items:
            path = BATCH_JOBS.path(namespace=self.namespace, name=item["metadata"]["name"])
            await self.client.delete(path, propagation="Background")
        await super().clear()
        self.told.clear()


async def single(bench, count):
    """Return quantiles of the times to answers of single jobs of both kinds, and their ratios."""
    times = {"divisible": [], "job": [], "told": []}
    for number in range(count):
        for kind in KINDS if number % 2 else reversed(KINDS):
            answer, *told = await bench.one(kind, number)
            times[kind].append(answer)
            times["told"] += told
    found = {kind: {f"p{q}_ms": quantile(sorted(of), q / 100) for q in (50, 90, 99)} for kind, of in times.items()}
    ratios = {f"p{q}": round(found["job"][f"p{q}_ms"] / found["divisible"][f"p{q}_ms"], 2) for q in (50, 90, 99)}
    return {"pairs": count, **found, "ratio": ratios}


async def at_once(bench, operator, kubeconfig, options):
    """Return the bursts of both kinds, and the ratio of their rates."""
    bursts = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind in reversed(KINDS) if number % 2 else KINDS:
            bench.kind = kind
            burst = await one_burst(bench, operator, kubeconfig, options.burst, f"{kind}-{number}-")
            bursts[kind].append(burst)
    # the mean time of a decision, so that a slow round counts as long as it lasts
    mean = {kind: sum(1 / burst["decisions_per_second"] for burst in of) / len(of) for kind, of in bursts.items()}
    rates = {kind: round(1 / seconds, 1) for kind, seconds in mean.items()}
    return {**bursts, "per_second": rates, "rate_ratio": round(rates["job"] / rates["divisible"], 2)}


async def measure(kubeconfig, options):
    """Have an operator decide, and measure both kinds."""
    async with stage(kubeconfig, options, Pair) as (bench, operator), contextlib.AsyncExitStack() as stack:
        watcher = asyncio.create_task(bench.watch(BATCH_JOBS))
        stack.callback(watcher.cancel)
        news(f"{options.idle} pairs, one job at a time")
        return {
            "operator": "installed" if options.installed else "process",
            "single": await single(bench, options.idle),
            "at_once": await at_once(bench, operator, kubeconfig, options),
        }


def main():
    """Do what the command line says."""
    parser = command_line(__doc__)
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    carry_out(parser, measure, name="jobs", target=TARGET)


if __name__ == "__main__":
    main()
