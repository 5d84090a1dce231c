"""A guest job, nodes and reports as their control is told of them."""

import pytest

from punctual import wire
from punctual.guests.estimates import UNKNOWN
from punctual.guests.model import ChunkSeen, GuestNode, HostSeen
from punctual.kube import api
from punctual.kube.actors.guest_records import to_guest, to_nodes, to_report
from punctual.kube.cluster.nodes import Node
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.node_rules import Taint
from punctual.scheduling.model.resources import Resources
from punctual.theory.cost import Cost

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "work:1"}]}}


def pool(cpu=1.0, **more):
    return api.PoolSpec(node_selector={}, processor={"cpu": cpu, "memory": "1Gi"}, **more)


def job(**more):
    usual = {"uid": "u", "namespace": "ns", "name": "filler", "generation": 4, "arrival": 0.0, "units": 50}
    return Job(**{**usual, "deadline": float("inf"), "cost": Cost(2.0, 0.0, 0.0, 1.0), **more})


def test_a_guest_has_what_its_job_says_and_what_its_pool_says_of_guests():
    asked = job(max_processors=3, restart="Resume", chunk_retries=1, stall_timeout=5.0, image_timeout=6.0,
                retention="All", ttl=7.0, suspend=True)  # fmt: skip
    found = to_guest(asked, TEMPLATE, pool(guests={"policy": "LingerForever", "preview": True}))
    assert (found.units, found.most, found.restart, found.chunk_retries) == (50, 3, "Resume", 1)
    assert (found.stall_timeout, found.start_timeout, found.retention, found.ttl) == (5.0, 6.0, "All", 7.0)
    assert (found.suspend, found.generation, found.policy, found.preview) == (True, 4, "LingerForever", True)


@pytest.mark.parametrize(
    ("cpu", "cost", "cores", "cpu_per_unit"),
    [
        (1.0, Cost(2.0, 0.0, 0.0, 1.0), 1.0, 2.0),
        (0.1, Cost(2.0, 0.0, 0.0, 1.0), 1.0, pytest.approx(0.2)),  # a unit takes 2 s of a tenth of a CPU
        (4.0, Cost(2.0, 0.0, 0.0, 1.0), 4.0, 8.0),
        (0.1, None, 1.0, UNKNOWN),
    ],
)
def test_a_guest_can_use_a_whole_cpu_and_its_units_take_what_the_cost_says_on_a_processor(
    cpu, cost, cores, cpu_per_unit
):
    found = to_guest(job(cost=cost), TEMPLATE, pool(cpu))
    assert (found.cores, found.cpu_per_unit) == (cores, cpu_per_unit)


def test_a_guest_takes_the_memory_that_its_template_names_else_that_of_a_processor():
    named = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "3Gi"}}}]}}
    assert to_guest(job(), TEMPLATE, pool()).memory == 2**30
    assert to_guest(job(), named, pool()).memory == 3 * 2**30


def test_nothing_is_read_of_the_template_of_a_job_that_is_refused():
    found = to_guest(job(refusal=("InvalidSpec", "spec.units")), {}, pool())
    assert found.refusal == ("InvalidSpec", "spec.units")


def test_guests_get_a_nodes_whole_cpu_and_the_memory_that_nothing_has_reserved():
    nodes = {
        name: Node(name, ready=True, allocatable=Resources(8.0, 64), pods=110, labels={}, taints=())
        for name in ("a", "b", "c")
    }
    seen = [
        NodeObserved(name="a", ready=True, cpu=2.0, memory=16, pods=100, speed=2.0),
        NodeObserved(name="b", ready=False, cpu=2.0, memory=16, pods=100),
        NodeObserved(
            name="c",
            ready=True,
            cpu=2.0,
            memory=16,
            pods=100,
            taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),),
        ),
        NodeObserved(name="gone", ready=True, cpu=2.0, memory=16, pods=100),
    ]
    assert to_nodes(seen, nodes) == (
        GuestNode("a", 8.0, 16, speed=2.0),
        GuestNode("b", 8.0, 16, schedulable=False),
        GuestNode("c", 8.0, 16, schedulable=False),
    )


def test_a_report_says_what_the_nodes_own_work_uses_of_it_and_how_far_guests_are():
    hosts = wire.Hosts(cores=4.0, used=1.0, guests=2.0, busy=True, age=7.0, mean=2.0)
    pods = [wire.PodReport(uid="p", done=3, end=9, cpu_seconds=1.5, memory_bytes=20, over=True)]
    found = to_report("a", wire.NodeReport(hosts=hosts, guest_priority="idle", guest_excess=5), pods)
    assert found.host == HostSeen(use=0.25, busy=True, age=7.0, mean=0.5)
    assert found.chunks == (ChunkSeen("p", 3, 9, 1.5, 20, over=True),)
    assert found.excess == 5


@pytest.mark.parametrize("more", [{"hosts": None}, {"can_write": False}, {"guest_priority": None}])
def test_of_an_agent_that_cannot_hold_guests_down_only_the_chunks_count(more):
    said = {"hosts": wire.Hosts(cores=4.0), "guest_priority": "weight", **more}
    found = to_report("a", wire.NodeReport(**said), [wire.PodReport(uid="p")])
    assert found.host is None
    assert len(found.chunks) == 1
