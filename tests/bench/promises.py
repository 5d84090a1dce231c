#!/usr/bin/env python3
"""Promises on a real cluster: how many are kept, and how long jobs take against the plan.

    tests/bench/promises.py [--runs 20] [--at-once 3] [--seconds 35] [--pool main]

Prints JSON. Needs an installed operator and a pool of which all processors are free. Jobs of the example `primes` are
submitted, some at a time, each for its share of the pool; a new one when one has ended.

- First comes a calibration: small and large jobs, as many at once as later, of which the difference tells χ and the
  rest the start (decision, pod, program, end seen). Jobs are submitted with these costs and with the deadline that the
  pool's headroom and margin ask for, and a little.
- planned: the makespan that the partition gives with that χ and that start, without headroom and margin, from the
  create's answer on; actual: from there until the condition Completed is seen by a watcher.
"""

import argparse
import json
import os
import platform
import queue
import re
import statistics
import sys
import threading
import time
import uuid

import numpy as np
from installed import Installed

from punctual.errors import ClusterError
from punctual.notation.duration import parse_duration
from punctual.theory.cost import Cost
from punctual.theory.partition import partition

TARGET = {"broken": 0, "ratio_max": 1.10}
GROUP = "punctual.dev/v1alpha1"
PRIMES = "/opt/punctual/examples/primes/primes.py"
SMALL, LARGE = 8, 24
"""Seconds of work in the calibration's two sizes, as a first guess puts it."""


def news(line):
    """Say what is going on."""
    print(f"promises: {line}", file=sys.stderr, flush=True)  # noqa: T201  news


class Cluster:
    """Submits jobs and sees them end."""

    def __init__(self, options):
        self.installed = Installed(options.namespace)
        self.kubectl = self.installed.kubectl
        self.pool = options.pool
        self.namespace = f"bench-{uuid.uuid4().hex[:8]}"
        deployment = self.kubectl.get(
            "deployment", "-n", options.namespace, "-l", "app.kubernetes.io/component=operator"
        )
        self.image = options.image or deployment["items"][0]["spec"]["template"]["spec"]["containers"][0]["image"]
        self.jobs = {}
        """Name -> job as last seen."""
        self.ended = {}
        """Name -> when the end was seen."""
        self.over = queue.Queue()

    def __enter__(self):
        self.kubectl.run("create", "namespace", self.namespace)
        path = f"/apis/{GROUP}/namespaces/{self.namespace}/divisiblejobs"
        self.watch = self.kubectl.watch(path)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.watch.terminate()
        self.watch.wait()
        self.kubectl.run("delete", "namespace", self.namespace, "--wait=true")

    def _read(self):
        for line in self.watch.stdout:
            event = json.loads(line)
            name = event["object"]["metadata"]["name"]
            self.jobs[name] = event["object"]
            conditions = self.conditions(name)
            refused = conditions.get("Admitted", {}).get("status") == "False"
            if name not in self.ended and ("Completed" in conditions or "Failed" in conditions or refused):
                self.ended[name] = time.monotonic()
                self.over.put(name)

    def conditions(self, name):
        return {c["type"]: c for c in (self.jobs[name].get("status") or {}).get("conditions") or ()}

    def processors(self):
        """Return the pool's processors and its spec; all must be free."""
        pool = self.kubectl.get("pools.punctual.dev", self.pool)
        status = pool["status"]
        if status["free"] < status["processors"] or status["queue"]:
            sys.exit(f"promises: pool {self.pool} is at work: {status['free']} of {status['processors']} are free")
        return status["processors"], pool["spec"]

    def submit(self, name, *, units, deadline, chi, start, processors):
        """Create a job; return when the answer came."""
        container = {
            "name": "main",
            "image": self.image,
            "command": ["python3", "/opt/punctual/examples/primes/primes.py"],
        }
        body = {
            "apiVersion": GROUP,
            "kind": "DivisibleJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "pool": self.pool,
                "units": units,
                "deadline": f"{deadline:.0f}s",
                "cost": {"perUnit": f"{1000 * chi:.3f}ms", "startup": f"{1000 * start:.0f}ms"},
                "processors": {"min": processors, "max": processors},
                "template": {"spec": {"containers": [container]}},
            },
        }
        self.kubectl.run("create", "-f", "-", stdin=json.dumps(body))
        return time.monotonic()

    def run(self, sizes, *, at_once, prefix, **how):
        """Run jobs of these sizes, so many at a time; return [(units, seconds, name)]."""
        left = list(enumerate(sizes))
        began, units = {}, {}
        out = []
        while left or len(out) < len(sizes):
            while left and len(began) - len(out) < at_once:
                n, size = left.pop(0)
                name = f"{prefix}-{n}"
                units[name] = size
                began[name] = self.submit(name, units=size, **how)
            try:
                name = self.over.get(timeout=300)
            except queue.Empty:
                sys.exit(f"promises: nothing has ended for 300 s in namespace {self.namespace}")
            conditions = self.conditions(name)
            if "Completed" not in conditions:
                raise ClusterError(f"{name}: {conditions}")
            out.append((units[name], self.ended[name] - began[name], name))
            said = conditions["Completed"]
            news(f"{name}: {units[name]} units in {out[-1][1]:.1f} s, {said['reason']}")
        return out


