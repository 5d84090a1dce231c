#!/usr/bin/env python3
"""How long the command line takes to start: prints JSON, medians in milliseconds of wall clock and of CPU.

    tests/bench/command_line.py [--runs 20]

The API server is the bare one (hack/apiserver), with one pool and one job. Beside `--help`, completion, `plan`, `why`
and `top --once`, each round measures `python -c pass`, `python -c 'import pydantic'` and kubectl's own list, so that
machines can be compared. `plan_beyond_kubectl_ms` is the median of `plan` less that of kubectl, and so are those of
`why` and `top`: kubectl runs while Python imports.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from decisions import TOP, apiserver

from punctual.cli.cluster_state import NAMESPACED, POOLS

BEYOND = "plan", "why", "top"
TARGET = {"help_ms": 150.0, "completion_ms": 300.0, **{f"{name}_beyond_kubectl_ms": 400.0 for name in BEYOND}}
POOL = {
    "apiVersion": "punctual.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "main"},
    "spec": {"nodeSelector": {"matchLabels": {"a": "b"}}, "processor": {"cpu": "500m", "memory": "512Mi"}},
}  # fmt: skip
STATUS = {"status": {"processors": 12, "nodes": [{"name": f"n{n}", "processors": 4} for n in range(3)]}}
SPEC = {
    "pool": "main", "units": 600, "deadline": "5m", "cost": {"perUnit": "1s", "startup": "3s"},
    "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
}  # fmt: skip
JOB = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": {"name": "first"}, "spec": SPEC}


def once(words, env):
    """Run a command; return its seconds of wall clock and of CPU."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, env=env, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(kubeconfig, runs):
    """Return the benchmark's numbers by name."""
    folder = subprocess.run([TOP / "hack/apiserver", "bin"], check=True, stdout=-1, text=True).stdout.strip()
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["kubectl", "create", "-f", "-"], input=json.dumps(POOL), env=env, check=True, stdout=-1, text=True)
    patch = "patch", "pool", "main", "--subresource=status", "--type=merge", "-p", json.dumps(STATUS)
    subprocess.run(["kubectl", *patch], env=env, check=True, stdout=-1)
    known = json.dumps({**JOB, "metadata": {"name": "known", "namespace": "default"}})
    subprocess.run(["kubectl", "create", "-f", "-"], input=known, env=env, check=True, stdout=-1, text=True)
    listing = "kubectl", "get", "-o", "json", f"{POOLS},{NAMESPACED}", "--all-namespaces"
    punctual = Path(sys.executable).with_name("punctual")
    with tempfile.TemporaryDirectory() as at:
        job, state = Path(at, "job.json"), Path(at, "state.json")
        job.write_text(json.dumps(JOB))
        state.write_bytes(subprocess.run(listing, env=env, check=True, stdout=-1).stdout)
        commands = {
            "python": (sys.executable, "-c", "pass"),
            "pydantic": (sys.executable, "-c", "import pydantic"),
            "help": (punctual, "--help"),
            "kubectl": listing,
            "plan": (punctual, "plan", job),
            "plan_saved": (punctual, "plan", job, "--pool-state", state),
            "why": (punctual, "why", "known"),
            "top": (punctual, "top", "--once", "-n", "default"),
            "completion": (punctual.with_name("kubectl_complete-punctual"), "wh"),
            "completion_of_names": (punctual.with_name("kubectl_complete-punctual"), "why", ""),
        }
        rounds = [{name: once(words, env) for name, words in commands.items()} for _ in range(runs + 1)][1:]
    found = {}
    for name in commands:
        walls, cpus = zip(*(each[name] for each in rounds), strict=True)
        found |= {f"{name}_ms": _ms(walls), f"{name}_cpu_ms": _ms(cpus)}
    beyond = {f"{name}_beyond_kubectl_ms": round(found[f"{name}_ms"] - found["kubectl_ms"], 1) for name in BEYOND}
    return found | beyond | {"runs": runs}


def _ms(seconds):
    return round(1e3 * statistics.median(seconds), 1)


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    name = f"bench-{os.getpid()}"
    try:
        found = measure(apiserver(name), runs)
    finally:
        subprocess.run([TOP / "hack" / "apiserver", "down", "--name", name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"command_line": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
