#!/usr/bin/env python3
"""What a decision of admission takes, fast and exact, beside the papers' algorithms, in the median of several runs.

    tests/bench/admission.py [--runs 5] [--quick]

Prints JSON. A run is `punctual bench admission --json` in a process of its own. `admission` has of each number the
median of the runs, `spread` the least and the largest.
"""

import argparse
import json
import statistics
import subprocess
import sys


def once(number, runs, *, quick):
    """Run it; return its numbers."""
    words = ["-c", "from punctual.cli import main; main()", "bench", "admission", "--json", *(["--quick"] * quick)]
    printed = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, check=True).stdout
    print(f"run {number} of {runs} is done", file=sys.stderr, flush=True)  # noqa: T201  its news
    return json.loads(printed)


def over_runs(runs, of):
    """Return each number of the runs' documents, which are alike, as ``of`` makes it of the numbers of all runs."""
    return {name: {key: of([run[name][key] for run in runs]) for key in found} for name, found in runs[0].items()}


def spread(numbers):
    """Return the least and the largest."""
    return [min(numbers), max(numbers)]


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the decisions")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least 1 is needed")
    runs = [once(n, options.runs, quick=options.quick) for n in range(1, options.runs + 1)]
    report = {
        "admission": over_runs(runs, statistics.median),
        "spread": {"admission": over_runs(runs, spread)},
        "runs": len(runs),
    }
    print(json.dumps(report, indent=1))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
