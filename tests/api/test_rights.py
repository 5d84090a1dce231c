"""The chart's rights are what the operator needs, no more: it runs under them, and the audit log tells what it used.

One story touches all that the operator does. A right that no request used is one too many, a request that was refused
is one too few.
"""

import contextlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from kinds import teach
from lines import whole_lines
from ports import kept_port

from punctual import errors
from punctual.kube.api.resources import BATCH_JOBS, JOBS, POOLS, PROFILES, RESERVATIONS, TARGET_RATES
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import pod_name
from punctual.scheduling.model.job import Chunk

ROOT = Path(__file__).parents[2]
APISERVER = ROOT / "hack" / "apiserver"
OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
world = OPERATOR["world"]

MAY_REST = {
    # the informers list where the API server cannot stream what is there (before 1.34)
    ("list", "", "pods", ""),
    ("list", "", "nodes", ""),
    ("list", "", "namespaces", ""),
    ("list", "", "persistentvolumeclaims", ""),
    ("list", "", "persistentvolumes", ""),
    ("list", "storage.k8s.io", "storageclasses", ""),
    ("list", "batch", "jobs", ""),
}


@pytest.fixture(scope="module")
def server():
    """An API server of this module alone that logs who asked for what: (kubeconfig, audit log)."""
    name = f"rights-{os.getpid()}"
    try:
        path = subprocess.run([APISERVER, "up", "--name", name, "--audit"], check=True, stdout=-1, text=True).stdout
        log = subprocess.run([APISERVER, "audit-log", "--name", name], check=True, stdout=-1, text=True).stdout
        kubectl = subprocess.run([APISERVER, "bin"], check=True, stdout=-1, text=True).stdout.strip() + "/kubectl"
        teach(kubectl, path.strip())
        yield Path(path.strip()), Path(log.strip())
    finally:
        subprocess.run([APISERVER, "down", "--name", name], check=True)


@pytest.fixture
def kubeconfig(server):
    return server[0]


