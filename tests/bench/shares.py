#!/usr/bin/env python3
"""What shares of namespaces cost an admission decision: prints JSON.

    tests/bench/shares.py [--jobs 2000] [--pairs 7]

A burst of jobs of ten namespaces comes to a whole Pool, once without shares and once with one of 10 % for each
namespace. All jobs are promised in both cases, so both do the same work. The two are measured one after the other, in
pairs, by the CPU clock of the thread; the ratio is the median of the pairs' ratios. `one` is the same with all jobs in
one namespace with a share of 99 %, so that one account has all promises.
"""

import argparse
import gc
import json
import platform
import statistics
from dataclasses import replace
from time import thread_time

from punctual.scheduling.model.events import JobApplied, NodeObserved, PoolApplied
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import PoolSpec, Tenancy
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost

NODES, PROCESSORS = 50, 4
START = 1.8e9
SHARES = {"ten": Tenancy(max_share=0.1), "one": Tenancy(max_share=0.99)}


def burst(spec, jobs, namespaces):
    """Return the seconds of CPU that a Pool takes to promise so many jobs."""
    pool = Pool(1, offers=False)
    nodes = [NodeObserved(name=f"n{n}", ready=True, cpu=float(PROCESSORS), memory=2**40) for n in range(NODES)]
    pool.step(START, [PoolApplied(spec), *nodes])
    work = [
        Job(uid=f"j{n}", name=f"j{n}", namespace=f"ns-{n % namespaces}", arrival=START, units=100,
            cost=Cost(1.0, theta_cp=1.0), deadline=START + 200.0 + 3600.0 * (n * 7919 % jobs) / jobs)
        for n in range(jobs)
    ]  # fmt: skip
    gc.collect()
    gc.disable()
    began, now, events = thread_time(), START, [JobApplied(job) for job in work]
    while events or pool.backlog:
        pool.step(now, events)
        now, events = now + 0.01, []
    spent = thread_time() - began
    gc.enable()
    view = pool.view()
    promised = sum(view.record(job.uid).promise is not None for job in work)
    assert promised == jobs, f"{promised} of {jobs} are promised"
    return spent


def measure(admission, name, jobs, pairs):
    """Return microseconds of a decision without and with shares, and their ratio."""
    spec = PoolSpec(name="p", cpu=1.0, admission=admission)
    with_shares, namespaces = replace(spec, tenancy=SHARES[name]), 10 if name == "ten" else 1
    found = []
    for k in range(pairs):
        order = (spec, with_shares) if k % 2 else (with_shares, spec)
        times = {one.tenancy: burst(one, jobs, namespaces) for one in order}
        found.append((times[spec.tenancy], times[with_shares.tenancy]))
    without, with_ = (statistics.median(column) for column in zip(*found, strict=True))
    ratios = sorted(b / a for a, b in found)
    return {
        "without_us": round(1e6 * without / jobs, 1),
        "with_us": round(1e6 * with_ / jobs, 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=7)
    asked = parser.parse_args()
    report = {
        "shares": {
            "jobs": asked.jobs,
            **{
                admission.lower(): {name: measure(admission, name, asked.jobs, asked.pairs) for name in SHARES}
                for admission in ("Exact", "Hybrid", "Fast")
            },
        },
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
    }
    print(json.dumps(report, indent=2))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