def line_through(points):
    """Return slope and intercept of the least squares line."""
    x, y = (np.array(axis, dtype=float) for axis in zip(*points, strict=True))
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept)


def measure(options):
    with Cluster(options) as cluster:
        total, spec = cluster.processors()
        each = total // options.at_once
        headroom = float(spec.get("headroom", "12.5%").rstrip("%")) / 100
        margin = parse_duration(spec.get("margin", "2s"))
        news(f"{total} processors, {options.at_once} jobs at once on {each} each; calibration")
        how = {"at_once": options.at_once, "processors": each, "deadline": 900}
        few = cluster.run([each, 30 * each] * 2, prefix="guess", chi=1.0, start=3.0, **how)
        guess, _ = line_through([(units / each, seconds) for units, seconds, _ in few])
        guess = max(guess, 0.01)
        sizes = [max(1, round(s / guess)) * each for s in (SMALL, LARGE)] * options.at_once
        found = cluster.run(sizes, prefix="cost", chi=guess, start=3.0, **how)
        chi, start = line_through([(units / each, seconds) for units, seconds, _ in found])
        start = max(start, 0.1)
        news(f"a unit takes {1000 * chi:.1f} ms, a start {start:.2f} s")

        units = max(1, round((options.seconds - start) / chi)) * each
        planned = partition(float(units), np.zeros(each), Cost(chi=chi, theta_cp=start)).finish
        deadline = start + units / each * chi / (1 - headroom) + margin + options.slack
        runs = cluster.run(
            [units] * options.runs, at_once=options.at_once, prefix="run", chi=chi, start=start, processors=each,
            deadline=deadline,
        )  # fmt: skip
        ratios = sorted(seconds / planned for _, seconds, _ in runs)
        reasons = [cluster.conditions(name)["Completed"]["reason"] for _, _, name in runs]
        messages = [cluster.conditions(name)["Admitted"]["message"] for _, _, name in runs]
        spares = [float(m[1]) for text in messages if (m := re.search(r"margin ([\d.]+) s", text))]
        return {
            "runs": len(runs),
            "broken": sum(1 for r in reasons if r != "Completed"),
            "processors_each": each,
            "at_once": options.at_once,
            "units_each": units,
            "chi_ms": round(1000 * chi, 2),
            "start_s": round(start, 2),
            "planned_s": round(planned, 2),
            "deadline_s": round(deadline),
            "margin_s": {"least": min(spares), "most": max(spares)} if spares else None,
            "actual_s": {
                "least": round(planned * ratios[0], 2),
                "median": round(planned * statistics.median(ratios), 2),
                "most": round(planned * ratios[-1], 2),
            },
            "ratio": {
                "median": round(statistics.median(ratios), 3),
                "max": round(ratios[-1], 3),
                "each": [round(r, 3) for r in ratios],
            },
        }


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=35, help="how long a job shall take")
    parser.add_argument("--slack", type=float, default=6, help="seconds that the deadline is later than needed")
    parser.add_argument("--pool", default="main")
    parser.add_argument("--image", help="with the examples in it; default: the operator's")
    parser.add_argument("--namespace", default="punctual", help="the operator's")
    options = parser.parse_args()
    found = measure(options)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"promises": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
