"""The chart's policies: what a stolen token of the operator's account is refused although its rights allow it.

Each line of `ABUSES` is an abuse, as docs/security.md lists them. All are tried twice: under the policies, and with
the rights alone, which allow them. Requests are dry runs, so that none changes anything.
"""

import contextlib
import json
import re
import runpy
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest
from rights import installed, refusal

from punctual import errors, wire
from punctual.kube.api.resources import (
    BATCH_JOBS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    POOLS,
)
from punctual.kube.cluster.client import ApiClient

OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
replica, world = OPERATOR["replica"], OPERATOR["world"]
DRY = "?dryRun=All"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CONTAINER = {"name": "main", "image": "work:1"}
WAITS = {"schedulingGates": [{"name": "punctual.dev/chunk"}]}


def owner(kind, name, uid="1", version="punctual.dev/v1alpha1"):
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


OF_DIVISIBLE_JOB = owner("DivisibleJob", "mine")
OF_JOB = owner("Job", "asked", version="batch/v1")


def pod(name, *, owners=(), labels=None, container=None, **spec):
    meta = {"name": name, "labels": labels or {}, "ownerReferences": list(owners)}
    spec = {"containers": [{**CONTAINER, **(container or {})}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def chunk(**more):
    """Return a pod as the operator creates one for a chunk, with what a thief adds to it."""
    return pod("new", owners=[OF_DIVISIBLE_JOB], labels={"punctual.dev/job-uid": "1"}, **more)


def placeholder(labels=None, **more):
    labels = {"punctual.dev/placeholder-of": "1", **(labels or {})}
    return pod("new", owners=[owner("Pool", "p")], labels=labels, **more)


def job(name, labels=None):
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    spec = {"suspend": True, "completions": 2, "parallelism": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def divisible_job(name, owners=(), **spec):
    spec = {
        "pool": "p",
        "units": 10,
        "deadline": "10m",
        "cost": {"perUnit": "1s"},
        "template": {"spec": {"containers": [CONTAINER]}},
        **spec,
    }
    meta = {"name": name, "ownerReferences": list(owners)}
    return {"apiVersion": JOBS.version, "kind": "DivisibleJob", "metadata": meta, "spec": spec}


def event(controller, namespace, name="e"):
    return {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "all is well",
        "reportingController": controller,
        "reportingInstance": "a",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "stranger"},
    }


class Ground:
    """A tenant's namespace with objects, and the operator's account. Methods try a request without carrying it out."""

    def __init__(self, admin, release, tenant):
        self.admin, self.release, self.system = admin, release, release.namespace
        self.tenant = tenant or f"t-{uuid.uuid4().hex[:10]}"
        self.name = f"p-{uuid.uuid4().hex[:10]}"
        self.thief = None

    async def prepare(self):
        make = self.admin.create
        await make("/api/v1/namespaces", {"metadata": {"name": self.tenant}})
        for body in (
            pod("stranger"),
            pod("chunk", owners=[OF_DIVISIBLE_JOB], labels={"punctual.dev/job-uid": "1"}),
            pod("waits", owners=[OF_JOB], **WAITS),
            pod("begun", owners=[OF_JOB], labels={"punctual.dev/job-uid": "1"}),
            pod("imitates", **WAITS),
        ):
            await make(PODS.path(namespace=self.tenant), body)
        labels = next(o for o in self.release.objects if o["kind"] == "Deployment")["spec"]["template"]["metadata"]
        await make(PODS.path(namespace=self.system), pod("replica", labels=labels["labels"]))
        await make(PODS.path(namespace=self.system), pod("agent"))
        await make(BATCH_JOBS.path(namespace=self.tenant), job("plain"))
        await make(BATCH_JOBS.path(namespace=self.tenant), job("asked", {"punctual.dev/pool": "p"}))
        await make(JOBS.path(namespace=self.tenant), divisible_job("mine"))
        await make(JOBS.path(namespace=self.tenant), divisible_job("asked", jobRef={"name": "asked", "uid": "1"}))
        await make(CONFIG_MAPS.path(namespace=self.tenant), {"metadata": {"name": "settings"}})
        meta = {"name": "results", "ownerReferences": [OF_DIVISIBLE_JOB]}
        await make(CONFIG_MAPS.path(namespace=self.tenant), {"metadata": meta})
        await make(EVENTS.path(namespace=self.tenant), event("scheduler", self.tenant))
        spec = {"nodeSelector": {"matchLabels": {"a": self.name}}, "processor": {"cpu": "1", "memory": "64Mi"}}
        meta = {"name": self.name, "finalizers": ["example.org/other"]}
        await make(POOLS.path(), {"apiVersion": POOLS.version, "kind": "Pool", "metadata": meta, "spec": spec})
        await make(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})

    async def clean(self):
        await self.admin.patch_merge(POOLS.path(name=self.name), {"metadata": {"finalizers": None}})
        for path in (POOLS.path(name=self.name), NODES.path(name=self.name)):
            await self.admin.delete(path)

    async def create(self, resource, body, namespace=None):
        await self.thief.create(resource.path(namespace=namespace or self.tenant), body, dry_run=True)

    async def patch(self, resource, name, body, namespace=None):
        path = resource.path(namespace=namespace or self.tenant, name=name)
        await self.thief.patch_merge(path + DRY, body)

    async def patch_own(self, resource, body):
        """Patch the pool, or the node."""
        await self.thief.patch_merge(resource.path(name=self.name) + DRY, body)

    async def delete(self, resource, name, namespace=None):
        path = resource.path(namespace=namespace or self.tenant, name=name)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}  # a query beside a body is ignored
        await self.thief._call("DELETE", path, body=body)


