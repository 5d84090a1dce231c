"""Stories about edits of a job, in whatever state it is."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.events import Progress, Reported


def small(cpu: float = 2.0, **more) -> World:
    w = World(**more)
    w.node("n1", cpu)
    w.tick()
    return w


def edit(w: World, uid: str = "j1", **more) -> None:
    old = w.jobs[uid]
    w.apply(replace(old, generation=old.generation + 1, **more))


@pytest.mark.parametrize("crash", [False, True], ids=["led", "taken over meanwhile"])
@pytest.mark.parametrize("units", [58, 10], ids=["to what is done", "to less"])
def test_a_job_whose_units_are_edited_down_to_what_is_done_ends(units, crash):
    w = small()
    w.apply(job(units=100, deadline=300, restart="Resume"))
    w.run(60)
    edit(w, suspend=True)
    w.run(62)
    assert w.records["j1"].completed.total == 58
    edit(w, suspend=False, units=units)
    if crash:
        w.crash()
    w.run(70)
    assert w.met("j1")
    assert w.records["j1"].completed.total == units
    assert w.pool_record.queue == 0


def test_a_job_whose_reduce_is_edited_away_ends_when_its_units_are_done():
    w = small()
    w.workers = lambda _j, chunk: Worker(pace=100.0 if chunk.kind == "Reduce" else 1.0)
    w.apply(job(units=10, deadline=300, reduce_duration=10.0))
    w.run_until(lambda w: any(p.chunk.kind == "Reduce" for p in w.pods.values()))
    edit(w, suspend=True)
    w.run(w.now + 2)
    edit(w, suspend=False, reduce_duration=None)
    w.run_until(lambda w: w.done("j1"), within=10)
    assert w.met("j1")


def test_another_number_of_units_while_pilots_measure_is_asked_anew():
    w = small(4.0)
    w.apply(job(units=1000, deadline=600, chi=None))
    w.run(1)
    assert w.state("j1") == ("Unknown", reasons.MEASURING)
    edit(w, units=40)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].completed.total == 40
    assert {u for begin, end in w.processed["j1"] for u in range(begin, end)} == set(range(40))


def test_a_job_that_is_suspended_in_the_moment_in_which_all_is_done_has_ended_and_is_not_suspended():
    w = small(1.0)
    w.apply(job(units=10, deadline=100, restart="Resume"))
    w.run_until(lambda w: any(p.done == 9 for p in w.pods.values()))
    (pod,) = w.pods.values()
    w.inbox.append(Reported("n1", (Progress(pod=pod.uid, done=10, end=None, cpu_seconds=10.0),)))
    w.tick()
    edit(w, suspend=True)
    w.run(w.now + 3)
    assert w.met("j1")
    assert w.state("j1") == ("True", reasons.FEASIBLE)
    assert f"event j1 {reasons.SUSPENDED}" not in " ".join(w.log)


def test_another_deadline_for_a_job_on_leftovers_is_written_down():
    w = World()
    for name in ("n1", "n2"):
        w.node(name, 1.0)
    w.apply(job(units=100, deadline=60, min_processors=2))
    w.run(10)
    w.lose("n2")
    w.run(12)
    assert w.records["j1"].on_track[:2] == ("False", reasons.CAPACITY_LOST)
    edit(w, deadline=400.0)
    w.run(13)
    assert w.records["j1"].promise.deadline == 400
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].completed_condition.reason == reasons.COMPLETED


def test_the_offer_for_an_earlier_question_is_not_shown_for_a_new_one():
    w = small(1.0)
    for n in range(40):  # searches that come first
        w.apply(job(f"x{n}", units=500, deadline=20 + n / 10))
    w.apply(job(units=50, deadline=20.0))
    w.now += 0.25
    w.carry_out(w.pool.step(w.now, w._mail()))
    while w.pool.view().undecided:
        w.carry_out(w.pool.step(w.now, []))
    assert w.state("j1") == ("False", reasons.INFEASIBLE_CAPACITY)
    assert w.records["j1"].offer is None
    edit(w, min_processors=8)  # what the pool has not got at any time
    w.run(10)
    assert w.state("j1") == ("False", reasons.INFEASIBLE_CAPACITY)
    assert w.records["x39"].offer is not None
    assert w.records["j1"].offer.earliest_deadline is None
    assert w.records["j1"].offer.largest_load == 0


@pytest.mark.parametrize(
    ("edited", "named"),
    [
        ({"deadline": 60.0}, "a deadline 59s from now would"),
        ({"max_processors": 1}, "processors.min 1, max 1 would"),
        ({"deadline": 105.0, "max_processors": 1}, "a deadline 1m44s from now with processors.min 1, max 1 would"),
    ],
    ids=["earlier", "fewer processors", "a little later with fewer processors"],
)
def test_a_refused_edit_names_what_it_requested(edited, named):
    w = small()
    w.apply(job("first", units=40, deadline=40))
    w.apply(job(units=100, deadline=100))  # waits, and needs both processors then
    w.run(1)
    assert w.state("j1") == ("True", reasons.FEASIBLE)
    edit(w, **edited)
    w.run(2)
    refused = w.records["j1"].spec_applied
    assert refused[:2] == ("False", reasons.EDIT_REFUSED)
    assert refused.message.startswith(named), refused.message
