#!/usr/bin/env python3
"""What a thousand agents do to the operator: each reports once a second, over TLS, with a token of its own.

    tests/bench/reports.py [--agents 1000] [--pods 4] [--seconds 30]

Prints JSON: reports answered per second and how long an answer takes, decisions on jobs meanwhile (from the create's
answer to a watcher), the operator's memory before, at the end and at half of it, its CPU, and what its own metrics say
of queues.

The API server is the bare one on this machine and reviews every token; the operator is a process of our own; nodes and
their pods are made up, the agents are coroutines of one other process that speak HTTP by hand. All share the machine's
cores.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import re
import ssl
import subprocess
import sys
import time
import urllib.request

from decisions import GROUP, TOP, Bench, Process, apiserver, quantile

from punctual import wire
from punctual.kube.api.resources import JOBS, PODS
from punctual.kube.cluster.client import ApiClient
from punctual.notation.duration import format_time

TARGET = {"reports_per_second": 1000, "decision_max_ms": 1000.0, "grown_mib": 20.0}
UNDER_WAY = 32
LEAST = 10
"""Decisions asked for, however long that takes."""
FIRST = 2_000_000_000
"""Units of each job that fills the pool: it runs for longer than the benchmark."""


def news(line):
    """Say what is going on."""
    print(f"reports: {line}", file=sys.stderr, flush=True)  # noqa: T201  news


# the agents, in a process of their own


class Agents:
    """All agents: each has a connection, reports once a second at a moment of its own, and notes how long that took."""

    def __init__(self, port, name, authority, nodes):
        self.port, self.name, self.nodes = port, name, nodes
        self.context = ssl.create_default_context(cadata=authority)
        self.counting = False
        self.times, self.codes, self.late = [], {}, 0

    async def run(self, commands):
        """Report until told to end; "count" begins the measurement."""
        agents = [asyncio.create_task(self._agent(n, *node)) for n, node in enumerate(self.nodes)]
        while (command := await asyncio.to_thread(commands.recv)) != "end":
            if command == "count":
                self.times, self.codes, self.late = [], {}, 0
                self.counting = True
        for agent in agents:
            agent.cancel()
        await asyncio.gather(*agents, return_exceptions=True)

    async def _agent(self, n, node, token, pods):
        due = time.monotonic() + n / len(self.nodes)
        sequence = 0
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, ssl=self.context, server_hostname=self.name
                )
                while True:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    sequence += 1
                    began = time.monotonic()
                    self.late += began > due + 1.0
                    writer.write(self._request(node, token, pods, sequence))
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
                    await reader.readexactly(length)
                    self._note(int(head[9:12]), time.monotonic() - began)
                    due = max(due + 1.0, time.monotonic())
            except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
                self._note(0, 0.0)
                await asyncio.sleep(1.0)

    def _request(self, node, token, pods, sequence):
        told = ",".join(
            f'{{"uid":"{uid}","done":{1000 * sequence},"cpu_seconds":{sequence},"cap":1.0,"period":0.1}}'
            for uid in pods
        )
        modes = '["Hold","Line","Application","Guest"]'
        said = f'"node":"{node}","instance":"i","sequence":{sequence},"started":1.0,"modes":{modes}'
        body = f'{{{said},"pods":[{told}]}}'
        return (
            f"POST {wire.REPORT_PATH} HTTP/1.1\r\nHost: {self.name}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def _note(self, code, seconds):
        self.codes[code] = self.codes.get(code, 0) + 1
        if code == 200:
            self.times.append(1000 * seconds)


def play(port, name, authority, nodes, commands):
    """Be all agents; answer with what was seen."""
    agents = Agents(port, name, authority, nodes)
    asyncio.run(agents.run(commands))
    commands.send((sorted(agents.times), agents.codes, agents.late))


# the cluster


async def in_parts(work):
    """Do it all, so many at a time; return the answers in order."""
    slots = asyncio.Semaphore(UNDER_WAY)

    async def one(task):
        async with slots:
            return await task

    return await asyncio.gather(*(one(task) for task in work))


async def hire(client, namespace, nodes):
    """Give each node its agent's pod; return {node: token}."""
    here = f"/api/v1/namespaces/{namespace}"
    await client.create(f"{here}/serviceaccounts", {"metadata": {"name": "punctual-agent"}})

    async def one(node):
        spec = {"serviceAccountName": "punctual-agent", "nodeName": node, "containers": [{"name": "a", "image": "a"}]}
        pod = await client.create(f"{here}/pods", {"metadata": {"generateName": "agent-"}, "spec": spec})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        asked = {"spec": {"audiences": [wire.AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}}
        answer = await client.create(f"{here}/serviceaccounts/punctual-agent/token", asked)
        return node, answer["status"]["token"]

    return dict(await in_parts(one(node) for node in nodes))


async def begin(client, path):
    """Let a pod run, as its kubelet says."""
    state = {"running": {"startedAt": format_time(int(client.clock.now()))}}
    main = {"name": "main", "image": "work:1", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    status = {"phase": "Running", "containerStatuses": [main]}
    await client.patch_merge(path, {"status": status}, subresource="status")


async def fill(bench, chunks, patience):
    """Have jobs run on every processor; return {node: uids of its chunks' pods}."""
    left, names = chunks, []
    while left:
        some = min(left, 1000)
        left -= some
        names.append(f"fill-{len(names)}")
        body = {
            "apiVersion": GROUP,
            "kind": "DivisibleJob",
            "metadata": {"name": names[-1], "namespace": bench.namespace},
            "spec": {
                "pool": bench.namespace,
                "units": FIRST,
                "deadline": "24h",
                "processors": {"min": some, "max": some},
                "cost": {"perUnit": "1ms"},
                "stallTimeout": "1h",
                "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
            },
        }
        await bench.client.create(JOBS.path(namespace=bench.namespace), body)
    await bench.decided(names, within=patience)
    path = PODS.path(namespace=bench.namespace)
    begun = set()
    async with asyncio.timeout(3 * patience):
        while len(begun) < chunks:
            pods = (await bench.client.list(path, label_selector="punctual.dev/job")).items
            new = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] not in begun]
            # as they come: the operator ends pods that have not started within seconds, and all of them take longer
            await in_parts(begin(bench.client, f"{path}/{name}") for name in new)
            begun.update(new)
            await asyncio.sleep(1)
    there = {}
    for pod in pods:
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = terms["nodeSelectorTerms"][0]["matchFields"][-1]["values"][0]
        there.setdefault(node, []).append(pod["metadata"]["uid"])
    return there