def labelled(**labels):
    return {"metadata": {"labels": {f"punctual.dev/{key}": value for key, value in labels.items()}}}


OWNED = {"metadata": {"ownerReferences": [owner("DivisibleJob", "gone", "2")]}}
"""An owner that is not there: the garbage collector deletes what has it."""
PROJECTED = {"name": "t", "projected": {"sources": [{"secret": {"name": "s"}}]}}
TAINT = {"key": "punctual.dev/pool", "effect": "NoExecute"}
NODE_TAINTS = {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}}

SERIES = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}

ABUSES = {  # the right that is abused, how, and words of the refusal
    "a pod of no job": ("pods create", lambda g: g.create(PODS, pod("new")), "creates pods of DivisibleJobs"),
    "a pod with the uid of another job": (
        "pods create",
        lambda g: g.create(PODS, pod("new", owners=[OF_DIVISIBLE_JOB], labels={"punctual.dev/job-uid": "2"})),
        "creates pods of DivisibleJobs",
    ),
    "a chunk in kube-system": (
        "pods create",
        lambda g: g.create(PODS, chunk(), "kube-system"),
        "in namespace kube-system Punctual",
    ),
    "a chunk beside the operator": ("pods create", lambda g: g.create(PODS, chunk(), g.system), "creates no pods"),
    "a placeholder in a tenant's namespace": (
        "pods create",
        lambda g: g.create(PODS, placeholder()),
        "in its own namespace",
    ),
    "a placeholder that reads a Secret": (
        "pods create",
        lambda g: g.create(PODS, placeholder(volumes=[{"name": "s", "secret": {"secretName": "s"}}]), g.system),
        "a placeholder reads no Secret",
    ),
    "a placeholder with a projected Secret": (
        "pods create",
        lambda g: g.create(PODS, placeholder(volumes=[PROJECTED]), g.system),
        "a placeholder reads no Secret",
    ),
    "a placeholder with a Secret in its environment": (
        "pods create",
        lambda g: g.create(PODS, placeholder(container={"envFrom": [{"secretRef": {"name": "s"}}]}), g.system),
        "a placeholder reads no Secret",
    ),
    "a placeholder that the Service selects": (
        "pods create",
        lambda g: g.create(PODS, placeholder(labels={"app.kubernetes.io/component": "operator"}), g.system),
        "is not selected by the operator's Services",
    ),
    "a privileged chunk": (
        "pods create",
        lambda g: g.create(PODS, chunk(container={"securityContext": {"privileged": True}})),
        "have Privileged",
    ),
    "a chunk with a capability": (
        "pods create",
        lambda g: g.create(PODS, chunk(container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
        "have Capabilities",
    ),
    "a chunk with a privileged init container": (
        "pods create",
        lambda g: g.create(
            PODS, chunk(initContainers=[{**CONTAINER, "name": "i", "securityContext": {"privileged": True}}])
        ),
        "have Privileged",
    ),
    "a chunk that sees all of /proc": (
        "pods create",
        lambda g: g.create(PODS, chunk(hostUsers=False, container={"securityContext": {"procMount": "Unmasked"}})),
        "have the usual /proc",
    ),
    "a chunk in the node's network": (
        "pods create",
        lambda g: g.create(PODS, chunk(hostNetwork=True)),
        "have HostNamespaces",
    ),
    "a chunk that sees processes": (
        "pods create",
        lambda g: g.create(PODS, chunk(hostPID=True)),
        "have HostNamespaces",
    ),
    "a chunk with shared memory": ("pods create", lambda g: g.create(PODS, chunk(hostIPC=True)), "have HostNamespaces"),
    "a chunk with the node's files": (
        "pods create",
        lambda g: g.create(PODS, chunk(volumes=[{"name": "root", "hostPath": {"path": "/"}}])),
        "have HostPath",
    ),
    "a chunk that preempts all": (
        "pods create",
        lambda g: g.create(PODS, chunk(priorityClassName="system-node-critical")),
        "have SystemPriority",
    ),
    "a chunk with another account": (
        "pods create",
        lambda g: g.create(PODS, chunk(serviceAccountName="builder")),
        "can have t-.*/builder",
    ),
    "a label on a stranger": (
        "pods patch",
        lambda g: g.patch(PODS, "stranger", labelled(**{"job-uid": "1"})),
        "were chunks",
    ),
    "an annotation on a stranger": (
        "pods patch",
        lambda g: g.patch(PODS, "stranger", {"metadata": {"annotations": {"punctual.dev/offered-end": "1"}}}),
        "were chunks",
    ),
    "a gate that no Job has put there": (
        "pods patch",
        lambda g: g.patch(PODS, "imitates", labelled(kind="Chunk")),
        "were chunks",
    ),
    "another image": (
        "pods patch",
        lambda g: g.patch(PODS, "chunk", {"spec": {"containers": [{"name": "main", "image": "thief:1"}]}}),
        "the image of a container",
    ),
    "another image at the gate": (
        "pods patch",
        lambda g: g.patch(PODS, "waits", {"spec": {"containers": [{"name": "main", "image": "thief:1"}]}}),
        "the image of a container",
    ),
    "a label by which a Service selects": (
        "pods patch",
        lambda g: g.patch(PODS, "waits", {"metadata": {"labels": {"app": "shop"}}}),
        "only its own",
    ),
    "an annotation of others": (
        "pods patch",
        lambda g: g.patch(PODS, "chunk", {"metadata": {"annotations": {"a": "b"}}}),
        "only its own",
    ),
    "another job's chunk": (
        "pods patch",
        lambda g: g.patch(PODS, "chunk", labelled(**{"job-uid": "2"})),
        "changes labels only",
    ),
    "an owner that deletes": ("pods patch", lambda g: g.patch(PODS, "waits", OWNED), "metadata.ownerReferences"),
    "a finalizer that keeps": (
        "pods patch",
        lambda g: g.patch(PODS, "chunk", {"metadata": {"finalizers": ["a/b"]}}),
        "nor metadata.finalizers",
    ),
    "the end of a Job's pod": (
        "pods patch",
        lambda g: g.patch(PODS, "begun", {"spec": {"activeDeadlineSeconds": 1}}),
        "spec.activeDeadlineSeconds only",
    ),
    "more of a replica than the leader's label": (
        "pods patch",
        lambda g: g.patch(PODS, "replica", labelled(pool="p"), g.system),
        "the label punctual.dev/leader",
    ),
    "the image of a replica": (
        "pods patch",
        lambda g: g.patch(PODS, "replica", {"spec": {"containers": [{"name": "main", "image": "thief:1"}]}}, g.system),
        "the image of a container",
    ),
    "the agent's pod": (
        "pods patch",
        lambda g: g.patch(PODS, "agent", labelled(leader="true"), g.system),
        "were chunks",
    ),
    "the end of a stranger": ("pods delete", lambda g: g.delete(PODS, "stranger"), "deletes only pods"),
    "the end of a pod at the gate": ("pods delete", lambda g: g.delete(PODS, "waits"), "deletes only pods"),
    "the end of a pod that a Job has made": ("pods delete", lambda g: g.delete(PODS, "begun"), "deletes only pods"),
    "the end of a replica": ("pods delete", lambda g: g.delete(PODS, "replica", g.system), "deletes only pods"),
    "a Job that has not asked": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "plain", {"spec": {"suspend": False}}),
        "had the label",
    ),
    "the label of a Job": ("jobs patch", lambda g: g.patch(BATCH_JOBS, "plain", labelled(pool="p")), "had the label"),
    "the time limit of a Job": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"spec": {"activeDeadlineSeconds": 1}}),
        "of a Job's spec",
    ),
    "the end of a Job": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"spec": {"ttlSecondsAfterFinished": 0}}),
        "of a Job's spec",
    ),
    "where a Job's pods run": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
        "of a Job's spec",
    ),
    "labels of a Job's pods": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"spec": {"template": {"metadata": {"labels": {"app": "shop"}}}}}),
        "of a Job's spec",
    ),
    "an annotation of a Job": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"metadata": {"annotations": {"a": "b"}}}),
        "of a Job's metadata",
    ),
    "a finalizer that keeps a Job": (
        "jobs patch",
        lambda g: g.patch(BATCH_JOBS, "asked", {"metadata": {"finalizers": ["a/b"]}}),
        "of a Job's metadata",
    ),
    "an owner that deletes a Job": ("jobs patch", lambda g: g.patch(BATCH_JOBS, "asked", OWNED), "of a Job's metadata"),
    "a DivisibleJob of nothing": (
        "divisiblejobs create",
        lambda g: g.create(JOBS, divisible_job("new")),
        "creates only the DivisibleJob",
    ),
    "a DivisibleJob in kube-system": (
        "divisiblejobs create",
        lambda g: g.create(JOBS, divisible_job("asked", [OF_JOB], jobRef={"name": "asked", "uid": "1"}), "kube-system"),
        "creates no divisiblejobs",
    ),
    "a user's DivisibleJob": (
        "divisiblejobs patch",
        lambda g: g.patch(JOBS, "mine", {"spec": {"units": 1}}),
        "changes only the DivisibleJob",
    ),
    "the pods of a Job's DivisibleJob": (
        "divisiblejobs patch",
        lambda g: g.patch(JOBS, "asked", {"spec": {"template": {"spec": {"hostPID": True}}}}),
        "changes only the DivisibleJob",
    ),
    "the end of a user's DivisibleJob": (
        "divisiblejobs delete",
        lambda g: g.delete(JOBS, "mine"),
        "deletes only the DivisibleJob",
    ),
    "a pool's nodes": (
        "pools patch",
        lambda g: g.patch_own(POOLS, {"spec": {"nodeSelector": {"matchLabels": {"a": "b"}}}}),
        "of a Pool",
    ),
    "others' finalizers of a pool": (
        "pools patch",
        lambda g: g.patch_own(POOLS, {"metadata": {"finalizers": None}}),
        "of a Pool",
    ),
    "a node's labels": ("nodes patch", lambda g: g.patch_own(NODES, {"metadata": {"labels": {"a": "b"}}}), "of a node"),
    "a node that is cordoned": (
        "nodes patch",
        lambda g: g.patch_own(NODES, {"spec": {"unschedulable": True}}),
        "of a node",
    ),
    "a taint of others": ("nodes patch", lambda g: g.patch_own(NODES, NODE_TAINTS), "of a node"),
    "a taint that evicts": ("nodes patch", lambda g: g.patch_own(NODES, {"spec": {"taints": [TAINT]}}), "of a node"),
    "an owner that deletes a node": ("nodes patch", lambda g: g.patch_own(NODES, OWNED), "of a node"),
    "a ConfigMap of others": (
        "configmaps patch",
        lambda g: g.patch(CONFIG_MAPS, "settings", {"data": {"a": "b"}}),
        "writes only ConfigMaps",
    ),
    "a ConfigMap that is taken over": (
        "configmaps patch",
        lambda g: g.patch(CONFIG_MAPS, "settings", OWNED),
        "writes only ConfigMaps",
    ),
    "a result without its job": (
        "configmaps patch",
        lambda g: g.patch(CONFIG_MAPS, "results", {"metadata": {"ownerReferences": None}}),
        "writes only ConfigMaps",
    ),
    "a ConfigMap of no job": (
        "configmaps create",
        lambda g: g.create(CONFIG_MAPS, {"metadata": {"name": "new"}}),
        "writes only ConfigMaps",
    ),
    "a result in kube-system": (
        "configmaps create",
        lambda g: g.create(
            CONFIG_MAPS, {"metadata": {"name": "new", "ownerReferences": [OF_DIVISIBLE_JOB]}}, "kube-system"
        ),
        "creates no configmaps",
    ),
    "a Lease of others": (
        "leases create",
        lambda g: g.create(LEASES, {"metadata": {"name": "new"}}, g.system),
        "creates the Leases",
    ),
    "an event in another's name": (
        "events create",
        lambda g: g.create(EVENTS, event("scheduler", g.tenant, "f")),
        "writes only events",
    ),
    "another's event": ("events patch", lambda g: g.patch(EVENTS, "e", {"series": SERIES}), "writes only events"),
}


