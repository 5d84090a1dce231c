"""Extended resources in a pool's processor: how many processors there are, and stories of devices that come and go."""

from dataclasses import replace

import pytest
from world import World, job

from punctual import reasons
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.node_rules import Taint
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import NO_POD, Processors, Taken, places_of
from punctual.scheduling.model.resources import Resources

SPEC = PoolSpec(name="p", cpu=0.1, memory=2**20)
GPU, NIC = "nvidia.com/gpu", "example.com/nic"


@pytest.mark.parametrize(
    ("others", "cpu", "pods", "count", "scarcest"),
    [
        pytest.param({GPU: 4, NIC: 9}, 4.0, 110, 2, (GPU, 2), id="two devices each"),
        pytest.param({GPU: 5, NIC: 1}, 4.0, 110, 1, (NIC, 1), id="another device is scarcer"),
        pytest.param({GPU: 8, NIC: 8}, 0.3, 110, 3, ("cpu", 3), id="CPU is scarcer"),
        pytest.param({GPU: 8, NIC: 8}, 4.0, 2, 2, ("pods", 2), id="pods are scarcer"),
        pytest.param({GPU: 8, NIC: 8}, 0.4, 4, 4, ("cpu", 4), id="all are equally scarce"),
        pytest.param({NIC: 9}, 4.0, 110, 0, (GPU, 0), id="a node without the device"),
        pytest.param({GPU: 1, NIC: 9}, 4.0, 110, 0, (GPU, 0), id="a node with less than a processor's"),
    ],
)
def test_the_scarcest_resource_of_a_node_limits_its_processors(others, cpu, pods, count, scarcest):
    spec = replace(SPEC, others=Resources.of({GPU: 2, NIC: 1}).others)
    node = NodeObserved(name="n", ready=True, cpu=cpu, memory=2**30, pods=pods, others=Resources.of(others).others)
    processors = Processors()
    processors.observe(node, spec)
    assert processors.whole["n"] == places_of(node, spec) == count
    assert processors.scarcity.scarcest() == scarcest


def test_the_scarcest_resource_is_that_of_all_usable_nodes_and_follows_them():
    spec, processors = replace(SPEC, others=((GPU, 1),)), Processors()
    assert processors.scarcity.scarcest() is None
    for name, cpu, gpus in (("n1", 0.2, 4), ("n2", 0.4, 1)):
        node = NodeObserved(name=name, ready=True, cpu=cpu, memory=2**30, others=((GPU, gpus),))
        processors.observe(node, spec)
    assert processors.scarcity.scarcest() == (GPU, 5)
    processors.observe(replace(node, cpu=0.2), spec)
    assert processors.scarcity.scarcest() == ("cpu", 4)
    processors.observe(replace(node, taints=(Taint("a", "", "NoSchedule"),)), spec)
    assert processors.scarcity.scarcest() == ("cpu", 2), "only pods that tolerate its taint may use the other node"
    processors.forget("n1")
    assert processors.scarcity.scarcest() == (GPU, 1)
    processors.observe(replace(node, ready=False), spec)
    assert processors.scarcity.scarcest() is None


def test_pods_that_share_a_processor_have_a_whole_device_each():
    spec = replace(SPEC, others=((GPU, 1),), admission="Utilization", pods_per_processor=4)
    node = NodeObserved(name="n", ready=True, cpu=0.2, memory=2**30, others=((GPU, 3),))
    processors = Processors()
    processors.observe(node, spec)
    assert (processors.whole["n"], places_of(node, spec)) == (2, 3)


def test_what_a_pod_holds_of_a_device_beyond_its_place_is_taken_from_its_node():
    spec, processors = replace(SPEC, others=((GPU, 1),)), Processors()
    processors.observe(NodeObserved(name="n", ready=True, cpu=4.0, memory=2**30, others=((GPU, 4),)), spec)
    share = spec.share
    assert processors.note_taken("u1", "n", Taken(share + Resources(others=((GPU, 1),)), placed=True), spec)
    assert processors.counts["n"] == 3
    assert not processors.note_taken("u2", "n", Taken(share, placed=True), spec)
    assert processors.note_taken("u1", "n", NO_POD, spec)
    assert processors.counts["n"] == 4


