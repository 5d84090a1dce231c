#!/usr/bin/env python3
"""What a step of a Pool costs that decides nothing, while many jobs wait, over the same with few.

    tests/bench/idle_step.py [--few 100] [--many 10000] [--steps 400]

Prints JSON: for each admission the median CPU time of a tick with few and with many jobs waiting, and their ratio; the
same for a step with an event of one pod. 50 nodes of 4 processors. Chunks take hours, so no plan has to be made.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace

from punctual.scheduling.model.actions import CreateChunk
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import JobApplied, NodeObserved, PodObserved, PoolApplied
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost

TICK = 0.25
HOURS = 3600.0
POOLS = {
    "Exact": {},
    "OnePort": {"discipline": Discipline(network="OnePort")},
    "Hybrid": {"admission": "Hybrid"},
    "Fast": {"admission": "Fast"},
}


def waiting(count, **more):
    """Return a pool with so many jobs that wait, its time, and a pod of it that runs."""
    pool, now = Pool(1, offers=False), 0.0
    spec = replace(PoolSpec(name="main", generation=1, cpu=1.0, memory=0), **more)
    nodes = [NodeObserved(name=f"n{i}", ready=True, cpu=4.0, memory=2**40) for i in range(50)]
    pods = act(pool, now, [PoolApplied(spec), *nodes])
    for i in range(count + 200):  # 200 of them run
        cost = Cost(chi=100.0, tau=0.001)
        job = Job(
            uid=f"j{i}",
            namespace="default",
            name=f"j{i}",
            arrival=now,
            units=100,
            deadline=10 * count * HOURS,
            cost=cost,
        )
        pods += act(pool, now, [JobApplied(job)])
    while pool.backlog:
        pods += act(pool, now, [])
    act(pool, now, [observed(create) for create in pods])
    for _ in range(40):
        now += TICK
        act(pool, now, [])
    return pool, now, observed(pods[0])


def act(pool, now, events):
    """Take a step; return the pods that it creates."""
    return [action for action in pool.step(now, events) if isinstance(action, CreateChunk)]


def observed(create):
    """Return that the pod of a chunk runs."""
    chunk = create.chunk
    name = f"{create.job}-{chunk.begin}"
    return PodObserved(
        name=name,
        uid=name,
        namespace="default",
        job=create.job,
        kind=chunk.kind,
        begin=chunk.begin,
        end=chunk.end,
        attempt=chunk.attempt,
        node=chunk.node,
        phase="Running",
        created=chunk.created,
        started=chunk.created + 1.0,
    )


def cost(pool, now, events, steps):
    """Return the median milliseconds of CPU of steps with these events."""
    took = []
    for _ in range(steps):
        now += TICK
        began = time.process_time()
        pool.step(now, events)
        took.append(1000 * (time.process_time() - began))
    return statistics.median(took)


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    found = {}
    for name, more in POOLS.items():
        pools = {count: waiting(count, **more) for count in (options.few, options.many)}
        rows = {}
        for what in ("tick", "pod"):
            costs = [
                cost(pool, now, [pod] if what == "pod" else [], options.steps) for pool, now, pod in pools.values()
            ]
            rows[what] = {
                "few_ms": round(costs[0], 4),
                "many_ms": round(costs[1], 4),
                "ratio": round(costs[1] / costs[0], 2),
            }
        found[name] = rows
    print(json.dumps({"idle_step": found, "few": options.few, "many": options.many}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
