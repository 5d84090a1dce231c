"""Reservations in a Pool, as stories: who is let in, who must be gone when the window begins, what a restart keeps."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual.scheduling.model.events import PoolApplied, ReservationApplied, Share
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.timing import LEAVE

SPEC = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0)


def world(cpu=2.0, *nodes, **more):
    w = World(**{"spec": SPEC, **more})
    for name in nodes or ("n1",):
        w.node(name, cpu)
    w.tick()
    return w


def running(w, node=None):
    return [p for p in w.pods.values() if p.phase in {"Pending", "Running"} and node in {None, p.chunk.node}]


def most_running(w, start, end, node=None):
    """Go on to the end of a window; tell how many pods there were at most from its start to its end."""
    w.run(start)
    most = 0
    while w.now < end:
        most = max(most, len(running(w, node)))
        w.run(w.now + 0.25)
    return most


def test_a_window_is_empty_from_its_start_to_its_end_while_a_job_is_around_it():
    w = world()
    w.reserve("r", 30.0, 60.0, 2)
    w.apply(job(units=100, deadline=120))
    assert most_running(w, 30.0, 60.0) == 0
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert any("create j1" in line and float(line.split()[0]) < 30 for line in w.log), "the hole before it is lent"


def test_a_chunk_that_is_late_answers_an_offer_and_is_out_in_time():
    w = world(1.0, workers=lambda _job, _chunk: Worker(pace=1.5))
    w.apply(job(units=40, deadline=200))
    w.reserve("r", 30.0, 50.0, 1)
    assert most_running(w, 29.0, 50.0) == 0
    assert any("offer j1" in line for line in w.log)
    done = w.records["j1"].completed.total
    assert 10 < done < 20, "what it did before is kept"
    w.run_until(lambda w: w.done("j1"))


REAL = {"hears": 1.0, "stands": 3.0}
"""How long a worker takes to answer on a cluster, and to exit after that."""


@pytest.mark.parametrize("pace", [1.05, 1.5, 3.0])
@pytest.mark.parametrize("margin", [0.0, 1.0, 2.0, 6.0])
def test_what_a_slow_chunk_has_computed_when_a_window_begins_counts(margin, pace):
    w = world(1.0, spec=replace(SPEC, margin=margin), workers=lambda _job, _chunk: Worker(pace=pace, **REAL))
    w.reserve("r", 60.0, 80.0, 1)
    w.apply(job(units=60, deadline=400))
    assert most_running(w, 60.0, 80.0) == 0
    assert w.records["j1"].completed.total * pace >= 60 - margin - LEAVE - 4.0
    w.run_until(lambda w: w.done("j1"))


def test_a_chunk_on_its_line_is_not_asked_to_leave_before_a_window():
    w = world(1.0, workers=lambda _job, _chunk: Worker(**REAL))
    w.reserve("r", 60.0, 80.0, 1)
    w.apply(job(units=60, deadline=400))
    w.run_until(lambda w: w.done("j1"))
    assert not any("offer" in line for line in w.log)


def test_a_chunk_that_has_given_a_part_to_helpers_is_asked_again_before_a_window():
    w = world(1.0, "n1", "n2", workers=lambda _job, chunk: Worker(pace=5.0 if chunk.node == "n1" else 1.0, **REAL))
    w.reserve("r", 60.0, 80.0, 1, nodes=frozenset({"n1"}))
    w.apply(job(units=80, deadline=60))
    assert most_running(w, 60.0, 80.0, "n1") == 0
    assert [line for line in w.log if "offer j1 [0,40)" in line] == [
        "43.5 offer j1 [0,40) -> 25",  # the rest for helpers; it would take until 127
        "51.5 offer j1 [0,40) -> 10",
    ]
    w.run_until(lambda w: w.done("j1"))
    assert (0, 11) in w.processed["j1"]
    assert sum(end - begin for begin, end in w.processed["j1"]) == 80, "no unit is computed twice"


@pytest.mark.parametrize("manners", [{"answers": False}, {"answers": False, "deaf": True}])
def test_a_chunk_that_does_not_answer_is_ended_in_time(manners):
    w = world(1.0, workers=lambda _job, _chunk: Worker(pace=4.0, **manners))
    w.apply(job(units=40, deadline=200))
    w.reserve("r", 30.0, 50.0, 1)
    assert most_running(w, 30.0, 50.0) == 0
    assert any("CapacityLost" in line for line in w.log)


def test_a_job_that_names_the_reservation_runs_inside_it():
    w = world()
    w.reserve("r", 30.0, 90.0, 1, group="g")
    w.tick()
    w.apply(job(units=20, deadline=200, reservation="g"))
    w.apply(job("j2", units=20, deadline=80))
    w.run_until(lambda w: w.done("j1") and w.done("j2"))
    begun = {line.split()[2]: float(line.split()[0]) for line in w.log if " create " in line}
    assert begun["j1"] == pytest.approx(30.0, abs=0.25)
    assert begun["j2"] < 10.0, "the other processor is free"
    assert w.met("j1")


def test_two_jobs_share_a_window_and_a_third_does_not_fit():
    w = world(1.0)
    w.reserve("r", 30.0, 90.0, 1, group="g")
    w.tick()
    for name in ("j1", "j2", "j3"):
        w.apply(job(name, units=20, deadline=300, reservation="g"))
    w.tick()
    assert [w.state(name)[0] for name in ("j1", "j2", "j3")] == ["True", "True", "False"]
    assert "inside the windows of its reservation" in w.records["j3"].admitted.message
    w.run(90.0)
    assert w.met("j1")
    assert w.met("j2")


def test_a_job_goes_on_in_the_next_window_of_the_same_reservation():
    w = world(1.0)
    for i, start in enumerate((20.0, 60.0)):
        w.reserve(f"r{i}", start, start + 20.0, 1, group="g")
    w.tick()
    w.apply(job(units=20, deadline=100, reservation="g"))
    w.tick()
    assert w.state("j1") == ("True", "Feasible")
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert [line.split()[-2] for line in w.log if " create " in line] == ["[0,12)", "[12,20)"]


def test_a_reduce_step_is_inside_the_window_too():
    w = world(1.0)
    w.reserve("r", 20.0, 60.0, 1, group="g")
    w.tick()
    w.apply(job(units=10, deadline=200, reservation="g", reduce_duration=5.0))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.now < 55.0


def test_a_job_whose_reservation_holds_no_window_is_refused():
    w = world()
    w.apply(job(units=10, deadline=100, reservation="g"))
    w.tick()
    assert w.state("j1") == ("False", "InfeasibleReservation")


def test_a_job_that_was_promised_inside_goes_on_outside_when_its_reservation_is_deleted():
    w = world(1.0)
    w.reserve("r", 30.0, 90.0, 1, group="g")
    w.tick()
    w.apply(job(units=20, deadline=200, reservation="g"))
    w.run(5.0)
    w.unreserve("r")
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.now < 35.0


def test_deleting_a_reservation_frees_its_window():
    w = world(1.0)
    w.reserve("r", 20.0, 1000.0, 1)
    w.tick()
    w.apply(job(units=40, deadline=100))
    w.tick()
    assert w.state("j1")[0] == "False"
    w.unreserve("r")
    w.apply(job("j2", units=40, deadline=100))
    w.tick()
    assert w.state("j2") == ("True", "Feasible")


def test_a_refusal_tells_why_and_the_window_that_is_offered_is_accepted():
    w = world(1.0)
    w.apply(job(units=40, deadline=50))
    w.tick()
    w.reserve("r", 10.5, 30.0, 1)
    w.tick()
    assert w.answers["r"].answer[:2] == ("False", "InfeasibleReservation")
    assert "running chunks will still occupy all but 0" in w.answers["r"].answer.message
    start = w.windows["r"]
    assert start == int(start) > 40.0
    w.reserve("r2", start, start + 19.5, 1)
    w.tick()
    assert w.answers["r2"].answer.status == "True"


def test_more_processors_than_there_are_get_no_offer():
    w = world()
    w.reserve("r", 10.0, 30.0, 3)
    w.tick()
    assert "the pool has 2" in w.answers["r"].answer.message
    assert w.windows == {"r": None}


def test_maintenance_takes_all_processors_of_the_named_node_and_those_only():
    w = world(2.0, "n1", "n2")
    w.reserve("r", 20.0, 60.0, nodes=frozenset({"n2"}))
    w.apply(job(units=120, deadline=100))
    w.tick()
    assert {p.node for p in w.answers["r"].places} == {"n2"}
    assert len(w.answers["r"].places) == 2
    assert most_running(w, 20.0, 60.0, node="n2") == 0
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_node_that_grows_while_it_is_maintained_stays_empty():
    w = world(2.0, "n1", "n2")
    w.reserve("r", 20.0, 60.0, nodes=frozenset({"n2"}))
    w.run(19.0)
    w.node("n2", 4.0)
    w.apply(job(units=100, deadline=100))
    assert most_running(w, 20.0, 60.0, node="n2") == 0


def test_a_reservation_is_told_what_a_lost_node_took_and_has_it_back_when_it_comes_again():
    w = world(1.0, "n1", "n2")
    w.reserve("r", 30.0, 60.0, 2)
    w.run(5.0)
    w.lose("n2")
    w.run(6.0)
    assert w.answers["r"].answer[:2] == ("True", "CapacityLost")
    assert [p.node for p in w.answers["r"].places] == ["n1"]
    w.node("n2", 1.0)
    w.run(7.0)
    assert w.answers["r"].answer[:2] == ("True", "Feasible")
    assert sorted(p.node for p in w.answers["r"].places) == ["n1", "n2"]


def test_an_edit_of_the_pool_that_would_rob_a_reservation_is_not_in_force():
    w = world()
    w.reserve("r", 30.0, 60.0, 2)
    w.run(1.0)
    w.edit_pool(replace(SPEC, generation=2, cpu=2.0))
    w.run(2.0)
    assert w.pool_record.spec_applied[:2] == ("False", "EditRefused")
    assert "1 reservation would lose processors" in w.pool_record.spec_applied.message
    assert len(w.pool.view().reservations["r"]) == 2
    w.edit_pool(replace(SPEC, generation=3, cpu=0.5))
    w.run(3.0)
    assert w.pool_record.spec_applied.status == "True"


def test_a_reservation_moves_to_another_node_where_one_is_lost():
    w = world(1.0, "n1", "n2")
    w.reserve("r", 30.0, 60.0, 1)
    w.tick()
    (place,) = w.answers["r"].places
    w.lose(place.node)
    w.run(1.0)
    assert [p.node for p in w.answers["r"].places] == [({"n1", "n2"} - {place.node}).pop()]


@pytest.mark.parametrize("crash", [5.0, 29.0, 40.0])
def test_a_new_leader_keeps_the_window_and_who_runs_inside(crash):
    w = world(2.0, "n1", "n2")
    w.reserve("r", 30.0, 80.0, 3, group="g")
    w.tick()
    w.apply(job(units=60, deadline=200, reservation="g"))
    w.apply(job("j2", units=150, deadline=250))
    w.run(crash)
    w.crash()
    w.tick()
    assert sum(len(places) for places in w.pool.view().reservations.values()) == 3
    w.run(crash + 1.0)
    inside = 0
    while w.now < 74.0:
        w.run(w.now + 0.25)
        if w.now > 30.0:
            assert len([p for p in running(w) if p.job == "j2"]) <= 1
            inside = max(inside, len([p for p in running(w) if p.job == "j1"]))
    assert inside >= 1
    w.run_until(lambda w: w.done("j1") and w.done("j2"))
    assert w.met("j1")
    assert w.met("j2")


def test_a_pool_that_is_being_deleted_takes_no_reservation():
    w = world()
    w.inbox.append(PoolApplied(w.spec, deleting=True))
    w.reserve("r", 10.0, 30.0, 1)
    w.tick()
    assert w.answers["r"].answer[:2] == ("False", "PoolDeleted")


def test_a_reservation_that_is_told_of_again_is_not_answered_again():
    w = world()
    w.reserve("r", 10.0, 30.0, 1)
    w.tick()
    w.answers.clear()
    w.reserve("r", 10.0, 30.0, 1)
    w.tick()
    assert not w.answers


def test_more_processors_than_were_asked_for_in_what_is_written_down_end_no_leader():
    w = world(2.0, "n1")
    asked = Reservation(uid="r", arrival=w.now, start=30.0, end=80.0, processors=1)
    w.inbox.append(ReservationApplied(asked, (Share("n1", 2),)))
    w.tick()
    assert len(w.pool.view().reservations["r"]) == 2
