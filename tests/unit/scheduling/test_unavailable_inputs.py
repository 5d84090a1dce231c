"""Stories about inputs with a server that is busy or not up: until the deadline, no job pays for that with a retry."""

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.pool_spec import PoolSpec

CONCURRENT = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0)
ONE_PORT = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0, discipline=Discipline(network="OnePort"))


def world(worker, *, spec: PoolSpec = CONCURRENT, nodes: int = 2) -> World:
    w = World(spec=spec)
    for n in range(nodes):
        w.node(f"n{n}", 1.0)
    w.workers = lambda uid, _chunk: worker(w, uid)
    w.tick()
    return w


def fetching(uid: str = "j1", **more):
    more = {"units": 20, "deadline": 200.0, "chi": 1.0, "tau": 0.1, "theta_cm": 0.5, "chunk_retries": 0, **more}
    return job(uid, fetches=True, stall_timeout=10.0, **more)


def until(end: float, *, hangs: bool = False):
    """Return workers of a server that sends nothing before a time; if it ``hangs``, only the operator sees that."""
    away = Worker(fetch_hangs=True) if hangs else Worker(unavailable=10.0)
    return lambda w, _uid: away if w.now < end else Worker()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("spec", [CONCURRENT, ONE_PORT])
def test_a_server_that_is_away_for_a_while_fails_no_job(spec, hangs):
    w = world(until(60.0, hangs=hangs), spec=spec)
    w.apply(fetching())
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    told = [text for _, reason, text in w.said if reason == reasons.INPUT_UNAVAILABLE]
    assert told
    assert all("not counted as a failure before the deadline" in text for text in told)
    assert not [reason for _, reason, _ in w.said if reason in {reasons.CHUNK_FAILED, reasons.STALLED}]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_server_that_never_comes_fails_the_job_after_its_deadline_with_the_reason(hangs):
    w = world(until(10_000.0, hangs=hangs))
    w.apply(fetching(chunk_retries=1))
    w.run_until(lambda w: w.done("j1"), within=2000)
    assert w.now > 200.0
    record = w.records["j1"]
    assert record.failed_condition.reason == reasons.INPUT_UNAVAILABLE
    assert "failed 2 times" in record.failed_condition.message
    assert record.on_track.status == "False"
    w.run(w.now + 30.0)
    assert not [pod for pod in w.pods.values() if pod.phase in {"Pending", "Running"}]


def test_a_job_that_has_lost_its_time_to_its_server_says_so_and_is_done_late():
    w = world(until(75.0))
    w.apply(fetching(deadline=100.0, max_processors=1))
    w.run(5.0)
    w.run_until(lambda w: w.records["j1"].on_track.status == "False", within=100)
    assert w.records["j1"].on_track.reason == reasons.INPUT_UNAVAILABLE
    w.run_until(lambda w: w.done("j1"))
    assert w.records["j1"].completed.total == 20


def test_steps_that_give_up_at_once_are_repeated_later_each_time():
    """As where the server asks to come again in an hour."""
    w = world(lambda _w, _uid: Worker(unavailable=0.5))
    w.apply(fetching(deadline=1000.0, max_processors=1))
    w.run(900.0)
    assert 5 <= w.serial <= 9


def test_a_job_without_an_input_does_not_wait_for_the_server_of_another():
    w = world(lambda _w, uid: Worker(unavailable=10.0) if uid == "j1" else Worker())
    w.apply(fetching(max_processors=1))
    w.run(5.0)
    w.apply(job("other", units=20, deadline=60.0, arrival=w.now))
    w.run_until(lambda w: w.done("other"))
    assert w.met("other")
