#!/usr/bin/env python3
"""How long a decision takes: from the answer to a job's create until a watcher sees the condition Admitted.

    tests/bench/decisions.py [--idle 100] [--burst 1000 [3000]] [--nodes 50] [--admission Hybrid]
    tests/bench/decisions.py --installed [--kubeconfig FILE]

Prints JSON: quantiles one job at a time, and decisions per second of a burst, from the first create to the last
decision seen, each with pods created and events told as in life. Nodes and pool are made up, no pod runs. With several
sizes, one burst follows the other, each into an empty pool. At last a bare client creates as many jobs as the first
burst had and writes the statuses that the operator wrote at its end: what this server can do on this machine now.

The API server is the bare one (hack/apiserver) on this machine, and the operator a process of our own; so it is with
--kubeconfig or KUBECONFIG, where our CRDs must stand and no other operator may run. With --installed it is the
operator in that cluster that decides; the nodes are few then, for a real cluster's controllers look after each.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from installed import Installed

from punctual import errors
from punctual.kube.api.resources import JOBS, NODES, PODS, POOLS
from punctual.kube.cluster.client import ApiClient

TOP = Path(__file__).resolve().parents[2]
GROUP = "punctual.dev/v1alpha1"
TARGET = {"idle_p50_ms": 150.0, "idle_p99_ms": 500.0, "burst_per_second": 60.0, "burst_aim_per_second": 200.0}
HEARTBEATS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CREATES = 32
"""Creates under way at once."""


def apiserver(name):
    """Start an API server of our own with our CRDs; return the path of its kubeconfig."""
    script = TOP / "hack" / "apiserver"
    kubeconfig = subprocess.run([script, "up", "--name", name], check=True, stdout=-1, text=True).stdout.strip()
    folder = subprocess.run([script, "bin"], check=True, stdout=-1, text=True).stdout.strip()
    kubectl = [f"{folder}/kubectl", f"--kubeconfig={kubeconfig}"]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", TOP / "crds"], check=True, stdout=-3)
    wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]
    subprocess.run([*kubectl, *wait], check=True, stdout=-3)
    return kubeconfig


class Bench:
    """A pool with nodes, and a watcher that notes when it sees decisions."""

    def __init__(self, client, *, processors=200):
        self.client = client
        self.processors = processors
        self.namespace = f"bench-{uuid.uuid4().hex[:8]}"
        self.seen = {}
        self.changed = asyncio.Event()

    async def prepare(self, nodes, admission="Exact"):
        """Make namespace, nodes and pool."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.create("/api/v1/namespaces", body)
        cpu = -(-self.processors // nodes)
        await asyncio.gather(*(self._add_node(f"{self.namespace}-{n}", cpu) for n in range(nodes)))
        pool = {
            "apiVersion": GROUP,
            "kind": "Pool",
            "metadata": {"name": self.namespace},
            "spec": {
                "nodeSelector": {"matchLabels": {"pool": self.namespace}},
                "processor": {"cpu": "1", "memory": "64Mi"},
                "admission": admission,
            },
        }
        await self.client.create(POOLS.path(), pool)

    async def keep_nodes(self, nodes):
        """Renew the nodes' leases, so that a real cluster's controllers take them for alive."""
        for n in range(nodes):
            name = f"{self.namespace}-{n}"
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
            await self.client.create(HEARTBEATS, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | lease)
        while True:
            renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for n in range(nodes):
                path = f"{HEARTBEATS}/{self.namespace}-{n}"
                await self.client.patch_merge(path, {"spec": {"renewTime": renewed}})
            await asyncio.sleep(10)

    async def _add_node(self, name, cpu):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": self.namespace}}}
        await self.client.create(NODES.path(), node)
        # admission taints a new node until a controller, that is not here, sees it ready
        await self.client.patch_merge(NODES.path(name=name), {"spec": {"taints": None}})
        status = {
            "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.patch_merge(NODES.path(name=name), {"status": status}, subresource="status")

    async def watch(self, resource=JOBS):
        """Note when each job's decision is seen; begin anew where a watch breaks off."""
        path = resource.path(namespace=self.namespace)
        while True:
            with contextlib.suppress(errors.ClusterError):
                there = await self.client.list(path)
                for body in there.items:
                    self._note(body)
                events = self.client.watch(path, resource_version=there.resource_version, seconds=600, silence=60.0)
                async for event in events:
                    if event["type"] != "BOOKMARK":
                        self._note(event["object"])
            await asyncio.sleep(0.1)

    def _note(self, body):
        conditions = (body.get("status") or {}).get("conditions") or ()
        if any(c["type"] == "Admitted" for c in conditions):
            self.seen.setdefault(body["metadata"]["name"], time.monotonic())
            self.changed.set()

    async def create(self, name, *, deadline="4h"):
        """Create a job; return when the answer came, and its metadata."""
        body = {
            "apiVersion": GROUP,
            "kind": "DivisibleJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "pool": self.namespace,
                "units": 100,
                "deadline": deadline,
                "cost": {"perUnit": "100ms"},
                "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
            },
        }
        created = await self.client.create(JOBS.path(namespace=self.namespace), body)
        return time.monotonic(), created["metadata"]

    async def decided(self, names, *, within):
        """Wait until all those decisions were seen."""
        try:
            async with asyncio.timeout(within):
                while any(n not in self.seen for n in names):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            news(f"{sum(n in self.seen for n in names)} of {len(names)} decisions in {within} s")
            raise

    async def idle(self, count):
        """Return milliseconds to each decision, one job at a time."""
        times = []
        for n in range(count):
            answered, _ = await self.create(f"idle-{n}")
            await self.decided([f"idle-{n}"], within=30)
            times.append(1000 * max(0.0, self.seen[f"idle-{n}"] - answered))
            await asyncio.sleep(0.1)  # what follows a decision is done: the next one meets a quiet operator
        return sorted(times)

    async def burst(self, count, prefix="burst"):
        """Return rates of creates and decisions since the first create, and how old jobs were when decided.

        ``alone``: decisions per second when no more jobs were being created, which takes its share of the machine. An
        age is from the create's answer until the decision is seen.
        """
        names = [f"{prefix}{count}-{n}" for n in range(count)]
        slots = asyncio.Semaphore(CREATES)

        async def create(name):
            async with slots:
                answered, _ = await self.create(name)
                return answered

        began = time.monotonic()
        answered = await asyncio.gather(*(create(n) for n in names))
        await self.decided(names, within=max(300, count / 5))
        seen = [self.seen[name] for name in names]
        behind = [at for at in seen if at > max(answered)]
        alone = len(behind) / (max(seen) - max(answered)) if behind else None
        ages = sorted(max(0.0, at - since) for at, since in zip(seen, answered, strict=True))
        return {
            "creates_per_second": round(count / (max(answered) - began), 1),
            "decisions_per_second": round(count / (max(seen) - began), 1),
            "alone_per_second": alone and round(alone, 1),
            "queue_age_s": {f"p{q}": quantile(ages, q / 100) for q in (50, 99)} | {"max": quantile(ages, 1)},
        }

    async def bare(self, count):
        """Create jobs and write a status to each, without an operator; return such pairs per second."""
        path, slots = JOBS.path(namespace=self.namespace), asyncio.Semaphore(CREATES)
        decided = [body for body in (await self.client.list(path)).items if body.get("status")][:count]
        await self.clear()

        async def pair(n, like):
            async with slots:
                _, created = await self.create(f"bare-{n}")
                meta = {name: created[name] for name in ("name", "resourceVersion")}
                body = {"apiVersion": GROUP, "kind": "DivisibleJob", "metadata": meta, "status": like["status"]}
                place = JOBS.path(namespace=self.namespace, name=meta["name"])
                await self.client.put_status(place, body, field_manager="punctual")

        began = time.monotonic()
        await asyncio.gather(*(pair(n, like) for n, like in enumerate(decided)))
        return round(len(decided) / (time.monotonic() - began), 1)

    async def clear(self):
        """Delete all jobs and their pods, and wait until they are gone."""
        for resource in (JOBS, PODS):
            kept = resource.path(namespace=self.namespace)
            while there := (await self.client.list(kept)).items:
                for item in there:
                    with contextlib.suppress(errors.NotFound):
                        path = resource.path(namespace=self.namespace, name=item["metadata"]["name"])
                        await self.client.delete(path, grace=0)
        self.seen.clear()

    async def clean(self, *, real):
        """Delete what was made; on a real cluster controllers do a part of it."""
        await self.clear()
        with contextlib.suppress(errors.NotFound):
            path = POOLS.path(name=self.namespace)
            if not real:
                await self.client.patch_merge(path, {"metadata": {"finalizers": None}})
            await self.client.delete(path)
        for item in (await self.client.list(NODES.path(), label_selector=f"pool={self.namespace}")).items:
            await self.client.delete(NODES.path(name=item["metadata"]["name"]))
            with contextlib.suppress(errors.NotFound):
                await self.client.delete(f"{HEARTBEATS}/{item['metadata']['name']}")
        if real:
            await self.client.delete(f"/api/v1/namespaces/{self.namespace}")


def quantile(ordered, q):
    """Return the q-quantile by nearest rank."""
    return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 1)


