"""The whole operator against a real API server; where a pod must run, the test plays the kubelet."""

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
import uuid

import pytest

from punctual import errors
from punctual.kube.api.resources import CONFIG_MAPS, JOBS, LEASES, NODES, PODS, POOLS, PROFILES
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import pod_name
from punctual.labels import JOB_UID_LABEL
from punctual.notation.duration import format_time, parse_time
from punctual.scheduling.model.job import Chunk

GROUP = "punctual.dev/v1alpha1"
NAMES = itertools.count(1)


class World:
    """A namespace, a pool with a node, and what a test does with them. Answers are read from the API server alone."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.system = namespace  # the operator's
        self.pool = f"pool-{uuid.uuid4().hex[:8]}"
        self.node = f"node-{self.pool}"
        self.timed = True  # its kubelet tells when containers began and ended
        self._begun = {}  # name of a pod -> when its container began
        self._cleanup = []

    async def add_node(self, cpu="4", name=None, **labels):
        name = name or self.node
        meta = {"name": name, "labels": {"pool": self.pool, **labels}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        await self.client.create(NODES.path(), node)
        self._cleanup.append(NODES.path(name=name))
        # admission taints a new node until a controller, that is not here, sees it ready
        await self.client.patch_merge(NODES.path(name=name), {"spec": {"taints": None}})
        status = {
            "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.patch_merge(NODES.path(name=name), {"status": status}, subresource="status")

    async def add_pool(self, **spec):
        body = {
            "apiVersion": GROUP,
            "kind": "Pool",
            "metadata": {"name": self.pool},
            "spec": {
                "nodeSelector": {"matchLabels": {"pool": self.pool}},
                "processor": {"cpu": "1", "memory": "64Mi"},
                "margin": "2s",
                **spec,
            },
        }
        await self.client.create(POOLS.path(), body)
        self._cleanup.append(POOLS.path(name=self.pool))

    def spec(self, **spec):
        """Return a job's spec."""
        return {
            "pool": self.pool,
            "units": 100,
            "deadline": "10m",
            "cost": {"perUnit": "100ms", "startup": "1s"},
            "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
            **spec,
        }

    async def add_job(self, **spec):
        body = {
            "apiVersion": GROUP,
            "kind": "DivisibleJob",
            "metadata": {"name": f"job-{next(NAMES)}", "namespace": self.namespace},
            "spec": self.spec(**spec),
        }
        made = await self.client.create(JOBS.path(namespace=self.namespace), body)
        self._cleanup.append(self.path(made))
        return made

    def path(self, job):
        return JOBS.path(namespace=self.namespace, name=job["metadata"]["name"])

    async def status(self, job):
        return (await self.client.get(self.path(job))).get("status") or {}

    async def pods(self, job):
        selector = f"{JOB_UID_LABEL}={job['metadata']['uid']}"
        found = await self.client.list(PODS.path(namespace=self.namespace), label_selector=selector)
        return {p["metadata"]["name"]: p for p in found.items if not p["metadata"].get("deletionTimestamp")}

    async def until(self, holds, *, within=60.0):
        """Wait until ``holds()`` answers with something true, and return that."""
        last = None
        try:
            async with asyncio.timeout(within):
                while not (last := await holds()):  # noqa: ASYNC110  it is the API server's state
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"not within {within} s: {holds}, last {last}")
        return last

    async def answered(self, job, reason=None, kind="Admitted"):
        """Wait for a condition (with that reason), return the status."""

        async def holds():
            status = await self.status(job)
            found = condition(status, kind)
            return status if found and reason in (None, found["reason"]) else None

        return await self.until(holds)

    async def given(self, job, count):
        """Wait until the job has that many pods."""

        async def holds():
            pods = await self.pods(job)
            return (pods,) if len(pods) == count else None

        return (await self.until(holds))[0]

    async def set_pod(self, pod, **status):
        path = PODS.path(namespace=self.namespace, name=pod["metadata"]["name"])
        await self.client.patch_merge(path, {"status": status}, subresource="status")

    async def begin(self, pod):
        """Run a pod, as its kubelet would."""
        now = self._begun[pod["metadata"]["name"]] = format_time(int(self.client.clock.now()))
        state = [{**CONTAINER, "state": {"running": {"startedAt": now}}}]
        await self.set_pod(pod, phase="Running", containerStatuses=state)

    async def end(self, pod, *, code=0, message=""):
        """End a pod, as its kubelet would."""
        now = format_time(int(self.client.clock.now()))
        times = {"startedAt": self._begun.get(pod["metadata"]["name"], now), "finishedAt": now}
        ended = {"exitCode": code, "message": message, **(times if self.timed else {})}
        state = [{**CONTAINER, "state": {"terminated": ended}}]
        steps = [c["name"] for c in pod["spec"].get("initContainers") or ()]  # those of a chunk with an input
        read = json.dumps(
            {"bytes": 1000, "size": 3000, "validator": '"1"', "waited": 0, "opening": 0.1, "seconds": 0.2}
        )
        fetched = {"terminated": {"exitCode": 0, "startedAt": now, "finishedAt": now, "message": read}}
        await self.set_pod(
            pod,
            phase="Succeeded" if code == 0 else "Failed",
            containerStatuses=state,
            initContainerStatuses=[{**CONTAINER, "name": name, "state": fetched} for name in steps],
        )

    async def work(self, job, *, until=("Completed", "Failed"), takes=0.0):
        """Play the kubelet for all pods of a job to its end; return names of all the pods there were.

        ``takes``: seconds that each runs, at least.
        """
        ends = {}

        async def ended():
            for name, pod in (await self.pods(job)).items():
                if name not in ends and pod["status"]["phase"] in {"Pending", "Running"}:
                    if pod["status"]["phase"] == "Pending":
                        await self.begin(pod)
                    ends[name] = time.monotonic() + takes
                if ends.get(name, math.inf) <= time.monotonic():
                    ends[name] = math.inf
                    await self.end(pod, message=f"did {pod['metadata']['annotations']['punctual.dev/begin']}")
            status = await self.status(job)
            return any((condition(status, kind) or {}).get("status") == "True" for kind in until)

        await self.until(ended)
        return set(ends)

    async def let_go(self):
        """Release the Lease in the name of a holder that was killed: how long a takeover takes is another test's."""
        path = LEASES.path(namespace=self.system, name="punctual")
        await self.client.patch_merge(path, {"spec": {"holderIdentity": None}})

    async def clean(self):
        pods = await self.client.list(PODS.path(namespace=self.namespace))
        for pod in pods.items:
            path = PODS.path(namespace=self.namespace, name=pod["metadata"]["name"])
            with contextlib.suppress(errors.NotFound):
                await self.client.delete(path, grace=0)
        for path in reversed(self._cleanup):
            with contextlib.suppress(errors.NotFound):
                if "/pools/" in path:
                    await self.client.patch_merge(path, {"metadata": {"finalizers": None}})
                await self.client.delete(path)


