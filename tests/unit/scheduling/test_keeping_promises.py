"""Stories about promises that stand while everything else moves: plans kept, repaired, and made anew."""

from dataclasses import replace

import numpy as np
import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.events import NodeGone
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.theory.cost import Cost


def nodes(count: int, cpu: float = 1.0, **more) -> World:
    w = World(**more)
    for n in range(count):
        w.node(f"n{n}", cpu)
    w.tick()
    return w


def track(w: World, uid: str) -> tuple[str, str]:
    return w.records[uid].on_track[:2]


# results that are cut


def cut(first_attempts: int, **more) -> World:
    """One processor and a job of which the kubelet cuts the result of so many attempts."""
    w = nodes(1)
    w.workers = lambda _uid, c: Worker(cut=2457 if c.kind == "Chunk" and c.attempt <= first_attempts else None)
    w.apply(job("j1", units=10, deadline=200.0, **{"reduce_duration": 5.0, **more}))
    return w


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_a_chunk_whose_result_was_cut_is_done_again_and_the_part_of_it_is_stored_nowhere(restart):
    w = cut(1, restart=restart)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.processed["j1"] == [(0, 10)] * 2
    assert w.results == {("j1", 0, 10): "0"}
    assert any("event j1 ResultCut" in line for line in w.log)


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_where_every_attempt_leaves_too_much_the_job_fails_with_the_reason_and_the_numbers(restart):
    w = cut(99, restart=restart, chunk_retries=1)
    w.run_until(lambda w: w.done("j1"))
    status, reason, message = w.records["j1"].failed_condition
    assert (status, reason) == ("True", reasons.RESULT_CUT)
    assert "passes on 2457 bytes" in message
    assert "at most 2456" in message
    assert w.results == {}
    assert not w.records["j1"].completed


def test_a_chunk_whose_result_is_not_utf_8_is_done_again_and_then_fails_its_job_with_the_reason():
    w = nodes(1)
    w.workers = lambda _uid, _c: Worker(result="caf\ufffd 1")
    w.apply(job("j1", units=10, deadline=200.0, reduce_duration=5.0, chunk_retries=1))
    w.run_until(lambda w: w.done("j1"))
    status, reason, message = w.records["j1"].failed_condition
    assert (status, reason) == ("True", reasons.RESULT_NOT_TEXT)
    assert "its result is not UTF-8: encode it, say as base64" in message
    assert w.results == {}
    assert not w.records["j1"].completed


def test_without_a_reduce_a_message_is_no_result_and_may_be_cut():
    w = cut(99, reduce_duration=None)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


@pytest.mark.parametrize(
    ("worker", "reason"), [(Worker(cut=4096), "ResultCut"), (Worker(result="\ufffd"), "ResultNotText")]
)
def test_of_a_reduce_whose_message_is_not_what_it_has_left_the_user_is_told(worker, reason):
    w = nodes(1)
    w.workers = lambda _uid, c: worker if c.kind == "Reduce" else Worker()
    w.apply(job("j1", units=10, deadline=200.0, reduce_duration=5.0))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert any(f"event j1 {reason}" in line for line in w.log)


# a plan that is kept


def three_places() -> tuple[list[Place], Plan]:
    """Book two of three processors."""
    places = [Place(name, 0) for name in "abc"]
    demand = Demand(order=Order(90.0, 0.0, "j"), ranges=Ranges.of((0, 100)), cost=Cost(chi=1.0), due=90.0)
    plan, missed = Plan.of(places, Timeline(np.array([30.0, 10.0, 0.0])), [demand])
    assert not missed
    assert [places[w].node for w in plan.placements[0].where] == ["c", "b"]
    return places, plan


def test_a_plan_that_is_kept_knows_nothing_of_a_processor_that_went():
    """Else no offer could be searched for: no finite deadline lies behind a processor that is never free."""
    _, plan = three_places()
    kept = plan.upon([Place("d", 0), Place("b", 0), Place("c", 0)], Timeline(np.array([5.0, 11.0, 0.0])))
    assert kept
    kept.check()
    (placement,) = kept.placements
    assert [kept.places[w].node for w in placement.where] == ["c", "b"]
    assert kept.timeline.ready.tolist() == [5.0, 11.0, 0.0]
    assert sorted(kept.after.ready) == [5.0, placement.ends[0], placement.ends[1]]
    assert placement.starts.tolist() == [0.0, 11.0]


