"""Which nodes a pod's spec allows, told for real nodes: the answers are kube-scheduler's."""

import pytest

from punctual.kube.cluster.pod_manifest import on_node
from punctual.kube.cluster.pod_needs import host_ports, pod_needs
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.node_rules import HostPort, Taint

SSD = NodeObserved(name="n1", ready=True, cpu=1.0, memory=1, labels={"disk": "ssd", "zone": "a", "gen": "3"})
DISK = NodeObserved(
    name="n2",
    ready=True,
    cpu=1.0,
    memory=1,
    labels={"disk": "hdd", "zone": "b"},
    taints=(Taint("gpu", "yes", "NoSchedule"),),
)
TOLERATES = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


def needs(spec):
    return pod_needs({"containers": [], **spec}, planned_node="any")


def required(*terms):
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


PREFERRED = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": expression("disk", "In", "tape")}
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("spec", "ssd", "disk"),
    [
        ({}, None, "taint gpu=yes:NoSchedule"),
        (TOLERATES, None, None),
        ({"nodeSelector": {"disk": "ssd"}}, None, "spec.template.spec.nodeSelector: disk=ssd"),
        ({"nodeSelector": {"disk": "hdd"}, **TOLERATES}, "spec.template.spec.nodeSelector: disk=hdd", None),
        (
            required(expression("zone", "In", "b", "c")) | TOLERATES,
            "spec.template.spec.affinity.nodeAffinity: zone in (b, c)",
            None,
        ),
        (required(expression("zone", "In", "b"), expression("gen", "Gt", "2")) | TOLERATES, None, None),
        (
            required(expression("gen", "Exists")) | TOLERATES,
            None,
            "spec.template.spec.affinity.nodeAffinity: gen exists",
        ),
        ({**PREFERRED, **TOLERATES}, None, None),
        ({"nodeName": "n1"}, None, "spec.template.spec.nodeName: n1"),
    ],
)
def test_a_node_has_the_objection_of_kube_scheduler(spec, ssd, disk):
    rules = needs(spec).rules
    assert (rules.objection(SSD), rules.objection(DISK)) == (ssd, disk)


def test_the_node_that_the_plan_has_chosen_is_no_rule_of_the_template():
    asked = required(expression("disk", "In", "ssd"))
    planned = {"affinity": on_node(asked["affinity"], "any")}
    assert needs(planned) == needs(asked)
    assert needs({"affinity": on_node({}, "any")}) == needs({})


def test_another_node_of_the_same_form_is_a_rule():
    rules = needs({"affinity": on_node({}, "n1")}).rules
    assert rules.objection(SSD) is None
    assert rules.objection(DISK) is not None


def test_ports_of_sidecars_and_of_the_hosts_network_are_taken_on_the_node():
    port = {"containerPort": 80}
    spec = {
        "containers": [{"ports": [port, {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"}]}],
        "initContainers": [{"ports": [{"hostPort": 1}]}, {"restartPolicy": "Always", "ports": [{"hostPort": 2}]}],
    }
    assert set(host_ports(spec)) == {HostPort("UDP", "0.0.0.0", 8081), HostPort("TCP", "0.0.0.0", 2)}
    assert HostPort("TCP", "0.0.0.0", 80) in set(host_ports({**spec, "hostNetwork": True}))


def test_what_is_requested_beside_cpu_and_memory_is_a_need():
    asked = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "1Gi"}}}]}
    assert needs(asked).rules.devices == (("nvidia.com/gpu", 2),)


def test_claims_are_named_once_per_volume():
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "emptyDir": {}}]
    assert needs({"volumes": volumes}).claims == ("data",)
