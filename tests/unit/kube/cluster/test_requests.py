"""What kube-scheduler counts for a pod: rows from Kubernetes' documentation and the tests of its PodRequests."""

import pytest

from punctual.kube.cluster.requests import beside, cpu_limit, parts, requested
from punctual.scheduling.model.resources import Resources

GI, MI = 2**30, 2**20


def asks(name="c", limits=None, *, always=False, **requests):
    made = {"name": name, "resources": {"requests": requests}}
    if limits:
        made["resources"]["limits"] = limits
    return made | ({"restartPolicy": "Always"} if always else {})


def found(**amounts):
    return Resources.of({"cpu": 0.0, "memory": 0, **amounts})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            # kubernetes.io/docs/concepts/configuration/manage-resources-containers: 0.5 CPU and 128 MiB
            {"containers": [asks("app", cpu="250m", memory="64Mi"), asks("log", cpu="250m", memory="64Mi")]},
            found(cpu=0.5, memory=128 * MI),
            id="two containers",
        ),
        pytest.param(
            # pkg/scheduler/framework/plugins/noderesources/fit.go, computePodResourceRequest: CPU 3, memory 3G
            {
                "initContainers": [asks("i1", cpu="2", memory="1G"), asks("i2", cpu="2", memory="3G")],
                "containers": [asks("c1", cpu="2", memory="1G"), asks("c2", cpu="1", memory="1G")],
            },
            found(cpu=3.0, memory=3 * 10**9),
            id="init containers one after the other",
        ),
        pytest.param(
            # KEP-753: a sidecar counts beside the later init containers and beside the containers
            {
                "initContainers": [
                    asks("i1", cpu="1"),
                    asks("s1", cpu="2", always=True),
                    asks("i2", cpu="3"),
                    asks("s2", cpu="1", always=True),
                ],
                "containers": [asks("c1", cpu="1")],
            },
            found(cpu=5.0),
            id="sidecars",
        ),
        pytest.param(
            {"containers": [asks(limits={"cpu": "1", "memory": "1Gi"}, cpu="100m")]},
            found(cpu=0.1, memory=GI),
            id="a limit without a request",
        ),
        pytest.param(
            # kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead: 2250m and 320Mi
            {
                "containers": [asks("a", cpu="500m", memory="100Mi"), asks("b", cpu="1500m", memory="100Mi")],
                "overhead": {"cpu": "250m", "memory": "120Mi"},
            },
            found(cpu=2.25, memory=320 * MI),
            id="overhead",
        ),
        pytest.param(
            # kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources
            {
                "resources": {"requests": {"cpu": "1", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "200Mi"}},
                "containers": [asks(cpu="500m", memory="50Mi"), {"name": "d"}],
            },
            found(cpu=1.0, memory=100 * MI),
            id="the pod as a whole",
        ),
        pytest.param(
            {"resources": {"limits": {"memory": "300Mi"}}, "containers": [asks(cpu="100m")]},
            found(cpu=0.1, memory=300 * MI),
            id="a limit of the whole pod that no container names",
        ),
        pytest.param(
            {"resources": {"limits": {"memory": "300Mi"}}, "containers": [asks(cpu="100m", memory="40Mi")]},
            found(cpu=0.1, memory=40 * MI),
            id="a limit of the whole pod, of which containers request a part",
        ),
        pytest.param(
            {
                "containers": [
                    asks(**{"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}),
                    asks("gpu", limits={"nvidia.com/gpu": 1}),
                ]
            },
            found(**{"ephemeral-storage": GI, "hugepages-2Mi": 4 * MI, "nvidia.com/gpu": 1}),
            id="other resources",
        ),
        pytest.param({"containers": [{"name": "c"}]}, found(), id="nothing"),
        pytest.param({"containers": [asks(cpu="1", memory="much")]}, found(cpu=1.0), id="no quantity"),
    ],
)
def test_what_a_pod_requests(spec, expected):
    assert requested(spec) == expected


