#!/usr/bin/env python3
"""The operator's page with 1,000 jobs and 200 nodes, in headless Chromium.

    tests/bench/page.py [--jobs 1000] [--nodes 200] [--rounds 9]

Prints JSON: `page` has the median of the rounds, `spread` the least and the largest. `first_paint_ms`: from the
request to the first paint; `shown_ms`: to all of the chart and the first rows of the table; `update_ms`: script of one
event that changes a job (its longest); `view_ms`: what one look costs the operator; `page_bytes`: the first event.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "hack")]
from browser import opened  # noqa: E402
from shown import crowd  # noqa: E402

from punctual.kube.page import model  # noqa: E402
from punctual.kube.page.server import PageServer  # noqa: E402

UPDATES = 4
"""Events that are awaited in each round."""
SHOWN = "() => performance.getEntriesByName('page').length && performance.now()"
PAINT = "() => performance.getEntriesByName('first-paint')[0]?.startTime"


async def once(shown, address):
    """Return the numbers of one round."""
    async with opened(address) as page:
        complete = await (await page.wait_for_function(SHOWN, polling=10)).json_value()
        paint = await (await page.wait_for_function(PAINT)).json_value()
        for i in range(UPDATES):
            shown.job("team-0", f"new-{time.monotonic_ns()}-{i}", units=1, deadline=5000.0)
            counted = f"() => performance.getEntriesByName('update').length > {i}"
            await page.wait_for_function(counted)
        updates = await page.evaluate("() => performance.getEntriesByName('update').map(entry => entry.duration)")
    began = time.perf_counter()
    found = model.page(shown.read())
    return {
        "first_paint_ms": paint,
        "shown_ms": complete,
        "update_ms": max(updates),
        "view_ms": 1000 * (time.perf_counter() - began),
        "page_bytes": len(orjson.dumps(found)),
    }


async def rounds(jobs, nodes, number):
    """Serve a crowd; return the numbers of all rounds."""
    shown = crowd(jobs=jobs, nodes=nodes)
    server = PageServer(shown.read, viewers=None)
    port = await server.listen_on_loopback(0)
    try:
        return [await once(shown, f"http://127.0.0.1:{port}") for _ in range(number)]
    finally:
        await server.stop()


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    found = asyncio.run(rounds(options.jobs, options.nodes, options.rounds))
    numbers = {name: [one[name] for one in found] for name in found[0]}
    report = {
        "page": {name: statistics.median(of) for name, of in numbers.items()},
        "spread": {"page": {name: [min(of), max(of)] for name, of in numbers.items()}},
        "rounds": options.rounds,
    }
    print(json.dumps(report, indent=1))  # noqa: T201  what it is for


if __name__ == "__main__":
    main()
