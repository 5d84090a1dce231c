"""Stories about a new leader: what it reads it writes down as read, and decides on nothing before it has read all."""

from dataclasses import replace

import pytest
from world import Worker, World, job, job_of

from punctual import reasons
from punctual.scheduling.model.job import Chunk, PilotSample
from punctual.verdict import Verdict


def small(cpu: float = 2.0, **more) -> World:
    w = World(**more)
    w.node("n1", cpu)
    w.tick()
    return w


def test_a_job_that_ended_while_nobody_led_is_written_as_ended():
    w = small()
    w.apply(job(units=10, deadline=60))
    w.run(5)
    w.leaderless(20)
    w.crash()
    w.run(25)
    assert w.met("j1")
    assert w.records["j1"].completed.total == 10
    assert w.processed["j1"] == [(0, 10)], "the next leader would have it done again"


@pytest.mark.parametrize("crashed", [True, False], ids=["another leader", "the same one, cut off"])
def test_what_ended_in_time_while_nobody_looked_has_kept_its_promise(crashed):
    w = small()
    w.apply(job(units=20, deadline=30, min_processors=2))
    w.run(5)
    w.leaderless(50)
    (ended,) = {pod.finished for pod in w.pods.values()}
    if crashed:
        w.crash()
    else:
        w.inbox += [pod.observed() for pod in w.pods.values()]
    w.run(52)
    assert w.records["j1"].completed_condition.reason == reasons.COMPLETED
    assert ended <= w.records["j1"].finished <= ended + 1.0, "a kubelet counts in whole seconds"
    assert w.records["j1"].on_track == ("True", reasons.ON_TRACK, "finished 18s before the deadline")


