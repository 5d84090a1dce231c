"""Stories about fast admission in a Pool: who takes over when, and that every promise is kept whoever decides."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import JobApplied

MANY = 12


def pool(admission: str, *, threshold: int = 4, cpu: float = 2.0, **more) -> World:
    w = World()
    w.edit_pool(replace(w.spec, admission=admission, threshold=threshold, generation=2, **more))
    w.node("n1", cpu)
    w.tick()
    return w


def crowd(w: World, n: int = MANY) -> None:
    for i in range(n):
        w.apply(job(f"j{i}", units=10, deadline=60.0 + 30 * i, arrival=w.now))
    w.tick()


def promised(w: World) -> list[str]:
    return [uid for uid, record in w.records.items() if record.promise]


def kept(w: World) -> bool:
    w.run_until(lambda w: all(w.done(uid) for uid in promised(w)))
    return all(w.met(uid) for uid in promised(w))


def test_hybrid_is_fast_while_many_wait_and_exact_again_when_few_do():
    w = pool("Hybrid")
    crowd(w)
    assert w.pool.view().schedule == "Fast"
    assert len(promised(w)) == MANY
    w.run_until(lambda w: len(w.pool.view().promised) <= 1)
    w.apply(job("last", units=5, deadline=w.now + 400, arrival=w.now))
    w.run(w.now + 1)
    assert w.pool.view().schedule == "Exact", "two wait, less than half of four"
    assert kept(w)


@pytest.mark.parametrize("admission", ["Fast", "Hybrid"])
def test_what_waits_in_a_line_survives_a_new_leader(admission):
    w = pool(admission)
    crowd(w)
    w.run(20)
    w.crash()
    w.run(22)
    before = {uid: w.records[uid].promise.deadline for uid in promised(w)}
    assert len(before) == MANY
    assert kept(w)
    assert {uid: w.records[uid].promise.deadline for uid in promised(w)} == before


@pytest.mark.parametrize("admission", ["Fast", "Hybrid"])
def test_a_processor_lost_is_no_promise_lost_where_there_is_time(admission):
    w = pool(admission)
    w.node("n2", 2.0)
    w.tick()
    crowd(w)
    w.run(8)
    w.lose("n2")
    w.run(12)
    assert kept(w)
    assert len(promised(w)) == MANY


@pytest.mark.parametrize("more", [{"reduce_duration": 3.0}, {"min_processors": 2}, {"max_processors": 1}], ids=str)
def test_what_the_line_cannot_judge_is_judged_exactly(more):
    w = pool("Fast")
    crowd(w, 3)
    assert w.pool.view().schedule == "Fast"
    w.apply(job("odd", units=8, deadline=w.now + 300, arrival=w.now, **more))
    w.run(w.now + 1)
    assert w.state("odd") == ("True", reasons.FEASIBLE)
    assert kept(w)


def test_a_refusal_says_what_the_line_would_take_and_an_offer_is_made():
    w = pool("Fast", cpu=1.0)
    w.apply(job("first", units=50, deadline=60.0))
    w.tick()
    w.apply(job("second", units=40, deadline=70.0))
    w.run(1)
    assert w.state("second") == ("False", reasons.INFEASIBLE_CAPACITY)
    assert "too late" in w.records["second"].admitted.message
    offered = w.records["second"].offer.earliest_deadline
    w.apply(job("third", units=40, deadline=w.now + offered, arrival=w.now))
    w.tick()
    assert w.state("third")[0] == "True"
    assert kept(w)


def test_what_no_test_can_judge_is_told_what_it_is_and_who_stands_in_the_way():
    """Cut into equal parts, as a plan of this pool would be, the second is late; the line keeps it."""
    w = pool("Fast", cpu=3.0, discipline=Discipline(partition="EPR"))
    w.apply(job("first", units=54, deadline=34.0, theta_cp=6.0))
    w.tick()
    w.apply(job("second", units=44, deadline=44.0, theta_cp=0.0))
    w.tick()
    w.apply(job("odd", units=4, deadline=500.0, reduce_duration=3.0))
    w.run(1)
    assert w.records["odd"].admitted.message == (
        "it ends with a reduce step, which fast admission cannot judge; the exact test cannot take over yet: in a plan "
        "of 1 waiting job, the one due in 42s would be late"
    )
    w.run(30)
    w.apply(job("again", units=4, deadline=500.0, reduce_duration=3.0))
    assert kept(w)
    assert w.met("again")


def test_a_job_deleted_in_the_line_makes_room_for_another():
    w = pool("Fast", cpu=1.0)
    w.apply(job("first", units=20, deadline=40.0))
    w.apply(job("second", units=40, deadline=75.0))
    w.tick()
    w.apply(job("third", units=40, deadline=80.0))
    w.run(1)
    assert w.state("third")[0] == "False"
    w.delete("second")
    w.apply(job("fourth", units=40, deadline=80.0, arrival=1.0))
    w.run(2)
    assert w.state("fourth")[0] == "True"
    assert kept(w)


def test_what_runs_slower_than_declared_costs_nobody_else_a_promise():
    w = pool("Fast", cpu=2.0)
    w.workers = lambda uid, _chunk: Worker(pace=2.5 if uid == "j0" else 1.0)
    crowd(w, 6)
    w.run_until(lambda w: all(w.done(uid) for uid in promised(w)))
    assert all(w.met(uid) for uid in promised(w) if uid != "j0")


def test_a_suspended_job_leaves_the_line():
    w = pool("Fast", cpu=1.0)
    w.apply(job("first", units=20, deadline=40.0))
    w.apply(job("second", units=40, deadline=75.0))
    w.tick()
    w.apply(replace(w.jobs["second"], suspend=True, generation=2))
    w.run(2)
    assert w.state("second") == ("False", reasons.SUSPENDED)
    assert "second" not in w.pool.view().promised
    assert kept(w)


def test_the_queue_is_of_those_that_wait_for_their_first_chunk():
    w = pool("Fast", cpu=2.0)
    w.apply(job("first", units=10, deadline=60.0))
    w.apply(job("large", units=100, deadline=75.0))
    w.apply(job("last", units=10, deadline=90.0))
    w.run(1)
    assert list(w.pool.view().promised) == ["large", "last"]
    assert w.records["large"].started is not None
    assert w.pool_record.queue == 1
    assert kept(w)


def test_the_last_node_goes_while_offers_are_searched_for():
    """The line of a pool without processors divided by them, and took the operator with it."""
    w = pool("Fast")
    w.pool.step(w.now, [JobApplied(job(f"j{i}", units=1000, deadline=w.now + 50 + i)) for i in range(MANY)])
    while w.pool.view().undecided:
        w.pool.step(w.now, [])
    assert w.pool.backlog > 1, "a step's budget is not enough for all"
    w.lose("n1")
    w.run(w.now + 1)
    assert not w.pool.backlog
    assert {w.pool.view().state(uid) for uid in w.pool.view().jobs} == {"Refused"}
    w.node("n2", 2.0)
    w.apply(job("late", units=1, deadline=w.now + 50, arrival=w.now))
    w.tick()
    assert w.state("late")[0] == "True"
