"""What evictions cost guests: the control against hungriest-first, on the same traces of memory demands; prints JSON.

Lost CPU seconds per demand, by restart mode and seed: pods killed hungriest first; the control with workers that hand
back their rest; the control with workers that answer no offer, so that only the choice of the victims is left, and when
their pods are ended. ``times`` says how often less than hungriest-first, for the least of the seeds, all together and
the most.

Run: .venv/bin/python tests/bench/evictions.py [--demands 40] [--seeds 10 11 12 13]
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from evictions import endure, trace

WAYS = {"hungriest first": {"hungriest": True}, "ours": {}, "ours, no answers": {"deaf": True}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demands", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13])
    options = parser.parse_args()
    found = {}
    for restart in ("Redo", "Resume"):
        lost = {
            way: [
                endure(trace(seed, options.demands), restart=restart, **how)[1].per_eviction for seed in options.seeds
            ]
            for way, how in WAYS.items()
        }
        found[restart] = {
            way: {"lost": [round(one, 2) for one in each], "times": times(lost["hungriest first"], each)}
            for way, each in lost.items()
        }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


def times(others: Sequence[float], ours: Sequence[float]) -> list[float]:
    each = [other / max(our, 1e-9) for other, our in zip(others, ours, strict=True)]
    return [round(one, 2) for one in (min(each), sum(others) / max(sum(ours), 1e-9), max(each))]


if __name__ == "__main__":
    main()
