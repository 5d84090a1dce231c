from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual import reasons
from punctual.kube.cluster.nodes import CLASS_LABEL, Inventory, Node, project_node
from punctual.kube.cluster.pods import ForeignPod
from punctual.labels import CPU_MANAGER, POOL_LABEL
from punctual.scheduling.model.events import NodeGone, NodeObserved
from punctual.scheduling.model.node_rules import HostPort, Taint
from punctual.scheduling.model.resources import Resources

CORDON = "node.kubernetes.io/unschedulable"

GPU = "example.com/gpu"
NODE = Node(name="n1", ready=True, allocatable=Resources(4.0, 1000), pods=10, labels={"pool": "main"}, taints=())


def seen(**more):
    node = {"name": "n1", "ready": True, "cpu": 4.0, "memory": 1000, "pods": 10, "labels": NODE.labels}
    return NodeObserved(**node | more)


def everything(labels):
    return True


@pytest.fixture
def told():
    return []


@pytest.fixture
def inventory(told):
    made = Inventory(lambda pool, event: told.append((pool, event)))
    made.observe_pool("main", created=0.0, selects=lambda labels: labels.get("pool") == "main")
    return made


def test_a_body_is_kept_as_numbers():
    body = {
        "metadata": {"name": "n1", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "t"}]},
        "status": {
            "allocatable": {"cpu": "1500m", "memory": "2Ki", "pods": "7", GPU: "2"},
            "capacity": {"cpu": "2"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        },
    }
    taints = ({"key": "k", "effect": "NoSchedule", "timeAdded": "t"},)
    assert project_node(body) == Node(
        name="n1",
        ready=True,
        allocatable=Resources(1.5, 2048, ((GPU, 2),)),
        pods=7,
        labels={"a": "b"},
        taints=taints,
        cpus=2.0,
    )


def test_a_device_that_another_pod_holds_is_not_the_pools(inventory, told):
    inventory.observe_node(replace(NODE, allocatable=Resources(4.0, 1000, ((GPU, 2),))))
    assert told[-1][1].others == ((GPU, 2),)
    holder = ForeignPod("u1", "n1", Resources(0.5, 100, ((GPU, 1),)))
    inventory.observe_pod(holder)
    assert told[-1][1].others == ((GPU, 1),)
    inventory.forget_pod(holder)
    assert told[-1][1].others == ((GPU, 2),)


def test_a_node_without_a_status_is_not_ready():
    assert not project_node({"metadata": {"name": "n1"}}).ready


def test_the_pool_is_told_what_others_leave(inventory, told):
    inventory.observe_pod(ForeignPod("f1", "n1", Resources(0.5, 100)))
    inventory.observe_node(NODE)
    inventory.observe_pod(ForeignPod("f2", "n1", Resources(0.25, 10)))
    inventory.forget_pod(ForeignPod("f1", "n1", Resources(0.5, 100)))
    assert told == [
        ("main", seen(cpu=3.5, memory=900, pods=9)),
        ("main", seen(cpu=3.25, memory=890, pods=8)),
        ("main", seen(cpu=3.75, memory=990, pods=9)),
    ]


def test_nothing_is_told_when_nothing_changed_for_the_pool(inventory, told):
    inventory.observe_node(NODE)
    told.clear()
    inventory.observe_node(replace(NODE, taints=({"key": "gpu", "effect": "PreferNoSchedule"},)))
    inventory.observe_pod(ForeignPod("f1", "elsewhere", Resources(0.5, 100)))
    assert told == []


def test_room_is_never_below_nothing(inventory, told):
    inventory.observe_node(NODE)
    inventory.observe_pod(ForeignPod("f1", "n1", Resources(9.0, 9999)))
    assert told[-1] == ("main", seen(cpu=0.0, memory=0, pods=9))


def test_nodes_are_as_fast_as_their_class_in_the_pool(inventory, told):
    fast, slow = NODE, replace(NODE, name="n2", labels={**NODE.labels, CLASS_LABEL: "old"})
    inventory.observe_speeds("main", {"old": 2.0})
    inventory.observe_node(fast)
    inventory.observe_node(slow)
    inventory.observe_speeds("main", {"old": 2.0})
    inventory.observe_speeds("main", {"old": 1.5})
    inventory.observe_speeds("other", {"old": 9.0})
    assert told == [
        ("main", seen()),
        ("main", seen(name="n2", speed=2.0, labels=slow.labels)),
        ("main", seen(name="n2", speed=1.5, labels=slow.labels)),
    ]
    assert [inventory.class_of(name) for name in ("n1", "n2", "n3")] == ["", "old", ""]


@pytest.mark.parametrize(
    "lose",
    [
        lambda i: i.forget_node("n1"),
        lambda i: i.observe_node(replace(NODE, labels={})),
        lambda i: i.forget_pool("main"),
        lambda i: i.observe_pool("main", created=0.0, selects=lambda labels: False),
    ],
)
def test_a_node_that_is_no_more_the_pools_is_gone_for_it(inventory, told, lose):
    inventory.observe_node(NODE)
    lose(inventory)
    assert told[-1] == ("main", NodeGone("n1"))
    assert inventory.events_of("main") == []
    assert inventory.owners() == {}


