"""Stories about refused jobs that run all the same, on leftover capacity and without a promise."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.pool_spec import PoolSpec

NO = ("False", reasons.INFEASIBLE_CAPACITY)


def pool(count: int, *, pace: float = 1.0, **more) -> World:
    """Return a pool of so many processors. ``pace``: seconds that a unit of the job ``a`` takes."""
    w = World(**more)
    for n in range(count):
        w.node(f"n{n}", 1.0)
    w.workers = lambda uid, _c: Worker(pace=pace if uid == "a" else 1.0)
    w.tick()
    return w


def anyway(units: int = 40, *, deadline: float = 12.0, **more):
    """Return the job ``a``, which is refused on two processors."""
    return job("a", units=units, deadline=deadline, on_refusal="Continue", **more)


def single(count: int = 6, *, chi: float | None = 30.0, deadline: float = 4.0, **more):
    """Return the job ``a`` with a pod for each unit, which nothing ends."""
    return anyway(count, chi=chi, deadline=deadline, unit_pods=True, **more)


def ended(w: World, uid: str = "a") -> list[str]:
    """Return what was said when chunks of a job were ended."""
    return [text for job, reason, text in w.said if job == uid and reason == reasons.CAPACITY_LOST]


def begun(w: World, uid: str = "a") -> list[tuple[float, int]]:
    """Return when which units were begun."""
    lines = [line.split() for line in w.log if f" create {uid} " in line]
    return [(float(line[0]), int(line[4].strip("[)").partition(",")[0])) for line in lines]


def test_it_runs_and_tells_its_refusal_its_offer_and_its_end():
    w = pool(2)
    w.apply(anyway())
    w.run(3)
    record = w.records["a"]
    assert w.state("a") == NO
    assert "; it runs on leftover capacity without a promise; " in record.admitted.message
    assert record.offer.earliest_deadline is not None
    assert record.offer.processors.more > 0
    assert (record.promise, record.refused, record.goes_on) == (None, None, True)
    assert len(record.chunks) == 2
    assert all(chunk.leftover for chunk in record.chunks)
    assert 20 <= record.eta <= 50
    w.run_until(lambda w: w.done("a"))
    assert w.records["a"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert w.processed["a"]


CASES = [
    # name, what the job is, whether it runs
    ("too few processors", {}, True),
    ("too little time to start", {"units": 1, "deadline": 1.0}, True),
    ("its deadline is over", {"deadline": -5.0}, True),
    ("more processors at once than there are", {"min_processors": 5}, True),
    ("a trial", {"dry_run": True}, False),
    ("a flaw", {"units": 2, "min_processors": 3}, False),
    ("its pods would be refused", {"refusal": (reasons.POD_REFUSED, "no quota")}, False),
    ("it may stop", {"on_refusal": "Stop"}, False),
]


@pytest.mark.parametrize(("name", "more", "runs"), CASES, ids=[name for name, *_ in CASES])
def test_it_runs_if_it_lacks_a_promise_and_nothing_else(name, more, runs):
    w = pool(2)
    w.apply(replace(anyway(), **more))
    w.run(3)
    record = w.records["a"]
    assert record.admitted.status == "False", name
    assert (record.started is not None, record.goes_on, record.refused is None) == (runs, runs, runs), name


def test_a_promise_takes_its_processor():
    w = pool(1)
    w.apply(anyway(400))
    w.run(10)
    w.apply(job("b", units=20, deadline=w.now + 30, arrival=w.now))
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")
    w.run_until(lambda w: w.done("a"), within=900)


def test_jobs_that_had_a_promise_go_first():
    w = pool(1)
    w.workers = lambda uid, _c: Worker(pace=4.0 if uid == "lost" else 1.0, answers=False)
    w.apply(job("lost", units=40, deadline=60.0))
    w.run(1)
    w.apply(anyway(arrival=1.0))
    w.run_until(lambda w: w.records["lost"].on_track.reason == reasons.OVERRUN)
    w.run(w.now + 30)
    assert not w.records["a"].chunks
    w.run_until(lambda w: w.done("a"), within=600)
    assert w.records["lost"].finished <= w.records["a"].started


@pytest.mark.parametrize("blind", [False, True])
def test_it_goes_on_under_the_next_leader(blind):
    w = pool(2)
    w.apply(anyway(100))
    w.run(5)
    before = w.records["a"]
    w.crash(unseen=lambda event: blind and getattr(event, "phase", ""))
    w.run(8)
    after = w.records["a"]
    assert [chunk.key for chunk in after.chunks] == [chunk.key for chunk in before.chunks]
    assert (after.goes_on, after.admitted, after.refused) == (True, before.admitted, None)
    w.run_until(lambda w: w.done("a"))


def test_its_time_to_live_counts_from_its_end():
    w = pool(2)
    w.apply(anyway(ttl=5.0))
    w.run_until(lambda w: w.done("a"))
    assert w.now > 20
    w.run(w.now + 3)
    assert "a" in w.records
    w.run(w.now + 4)
    assert "a" not in w.records


def test_a_refused_job_runs_when_it_asks_for_that_and_stops_when_it_does_not_any_more():
    w = pool(2)
    w.apply(replace(anyway(300), on_refusal="Stop"))
    w.run(3)
    assert w.records["a"].refused is not None
    w.apply(replace(w.jobs["a"], on_refusal="Continue", generation=2))
    w.run(6)
    assert w.records["a"].goes_on
    assert len(w.records["a"].chunks) == 2
    w.apply(replace(w.jobs["a"], on_refusal="Stop", generation=3))
    w.run(9)
    record = w.records["a"]
    assert (w.state("a"), record.chunks, record.goes_on, record.eta) == (NO, (), False, None)
    assert record.refused > 6
    assert "without a promise" not in record.admitted.message
    assert not w.pods


def test_an_edit_asks_for_a_promise():
    w = pool(2)
    w.apply(anyway(100))
    w.run(5)
    w.apply(replace(w.jobs["a"], deadline=200.0, generation=2))
    w.run(6)
    record = w.records["a"]
    assert (w.state("a"), record.goes_on, record.offer) == (("True", reasons.FEASIBLE), False, None)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


def test_an_edit_that_is_refused_lets_it_go_on():
    w = pool(2)
    w.apply(anyway(100))
    w.run(5)
    w.apply(replace(w.jobs["a"], deadline=20.0, generation=2))
    w.run(6)
    assert w.state("a") == NO
    assert w.records["a"].chunks
    w.run_until(lambda w: w.done("a"))


def test_it_is_suspended_and_goes_on():
    w = pool(2)
    w.apply(anyway(100))
    w.run(5)
    w.apply(replace(w.jobs["a"], suspend=True, generation=2))
    w.run(8)
    assert w.state("a") == ("False", reasons.SUSPENDED)
    assert (w.records["a"].chunks, w.pods) == ((), {})
    w.apply(replace(w.jobs["a"], suspend=False, generation=3))
    w.run(10)
    assert w.records["a"].chunks
    w.run_until(lambda w: w.done("a"))


@pytest.mark.parametrize("unit_pods", [False, True])
def test_one_without_a_cost_is_measured_after_its_deadline_and_goes_on(unit_pods):
    w = pool(2)
    w.apply(anyway(30, deadline=3.0, chi=None, unit_pods=unit_pods))
    w.run_until(lambda w: "a" in w.records and w.state("a")[0] == "False")
    assert w.now > 3
    assert w.state("a") == ("False", reasons.INFEASIBLE_STARTUP)
    assert w.records["a"].cost is not None
    w.run_until(lambda w: w.done("a"))


# with the pods of a Job, which nothing ends


@pytest.mark.parametrize("admission", ["Exact", "Fast"])
def test_its_processor_is_not_promised_before_its_end(admission):
    w = pool(1, pace=30.0)
    w.edit_pool(replace(w.spec, generation=2, admission=admission))
    w.tick()
    w.apply(single())
    w.run(5)
    for uid, within in (("b", 30.0), ("c", 60.0)):
        w.apply(job(uid, units=10, deadline=w.now + within, arrival=w.now))
        w.run(w.now + 0.5)
    assert w.state("b") == NO
    assert w.state("c")[0] == "True"
    w.run_until(lambda w: w.done("c"))
    assert w.met("c")
    assert not ended(w)
    w.run_until(lambda w: w.done("a"), within=400)
    assert [begin for _, begin in begun(w)] == list(range(6))


@pytest.mark.parametrize(("on_refusal", "promised"), [("Stop", True), ("Continue", False)])
def test_the_processor_of_a_pilot_is_not_promised_before_its_job_may_be_refused(on_refusal, promised):
    w = pool(1, pace=30.0)
    w.apply(replace(single(chi=None, deadline=100.0), on_refusal=on_refusal))
    w.run(3)
    for uid, deadline in (("b", 90.0), ("c", 140.0)):
        w.apply(job(uid, units=10, deadline=deadline, arrival=w.now))
        w.run(w.now + 0.5)
    assert w.state("b") == NO
    assert w.state("c")[0] == str(promised)
    w.run_until(lambda w: w.state("a")[0] != "Unknown", within=300)
    assert not ended(w)
    assert not promised or w.met("c")


@pytest.mark.parametrize("unit_pods", [True, False])
def test_a_processor_that_a_promise_waits_for_is_lent_only_to_pods_that_can_be_ended(unit_pods):
    w = pool(4, pace=5.0)
    w.apply(job("f", units=240, deadline=130.0, min_processors=2, max_processors=2))
    w.run(1)
    w.apply(job("four", units=40, deadline=200.0, arrival=1.0, min_processors=4))
    w.run(2)
    w.apply(anyway(12, chi=5.0, deadline=4.0, arrival=2.0, unit_pods=unit_pods))
    w.run(60)
    assert bool(begun(w)) != unit_pods
    w.run_until(lambda w: w.done("f") and w.done("four"))
    assert w.met("f")
    assert w.met("four")
    w.run_until(lambda w: w.done("a"))
    assert not ended(w)


def test_a_pod_that_would_run_into_a_reserved_window_starts_after_it():
    w = pool(1, pace=30.0)
    w.reserve("r", 20.0, 40.0, 1)
    w.run(1)
    w.apply(single(2))
    w.run_until(lambda w: w.done("a"), within=200)
    assert min(at for at, _ in begun(w)) >= 40.0
    assert not ended(w)


def test_its_units_go_on_while_an_edit_asks_for_a_promise():
    w = pool(2, pace=5.0)
    w.apply(single(10, chi=5.0))
    w.run(5)
    before = w.records["a"].chunks
    w.apply(replace(w.jobs["a"], deadline=200.0, generation=2))
    w.run(6)
    record = w.records["a"]
    assert w.state("a") == ("True", reasons.FEASIBLE)
    assert [chunk.key for chunk in record.chunks] == [chunk.key for chunk in before]
    assert not any(chunk.leftover for chunk in record.chunks)
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")
    assert sorted(begin for _, begin in begun(w)) == list(range(10))


@pytest.mark.parametrize(
    ("units", "deadline", "words"),
    [(6, 20.0, "units that run without a promise already end "), (2, 400.0, "its last units run without a promise")],
)
def test_an_edit_that_comes_too_late_for_what_runs_is_refused(units, deadline, words):
    w = pool(2, pace=30.0)
    w.apply(single(units))
    w.run(5)
    w.apply(replace(w.jobs["a"], deadline=deadline, generation=2))
    w.run(6)
    record = w.records["a"]
    assert (w.state("a"), len(record.chunks)) == (NO, 2)
    assert words in record.admitted.message
    w.run_until(lambda w: w.done("a"), within=300)
    assert not ended(w)


def test_where_pods_share_processors_a_promise_counts_on_no_memory_that_such_a_pod_holds():
    spec = PoolSpec(
        name="main", cpu=1.0, headroom=0.1, margin=2.0, admission="Utilization", pods_per_processor=2, memory=2**39
    )
    w = pool(1, pace=2.0, spec=spec)
    w.apply(single(1, chi=2.0))
    w.run(4)
    assert len(w.records["a"].chunks) == 1
    for uid in ("b", "c"):
        w.apply(job(uid, units=10, deadline=w.now + 60, arrival=w.now))
        w.run(w.now + 0.5)
    assert w.state("b")[0] == "True"
    assert w.state("c")[0] == "False"
    w.run_until(lambda w: w.done("b"))
    assert w.met("b")
    assert not ended(w)