@contextlib.asynccontextmanager
async def _ground(kubeconfig, folder, *, tenant="", **values):
    async with ApiClient(str(kubeconfig), deadline=60) as admin:
        system = f"system-{uuid.uuid4().hex[:10]}"
        await admin.create("/api/v1/namespaces", {"metadata": {"name": system}})
        async with installed(admin, kubeconfig, system, **values) as release:
            ground = Ground(admin, release, tenant)
            await ground.prepare()
            own = await release.account("punctual-operator", folder / "operator.kubeconfig")
            async with ApiClient(str(own), deadline=60) as ground.thief:
                yield ground
            await ground.clean()


async def test_a_stolen_token_is_refused_each_abuse(kubeconfig, tmp_path):
    async with _ground(kubeconfig, tmp_path) as ground:
        said = {name: await refusal(partial(call, ground)) for name, (_, call, _) in ABUSES.items()}
    assert {name: text for name, text in said.items() if not re.search(ABUSES[name][2], text)} == {}


async def test_the_rights_alone_allow_each_of_them(kubeconfig, tmp_path):
    """What is refused above is refused by the policies, and by nothing else."""
    async with _ground(kubeconfig, tmp_path, policy={"enabled": False}) as ground:
        refused = {}
        for name, (_, call, _) in ABUSES.items():
            try:
                await call(ground)
            except errors.ClusterError as error:
                refused[name] = str(error)
    assert refused == {}


