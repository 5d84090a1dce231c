#!/usr/bin/env python3
"""How long a scrape of the leader takes, and how many series it has: prints JSON.

    tests/bench/scrape.py [--pools 20] [--jobs 10000] [--rounds 30]

All jobs are promised, and their work is placed: each pool has 40 processors that run chunks, and the plan of all jobs
that wait. 40 windows are reserved in each pool. ``all_in_one`` is the same with all jobs in one pool. The time is that
of `Metrics.text`, during which the operator's event loop does nothing else.
"""

import argparse
import asyncio
import json
import platform
import statistics
import time
from types import SimpleNamespace

from punctual import metric_names as names
from punctual import reasons
from punctual.kube.actors.actors import PoolActors
from punctual.kube.metrics import Metrics
from punctual.scheduling.model.events import JobApplied, NodeObserved, PoolApplied, ReservationApplied
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost

NODES, PROCESSORS, WINDOWS = 10, 4, 40
START = 1.8e9


def busy(jobs):
    """Return a pool with so many promised jobs."""
    pool = Pool(1, offers=False)
    nodes = [NodeObserved(name=f"n{n}", ready=True, cpu=float(PROCESSORS), memory=2**40) for n in range(NODES)]
    far = START + 1e7
    windows = [Reservation(uid=f"r{n}", arrival=START, start=far + 100 * n, end=far + 100 * n + 90, processors=4)
               for n in range(WINDOWS)]  # fmt: skip
    work = [
        Job(uid=f"j{n}", name=f"j{n}", namespace="bench", arrival=START, units=10, cost=Cost(1.0, theta_cp=1.0),
            deadline=START + 1000.0 + 40.0 * n)
        for n in range(jobs)
    ]  # fmt: skip
    pool.step(START, [PoolApplied(PoolSpec(name="p", cpu=1.0)), *nodes])
    pool.step(START, [ReservationApplied(window) for window in windows])
    now, events = START, [JobApplied(job) for job in work]
    while events or pool.backlog:
        pool.step(now, events)
        now, events = now + 0.01, []
    pool.step(now, [])
    view = pool.view()
    promised = sum(view.record(job.uid).promise is not None for job in work)
    assert promised == jobs, f"{promised} of {jobs} are promised"
    return pool


def fill(metrics, pools):
    """Begin what the runtime sets besides: tenants, writes by kind and result, gauges of the replica."""
    for pool in pools:
        for n in range(5):
            metrics.tenant(pool, f"ns-{n}")
        metrics.pool(pool, dict.fromkeys((names.PROMISES_OPEN, names.PROMISES_LATE, names.STATISTICAL_OPEN, names.SLACK,
                                          names.PROGRESS, names.PROCESSORS, names.PROCESSORS_FREE, names.JOBS_WAITING,
                                          names.UTILIZATION_BOUND, names.MISS_RATIO), 1.0))  # fmt: skip
    for kind in ("DivisibleJob", "Pool", "Pod", "Profile", "Reservation", "TargetRate"):
        for result in ("written", "conflict", "notFound", "failed"):
            metrics.writes.labels(kind, result)
    for resource in ("divisiblejobs", "pools", "pods", "nodes", "profiles", "reservations", "namespaces"):
        metrics.informer_heard.labels(resource).set(START)
    for reason in (reasons.INVALID_SPEC, reasons.POOL_NOT_FOUND):
        metrics.decisions.labels("p0", "False", reason)
    registered = metrics.registry._names_to_collectors
    agents = list(vars(names)).index("CGROUP_WRITES")
    for metric in list(vars(names).values())[:agents]:
        if isinstance(metric, names.Metric) and metric.name not in registered and not metric.labels:
            metrics.watch(metric, lambda: 1.0)


async def measure(count, jobs, rounds):
    """Return milliseconds of scrapes, and the series of one."""
    metrics, cores = Metrics(), [busy(jobs // count) for _ in range(count)]
    clock = SimpleNamespace(now=lambda: START, doubted=False)
    tools = SimpleNamespace(clock=clock, now=clock.now, metrics=metrics)
    actors = PoolActors(iter(cores).__next__, tools, None, SimpleNamespace(spawn=lambda work: work.close()))
    for n in range(count):
        actors.start(f"p{n}", ())
    fill(metrics, [f"p{n}" for n in range(count)])
    wall, cpu = [], []
    for _ in range(rounds):
        began = time.perf_counter(), time.process_time()
        text = metrics.text().decode()
        cpu.append(1000 * (time.process_time() - began[1]))
        wall.append(1000 * (time.perf_counter() - began[0]))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    promised = sum(float(line.split()[-1]) for line in lines if line.startswith(f"{names.PROCESSORS_PROMISED.name}{{"))
    assert promised > count, "nothing is planned"
    return {
        "p50_ms": round(statistics.median(wall), 2),
        "max_ms": round(max(wall), 2),
        "cpu_max_ms": round(max(cpu), 2),
        "series": len(lines),
        "bytes": len(text),
        "processors_promised": promised,
    }


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    asked = parser.parse_args()
    report = {
        "scrape": {
            "pools": asked.pools,
            "jobs": asked.jobs,
            **asyncio.run(measure(asked.pools, asked.jobs, asked.rounds)),
            "all_in_one": asyncio.run(measure(1, asked.jobs, asked.rounds)),
        },
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
    }
    print(json.dumps(report, indent=2))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
