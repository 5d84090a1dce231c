"""What one chunk has shown of its answer to CPU serves the next ones: of its job, and of jobs with its profile."""

import math
from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual.control.response import Response
from punctual.scheduling.model.pool_spec import PoolSpec

SHOWN = Response(cpu_per_unit=1.2, lag=8.0, delay=2.0, noise=0.05)
SPEC = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0, feedback=True)


def pool(*nodes, shown=SHOWN, **more):
    """A pool of which each node has one processor; agents tell the same of each chunk."""
    w = World(spec=replace(SPEC, **more))
    for name, speed in nodes or [("n1", 1.0)]:
        w.node(name, 1.0, speed=speed)
    w.workers = lambda _uid, chunk: Worker(pace=dict(nodes).get(chunk.node, 1.0), response=shown)
    w.tick()
    return w


def begun_with(w, uid, attempt=1):
    """What the agent was told first of each pod of a job, in order."""
    pods = {p.uid for p in w.pods.values() if p.job == uid and p.chunk.attempt == attempt}
    told = {}
    for point in w.set_points:
        if point.pod in pods:
            told.setdefault(point.pod, point.line.response)
    return list(told.values())


def evicted(w, uid):
    """Let a job's first chunk run for twenty seconds, and end it; return what the second attempt begins with."""
    w.run(20)
    (pod,) = w.pods.values()
    w.delete_pod(pod.name, disrupted=True)
    w.run_until(lambda w: begun_with(w, uid, attempt=2))
    (response,) = begun_with(w, uid, attempt=2)
    return response


def test_the_second_chunk_of_a_job_begins_with_what_the_first_has_shown():
    w = pool()
    w.apply(job("j1", units=40, deadline=200.0))
    w.run(5)
    assert begun_with(w, "j1") == [None]
    assert evicted(w, "j1") == SHOWN
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {"cpu_per_unit": math.nan},
        {"cpu_per_unit": math.inf},
        {"cpu_per_unit": -1.0},
        {"cpu_per_unit": 101.0},
        {"cpu_per_unit": 0.0099},
        {"lag": math.inf},
        {"noise": math.nan},
    ],
)
def test_what_cannot_be_true_of_a_chunk_is_not_told_to_another(wrong):
    w = pool(shown=None if wrong is None else replace(SHOWN, **wrong))
    w.apply(job("j1", units=40, deadline=200.0))
    assert evicted(w, "j1") is None
    w.run_until(lambda w: w.done("j1"))
    assert [m.response for m in w.measured] == [None]


def test_without_feedback_nothing_is_learned():
    w = pool(feedback=False)
    w.apply(job("j1", units=40, deadline=200.0))
    w.run_until(lambda w: w.done("j1"))
    assert w.set_points
    assert all(point.line is None for point in w.set_points)
    assert [m.response for m in w.measured] == [None]


def test_a_chunk_that_runs_keeps_the_response_that_its_agent_has_begun_with():
    w = pool()
    w.apply(job("j1", units=40, deadline=200.0))
    w.run(30)
    (pod,) = w.pods.values()
    before = len(w.set_points)
    w.inbox.append(pod.observed())
    w.run(31)
    assert len(w.set_points) == before, "nothing has changed for it"
    assert {point.line.response for point in w.set_points} == {None}


def test_with_the_measured_time_goes_what_the_chunk_has_shown_on_its_node():
    w = pool(("quick", 1.0), ("slow", 3.0), shown=SHOWN)
    w.apply(job("j1", units=60, deadline=80.0, min_processors=2))
    w.run_until(lambda w: w.done("j1"))
    assert {(m.node, m.response) for m in w.measured} == {("quick", SHOWN), ("slow", SHOWN)}


def test_on_a_slower_node_the_same_work_takes_more_cpu():
    w = pool(("n1", 1.0))
    w.apply(job("j1", units=40, deadline=400.0))
    w.run(20)
    w.node("slow", 1.0, speed=3.0)
    w.lose("n1")
    w.run_until(lambda w: begun_with(w, "j1", attempt=2))
    assert begun_with(w, "j1", attempt=2) == [SHOWN.slower(3.0)]


def test_of_many_chunks_the_one_on_a_disturbed_node_does_not_count():
    names = [(f"n{n}", 1.0) for n in range(5)]
    w = pool(*names)
    disturbed = replace(SHOWN, cpu_per_unit=4.0)
    w.workers = lambda _uid, chunk: Worker(response=disturbed if chunk.node == "n0" else SHOWN)
    w.apply(job("j1", units=200, deadline=250.0, min_processors=5))
    w.run(20)
    evicted_pod = next(p for p in w.pods.values() if p.chunk.node == "n0")
    w.delete_pod(evicted_pod.name, disrupted=True)
    w.run_until(lambda w: begun_with(w, "j1", attempt=2))
    assert begun_with(w, "j1", attempt=2)[0] == SHOWN


def test_a_job_begins_with_what_its_profile_has_learned_until_its_own_chunks_say_more():
    w = pool()
    learned = replace(SHOWN, cpu_per_unit=0.9)
    w.apply(job("j1", units=40, deadline=200.0, response=learned))
    w.run(5)
    assert begun_with(w, "j1") == [learned]
    assert evicted(w, "j1") == SHOWN


def test_what_a_profile_says_is_not_believed_where_the_cost_of_the_job_is_another():
    w = pool()
    w.apply(job("j1", units=40, deadline=200.0, response=replace(SHOWN, cpu_per_unit=1000.0)))
    w.run(5)
    assert begun_with(w, "j1") == [None]


def test_what_a_profile_learns_later_is_no_edit_of_the_job():
    w = pool()
    w.apply(job("j1", units=40, deadline=200.0))
    w.run(20)
    w.apply(job("j1", units=40, deadline=200.0, response=SHOWN))
    w.run(21)
    assert w.records["j1"].spec_applied is None


def test_a_new_leader_hears_it_again_from_the_agents():
    w = pool()
    w.apply(job("j1", units=40, deadline=200.0))
    w.run(20)
    w.crash()
    assert evicted_at_once(w, "j1") == SHOWN


def test_a_new_leader_that_hears_nothing_begins_with_what_the_profile_says():
    w = pool()
    learned = replace(SHOWN, cpu_per_unit=0.9)
    w.apply(job("j1", units=40, deadline=200.0, response=learned))
    w.run(20)
    w.silent_agents.add("n1")
    w.crash()
    assert evicted_at_once(w, "j1") == learned


def evicted_at_once(w, uid):
    w.run(w.now + 2.0)
    (pod,) = w.pods.values()
    w.delete_pod(pod.name, disrupted=True)
    w.run_until(lambda w: begun_with(w, uid, attempt=2))
    (response,) = begun_with(w, uid, attempt=2)
    return response
