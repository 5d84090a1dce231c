"""Stories about jobs with the pods of a Job: what its controller counts, and chunks that get no pod of their own."""

from world import World, job

from punctual import reasons
from punctual.scheduling.model.events import CreateRefused, UnitsCounted
from punctual.scheduling.model.ranges import Ranges


def world(*, units=6, nodes=2, deadline=200.0, **more):
    """Return a world in which a job of unit pods has begun."""
    w = World()
    for n in range(nodes):
        w.node(f"n{n}", 1.0)
    w.tick()
    w.apply(job("nightly", units=units, chi=2.0, deadline=deadline, unit_pods=True, **more))
    w.tick()
    return w


def begins(w):
    return sorted(chunk.begin for chunk in w.records["nightly"].chunks)


def test_the_lowest_units_begin_first():
    w = world(units=9, deadline=28.0)
    assert begins(w) == [0, 1]


def test_units_that_an_earlier_promise_has_done_are_not_done_again():
    w = world(units=6, nodes=1)
    w.inbox.append(UnitsCounted("nightly", Ranges.of((2, 6))))
    w.run_until(lambda w: w.done("nightly"))
    assert sum(end - begin for begin, end in w.processed["nightly"]) == 2


def test_a_job_with_all_units_done_ends():
    w = world(units=6)
    w.run(1)
    w.inbox.append(UnitsCounted("nightly", Ranges.of((0, 6))))
    w.run_until(lambda w: w.done("nightly"))
    assert sum(end - begin for begin, end in w.processed["nightly"]) <= 2


def test_a_job_fails_with_its_controller_and_leaves_the_pool():
    w = world(units=6)
    w.inbox.append(UnitsCounted("nightly", Ranges(), "the Job has failed: BackoffLimitExceeded"))
    w.run(w.now + 20)
    record = w.records["nightly"]
    assert (record.failed_condition.reason, record.chunks) == (reasons.JOB_FAILED, ())
    w.apply(job("next", units=4, deadline=w.now + 30, arrival=w.now))
    w.run_until(lambda w: w.done("next"))
    assert w.met("next")


def test_a_chunk_without_a_pod_does_the_unit_that_has_one():
    w = world(units=6, nodes=1)
    (chunk,) = w.records["nightly"].chunks
    del w.pods[f"nightly-Chunk-0-{chunk.attempt}"]
    refused = CreateRefused(
        job="nightly", kind="Chunk", begin=0, attempt=chunk.attempt, message="", taken=True, instead=3
    )
    w.inbox[:] = [refused]
    w.tick()
    assert begins(w) == [3]
    w.run_until(lambda w: w.done("nightly"))
    assert w.met("nightly")