def granted(objects):
    """Give each right that the chart gives to its own accounts, as (verb, group, resource, name)."""
    bound = {(o["roleRef"]["kind"], o["roleRef"]["name"]) for o in objects if "roleRef" in o}
    return {
        (verb, group, resource, name)
        for o in objects
        for rule in (o["rules"] if (o["kind"], o["metadata"]["name"]) in bound else ())
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def asked(log, user):
    """Give what an account asked for, as (verb, group, resource, name), and what of it was refused."""
    used, refused = set(), set()
    for line in whole_lines(log):
        entry = json.loads(line)
        ref = entry.get("objectRef")
        if entry["user"]["username"] != user or not ref:
            continue
        resource = ref["resource"] + (f"/{ref['subresource']}" if "subresource" in ref else "")
        right = (entry["verb"], ref.get("apiGroup", ""), resource, ref.get("name", ""))
        used.add(right)
        if entry.get("responseStatus", {}).get("code") == 403:
            refused.add((*right, entry["responseStatus"].get("message", "")))
    return used, refused


KEY = {"name": "archive", "key": "authorization"}
"""What opens an input: the kubelet's business, and none of the operator's."""


class Staff:
    """Replicas of the operator under its own account, beside a pod that stands for the leader's."""

    def __init__(self, release, folder, log, port):
        self.kubeconfig, self.folder, self.log, self.port = release.own, folder, log, port
        self.namespace, self.user = release.namespace, release.user
        self.replicas = []

    def start(self, **env):
        path = self.folder / f"replica-{len(self.replicas)}.log"
        self.replicas.append(OPERATOR["Replica"](self.kubeconfig, self.namespace, path, POD_NAME=POD, **env))
        return self.replicas[-1]

    async def end(self):
        for one in self.replicas:
            if one.process.poll() is None:
                await one.end()
            sys.stderr.write(one.log.read_text())  # pytest shows it where the test failed

    async def has_used(self, *right):
        return any(u[: len(right)] == right for u in asked(self.log, self.user)[0])


POD = "punctual-operator-0"


@pytest.fixture
async def staff(client, release, server, tmp_path):
    deployment = next(o for o in release.objects if o["kind"] == "Deployment")
    meta = {"name": POD, "labels": deployment["spec"]["template"]["metadata"]["labels"]}
    pod = {"metadata": meta, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await client.create(f"/api/v1/namespaces/{release.namespace}/pods", pod)
    with kept_port() as port:
        made = Staff(release, tmp_path, server[1], port)
        yield made
        await made.end()


@pytest.mark.timeout(600, func_only=True)
async def test_every_right_is_used_and_none_is_missing(world, staff, release):
    await story(world, staff)
    used, refused = asked(staff.log, staff.user)
    assert refused == set()
    unused = {r for r in granted(release.objects) if not any(u[:3] == r[:3] and r[3] in ("", u[3]) for u in used)}
    assert sorted(unused) == sorted(MAY_REST)


OTHERS = (RESERVATIONS, TARGET_RATES)
"""Kinds of which the story makes one object, r."""


async def reservation(world, staff):
    """Create a reservation, which gets its first status."""
    spec = {"pool": world.pool, "start": "2100-01-02T00:00:00Z", "end": "2100-01-03T00:00:00Z", "processors": 1}
    body = {"apiVersion": OPERATOR["GROUP"], "kind": "Reservation", "metadata": {"name": "r"}, "spec": spec}
    await world.client.create(RESERVATIONS.path(namespace=world.namespace), body)
    await world.until(lambda: staff.has_used("update", "punctual.dev", "reservations/status"))


async def rate(world, staff):
    """Create a target rate, which gets its first status."""
    spec = {"pool": world.pool, "selector": {"matchLabels": {"app": "none"}}, "rate": "40%"}
    body = {"apiVersion": OPERATOR["GROUP"], "kind": "TargetRate", "metadata": {"name": "r"}, "spec": spec}
    await world.client.create(TARGET_RATES.path(namespace=world.namespace), body)
    await world.until(lambda: staff.has_used("update", "punctual.dev", "targetrates/status"))


async def ordinary(world, staff):
    """Create an ordinary Job with a deadline, which begins, and edit its deadline."""
    client, jobs = world.client, BATCH_JOBS.path(namespace=world.namespace)
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    notes = {"punctual.dev/deadline": "20m", "punctual.dev/cost-per-unit": "1s"}
    meta = {"name": "ordinary", "labels": {"punctual.dev/pool": world.pool}, "annotations": notes}
    spec = {"suspend": True, "completions": 1, "template": template}
    await client.create(jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    await world.until(lambda: staff.has_used("create", "punctual.dev", "divisiblejobs"))

    async def begun():
        return not (await client.get(f"{jobs}/ordinary"))["spec"]["suspend"]

    await world.until(begun)
    edit = {"metadata": {"annotations": {"punctual.dev/deadline": "30m"}}}
    await client.patch_merge(f"{jobs}/ordinary", edit)
    await world.until(lambda: staff.has_used("patch", "punctual.dev", "divisiblejobs"))
    await client.delete(f"{jobs}/ordinary", propagation="Background")
    await client.delete(JOBS.path(namespace=world.namespace, name="ordinary"))


async def story(world, staff):
    """All that an operator has to do, once."""
    client, namespace = world.client, world.namespace
    await world.add_node()
    await world.add_pool(hold="Taint")
    first = staff.start(PUNCTUAL_REPORT_PORT=str(staff.port))
    await world.until(lambda: staff.has_used("create", "coordination.k8s.io", "leases"))

    # a job with results, half done; its input is opened by a Secret
    template = {"spec": {"containers": [{"name": "main", "image": "sum:1"}]}}
    long = await world.add_job(
        units=400,
        deadline="20m",
        cost={"perUnit": "1s", "startup": "1s"},  # so long that it is not late when this machine is
        processors={"min": 2, "max": 2},
        input={"http": {"url": "https://a/b", "headers": [{"name": "Authorization", "secretKeyRef": KEY}]}},
        reduce={"duration": "2s", "template": template},
        ttlSecondsAfterFinished=0,
    )
    pod, _ = (await world.given(long, 2)).values()
    assert {"secretKeyRef": KEY} in [e.get("valueFrom") for e in pod["spec"]["initContainers"][0]["env"]]
    await world.begin(pod)
    await world.end(pod, message="half")
    await world.until(lambda: staff.has_used("patch", "", "configmaps"))

    # a profile learns from a job
    meta = {"name": "known", "namespace": namespace}
    profile = {"apiVersion": "punctual.dev/v1alpha1", "kind": "Profile", "metadata": meta, "spec": {"perUnit": "1s"}}
    await client.create(PROFILES.path(namespace=namespace), profile)
    await world.work(await world.add_job(units=1, profile="known", cost=None))
    await world.until(lambda: staff.has_used("update", "punctual.dev", "profiles/status"))

    # an agent with a token that is not known
    assert await report(staff.port) == 401

    # a job refused twice for one cause: an event, and its series
    fickle = await world.add_job(template={"spec": {"containers": [{"name": "main", "image": ""}]}})
    for suspend in (True, False):
        await world.answered(fickle, "PodRefused" if suspend else "Suspended")
        await client.patch_merge(world.path(fickle), {"spec": {"suspend": suspend}})
    await world.until(lambda: staff.has_used("patch", "events.k8s.io", "events"))

    for make in (reservation, rate, ordinary):
        await make(world, staff)

    # a pod of the name that a chunk will have
    taken = await world.add_job(suspend=True)
    await world.answered(taken, "Suspended")
    meta = taken["metadata"]
    owner = Owner(meta["uid"], namespace, meta["name"], world.pool, 100)
    chunk = Chunk(begin=0, end=100, origin=100, node=world.node, attempt=1, created=0.0, promised_end=0.0)
    stranger = {"metadata": {"name": pod_name(owner, chunk)}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await client.create(f"/api/v1/namespaces/{namespace}/pods", stranger)
    await client.patch_merge(world.path(taken), {"spec": {"suspend": False}})
    await world.until(lambda: staff.has_used("get", "", "pods"))

    # another leader; somebody has spoilt what agents trust
    staff.start()
    await world.until(lambda: staff.has_used("watch", "coordination.k8s.io", "leases"))
    published = f"/api/v1/namespaces/{staff.namespace}/configmaps/punctual-ca"
    await client.patch_merge(published, {"data": {"ca.crt": "?"}})
    assert await first.end() == 0
    third = staff.start()
    await world.until(lambda: staff.has_used("update", "", "configmaps", "punctual-ca"))
    assert third.process.poll() is None

    await world.until(lambda: staff.has_used("patch", "punctual.dev", "targetrates/status"))

    # all jobs end, one is deleted when its time is over; the reservation, the target rate and the pool go
    for what in (world.path(fickle), world.path(taken), *(kind.path(namespace=namespace, name="r") for kind in OTHERS)):
        await client.delete(what)
    await gone(world, world.path(long), lambda: world.work(long))
    await client.delete(POOLS.path(name=world.pool))
    await gone(world, POOLS.path(name=world.pool))


async def test_who_may_edit_makes_jobs_and_books_nothing_ahead(release, client, namespace, world):
    group = "rbac.authorization.k8s.io"

    async def may(user, verb, resource):
        asked = {"namespace": namespace, "verb": verb, "group": "punctual.dev", "resource": resource}
        review = {"spec": {"user": user, "resourceAttributes": asked}}
        answer = await client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    for user in ("view", "edit", "reserve"):  # no controller is here that makes them parts of Kubernetes' own roles
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"{release.namespace}-punctual-{user}"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        await client.create(f"/apis/{group}/v1/namespaces/{namespace}/rolebindings", binding)
    await world.until(lambda: may("view", "list", "reservations"))
    await world.until(lambda: may("edit", "create", "divisiblejobs"))
    await world.until(lambda: may("reserve", "create", "reservations"))
    writes = ("create", "update", "patch", "delete", "deletecollection")
    assert {verb for verb in writes if await may("edit", verb, "reservations")} == set()
    assert {verb for verb in writes if await may("reserve", verb, "reservations")} == set(writes)
    assert not await may("reserve", "create", "divisiblejobs")
    assert not await may("view", "create", "reservations")


async def report(port):
    """Report as somebody; return the status."""
    connector = aiohttp.TCPConnector(ssl=False)  # whom it trusts is another test
    async with (
        aiohttp.ClientSession(connector=connector, headers={"Authorization": "Bearer x"}) as session,
        session.post(f"https://127.0.0.1:{port}/v1/report", data=b"{}") as answer,
    ):
        return answer.status


async def gone(world, path, work=None):
    """Wait until there is no such object, with some work meanwhile."""
    with contextlib.suppress(errors.NotFound):
        if work:
            await work()

    async def missing():
        try:
            await world.client.get(path)
        except errors.NotFound:
            return True

    await world.until(missing)