def metrics(port):
    """Return {series: value} of the operator."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = [x.rpartition(" ") for x in answer.read().decode().splitlines() if not x.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def within(before, after, name, q):
    """Return the bucket's bound below which the q-quantile of what a histogram counted meanwhile lies."""
    bounds = {}
    for series, value in after.items():
        if series.startswith(f"{name}_bucket"):
            bounds[re.search('le="([^"]+)"', series)[1]] = value - before.get(series, 0.0)
    wanted = q * bounds["+Inf"]
    return next((float(bound) for bound, count in bounds.items() if count >= wanted), None)


async def measure(kubeconfig, options):
    """Let the agents report and ask for decisions meanwhile."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(kubeconfig, deadline=120.0))
        bench = Bench(client, processors=options.agents * options.pods)
        stack.push_async_callback(bench.clean, real=False)
        news(f"{options.agents} nodes")
        await bench.prepare(options.agents)
        operator = Process(kubeconfig, bench.namespace)
        stack.callback(operator.end)
        watcher = asyncio.create_task(bench.watch())
        stack.callback(watcher.cancel)
        try:
            await bench.create("first")
            await bench.decided(["first"], within=options.patience)
            started = next(json.loads(x) for x in operator.log.read_text().splitlines() if '"started"' in x)
            news(f"{options.agents * options.pods} chunks")
            pods = await fill(bench, options.agents * options.pods - 1, options.patience)
            tokens = await hire(client, bench.namespace, [f"{bench.namespace}-{n}" for n in range(options.agents)])
            authority = (await client.get(f"/api/v1/namespaces/{bench.namespace}/configmaps/punctual-ca"))["data"]
            nodes = [(node, token, pods.get(node, [])) for node, token in tokens.items()]
            here, there = multiprocessing.get_context("spawn").Pipe()
            name = f"punctual.{bench.namespace}.svc"
            agents = multiprocessing.get_context("spawn").Process(
                target=play, args=(started["reports"], name, authority["ca.crt"], nodes, there), daemon=True
            )
            agents.start()
            stack.callback(agents.kill)
            news("the agents begin")
            await asyncio.sleep(options.warm)
            return await watch(bench, operator, started["metrics"], here, options)
        except TimeoutError:
            sys.exit(f"not decided in time; the operator's log is {operator.log}")


async def watch(bench, operator, port, agents, options):
    """Count for some time, jobs coming meanwhile; return what was seen."""
    before = await asyncio.to_thread(metrics, port)
    cpu, memory = operator.used()
    agents.send("count")
    began = time.monotonic()
    asked, deepest, oldest, middle = [], 0.0, 0.0, memory
    while (now := time.monotonic()) < began + options.seconds or len(asked) < LEAST:
        name = f"job-{len(asked)}"
        asked.append((name, (await bench.create(name))[0]))
        if len(asked) % 4 == 0:
            seen = await asyncio.to_thread(metrics, port)
            mailbox = f'{{pool="{bench.namespace}"}}'
            deepest = max(deepest, seen[f"punctual_mailbox_depth{mailbox}"])
            since = (
                seen[f"punctual_mailbox_oldest_timestamp_seconds{mailbox}"],
                seen["punctual_writer_oldest_timestamp_seconds"],
            )
            oldest = max(oldest, *(time.time() - at for at in since if at))
        if now < began + options.seconds / 2:
            middle = operator.used()[1]
        await asyncio.sleep(0.25)
    took = time.monotonic() - began
    after = await asyncio.to_thread(metrics, port)
    cpu_after, memory_after = operator.used()
    await bench.decided([name for name, _ in asked], within=options.patience)  # they go on reporting until then
    agents.send("end")
    times, codes, late = await asyncio.to_thread(agents.recv)
    decisions = sorted(1000 * max(0.0, bench.seen[name] - at) for name, at in asked)
    counted = after["punctual_agent_reports_total"] - before["punctual_agent_reports_total"]
    return {
        "agents": options.agents,
        "pods_per_agent": options.pods,
        "seconds": round(took, 1),
        "reports_per_second": round(counted / took, 1),
        "answers": {"p50_ms": quantile(times, 0.5), "p99_ms": quantile(times, 0.99), "max_ms": quantile(times, 1)},
        "codes": codes,
        "more_than_a_second_late": late,
        "decisions": {
            "jobs": len(decisions),
            "p50_ms": quantile(decisions, 0.5),
            "p99_ms": quantile(decisions, 0.99),
            "max_ms": quantile(decisions, 1),
        },
        "operator": {
            "cpu_percent_of_core": round(100 * (cpu_after - cpu) / took, 1),
            "resident_mib": {"before": memory, "half": middle, "end": memory_after},
            "grown_mib": round(memory_after - memory, 1),
            "step_p99_s": within(before, after, "punctual_step_duration_seconds", 0.99),
            "loop_lag_p99_s": within(before, after, "punctual_loop_lag_seconds", 0.99),
            "mailbox_deepest": deepest,
            "oldest_in_a_queue_s": round(oldest, 3),
        },
    }


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=4, help="chunks per node")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--patience", type=float, default=60, help="seconds for a decision before it gives up")
    parser.add_argument("--warm", type=float, default=10, help="seconds before it counts: connections, tokens")
    options = parser.parse_args()
    given = os.environ.get("KUBECONFIG")
    name = f"bench-{os.getpid()}"
    try:
        found = asyncio.run(measure(given or apiserver(name), options))
    finally:
        if not given:
            subprocess.run([TOP / "hack" / "apiserver", "down", "--name", name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"reports": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
