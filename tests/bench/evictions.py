"""What evictions cost guests: the control against hungriest-first, on the same traces of memory demands; prints JSON.

Lost CPU seconds per demand, by restart mode: pods killed hungriest first; the control with workers that hand back their
rest; the control with workers that answer no offer, so that only the choice of the victims is left.

Run: .venv/bin/python tests/bench/evictions.py [--demands 60] [--seeds 4]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from evictions import endure, trace

WAYS = {"hungriest first": {"hungriest": True}, "ours": {}, "ours, no answers": {"deaf": True}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demands", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    found = {
        restart: {
            way: statistics.mean(
                endure(trace(seed, options.demands), restart=restart, **how)[1].per_eviction
                for seed in range(options.seeds)
            )
            for way, how in WAYS.items()
        }
        for restart in ("Redo", "Resume")
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