def cpu(pid):
    """Return the CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server(kubeconfig):
    """Return the CPU seconds that API server and etcd have used, where they are hack/apiserver's; else None."""
    records = [Path(kubeconfig).parent / f"{name}.json" for name in ("etcd", "kube-apiserver")]
    if not all(record.exists() for record in records):
        return None
    return sum(cpu(json.loads(record.read_text())["pid"]) for record in records)


def resident(pid):
    """Return a process's resident memory in MiB."""
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return round(int(fields[0]) / 1024, 1)


class Process:
    """The operator as a process of our own."""

    def __init__(self, kubeconfig, namespace):
        env = {
            **os.environ,
            "KUBECONFIG": kubeconfig,
            "POD_NAMESPACE": namespace,
            "PUNCTUAL_CLAIM_NAMESPACE": namespace,  # beside other tests' operators on the same server
            "PUNCTUAL_REPORT_PORT": "0",
            "PUNCTUAL_METRICS_PORT": "0",
        }
        self.log = Path(tempfile.gettempdir(), f"{namespace}.log")
        with self.log.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, "-m", "punctual.kube.main"], env=env, stderr=output)

    def used(self):
        """Return CPU seconds used and resident MiB."""
        return cpu(self.process.pid), resident(self.process.pid)

    def end(self):
        """Stop it, if it runs."""
        self.process.terminate()
        self.process.wait()
        self.log.unlink(missing_ok=True)


