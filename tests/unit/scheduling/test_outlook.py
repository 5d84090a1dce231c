"""What a pool's view says of its processors, as metrics show it: running, promised, free until when, reserved."""

import pytest
from world import World, job

from punctual.scheduling.model.pool_spec import PoolSpec


def world(cpu=4.0, **spec):
    w = World(spec=PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0, **spec))
    w.node("n1", cpu)
    w.tick()
    return w


def seen(w):
    return w.pool.view().outlook(w.now)


def test_an_idle_pool_promises_and_reserves_nothing():
    assert seen(world()) == (0, 0, None, 0, None)
    assert seen(World()) == (0, 0, None, 0, None)


def test_work_that_waits_behind_other_work_is_promised_processors():
    w = world()
    w.apply(job("a", units=180, deadline=100))
    w.apply(job("b", units=180, deadline=100))
    w.run(2)
    assert [w.state(uid)[0] for uid in "ab"] == ["True", "True"]
    view = w.pool.view()
    places = {piece.place for uid in "ab" for piece in view.planned(uid)}
    assert seen(w)[:2] == (4 - view.free, len(places))
    w.apply(job("c", units=10, deadline=300, arrival=w.now))
    w.run(4)
    assert w.state("c")[0] == "True"
    assert seen(w).promised == len({piece.place for uid in "abc" for piece in w.pool.view().planned(uid)}) > 0
    assert seen(w).free_until is None, "no free processor has to wait"
    w.run_until(lambda w: all(w.done(uid) for uid in "abc"))
    w.run(w.now + 5)
    assert seen(w) == (0, 0, None, 0, None)


def test_a_job_inside_a_window_lets_processors_be_free_until_the_window_begins():
    w = world()
    w.reserve("r", 40.0, 90.0, 2, group="night")
    w.reserve("later", 200.0, 210.0, 1)
    w.apply(job("inside", units=20, deadline=80, reservation="night"))
    w.run(2)
    assert w.state("inside")[0] == "True"
    (planned,) = {piece.start for piece in w.pool.view().planned("inside")}
    count = len({piece.place for piece in w.pool.view().planned("inside")})
    assert seen(w) == (0, count, planned, 0, 40.0)
    assert planned == pytest.approx(40.0, abs=0.01)
    w.run(45)
    assert seen(w) == (count, 0, None, 2, 200.0)
    w.run(91)
    assert seen(w) == (0, 0, None, 0, 200.0)


def test_a_reduce_step_that_waits_for_its_chunks_is_promised_a_processor():
    w = world(1.0)
    w.apply(job(units=10, deadline=100, reduce_duration=5.0))
    w.run(5)
    assert seen(w)[:3] == (1, 1, None)


def test_a_pod_that_lost_its_processor_still_counts_as_one_that_runs():
    w = world(2.0)
    w.apply(job(units=180, deadline=100))
    w.run(5)
    assert seen(w).running == 2
    w.node("n1", 1.0)
    w.run(6)
    assert (seen(w).running, w.pool.view().processors, w.pool.view().free) == (2, 1, 0)


def test_a_queue_promises_work_without_processors():
    w = world(1.0, admission="Fast")
    w.apply(job("a", units=60, deadline=300))
    w.apply(job("b", units=60, deadline=300))
    w.run(3)
    assert [w.state(uid)[0] for uid in "ab"] == ["True", "True"]
    assert seen(w)[:3] == (1, 0, None)