EVERYTHING = {
    "spec.hostNetwork": chunk(hostNetwork=True),
    "hostPath": chunk(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    "privileged": chunk(container={"securityContext": {"privileged": True}}),
    "capabilities": chunk(container={"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
    "system-": chunk(priorityClassName="system-node-critical"),
    "builder": chunk(serviceAccountName="builder"),
}
"""Pods of jobs that need what is refused by default, by words of the refusal."""


async def test_the_charts_values_allow_what_is_named_and_no_more(kubeconfig, tmp_path):
    tenant = f"t-{uuid.uuid4().hex[:10]}"
    allowed = {
        "allow": ["Privileged", "Capabilities", "HostNamespaces", "HostPath", "SystemPriority"],
        "serviceAccounts": [f"{tenant}/builder", "loader"],
    }
    async with _ground(kubeconfig, tmp_path, tenant=tenant, policy=allowed) as ground:
        assert await refusal(lambda: ground.create(PODS, pod("new"))), "they are in force"
        for body in (*EVERYTHING.values(), chunk(serviceAccountName="loader")):
            await ground.create(PODS, body)
        other = chunk(serviceAccountName="other")
        said = await refusal(lambda: ground.create(PODS, other))
        assert f"policy.serviceAccounts can have {tenant}/other" in said


async def test_a_refusal_names_the_field_and_the_value_of_the_chart(kubeconfig, tmp_path):
    async with _ground(kubeconfig, tmp_path) as ground:
        for words, body in EVERYTHING.items():
            said = await refusal(lambda body=body: ground.create(PODS, body))
            assert words.lower() in said.lower()
            assert re.search("spec|securityContext", said)
            assert "chart's value policy." in said


SELECTORS = {
    "by a label": ({"matchLabels": {"punctual": "yes"}}, {"punctual": "yes"}, {"punctual": "no"}),
    "in": ([("team", "In", ["a", "b"])], {"team": "b"}, {"team": "c"}),
    "not in": ([("team", "NotIn", ["a"])], {}, {"team": "a"}),
    "exists": ([("team", "Exists", [])], {"team": ""}, {}),
    "does not exist": ([("team", "DoesNotExist", [])], {}, {"team": "a"}),
    "both": ([("a", "Exists", []), ("b", "Exists", [])], {"a": "", "b": ""}, {"b": ""}),
}


@pytest.mark.parametrize(("selector", "inside", "outside"), SELECTORS.values(), ids=SELECTORS)
async def test_the_selector_is_where_pods_are_created(kubeconfig, tmp_path, selector, inside, outside):
    if isinstance(selector, list):
        keys = ("key", "operator", "values")
        selector = {"matchExpressions": [dict(zip(keys, one, strict=True)) for one in selector]}
    async with _ground(kubeconfig, tmp_path, policy={"namespaceSelector": selector}) as ground:
        spaces = [f"{ground.tenant}-{n}" for n in range(2)]
        for name, labels in zip(spaces, (inside, outside), strict=True):
            await ground.admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        said = await refusal(lambda: ground.create(PODS, chunk(), spaces[1]))
        assert f"in namespace {spaces[1]} Punctual creates no pods" in said
        await ground.create(PODS, chunk(), spaces[0])
        assert await refusal(lambda: ground.create(PODS, chunk(), ground.system)), "never where the operator is"


async def test_the_pod_of_a_job_may_be_tried_and_not_created(kubeconfig, tmp_path):
    """Its controller creates it, and so may its user: the operator only asks."""
    asked = pod("asked-0", owners=[OF_JOB], labels={"punctual.dev/job-uid": "1"}, hostNetwork=True)
    async with _ground(kubeconfig, tmp_path) as ground:
        path = PODS.path(namespace=ground.tenant)
        stranger = pod("asked-1", labels={"punctual.dev/job-uid": "1"})
        assert await refusal(lambda: ground.thief.create(path, stranger, dry_run=True))
        await ground.create(PODS, asked)
        assert await refusal(lambda: ground.thief.create(path, asked))


async def test_an_account_needs_a_creator_that_may_create_pods(kubeconfig, tmp_path, client, namespace):
    """The right to create DivisibleJobs alone is not the right to use a service account of the namespace."""
    group = "rbac.authorization.k8s.io"
    rules = {"jobs": ("punctual.dev", "divisiblejobs"), "both": ("punctual.dev", "divisiblejobs"), "pods": ("", "pods")}
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for name, (of, resource) in rules.items():
        await client.create(accounts, {"metadata": {"name": name}})
        rule = {"apiGroups": [of], "resources": [resource], "verbs": ["create", "patch"]}
        roles = f"/apis/{group}/v1/namespaces/{namespace}"
        await client.create(f"{roles}/roles", {"metadata": {"name": name}, "rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": "both" if name == "pods" else name, "namespace": namespace}
        ref = {"apiGroup": group, "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
        await client.create(f"{roles}/rolebindings", binding)
    path = JOBS.path(namespace=namespace)
    plain = divisible_job("plain")
    loads = divisible_job("loads", template={"spec": {"containers": [CONTAINER], "serviceAccountName": "loader"}})
    reduces = divisible_job("reduces", reduce={"duration": "1s", "template": loads["spec"]["template"]})
    system = f"{namespace}-system"
    await client.create("/api/v1/namespaces", {"metadata": {"name": system}})
    async with installed(client, kubeconfig, system) as release:
        release.namespace = namespace
        clients = {n: await release.account(n, tmp_path / n) for n in ("jobs", "both")}
        async with ApiClient(str(clients["jobs"])) as jobs, ApiClient(str(clients["both"])) as both:
            for body in (loads, reduces):
                said = await refusal(lambda body=body: jobs.create(path, body, dry_run=True))
                assert "only the account default may be used" in said
            await jobs.create(path, plain)
            edit = {"spec": {"template": loads["spec"]["template"]}}
            assert await refusal(lambda: jobs.patch_merge(f"{path}/plain{DRY}", edit))
            await both.create(path, loads)
            await jobs.patch_merge(f"{path}/loads", {"spec": {"deadline": "20m"}})


async def test_jobs_in_a_namespace_that_is_left_out_are_refused_and_told_why(client, world, replica, release):
    await world.add_node()
    await world.add_pool()
    await replica()
    assert (await world.answered(await world.add_job()))["state"] != "Refused"
    out, names = "kube-system", (f"d-{world.pool}", f"j-{world.pool}")
    asked = divisible_job(names[0], pool=world.pool)
    await client.create(JOBS.path(namespace=out), asked)
    ordinary = job(names[1], {"punctual.dev/pool": world.pool})
    ordinary["metadata"]["annotations"] = {"punctual.dev/deadline": "10m", "punctual.dev/cost-per-unit": "1s"}
    size = {"requests": {"cpu": "1", "memory": "64Mi"}}
    ordinary["spec"]["template"]["spec"]["containers"] = [{**CONTAINER, "resources": size}]
    await client.create(BATCH_JOBS.path(namespace=out), ordinary)

    async def answers():
        one = await client.get(JOBS.path(namespace=out, name=names[0]))
        other = await client.get(BATCH_JOBS.path(namespace=out, name=names[1]))
        said = OPERATOR["condition"](one.get("status") or {}, "Admitted")
        told = (other["metadata"].get("annotations") or {}).get("punctual.dev/message")
        return (said, told) if said and told else None

    said, told = await world.until(answers)
    assert said["reason"] == "PodRefused"
    assert "in namespace kube-system Punctual creates no pods" in said["message"]
    assert "in namespace kube-system Punctual creates no divisiblejobs" in told
    for path in (JOBS.path(namespace=out, name=names[0]), BATCH_JOBS.path(namespace=out, name=names[1])):
        await client.delete(path, propagation="Background")


async def test_the_agents_token_is_nothing_to_the_api_server(client, release, tmp_path):
    path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/punctual-agent/token"
    spec = {"audiences": [wire.AUDIENCE], "expirationSeconds": 3600}
    token = (await client.create(path, {"spec": spec}))["status"]["token"]
    status = await client.review_token(token, (wire.AUDIENCE,))
    assert status["authenticated"], "it is one, for the operator"
    config = json.loads(release.own.read_text())
    config["users"][0]["user"] = {"token": token}
    own = tmp_path / "agent.kubeconfig"
    own.write_text(json.dumps(config))
    async with ApiClient(str(own)) as agent:
        with pytest.raises(errors.Unauthorized):
            await agent.create(REVIEWS, {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})


async def test_the_charts_placeholders_are_let_through(client, world, release, tmp_path):
    deployment = next(o for o in release.objects if o["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    name = "PUNCTUAL_PLACEHOLDER"
    await world.add_node(cpu="3")
    await world.add_pool(hold="Placeholder")
    log = tmp_path / "replica.log"
    one = OPERATOR["Replica"](release.own, release.namespace, log, **{name: env[name]})
    kept = "punctual.dev/placeholder-of"

    async def there(count):
        found = await client.list(PODS.path(namespace=release.namespace), label_selector=kept)
        return len(found.items) == count

    try:
        await world.until(lambda: there(3))
        await client.delete(POOLS.path(name=world.pool))
        await world.until(lambda: there(0))
    finally:
        await one.end()
        sys.stderr.write(log.read_text())  # pytest shows it where the test failed