class Deployed:
    """The operator that is installed."""

    def __init__(self, namespace):
        self.installed = Installed(namespace)
        self.log = f"that of {self.installed.leader()}"

    def used(self):
        """Return CPU seconds used and resident MiB of the replica that leads."""
        told = self.installed.metrics(self.installed.leader())
        return told["process_cpu_seconds_total"], round(told["process_resident_memory_bytes"] / 2**20, 1)

    def end(self):
        """Leave it as it is."""


async def one_burst(bench, operator, kubeconfig, count, prefix="burst"):
    """Return the rates of a burst into an empty pool, and the CPU that operator and server used for it."""
    await bench.clear()
    news(f"{count} jobs at once")
    before, served = operator.used()[0], server(kubeconfig)
    burst = await bench.burst(count, prefix)
    used = 1000 * (operator.used()[0] - before) / count
    theirs = served and 1000 * (server(kubeconfig) - served) / count
    return {
        "jobs": count,
        **burst,
        "operator_cpu_ms_per_decision": round(used, 1),
        "server_cpu_ms_per_decision": theirs and round(theirs, 1),
        "operator_over_server_cpu": theirs and round(used / theirs, 2),
    }


@contextlib.asynccontextmanager
async def stage(kubeconfig, options, kind=Bench):
    """Have a pool, an operator that decides, and a watcher; yield a bench of that kind, and the operator."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(kubeconfig))
        bench = kind(client)
        stack.push_async_callback(bench.clean, real=options.installed)
        nodes = options.nodes or (4 if options.installed else 50)
        if options.installed:
            heart = asyncio.create_task(bench.keep_nodes(nodes))
            stack.callback(heart.cancel)
        await bench.prepare(nodes, options.admission)
        operator = Deployed(options.namespace) if options.installed else Process(kubeconfig, bench.namespace)
        stack.callback(operator.end)
        watcher = asyncio.create_task(bench.watch())
        stack.callback(watcher.cancel)
        try:
            await bench.create("first")
            await bench.decided(["first"], within=60)
            yield bench, operator
        except TimeoutError:
            sys.exit(f"not decided in time; the operator's log is {operator.log}")


async def measure(kubeconfig, options):
    """Have an operator decide, and measure."""
    async with stage(kubeconfig, options) as (bench, operator):
        _, quiet = operator.used()
        news(f"{options.idle} jobs one at a time")
        idle = await bench.idle(options.idle)
        bursts = [await one_burst(bench, operator, kubeconfig, count) for count in options.burst]
        _, loaded = operator.used()
        bare = {}
        if not options.installed:
            operator.end()
            news(f"{options.burst[0]} jobs by a bare client")
            rate = await bench.bare(options.burst[0])
            bare = {"bare_per_second": rate, "of_bare": round(bursts[0]["decisions_per_second"] / rate, 2)}
        return {
            "operator": "installed" if options.installed else "process",
            "idle": {
                "jobs": len(idle),
                **{f"p{q}_ms": quantile(idle, q / 100) for q in (50, 90, 99)},
                "max_ms": quantile(idle, 1),
            },
            "admission": options.admission,
            "burst": bursts[0],
            "bursts": bursts,
            "last_over_first": round(bursts[-1]["decisions_per_second"] / bursts[0]["decisions_per_second"], 2),
            **bare,
            "resident_mib": {"idle": quiet, "after_burst": loaded},
        }


def news(line):
    """Say what is going on."""
    print(f"decisions: {line}", file=sys.stderr, flush=True)  # noqa: T201  news


def command_line(text):
    """Return a parser with the options of both benchmarks that decide."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=100)
    parser.add_argument("--admission", default="Exact", choices=("Exact", "Fast", "Hybrid"))
    parser.add_argument("--nodes", type=int, help="default: 50, 4 with --installed; 200 processors in any case")
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--namespace", default="punctual", help="of the installed operator")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"))
    return parser


def carry_out(parser, measurement, *, name, target):
    """Do what the command line says, and print what was measured."""
    options = parser.parse_args()
    given = options.kubeconfig
    if options.installed and not given:
        parser.error("--installed needs --kubeconfig or KUBECONFIG")
    if given:
        os.environ["KUBECONFIG"] = given
    server_name = f"bench-{os.getpid()}"
    try:
        found = asyncio.run(measurement(given or apiserver(server_name), options))
    finally:
        if not given:
            subprocess.run([TOP / "hack" / "apiserver", "down", "--name", server_name], check=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({name: found, "target": target, "machine": machine}, indent=1))  # noqa: T201  its purpose


def main():
    """Do what the command line says."""
    parser = command_line(__doc__)
    parser.add_argument("--burst", type=int, nargs="+", default=[1000])
    carry_out(parser, measure, name="decisions", target=TARGET)


if __name__ == "__main__":
    main()
