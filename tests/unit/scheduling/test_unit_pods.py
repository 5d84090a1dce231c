"""Stories of jobs of which each pod does one unit: start-up counts for each, and a unit follows the one before."""

from collections import Counter
from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model import pilots
from punctual.scheduling.model.job import PilotSample
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.theory.cost import Cost

UNIT = 4.5
"""Seconds that a pod of `units` is declared to take: 2.5 to start, 2 to compute."""


def units(uid: str = "a", count: int = 40, *, deadline: float = 300.0, **more):
    usual = {"chi": 2.0, "theta_cp": 2.5, "unit_pods": True}
    return job(uid, units=count, deadline=deadline, **{**usual, **more})


def world(processors: int = 4, nodes: int = 1, **more) -> World:
    """Pods start within 2 s, and compute for 2 s unless a test says otherwise."""
    w = World(startup=2.25, **more)
    for n in range(nodes):
        w.node(f"n{n}", processors)
    w.workers = lambda _u, _c: Worker(pace=2.0)
    w.tick()
    return w


def created(w: World, uid: str = "a") -> list[tuple[float, int, int, str]]:
    """Return when which units were begun, and where."""
    lines = [line.split() for line in w.log if f" create {uid} " in line]
    found = [(float(at), *map(int, part.strip("[)").split(",")), node) for at, _, _, _, part, node in lines]
    return [(at, begin, end, node) for at, begin, end, node in found]


CASES = [
    # name, processors, units, unit pods, seconds to the deadline beside the margin, processors promised
    ("a unit alone", 1, 1, True, UNIT, 1),
    ("less than a unit", 1, 1, True, UNIT - 0.1, 0),
    ("one after the other", 1, 10, True, 10 * UNIT, 1),
    ("one start-up less than one after the other", 1, 10, True, 10 * UNIT - 2.5, 0),
    ("a range has one start-up", 1, 10, False, 2.5 + 10 * 2.0, 1),
    ("a round of units on each", 4, 12, True, 3 * UNIT, 4),
    ("a unit more than the rounds", 4, 13, True, 3 * UNIT, 0),
    ("a unit more in a round more", 4, 13, True, 4 * UNIT, 4),
]


@pytest.mark.parametrize("admission", ["Exact", "Fast"])
@pytest.mark.parametrize(("name", "processors", "count", "unit_pods", "seconds", "promised"), CASES)
def test_start_up_counts_for_each_unit(*, name, processors, count, unit_pods, seconds, promised, admission):
    w = world(processors)
    w.edit_pool(replace(w.spec, generation=2, admission=admission))
    w.tick()
    w.apply(units(count=count, unit_pods=unit_pods, deadline=seconds + w.spec.margin))
    w.tick()
    promise = w.records["a"].promise
    if admission == "Exact":
        assert (promise.processors if promise else 0) == promised, name
    assert promise is None or promised, name  # the fast test may refuse more
    w.run(seconds + 10)
    assert promise is None or w.met("a"), name


def test_a_pod_may_be_limited_to_the_time_of_a_unit():
    w = world(1)
    w.apply(units("a", 20, pod_limit=UNIT))
    w.apply(units("b", 5, pod_limit=UNIT - 1.0))
    w.tick()
    assert w.state("a")[0] == "True"
    assert w.state("b") == ("False", reasons.INVALID_SPEC)


@pytest.mark.parametrize(("deadline", "most"), [(90.0, None), (300.0, None), (300.0, 5)])
def test_two_hundred_units_end_when_their_promise_said(deadline, most):
    w = world(4, nodes=3)
    w.apply(units(count=200, deadline=deadline, max_processors=most))
    w.tick()
    promise = w.records["a"].promise
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert 0.9 * promise.finish <= w.records["a"].finished <= 1.05 * promise.finish
    assert sorted((begin, end) for _, begin, end, _ in created(w)) == [(i, i + 1) for i in range(200)]


