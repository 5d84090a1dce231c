"""What the ended units of a Job tell of those that are left: the estimate, and stories of Jobs slower and faster than
declared."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.chunks import ledger, unit_times
from punctual.scheduling.model.job import JobRecord, PilotSample
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.ranges import Ranges

STARTS = 2.25
"""Seconds that a pod of the stories takes to start: a little less than declared."""
DECLARED = 4.5
"""Seconds that a unit of the stories is declared to take: 2.5 to start, 2 to compute."""
SLOW = 4.5
"""Seconds for which a unit computes that takes one and a half times as long as declared."""


def samples(*seconds: float) -> tuple[PilotSample, ...]:
    found: tuple[PilotSample, ...] = ()
    for unit in seconds:
        found = unit_times.with_one_more(found, unit)
    return found


MEANS = [
    # name, what units took, processors, mean
    ("none", (), 1, None),
    ("fewer than five", (4.0,) * 4, 1, None),
    ("five", (4.0,) * 5, 1, 4.0),
    ("fewer than processors", (4.0,) * 11, 12, None),
    ("as many as processors", (4.0,) * 12, 12, 4.0),
    ("a single slow one counts for nothing", (4.0,) * 19 + (400.0,), 4, 4.0),
    ("at whatever time it came", (400.0,) + (4.0,) * 19, 4, 4.0),
    ("one of two counts", (4.0,) * 18 + (20.0, 23.0), 4, (18 * 4.0 + 20.0) / 19),
    ("units that differ have their mean", (1.0, 9.0) * 10, 4, (10 * 1.0 + 9 * 9.0) / 19),
    ("a single fast one hardly counts", (4.0,) * 20 + (0.0,), 4, 3.8),
]


@pytest.mark.parametrize(("name", "seconds", "processors", "mean"), MEANS)
def test_the_mean_of_ended_units(name, seconds, processors, mean):
    assert unit_times.mean(samples(*seconds), processors) == pytest.approx(mean), name


def test_two_samples_hold_any_number_of_units_and_pilots_are_among_them():
    assert samples(3.0) == (PilotSample(1, 3.0),)
    assert samples(3.0, 5.0, 4.0) == (PilotSample(1, 5.0), PilotSample(2, 7.0))
    pilots = (PilotSample(1, 9.0), PilotSample(1, 4.0))
    assert unit_times.with_one_more(pilots, 4.5) == (PilotSample(1, 9.0), PilotSample(2, 8.5))


@given(st.lists(st.floats(0.0, 1000.0), min_size=5, max_size=40))
def test_the_mean_lies_among_the_units(seconds):
    found = unit_times.mean(samples(*seconds), 1)
    rest = sorted(seconds)[:-1]
    assert found == pytest.approx(sum(rest) / len(rest), abs=0.01)


SLOWDOWNS = [
    # unit, expected, slowdown
    (4.5, 4.5, 1.0),
    (2.0, 4.5, 1.0),
    (4.7, 4.5, 1.0),
    (4.73, 4.5, 1.05),
    (6.75, 4.5, 1.5),
    (45.0, 4.5, 10.0),
]


@pytest.mark.parametrize(("unit", "expected", "slowdown"), SLOWDOWNS)
def test_a_slowdown_has_steps_and_is_never_a_gain(unit, expected, slowdown):
    assert unit_times.slowdown(unit, expected) == pytest.approx(slowdown)


# stories


def world(processors: int = 4, *, compute: float = 2.0, nodes: int = 1, **more) -> World:
    w = World(startup=STARTS, **more)
    for n in range(nodes):
        w.node(f"n{n}", processors)
    w.workers = lambda uid, _c: Worker(pace=compute if uid == "a" else 2.0)
    w.tick()
    return w


def units(uid: str = "a", count: int = 40, *, deadline: float = 60.0, **more):
    usual = {"chi": 2.0, "theta_cp": 2.5, "unit_pods": True}
    return job(uid, units=count, deadline=deadline, **{**usual, **more})


def late_at(w: World, uid: str = "a", reason: str = reasons.LATE) -> float:
    """Run until a job is late, or has lost its promise; return when that is."""

    def there(w: World) -> bool:
        track = w.records[uid].on_track
        return track is not None and track.reason == reason

    return w.run_until(there).now


@pytest.mark.parametrize("admission", ["Exact", "Fast"])
def test_slow_units_make_their_job_late_long_before_its_promise_ceases_to_fit_and_no_other_promise_breaks(admission):
    w = world(compute=SLOW)
    w.edit_pool(replace(w.spec, generation=2, admission=admission))
    w.apply(units())
    w.run(1)
    w.apply(units("b", 30, deadline=120.0, arrival=1.0))
    w.run(2)
    assert w.state("b")[0] == "True"
    late = late_at(w)
    assert late <= 2 * (STARTS + SLOW) + 4.0, "two rounds of units, and three forecasts"
    assert w.records["a"].eta > 60.0
    assert not w.records["a"].promise.given_up
    assert late_at(w, reason=reasons.OVERRUN) > late + 5.0
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("b")
    assert "b" not in {uid for uid, _ in w.warned}


def test_slow_units_get_more_processors_where_there_are_any():
    w = world(8, compute=SLOW)
    w.apply(units(max_processors=6))
    w.run(3 * (STARTS + SLOW))
    assert w.records["a"].promise.processors < 5
    assert len(w.records["a"].chunks) > w.records["a"].promise.processors
    assert w.pool.view().slowed("a") == pytest.approx(1.5)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert not w.warned


def test_a_job_is_admitted_beside_the_time_that_slow_units_seem_to_take():
    asked = units("b", 24, deadline=0.0)
    answers = {}
    for compute in (2.0, SLOW):
        w = world(compute=compute)
        w.apply(units(deadline=90.0))
        w.run(20)
        w.apply(replace(asked, deadline=w.now + 45.0, arrival=w.now))
        w.run(21)
        answers[compute] = w.state("b")[0]
        w.run_until(lambda w: w.done("a"))
        assert w.met("a")
    assert answers == {2.0: "True", SLOW: "False"}


def test_fast_units_bring_the_eta_forward_and_the_plan_still_counts_what_was_declared():
    w = world(compute=0.5)
    w.apply(units(count=60, deadline=80.0))
    ended = 60 / 4 * (STARTS + 0.5)
    w.run(0.3 * ended)
    record = w.records["a"]
    assert record.eta == pytest.approx(ended, abs=DECLARED)
    assert record.eta < record.promise.finish - 10.0
    assert w.pool.view().slowed("a") == 1.0
    assert len(record.chunks) == record.promise.processors
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_one_slow_unit_of_twenty_changes_nothing():
    def told(slow: float) -> list[tuple[str, float]]:
        w = world()
        w.workers = lambda _u, chunk: Worker(pace=slow if chunk.begin == 10 else 2.0)
        w.apply(units(count=20, deadline=60.0))
        seen = []
        while not w.done("a"):
            w.run(w.now + 0.25)
            seen.append((w.records["a"].on_track.status, w.pool.view().slowed("a")))
        assert w.met("a")
        return seen

    assert set(told(12.0)) == set(told(2.0)) == {("True", 1.0)}


@pytest.mark.parametrize("late", [True, False])
def test_a_new_leader_goes_on_with_the_forecast(late):
    w = world(4 if late else 8, compute=SLOW)
    w.apply(units())
    w.run(22)
    before, slowed = w.records["a"], w.pool.view().slowed("a")
    assert before.on_track.status == ("False" if late else "True")
    assert slowed == pytest.approx(1.5)
    w.crash()
    for _ in range(12):
        w.run(w.now + 0.25)
        record = w.records["a"]
        assert record.on_track[:2] == before.on_track[:2]
        assert record.eta == pytest.approx(before.eta, abs=3.0)
        assert w.pool.view().slowed("a") == pytest.approx(slowed)


@pytest.mark.parametrize(("since", "until"), [(0.0, 15.0), (20.0, 40.0)])
def test_pods_that_wait_for_an_image_or_a_kubelet_are_no_slow_units(since, until):
    w = world(nodes=2)
    w.apply(units(count=60, deadline=200.0, min_processors=4))
    seen = set()
    while not w.done("a"):
        w.startup = until - since if since <= w.now < until else STARTS
        w.run(w.now + 0.25)
        seen.add(w.pool.view().slowed("a"))
    assert seen == {1.0}
    assert w.met("a")


def test_start_ups_that_always_take_longer_than_declared_count():
    w = world()
    w.startup = 6.0
    w.apply(units(count=60, deadline=300.0, min_processors=4))
    w.run(80)
    assert w.pool.view().slowed("a") > 1.4


def test_pods_that_fail_tell_nothing():
    w = world()
    w.workers = lambda _u, chunk: Worker(pace=2.0, fails_after=None if chunk.attempt > 1 else 0.25)
    w.apply(units(count=20, deadline=200.0))
    w.run_until(lambda w: "a" in w.records and w.records["a"].completed.total == 10)
    assert sum(sample.units for sample in w.records["a"].pilots) == 10
    assert unit_times.mean(w.records["a"].pilots, 1) == pytest.approx(STARTS + 2.0)


def test_a_slow_node_makes_no_slow_units():
    w = World(startup=STARTS)
    w.node("n0", 4, speed=2.0)
    w.workers = lambda _u, _c: Worker(pace=2.0 * DECLARED - STARTS)
    w.tick()
    w.apply(units(deadline=300.0))
    w.run(80)
    assert w.records["a"].pilots
    assert w.pool.view().slowed("a") == 1.0


def test_units_that_share_processors_are_measured_by_their_cpu():
    spec = PoolSpec(
        name="main", cpu=1.0, headroom=0.1, margin=2.0, admission="Utilization", pods_per_processor=4, memory=2**30
    )
    w = world(1, spec=spec)
    w.apply(units(count=12, deadline=140.0))
    w.apply(units("b", 12, deadline=150.0))
    w.run_until(lambda w: w.done("a") and w.done("b"))
    for uid in ("a", "b"):
        assert w.met(uid)
        assert sum(sample.units for sample in w.records[uid].pilots) == 12
        assert unit_times.mean(w.records[uid].pilots, 1) <= DECLARED


def test_a_measured_cost_is_corrected_too():
    w = world(compute=2.0)
    w.apply(units(count=60, deadline=300.0, chi=None))
    w.run_until(lambda w: "a" in w.records and w.state("a")[0] == "True")
    w.workers = lambda _u, _c: Worker(pace=SLOW)
    w.run_until(lambda w: w.pool.view().slowed("a") > 1.3)
    assert w.records["a"].completed.total < 15
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


BEGUN = [
    # name, cost declared, units whose times are known, units done, begun
    ("nothing has been done", True, 0, 0, False),
    ("a unit has ended, and none runs now", True, 1, 1, True),
    ("all that have ended are known", True, 8, 8, True),
    ("pilots alone", False, 2, 2, False),
    ("a unit after the pilots", False, 3, 3, True),
    ("the last one was not timed", False, 2, 3, True),
]


@pytest.mark.parametrize(("name", "declared", "known", "done", "begun"), BEGUN)
def test_samples_of_units_do_not_hide_that_a_job_has_begun(*, name, declared, known, done, begun):
    asked = units(chi=2.0 if declared else None)
    record = JobRecord(pilots=samples(*(4.0,) * known), completed=Ranges.of((0, done)), started=1.0 if done else None)
    assert ledger.has_begun(asked, record) is begun, name
