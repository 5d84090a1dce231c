#!/usr/bin/env python3
"""What following pods costs: CPU per pod event of the operator's informer, with the projection it uses.

    tests/bench/informer.py [--events 20000] [--pods 2000]

Prints JSON: milliseconds of CPU per event (a 4.8 kB body), half of them about chunks of ours and half about others'
pods, each changing what is kept; and kB of memory retained per pod. A process of its own plays the API server's part,
a recorded stream over HTTP, and is not counted.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import tempfile
import time
from pathlib import Path

import orjson

from punctual.kube.api.resources import PODS
from punctual.kube.cluster.client import ApiClient
from punctual.kube.cluster.informer import Informer
from punctual.kube.cluster.pods import project_pod
from punctual.labels import ATTEMPT, BEGIN, END, JOB_UID_LABEL
from punctual.scheduling.model.events import PodObserved

TARGET = {"ms_per_event": 0.1}
SIZE = 4800
"""Bytes of a pod as a kubelet reports it."""


def pod(n, version, *, ours):
    """Return a pod's body of the usual size, that differs by version in what is kept of it."""
    began = f"2026-01-01T00:{version // 60 % 60:02}:{version % 60:02}Z"
    meta = {
        "name": f"pod-{n}",
        "namespace": "bench",
        "uid": f"00000000-0000-0000-0000-{n:012}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "bench"},
        "managedFields": [{"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {}}],
    }
    if ours:
        job = f"10000000-0000-0000-0000-{n % 100:012}"
        meta["labels"][JOB_UID_LABEL] = job
        meta["ownerReferences"] = [{"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "uid": job}]
        meta["annotations"] = {BEGIN: "0", END: "1000", ATTEMPT: "0"}
    requests = {"cpu": f"{100 + version % 900}m", "memory": "64Mi"}
    state = {"running": {"startedAt": began}}
    body = {
        "metadata": meta,
        "spec": {
            "nodeName": f"node-{n % 200}",
            "containers": [{"name": "main", "image": "work:1", "resources": {"requests": requests}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": began}],
            "containerStatuses": [{"name": "main", "state": state, "ready": True, "restartCount": 0}],
        },
    }
    fields = meta["managedFields"][0]["fieldsV1"]
    while (missing := SIZE - len(orjson.dumps(body))) > 0:  # where the bytes of a real pod are
        fields[f"f:{len(fields):03}"] = {"f:field": {"f:" + "x" * min(20, missing): {}}}
    return body


def play(pods, events, port):
    """Be the server: stream what is there, then the events, then nothing."""

    def line(kind, body):
        return orjson.dumps({"type": kind, "object": body}) + b"\n"

    there = [line("ADDED", pod(n, n, ours=n % 2 == 0)) for n in range(pods)]
    end = {"metadata": {"resourceVersion": str(pods), "annotations": {"k8s.io/initial-events-end": "true"}}}
    there.append(line("BOOKMARK", end))
    changes = [line("MODIFIED", pod(v % pods, v, ours=v % pods % 2 == 0)) for v in range(pods, pods + events)]

    async def answer(reader, writer):
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for some in there if "sendInitialEvents" in asked else changes:
            writer.write(b"%x\r\n%s\r\n" % (len(some), some))
            await writer.drain()
        await reader.read()
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def resident():
    """Return this process's resident kB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1000


async def measure(port, pods, events):
    """Follow the stream; return CPU seconds and wall seconds per event, and kB per pod."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as kubeconfig:
        json.dump(config, kubeconfig)
        kubeconfig.flush()
        over = asyncio.Event()
        told = {"ours": 0, "others": 0}

        def on_change(change, _key, kept):
            if change == "MODIFIED":
                told["ours" if isinstance(kept, PodObserved) else "others"] += 1
                if told["ours"] + told["others"] == events:
                    over.set()

        async with ApiClient(kubeconfig.name) as client:
            informer = Informer(client, PODS.path(), project=project_pod, on_change=on_change)
            before = resident()
            task = asyncio.create_task(informer.run())
            await informer.synced.wait()
            kept = resident() - before
            cpu, wall = time.process_time(), time.perf_counter()
            await over.wait()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            task.cancel()
            await asyncio.wait([task])
        assert min(told.values()) > 0, told
        return cpu / events, wall / events, kept / pods


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--pods", type=int, default=2_000)
    options = parser.parse_args()
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=play, args=(options.pods, options.events, there), daemon=True
    )
    server.start()
    try:
        cpu, wall, kept = asyncio.run(measure(here.recv(), options.pods, options.events))
    finally:
        server.terminate()
        server.join()
    found = {
        "events": options.events,
        "bytes_per_event": SIZE,
        "ms_per_event": round(1000 * cpu, 4),
        "events_per_second": round(1 / wall),
        "kb_per_pod_kept": round(kept, 2),
    }
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"informer": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
