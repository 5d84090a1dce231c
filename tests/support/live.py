"""A real cluster as the tests of tests/cluster see it: kubectl, a way onto the nodes, a namespace that is watched."""

import asyncio
import contextlib
import inspect
import json
import re
import subprocess
import time
import uuid

import pytest
import yaml
from lib import testbed
from lib.testbed import POOL, ROOT, SYSTEM, condition, container, is_ready

from punctual import errors
from punctual.kube.api.resources import JOBS, NODES, PODS, POOLS
from punctual.kube.cluster.pods import foreign_pod
from punctual.labels import JOB_LABEL, KIND_LABEL, PLACEHOLDER
from punctual.labels import POOL_LABEL as LABEL
from punctual.notation.quantity import parse_cores

OWN_SPACE = r"t-[0-9a-f]{8}"
"""Names of tests' own namespaces."""
OWN_POOL = r"own-[0-9a-f]{6}(-2)?"
"""Names of tests' own pools."""

WORK = """
import os, sys, time
from punctual import worker

pause, crash = float(os.environ["PAUSE"]), os.environ.get("CRASH", "")
first = os.environ["PUNCTUAL_ATTEMPT"] == "1"
hurry = os.environ["PUNCTUAL_DIR"] + "/hurry"
done = 0
for unit in worker.units():
    if crash == "always" or (crash and first and done == int(crash)):
        time.sleep(10)  # the agent reads progress once a second
        sys.exit(1)
    time.sleep(0 if os.path.exists(hurry) else pause)
    done += 1
worker.result(str(done))
"""
"""A worker that is as quick on a loaded machine: units take time, not CPU; next to none once it is told to hurry."""
BURNS = """
import time
from punctual import worker

done = 0
for unit in worker.units():
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    done += 1
worker.result(str(done))
"""
"""Each unit takes 20 ms of CPU, however long that takes."""

LOWEST = {"idle", "1", "2"}
"""What the kernel holds a guest at, on each version of cgroups."""

JOIN = 'cd "$PUNCTUAL_RESULTS"; for r in [0-9]*-*; do echo "$r $(cat "$r")"; done | sort -n >/dev/termination-log'
"""A reduce that tells what was accounted: a line per range, with what its worker said."""


async def eventually(holds, *, within=120.0, every=0.1):
    """Wait until ``holds()``, a function or coroutine function, is true; return what it gave."""
    end = time.monotonic() + within
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:.0f} s: {inspect.getsource(holds).strip()}")
        await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def beside(work):
    """Run a coroutine that has no end meanwhile; see that it did not end."""
    task = asyncio.ensure_future(work)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def stalls(client):
    """Yield a list, to which is added for how many seconds this machine keeps an answer back that takes none."""
    found = []

    async def look():
        while True:
            began = time.monotonic()
            await client.get("/version")
            await asyncio.sleep(0.1)
            found.append(max(0.0, time.monotonic() - began - 0.2))

    async with beside(look()):
        yield found


