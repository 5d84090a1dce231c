"""Stories about refused jobs: they are finished, their time to live counts, and an edit asks again."""

import re
from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.admission.offers import VALID
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.job import Offer


@pytest.fixture
def w():
    made = World()
    made.node("n1", 2.0)
    made.tick()
    return made


HOPELESS = {"units": 100, "deadline": 30.0}


def test_a_refused_job_is_finished_when_it_is_refused(w):
    w.run(5)
    w.apply(job(**HOPELESS))
    w.run(8)
    record = w.records["j1"]
    assert record.admitted.reason == reasons.INFEASIBLE_CAPACITY
    assert 5 < record.refused < 6
    assert not record.ended, "it has not run: an edit asks again"


def test_a_refused_job_goes_when_its_time_to_live_is_over(w):
    w.apply(job(**HOPELESS, ttl=20.0))
    w.run(19)
    assert "j1" in w.records
    w.run(22)
    assert "j1" not in w.records


def test_a_refused_job_goes_at_its_time_under_a_new_leader(w):
    w.apply(job(**HOPELESS, ttl=20.0))
    w.run(15)
    w.crash()
    w.run(19)
    assert "j1" in w.records
    w.run(22)
    assert "j1" not in w.records


def test_a_trial_that_is_refused_is_finished_and_one_that_would_be_promised_is_not(w):
    w.apply(job("no", **HOPELESS, dry_run=True, ttl=5.0))
    w.apply(job("yes", units=10, deadline=60.0, dry_run=True, ttl=5.0))
    w.run(2)
    assert w.records["no"].refused is not None
    assert w.records["yes"].refused is None
    w.run(10)
    assert list(w.records) == ["yes"]


def test_a_job_whose_deadline_comes_while_it_is_measured_is_finished(w):
    w.apply(job(units=10**6, deadline=20.0, chi=None, ttl=100.0))
    w.run(1)
    w.run_until(lambda w: w.records["j1"].admitted.status == "False", within=60)
    assert w.records["j1"].refused == w.now


def test_an_edit_asks_again_and_what_is_promised_is_not_finished(w):
    hopeless = job(**HOPELESS, ttl=20.0)
    w.apply(hopeless)
    w.run(5)
    w.apply(replace(hopeless, deadline=100.0, generation=2))
    w.run(6)
    record = w.records["j1"]
    assert (record.admitted.reason, record.refused) == (reasons.FEASIBLE, None)
    w.run(45)
    assert w.records["j1"].chunks, "it was not deleted for the first answer"


def test_an_edit_that_is_refused_again_begins_the_time_to_live_anew(w):
    hopeless = job(**HOPELESS, ttl=20.0)
    w.apply(hopeless)
    w.run(15)
    w.apply(replace(hopeless, units=90, generation=2))
    w.run(30)
    assert 15 < w.records["j1"].refused < 16
    w.run(37)
    assert "j1" not in w.records
    assert sum("delete j1" in line for line in w.log) == 1


# a refusal's numbers


def test_a_pool_without_a_node_says_why_no_deadline_can_be_promised():
    w = World()
    w.apply(job(units=4, deadline=600.0))
    w.tick()
    record = w.records["j1"]
    assert record.admitted[:2] == ("False", reasons.INFEASIBLE_CAPACITY)
    assert record.admitted.message == (
        "no deadline can be promised now: the pool has no processor, because no node has the labels that "
        "spec.nodeSelector asks for"
    )
    assert record.offer == Offer(None, w.now + VALID, 0), "and no offer is to be awaited"


def test_a_pool_with_nodes_that_are_closed_for_a_moment_does_not_say_that_it_has_no_processor(w):
    w.node("n2", 3.0)
    w.workers = lambda _j, _c: Worker(never_starts="Unschedulable")
    w.apply(job("misfit", units=40, deadline=60.0, min_processors=4))
    w.run_until(lambda w: any(line.endswith(reasons.CAPACITY_LOST) for line in w.log), within=10.0)
    w.run(w.now + 3.0)  # its pods are gone
    w.apply(job(units=4, deadline=w.now + 600.0, arrival=w.now))
    w.tick()
    said = w.records["j1"].admitted.message
    assert said == (
        "no deadline can be promised now: 5 of the pool's 5 processors are free on nodes n1, n2, where no new pod is "
        "created for another 7.0s at most: one could not be placed there"
    )


def test_what_is_left_of_closed_nodes_is_told_beside_the_numbers(w):
    w.node("n2", 3.0)
    w.workers = lambda _j, chunk: Worker(never_starts="Unschedulable" if chunk.node == "n2" else None)
    w.apply(job("misfit", units=40, deadline=60.0, min_processors=5))
    w.run_until(lambda w: any(line.endswith(reasons.CAPACITY_LOST) for line in w.log), within=10.0)
    w.run(w.now + 3.0)  # its pods are gone
    w.apply(job(units=900, deadline=w.now + 100.0, arrival=w.now))
    w.tick()
    said = w.records["j1"].admitted.message
    assert re.search(r"of 2 are free early enough|2 processors of 1 CPU have", said), said
    assert "3 of the pool's 5 processors are free on node n2, where no new pod is created" in said


def test_a_node_that_may_run_no_further_pod_is_not_said_to_lack_cpu():
    w = World()
    w.edit_pool(replace(w.spec, memory=2**30, generation=2))
    for name, cpu, memory, pods in (("full", 8.0, 2**33, 0), ("small", 8.0, 2**29, 110), ("slow", 0.5, 2**33, 110)):
        w.nodes[name] = NodeObserved(name=name, ready=True, cpu=cpu, memory=memory, pods=pods)
        w.inbox.append(w.nodes[name])
    w.tick()
    assert w.pool_record.ready.message == (
        "no node has capacity for a processor of 1 CPU and 1Gi: beside other pods, small has 8 CPU, 512Mi and 110 pods "
        "left; slow has 0.5 CPU, 8Gi and 110 pods left; full has 8 CPU, 8Gi and 0 pods left"
    )
