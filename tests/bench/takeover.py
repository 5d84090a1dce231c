#!/usr/bin/env python3
"""How long a takeover takes: from the acquisition of the Lease until the first decision is seen.

    tests/bench/takeover.py [--settled 20000] [--promises 100] [--cold]

Prints JSON. Settled jobs (nine in ten refused, the others ended) are made straight with their statuses; an operator
promises so many others and is killed. A job is created while no operator leads, and a standby takes
over and answers it; with --cold it is an operator that begins only then. Beside it stands what as many bare writes of
statuses take on that API server as there are promises.

The API server is the bare one (hack/apiserver) on this machine, or that of KUBECONFIG, where our CRDs must stand and no
other operator may run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

from decisions import TOP, Bench, Process, apiserver

sys.path.append(str(Path(__file__).parents[1] / "support"))
from settled import settle

from punctual import errors
from punctual.kube.api.resources import JOBS
from punctual.kube.cluster.client import ApiClient

TARGET = {"first_decision_s": 5.0, "over_bare_writes_s": 2.0}
UNDER_WAY = 32
"""Bare writes under way at once, as many as stamps are."""
LEASE = {"PUNCTUAL_LEASE_RETRY": "0.5"}


class Replica(Process):
    """An operator whose log tells when it led and had taken over."""

    def __init__(self, kubeconfig, namespace, name):
        os.environ.update(LEASE)
        super().__init__(kubeconfig, namespace)
        self.log = self.log.rename(self.log.with_suffix(f".{name}"))

    def at(self, event):
        """Return when its log first tells of an event (seconds since the epoch), and the line; None before."""
        for line in self.log.read_text().splitlines():
            if f'"{event}"' in line:
                found = json.loads(line)
                return datetime.fromisoformat(found["timestamp"]).timestamp(), found
        return None

    async def reached(self, event, within=600.0):
        """Wait until its log tells of an event."""
        async with asyncio.timeout(within):
            while (found := self.at(event)) is None:
                if self.process.poll() is not None:
                    sys.exit(f"the operator has ended; its log is {self.log}")
                await asyncio.sleep(0.05)
        return found

    def kill(self):
        """Kill it: the Lease is not released."""
        self.process.kill()
        self.process.wait()


async def bare(client, namespace, names):
    """Write so many statuses as they are; return the seconds that took."""
    bodies = [b for b in (await client.list(JOBS.path(namespace=namespace))).items if b["metadata"]["name"] in names]
    slots = asyncio.Semaphore(UNDER_WAY)

    async def write(body):
        path = JOBS.path(namespace=namespace, name=body["metadata"]["name"], subresource="status")
        async with slots:
            await client.replace(path, {**body, "status": {**body["status"], "progress": "1%"}}, strict=True)

    began = time.perf_counter()
    await asyncio.gather(*(write(body) for body in bodies))
    return time.perf_counter() - began


async def measure(kubeconfig, options):
    """Have an operator promise, kill it, and see how long the next one takes."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(kubeconfig, deadline=60.0))
        bench = Bench(client, processors=4 * options.nodes)
        await bench.prepare(options.nodes)
        watcher = asyncio.create_task(bench.watch())
        stack.callback(watcher.cancel)
        news(f"{options.settled} settled jobs")  # before there is an operator: it would answer them itself
        await settle(client, bench.namespace, bench.namespace, options.settled)
        first = Replica(kubeconfig, bench.namespace, "first")
        stack.callback(first.kill)
        await first.reached("term_begun")
        names = {f"promised-{n}" for n in range(options.promises)}
        await asyncio.gather(*(bench.create(name) for name in names))
        await bench.decided(names, within=600)
        second = None if options.cold else Replica(kubeconfig, bench.namespace, "second")
        if second:
            stack.callback(second.kill)
            await second.reached("caught_up")  # a standby has had time: kopf's first list takes it minutes
        await bench.create("before")
        await bench.decided(["before"], within=600)
        await asyncio.sleep(options.rest)
        first.kill()
        await bench.create("asked")
        second = second or Replica(kubeconfig, bench.namespace, "second")
        stack.callback(second.kill)
        await bench.decided(["asked"], within=3600)
        seen = time.time() - (time.monotonic() - bench.seen["asked"])
        led, _ = await second.reached("leadership_acquired")
        begun, told = await second.reached("term_begun")
        await asyncio.sleep(options.rest)
        resident = second.used()[1]
        second.kill()
        body = await client.get(JOBS.path(namespace=bench.namespace, name="asked"))
        assert any(c["status"] == "True" for c in body["status"]["conditions"] if c["type"] == "Admitted"), body
        bare_writes = await bare(client, bench.namespace, names)
        return {
            "settled": options.settled,
            "promises": options.promises,
            "standby": not options.cold,
            "first_decision_s": round(seen - led, 2),
            "taken_over_s": round(begun - led, 2),
            "aside": told.get("aside"),
            "bare_writes_s": round(bare_writes, 2),
            "over_bare_writes_s": round(seen - led - bare_writes, 2),
            "resident_mib": resident,
            "log": str(second.log),
        }


def news(line):
    """Say what is going on."""
    print(f"takeover: {line}", file=sys.stderr, flush=True)  # noqa: T201  news


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settled", type=int, default=20_000)
    parser.add_argument("--promises", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=50, help="of four processors each")
    parser.add_argument(
        "--cold", action="store_true", help="no standby: the next operator begins when the first is gone"
    )
    parser.add_argument("--rest", type=float, default=5.0, help="seconds of quiet before the kill")
    options = parser.parse_args()
    given = os.environ.get("KUBECONFIG")
    name = f"bench-{os.getpid()}"
    try:
        found = asyncio.run(measure(given or apiserver(name), options))
    except (TimeoutError, errors.ClusterError) as error:
        sys.exit(f"not measured: {error!r}")
    finally:
        if not given:
            subprocess.run([TOP / "hack" / "apiserver", "down", "--name", name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"takeover": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