class Cluster:
    """What does not change during a run: how to get there, the image, the nodes."""

    def __init__(self, env, image, nodes, *, own):
        self.env = env
        self.own = own
        self.kubeconfig = env.get("KUBECONFIG")
        self.image = image
        self.nodes = nodes

    def run(self, *argv, stdin=None, check=True):
        done = subprocess.run(argv, env=self.env, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{' '.join(map(str, argv))}\n{done.stdout}\n{done.stderr}"
        return done

    def kubectl(self, *words, stdin=None):
        return self.run("kubectl", *words, stdin=stdin).stdout

    def install(self):
        """Install the chart of this checkout, or upgrade it: all tests share it, so each installs it like this."""
        program, *words = testbed.chart(self.image)
        self.run(ROOT / program, *words)

    def refused(self, *words, stdin=None):
        """Run kubectl, which must fail; return what it says."""
        done = self.run("kubectl", *words, stdin=stdin, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def on_node(self, node, script):
        """Run a shell script as root on a node."""
        if not self.own:
            pytest.skip("needs a way onto the nodes")
        return self.run("docker", "exec", node, "sh", "-ec", script).stdout

    def caps(self, pod):
        """Return {cgroup: (quota, period)} in microseconds of a pod and its containers, as the kernel says."""
        found = [line.split() for line in self.on_node(pod["spec"]["nodeName"], testbed.caps(pod)).splitlines()]
        return {folder: (int(quota), int(period)) for folder, quota, period in found}

    def set_quota(self, node, folder, quota):
        """Write a quota into a cgroup by hand, in microseconds per 100 ms."""
        v1, v2 = f"{folder}/cpu.cfs_quota_us", f"{folder}/cpu.max"
        self.on_node(node, f"if [ -e {v1} ]; then echo {quota} >{v1}; else echo {quota} 100000 >{v2}; fi")

    def priority(self, pod):
        """Return what the kernel holds a pod's own folder at: {folder of a hierarchy: weight, or "idle"}."""
        uid = pod["metadata"]["uid"]
        names = f"-name '*{uid}*' -o -name '*{uid.replace('-', '_')}*'"
        script = (
            f"for d in $(find /sys/fs/cgroup -maxdepth 8 -type d \\( {names} \\)); do "
            "if [ -e $d/cpu.idle ] && [ $(cat $d/cpu.idle) = 1 ]; then echo $d idle; "
            "elif [ -e $d/cpu.shares ]; then echo $d $(cat $d/cpu.shares); "
            "elif [ -e $d/cpu.weight ]; then echo $d $(cat $d/cpu.weight); fi; done"
        )
        return dict(line.split() for line in self.on_node(pod["spec"]["nodeName"], script).splitlines())

    def set_priority(self, pod):
        """Give a pod's own folder an ordinary weight by hand, as a program that knows no guests would."""
        script = (
            "if [ -e {d}/cpu.idle ]; then echo 0 >{d}/cpu.idle; fi; "
            "if [ -e {d}/cpu.shares ]; then echo 512 >{d}/cpu.shares; else echo 50 >{d}/cpu.weight; fi"
        )
        for folder in self.priority(pod):
            self.on_node(pod["spec"]["nodeName"], script.format(d=folder))

    def cpus(self, node):
        """Return the CPU that a node's machine gives it, in cores."""
        if not self.own:
            pytest.skip("needs a way to the nodes' machine")
        return int(self.run("docker", "inspect", "-f", "{{.HostConfig.NanoCpus}}", node).stdout) / 1e9

    def give_cpus(self, node, cores):
        """Give a node more or less CPU than its kubelet advertises, as an oversold machine does."""
        self.run("docker", "update", "--cpus", str(cores), node)

    def signal(self, pod, name):
        """Send a signal to all processes of a pod's first container, whose pod stays."""
        script = testbed.signalling(container(pod), name)
        if name == "CONT":  # its kubelet may have ended what stood still
            script += " || true"
        self.on_node(pod["spec"]["nodeName"], script)

    def pods(self, component):
        """Return the pods of operator or agent that are not going."""
        selector = f"app.kubernetes.io/component={component}"
        found = json.loads(self.kubectl("get", "pods", "-n", SYSTEM, "-l", selector, "-o", "json"))["items"]
        return [p for p in found if not p["metadata"].get("deletionTimestamp")]

    def metrics(self, pod, port):
        """Return {series: value} of a pod of ours, a series as Prometheus writes it: ``name{label="value"}``."""
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy/metrics"
        lines = self.kubectl("get", "--raw", path).splitlines()
        return {
            series: float(value)
            for series, _, value in (x.rpartition(" ") for x in lines if x and not x.startswith("#"))
        }

    def in_order(self):
        """Return the pod that leads, once both replicas are ready and all agents run."""
        operators, agents = self.pods("operator"), self.pods("agent")
        both = len(operators) == 2 and all(map(is_ready, operators))
        return self.leader() if both and len(agents) >= len(self.nodes) and all(map(is_ready, agents)) else None

    def leader(self):
        """Return the pod that leads, None while that is not clear."""
        found = [p for p in self.pods("operator") if p["metadata"]["labels"].get("punctual.dev/leader") == "true"]
        return found[0] if len(found) == 1 else None


class Space:
    """A test's own namespace: what is asked for in it, and all that was seen to happen there."""

    def __init__(self, cluster, client, namespace):
        self.cluster = cluster
        self.client = client
        self.namespace = namespace
        self.jobs = {}
        """Name -> job as last seen."""
        self.pods = {}
        """Name -> pod as last seen, also of those that are gone."""
        self.lives = {}
        """Name -> a pod each time that it was seen to be another, the last time as it went."""
        self.gone = set()
        """Names of pods that are gone."""
        self.past = []
        """A job each time that it was seen to be another."""
        self.born = {}
        """Name of a pod -> the resource version it was created with: etcd's order of all writes."""

    async def follow(self, resource):
        """Take in what happens, for ever."""
        while True:
            with contextlib.suppress(errors.ClusterError):
                path = resource.path(namespace=self.namespace)
                async with contextlib.aclosing(
                    self.client.watch(path, initial=True, seconds=900, silence=910)
                ) as events:
                    async for event in events:
                        self._take(resource, event["type"], event["object"])

    def _take(self, resource, what, body):
        if what == "BOOKMARK":
            return
        name = body["metadata"]["name"]
        if resource is JOBS:
            self.past.append(body)
            self.jobs[name] = body
            if what == "DELETED":
                del self.jobs[name]
        else:
            self.pods[name] = body
            self.lives.setdefault(name, []).append(body)
            self.born.setdefault(name, version(body))
            if what == "DELETED":
                self.gone.add(name)

    async def kubectl(self, *words, stdin=None):
        """Run kubectl in the namespace while the world goes on."""
        return await asyncio.to_thread(self.cluster.kubectl, "-n", self.namespace, *words, stdin=stdin)

    def manifest(self, name, *, units, deadline, pause=None, crash="", program=WORK, cost=None, reduce=None, **spec):
        """Return a job; ``pause``: seconds that a unit really takes, ``crash``: when its first attempts end badly."""
        first = {
            "name": "main",
            "image": self.cluster.image,
            "command": ["python3", "-c", program],
            "env": [{"name": "PAUSE", "value": str(pause)}, {"name": "CRASH", "value": str(crash)}],
        }
        spec = {"pool": POOL, "units": units, "deadline": deadline, **spec}
        spec.setdefault("template", {"spec": {"containers": [first]}})
        if cost:
            spec["cost"] = cost
        if reduce:
            join = {"name": "main", "image": self.cluster.image, "command": ["sh", "-ec", JOIN]}
            spec["reduce"] = {"duration": reduce, "template": {"spec": {"containers": [join]}}}
        meta = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": meta, "spec": spec}

    def example(self, name, **spec):
        """Return the job of an example, with our image."""
        text = (ROOT / f"examples/{name}/job.yaml").read_text()
        body = yaml.safe_load(text.replace("punctual:dev", self.cluster.image))
        body["metadata"]["namespace"] = self.namespace
        body["spec"] |= {"pool": POOL, **spec}
        return body

    async def apply(self, *bodies):
        """Apply manifests with kubectl."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        await self.kubectl("apply", "-f", "-", stdin=json.dumps(everything))

    async def edit(self, name, **spec):
        """Change a job's spec with kubectl."""
        await self.kubectl("patch", "dj", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, name):
        return (self.jobs.get(name) or {}).get("status") or {}

    def written(self, name):
        """Return [(resource version, status)] of a job in the order of its writes."""
        return [
            (version(job), job["status"]) for job in self.past if job["metadata"]["name"] == name and "status" in job
        ]

    def condition(self, name, kind):
        """Return a condition of a job, {} where it is not there."""
        return condition(self.status(name), kind)

    def is_so(self, name, kind, reason=None):
        """Return a job's status if that condition is True (with that reason)."""
        found = self.condition(name, kind)
        return self.status(name) if found.get("status") == "True" and reason in (None, found["reason"]) else None

    async def answer(self, name, *, within=60.0):
        """Wait for the decision; return the condition Admitted."""
        decided = {"True", "False"}
        await eventually(lambda: self.condition(name, "Admitted").get("status") in decided, within=within)
        return self.condition(name, "Admitted")

    async def end(self, name, *, within=240.0):
        """Wait for a job's end; return its status."""
        await eventually(lambda: self.status(name).get("finishTime"), within=within)
        return self.status(name)

    def pods_of(self, name, kind="Chunk", *, phase=None, gone=None):
        """Return a job's pods in order of their ranges; ``gone``: those that are, or are not, gone."""
        found = [
            p
            for p in self.pods.values()
            if p["metadata"].get("labels", {}).get(JOB_LABEL) == name
            and p["metadata"]["labels"].get(KIND_LABEL) == kind
            and phase in (None, p["status"]["phase"])
            and gone in (None, p["metadata"]["name"] in self.gone)
        ]
        return sorted(found, key=lambda p: (note(p, "begin"), note(p, "attempt")))

    async def running(self, name, count=1, *, within=90.0):
        """Wait until so many of a job's chunks run; return their pods."""
        await eventually(lambda: len(self.pods_of(name, phase="Running", gone=False)) >= count, within=within)
        return self.pods_of(name, phase="Running", gone=False)

    async def hurry(self, pod):
        """Let what is left of a WORK's units take no time."""
        await self.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", 'touch "$PUNCTUAL_DIR/hurry"')

    def result(self, name):
        """Return what a job's reduce said."""
        (pod,) = self.pods_of(name, "Reduce", phase="Succeeded")
        return pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].strip()

    def ranges(self, name):
        """Return what JOIN found: [((begin, end), what the worker said)]."""
        found = [re.fullmatch(r"(\d+)-(\d+) ?(.*)", line) for line in self.result(name).splitlines()]
        return [((int(m[1]), int(m[2])), m[3]) for m in found]

    async def events(self, name):
        """Return {reason: messages, a line each} of a job's events."""
        found = await self.client.list(
            f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events",
            field_selector=f"regarding.name={name},regarding.kind=DivisibleJob",
        )
        said = {}
        for event in found.items:
            said.setdefault(event["reason"], []).append(event["note"])
        return {reason: "\n".join(notes) for reason, notes in said.items()}


async def said(space, name, reasons):
    """Whether a job has events of all these reasons."""
    return reasons <= (await space.events(name)).keys()


@contextlib.asynccontextmanager
async def lend(cluster, client, node, **spec):
    """Let a pool of the test's own have a node of the pool that all share; yield its name."""
    name = f"own-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("label", "node", node, f"{LABEL}={name}", "--overwrite")
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(testbed.pool(name, **spec)))
    try:
        yield name
    finally:
        cluster.kubectl("delete", "pool", name, "--ignore-not-found", "--wait=false")
        await give_back(cluster, client, node)


