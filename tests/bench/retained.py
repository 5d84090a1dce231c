#!/usr/bin/env python3
"""What an idle job costs the whole operator: the slope of its resident memory over jobs that are there.

    tests/bench/retained.py [--jobs 4000] [--step 500]

Prints JSON. The jobs are refused (too little time), so nothing of them runs; the operator is a process of our own, the
API server the bare one on this machine, or the one of KUBECONFIG. What an allocator keeps for later is in it: what the
Pool alone retains is told by pool_step.py.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys

from decisions import TOP, Bench, Process, apiserver, news

from punctual.kube.cluster.client import ApiClient

TARGET = {"kb_per_job": 5.0}


def slope(points):
    """Return the least squares slope."""
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


async def measure(kubeconfig, options):
    """Make jobs, look at the operator in between."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(kubeconfig))
        bench = Bench(client)
        stack.push_async_callback(bench.clean, real=False)
        await bench.prepare(4)
        operator = Process(kubeconfig, bench.namespace)
        stack.callback(operator.end)
        watcher = asyncio.create_task(bench.watch())
        stack.callback(watcher.cancel)
        points = []
        for at in range(0, options.jobs, options.step):
            names = [f"idle-{n}" for n in range(at, at + options.step)]
            for some in range(0, len(names), 20):
                await asyncio.gather(*(bench.create(name, deadline="1s") for name in names[some : some + 20]))
            try:
                await bench.decided(names, within=300)
            except TimeoutError:
                sys.exit(f"not decided in time; the operator's log is {operator.log}")
            await asyncio.sleep(10)  # offers are searched
            points.append((at + options.step, operator.used()[1]))
            news(f"{points[-1][0]} jobs, {points[-1][1]} MiB")
        warm = points[len(points) // 4 :]  # the first ones fill pools and caches
        return {
            "jobs": options.jobs,
            "kb_per_job": round(slope(warm) * 2**20 / 1000, 2),
            "resident_mib": dict(points),
        }


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--step", type=int, default=500)
    options = parser.parse_args()
    given = os.environ.get("KUBECONFIG")
    name = f"bench-{os.getpid()}"
    try:
        found = asyncio.run(measure(given or apiserver(name), options))
    finally:
        if not given:
            subprocess.run([TOP / "hack" / "apiserver", "down", "--name", name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"retained": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