def test_a_node_belongs_to_the_oldest_pool_and_the_younger_one_knows_why_not(inventory, told):
    inventory.observe_pool("young", created=5.0, selects=everything)
    inventory.observe_node(NODE)
    assert told == [("main", seen()), ("young", seen(left_out=reasons.NODES_OVERLAP))]
    assert inventory.owners() == {"n1": "main"}
    told.clear()
    inventory.forget_pool("main")
    assert told == [("main", NodeGone("n1")), ("young", seen())]


def test_of_two_pools_of_one_second_the_name_decides(inventory):
    inventory.observe_pool("alpha", created=0.0, selects=everything)
    inventory.observe_node(NODE)
    assert inventory.owners() == {"n1": "alpha"}


@pytest.mark.parametrize(
    ("taint", "told_of"),
    [
        ({"key": CORDON, "effect": "NoSchedule"}, [Taint(CORDON, "", "NoSchedule")]),
        ({"key": "gpu", "value": "x", "effect": "NoExecute"}, [Taint("gpu", "x", "NoExecute")]),
        ({"key": "gpu", "effect": "PreferNoSchedule"}, []),
        ({"key": POOL_LABEL, "value": "main", "effect": "NoSchedule"}, []),
    ],
)
def test_taints_that_keep_pods_off_are_told(inventory, told, taint, told_of):
    inventory.observe_node(replace(NODE, taints=(taint,)))
    assert told == [("main", seen(taints=tuple(told_of)))]


def test_host_ports_of_other_pods_are_told(inventory, told):
    port = HostPort("TCP", "0.0.0.0", 80)
    inventory.observe_node(NODE)
    inventory.observe_pod(ForeignPod("f1", "n1", Resources(0.5, 100), ports=frozenset({port})))
    assert told[-1] == ("main", seen(cpu=3.5, memory=900, pods=9, ports=frozenset({port})))


def test_a_node_with_the_static_cpu_manager_is_left_out(inventory, told):
    labels = {**NODE.labels, CPU_MANAGER: "static"}
    inventory.observe_node(replace(NODE, labels=labels))
    assert told == [("main", seen(left_out=reasons.STATIC_CPU_MANAGER, labels=labels))]


pods = st.builds(
    ForeignPod, st.sampled_from("abc"), st.just("n1"), st.integers(0, 30).map(lambda n: Resources(n / 10, 1))
)


STRANGER = ForeignPod("f1", "n1", Resources(1.0, 100), priority=0, since=50.0)


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(STRANGER, 4.0, id="came later, and goes when a chunk needs the room"),
        pytest.param(STRANGER._replace(priority=1), 3.0, id="no chunk makes it go"),
        pytest.param(STRANGER._replace(since=40.0), 3.0, id="was there first"),
        pytest.param(STRANGER._replace(priority=-5, since=40.0), 3.0, id="was there first, however unimportant"),
    ],
)
def test_who_counts_where_placeholders_keep_the_room(inventory, pod, cpu):
    inventory.observe_node(NODE)
    inventory.observe_pod(pod)
    inventory.keep("main", {"n1": 40.0})
    assert inventory.events_of("main")[0].cpu == cpu
    inventory.keep("main", {})
    assert inventory.events_of("main")[0].cpu == 3.0


def test_a_younger_pool_keeps_no_room_on_anothers_node(inventory, told):
    inventory.observe_pool("young", created=5.0, selects=everything)
    inventory.observe_node(NODE)
    inventory.observe_pod(STRANGER)
    told.clear()
    inventory.keep("young", {"n1": 40.0})
    assert told == []
    inventory.forget_pool("main")
    assert told[-1] == ("young", seen(pods=10))


@given(st.permutations([ForeignPod(str(i), "n1", Resources(i / 10, i)) for i in range(8)]))
def test_the_order_in_which_pods_come_changes_nothing(order):
    inventory = Inventory(lambda pool, event: None)
    inventory.observe_pool("main", created=0.0, selects=everything)
    for pod in order:
        inventory.observe_pod(pod)
    inventory.observe_node(NODE)
    assert inventory.events_of("main") == [seen(cpu=1.2, memory=972, pods=2)]


@given(st.lists(st.tuples(st.booleans(), pods), max_size=20))
def test_what_was_told_last_is_what_is_so(moves):
    told = {}
    inventory = Inventory(told.__setitem__)
    inventory.observe_pool("main", created=0.0, selects=everything)
    inventory.observe_node(NODE)
    there = {}
    for comes, pod in moves:
        if comes:
            inventory.observe_pod(pod)
            there[pod.uid] = pod
        else:
            inventory.forget_pod(pod)
            there.pop(pod.uid, None)
    assert told["main"].pods == 10 - len(there)
    assert told["main"].cpu == pytest.approx(max(0.0, 4.0 - sum(p.requests.cpu for p in there.values())))
    assert inventory.events_of("main") == [told["main"]]