async def give_back(cluster, client, node):
    """Let the pool that all share have its node again, and wait until it has."""
    cluster.kubectl("label", "node", node, f"{LABEL}={POOL}", "--overwrite")

    async def there():
        lines = {n["name"]: n["processors"] for n in (await pool_status(client)).get("nodes") or ()}
        return lines.get(node, 0) > 0 and not taints(cluster, node)

    await eventually(there, within=180)


def taints(cluster, node):
    """Return the taints of pools on a node."""
    found = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["spec"].get("taints") or []
    return [t for t in found if t["key"] == LABEL]


async def ready(client, pool, node):
    """Wait until a pool of processors of 100m has the node, with all that others leave of it; return how many."""

    async def there():
        status = await pool_status(client, pool)
        size = (await room(client)).get(node)
        lines = [(n["name"], n["processors"]) for n in status.get("nodes") or ()]
        return size if lines == [(node, size)] else None

    return await eventually(there)


async def room(client):
    """Return how many processors of 100m each node has room for beside pods that are not ours."""
    nodes = (await client.list(NODES.path())).items
    cores = {n["metadata"]["name"]: parse_cores(n["status"]["allocatable"]["cpu"]) for n in nodes}
    for pod in (await client.list(PODS.path())).items:
        ours = {JOB_LABEL, PLACEHOLDER} & (pod["metadata"].get("labels") or {}).keys()
        if not ours and (foreign := foreign_pod(pod)) and foreign.node in cores:
            cores[foreign.node] -= foreign.requests.cpu
    return {name: int(round(left, 6) / 0.1 + 1e-9) for name, left in cores.items()}


