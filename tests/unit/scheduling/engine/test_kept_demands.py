"""The demand of a job that waits is kept until something that it is made of changes."""

from dataclasses import replace

import pytest
from kept import checked_demands, checked_pools
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.node_rules import HostPort, NodeRules
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.live_jobs import LiveJobs
from punctual.verdict import Verdict


@pytest.fixture(autouse=True)
def _checked():
    with checked_pools():
        yield


def waiting(**more):
    """Return a world in which the job ``late`` waits for a processor, with a demand that is kept."""
    w = World()
    w.node("n0", 1)
    w.apply(job("first", units=50, deadline=200.0, chi=1.0))
    w.run(2.0)
    w.apply(job("late", units=40, deadline=400.0, chi=1.0, reduce_duration=2.0, **more))
    w.run(4.0)
    assert w.state("late")[0] == "True"
    assert not w.records["late"].chunks
    plan_again(w)
    return w


def plan_again(w):
    with checked_demands() as (returned, _):
        w.apply(job("other", units=1, deadline=w.now + 300.0, chi=1.0, arrival=w.now))
        w.run(w.now + 1)
        w.delete("other")
        w.run(w.now + 1)
    assert returned["late"], "no plan was made"


def of_job(**more):
    def change(w):
        old = w.jobs["late"]
        w.apply(replace(old, generation=old.generation + 1, **more))

    return change


def of_pool(**more):
    def change(w):
        w.edit_pool(replace(w.spec, generation=w.spec.generation + 1, **more))

    return change


def test_a_demand_is_made_once_while_nothing_changes():
    w = waiting()
    with checked_demands() as (_, made):
        for _ in range(3):
            plan_again(w)
    assert not made["late"]


CHANGES = {
    "deadline": of_job(deadline=390.0),
    "most": of_job(max_processors=1),
    "least": of_job(min_processors=2),
    "rules": of_job(rules=NodeRules(ports=frozenset({HostPort("TCP", "", 80)}))),
    "headroom": of_pool(headroom=0.5),
    "margin": of_pool(margin=9.0),
    "order": of_pool(discipline=Discipline(order="FIFO")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_makes_another_demand(change):
    w = waiting()
    with checked_demands() as (_, made):
        change(w)
        w.run(w.now + 1)
        plan_again(w)
    assert made["late"]


def test_another_number_of_processors_makes_another_rank_where_the_order_depends_on_it():
    w = waiting()
    of_pool(discipline=Discipline(order="MWF"))(w)
    w.run(w.now + 1)
    for n in range(1, 4):
        w.node(f"n{n}", 1)
        w.apply(job(f"other{n}", units=30, deadline=w.now + 60.0, chi=1.0, tau=0.1, arrival=w.now))
        w.run(w.now + 1)


def test_a_job_that_loses_its_promise_is_found_again():
    w = waiting()
    live, st = LiveJobs(), JobState(w.jobs["late"], w.jobs["late"], record=w.records["late"])
    live["late"] = st
    assert not live.unpromised()
    st.record = st.record._replace(admitted=Verdict("False", reasons.SUSPENDED, ""))
    live.changed("late")
    assert live.unpromised() == [st]
    assert live.plus(replace(st, record=w.records["late"])).unpromised() == []
    assert live.unpromised() == [st]
    live.drop("late")
    live.changed("late")
    assert live.unpromised() == []


def test_a_job_that_is_suspended_and_resumed_is_planned_again():
    w = waiting()
    of_job(suspend=True)(w)
    w.run(w.now + 1)
    assert w.state("late")[1] == reasons.SUSPENDED
    of_job(suspend=False)(w)
    w.run_until(lambda w: w.done("late"))


@pytest.mark.parametrize("pace", [1.0, 1.2])
def test_a_job_that_waits_again_with_fewer_units_has_another_demand(pace):
    w = waiting(restart="Resume")
    w.workers = lambda _u, _c: Worker(pace=pace)  # slower than declared, it waits with another cost, too
    for n in range(2):
        w.run_until(lambda w: w.records["late"].chunks)
        w.run(w.now + 10)
        (pod,) = (pod for pod in w.pods.values() if pod.job == "late")
        w.delete_pod(pod.name, grace=1.0)
        w.apply(job(f"urgent{n}", units=30, deadline=w.now + 50.0, chi=1.0, arrival=w.now))
        w.run(w.now + 5)
        assert w.state(f"urgent{n}")[0] == "True"
        assert not w.records["late"].chunks
        plan_again(w)
    assert w.records["late"].completed
    assert w.state("late")[0] == "True"


def test_a_node_that_its_rules_do_not_allow_any_more_is_not_in_its_demand():
    w = World()
    w.node("n0", 1)
    w.node("n1", 1)
    w.apply(job("first", units=50, deadline=70.0, chi=1.0))
    w.run(2.0)
    rules = NodeRules(ports=frozenset({HostPort("TCP", "", 80)}))
    for uid in ("late", "last"):
        w.apply(job(uid, units=40, deadline=400.0, chi=1.0, rules=rules))
        w.run(w.now + 2.0)
    plan_again(w)
    w.node("n1", 1, ports=frozenset({HostPort("TCP", "", 80)}))
    w.run(w.now + 1)
    plan_again(w)
