#!/usr/bin/env python3
"""What an installed operator costs while nothing happens: writes per minute, memory, CPU.

    tests/bench/quiet.py [--seconds 120] [--wait 600]

Prints JSON. Waits until no job is unfinished, then looks for some time. The writes are counted by three that know
nothing of each other: watches of what is ours, the API server's own counters (of all its clients, so only for kinds
that nobody else writes), and the operator's metrics. Agents and the standby are counted too.
"""

import argparse
import json
import os
import platform
import sys
import threading
import time

from installed import Installed

from punctual.kube.election.elector import Timing

TARGET = {"resident_mib": 120.0, "writes_per_minute_besides_lease_and_reviews": 0, "reviews_per_node_and_minute": 1.0}
OURS = "/apis/punctual.dev/v1alpha1"


class Watch:
    """Counts what a watch tells from now on; ``expire``: objects that go by themselves, which nobody writes."""

    def __init__(self, installed, path, *, expire=False):
        self.silent = {"BOOKMARK", "DELETED"} if expire else {"BOOKMARK"}
        version = json.loads(installed.kubectl.run("get", "--raw", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        self.process = installed.kubectl.watch(f"{path}?resourceVersion={version}")
        self.names = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["type"] not in self.silent:
                self.names.append(event["object"]["metadata"]["name"])

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.thread.join(5)
        return self.names


def measure(options):
    installed = Installed(options.namespace)
    limit = time.monotonic() + options.wait
    while left := installed.unfinished():
        if time.monotonic() > limit:
            sys.exit(f"not quiet after {options.wait:.0f} s: {', '.join(left[:5])} …")
        print(f"quiet: waiting for {len(left)} jobs", file=sys.stderr)  # noqa: T201  news
        time.sleep(5)
    time.sleep(options.settle)
    space = f"/api/v1/namespaces/{options.namespace}"
    paths = {
        "leases": f"/apis/coordination.k8s.io/v1/namespaces/{options.namespace}/leases",
        "pools": f"{OURS}/pools",
        "divisiblejobs": f"{OURS}/divisiblejobs",
        "profiles": f"{OURS}/profiles",
        "reservations": f"{OURS}/reservations",
        "targetrates": f"{OURS}/targetrates",
        "events": "/apis/events.k8s.io/v1/events",
        "pods": f"{space}/pods",
        "secrets": f"{space}/secrets",
        "configmaps": f"{space}/configmaps",
    }
    pods = [p["metadata"]["name"] for p in installed.pods()]
    watches = {what: Watch(installed, path, expire=what == "events") for what, path in paths.items()}
    asked = installed.requests()
    before = {pod: installed.metrics(pod) for pod in pods}
    began = time.monotonic()
    time.sleep(options.seconds)
    after = {pod: installed.metrics(pod) for pod in pods}
    minutes = (time.monotonic() - began) / 60
    requests = {key: n - asked.get(key, 0) for key, n in installed.requests().items()}
    seen = {what: len(watch.end()) for what, watch in watches.items()}

    def grown(pod, start):
        return {s: v - before[pod].get(s, 0) for s, v in after[pod].items() if s.startswith(start)}

    def rate(resource):
        return round(sum(n for (_, what), n in requests.items() if what == resource) / minutes, 2)

    nodes = len(installed.pods("agent"))
    leader = installed.leader()
    roles = {pod: "leader" if pod == leader else "standby" for pod in pods}
    reviews = rate("tokenreviews")
    mine = ("divisiblejobs", "pools", "profiles", "reservations", "targetrates")
    others = sum(n for what, n in seen.items() if what != "leases") + sum(rate(what) for what in mine)
    return {
        "seconds": round(60 * minutes, 1),
        "nodes_with_agents": nodes,
        "lease_renewed_every_s": Timing().retry,
        "per_minute": {
            "seen_by_watches": {what: round(n / minutes, 2) for what, n in seen.items()},
            "asked_of_the_api_server": {what: rate(what) for what in (*mine, "tokenreviews")},
            "counted_by_the_operator": round(
                sum(n for pod in pods for n in grown(pod, "punctual_writes_total{").values()) / minutes, 2
            ),
            "reviews_per_node": round(reviews / nodes, 2) if nodes else None,
            "besides_lease_and_reviews": round(others / minutes, 2),
        },
        "operators": [
            {
                "role": roles[pod],
                "resident_mib": round(after[pod]["process_resident_memory_bytes"] / 2**20, 1),
                "cpu_percent_of_core": round(
                    100 * grown(pod, "process_cpu_seconds_total")["process_cpu_seconds_total"] / (60 * minutes), 2
                ),
                "up_s": round(time.time() - after[pod]["process_start_time_seconds"]),
            }
            for pod in pods
        ],
        "containers": [
            {"pod": p["metadata"]["name"], **installed.memory(p)}
            for c in ("operator", "agent")
            for p in installed.pods(c)
        ],
    }


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--settle", type=float, default=20, help="seconds to let pass after the last job's end")
    parser.add_argument("--wait", type=float, default=600, help="seconds to wait for jobs that run")
    parser.add_argument("--namespace", default="punctual")
    options = parser.parse_args()
    found = measure(options)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"quiet": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