async def left_behind(client):
    """Return the names of pods that earlier tests have left, or that are going: they still take room."""
    return [
        pod["metadata"]["name"]
        for pod in (await client.list(PODS.path())).items
        if pod["status"]["phase"] in ("Pending", "Running")
        and (
            "deletionTimestamp" in pod["metadata"]
            or re.fullmatch(OWN_SPACE, pod["metadata"]["namespace"])
            or PLACEHOLDER in (pod["metadata"].get("labels") or {})
        )
    ]


def guest(space, name, units, **more):
    """Return a guest job."""
    body = space.manifest(name, units=units, deadline=None, **more)
    body["spec"]["class"] = "Guest"
    del body["spec"]["deadline"]
    return body


def stranger(cluster, space, node, cpu="10m", **spec):
    """Return a pod of somebody else for that node."""
    name, there = f"stranger-{cpu}-{node}", {"kubernetes.io/hostname": node}
    spec = {"requests": {"cpu": cpu}, "nodeSelector": there, **spec}
    return testbed.pod(name, space.namespace, cluster.image, ["sleep", "600"], **spec)


def has_no_room(space, name):
    """Whether the scheduler has looked for a node for that pod, and found none."""
    conditions = space.pods.get(name, {}).get("status", {}).get("conditions") or ()
    return any((c["type"], c["status"]) == ("PodScheduled", "False") for c in conditions)


