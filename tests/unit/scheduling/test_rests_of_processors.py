"""Pods of Jobs that request less than a processor: each counts as a whole one, and its rest is kept."""

from collections import Counter
from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual.scheduling.model.job import PodSize
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources

GI = 2**30
GPU = "example.com/gpu"
SPEC = PoolSpec(name="main", cpu=1.0, memory=GI, headroom=0.0, margin=2.0)
SMALL = PodSize(Resources(0.4, GI))
REST = Resources(0.6)


def world(hold="None", *, pods=110, cpu=2, **more) -> World:
    w = World(spec=replace(SPEC, hold=hold, **more))
    w.node("n1", cpu, pods=pods, others=((GPU, 4),))
    w.node("n2", 1, others=((GPU, 2),))
    w.workers = lambda _uid, _chunk: Worker(pace=2.0)
    return w.run(1)


def small(uid="a", units=30, *, deadline=200.0, pod=SMALL, **more):
    """Return a job with small pods on three processors, or on one."""
    usual = {"chi": 2.0, "theta_cp": 2.0, "unit_pods": True, "min_processors": more.get("max_processors", 3)}
    return job(uid, units=units, deadline=deadline, pod=pod, **{**usual, **more})


def rests(w):
    return {node: kept.rests for node, kept in w.kept.items() if kept.rests}


def busy(w):
    return Counter(chunk.node for record in w.records.values() for chunk in record.chunks)


@pytest.mark.parametrize("hold", ["None", "Placeholder"])
def test_each_pod_takes_a_processor_and_what_it_leaves_is_kept_until_the_last_has_ended(hold):
    w = world(hold)
    w.apply(small())
    w.run(3)
    assert rests(w) == {"n1": (REST, REST), "n2": (REST,)}
    assert w.pool_record.free == 0
    while not w.done("a"):
        w.run(w.now + 0.25)
        assert {node: len(found) for node, found in rests(w).items()} == busy(w), w.now
        assert busy(w) <= Counter(n1=2, n2=1)
    assert w.met("a")
    w.run(w.now + 1)
    assert rests(w) == {}
    assert bool(w.kept) == (hold == "Placeholder")


def test_behind_a_taint_nothing_is_kept():
    w = world("Taint")
    w.apply(small())
    w.run(5)
    assert w.pool_record.free == 0
    assert w.kept == {}
    assert not [line for line in w.log if " keep " in line]


def test_unoccupied_processors_are_kept_only_with_placeholders():
    found = {}
    for hold in ("None", "Placeholder"):
        w = world(hold)
        w.apply(small(max_processors=1))
        w.run(3)
        assert list(rests(w).values()) == [(REST,)]
        found[hold] = sum(kept.placeholders for kept in w.kept.values()), {kept.since for kept in w.kept.values()}
    assert found["None"] == (0, {None})
    assert found["Placeholder"][0] == 2
    assert None not in found["Placeholder"][1]


@pytest.mark.parametrize(
    ("asked", "rest"),
    [
        (Resources(1.0, GI), None),
        (Resources(1.0, 0), Resources(0.0, GI)),
        (Resources(0.25, GI // 2), Resources(0.75, GI // 2)),
        (Resources(1.5, GI), None),
        (Resources(0.5, 2 * GI), Resources(0.5)),
    ],
)
def test_what_is_left_is_what_is_not_requested(asked, rest):
    w = world()
    w.apply(small(pod=PodSize(asked), max_processors=1))
    w.run(3)
    assert list(rests(w).values()) == ([(rest,)] if rest else [])


def test_devices_that_a_pod_leaves_are_kept():
    w = world(others=((GPU, 2),))
    w.apply(small(pod=PodSize(Resources(1.0, GI, ((GPU, 1),))), max_processors=1))
    w.run(3)
    assert list(rests(w).values()) == [(Resources(others=((GPU, 1),)),)]


def test_a_chunk_that_is_made_by_the_pool_leaves_nothing():
    w = world()
    w.apply(job(units=60, deadline=60.0))
    w.run(5)
    assert w.records["j1"].chunks
    assert w.kept == {}


def test_what_a_pod_has_requested_in_the_end_counts():
    w = world()
    w.workers = lambda _uid, _chunk: Worker(pace=2.0, requests=Resources(0.7, GI))  # something was added to it
    w.apply(small(max_processors=1))
    w.run(1.5)
    w.run_until(lambda w: any(pod.bound for pod in w.pods.values()))
    w.run(w.now + 1)
    assert list(rests(w).values()) == [(Resources(0.3),)]


@pytest.mark.parametrize(("pods", "kept"), [(4, 2), (3, 1), (2, 0)])
def test_no_placeholder_takes_the_place_of_a_pod_that_a_processor_needs(pods, kept):
    w = world(pods=pods)
    w.apply(small())
    w.run(3)
    assert len(rests(w).get("n1", ())) == kept
    assert busy(w)["n1"] == 2


def test_of_a_processor_that_was_lost_nothing_is_kept():
    w = world()
    w.apply(small())
    w.run(3)
    w.node("n1", 1.0, others=((GPU, 4),))  # somebody of a higher priority came
    w.run(3.25)
    assert len(rests(w)["n1"]) == 1


@pytest.mark.parametrize("hold", ["None", "Placeholder"])
def test_the_next_leader_keeps_the_same_from_its_first_step_on(hold):
    w = world(hold)
    w.apply(small())
    w.run(6)
    before = rests(w)
    assert before
    kept = []
    for _ in range(4):
        w.crash()
        w.kept = {}
        w.tick()
        kept.append(rests(w))
        w.run(w.now + 0.25)
    assert [{node: len(found) for node, found in one.items()} for one in kept] == [{"n1": 2, "n2": 1}] * 4
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_a_leader_says_at_first_what_it_keeps_also_if_that_is_nothing():
    w = world()
    w.crash()
    w.kept = {"n1": "of a leader before"}
    w.tick()
    assert w.kept == {}


def test_a_job_that_may_follow_a_smaller_pod_has_the_time_in_which_its_placeholder_goes():
    w = world()
    w.apply(job("before", units=10, deadline=40.0))
    w.run(2)
    w.apply(small(units=10, max_processors=1))
    w.run(5)
    w.apply(job("after", units=10, deadline=90.0))
    w.run(6)
    assert w.records["after"].promise.margin == w.records["before"].promise.margin + 2.0


LIMITS = [
    # limit, cap
    (None, 1.0),
    (0.5, 0.5),
    (1.0, 1.0),
    (2.0, 1.0),
]


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize(("limit", "cap"), LIMITS)
def test_the_cap_is_the_processor_or_the_pods_own_limit(limit, cap, feedback):
    w = world(feedback=feedback)
    w.apply(small(pod=PodSize(Resources(0.4, GI), limit)))
    w.run(5)
    assert {point.cap for point in w.set_points} == {cap}
    assert {point.line is not None for point in w.set_points} == {feedback and limit != 0.5}
