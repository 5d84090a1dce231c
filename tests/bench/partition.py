"""How long the partition takes: prints JSON, microseconds per call, best of several rounds.

Run: .venv/bin/python tests/bench/partition.py
"""

import json
import platform
import timeit

import numpy as np

from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import least_processors, partition

LIMITS = {"partition_200": 15.0, "partition_2000": 40.0}  # µs


def microseconds(call):
    """Return the time of one call: many rounds of about 2 ms, of which the fastest was not disturbed."""
    call()
    number = max(1, round(0.002 / timeit.timeit(call, number=1)))
    return min(timeit.repeat(call, number=number, repeat=300)) / number * 1e6


def measure():
    """Return the benchmark's numbers by name, equal processors in ready-time order unless it says otherwise."""
    cost = Cost(chi=1.0, tau=0.01, theta_cm=0.1, theta_cp=2.0)
    numbers = {}
    for n in (200, 2000):
        rng = np.random.default_rng(n)
        ready = 1.8e9 + np.sort(rng.uniform(0.0, 1000.0, n))
        speeds = rng.uniform(0.5, 2.0, n)
        mixed = rng.permutation(ready)
        load = 700.0 * n
        shares = partition(load, ready, cost).shares
        deadline = partition(load, ready[: n // 2], cost).finish
        calls = {
            "partition": lambda load=load, ready=ready: partition(load, ready, cost),
            "partition_unsorted": lambda load=load, mixed=mixed: partition(load, mixed, cost),
            "partition_speeds": lambda load=load, ready=ready, speeds=speeds: partition(
                load, ready, cost, speeds=speeds
            ),
            "partition_one_port": lambda load=load, ready=ready: partition(load, ready, cost, one_port=True),
            "least_processors": lambda load=load, ready=ready, deadline=deadline: least_processors(
                load, ready, cost, deadline=deadline
            ),
            "cut_points": lambda load=load, shares=shares: cut_points(shares, int(load)),
        }
        numbers |= {f"{name}_{n}": round(microseconds(call), 2) for name, call in calls.items()}
    return numbers


if __name__ == "__main__":
    found = measure()
    report = {
        "benchmark": "partition",
        "unit": "us",
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "cpu": platform.machine()},
        "numbers": found,
        "limits": LIMITS,
        "within_limits": all(found[name] <= limit for name, limit in LIMITS.items()),
    }
    print(json.dumps(report, indent=2))  # noqa: T201  what it is for