def agent_state(pod):
    """Return how often an agent's container was begun again, and its state."""
    (found,) = (s for s in pod["status"]["containerStatuses"] if s["name"] == "agent")
    return found["restartCount"], found["state"]


async def kept_waiting(cluster, agent):
    """Kill the agent that ``agent()`` gives; return whether it is kept waiting, rather than begun again at once."""
    await eventually(lambda: "running" in agent_state(agent())[1], within=240, every=0.5)
    before, _ = agent_state(agent())
    cluster.signal(agent(), "KILL")

    def seen():
        count, now = agent_state(agent())
        waiting = (now.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
        return ("waits" if waiting else "runs") if waiting or count > before else None

    return await eventually(seen) == "waits"


async def agents_never_restarted(cluster):
    """Replace agents that have ended in earlier tests: the kubelet would start them again later each time."""
    before = cluster.pods("agent")
    for pod in before:
        if any(c["restartCount"] for c in pod["status"].get("containerStatuses") or ()):
            cluster.kubectl("delete", "pod", "-n", SYSTEM, pod["metadata"]["name"], "--wait=false")

    def fresh():
        now = cluster.pods("agent")
        statuses = [c for p in now for c in p["status"].get("containerStatuses") or [{"restartCount": 1}]]
        return len(now) == len(before) and all(map(is_ready, now)) and not any(c["restartCount"] for c in statuses)

    await eventually(fresh, within=180)


def version(body):
    return int(body["metadata"]["resourceVersion"])


def note(pod, name):
    """Return a number that the operator wrote on a pod."""
    return int(pod["metadata"]["annotations"][f"punctual.dev/{name}"])


def covers(ranges, units):
    """Whether ranges follow each other from 0 to ``units``: each unit once."""
    return [r[0] for r in ranges] == [0, *(r[1] for r in ranges[:-1])] and ranges[-1][1] == units


async def pool_status(client, name=POOL):
    return (await client.get(POOLS.path(name=name))).get("status") or {}
