"""What is kept of a pod of the user's own, and which are kept at all."""

import pytest

from punctual.kube.cluster.application_pods import ApplicationPods
from punctual.kube.cluster.chunk_pods import see_pod


def body(name="p", *, node="n0", phase="Running", labels=None, containers=(None,), **meta):
    return {
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"app": "solver"} if labels is None else labels,
            **meta,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": f"c{n}", "resources": r or {}} for n, r in enumerate(containers)],
        },
        "status": {"phase": phase},
    }


def seen(**more):
    found = see_pod(body(**more), "default")
    return found.application if found else None


CPUS = {
    "no resources": ([{}], 1.0),
    "a limit": ([{"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}], 2.0),
    "a request alone": ([{"requests": {"cpu": "500m"}}], 0.5),
    "the first container's": ([{"limits": {"cpu": "250m"}}, {"limits": {"cpu": "4"}}], 0.25),
    "a limit of memory alone": ([{"limits": {"memory": "1Gi"}}], 1.0),
}


@pytest.mark.parametrize(("containers", "cpu"), CPUS.values(), ids=CPUS)
def test_what_a_pod_has_alone(containers, cpu):
    assert seen(containers=containers).cpu == cpu


def test_what_it_requests_is_what_the_scheduler_counts():
    both = [{"requests": {"cpu": "250m"}}, {"requests": {"cpu": "500m"}}]
    assert seen(containers=both).request == 0.75


@pytest.mark.parametrize(
    ("more", "running"),
    [
        ({}, True),
        ({"phase": "Pending"}, False),
        ({"deletionTimestamp": "2030-01-01T00:01:00Z"}, False),
    ],
)
def test_which_pods_run(more, running):
    assert seen(**more).running is running


@pytest.mark.parametrize("more", [{"node": None}, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_pods_without_a_node_and_ended_ones_are_not_kept(more):
    assert seen(**more) is None


def test_a_pod_that_claims_a_job_is_not_kept():
    owned = {"labels": {"punctual.dev/job-uid": "j"}, "ownerReferences": [{"uid": "j"}]}
    pod = body(**owned)
    pod["spec"]["containers"][0]["image"] = "a"
    assert see_pod(pod, "default").application is None


def test_pods_are_found_by_namespace_with_their_labels():
    pods = ApplicationPods()
    one, other = seen(name="b", labels={"app": "a", "tier": "x"}), seen(name="a", labels={})
    assert pods.observe("lab/b", one) == "lab"
    assert pods.observe("lab/a", other) == "lab"
    assert pods.observe("lab/a", other) == "", "nothing changed"
    assert list(pods.in_namespace("lab")) == [(other, {}), (one, {"app": "a", "tier": "x"})]
    assert list(pods.in_namespace("elsewhere")) == []
    assert pods.observe("lab/a", None) == "lab"
    assert pods.observe("lab/a", None) == ""
    assert list(pods.in_namespace("lab")) == [(one, {"app": "a", "tier": "x"})]
