"""Stories of pools where jobs share processors (`admission: Utilization`)."""

import itertools
import math
from dataclasses import replace

import pytest
from agents import Agents
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import places_of

SPEC = PoolSpec(
    name="main", cpu=1.0, headroom=0.1, margin=2.0, admission="Utilization", pods_per_processor=4, memory=2**30
)


def world(spec: PoolSpec = SPEC, *, nodes: int = 1, cpu: float = 1.0) -> World:
    made = World(spec=spec)
    for i in range(nodes):
        made.node(f"n{i + 1}", cpu=cpu)
    return made


def resumes(uid: str, units: int, deadline: float, **more):
    return job(uid, units=units, deadline=deadline, restart="Resume", **more)


def three(w: World) -> World:
    """Three jobs that together need 0.9 of a processor, each for another time."""
    for uid, units, deadline in (("a", 30, 120.0), ("b", 40, 160.0), ("c", 60, 220.0)):
        w.apply(resumes(uid, units, deadline))
    return w


def caps(w: World, node: str) -> float:
    """Return the caps of a node's running pods together, in processors."""
    return sum(p.part for p in w.pods.values() if p.chunk.node == node and p.phase == "Running")


def test_three_jobs_share_one_processor_and_a_fourth_takes_the_offer():
    w = three(world()).run(5)
    assert len(w.pods) == 3  # on one processor
    w.apply(resumes("d", 50, 100.0, arrival=5.0))
    w.run(20)
    refused = w.records["d"]
    assert refused.admitted[:2] == ("False", reasons.INFEASIBLE_CAPACITY)
    assert "need 0.612 of a processor of 1 CPU until then" in refused.admitted.message
    assert refused.offer.earliest_deadline is not None
    w.delete("d")
    w.apply(resumes("e", 50, w.now + refused.offer.earliest_deadline, arrival=w.now))
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    assert all(w.met(uid) for uid in ("a", "b", "c", "e"))


def test_the_offer_is_the_least_deadline_that_fits():
    w = three(world()).run(5)
    w.apply(resumes("d", 10, 15.0, arrival=5.0))
    w.run(5.5)  # jobs that get ahead leave more CPU later
    offered = w.records["d"].offer.earliest_deadline
    for least in (offered, offered - 6.0):
        w.apply(resumes(f"d{least}", 10, w.now + least, arrival=w.now, dry_run=True))
    w.run(w.now + 0.5)
    assert w.records[f"d{offered}"].admitted.status == "True"
    assert w.records[f"d{offered - 6.0}"].admitted.status == "False"


def test_the_load_of_an_offer_is_accepted():
    w = three(world()).run(5)
    w.apply(resumes("d", 50, 100.0, arrival=5.0))
    w.run(20)
    load = w.records["d"].offer.largest_load
    assert 0 < load < 50
    w.apply(resumes("e", load, 100.0 + w.now - 5.0, arrival=w.now))
    w.run_until(lambda w: w.done("e"))
    assert w.met("e")


def test_no_cap_is_above_what_a_node_has():
    w = three(world())
    while not all(w.done(uid) for uid in w.jobs):
        w.run(w.now + 1)
        assert caps(w, "n1") <= 1.0 + 1e-9
    assert all(w.met(uid) for uid in w.jobs)


def test_an_urgent_job_overtakes_the_one_with_the_most_slack():
    w = world(replace(SPEC, pods_per_processor=2))
    w.apply(resumes("long", 50, 1000.0))
    w.apply(resumes("longer", 50, 2000.0))
    w.run(20)
    w.apply(resumes("urgent", 20, 80.0, arrival=20.0))
    w.run_until(lambda w: w.done("urgent"))
    assert w.met("urgent")
    assert any("offer longer" in line for line in w.log)
    assert not any("offer long " in line for line in w.log)
    w.run_until(lambda w: w.done("long") and w.done("longer"), within=3000.0)
    assert w.met("long")
    assert w.met("longer")
    done = sorted(w.processed["longer"])
    assert done[0][0] == 0
    assert done[-1][1] == 50
    assert all(before[1] == after[0] for before, after in itertools.pairwise(done))


