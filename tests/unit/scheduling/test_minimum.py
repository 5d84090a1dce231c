"""Stories about processors.min: the first pods of a job are created together, at least so many, or not at all."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import Promise
from punctual.scheduling.model.pool_spec import PoolSpec


def busy(count: int = 10, *, of: int = 12, until: float = 20.0, **spec) -> World:
    """A pool of which ``count`` processors are busy for some time."""
    w = World(spec=replace(PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0), **spec))
    w.node("n0", float(of))
    w.tick()
    w.apply(job("long", units=int(until - 2) * count, deadline=until + 5.0, min_processors=count, max_processors=count))
    w.run(1)
    assert len(w.records["long"].chunks) == count
    return w


def first_dispatch(w: World, uid: str, within: float = 100.0) -> tuple[float, int]:
    """Return when the first pods of a job were created, and how many."""
    w.run_until(lambda w: bool(w.records[uid].chunks), within)
    return w.now, len(w.records[uid].chunks)


def test_a_job_waits_until_its_minimum_is_free_and_begins_there_in_one_step():
    w = busy()
    w.apply(job("min8", units=12, deadline=60.0, arrival=1.0, min_processors=8, max_processors=8))
    w.run(3)
    assert w.state("min8") == ("True", reasons.FEASIBLE)
    assert w.records["min8"].promise.processors == 8
    at, count = first_dispatch(w, "min8")
    assert (19 <= at <= 22, count) == (True, 8)
    w.run_until(lambda w: w.done("min8"))
    assert w.met("min8")


def test_more_processors_may_join_those_that_begin_together():
    w = busy()
    w.apply(job("many", units=100, deadline=40.0, arrival=1.0, min_processors=4))
    w.run(2)
    assert w.records["many"].promise.processors > 4
    assert first_dispatch(w, "many")[1] >= 4
    w.run_until(lambda w: w.done("many"))
    assert w.met("many")


def test_a_refusal_says_when_so_many_are_free_together_and_what_it_offers_is_promised():
    w = busy()
    asked = job("min8", units=12, deadline=18.0, arrival=1.0, min_processors=8, max_processors=8)
    w.apply(asked)
    w.run(2)
    assert w.state("min8") == ("False", reasons.INFEASIBLE_CAPACITY)
    said = w.records["min8"].admitted.message
    assert said == (
        "12 units due in 15s must begin on 8 processors at one time (spec.processors.min); 8 processors are free "
        "together from 19s on; 6 more processors would do, for 4.8s from now"
    )
    within = w.records["min8"].offer.earliest_deadline
    w.apply(replace(asked, uid="again", name="again", arrival=w.now, deadline=w.now + within))
    w.run(3)
    assert w.state("again") == ("True", reasons.FEASIBLE)
    assert first_dispatch(w, "again")[1] == 8


def test_fewer_units_than_processors_are_refused_with_both_numbers():
    w = busy(1)
    w.apply(job("few", units=5, deadline=900.0, min_processors=8))
    w.run(2)
    assert w.state("few") == ("False", reasons.INVALID_SPEC)
    assert w.records["few"].admitted.message == (
        "spec.processors.min is 8, but spec.units is 5: each processor needs at least one unit, so set processors.min "
        "to 5 or less"
    )
    w.apply(job("enough", units=8, deadline=900.0, min_processors=8))
    w.run(3)
    assert first_dispatch(w, "enough")[1] == 8


def test_an_edit_that_asks_for_more_processors_than_units_is_refused():
    w = busy(12)
    w.apply(job("a", units=5, deadline=90.0, arrival=1.0))
    w.run(2)
    assert not w.records["a"].chunks
    w.apply(replace(w.jobs["a"], min_processors=6, generation=2))
    w.run(3)
    status, reason, text = w.records["a"].spec_applied
    assert (status, reason) == ("False", reasons.EDIT_REFUSED)
    assert text == (
        "processors.min 6, max none would need at least 6 units, but it has 5; the previous promise stays in force"
    )


def test_one_of_them_that_is_lost_just_before_is_replaced_or_waited_for():
    w = busy(4, of=4)
    w.node("n1", 4.0)
    w.run(1.25)
    w.apply(job("more", units=30, deadline=30.0, arrival=1.0, min_processors=2, max_processors=2))
    w.run(2)
    w.apply(job("min6", units=60, deadline=80.0, arrival=2.0, min_processors=6, max_processors=6))
    w.run(15)
    assert w.records["min6"].promise.processors == 6
    assert not w.records["min6"].chunks
    w.node("n2", 4.0)
    w.lose("n1")  # with two processors that it was to begin on
    w.run(16)
    assert first_dispatch(w, "min6")[1] == 6
    w.run_until(lambda w: w.done("min6"))
    assert w.met("min6")


def test_once_it_has_begun_the_minimum_no_longer_binds():
    w = World()
    w.node("n0", 4.0)
    w.node("n1", 4.0)
    w.tick()
    w.apply(job("a", units=80, deadline=200.0, min_processors=8))
    w.run(2)
    assert len(w.records["a"].chunks) == 8
    w.lose("n1")
    w.run(3)
    assert w.records["a"].on_track.status == "True"
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_all_are_lost_and_it_goes_on_with_fewer():
    w = World()
    w.node("n0", 2.0)
    w.node("n1", 4.0)
    w.tick()
    w.apply(job("f", units=200, deadline=210.0, min_processors=2, max_processors=2))
    w.run(2)
    w.apply(job("a", units=40, deadline=200.0, arrival=2.0, min_processors=4))
    w.run(4)
    before = len(w.records["a"].chunks)
    w.lose("n1")
    w.node("n2", 1.0)
    w.run(6)
    assert before == 4
    assert w.records["a"].on_track.status == "True"
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_a_job_that_pilots_have_measured_begins_with_its_minimum_too():
    w = World()
    w.node("n0", 8.0)
    w.tick()
    w.apply(job("a", units=200, chi=None, deadline=400.0, min_processors=6))
    w.tick()
    w.run_until(lambda w: w.records["a"].promise is not None)
    assert w.records["a"].completed
    w.run_until(lambda w: any(c.kind == "Chunk" for c in w.records["a"].chunks))
    assert len(w.records["a"].chunks) >= 6


@pytest.mark.parametrize("crash", [False, True])
def test_over_one_port_their_pods_are_created_in_one_step_and_transfers_follow_each_other(crash):
    w = busy(4, of=6, discipline=Discipline(network="OnePort"))
    asked = job("a", units=30, deadline=120.0, arrival=1.0, tau=0.1, theta_cm=0.5, min_processors=5)
    w.apply(replace(asked, fetches=True))
    w.run(4)
    assert w.state("a")[0] == "True"
    if crash:
        w.crash()
    assert first_dispatch(w, "a")[1] >= 5
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_they_begin_together_around_a_window():
    w = World()
    w.node("n0", 4.0)
    w.tick()
    w.reserve("r", 10.0, 30.0, processors=2)
    w.run(1)
    w.apply(job("a", units=60, deadline=90.0, arrival=1.0, min_processors=4))
    w.run(2)
    assert w.state("a")[0] == "True"
    assert first_dispatch(w, "a")[1] == 4
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_a_promise_of_an_earlier_version_on_fewer_processors_stands():
    w = busy(10, until=60.0)
    w.apply(job("old", units=12, deadline=30.0, arrival=1.0, max_processors=8))
    w.run(1.25)
    w.pods = {name: pod for name, pod in w.pods.items() if pod.job != "old"}
    kept = w.records["old"]
    w.records["old"] = kept._replace(chunks=(), started=None, promise=Promise(30.0, 20.0, 2.0, 2, 2.0))
    w.jobs["old"] = replace(w.jobs["old"], min_processors=8)
    w.crash()
    w.run(3)
    assert w.records["old"].on_track.status == "True"
    w.run_until(lambda w: w.done("old"))
    assert w.met("old")


@pytest.mark.parametrize("held", [Worker(), Worker(pace=1.4)], ids=["as planned", "late"])
def test_a_processor_that_ends_late_is_waited_for(held):
    w = busy()
    for pod in w.pods.values():
        w.set_worker(pod, held)
    w.apply(job("min12", units=24, deadline=90.0, arrival=1.0, min_processors=12))
    w.run(2)
    assert first_dispatch(w, "min12")[1] == 12
    w.run_until(lambda w: w.done("min12"))
    assert w.met("min12")