def resized(cpu, allocated, **conditions):
    seen = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": allocated}}
    return {"containerStatuses": [seen], **conditions}


def pending(reason):
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(
    ("cpu", "status", "expected"),
    [
        pytest.param("1", {}, 1.0, id="no status yet"),
        pytest.param("1", resized("1", "1"), 1.0, id="as it is"),
        pytest.param("2", resized("1", "1"), 2.0, id="it is to grow"),
        pytest.param("1", resized("2", "1"), 2.0, id="it shrinks, and has not yet"),
        pytest.param("1", resized("1", "2"), 2.0, id="what is set aside"),
        pytest.param("400", resized("10m", "10m", **pending("Deferred")), 400.0, id="deferred: perhaps later"),
        pytest.param("400", resized("10m", "10m", **pending("Infeasible")), 0.01, id="infeasible: never"),
        pytest.param("400", resized("10m", "10m", resize="Infeasible"), 0.01, id="infeasible, before 1.33"),
        pytest.param("400", pending("Infeasible"), 400.0, id="without a status of the container"),
    ],
)
def test_a_resize_in_place_counts_as_the_scheduler_counts_it(cpu, status, expected):
    assert requested({"containers": [asks(cpu=cpu)]}, status) == Resources(expected)


@pytest.mark.parametrize(("reason", "memory"), [("Deferred", 300), ("Infeasible", 200)])
def test_so_does_a_resize_of_the_pod_as_a_whole(reason, memory):
    spec = {"containers": [{"name": "c"}], "resources": {"requests": {"memory": "300"}}}
    seen = {"resources": {"requests": {"memory": "200"}}, "allocatedResources": {"memory": "100"}}
    assert requested(spec, {**seen, **pending(reason)}) == Resources(memory=memory)


def test_an_init_container_that_ends_is_not_resized():
    spec = {"containers": [{"name": "d"}], "initContainers": [asks(cpu="1")]}
    status = {"initContainerStatuses": resized("2", "2")["containerStatuses"]}
    assert requested(spec, status) == Resources(1.0)


def test_what_runs_beside_the_work_and_what_a_message_names():
    spec = {
        "containers": [asks("proxy", cpu="10m"), asks("main", cpu="1")],
        "initContainers": [asks("unpack", cpu="3"), asks("log", cpu="20m", always=True)],
        "overhead": {"cpu": "5m"},
    }
    assert beside(spec, "main") == Resources(0.035)
    assert [(part.name, part.requests.cpu) for part in parts(spec)] == [
        ("proxy", 0.01),
        ("main", 1.0),
        ("unpack at first", 3.0),
        ("log", 0.02),
        ("overhead", 0.005),
    ]
    whole = {**spec, "resources": {"requests": {"cpu": "4"}}}
    assert [(part.name, part.requests.cpu) for part in parts(whole)] == [
        ("the pod as a whole", 4.0),
        ("overhead", 0.005),
    ]


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({"containers": [{"name": "a"}]}, None),
        ({"containers": [asks(limits={"cpu": "500m"})]}, 0.5),
        ({"containers": [asks(limits={"cpu": "500m"}), asks(limits={"cpu": "250m"})]}, 0.75),
        ({"containers": [asks(limits={"cpu": "500m"}), {"name": "b", "resources": {"requests": {"cpu": "1"}}}]}, None),
        ({"containers": [asks(limits={"cpu": "500m"})], "initContainers": [{"name": "i"}]}, 0.5),
        (
            {
                "containers": [asks(limits={"cpu": "500m"})],
                "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            },
            None,
        ),
        ({"containers": [asks(limits={"cpu": "500m"})], "initContainers": [asks("i", {"cpu": "1"}, always=True)]}, 1.5),
        ({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "2"}}}, 2.0),
        ({"containers": [asks(limits={"cpu": "500m"})], "resources": {"limits": {"memory": "1Gi"}}}, 0.5),
    ],
)
def test_the_cpu_limit_of_a_pod_is_that_of_all_that_runs_together(spec, limit):
    assert cpu_limit(spec) == limit