def test_an_overtaken_job_that_does_not_answer_is_ended_at_its_progress():
    w = world(replace(SPEC, pods_per_processor=2))
    w.workers = lambda uid, _: Worker(answers=uid != "longer")
    w.apply(resumes("long", 50, 1000.0))
    w.apply(resumes("longer", 50, 400.0))
    w.run(100)
    w.apply(resumes("urgent", 20, 180.0, arrival=100.0))
    w.workers = lambda _uid, _: Worker(answers=False)
    for pod in w.pods.values():
        pod.worker.answers = False
    w.run_until(lambda w: w.done("urgent"))
    assert w.met("urgent")
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs), within=3000.0)
    assert all(w.met(uid) for uid in w.jobs)


def test_jobs_that_do_not_resume_keep_their_place_in_memory():
    w = world(replace(SPEC, pods_per_processor=2))
    w.apply(job("long", units=50, deadline=1000.0))
    w.apply(job("longer", units=50, deadline=2000.0))
    w.run(20)
    w.apply(resumes("urgent", 20, 80.0, arrival=20.0))
    w.run(30)
    assert w.records["urgent"].admitted.status == "False"
    assert "as many as fit" in w.records["urgent"].admitted.message
    assert w.records["urgent"].offer.earliest_deadline is not None


def test_a_job_that_is_behind_leaves_less_and_one_ahead_leaves_more():
    for pace, status in ((1.0, "True"), (2.0, "False")):
        w = world()
        w.workers = lambda _uid, _chunk, pace=pace: Worker(pace)
        w.apply(resumes("a", 50, 100.0))
        w.run(50)
        w.apply(resumes("b", 18, 100.0, arrival=50.0))
        w.run(52)
        assert w.records["b"].admitted.status == status


def test_a_job_of_a_lost_node_goes_on_elsewhere():
    w = world(nodes=2)
    w.apply(resumes("a", 30, 120.0))
    w.apply(resumes("b", 30, 130.0))
    w.run(20)
    node = next(p.chunk.node for p in w.pods.values() if p.job == "b")
    w.lose(node)
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert w.met("b")


def test_when_a_node_is_lost_the_newest_promise_is_given_up():
    w = world(nodes=2)
    w.agents = Agents()  # they lend the job without a promise what is left
    w.apply(resumes("a", 70, 100.0))
    w.apply(resumes("b", 70, 100.0, arrival=0.1))
    w.run(10)
    w.lose(next(p.chunk.node for p in w.pods.values() if p.job == "a"))
    w.run_until(lambda w: w.records["b"].on_track.status == "False", within=5.0)
    assert w.records["b"].on_track.reason == reasons.CAPACITY_LOST
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert not w.met("b")


def test_a_job_without_a_promise_makes_way_only_if_its_memory_is_needed():
    w = world(replace(SPEC, pods_per_processor=2))
    w.agents = Agents()
    w.workers = lambda uid, _: Worker(4.0 if uid == "slow" else 1.0)
    w.apply(resumes("slow", 60, 80.0))
    w.run(1)
    w.run_until(lambda w: w.records["slow"].on_track.reason == reasons.OVERRUN)
    (pod,) = w.pods
    w.apply(resumes("a", 20, w.now + 100.0, arrival=w.now))
    w.run(w.now + 10)
    assert pod in w.pods
    w.apply(resumes("b", 20, w.now + 100.0, arrival=w.now))
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert pod not in w.pods
    assert w.met("a")
    assert w.met("b")
    w.run_until(lambda w: w.done("slow"))


def test_an_overrun_job_pays_itself():
    w = three(world())
    w.workers = lambda uid, _: Worker(3.0 if uid == "a" else 1.0)
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs), within=2000.0)
    assert not w.met("a")
    assert w.met("b")
    assert w.met("c")
    assert ("a", reasons.OVERRUN) in {(uid, reason) for uid, reason, _ in w.said}


@pytest.mark.parametrize("at", [3.0, 40.0, 90.0])
def test_a_new_leader_keeps_the_promises(at: float):
    w = three(world()).run(at)
    before = {uid: r.promise for uid, r in w.records.items()}
    w.crash()
    w.run(at + 5)
    assert {uid: r.promise for uid, r in w.records.items()} == before
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    assert all(w.met(uid) for uid in w.jobs)
    assert all(len(w.processed[uid]) == 1 for uid in w.jobs)