def test_a_plan_is_not_kept_where_a_booked_processor_went():
    places, plan = three_places()
    assert plan.upon(places[:2], Timeline(np.zeros(2))) is None


def anomaly() -> World:
    """Three processors, and promises that hold in the order in which they were made, not earliest deadline first."""
    w = nodes(3, spec=replace(World().spec, margin=0.0))
    w.workers = lambda uid, _c: Worker(pace=w.jobs[uid].cost.chi)
    for k, units in enumerate([5, 10, 20]):
        w.apply(job(f"f{k}", units=units, deadline=units + 5.0))
    w.run(0.25)
    for k, (units, chi, setup, deadline, least, most) in enumerate([
        (5, 3.0, 6.0, 72, 3, None),
        (31, 0.5, 6.0, 42, 3, 3),
        (27, 1.0, 6.0, 66, 1, 3),
        (18, 0.5, 6.0, 91, 1, 2),
    ]):  # fmt: skip
        asked = job(f"j{k}", units=units, chi=chi, theta_cp=setup, arrival=w.now, deadline=w.now + deadline)
        w.apply(replace(asked, min_processors=least, max_processors=most))
        w.run(w.now + 0.25)
    plan = w.pool.view().plan
    _, missed = Plan.of(plan.places, plan.timeline, plan.demands)
    assert missed
    return w


@pytest.mark.parametrize("crash", [False, True], ids=["goes on", "crashes"])
def test_a_plan_that_keeps_what_one_made_anew_would_break_stands_over_a_crash(crash):
    w = anomaly()
    before = {b.demand.uid: b.processors for b in w.pool.view().plan.placements}
    assert before == {uid: w.records[uid].promise.processors for uid in before}
    w.pool.step(w.now, [replace(w.nodes["n1"], name="n4"), NodeGone("n4")])  # all is planned anew
    if crash:
        w.crash()
    w.tick()
    assert {b.demand.uid: b.processors for b in w.pool.view().plan.placements} == before
    assert {track(w, uid) for uid in before} == {("True", reasons.ON_TRACK)}
    w.run_until(lambda w: all(w.done(uid) for uid in before))
    assert {track(w, uid) for uid in before} == {("True", reasons.ON_TRACK)}


# chunks of a booking


@pytest.mark.parametrize(("most", "left", "held_up"), [(3, 1, False), (2, 2, True), (None, None, False)])
def test_what_is_left_of_a_booking_leaves_the_rest_of_its_maximum(most, left, held_up):
    """Else, booked anew for another job's sake, a running job would get more processors than it wants."""
    _, plan = three_places()
    (placement,) = plan.placements
    placement.demand = replace(placement.demand, least=2, most=most)
    chunks = {i: pieces[0] for i, pieces in enumerate(placement.pieces())}
    assert placement.created(chunks, placement.ends) is None
    placement = replace(placement, reducer=0)
    rest = placement.created(chunks, placement.ends).demand
    assert (rest.least, rest.most, rest.ranges.total) == (1, left, 0)
    assert rest.anew().not_before == (placement.ends.max() if held_up else 0.0)
    assert rest.running_until == placement.ends.max()


@pytest.mark.parametrize("count", [1, 8])
def test_all_chunks_that_begin_together_are_cut_from_their_booking_at_once(monkeypatch, count):
    """Cutting it anew for each made a step with N chunks take O(N^2): half a minute for 4000."""
    cut = []
    pieces = Placement.pieces
    monkeypatch.setattr(Placement, "pieces", lambda placement: cut.append(1) or pieces(placement))
    w = nodes(count, cpu=50.0)
    w.apply(job(units=4500 * count, deadline=100.0))
    w.tick()
    assert len(w.records["j1"].chunks) > 45 * count
    assert len(cut) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_a_job_whose_units_have_a_hole_follows_its_own_chunks_at_its_maximum(crash):
    """Held until the last of them ended, the part behind the hole was late once all was looked at anew."""
    w = nodes(2, cpu=2.0)
    w.workers = lambda _, chunk: Worker(pace=2.0 if chunk.begin == 30 else 1.0)
    w.apply(job(units=60, deadline=41, max_processors=2, restart="Resume"))
    w.run(15)
    for pod in list(w.pods):
        w.delete_pod(pod)
    w.node("n2", 1.0)
    if crash:
        w.run(18)
        w.crash()
    w.run(20)
    (waits,) = w.pool.view().plan.placements
    first = min(chunk.promised_end for chunk in w.records["j1"].chunks)
    assert waits.starts.tolist() == [first], "behind the hole it begins where the part before it ends"
    w.run_until(lambda w: w.done("j1"))
    lost = [line for line in w.log if "on_track=False" in line and not line.endswith(reasons.LATE)]
    assert not lost, "at its first pace, it would have been late; its promise was never given up"
    assert w.met("j1")


