"""Stories about chunks of jobs without a promise: they go on unless promised work cannot do without their processor."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.verdict import Verdict


def pool(count: int, **more) -> World:
    w = World(**more)
    for n in range(count):
        w.node(f"n{n}", 1.0)
    w.tick()
    return w


def overrun(w: World, units: int = 40, *, pace: float = 4.0, answers: bool = False, **more) -> None:
    """Let ``slow`` take ``pace`` times as long as declared, until its promise is given up; its chunk goes on."""
    w.workers = lambda uid, _c: Worker(pace=pace, answers=answers) if uid == "slow" else Worker()
    w.apply(job("slow", units=units, deadline=units + 6.0, **more))
    w.tick()
    w.run_until(lambda w: w.records["slow"].on_track.reason == reasons.OVERRUN)


def ended(w: World, uid: str = "slow") -> list[str]:
    """Return what was said when chunks of a job were ended."""
    return [text for job, reason, text in w.said if job == uid and reason == reasons.CAPACITY_LOST]


def whole(w: World, uid: str, units: int) -> bool:
    """Whether all units of a job were done by one chunk, once."""
    return w.processed[uid] == [(0, units)]


def test_a_chunk_that_overran_goes_on_where_a_promised_job_can_wait_until_it_ends():
    w = pool(1)
    w.workers = lambda uid, _c: Worker(pace=1.5, answers=False) if uid == "slow" else Worker()
    w.apply(job("slow", units=40, deadline=48.0))
    w.run(1)
    w.apply(job("b", units=20, deadline=1000.0, arrival=1.0))
    w.run_until(lambda w: w.done("slow") and w.done("b"))
    assert w.records["slow"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert whole(w, "slow", 40)
    assert w.met("b")


def test_other_free_processors_are_taken_first():
    w = pool(4)
    overrun(w, max_processors=1)
    for k in range(3):
        w.apply(job(f"b{k}", units=30, deadline=w.now + 200, arrival=w.now))
        w.run(w.now + 1)
    w.apply(job("c", units=30, deadline=w.now + 90, arrival=w.now))  # behind one of them
    w.run_until(lambda w: w.done("slow"))
    assert whole(w, "slow", 40)
    w.run_until(lambda w: w.done("c"))
    assert all(w.met(uid) for uid in ("b0", "b1", "b2", "c"))


def test_where_a_promised_job_cannot_wait_the_chunk_is_asked_in_time_and_told_why():
    w = pool(1)
    overrun(w, units=60)
    w.apply(job("b", units=20, deadline=w.now + 60, arrival=w.now, namespace="other"))
    w.run_until(lambda w: bool(ended(w)))
    (text,) = ended(w)
    assert text == (
        "units 0-60, attempt 1: its processor is needed for a promised job of another namespace, which has no time to "
        "wait until the chunk ends, in 3m5s; asked to stop early, it did not within 2.5s"
    )
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")


def test_a_job_of_the_same_namespace_is_named():
    w = pool(1)
    overrun(w, units=60)
    w.apply(job("b", units=20, deadline=w.now + 35, arrival=w.now))
    w.run_until(lambda w: bool(ended(w)))
    assert "is needed for the promised job b, which has no time to wait until the chunk ends, in " in ended(w)[0]
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")


def test_a_new_promise_may_count_on_the_processor_after_notice():
    """Letting chunks stay refuses nothing: what needs the processor soon is promised, and has it."""
    w = pool(1)
    overrun(w, units=60)
    w.apply(job("far", units=20, deadline=w.now + 900, arrival=w.now))
    w.run(w.now + 2)
    w.apply(job("near", units=20, deadline=w.now + 33, arrival=w.now))
    w.run(w.now + 1)
    assert w.state("near") == ("True", reasons.FEASIBLE)
    w.run_until(lambda w: w.done("near") and w.done("far"))
    assert w.met("near")
    assert w.met("far")


@pytest.mark.parametrize("admission", ["Fast", "Hybrid"])
def test_a_queue_takes_free_processors_first(admission):
    w = pool(8)
    w.edit_pool(
        replace(w.spec, admission=admission, generation=2, **({"threshold": 1} if admission == "Hybrid" else {}))
    )
    overrun(w, max_processors=1)
    for k in range(4):
        w.apply(job(f"b{k}", units=10, deadline=w.now + 100, arrival=w.now))
        w.run(w.now + 1)
    w.run_until(lambda w: w.done("slow"))
    assert whole(w, "slow", 40)
    assert all(w.met(f"b{k}") for k in range(4))


def test_processors_that_wait_for_others_to_begin_with_are_lent_until_then():
    w = pool(4)
    w.apply(job("f", units=240, deadline=130, min_processors=2, max_processors=2))
    w.run(1)
    w.apply(job("left", units=118, deadline=130, arrival=1.0))
    w.run(2)
    w.apply(job("min4", units=40, deadline=200, arrival=2.0, min_processors=4))
    w.run(3)
    given_up = Verdict("False", reasons.OVERRUN, "its units take longer than declared")
    w.records["left"] = w.records["left"]._replace(on_track=given_up, chunks=())
    w.pods = {name: pod for name, pod in w.pods.items() if pod.job != "left"}
    w.crash()
    w.run(4)
    assert len(w.records["left"].chunks) == 2, "both processors that wait for the others are lent"
    w.run_until(lambda w: bool(w.records["min4"].chunks))
    assert len(w.records["min4"].chunks) == 4
    assert not ended(w, "left"), "its chunks had ended before"
    w.run_until(lambda w: w.done("min4"))
    assert w.met("min4")