def test_a_new_leader_goes_on_with_a_job_that_is_making_way():
    w = world(replace(SPEC, pods_per_processor=2))
    w.apply(resumes("long", 50, 1000.0))
    w.apply(resumes("longer", 50, 2000.0))
    w.run(20)
    w.apply(resumes("urgent", 20, 80.0, arrival=20.0))
    w.run_until(lambda w: any("offer longer" in line for line in w.log))
    w.crash()
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs), within=3000.0)
    assert all(w.met(uid) for uid in w.jobs)


def test_a_later_deadline_moves_the_line_and_a_tighter_one_is_tested():
    w = three(world()).run(10)
    w.apply(replace(w.jobs["a"], deadline=240.0, generation=2))
    w.run(12)
    assert math.isclose(w.records["a"].chunks[0].promised_end, 238.0)
    assert math.isclose(w.records["a"].promise.finish, 238.0)
    w.apply(replace(w.jobs["a"], deadline=40.0, generation=3))
    w.run(14)
    assert w.records["a"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert w.records["a"].promise.deadline == 240.0
    w.jobs["a"] = replace(w.jobs["a"], deadline=240.0)
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    assert all(w.met(uid) for uid in w.jobs)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (job("x", deadline=1000.0, reduce_duration=5.0), "spec.reduce: "),
        (job("x", deadline=1000.0, min_processors=2), "spec.processors.min 2: "),
        (job("x", deadline=1000.0, chi=None), "starts no pilot chunks"),
        (job("x", units=100, deadline=50.0), "a job has one pod, on one processor"),
    ],
)
def test_what_cannot_share_processors_is_refused_with_its_name(wanted, says):
    w = world()
    w.apply(wanted)
    w.run(5)
    assert w.records["x"].admitted.status == "False"
    assert says in w.records["x"].admitted.message


def test_reservations_are_refused():
    w = world()
    w.reserve("r", 100.0, 200.0, 1)
    w.run(2)
    assert w.answers["r"].answer.status == "False"
    assert "admission Utilization" in w.answers["r"].answer.message


def test_the_kind_of_sharing_changes_only_without_promises():
    w = three(world()).run(5)
    w.edit_pool(replace(SPEC, admission="Exact", generation=2))
    w.run(6)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert "3 promises made with admission Utilization" in w.pool_record.spec_applied.message
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    w.edit_pool(replace(SPEC, admission="Exact", generation=3))
    w.apply(job("later", units=20, deadline=w.now + 60.0, arrival=w.now))
    w.run_until(lambda w: w.done("later"))
    assert w.met("later")


def test_fewer_pods_per_processor_are_refused_while_they_would_break_promises():
    w = three(world()).run(5)
    w.edit_pool(replace(SPEC, pods_per_processor=1, generation=2))
    w.run(6)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)


def test_a_node_has_no_more_pods_than_its_memory_holds():
    w = world(replace(SPEC, memory=2**39, pods_per_processor=16))  # its nodes have 2**40 bytes
    for i in range(4):
        w.apply(resumes(f"j{i}", 10, 60.0 if i < 2 else 200.0 + i))
    w.run(5)
    assert len(w.pods) == 2  # the other two are promised, and wait for memory
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    assert all(w.met(uid) for uid in w.jobs)


def test_profiles_learn_the_cpu_time_of_a_unit_not_the_time_on_the_clock():
    w = three(world())
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    for found in w.measured:
        assert found.seconds == pytest.approx(found.units + w.startup, abs=2.0)


def test_what_a_dry_run_would_be_promised_reserves_nothing():
    w = world()
    w.apply(resumes("0-dry", 80, 100.0, dry_run=True))
    w.apply(resumes("a", 80, 110.0))
    w.run(2)
    assert w.records["0-dry"].admitted[:2] == ("True", reasons.DRY_RUN)
    assert "on a share of a processor" in w.records["0-dry"].admitted.message
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert len(w.processed) == 1


@pytest.mark.parametrize(("ready", "pods", "places"), [(True, 110, 6), (True, 5, 5), (True, 0, 0), (False, -1, 0)])
def test_a_node_has_places_for_its_processors_and_never_fewer_than_none(ready, pods, places):
    """Foreign pods may be more than a node's allocatable pods."""
    node = NodeObserved(name="n1", ready=ready, cpu=3.0, memory=0, pods=pods)
    assert places_of(node, PoolSpec(name="main", cpu=1.0, admission="Utilization", pods_per_processor=2)) == places