def test_a_unit_follows_the_one_before_on_its_processor_at_once():
    w = world(2)
    paces = iter([2.0, 3.25, 1.0, 2.75, 4.0, 1.5, 2.0, 2.0, 1.25, 3.0])
    w.workers = lambda _u, _c: Worker(pace=next(paces))
    w.apply(units(count=10, deadline=80.0, min_processors=2))
    gaps = 0
    while not w.done("a"):
        w.run(w.now + 0.25)
        gaps += len(w.records["a"].chunks) < min(2, 10 - w.records["a"].completed.total)
    assert gaps == 0
    assert [begin for _, begin, _, _ in created(w)] == list(range(10))


def test_units_that_run_beside_each_other_are_never_more_than_processors_max():
    w = world(8)
    paces = iter([1.0 + 0.25 * (k * 7 % 9) for k in range(100)])
    w.workers = lambda _u, _c: Worker(pace=next(paces))
    w.apply(units(count=60, deadline=130.0, max_processors=3))
    w.tick()
    assert w.state("a")[0] == "True"
    seen = Counter()
    while not w.done("a"):
        w.run(w.now + 0.25)
        seen[len(w.records["a"].chunks)] += 1
        if w.now in {20.0, 40.25}:
            w.crash()
    assert w.met("a")
    assert max(seen) == 3
    assert seen[3] > 0.9 * seen.total()
    assert not w.warned


@pytest.mark.parametrize("most", [None, 4])
def test_a_new_leader_keeps_the_promise_of_a_job_without_slack(most):
    w = world(4, nodes=2)
    w.apply(units(count=80, deadline=(10 if most is None else 20) * UNIT + 2.0, max_processors=most))
    w.tick()
    for at in (3.0, 20.0, 20.25, 33.5):
        w.run(at)
        w.crash()
        w.tick()
        assert w.records["a"].promise is not None
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert not w.warned


def test_a_lost_pod_loses_one_unit_and_failures_count_per_unit():
    w = world(2)
    w.workers = lambda _u, chunk: Worker(pace=2.0, exit_code=int(chunk.begin == 7 and chunk.attempt < 3))
    w.apply(units(count=20, deadline=150.0, chunk_retries=2))
    w.run(15)
    lost = w.records["a"].chunks[0]
    w.delete_pod(next(pod.name for pod in w.pods.values() if pod.chunk.key == lost.key), disrupted=True)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    begun = Counter(begin for _, begin, _, _ in created(w))
    assert {unit: times for unit, times in begun.items() if times > 1} == {7: 3, lost.begin: 2}


def test_a_unit_that_fails_too_often_fails_the_job():
    w = world(2)
    w.workers = lambda _u, chunk: Worker(pace=2.0, exit_code=int(chunk.begin == 3))
    w.apply(units(count=20, chunk_retries=1))
    w.run_until(lambda w: w.done("a"))
    assert w.records["a"].failed_condition.reason == reasons.CHUNK_FAILED
    assert "units 3-4 failed 2 times" in w.records["a"].failed_condition.message


def test_a_lost_node_costs_the_units_that_run_there():
    w = world(4, nodes=3)
    w.apply(units(count=90, deadline=90.0))
    w.run(30)
    w.lose("n2")
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_an_earlier_deadline_takes_more_processors():
    w = world(8)
    w.apply(units(count=60, deadline=200.0))
    w.run(20)
    assert len(w.records["a"].chunks) == 2
    w.apply(replace(w.jobs["a"], generation=2, deadline=75.0))
    w.run(25)
    assert w.records["a"].spec_applied.status == "True"
    assert len(w.records["a"].chunks) > 4
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_a_more_urgent_job_takes_processors_between_two_units():
    w = world(4)
    w.apply(units(count=80, deadline=180.0))
    w.run(20)
    w.apply(job("b", units=50, chi=2.0, theta_cp=2.5, deadline=w.now + 40.0, arrival=w.now))
    w.run(28)
    assert w.state("b")[0] == "True"
    assert len(w.records["b"].chunks) == 4
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert w.met("b")


