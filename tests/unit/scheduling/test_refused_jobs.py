"""Stories about refused jobs: they are finished, their time to live counts, and an edit asks again."""

from dataclasses import replace

import pytest
from world import World, job

from punctual import reasons


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
