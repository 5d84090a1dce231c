#!/usr/bin/env python3
"""How much the operator's writer gets written: statuses and pods per second, and its own CPU for each.

    tests/bench/writer.py [--jobs 1000] [--chunks 8]

Prints JSON. The API server is the bare one (hack/apiserver) on this machine, or that of KUBECONFIG, where our CRDs must
stand; it shares the cores with the writer. A status is written over the version that a watch told or the last write
left, as a leader's are.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import time
import uuid
from types import SimpleNamespace

from decisions import TOP, apiserver

from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.client import ApiClient
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import CreatePod, PutStatus, same
from punctual.kube.writes.writer import Writer

TARGET = {"statuses_per_second": 400.0}


def status(job, round_, *, chunks):
    """Return a status of the usual size."""
    meta = {key: job["metadata"][key] for key in ("name", "uid")}
    now = f"2026-01-01T00:00:{round_:02}Z"
    condition = {"type": "Admitted", "status": "True", "reason": "Feasible", "lastTransitionTime": now}
    times = {"createdTime": now, "promisedEnd": "2026-01-01T01:00:00Z"}
    said = {
        "epoch": 1,
        "conditions": [condition | {"message": "8 processors from now, 40 s before the deadline"}],
        "units": {"done": round_, "running": 100 - round_, "total": 100},
        "chunks": [
            {"begin": 10 * n, "end": 10 * n + 10, "node": f"node-{n}", "attempt": round_} | times for n in range(chunks)
        ],
    }
    body = {"apiVersion": JOBS.version, "kind": "DivisibleJob", "metadata": meta, "status": said}
    path = JOBS.path(namespace=job["metadata"]["namespace"], name=meta["name"])
    return PutStatus(path, body, version=job["metadata"]["resourceVersion"])


def pod(job):
    """Return the create of a chunk's pod."""
    labels = {"punctual.dev/job-uid": job["metadata"]["uid"]}
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    spec = {"containers": [{"name": "main", "image": "work:1", "resources": resources}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job["metadata"]["name"], "labels": labels}}
    return CreatePod(job["metadata"]["namespace"], body | {"spec": spec}, same(body, labels=tuple(labels)))


async def measure(kubeconfig, count, chunks):
    """Make jobs and write about them."""
    async with ApiClient(kubeconfig) as client:
        namespace = f"bench-{uuid.uuid4().hex[:8]}"
        meta = {"name": namespace}
        await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        spec = {
            "pool": "none",
            "units": 100,
            "deadline": "4h",
            "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
        }
        jobs = []
        for n in range(count):
            body = {"apiVersion": JOBS.version, "kind": "DivisibleJob", "metadata": {"name": f"j{n}"}, "spec": spec}
            jobs.append(await client.create(JOBS.path(namespace=namespace), body))
        results = []
        owner = SimpleNamespace(
            leading=lambda: True,
            take=lambda outcome: results.append(outcome.result),
            fenced=lambda: results.append("fenced"),
            count_write=lambda *_: None,
        )
        writer = Writer(client, owner, rate=1e6)
        task = asyncio.create_task(writer.run())
        found = {}
        rounds = {
            "first_statuses": lambda job: status(job, 1, chunks=chunks),
            "statuses": lambda job: status(job, 2, chunks=chunks),
            "pods": pod,
            "statuses_again": lambda job: status(job, 3, chunks=chunks),
        }
        for name, make in rounds.items():
            operations = [make(job) for job in jobs]
            wall, cpu = time.perf_counter(), time.process_time()
            for job, operation in zip(jobs, operations, strict=True):
                writer.submit(Key(JOBS, job["metadata"]["uid"]), operation)
            if not await writer.flush(300):
                raise SystemExit("not written in 300 s")
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            found[name] = {"per_second": round(count / wall, 1), "cpu_ms_each": round(1000 * cpu / count, 2)}
        task.cancel()
        await asyncio.wait([task])
        assert results == ["done"] * count * len(rounds), set(results)
        await client.delete(JOBS.path(namespace=namespace))
        await client.delete(PODS.path(namespace=namespace), grace=0)
        return {"jobs": count, "chunks": chunks, **found}


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=8, help="that each status records")
    options = parser.parse_args()
    given = os.environ.get("KUBECONFIG")
    name = f"bench-{os.getpid()}"
    try:
        found = asyncio.run(measure(given or apiserver(name), options.jobs, options.chunks))
    finally:
        if not given:
            subprocess.run([TOP / "hack" / "apiserver", "down", "--name", name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"writer": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
