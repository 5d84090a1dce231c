"""What is kept of ordinary Jobs, and of their pods at the gate."""

import pytest
from batch_bodies import GATE, batch_body, gated_pod

from punctual.kube.cluster.batch_jobs import GatedPod, Parallelism, project_gated, project_job


def controller(kind, **more):
    return {"kind": kind, "name": "x", "uid": "x", "controller": True, **more}


def condition(kind, status="True"):
    return {"conditions": [{"type": kind, "status": status}]}


IGNORES = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize("labels", [{}, {"punctual.dev/pool": ""}, {"other": "main"}])
def test_a_job_that_names_no_pool_is_not_kept(labels):
    assert project_job(batch_body(labels=labels)) is None


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, {"completions": 4, "parallelism": Parallelism(2), "indexed": True, "suspended": True, "ended": ""}),
        ({}, {"owner": "", "counts_lost": True}),
        ({"parallelism": None, "completions": None}, {"parallelism": Parallelism(1), "completions": None}),
        ({"completionMode": None}, {"indexed": False}),
        ({"suspend": None}, {"suspended": False}),
        ({"activeDeadlineSeconds": 90}, {"time_limit": 90, "started": None}),
        ({"status": {"startTime": "1970-01-01T00:00:09Z"}}, {"started": 9.0}),
        ({"asked": {"punctual.dev/parallelism": "200", "punctual.dev/parallelism-written": "2,x,26"}},
         {"parallelism": Parallelism(2, 200, (2, 26))}),
        ({"podFailurePolicy": {"rules": [IGNORES]}}, {"counts_lost": False}),
        ({"podFailurePolicy": {"rules": [{**IGNORES, "action": "Count"}]}}, {"counts_lost": True}),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {}}]}}, {"counts_lost": True}),
        ({"status": condition("Failed")}, {"ended": "Failed"}),
        ({"status": condition("Complete")}, {"ended": "Complete"}),
        ({"status": condition("Complete", "False")}, {"ended": ""}),
        ({"status": condition("Suspended")}, {"ended": ""}),
        ({"status": condition("FailureTarget")}, {"ended": ""}),
        ({"meta": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, {"deleting": True}),
        ({"meta": {"ownerReferences": [controller("CronJob")]}}, {"owner": "CronJob"}),
        ({"meta": {"ownerReferences": [controller("Workflow", controller=False)]}}, {"owner": ""}),
        ({"managedBy": "kubernetes.io/job-controller"}, {"manager": ""}),
        ({"managedBy": "x.io/y"}, {"manager": "x.io/y"}),
        ({"asked": {"punctual.dev/deadline": "1m", "other": "x", "punctual.dev/eta": "soon"}},
         {"asked": (("punctual.dev/deadline", "1m"),), "said": (("punctual.dev/eta", "soon"),)}),
        ({"asked": None, "meta": {"annotations": None}}, {"asked": (), "opened": False}),
        ({"asked": {"punctual.dev/opened": "b1"}}, {"opened": True}),
    ],
)  # fmt: skip
def test_what_is_kept_of_a_job(more, kept):
    found = project_job(batch_body(**more))
    assert {name: getattr(found, name) for name in kept} == kept


def test_equal_templates_are_equal_in_any_order_of_their_fields():
    body, other = batch_body(), batch_body()
    other["spec"]["template"]["spec"] = dict(reversed(other["spec"]["template"]["spec"].items()))
    assert project_job(body) == project_job(other)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (gated_pod("p", index=3), GatedPod("p", "ns", "p", "b1", 3, ())),
        (gated_pod("p"), GatedPod("p", "ns", "p", "b1", None, ())),
        (gated_pod("p", gates=[{"name": "a"}, GATE]), GatedPod("p", "ns", "p", "b1", None, ("a",))),
        (gated_pod("p", gates=[{"name": "a"}]), None),
        (gated_pod("p", gates=[]), None),
        (gated_pod("p", deletionTimestamp="2030-01-01T00:00:00Z"), None),
        (gated_pod("p", ownerReferences=[controller("ReplicaSet")]), None),
        (gated_pod("p", ownerReferences=[controller("Job", controller=False)]), None),
        (gated_pod("p", ownerReferences=None), None),
    ],
)
def test_what_is_kept_of_a_pod_at_the_gate(body, kept):
    assert project_gated(body) == kept
