"""How long `punctual simulate jobs` takes over 10⁷ time units of the papers' workload: prints JSON, the median run.

N = 256, τ = 1, χ = 1000, Avgσ = 1000, DCRatio 2, SystemLoad 1, one port, no offers: 2,576 jobs, of which those that are
let in run as 187,165 chunks. It is the whole command, from the shell to the JSON: wall seconds, and those of CPU.

Run: .venv/bin/python tests/bench/simulate.py [--runs 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

COMMAND = (
    "simulate jobs --workload mamat --processors 256 --chi 1000 --tau 1 --avg-load 1000 --dc-ratio 2 --system-load 1 "
    "--horizon 1e7 --no-offers --json"
)


def once():
    """Run it; return wall seconds, CPU seconds and what it printed."""
    words = [sys.executable, "-c", "from punctual.cli import main; main()", *COMMAND.split()]
    before, began = os.times(), time.perf_counter()
    printed = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    wall, after = time.perf_counter() - began, os.times()
    cpu = sum(getattr(after, kind) - getattr(before, kind) for kind in ("children_user", "children_system"))
    return wall, cpu, json.loads(printed)


def measure(runs):
    """Return the benchmark's numbers by name."""
    found = [once() for _ in range(runs)]
    walls, cpus, documents = zip(*found, strict=True)
    return {
        "seconds": round(statistics.median(walls), 2),
        "cpu_seconds": round(statistics.median(cpus), 2),
        "runs": runs,
        "jobs": len(documents[0]["decisions"]),
        "chunks": len(documents[0]["chunks"]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    report = {"simulate": measure(parser.parse_args().runs), "command": f"punctual {COMMAND}"}
    print(json.dumps(report, indent=1))  # noqa: T201  what it is for