# promises given up, and those that are not


def test_a_promise_that_nothing_can_save_takes_no_newer_one_with_it():
    w = nodes(1)
    w.apply(job("old", units=50, deadline=54.5))
    w.run(1)
    w.node("n1", 12)
    newer = [f"new{k:02}" for k in range(12)]
    for k, uid in enumerate(newer):
        w.apply(job(uid, units=200, deadline=900, arrival=1.0 + k, on_miss="Stop" if k % 2 else "Continue"))
        w.run(2.0 + k)
    w.run(50)
    w.lose("n0")  # too late to do it again
    w.run(51)
    assert track(w, "old") == ("False", reasons.CAPACITY_LOST)
    assert {track(w, uid) for uid in newer} == {("True", reasons.ON_TRACK)}
    assert all(w.records[uid].chunks for uid in newer)


def test_where_half_must_go_the_oldest_that_fit_are_kept():
    w = nodes(4)
    for k in range(4):
        w.apply(job(f"j{k}", units=60, deadline=100 + k, arrival=float(k)))
        w.run(1.0 + k)
    w.run(20)
    w.lose(w.records["j0"].chunks[0].node)  # 60 units and 62 s of room: it fits again, alone on its processor
    w.lose(w.records["j1"].chunks[0].node)
    w.run(21)
    kept = [uid for uid in w.jobs if track(w, uid)[0] == "True"]
    assert len(kept) == 2
    assert "j0" in kept


def on_leftovers(*, answers: bool, pace: float = 1.0) -> World:
    """Have ``a`` lose its processor and go on with a short chunk on one that ``f`` has left."""
    w = nodes(2)
    w.workers = lambda uid, _c: Worker(answers=answers or uid != "a", pace=pace if uid == "a" else 1.0)
    w.apply(job("f", units=30, deadline=40))
    w.run(1)
    w.apply(job("a", units=90, deadline=100, arrival=1.0))
    w.run(20)
    w.lose(w.records["a"].chunks[0].node)
    w.run(36)
    assert track(w, "a") == ("False", reasons.CAPACITY_LOST)
    assert [c.leftover for c in w.records["a"].chunks] == [True]
    return w


@pytest.mark.parametrize("answers", [True, False])
def test_a_job_is_promised_again_only_where_its_running_chunk_may_stay(answers):
    """``b`` was promised on the processor that ``a`` must leave: booked again it would stay there."""
    w = on_leftovers(answers=answers)
    w.apply(job("x", suspend=True, arrival=36.0))
    w.apply(job("b", units=20, deadline=65.25, arrival=36.0))
    w.run(36.25)
    assert w.state("b")[0] == "True"
    w.apply(replace(w.jobs["a"], deadline=800.0, generation=2))
    w.delete("x")  # whatever has the Pool plan again
    w.run(36.5)
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


@pytest.mark.parametrize(("pace", "counts"), [(2.5, True), (12.0, False)])
def test_a_chunk_on_leftovers_that_has_answered_comes_to_its_end_where_that_is_soon(pace, counts):
    w = on_leftovers(answers=True, pace=pace)
    (chunk,) = w.records["a"].chunks
    w.run(47)
    w.apply(job("b", units=20, deadline=80, arrival=w.now))
    w.run(w.now + 6)
    assert any("offer a" in line for line in w.log)
    assert bool(w.records["a"].completed & Ranges.of((chunk.begin, chunk.begin + 1))) is counts
    assert [c.job for c in w.pods.values() if c.phase in {"Pending", "Running"}] == ["b"]
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")


def test_a_promise_whose_units_all_run_is_promised_again_when_it_fits():
    w = nodes(1)
    w.apply(job("a", units=50, deadline=100))
    w.run(10)
    lost = w.records["a"].on_track._replace(status="False", reason=reasons.CAPACITY_LOST)
    w.records["a"] = w.records["a"]._replace(on_track=lost)
    w.crash()
    w.run(11)
    assert track(w, "a") == ("True", reasons.ON_TRACK)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert w.records["a"].completed.total == 50


