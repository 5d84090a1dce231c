"""A job that is planned right behind another one's chunk keeps its promise, whatever that chunk's pod comes to."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual.scheduling.model.node_rules import NodeRules
from punctual.scheduling.model.timing import LOOK, NOTICE, OVERDUE

GPU = (("nvidia.com/gpu", 1),)


def pool(**nodes):
    w = World()
    w.edit_pool(replace(w.spec, generation=2, margin=OVERDUE + LOOK + NOTICE))
    for name, cpu in nodes.items():
        w.node(name, cpu)
    w.tick()
    return w


@pytest.mark.parametrize(
    "manners",
    [
        pytest.param({"pace": 9.0}, id="its units take nine times as long"),
        pytest.param({"hangs": True}, id="it hangs"),
        pytest.param({"deaf": True, "pace": 9.0}, id="it ignores its end"),
        pytest.param({"answers": False, "pace": 9.0}, id="it answers no offer"),
        pytest.param({"never_starts": "SchedulingGated"}, id="it waits for a gate"),
        pytest.param({"never_starts": "NoScheduler"}, id="no scheduler looks at it"),
        pytest.param({"never_starts": "ImagePullBackOff"}, id="its image does not come"),
        pytest.param({"never_starts": "CreateContainerConfigError"}, id="a Secret is missing"),
        pytest.param({"never_starts": "ContainerCreating"}, id="a volume does not come"),
        pytest.param({"fails_after": 4.0, "exit_code": 1}, id="it fails"),
        pytest.param({"helper": float("inf")}, id="a container beside it never ends"),
        pytest.param({"helper": float("inf"), "heeds": False}, id="that one ignores its end, too"),
    ],
)
@pytest.mark.parametrize("units", [2, 10, 40])
def test_the_job_behind_a_pod_that_does_not_end_as_planned_keeps_its_promise(manners, units):
    w = pool(n1=1)
    w.workers = lambda uid, _chunk: Worker(**manners) if uid == "odd" else Worker()
    w.apply(job("odd", units=units, deadline=units + 200.0, namespace="theirs"))
    w.run(1)
    # no second to spare: theta_cp of both, the work of both, the margin, and one second for ticks
    tight = w.now + 2 + units + 2 + 10 + w.spec.margin + 1
    w.apply(job("next", units=10, deadline=tight, arrival=w.now))
    w.run(w.now + 0.5)
    w.run(tight + 1)
    assert w.state("odd")[0] == "True"
    assert w.state("next")[0] == "True", w.records["next"].admitted
    assert w.met("next"), (w.records["next"], w.log[-30:])


def test_a_job_is_planned_where_each_processor_has_the_devices_that_its_pods_request():
    w = pool(n1=2)
    w.node("n2", 4, others=(("nvidia.com/gpu", 4),))
    w.tick()
    w.apply(job("gpu", units=40, deadline=60.0, rules=NodeRules(devices=GPU)))
    w.apply(job("plain", units=40, deadline=60.0, arrival=1.0))
    w.run(70)
    assert w.met("gpu")
    assert w.met("plain")
    assert not any(line.endswith("n1") for line in w.log if "create gpu" in line)
    w.node("n2", 4, others=(("nvidia.com/gpu", 3),))  # one less than it has processors
    w.apply(job("late", units=40, deadline=w.now + 60.0, arrival=w.now, rules=NodeRules(devices=GPU)))
    w.run(w.now + 1)
    assert w.state("late")[0] == "False"