CONTAINER = {"name": "main", "image": "work:1", "imageID": "", "ready": False, "restartCount": 0}


def condition(status, kind):
    return next((c for c in status.get("conditions") or () if c["type"] == kind), None)


class Replica:
    """An operator in a process of its own."""

    def __init__(self, kubeconfig, namespace, log, **more):
        self.log = log
        env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "POD_NAMESPACE": namespace,
            "PUNCTUAL_CLAIM_NAMESPACE": namespace,  # beside other tests' operators on the same server
            "PUNCTUAL_REPORT_PORT": "0",
            "PUNCTUAL_METRICS_PORT": "0",
            # it shall lead, however slow the machine is
            "PUNCTUAL_LEASE_LEASE": "120",
            "PUNCTUAL_LEASE_RENEW": "100",
            "PUNCTUAL_LEASE_RETRY": "0.2",
            **more,
        }
        with log.open("wb") as output:
            command = [sys.executable, "-m", "punctual.kube.main"]
            self.process = subprocess.Popen(command, env=env, stderr=output, stdout=output)

    async def end(self):
        """Stop it in good order; return its exit status."""
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 120)

    async def kill(self):
        """Stop it where it is: nothing is flushed and the lease is not released."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait)


@pytest.fixture
async def replica(release, world, tmp_path):
    """A function that starts a replica under the chart's rights and policies; all are stopped, in good order."""
    started, world.system = [], release.namespace

    async def start():
        one = Replica(release.own, release.namespace, tmp_path / f"replica-{len(started)}.log")
        started.append(one)
        async with asyncio.timeout(200):  # a busy machine takes its time to import it all
            while '"started"' not in one.log.read_text():
                assert one.process.poll() is None
                await asyncio.sleep(0.05)
        return one

    yield start
    codes = [await one.end() for one in started if one.process.poll() is None]
    for one in started:
        sys.stderr.write(one.log.read_text())  # pytest shows it where the test failed
    assert codes == [0] * len(codes)


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    yield made
    await made.clean()