# edits are tested


def test_another_number_of_processors_is_tested_as_another_deadline_is():
    w = nodes(4)
    w.apply(job("now", units=30, deadline=100, min_processors=3))
    w.run(1)
    w.apply(job("old", units=100, deadline=60, arrival=1.0))
    w.run(2)
    w.apply(job("new", units=20, deadline=200, arrival=2.0, on_miss="Stop"))
    w.run(3)
    was = w.records["old"].promise
    w.apply(replace(w.jobs["old"], max_processors=1, generation=2))
    w.run(4)
    assert w.records["old"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert w.records["old"].promise == was
    w.crash()  # what is in force is not what the spec says
    w.delete_pod(next(name for name in w.pods if name.startswith("now")))
    w.run(6)
    assert {track(w, uid) for uid in w.jobs} == {("True", reasons.ON_TRACK)}
    w.run_until(lambda w: all(w.done(uid) for uid in w.jobs))
    assert all(w.met(uid) for uid in w.jobs)


def test_the_processors_that_an_edit_takes_are_those_that_are_free_first():
    """The others are still taken when a booking needs them: they vanish last."""
    w = nodes(1, cpu=4.0)
    for k, (units, deadline) in enumerate([(30, 36), (30, 36), (300, 340), (300, 340)]):
        w.apply(job(f"f{k}", units=units, deadline=float(deadline)))
        w.run(0.25 * (k + 1))
    w.apply(job("b", units=40, deadline=100, arrival=1.0, on_miss="Stop"))
    w.run(3)
    w.edit_pool(replace(w.spec, cpu=2.0, generation=2))
    w.run(5)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")


def test_a_node_on_which_a_pod_did_not_fit_is_tried_again_though_nothing_else_happens():
    w = nodes(1, cpu=2.0)
    w.workers = lambda uid, _c: Worker(never_starts="Unschedulable" if uid == "a" else None)
    w.apply(job("a", units=20, deadline=100))
    w.run(7)
    w.delete("a")
    w.run(120)
    w.apply(job("b", units=20, deadline=400, arrival=w.now))
    w.run(121)
    assert w.state("b") == ("True", reasons.FEASIBLE)


# reduce is part of a promise


def test_a_deadline_before_its_reduce_step_can_end_is_refused():
    w = nodes(1)
    w.workers = lambda _u, c: Worker(pace=60.0 if c.kind == "Reduce" else 1.0)
    w.apply(job("a", units=20, deadline=200, reduce_duration=60.0))
    w.run(3)
    w.apply(replace(w.jobs["a"], deadline=25.0, generation=2))
    w.run(4)
    assert w.records["a"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert w.records["a"].promise.deadline == 200
    w.apply(replace(w.jobs["a"], deadline=90.0, generation=3))
    w.run(5)
    assert w.records["a"].spec_applied[:2] == ("True", reasons.APPLIED)
    w.jobs["a"] = replace(w.jobs["a"], deadline=90.0)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_a_job_whose_reduce_step_alone_is_left_is_promised_only_where_it_fits():
    w = nodes(1)
    w.workers = lambda _u, c: Worker(pace=30.0 if c.kind == "Reduce" else 1.0)
    w.apply(job("a", units=10, deadline=100, reduce_duration=30.0))
    w.run(14)
    assert w.records["a"].completed.total == 10
    w.apply(replace(w.jobs["a"], suspend=True, generation=2))
    w.run(16)
    w.apply(job("b", units=200, deadline=230, arrival=16.0))
    w.run(17)
    w.apply(replace(w.jobs["a"], suspend=False, generation=3))
    w.run(20)
    assert w.state("a") == ("False", reasons.INFEASIBLE_CAPACITY)
    said = w.records["a"].admitted.message
    assert said == (
        "the reduce step must begin within 49s; of 1 processor the first is free in 3m21s; "
        "1 more processor would do, for 33s from now"
    )
    offered = w.records["a"].offer.earliest_deadline
    assert 216 + 32 <= 17 + offered <= 218 + 32 + 2 + 4
    w.apply(replace(w.jobs["a"], deadline=w.now + offered, generation=4))
    w.run(21)
    assert w.state("a") == ("True", reasons.FEASIBLE)
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert w.met("b")


def test_reduce_steps_that_a_lost_node_has_made_late_are_told_so():
    w = nodes(2)
    w.workers = lambda _u, c: Worker(pace=30.0 if c.kind == "Reduce" else 1.0)
    w.apply(job("a", units=10, deadline=48, reduce_duration=30.0))
    w.run(1)
    w.run_until(lambda w: any(c.kind == "Reduce" for c in w.records["a"].chunks))
    w.run(w.now + 10)
    w.lose(w.records["a"].chunks[0].node)
    w.run(w.now + 1)
    assert track(w, "a") == ("False", reasons.CAPACITY_LOST)
    w.run_until(lambda w: w.done("a"))
    assert w.records["a"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert w.warned >= {("a", reasons.CAPACITY_LOST), ("a", reasons.DEADLINE_MISSED)}


# pods that neither answer nor end


def tightest(w: World, units: int) -> str:
    """Promise a job the earliest deadline that the Pool takes, to a quarter of a second; return its uid."""
    for k in range(80):
        uid = f"b{k}"
        w.apply(job(uid, units=units, deadline=w.now + units + k / 4, arrival=w.now, theta_cp=1.5))
        w.tick()
        if w.records[uid].promise:
            return uid
    raise AssertionError("no deadline is taken")


def test_a_chunk_on_leftovers_that_neither_answers_nor_ends_costs_nobody_a_deadline():
    w = on_leftovers(answers=False)
    w.workers = lambda _u, _c: Worker()
    for pod in w.pods.values():
        w.set_worker(pod, Worker(answers=False, deaf=True))
    w.run(41)
    uid = tightest(w, 20)
    w.run_until(lambda w: w.done(uid))
    assert w.met(uid)
    assert track(w, uid) == ("True", reasons.ON_TRACK)


@pytest.mark.parametrize("seconds", [0.25, 1.0, 3.0])
def test_a_pod_that_does_not_heed_its_end_costs_nobody_a_deadline(seconds):
    w = nodes(1)
    w.workers = lambda uid, _c: Worker(deaf=uid == "a")
    w.apply(job("a", units=200, deadline=400, theta_cp=1.5))
    w.run(20)
    w.delete("a")
    w.run(20 + seconds)
    uid = tightest(w, 20)
    w.run_until(lambda w: w.done(uid))
    assert w.met(uid)
    assert track(w, uid) == ("True", reasons.ON_TRACK)


# margins and headroom


@pytest.mark.parametrize("deadline", [107, 109])
def test_headroom_is_used_before_a_promise_is_given_up(deadline):
    """The first job ends some seconds after its plan, and the second has no time left but its headroom.

    If the first made way at once, the second would have time with the later deadline only.
    """
    w = nodes(1, spec=PoolSpec(name="main", cpu=1.0, headroom=0.2, margin=2.0))
    w.workers = lambda uid, _c: Worker(pace=1.42 if uid == "first" else 1.0)
    w.apply(job("first", units=40, deadline=60))
    w.apply(job("second", units=40, deadline=deadline))
    w.run_until(lambda w: w.done("second"))
    assert w.met("first")
    assert w.met("second")
    assert not any("on_track=False" in line for line in w.log)
    assert w.processed["first"] == [(0, 40)], "its chunk was not ended for the second's"
    w.apply(job("third", units=40, deadline=w.now + 49, arrival=w.now))
    w.run(w.now + 2)
    assert w.state("third")[0] == "False", "a later job is planned with headroom"


def test_how_long_one_jobs_pods_take_to_start_is_nobody_elses_margin():
    w = nodes(1, cpu=8.0)
    w.apply(job("fast", units=8, deadline=100))
    w.run_until(lambda w: w.done("fast") if "fast" in w.records else False)
    w.apply(job("slow", units=8, deadline=5000, arrival=w.now, min_processors=8))
    w.startup = 600.0  # an init step of its own
    w.run(700)
    assert len([s for s in w.pool_record.startups if s >= 600]) == 3
    w.startup = 1.0
    for k in range(6):
        w.apply(job(f"b{k}", units=20, deadline=w.now + 300, arrival=w.now))
        w.run(w.now + 30)
        assert w.records[f"b{k}"].promise.margin <= 2.0
    w.startup = 5.0  # the cluster's own: all are slow now
    for k in range(4):
        w.apply(job(f"c{k}", units=20, deadline=w.now + 300, arrival=w.now))
        w.run(w.now + 40)
    w.apply(job("d", units=20, deadline=w.now + 300, arrival=w.now))
    w.run(w.now + 1)
    assert w.records["d"].promise.margin >= 5.0