def test_nobody_is_in_time_before_the_last_of_its_chunks_in_whatever_order_they_are_seen():
    w = small(workers=lambda _job, chunk: Worker(pace=1.0 if chunk.begin else 3.0))
    w.apply(job(units=20, deadline=30, min_processors=2))
    w.run(5)
    w.leaderless(60)
    w.inbox += sorted((pod.observed() for pod in w.pods.values()), key=lambda pod: -pod.finished)
    w.run(62)
    assert w.records["j1"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert 31.0 <= w.records["j1"].finished <= 33.0


@pytest.mark.parametrize("skew", [-600.0, 600.0], ids=["10 min slow", "10 min fast"])
def test_a_kubelet_that_reckons_by_a_wrong_clock_tells_at_least_how_long_it_took(skew):
    w = small()
    w.skew["n1"] = skew
    w.apply(job(units=20, deadline=30, min_processors=2))
    w.run(5)
    w.leaderless(50)
    w.crash()
    w.run(52)
    assert w.met("j1")
    assert 9.0 <= w.records["j1"].finished <= 12.5


def test_a_job_that_was_off_its_track_is_not_believed_to_have_ended_before_somebody_saw_it():
    """Another leader may have accounted its last chunk late, and told so."""
    w = small(workers=lambda *_: Worker(pace=2.0))
    w.apply(job(units=20, deadline=16, min_processors=2))
    w.run_until(lambda w: "j1" in w.records and w.records["j1"].on_track.status == "False")
    w.leaderless(50)
    w.crash()
    w.run(52)
    assert w.records["j1"].finished >= 50.0


def test_a_leader_that_dies_behind_its_stamps_loses_no_result():
    w = small()
    w.apply(job(units=20, deadline=90, reduce_duration=3.0, min_processors=2))
    w.run(5)
    w.leaderless(20)
    assert {p.phase for p in w.pods.values()} == {"Succeeded"}
    w.crash()  # killed before its first step: nothing but the stamps is written
    assert w.records["j1"].epoch == 2
    assert w.records["j1"].completed.total == 0, "accounted, but its results are nowhere"
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert set(w.results) == {("j1", 0, 10), ("j1", 10, 20)}


def test_a_leader_that_dies_behind_its_stamps_has_answered_no_edit():
    w = small()
    w.apply(job(units=10, deadline=300))
    w.run(5)
    w.jobs["j1"] = replace(w.jobs["j1"], deadline=200.0, generation=2)
    w.crash()
    w.crash()
    w.run(6)
    assert w.records["j1"].spec_applied.status == "True"
    assert w.records["j1"].observed_generation == 2
    assert w.records["j1"].promise.deadline == 200.0


def test_an_edit_made_while_nobody_led_breaks_no_promise_that_is_read_after_it():
    w = small(1.0)
    w.apply(job("z", units=20, deadline=30))
    w.run(1)
    w.apply(job("a", units=40, deadline=200, arrival=1.0))
    w.run(2)
    w.apply(job("b", units=50, deadline=80, arrival=1.5, on_miss="Stop"))
    w.run(3)
    w.jobs = {uid: w.jobs[uid] for uid in "abz"}  # the order in which the API server lists them
    w.jobs["a"] = replace(w.jobs["a"], deadline=70.0, generation=2)
    w.crash()
    w.run(5)
    assert w.records["a"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("b")
    assert w.records["a"].finished <= 200


@pytest.mark.parametrize("off", [0.0, -600.0, -5.0, 5.0, 600.0])
def test_a_pilot_whose_end_nobody_saw_is_no_measure(off):
    w = World(skew={"n1": off})
    w.node("n1", 4.0)
    w.apply(job(units=1000, deadline=600, chi=None))
    w.run_until(lambda w: any(p.phase == "Running" and p.chunk.size > 1 for p in w.pods.values()))
    w.leaderless(w.now + 60)
    w.crash()
    w.run_until(lambda w: w.records["j1"].cost is not None, within=60)
    assert len(w.records["j1"].pilots) == 2
    assert w.records["j1"].completed.total > sum(sample.units for sample in w.records["j1"].pilots), "its units count"
    for sample in w.records["j1"].pilots:
        assert sample.seconds == sample.units + 1.0, "a second a unit, a second to start"
    assert w.state("j1") == ("True", reasons.FEASIBLE)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


MEASURING = {"admitted": Verdict("Unknown", reasons.MEASURING, ""), "cost": None, "promise": None, "chunks": ()}
CHUNK = Chunk(begin=20, end=40, origin=40, node="n1", attempt=1, created=0.0, promised_end=9.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": None},
        {**MEASURING, "pilots": (PilotSample(0, 0.0), PilotSample(0, 2.0))},
        {**MEASURING, "chunks": (CHUNK._replace(kind="Pilot", end=20, origin=20),)},
        {"chunks": (CHUNK, CHUNK._replace(end=30))},
    ],
    ids=["promised without a cost", "pilots of no units", "a pilot of no units", "a chunk twice"],
)
def test_no_leader_fails_over_a_status_that_somebody_wrote(wrong):
    w = small()
    w.apply(job(units=60, deadline=300, chi=None))
    w.run_until(lambda w: w.records.get("j1") is not None and w.records["j1"].promise is not None)
    w.records["j1"] = w.records["j1"]._replace(**wrong)
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


@pytest.mark.parametrize("pods", [True, False], ids=["with its pods", "before its pods"])
def test_a_job_that_no_list_told_of_is_taken_over_when_it_turns_up(pods):
    w = small(1.0)
    w.apply(job(units=20, deadline=40))
    w.run(3)
    promised = w.records["j1"].promise
    if not pods:
        w.pods.clear()  # recorded, and its create was lost
    w.crash(unseen=lambda event: job_of(event) == "j1")
    late, w.inbox = w.inbox, []
    w.tick()
    w.inbox += late
    w.apply(job("j2", units=10, deadline=100, arrival=3.0))
    w.run_until(lambda w: w.done("j1") and w.done("j2"))
    assert w.records["j1"].promise.deadline == promised.deadline
    assert w.met("j1")
    assert w.met("j2")
    assert w.processed["j1"] == [(0, 20)]


@pytest.mark.parametrize("crash", [False, True])
def test_a_late_chunk_gets_help_from_a_processor_that_becomes_free_after_a_takeover(crash):
    w = World()
    w.node("n1", 2.0)
    w.tick()
    w.workers = lambda uid, _c: Worker(pace=6.0 if uid == "slow" else 1.0)
    w.apply(job("slow", units=40, deadline=1000.0, min_processors=1))
    w.apply(job("other", units=100, deadline=1000.0, max_processors=1))
    w.run(60.0)
    (chunk,) = w.records["slow"].chunks
    assert chunk.late
    assert len(w.records["other"].chunks) == 1, "no processor is free"
    if crash:
        w.crash()
    w.run_until(lambda w: w.done("other"))
    w.run_until(lambda w: len(w.records["slow"].chunks) == 2, within=20.0)
    w.run_until(lambda w: w.done("slow"))
