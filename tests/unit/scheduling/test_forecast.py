"""The ETA of a promised job follows what its chunks report, before any of them is past its planned end."""

import pytest
from world import Worker, World, job

from punctual.scheduling.model.actions import WriteStatus
from punctual.scheduling.model.events import JobDeleted, Progress, Reported
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.job_state import ChunkObservation, forecast_end
from punctual.scheduling.state.statuses import TELL


def running(pace: float, *, startup: float = 1.0, deadline: float = 400.0, units: int = 80) -> World:
    w = World(startup=startup)
    w.node("n1", 2.0)
    w.tick()
    w.workers = lambda _j, _c: Worker(pace=pace)
    w.apply(job(units=units, deadline=deadline))
    return w


@pytest.mark.parametrize("pace", [0.5, 0.8, 1.0, 1.3])
def test_a_third_of_the_way_the_eta_is_right_within_a_tenth(pace):
    w = running(pace)
    ended = running(pace).run_until(lambda w: w.done("j1")).now
    w.run(ended / 3)
    assert w.records["j1"].eta == pytest.approx(ended, rel=0.1)


def test_a_slow_start_is_no_slow_work():
    w = running(1.0, startup=12.0)
    w.run(20.0)
    record = w.records["j1"]
    assert record.done > 0
    assert record.eta <= record.promise.finish + 12


def test_work_three_times_as_slow_shows_at_once_though_later_help_makes_it_faster():
    w = running(3.0)
    planned = running(3.0).run(1.0).records["j1"].promise.finish
    w.run(20.0)
    assert w.now < planned / 2
    assert w.records["j1"].eta > 2 * planned
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_node_that_is_suddenly_half_as_fast_shows_before_the_planned_end():
    w = running(1.0)
    w.run(15.0)
    planned = w.records["j1"].eta
    w.set_rate("n1", 0.5)
    w.run(30.0)
    assert w.now < planned
    assert w.records["j1"].eta > planned + 10
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


CHUNK = Chunk(begin=0, end=100, origin=100, node="n1", attempt=1, created=0.0, promised_end=110.0)


@pytest.mark.parametrize(
    ("steps", "now", "end"),
    [
        ((), 50.0, 110.0),  # as planned
        (((10.0, 1),), 50.0, 110.0),  # one report is no pace: it contains the start-up
        (((10.0, 1), (20.0, 11)), 20.0, 20.0 + 89),
        (((10.0, 1), (20.0, 6)), 20.0, 20.0 + 2 * 94),
        (((10.0, 1), (20.0, 6)), 40.0, 40.0 + 2 * 93),  # the unit under way ends now at the earliest
        (((10.0, 1), (20.0, 6)), 20.5, 20.0 + 2 * 94),
        (((10.0, 1), (14.0, 3)), 14.0, 110.0),  # nor are reports of a few seconds
        (((10.0, 1), (10.0, 100)), 10.0, 10.0),
        (((10.0, 1), (20.0, 100)), 30.0, 30.0),
    ],
)
def test_the_pace_is_that_between_the_first_and_the_last_step(steps, now, end):
    watch = ChunkObservation(running_since=2.0)
    for at, done in steps:
        watch.report_done(at, done)
    assert forecast_end(CHUNK, watch, now=now) == pytest.approx(end)


def test_a_deleted_job_does_not_hold_up_the_progress_of_another():
    w = World()
    w.node("n1", 2.0)
    w.tick()
    for uid in ("j1", "j2"):
        w.apply(job(uid, units=20, deadline=400.0, max_processors=1))
    w.run(5.0)
    chunks = {uid: next(p for p in w.pods.values() if p.job == uid) for uid in ("j1", "j2")}

    def report(now: float, done: int) -> list:
        told = tuple(Progress(pod=p.uid, done=done, end=None, cpu_seconds=now, over=False) for p in chunks.values())
        return w.pool.step(now, [Reported("n1", told)])

    assert {a.job for a in report(w.now + TELL, 7) if isinstance(a, WriteStatus)} == {"j1", "j2"}
    at = w.now + 1.5 * TELL
    assert not [a for a in report(at, 8) if isinstance(a, WriteStatus)]  # so soon, both wait
    assert [a.job for a in w.pool.step(at + TELL, [JobDeleted("j1")]) if isinstance(a, WriteStatus)] == ["j2"]