async def test_a_job_that_fits_is_promised_and_its_pods_are_those_of_its_status(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job(units=4000, deadline="5m")
    status = await world.answered(job, "Feasible")
    processors = status["promise"]["processors"]
    assert processors > 1  # 400 s of work in 300 s
    pods = await world.given(job, processors)
    chunks = {c["pod"]: c for c in (await world.status(job))["chunks"]}
    assert set(pods) == set(chunks)
    assert min(c["begin"] for c in chunks.values()) == 0
    for name, pod in pods.items():
        first = pod["spec"]["containers"][0]
        assert first["resources"]["limits"]["cpu"] == "1"
        assert {"name": "PUNCTUAL_BEGIN", "value": str(chunks[name]["begin"])} in first["env"]
    assert status["epoch"] >= 1


async def test_a_job_that_does_not_fit_gets_an_offer_that_is_kept(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    refused = await world.add_job(units=4000, deadline="30s")
    await world.answered(refused, "InfeasibleCapacity")

    async def offered():
        return (await world.status(refused)).get("offer")

    for _ in range(20):
        offer = await world.until(offered)
        again = await world.add_job(units=4000, deadline=offer["earliestDeadline"])
        decided = condition(await world.answered(again), "Admitted")
        at = parse_time(decided["lastTransitionTime"])
        if at - parse_time(again["metadata"]["creationTimestamp"]) <= 2.0:  # a moment, as offers allow for
            assert decided["reason"] == "Feasible"
            return
        await world.client.delete(world.path(again))
    pytest.fail("no answer came soon enough to say something")


async def test_a_refused_job_that_is_edited_to_its_offer_is_promised(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job(units=4000, deadline="30s")
    refused = await world.answered(job, "InfeasibleCapacity")
    assert (refused["state"], "finishTime" in refused) == ("Refused", True)

    async def offered():
        return (await world.status(job)).get("offer")

    offer = await world.until(offered)
    await asyncio.sleep(20)  # a person reads it: the time that passes is what is tested
    edit = {"deadline": None, "deadlineTime": offer["earliestDeadlineTime"]}
    await world.client.patch_merge(world.path(job), {"spec": edit})
    promised = await world.answered(job, "Feasible")
    assert parse_time(promised["promise"]["deadline"]) == parse_time(offer["earliestDeadlineTime"])
    assert "finishTime" not in promised
    assert "offer" not in promised


async def test_a_plan_says_what_the_operator_does_then(world, replica, plan):
    await world.add_node(cpu="3")
    await world.add_pool()
    await replica()
    first = await world.add_job(units=5000, deadline="700s")
    await world.answered(first, "Feasible")
    await world.given(first, 1)
    for spec in ({"units": 300, "deadline": "5m"}, {"units": 3000, "deadline": "1m"}):
        wanted = {"kind": "DivisibleJob", "metadata": {"name": "new", "namespace": world.namespace}}
        asked = await asyncio.to_thread(plan, {**wanted, "spec": world.spec(**spec)}, "-o", "json")
        assert asked.stdout, asked.stderr
        planned = json.loads(asked.stdout)
        status = await world.answered(await world.add_job(**spec))
        said = condition(status, "Admitted")
        assert (planned["admitted"], planned["reason"]) == (said["status"], said["reason"])
        begun, foreseen = (
            sorted((c["begin"], c["end"], c["node"]) for c in made.get("chunks", ())) for made in (status, planned)
        )
        assert foreseen == begun
    assert planned["offer"]["largestLoad"] > 500, "of the last, which is refused"


async def test_the_plugin_submits_explains_shows_and_cancels_jobs(world, replica, plugin):
    async def ask(*words, stdin=None, status=0):
        found = await asyncio.to_thread(plugin, "punctual", *words, stdin=stdin)
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout

    async def submit(name, *words, status=0, **spec):
        meta = {"name": name, "namespace": world.namespace}
        body = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": meta}
        return await ask("submit", "-", *words, stdin={**body, "spec": world.spec(**spec)}, status=status)

    here = "-n", world.namespace
    await world.add_pool()
    await world.add_node()
    silent = await submit("first", "--timeout", "0", units=4000, deadline="130s", status=2)
    assert "first created: not answered yet" in silent
    assert "It has no answer yet" in await ask("why", "first", *here)
    await replica()
    assert "first unchanged: promised by pool" in await submit("first", units=4000, deadline="130s")
    first = await world.client.get(JOBS.path(namespace=world.namespace, name="first"))
    for pod in (await world.given(first, 4)).values():
        await world.begin(pod)  # a pod that does not start is made anew after some seconds
    refused = json.loads(await submit("second", "-o", "json", units=4000, deadline="60s", status=1))[0]
    assert (refused["answer"], refused["reason"]) == ("refused", "InfeasibleCapacity")
    why = await ask("why", "second", *here)
    assert "InfeasibleCapacity): 4000 units due in" in why
    assert f"{world.namespace}/first runs on" in why
    assert f"spec.deadlineTime {refused['offer']['earliestDeadlineTime']}" in why
    accepted = await submit("third", "--accept-offer", units=4000, deadline="61s")
    assert "third created: promised by pool" in accepted
    assert "with the deadline that was offered" in accepted
    waits = await ask("why", "third", *here)
    assert re.search(r"Units \d+-\d+ start at .* of node \S+, which runs units .*/first until", waits)

    top = json.loads(await ask("top", *here, "-o", "json"))
    assert {job["name"]: job["state"] for job in top["jobs"]}["second"] == "Refused"
    shown = [line.split() for line in (await ask("pools", world.pool)).splitlines()]
    assert shown[1][:3] == [world.pool, "4", "4"]
    assert [pool["inUse"] for pool in top["pools"] if pool["name"] == world.pool] == [4]
    chunk = (await world.status({"metadata": {"name": "first"}}))["chunks"][0]
    assert f"It is units {chunk['begin']}-" in await ask("why", chunk["pod"], *here)
    words = await asyncio.to_thread(plugin, "__complete", "punctual", "why", *here, "fir")
    assert words.stdout.splitlines()[0] == "first"

    gone = await asyncio.to_thread(plugin, "punctual", "cancel", "first", "secnd", *here)
    assert gone.returncode == 1
    assert f"{world.namespace}/first deleted. It was " in gone.stdout
    assert "kubectl punctual: there is no job secnd; similar: second" in gone.stderr


async def test_a_job_is_worked_off_and_its_pods_are_ended(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job()
    await world.answered(job, "Feasible")
    await world.work(job)
    status = await world.answered(job, kind="Completed")
    assert status["completed"] == [{"begin": 0, "end": 100}]
    assert status["progress"] == "100%"
    assert "chunks" not in status
    await world.given(job, 0)


async def test_a_job_waits_for_its_pool_and_is_asked_when_it_comes(world, replica):
    await world.add_node()
    await replica()
    job = await world.add_job()
    status = await world.answered(job, "PoolNotFound")
    assert world.pool in condition(status, "Admitted")["message"]
    await world.add_pool()
    await world.answered(job, "Feasible")


async def test_a_missing_profile_is_named_and_the_job_asked_again_when_it_comes(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job(profile="thumbs", cost=None)
    await world.answered(job, "ProfileNotFound")
    profile = {
        "apiVersion": GROUP,
        "kind": "Profile",
        "metadata": {"name": "thumbs", "namespace": world.namespace},
        "spec": {"perUnit": "100ms"},
    }
    await world.client.create(PROFILES.path(namespace=world.namespace), profile)
    await world.answered(job, "Feasible")


async def test_a_profile_learns_from_chunks_and_what_it_knows_outlives_a_leader(world, replica):
    world.timed = False  # else what ended seconds before a busy machine saw it is not learned from
    takes = 1.0  # nor is what took less than the operator's clock may stand still, half a second after its start
    await world.add_node()
    await world.add_pool()
    labels = {"node.kubernetes.io/instance-type": "large"}
    await world.client.patch_merge(NODES.path(name=world.node), {"metadata": {"labels": labels}})
    path = PROFILES.path(namespace=world.namespace, name="thumbs")
    meta = {"name": "thumbs", "namespace": world.namespace}
    body = {"apiVersion": GROUP, "kind": "Profile", "metadata": meta, "spec": {}}
    await world.client.create(PROFILES.path(namespace=world.namespace), body)
    first = await replica()
    job = await world.add_job(profile="thumbs", cost=None, units=40)
    await world.answered(job, "Measuring")
    done = await world.work(job, takes=takes)

    def learned(least):
        async def holds():
            status = (await world.client.get(path)).get("status") or {}
            return status if status.get("samples", 0) >= least else None

        return holds

    before = await world.until(learned(1))
    assert before["classes"][0]["pool"] == world.pool
    assert before["classes"][0]["nodeClass"] == "large"
    assert await first.end() == 0  # what it has not written yet it writes now
    before = await world.until(learned(2))
    assert sum(before["classes"][0]["units"]) <= 40
    assert before["samples"] <= len(done)

    # as if more had been seen
    samples = {"pool": world.pool, "nodeClass": "large", "units": [10, 20, 50, 100, 200], "seconds": [3, 4, 7, 12, 22]}
    samples["responses"] = [{"cpuPerUnit": 0.1 + 0.01 * n, "lag": 3.5, "delay": 1, "noise": 0.0} for n in range(3)]
    await world.client.patch_merge(path, {"status": {"classes": [samples]}}, subresource="status")
    second = await replica()
    another = await world.add_job(profile="thumbs", cost=None)
    status = await world.answered(another, "Feasible")
    assert status["cost"]["perUnit"] == pytest.approx(0.1)
    assert status["cost"]["startup"] == pytest.approx(2.0)
    await world.work(another, takes=takes)
    assert await second.end() == 0
    after = await world.until(learned(6))
    assert after["classes"][0]["units"][:5] == samples["units"]
    assert after["classes"][0]["responses"] == samples["responses"]
    assert after["response"] == samples["responses"][1]


async def test_speeds_of_nodes_are_one_vote_per_namespace_up_to_a_limit_and_go_with_their_profiles(world, replica):
    label = "node.kubernetes.io/instance-type"
    await world.add_node(cpu="1", **{label: "old"})
    await world.add_node(cpu="1", name=f"{world.node}-new", **{label: "new"})
    await world.add_pool()
    units, paths = [10, 20, 50, 100, 200], []
    for n in range(3):
        meta = {"name": f"lies-{n}", "namespace": world.namespace}
        paths.append(PROFILES.path(namespace=world.namespace, name=meta["name"]))
        body = {"apiVersion": GROUP, "kind": "Profile", "metadata": meta, "spec": {}}
        await world.client.create(PROFILES.path(namespace=world.namespace), body)
        classes = [
            {"pool": world.pool, "nodeClass": name, "units": units, "seconds": [2 + chi * u for u in units]}
            for name, chi in (("old", 9.0), ("new", 1.0))
        ]
        await world.client.patch_merge(paths[-1], {"status": {"classes": classes}}, subresource="status")
    await replica()

    def shown(wanted):
        async def holds():
            status = (await world.client.get(POOLS.path(name=world.pool))).get("status") or {}
            speeds = {node["name"]: node.get("speed", 1.0) for node in status.get("nodes") or ()}
            return (status.get("nodeClasses"), speeds.get(world.node)) == wanted

        return holds

    voters = {"namespaces": [world.namespace]}
    new = {"name": "new", "unitTime": "100%", "measured": "100%", **voters}
    await world.until(shown(([new, {"name": "old", "unitTime": "200%", "measured": "900%", **voters}], 2.0)))
    # it would take 8 s on nodes that are alike, and 40 s on one that is nine times as slow
    job = await world.add_job(units=16, cost={"perUnit": "1s", "startup": "1s"}, deadline="20s")
    await world.answered(job, "Feasible")
    for path in paths:
        await world.client.delete(path)
    await world.until(shown((None, 1.0)))
    classes = [{"name": "old", "unitTime": "900%"}]
    await world.client.patch_merge(POOLS.path(name=world.pool), {"spec": {"speeds": {"classes": classes}}})
    await world.until(shown(([{"name": "old", "unitTime": "900%"}], 9.0)))


async def test_a_pool_takes_jobs_from_its_namespaces_only(world, replica):
    await world.add_node()
    await world.add_pool(namespaceSelector={"matchLabels": {"team": "vision"}})
    await replica()
    job = await world.add_job()
    status = await world.answered(job, "NotAllowed")
    assert world.namespace in condition(status, "Admitted")["message"]
    path = f"/api/v1/namespaces/{world.namespace}"
    await world.client.patch_merge(path, {"metadata": {"labels": {"team": "vision"}}})
    await world.answered(job, "Feasible")


async def test_nothing_is_promised_to_a_job_whose_pods_would_be_refused(world, replica):
    await world.add_node()
    await world.add_pool()
    path = f"/api/v1/namespaces/{world.namespace}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await world.client.patch_merge(path, {"metadata": {"labels": labels}})
    await replica()
    status = await world.answered(await world.add_job(), "PodRefused")
    assert "restricted" in condition(status, "Admitted")["message"]


async def test_a_deleted_job_leaves_no_pod_and_all_processors(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job()
    await world.given(job, 1)

    async def free(count):
        return (await world.client.get(POOLS.path(name=world.pool)))["status"]["free"] == count

    await world.until(lambda: free(3))
    await world.client.delete(world.path(job))
    await world.given(job, 0)
    await world.until(lambda: free(4))


async def test_the_taint_holds_nodes_while_there_is_the_pool(world, replica):
    await world.add_node()
    await world.add_pool(hold="Taint")
    await replica()

    def tainted(wanted):
        async def holds():
            taints = (await world.client.get(NODES.path(name=world.node)))["spec"].get("taints") or []
            return [t for t in taints if t["key"] == "punctual.dev/pool"] == wanted

        return holds

    await world.until(tainted([{"key": "punctual.dev/pool", "value": world.pool, "effect": "NoSchedule"}]))
    await world.client.delete(POOLS.path(name=world.pool))
    await world.until(tainted([]))


async def test_a_pool_is_deleted_when_its_promises_are_kept(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job()
    await world.answered(job, "Feasible")
    pool = POOLS.path(name=world.pool)

    async def guarded():
        return (await world.client.get(pool))["metadata"].get("finalizers")

    await world.until(guarded)
    await world.client.delete(pool)

    async def refused():
        """Ask once more: the operator hears of the pool by another watch than of jobs."""
        late = await world.add_job()
        status = await world.answered(late)
        await world.client.delete(world.path(late))
        return condition(status, "Admitted")["reason"] == "PoolDeleted"

    await world.until(refused)
    await world.work(job)

    async def gone():
        try:
            await world.client.get(pool)
        except errors.NotFound:
            return True

    await world.until(gone)


async def test_the_reduce_pod_finds_the_results_of_all_ranges(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    template = {"spec": {"containers": [{"name": "main", "image": "sum:1"}]}}
    job = await world.add_job(units=4000, deadline="5m", reduce={"duration": "2s", "template": template})
    await world.answered(job, "Feasible")
    seen = {}

    async def reducing():
        for name, pod in (await world.pods(job)).items():
            if pod["metadata"]["labels"]["punctual.dev/kind"] == "Reduce":
                return pod
            if name not in seen:
                begin = pod["metadata"]["annotations"]["punctual.dev/begin"]
                end = pod["metadata"]["annotations"]["punctual.dev/end"]
                seen[name] = (f"{begin}-{end}", f"did {begin}")
                await world.begin(pod)
                await world.end(pod, message=f"did {begin}")
        return None

    reduce = await world.until(reducing)
    volume = next(v for v in reduce["spec"]["volumes"] if v["name"] == "punctual-results")
    (source,) = volume["projected"]["sources"]
    path = CONFIG_MAPS.path(namespace=world.namespace, name=source["configMap"]["name"])
    assert (await world.client.get(path))["data"] == dict(seen.values())
    await world.work(job)


async def test_without_a_reduce_the_results_are_in_a_config_map_that_the_status_names(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job(units=4000, deadline="5m", processors={"min": 2})
    await world.answered(job, "Feasible")
    await world.work(job)
    name = (await world.status(job))["results"]
    assert name == f"{job['metadata']['name']}-results"
    path = CONFIG_MAPS.path(namespace=world.namespace, name=name)
    kept = (await world.client.get(path))["data"]
    ranges = [tuple(map(int, key.split("-"))) for key in sorted(kept)]
    assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])], "in the order of their names"
    assert ranges[-1][1] == 4000
    assert list(kept.values()) == [f"did {int(key.split('-')[0])}" for key in kept]


async def test_a_new_leader_goes_on_where_a_killed_one_was(world, replica):
    await world.add_node()
    await world.add_pool()
    first = await replica()
    job = await world.add_job(units=400, processors={"min": 2, "max": 2})
    await world.answered(job, "Feasible")
    pods = await world.given(job, 2)
    before = await world.status(job)
    done = next(iter(pods.values()))
    await first.kill()
    await world.let_go()
    await world.begin(done)
    await world.end(done)
    await replica()

    async def taken_over():
        status = await world.status(job)
        return status if status["epoch"] > before["epoch"] and status.get("completed") else None

    after = await world.until(taken_over)
    assert after["promise"]["deadline"] == before["promise"]["deadline"]
    assert sum(r["end"] - r["begin"] for r in after["completed"]) == int(
        done["metadata"]["annotations"]["punctual.dev/end"]
    ) - int(done["metadata"]["annotations"]["punctual.dev/begin"])
    await world.work(job)
    assert (await world.status(job))["completed"] == [{"begin": 0, "end": 400}]


async def test_the_bound_of_a_statistical_pool_and_its_counts_outlive_a_leader(world, replica):
    await world.add_node()
    await world.add_pool(missRatio={"target": "10%"})
    pool = POOLS.path(name=world.pool)
    assert (await world.client.get(pool))["spec"]["missRatio"] == {"target": "10%", "period": "5m"}

    def counted(due, missed, *, above=0):
        async def holds():
            status = (await world.client.get(pool)).get("status") or {}
            found = status.get("missRatio") or {}
            so_far = found.get("due"), found.get("missed")
            return status if status.get("epoch", 0) > above and so_far == (due, missed) else None

        return holds

    first = await replica()
    job = await world.add_job()
    await world.answered(job, "AdmittedStatistically")
    for seconds in (8, 20, 60):  # it shall be let in, and late: a slow machine takes its time to answer
        late = await world.add_job(deadline=f"{seconds}s", units=4)
        if condition(await world.answered(late), "Admitted")["status"] == "True":
            break
    await world.answered(late, "AdmittedStatistically")
    await world.work(job)
    before = await world.until(counted(2, 1), within=90.0)
    assert before["missRatio"]["bound"] == 1.0
    # nothing places pods here, so its own has not begun
    await world.answered(late, "NotStarted", kind="OnTrack")
    await first.kill()
    await world.let_go()
    await replica()
    after = await world.until(counted(2, 1, above=before["epoch"]))
    assert after["missRatio"] == before["missRatio"]
    await world.work(late)
    await world.answered(late, "DeadlineMissed", kind="Completed")
    another = await world.add_job()
    await world.answered(another, "AdmittedStatistically")
    await world.work(another)
    await world.until(counted(3, 1))


async def test_jobs_share_a_processor_also_under_a_new_leader_and_the_command_line_knows_it(world, replica, plugin):
    async def ask(*words, stdin=None, status=0):
        found = await asyncio.to_thread(plugin, "punctual", *words, stdin=stdin)
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout

    await world.add_node(cpu="1")
    await world.add_pool(admission="Utilization", utilization={"podsPerProcessor": 4})
    first = await replica()
    jobs = [await world.add_job(units=400, deadline=f"{seconds}s") for seconds in (150, 160, 170)]  # 40 s of work each
    for job in jobs:
        promised = await world.answered(job, "Feasible")
        assert promised["promise"]["processors"] == 1
        (pod,) = (await world.given(job, 1)).values()
        assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "250m"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"
        await world.begin(pod)  # one that does not start is made anew after some seconds
    status = (await world.client.get(POOLS.path(name=world.pool)))["status"]
    assert (status["processors"], status["free"]) == (1, 0)
    meta = {"name": "another", "namespace": world.namespace}
    body = {
        "apiVersion": GROUP,
        "kind": "DivisibleJob",
        "metadata": meta,
        "spec": world.spec(units=400, deadline="90s"),
    }
    said = await ask("plan", "-", "-o", "json", stdin=body, status=1)
    assert "of a processor of 1 CPU until then" in said
    name = jobs[0]["metadata"]["name"]
    assert "shares a processor" in await ask("why", name, "-n", world.namespace)
    before = [(await world.status(job))["promise"] for job in jobs]
    await first.kill()
    await world.let_go()
    await replica()
    for job, promise in zip(jobs, before, strict=True):
        await world.work(job)
        done = await world.answered(job, "Completed", kind="Completed")
        assert done["promise"]["deadline"] == promise["deadline"]


async def test_what_an_old_leader_still_writes_is_refused(world, replica):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job()
    status = await world.answered(job, "Feasible")
    body = {
        "apiVersion": GROUP,
        "kind": "DivisibleJob",
        "metadata": {"name": job["metadata"]["name"]},
        "status": {**status, "epoch": status["epoch"] - 1},
    }
    with pytest.raises(errors.Fenced):
        await world.client.apply(world.path(job), body, field_manager="punctual-operator", subresource="status")


async def test_what_an_old_leader_still_promises_a_refused_job_is_seen_and_kept(world, replica):
    await world.add_node()
    await world.add_pool()
    first = await replica()
    promised, job = await world.add_job(), await world.add_job(deadline="1s")
    await world.answered(promised, "Feasible")
    refused = await world.answered(job, "InfeasibleStartup")
    await first.kill()
    await world.let_go()
    second = await replica()
    await world.until(lambda: _has_begun(second))
    assert (await world.status(job))["epoch"] == refused["epoch"], "the takeover was to leave it alone"
    # as the first leader would have answered an edit: its epoch is not fenced off here yet
    answer = await world.status(promised)
    late = {key: value for key, value in answer.items() if key != "chunks"} | {"epoch": refused["epoch"]}
    body = await world.client.get(world.path(job))
    await world.client.replace(f"{world.path(job)}/status", {**body, "status": late})
    await world.until(lambda: _is_stamped(world, job, refused["epoch"] + 1))
    assert (await world.status(job))["promise"]["deadline"] == late["promise"]["deadline"]
    with pytest.raises(errors.Fenced):
        await world.client.patch_merge(world.path(job), {"status": late}, subresource="status")


async def _has_begun(replica):
    return '"term_begun"' in replica.log.read_text()


async def _is_stamped(world, job, epoch):
    return (await world.status(job)).get("epoch") == epoch


async def test_a_standby_takes_over_when_the_leader_leaves(world, replica):
    await world.add_node()
    await world.add_pool()
    first = await replica()
    before = await world.answered(await world.add_job(), "Feasible")
    await replica()
    await first.end()
    after = await world.answered(await world.add_job(), "Feasible")
    assert after["epoch"] == before["epoch"] + 1


async def test_epochs_go_on_rising_when_the_lease_was_deleted(world, replica):
    await world.add_node()
    await world.add_pool()
    first = await replica()
    before = await world.answered(await world.add_job(), "Feasible")
    await first.end()
    await world.client.delete(f"/apis/coordination.k8s.io/v1/namespaces/{world.system}/leases/punctual")
    await replica()
    after = await world.answered(await world.add_job(), "Feasible")
    assert after["epoch"] > before["epoch"]


async def test_a_pod_whose_name_is_taken_is_made_under_another(world, replica, namespace):
    await world.add_node()
    await world.add_pool()
    await replica()
    job = await world.add_job(suspend=True)
    await world.answered(job, "Suspended")
    meta = job["metadata"]
    owner = Owner(meta["uid"], namespace, meta["name"], world.pool, 100)
    first = Chunk(begin=0, end=100, origin=100, node=world.node, attempt=1, created=0.0, promised_end=0.0)
    stranger = {"metadata": {"name": pod_name(owner, first)}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await world.client.create(PODS.path(namespace=namespace), stranger)
    await world.client.patch_merge(world.path(job), {"spec": {"suspend": False}})
    ((name, pod),) = (await world.given(job, 1)).items()
    assert name != stranger["metadata"]["name"]
    assert pod["metadata"]["annotations"]["punctual.dev/attempt"] == "2"
    await world.work(job)
    assert (await world.status(job))["completed"] == [{"begin": 0, "end": 100}]


async def test_an_epoch_that_somebody_wrote_on_a_pod_counts_for_nothing(world, replica, namespace):
    """Anybody may annotate a pod: a Lease would take no such number, and nobody could lead any more."""
    notes = {"punctual.dev/epoch": "99999999999"}
    spec = {"containers": [{"name": "a", "image": "a"}]}
    path = PODS.path(namespace=namespace)
    await world.client.create(path, {"metadata": {"name": "boast", "annotations": notes}, "spec": spec})
    await world.add_node()
    await world.add_pool()
    await replica()
    assert (await world.answered(await world.add_job(), "Feasible"))["epoch"] < 1000


async def test_a_leader_that_lost_its_lease_stands_by_and_leads_again(world, replica):
    await world.add_node()
    await world.add_pool()
    one = await replica()
    before = await world.answered(await world.add_job(), "Feasible")
    await world.client.delete(f"/apis/coordination.k8s.io/v1/namespaces/{world.system}/leases/punctual")
    job = await world.add_job()

    async def led_again():
        return (await world.status(job)).get("epoch", 0) > before["epoch"]

    await world.until(led_again)
    await world.work(job)
    assert one.process.poll() is None
