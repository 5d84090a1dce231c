"""Stories about the Pool: what happened in, what was written and created out."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.engine import decisions
from punctual.scheduling.model.actions import Emit
from punctual.scheduling.model.events import PoolApplied, Progress, Reported
from punctual.scheduling.model.pool_spec import PoolSpec


def small(cpu: float = 4.0, **more) -> World:
    world = World(**more)
    world.node("n1", cpu)
    world.tick()
    return world


def test_a_job_that_fits_is_promised_cut_run_and_finished_on_time():
    w = small()
    w.apply(job(units=100, deadline=100))
    w.run_until(lambda w: w.done("j1"))
    assert w.state("j1") == ("True", reasons.FEASIBLE)
    record = w.records["j1"]
    assert record.promise is not None
    assert record.promise.processors == 2  # 96 s hold 94 units on one, so two
    assert w.met("j1")
    assert sorted(w.processed["j1"]) == [(0, 50), (50, 100)]
    assert record.completed.total == 100


def test_a_job_that_does_not_fit_is_rejected_with_an_offer_that_is_kept():
    w = small()
    w.apply(job(units=1000, deadline=100))
    w.run(5)
    assert w.state("j1") == ("False", reasons.INFEASIBLE_CAPACITY)
    offer = w.records["j1"].offer
    assert offer is not None
    assert 254 <= offer.earliest_deadline <= 260
    w.apply(job("j2", units=1000, arrival=w.now, deadline=w.now + offer.earliest_deadline))
    w.apply(job("j3", units=offer.largest_load, arrival=w.now, deadline=100 + w.now))
    w.run(6)
    assert w.state("j2") == ("True", reasons.FEASIBLE)
    w.run_until(lambda w: w.done("j2"))
    assert w.met("j2")


def test_a_second_job_fits_only_because_the_first_leaves_room():
    w = small()
    w.apply(job("a", units=180, deadline=100))
    w.apply(job("b", units=180, deadline=100))
    w.apply(job("c", units=180, deadline=100))
    w.run(2)
    assert [w.state(u)[0] for u in "abc"] == ["True", "True", "False"]
    w.run_until(lambda w: w.done("a") and w.done("b"))
    assert w.met("a")
    assert w.met("b")


def test_a_chunk_that_exits_1_is_done_again_and_the_promise_kept():
    failures = iter([True])
    w = small()
    w.workers = lambda _j, _c: Worker(fails_after=10 if next(failures, False) else None)
    w.apply(job(units=60, deadline=100))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].completed.total == 60


def test_a_chunk_that_always_fails_ends_the_job_after_its_retries():
    w = small()
    w.workers = lambda _j, _c: Worker(fails_after=1)
    w.apply(job(units=3, deadline=500, chunk_retries=2))
    w.run_until(lambda w: w.done("j1"))
    assert w.records["j1"].failed_condition.reason == reasons.CHUNK_FAILED
    creates = [line for line in w.log if "create" in line]
    assert len(creates) == 3


def test_a_lost_node_gives_up_the_newest_promise_and_keeps_the_oldest():
    w = World()
    w.node("n1", 2)
    w.node("n2", 2)
    w.apply(job("old", units=150, deadline=100))
    w.run(1)
    w.apply(job("new", units=150, deadline=110, arrival=1))
    w.run(10)
    assert w.state("new") == ("True", reasons.FEASIBLE)
    w.lose("n2")
    w.run(12)
    assert w.records["new"].on_track.reason == reasons.CAPACITY_LOST
    w.run_until(lambda w: w.done("old") and w.done("new"))
    assert w.met("old")


def test_a_job_that_overruns_pays_itself():
    w = small(cpu=1.0)
    w.workers = lambda uid, _c: Worker(pace=3.0 if uid == "liar" else 1.0)
    w.apply(job("liar", units=40, deadline=60, chi=1.0))
    w.apply(job("honest", units=40, deadline=110, chi=1.0))
    w.run_until(lambda w: w.done("honest") and w.done("liar"))
    assert w.met("honest")
    assert not w.met("liar")


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("units", [1, 2, 3, 10])
def test_pilots_may_do_all_units_before_the_reduce_step(units, ended):
    w = World()
    w.node("n0", 1)
    w.apply(job(units=units, deadline=300, chi=None, reduce_duration=2.0, restart="Resume"))
    w.run_until(lambda w: w.pods)
    w.run(w.now + 3)
    if ended:
        for pod in list(w.pods.values()):
            w.delete_pod(pod.name, grace=1.0)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.state("j1")[0] == "True"


def test_a_suspended_job_with_all_units_done_and_none_measured_ends():
    w = World()
    w.node("n0", 1)
    w.apply(job(units=1, deadline=300, chi=None, reduce_duration=2.0, restart="Resume"))
    w.run_until(lambda w: w.pods)
    w.run(w.now + 1)
    w.apply(replace(w.jobs["j1"], suspend=True, generation=2))
    w.run(w.now + 30)
    w.apply(replace(w.jobs["j1"], suspend=False, generation=3))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_pilots_measure_a_job_without_cost_and_their_units_count():
    w = small()
    w.apply(job(units=200, deadline=300, chi=None))
    w.run_until(lambda w: w.done("j1"))
    record = w.records["j1"]
    assert record.cost is not None
    assert 0.8 <= record.cost.chi <= 1.2
    assert w.met("j1")
    assert record.completed.total == 200


@pytest.mark.parametrize("seconds", [2.0, 6.0, 600.0], ids=["it ends as it began", "before", "long before"])
def test_a_pilot_during_which_the_clock_is_set_back_is_no_measure(seconds):
    w = small()
    w.run(1000)
    w.apply(job(units=200, deadline=3000, arrival=w.now, chi=None))
    w.run_until(lambda w: any(pod.phase == "Running" for pod in w.pods.values()))
    w.run(w.now + 0.5)
    w.set_back(seconds)
    w.run_until(lambda w: w.done("j1"))
    assert [sample.seconds for sample in w.records["j1"].pilots] == [n + w.startup for n, _ in w.records["j1"].pilots]
    assert w.records["j1"].cost.chi == pytest.approx(1.0)
    assert w.met("j1")


def test_reduce_runs_once_after_the_last_chunk_and_its_time_is_part_of_the_plan():
    w = small()
    w.workers = lambda _u, c: Worker(pace=5.0 if c.kind == "Reduce" else 1.0)
    w.apply(job(units=100, deadline=100, reduce_duration=10.0))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    reduces = [line for line in w.log if "Reduce" in line and "create" in line]
    assert len(reduces) == 1
    assert sum(e - b for _, b, e in w.results) == 100


def test_reduce_waits_for_a_chunk_that_still_waits_for_the_processor_of_another_job():
    w = World(spec=PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=20.0))
    w.node("n1", 2.0)
    w.workers = lambda uid, _chunk: Worker(pace=1.25 if uid == "slow" else 1.0)  # late by less than the margin
    w.apply(job("slow", units=30, deadline=200, theta_cp=1.0))
    w.tick()
    w.apply(job(units=39, deadline=64, theta_cp=1.0, reduce_duration=5.0))
    w.run_until(lambda w: "j1" in w.processed)
    assert w.processed == {"j1": [(0, 35)]}
    assert w.records["j1"].promise.processors == 2
    w.run_until(lambda w: w.done("j1"))
    assert [line.split()[2:5] for line in w.log if "create j1" in line] == [
        ["j1", "Chunk", "[0,35)"],
        ["j1", "Chunk", "[35,39)"],
        ["j1", "Reduce", "[39,40)"],
    ]
    assert w.met("j1")


def test_suspend_gives_the_promise_up_and_resuming_asks_again():
    w = small()
    w.apply(job(units=100, deadline=200))
    w.run(10)
    w.apply(job(units=100, deadline=200, suspend=True, generation=2))
    w.run(15)
    assert w.state("j1") == ("False", reasons.SUSPENDED)
    assert not [p for p in w.pods.values() if not p.deleting]
    assert len([line for line in w.log if "event j1 Suspended" in line]) == 1
    w.apply(job(units=100, deadline=200, generation=3))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_tighter_deadline_that_does_not_fit_leaves_the_promise():
    w = small()
    w.apply(job(units=100, deadline=100))
    w.run(5)
    w.apply(job(units=100, deadline=20, generation=2))
    w.run(6)
    assert w.records["j1"].spec_applied.status == "False"
    assert w.records["j1"].promise.deadline == 100
    w.jobs["j1"] = replace(w.jobs["j1"], deadline=100)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_job_that_goes_as_planned_warns_of_nothing():
    w = small()
    w.apply(job(units=20, deadline=100))
    w.run_until(lambda w: w.done("j1"))
    assert {reason for _, reason, _ in w.said} >= {reasons.FEASIBLE, reasons.COMPLETED}
    assert not w.warned


def test_dry_run_answers_and_books_nothing():
    w = small()
    w.apply(job(units=100, deadline=100, dry_run=True))
    w.run(10)
    assert w.state("j1") == ("True", reasons.DRY_RUN)
    assert not w.pods


def test_a_dry_run_of_a_job_without_a_cost_starts_no_pilots():
    w = small()
    w.apply(job(units=100, deadline=100, chi=None, dry_run=True))
    w.run(10)
    assert w.state("j1") == ("False", reasons.INVALID_SPEC)
    assert "spec.cost: a dry run starts no pilot chunks" in w.records["j1"].admitted.message
    assert not w.pods


def test_a_crash_in_the_middle_changes_nothing_for_the_user():
    w = small()
    w.apply(job(units=100, deadline=100))
    w.run(20)
    promise = w.records["j1"].promise
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].promise.deadline == promise.deadline
    assert sorted(w.processed["j1"]) == [(0, 50), (50, 100)]


def test_a_stalled_chunk_is_ended_and_done_again():
    first = iter([True])
    w = small()
    w.workers = lambda _j, _c: Worker(hangs=next(first, False))
    w.apply(job(units=20, deadline=200, stall_timeout=10.0))
    w.run_until(lambda w: w.done("j1"))
    assert any("Stalled" in line for line in w.log)
    assert w.met("j1")


def test_a_late_chunk_is_offered_an_end_and_idle_processors_take_the_tail():
    w = small(cpu=2.0)
    w.workers = lambda _u, c: Worker(pace=4.0 if c.begin == 0 and c.attempt == 1 else 1.0)
    w.apply(job(units=40, deadline=120))
    w.run_until(lambda w: w.done("j1"))
    assert any("offer" in line for line in w.log)
    assert w.met("j1")
    assert w.records["j1"].completed.total == 40


def test_a_chunk_that_ended_before_its_answer_was_read_waits_for_it_on_no_processor():
    w = World()
    for n in range(4):
        w.node(f"n{n}", cpu=1)
    w.workers = lambda _job, chunk: Worker(pace=2.0 if chunk.attempt == 1 else 1.0)
    w.apply(job("j1", units=40, deadline=300, max_processors=2))
    w.run_until(lambda w: any("offer" in line for line in w.log))
    w.silent_agents = {f"n{n}" for n in range(4)}
    w.run_until(lambda w: any(p.phase == "Succeeded" for p in w.pods.values()))
    w.run(w.now + 5)
    assert not w.done("j1")
    w.silent_agents.clear()
    w.run_until(lambda w: w.done("j1"), within=200)
    assert w.met("j1")


def test_many_jobs_that_fit_only_in_another_order_are_answered_together_and_kept():
    """Deadlines fall, so that each must be placed before all that came earlier; the tightest do not fit."""

    def told(at_once):
        w = small(cpu=2.0)
        for n in range(40):
            w.apply(job(f"j{n:02}", units=40, deadline=460.0 - 10 * n, arrival=n / 1000))
            if not at_once:
                w.tick()
        w.run(1)
        return [uid for uid in w.jobs if w.state(uid)[0] == "True"], w

    one_by_one, _ = told(at_once=False)
    together, w = told(at_once=True)
    assert 0 < len(one_by_one) <= len(together) < 40
    w.run_until(lambda w: all(w.done(uid) for uid in together), within=600)
    assert all(w.met(uid) for uid in together)


def test_a_step_that_plans_all_anew_leaves_answers_to_the_next_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(decisions, "PLACEMENTS", 3)
    w = small(cpu=1.0)
    for n in range(5):
        w.apply(job(f"early{n}", units=20, deadline=1000.0))
    w.run(1)
    assert len(w.pool.view().plan) > decisions.PLACEMENTS

    def step_with_a_new_plan(cpu):
        w.carry_out(w.pool.step(w.now, [*w._mail(), replace(w.nodes["n1"], cpu=cpu)]))

    w.apply(job("late", units=20, deadline=1000.0, arrival=w.now))
    step_with_a_new_plan(2.0)
    assert "late" not in w.records
    assert w.pool.backlog == 1
    step_with_a_new_plan(3.0)
    assert w.state("late") == ("True", reasons.FEASIBLE)


def test_a_refused_edit_of_the_pool_stays_refused_after_a_restart():
    w = small()
    w.apply(job(units=300, deadline=100))
    w.apply(job("j2", units=300, deadline=190))
    w.run(2)
    w.edit_pool(replace(w.spec, cpu=2.0, generation=2))
    w.run(3)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.crash()
    w.run(4)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert w.pool_record.applied.cpu == 1.0
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_an_edit_of_the_pool_is_tested_against_promises_made_before_a_restart():
    w = small()
    w.apply(job(units=300, deadline=100))
    w.apply(job("j2", units=300, deadline=190))
    w.run(2)
    w.spec = replace(w.spec, cpu=2.0, generation=2)  # while no operator runs
    w.crash()
    w.run(4)
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)


def test_a_job_still_being_measured_at_its_deadline_is_rejected():
    w = World()
    w.tick()  # no node at all: no pilot can run
    w.apply(job(units=10, deadline=20, chi=None))
    w.run(25)
    assert w.state("j1") == ("False", reasons.INFEASIBLE_STARTUP)


def test_a_pool_that_is_deleted_holds_its_nodes_while_it_keeps_promises():
    w = World(spec=replace(World().spec, hold="Taint"))
    w.node("n1", cpu=4)
    w.apply(job(units=100, deadline=100))
    w.run(5)
    assert w.held == {"n1"}
    w.inbox.append(PoolApplied(w.spec, deleting=True))
    w.run(10)
    assert w.held == {"n1"}
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_new_leader_does_not_take_pods_that_ran_already_for_slow_starters():
    w = small()
    w.apply(job(units=100, deadline=300))
    w.run(30)
    before = w.pool_record.startups
    assert before
    w.crash()
    w.run(35)
    assert w.pool_record.startups == before


def test_a_start_that_is_seen_late_counts_from_when_it_was():
    w = small()
    w.apply(job(units=100, deadline=300))
    w.run(1)
    (pod,) = w.pods.values()
    pod.phase, pod.started = "Running", 1.5
    w.now = 21.0  # nobody heard of it for so long
    w.inbox.append(pod.observed())
    w.tick()
    assert w.pool_record.startups == (1.25,)  # it was decided at 0.25


def _reported(w: World, done: int | None, *faults: str, cpu: float = 0.0) -> list[str]:
    """Have the agent say that of the job's only pod; return what the job's events say then."""
    (pod,) = w.pods.values()
    line = Progress(pod=pod.uid, done=done, end=None, cpu_seconds=pod.cpu + cpu, faults=frozenset(faults))
    w.inbox.append(Reported("n1", (line,)))
    return [a.message for a in w.tick() if isinstance(a, Emit) and a.reason == reasons.FILE_FAULT]


def test_what_is_wrong_with_files_is_said_once_per_job():
    w = small(1.0, workers=lambda *_: Worker(pace=9.0))
    w.silent_agents.add("n1")
    w.apply(job(units=10, deadline=100))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    assert _reported(w, 2) == []
    said = "pod j1-Chunk-0-1: end is empty, progress goes backwards; the last valid value is used"
    assert _reported(w, 2, "progress goes backwards", "end is empty") == [said]
    assert _reported(w, 2, "progress goes backwards") == []
    (again,) = _reported(w, 2, "progress goes backwards", "progress is negative")
    assert "progress is negative;" in again


def test_a_chunk_that_nobody_looked_at_has_not_stalled_when_its_agent_is_back():
    w = small(1.0, workers=lambda *_: Worker(hangs=True))
    w.silent_agents.add("n1")
    w.apply(job(units=10, deadline=300, stall_timeout=20.0, chi=20.0))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    for second in (1, 2, 3, 60, 61, 62):  # the whole node stood still for a while
        w.run(10 + second)
        _reported(w, 3)
    assert [line for line in w.log if reasons.STALLED in line] == []
    for second in range(63, 90):
        w.run(10 + second)
        if w.pods:
            _reported(w, 3)
    (stalled,) = [line for line in w.log if reasons.STALLED in line]
    assert 10 + 76 <= float(stalled.split()[0]) <= 10 + 80  # 2 s of the 20 s before, the rest after


def test_a_chunk_that_uses_little_cpu_each_second_has_not_stalled():
    w = small(1.0, workers=lambda *_: Worker(hangs=True))
    w.silent_agents.add("n1")
    w.apply(job(units=10, deadline=300, stall_timeout=20.0, chi=20.0))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    for second in range(60):  # a shell that starts a program now and then
        w.run(10 + second)
        _reported(w, None, cpu=0.003 * second)
    assert [line for line in w.log if reasons.STALLED in line] == []


def test_more_done_than_the_chunk_has_is_not_believed():
    w = small(1.0, workers=lambda *_: Worker(pace=9.0))
    w.silent_agents.add("n1")
    w.apply(job(units=10, deadline=100, restart="Resume"))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    _reported(w, 3)
    _reported(w, 11)  # an agent that has just begun does not know the chunk's length
    (pod,) = w.pods.values()
    pod.phase, pod.exit_code = "Failed", 1
    w.inbox.append(pod.observed())
    w.tick()
    assert list(w.records["j1"].completed) == [(0, 3)]


def test_what_a_reduce_reports_is_no_unit_of_the_job():
    w = small(1.0, workers=lambda _j, chunk: Worker(pace=8.0 if chunk.kind == "Reduce" else 1.0))
    w.apply(job(units=10, deadline=200, restart="Resume", reduce_duration=10.0))
    w.run_until(lambda w: any(p.chunk.kind == "Reduce" and p.phase == "Running" for p in w.pods.values()))
    _reported(w, 1)
    (pod,) = w.pods.values()
    pod.phase, pod.exit_code = "Failed", 1
    w.inbox.append(pod.observed())
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].completed.total == 10


def test_a_status_that_says_promised_without_a_promise_is_asked_anew_and_no_leader_fails_over_it():
    w = small()
    w.apply(job(units=100, deadline=100))
    w.run(1)
    w.apply(job("j2", units=60, deadline=100))
    w.run_until(lambda w: "j2" in w.records)
    w.records["j2"] = w.records["j2"]._replace(promise=None)
    w.jobs["j2"] = replace(w.jobs["j2"], generation=2)
    w.crash()
    w.run_until(lambda w: w.done("j1") and w.done("j2"))
    assert w.met("j1")
    assert w.met("j2")