@pytest.fixture
def w():
    """A pool with a device per processor: two on n1, one on n2, none on n3."""
    made = World()
    edit(made, others=((GPU, 1),))
    for name, count in (("n1", 2), ("n2", 1), ("n3", 0)):
        devices(made, name, count)
    made.tick()
    return made


def edit(w, **changes):
    w.edit_pool(replace(w.spec, generation=w.spec.generation + 1, **changes))
    w.tick()


def devices(w, name, count):
    w.node(name, others=Resources.of({GPU: count}).others)


def test_a_pool_has_a_processor_for_each_device_and_a_promise_is_kept_on_them(w):
    assert (w.pool_record.processors, w.pool_record.scarcest) == (3, GPU)
    w.apply(job(units=90, deadline=40.0))
    w.run(10)
    assert sorted(pod.chunk.node for pod in w.pods.values()) == ["n1", "n1", "n2"]
    w.run(50)
    assert w.met("j1")


def test_a_job_is_refused_because_of_devices_and_its_refusal_names_them(w):
    w.apply(job("wide", units=40, deadline=600.0, min_processors=4))
    w.apply(job("soon", units=200, deadline=40.0))
    w.tick()
    for name in ("wide", "soon"):
        answer = w.records[name].admitted
        assert answer.reason == reasons.INFEASIBLE_CAPACITY
        assert f"; the scarcest on its nodes is {GPU}, enough for 3 processors" in answer.message


def test_a_pool_without_any_device_says_what_is_left():
    w = World()
    edit(w, others=((GPU, 2),))
    for name, count in (("a", 0), ("b", 1), ("c", 2)):
        devices(w, name, count)
    w.nodes["c"] = replace(w.nodes["c"], cpu=0.5)
    w.inbox.append(w.nodes["c"])
    w.tick()
    assert w.pool_record.ready.message == (
        f"no node has capacity for a processor of 1 CPU, 0 and 2 {GPU}: beside other pods, "
        f"c has 0.5 CPU, 1Ti, 2 {GPU} and 110 pods left; a has 4 CPU, 1Ti, 0 {GPU} and 110 pods left; "
        f"b has 4 CPU, 1Ti, 1 {GPU} and 110 pods left"
    )


@pytest.mark.parametrize("what", ["devices", "memory"])
def test_chunks_that_run_outlive_a_node_that_has_nothing_left_for_a_moment(w, what):
    """A device plugin that restarts says so of its devices; memory shows that both are treated alike."""
    edit(w, memory=2**30)
    w.apply(job(units=90, deadline=80.0))
    w.run(10)
    running = {name: w.nodes[name] for name in ("n1", "n2")}
    for node in running.values():
        gone = {"others": ()} if what == "devices" else {"memory": 0}
        w.nodes[node.name] = replace(node, **gone)
        w.inbox.append(w.nodes[node.name])
    w.run(20)
    assert w.pool_record.processors == 0
    assert w.records["j1"].chunks
    for node in running.values():
        w.nodes[node.name] = node
        w.inbox.append(node)
    w.run(100)
    assert w.met("j1")
    assert not any(reasons.CAPACITY_LOST in line for line in w.log)


def test_an_edit_of_the_devices_is_tested_as_one_of_the_processors_size(w):
    w.apply(job(units=90, deadline=45.0))
    w.apply(job("waits", units=90, deadline=90.0))
    w.tick()
    edit(w, others=((GPU, 2),))
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert (w.pool_record.processors, w.pool_record.applied.others) == (3, ((GPU, 1),))
    edit(w, others=())
    assert w.pool_record.spec_applied[:2] == ("True", reasons.APPLIED)
    assert w.pool_record.processors == 12
    w.run(90)
    assert w.met("j1")
    assert w.met("waits")
