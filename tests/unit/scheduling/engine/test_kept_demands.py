"""The demand of a job that waits is kept until something that it is made of changes."""

from dataclasses import replace

import pytest
from kept import check_kept
from world import World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.job import PilotSample
from punctual.scheduling.model.node_rules import HostPort, NodeRules
from punctual.scheduling.model.ranges import Ranges
from punctual.theory.cost import Cost


def waiting():
    """Return a world in which the job ``late`` waits for a processor, and the state of that job."""
    w = World()
    w.node("n0", 1)
    w.apply(job("first", units=50, deadline=200.0, chi=1.0))
    w.run(2.0)
    w.apply(job("late", units=40, deadline=400.0, chi=1.0, reduce_duration=2.0))
    w.run(4.0)
    st = w.pool._state.jobs["late"]
    assert st.state == "Promised"
    assert not st.record.chunks
    return w, st


def test_a_demand_is_made_once_while_nothing_changes():
    w, st = waiting()
    kept = w.pool._planner.demand(st, w.now)
    w.run(w.now + 20)
    assert w.pool._planner.demand(st, w.now) is kept


def of_record(**more):
    def change(w, st):
        st.record = st.record._replace(**more)

    return change


def of_job(**more):
    def change(w, st):
        st.job = replace(st.job, **more)

    return change


def of_pool(**more):
    def change(w, st):
        w.pool._state.spec = replace(w.pool._state.spec, **more)

    return change


def of_state(**more):
    def change(w, st):
        for name, value in more.items():
            setattr(st, name, value)

    return change


def margin(w, st):
    st.record = st.record._replace(promise=st.record.promise._replace(margin=9.0))


CHANGES = {
    "deadline": of_job(deadline=390.0),
    "most": of_job(max_processors=1),
    "least": of_job(min_processors=2),
    "least chunk": of_job(least_chunk=5),
    "reduce": of_job(reduce_duration=None),
    "cost": of_job(cost=Cost(chi=2.0)),
    "units done": of_record(completed=Ranges.of((0, 10))),
    "margin of the promise": margin,
    "slowed": of_state(slowed=1.5),
    "squeezed": of_state(squeezed=True),
    "refused for a while": of_state(refused_until=1e6),
    "nodes": of_job(rules=NodeRules(ports=frozenset({HostPort("TCP", "", 80)}))),
    "headroom": of_pool(headroom=0.5),
    "order": of_pool(discipline=Discipline(order="FIFO")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_makes_another_demand(change):
    w, st = waiting()
    kept = w.pool._planner.demand(st, w.now)
    change(w, st)
    new = w.pool._planner.demand(st, w.now)
    assert new != kept
    assert new == w.pool._planner._demand_anew(st, w.now)


def test_a_job_that_has_begun_needs_no_least_number_of_processors_any_more():
    w, st = waiting()
    st.job = replace(st.job, min_processors=3)
    assert w.pool._planner.demand(st, w.now).least == 3
    st.record = st.record._replace(started=w.now, pilots=(PilotSample(5, 5.0),), completed=Ranges.of((0, 5)))
    assert w.pool._planner.demand(st, w.now).least == 3  # pilots come before its promise
    st.record = st.record._replace(pilots=())
    assert w.pool._planner.demand(st, w.now).least == 1
    st.record = st.record._replace(started=None)
    assert w.pool._planner.demand(st, w.now).least == 3


def test_a_cost_that_is_measured_again_makes_another_demand():
    w, st = waiting()
    st.job, st.record = replace(st.job, cost=None), st.record._replace(cost=Cost(chi=1.5))
    kept = w.pool._planner.demand(st, w.now)
    st.record = st.record._replace(cost=Cost(chi=3.0))
    assert w.pool._planner.demand(st, w.now).cost.chi == 2.0 * kept.cost.chi


def test_a_refusal_that_has_passed_delays_no_demand():
    w, st = waiting()
    st.refused_until = w.now + 10
    assert w.pool._planner.demand(st, w.now).not_before == st.refused_until
    assert w.pool._planner.demand(st, w.now + 10).not_before == 0.0


def test_another_number_of_processors_makes_another_rank_where_the_order_depends_on_it():
    w, st = waiting()
    w.pool._state.spec = replace(w.pool._state.spec, discipline=Discipline(order="MWF"))
    st.job = replace(st.job, deadline=w.now + 15.0, cost=Cost(chi=1.0, tau=0.1))
    kept = w.pool._planner.demand(st, w.now)
    w.pool._take(w.now, NodeObserved(name="n1", ready=True, cpu=4.0, memory=64 << 30))
    new = w.pool._planner.demand(st, w.now)
    assert new.order != kept.order
    assert new == w.pool._planner._demand_anew(st, w.now)


def test_a_job_that_becomes_unpromised_is_found_again():
    w, st = waiting()
    live = w.pool._state.live
    assert not live.unpromised()
    w.apply(replace(w.jobs["late"], suspend=True, generation=2))
    w.pool._take_all(w.now, w._mail())
    w.pool._apply_edits(w.now)
    assert live.unpromised() == [st]
    w.apply(replace(w.jobs["late"], suspend=False, generation=3))
    w.run(w.now + 1)
    assert st.state == "Promised"
    assert not live.unpromised()


def test_a_copy_of_the_live_jobs_has_its_own_index():
    w, st = waiting()
    live = w.pool._state.live
    assert not live.unpromised()
    assert not live.plus(st).unpromised()
    left = replace(st, record=st.record._replace(admitted=None))
    assert live.plus(left).unpromised() == [left]
    assert not live.unpromised()
    live.drop("late")
    live.changed("late")
    assert not live.unpromised()


def test_a_job_that_has_begun_or_ended_leaves_nothing_kept_behind():
    w, st = waiting()
    w.run_until(lambda w: w.done("late"))
    assert st.kept_demand is None
    check_kept(w.pool, w.now)