def test_inside_a_window_and_around_it():
    w = world(4)
    w.reserve("r", 40.0, 80.0, 2, group="night")
    w.run(1)
    w.apply(units("inside", 14, deadline=90.0, reservation="night"))
    w.apply(units("around", 60, deadline=150.0))
    w.run(2)
    assert w.state("inside")[0] == "True"
    assert w.state("around")[0] == "True"
    w.run_until(lambda w: w.done("inside") and w.done("around"))
    assert w.met("inside")
    assert w.met("around")
    assert all(at >= 40.0 for at, *_ in created(w, "inside"))
    held = {node for _, _, _, node in created(w, "inside")}
    assert held == {"n0"}
    assert not w.warned


def overrun(w: World) -> None:
    """Let ``a`` take so long that its promise is given up."""
    w.workers = lambda uid, _c: Worker(pace=9.0 if uid == "a" else 2.0, answers=False)
    w.apply(units(count=30, deadline=40.0))
    w.tick()
    w.run_until(lambda w: w.records["a"].on_track is not None and w.records["a"].on_track.reason == reasons.OVERRUN)


def test_leftover_units_go_on_one_by_one_and_keep_their_processors_to_the_end():
    w = world(4)
    overrun(w)
    w.run(w.now + 30)
    assert all(chunk.size == 1 for chunk in w.records["a"].chunks)
    w.apply(job("b", units=60, theta_cp=2.5, chi=2.0, deadline=w.now + 70.0, arrival=w.now))
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("b")
    assert w.records["a"].completed.total == 30
    assert not [line for line in w.log if " offer " in line]
    assert not [uid for uid, reason, _ in w.said if (uid, reason) == ("a", reasons.CAPACITY_LOST)]


def test_late_units_are_not_offered_an_earlier_end():
    w = world(4)
    w.workers = lambda _u, chunk: Worker(pace=14.0 if chunk.begin < 2 else 2.0, saturated=True)
    w.apply(units(count=12, deadline=120.0))
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert not [line for line in w.log if " offer " in line]


PILOTS = [
    # name, samples, units left, next
    ("none yet", [], 10, 1),
    ("one may have pulled the image", [PilotSample(1, 9.0)], 9, 1),
    ("two are enough", [PilotSample(1, 9.0), PilotSample(1, 4.0)], 8, None),
    ("no unit is left", [PilotSample(1, 9.0)], 0, None),
]


@pytest.mark.parametrize(("name", "samples", "left", "size"), PILOTS)
def test_pilots_are_single_units(name, samples, left, size):
    assert pilots.next_pilot(samples, left, unit_pods=True) == size, name


def test_a_job_without_a_cost_is_planned_with_what_its_pilots_took_start_up_included():
    w = world(4)
    w.apply(units(count=60, deadline=150.0, chi=None))
    w.tick()
    w.run_until(lambda w: w.state("a")[0] == "True")
    assert w.records["a"].cost == Cost(chi=4.25)
    late = 0
    while not w.done("a"):
        w.run(w.now + 0.25)
        late += any(chunk.late for chunk in w.records["a"].chunks)
    assert w.met("a")
    assert late == 0
    assert not w.warned


def test_where_pods_share_processors_one_unit_follows_the_other():
    spec = PoolSpec(
        name="main", cpu=1.0, headroom=0.1, margin=2.0, admission="Utilization", pods_per_processor=4, memory=2**30
    )
    w = world(1, spec=spec)
    w.apply(units("a", 10, deadline=100.0))
    w.apply(job("b", units=20, chi=2.0, theta_cp=2.5, deadline=140.0))
    w.tick()
    assert w.state("a")[0] == "True"
    assert w.state("b")[0] == "True"
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert w.met("b")
    assert [begin for _, begin, _, _ in created(w)] == list(range(10))


def test_under_a_bound_without_a_guarantee_units_are_single_too():
    w = world(4)
    w.edit_pool(replace(w.spec, generation=2, bound=0.9))
    w.tick()
    w.apply(units(count=40, deadline=90.0))
    w.tick()
    assert w.state("a") == ("True", reasons.ADMITTED_STATISTICALLY)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert all(end == begin + 1 for _, begin, end, _ in created(w))
