"""The ETA of a promised job follows what its chunks report, before any of them is past its planned end."""

import random
from dataclasses import replace

import pytest
from world import TICK, Worker, World, job

from punctual import reasons
from punctual.kube.known.translate import job_state
from punctual.scheduling.model.actions import WriteStatus
from punctual.scheduling.model.events import JobDeleted, Progress, Reported
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state import tracking
from punctual.scheduling.state.forecast import forecast_end, units_by
from punctual.scheduling.state.job_state import ChunkObservation
from punctual.scheduling.state.statuses import TELL
from punctual.scheduling.state.tracking import Hindrance


def running(pace: float, *, startup: float = 1.0, deadline: float = 400.0, units: int = 80, cpu: float = 2.0) -> World:
    w = World(startup=startup)
    w.node("n1", cpu)
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


# a job that will be late


def state_of(w: World, uid: str = "j1") -> str:
    return job_state(w.records[uid])


def history(w: World, uid: str = "j1") -> list[tuple[float, str, float | None]]:
    """Run until the job has ended; return (time, state, ETA) of each of its statuses."""
    seen = []
    for _ in range(8000):
        if w.done(uid):
            return seen
        w.run(w.now + TICK)
        record = w.records[uid]
        if not record.ended:
            seen.append((w.now, state_of(w, uid), record.eta))
    raise AssertionError("it has not ended")


def test_a_job_with_units_that_cost_nine_times_as_declared_is_late_within_a_few_reports_and_stays_so_to_its_end():
    w = running(9.0, units=40, deadline=60.0)
    w.run(1.0)
    before = w.records["j1"].started
    w.apply(job("other", units=40, deadline=500.0, arrival=w.now))
    seen = history(w)
    told = next(at for at, state, _ in seen if state == "Late")
    assert told <= before + 1 + 2 * 9 + 6, "two units, to have a pace, and a few reports"
    assert told < 40, "before its planned end"
    assert [state for _, state, _ in seen if state != "Late"] == ["Running"] * sum(at < told for at, *_ in seen)
    late = [(at, eta) for at, state, eta in seen if state == "Late"]
    assert all(eta is not None and eta > 60.0 and eta >= at - 1.0 for at, eta in late)
    assert w.records["j1"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert w.records["j1"].on_track[:2] == ("False", reasons.OVERRUN)
    assert (w.warned & {("j1", reasons.LATE), ("j1", reasons.OVERRUN)}) == {
        ("j1", reasons.LATE),
        ("j1", reasons.OVERRUN),
    }


@pytest.mark.parametrize("part", [0.3, 0.5, 0.8])
def test_the_eta_of_a_job_without_its_promise_is_right_within_a_fifth(part):
    def late() -> World:
        return running(4.0, units=40, deadline=60.0, cpu=1.0)

    ended = late().run_until(lambda w: w.done("j1")).now
    w = late()
    w.run(ended * part)
    assert w.records["j1"].on_track.status == "False"
    assert w.records["j1"].eta - w.now == pytest.approx(ended - w.now, rel=0.2, abs=4.0)


def test_a_job_that_is_done_in_time_at_the_last_moment_was_never_late():
    w = running(1.0, units=40, deadline=45.5, startup=2.0)
    seen = history(w)
    assert w.met("j1")
    assert {state for _, state, _ in seen} <= {"Waiting", "Running"}


@pytest.mark.parametrize("pace", [0.97, 1.0, 1.04])
@pytest.mark.parametrize("seed", range(4))
def test_noise_of_single_reports_does_not_make_the_condition_flap(pace, seed):
    """Reports come up to a second late, and units take up to a half more or less."""
    noise = random.Random(seed)
    w = running(1.0, units=200, deadline=215.0)
    w.run(3.0)
    (pod,) = w.pods.values()
    turns = 0
    while not w.done("j1"):
        before = w.records["j1"].on_track.status
        if w.now % 1.0 == 0.0:
            w.set_worker(pod, Worker(pace=pace * noise.uniform(0.5, 1.5)))
        w.silent_agents = {"n1"} if noise.random() < 0.3 else set()
        w.run(w.now + TICK)
        turns += w.records["j1"].on_track.status != before
    assert turns <= 2


def test_a_pod_that_does_not_start_makes_its_job_late_before_the_planned_end():
    w = World()
    w.node("n1", 2.0)
    w.tick()
    w.workers = lambda _j, _c: Worker(never_starts="ContainerCreating")
    w.apply(job(units=40, deadline=60.0))
    w.run(1.0)
    w.run_until(lambda w: state_of(w) == "Late")
    assert w.now <= 60.0 - 40.0 + 4.0, "from then on, its units no longer fit before the deadline"
    assert w.records["j1"].eta > 60.0


def test_what_a_fact_says_counts_more_than_the_forecast_and_ends_with_it(monkeypatch):
    facts: list[Hindrance] = []
    monkeypatch.setattr(tracking, "hindrance", lambda _st: next(iter(facts), None))
    w = running(1.0)
    w.run(5.0)
    facts.append(Hindrance(reasons.IMAGE_UNAVAILABLE, "no such image"))
    w.run(6.0)
    assert w.records["j1"].on_track == ("False", reasons.IMAGE_UNAVAILABLE, "no such image")
    assert state_of(w) == "Late"
    facts.clear()
    w.run(16.0)
    assert w.records["j1"].on_track[:2] == ("True", reasons.ON_TRACK)


def test_a_new_leader_does_not_take_a_late_job_for_one_on_track_until_it_has_seen_its_pace():
    w = running(3.0, units=40, deadline=60.0)
    w.run(25.0)
    assert state_of(w) == "Late"
    eta = w.records["j1"].eta
    w.crash()
    for _ in range(40):
        w.run(w.now + TICK)
        assert state_of(w) == "Late"
        assert w.records["j1"].eta >= eta - 10.0


def test_another_deadline_is_compared_with_the_forecast_at_once():
    w = running(1.6, units=40, deadline=52.0)
    w.run(25.0)
    assert state_of(w) == "Late"
    w.apply(replace(w.jobs["j1"], deadline=150.0, generation=2))
    w.run(w.now + TICK)
    assert w.records["j1"].on_track[:2] == ("True", reasons.ON_TRACK)


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


@pytest.mark.parametrize(
    ("steps", "at", "now", "units"),
    [
        ([(10.0, 5), (20.0, 10)], 30.0, 20.0, 15),
        ([(10.0, 5), (20.0, 10)], 31.9, 20.0, 15),  # the next one is not done by then
        ([(10.0, 5), (20.0, 10)], 30.0, 21.9, 15),  # the unit under way ends now at the earliest
        ([(10.0, 5), (20.0, 10)], 30.0, 24.0, 14),  # and no later one has been begun, whatever the pace was
        ([(10.0, 5), (20.0, 10)], 19.0, 20.0, 10),  # what is done stays done
        ([(10.0, 5)], 14.0, 10.0, 7),  # no pace yet: its start-up counts
        ([], 14.0, 10.0, None),
        ([(10.0, 5), (20.0, 10)], 30.0, 26.0, None),  # its agent is silent
    ],
)
def test_what_a_chunk_will_have_done_follows_from_its_reports(steps, at, now, units):
    watch = ChunkObservation(running_since=0.0)
    for when, done in steps:
        watch.report_done(when, done)
    watch.reported = min(now, 20.0) if now > 25.0 else now
    assert units_by(at, watch, now=now) == units


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
