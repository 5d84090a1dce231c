"""The disciplines as a table of who gets what when, and as stories in a Pool (Mamat 2011, ch. 4)."""

from dataclasses import replace

import numpy as np
import pytest
from world import World, job

from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time, execution_time_equal, n_star, n_star_equal

COST = Cost(chi=100.0, tau=1.0, theta_cm=3.0, theta_cp=2.0)
FINE = 2**20
"""Units of a load of 1: what rounding does is not the matter here."""


def demand(load: float, due: float, uid: str = "j") -> Demand:
    cost = replace(COST, chi=COST.chi / FINE, tau=COST.tau / FINE)
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, round(load * FINE))), cost=cost, due=due)


def on(*ready: float, **chosen) -> Timeline:
    return Timeline(np.array(ready, dtype=float), Discipline(**chosen))


@pytest.mark.parametrize("partition", ["OPR", "EPR"])
@pytest.mark.parametrize("start", ["Ready", "Together"])
def test_on_idle_processors_the_least_that_meet_the_deadline_take_what_the_closed_form_says(partition, start):
    take = execution_time if partition == "OPR" else execution_time_equal
    ends = [take(200.0, n, COST) for n in range(1, 17)]
    for n in range(1, 12):
        placement = place(
            demand(200.0, ends[n - 1] + 0.01), on(*[0.0] * 16, partition=partition, start=start, network="OnePort")
        )
        assert placement.where.size == n
        assert placement.finish == pytest.approx(ends[n - 1], abs=1e-3)


@pytest.mark.parametrize(("partition", "useful"), [("OPR", n_star), ("EPR", n_star_equal)])
def test_all_that_are_of_use_under_the_rule_are_taken_and_no_more(partition, useful):
    one_port = on(*[0.0] * 64, partition=partition, assign="AN", network="OnePort")
    assert place(demand(50.0, 9999.0), one_port).where.size == useful(50.0, COST, limit=64) < 64
    assert place(demand(50.0, 9999.0), on(*[0.0] * 64, partition=partition, assign="AN")).where.size == 64


def test_the_two_rules_differ_in_how_many_are_of_use():
    assert n_star(50.0, COST, limit=64) != n_star_equal(50.0, COST, limit=64)


def test_together_waits_for_the_last_of_them_where_ready_begins_with_the_first():
    ready, due = (0.0, 700.0), 1000.0
    work = demand(12.0, due)
    waited = place(work, on(*ready, start="Together"))
    assert isinstance(waited, Shortfall), "700 + 6 x 101 s are too late"
    at_once = place(work, on(*ready, start="Ready"))
    assert at_once.starts.tolist() == [0.0, 700.0]
    assert at_once.finish <= due


def test_nobody_sends_before_the_port_is_free():
    timeline = on(0.0, 0.0, network="OnePort")
    timeline.port = 40.0
    placement = place(demand(10.0, 700.0), timeline)
    assert placement.starts[0] == 40.0
    assert placement.starts[1] == pytest.approx(40.0 + 3.0 + np.diff(placement.cuts)[0] / FINE, abs=1e-6)
    assert placement.port == pytest.approx(40.0 + 6.0 + 10.0, abs=1e-6)


@pytest.mark.parametrize(
    "chosen", [{"network": "OnePort"}, {"network": "OnePort", "start": "Together"}, {"partition": "EPR"}]
)
def test_a_plan_of_many_keeps_its_own_rules(chosen):
    rng = np.random.default_rng(5)
    timeline = on(*rng.uniform(0.0, 300.0, 12), **chosen)
    loads, dues = rng.uniform(1.0, 40.0, 30), rng.uniform(500.0, 9000.0, 30)
    demands = [demand(load, due, f"j{i}") for i, (load, due) in enumerate(zip(loads, dues, strict=True))]
    plan, _ = Plan.of([Place(f"n{i}", 0) for i in range(12)], timeline, demands)
    assert len(plan.placements) > 5
    plan.check()
    later = replace(timeline, ready=timeline.ready + 50.0)
    plan.retimed(later).check()


def order(chosen: str, *, deadline: float = 100.0, arrival: float = 0.0, load: int = 10) -> Order:
    rule = Discipline(order=chosen, network="OnePort")
    return rule.order_of("j", arrival=arrival, deadline=deadline, load=load, cost=COST, processors=64)


def test_who_comes_first():
    assert order("EDF", deadline=50.0) < order("EDF", deadline=60.0)
    assert order("FIFO", deadline=90.0, arrival=1.0) < order("FIFO", deadline=50.0, arrival=2.0)
    # one processor more costs the larger of two loads more, both in the time that n* needs
    tight = {load: execution_time(load, 3, COST) + 1.0 for load in (10, 40)}
    assert order("MWF", load=40, deadline=tight[40]) < order("MWF", load=10, deadline=tight[10])


@pytest.mark.parametrize("assign", ["MN", "AN"])
@pytest.mark.parametrize("partition", ["OPR", "EPR"])
@pytest.mark.parametrize("first", ["EDF", "FIFO", "MWF"])
def test_a_pool_keeps_its_promises_under_any(first, partition, assign):
    w = World()
    w.edit_pool(replace(w.spec, discipline=Discipline(order=first, partition=partition, assign=assign), generation=2))
    w.node("n1", 4.0)
    for n, (units, deadline) in enumerate([(60, 60), (20, 90), (80, 120), (10, 45)]):
        w.apply(job(f"j{n}", units=units, deadline=deadline))
    w.tick()
    promised = [uid for uid, record in w.records.items() if record.promise]
    assert len(promised) > 2
    w.run_until(lambda w: all(w.done(uid) for uid in promised))
    assert all(w.met(uid) for uid in promised)
    if assign == "AN":
        assert all(w.records[uid].promise.processors == 4 for uid in promised)


def test_another_discipline_is_put_in_force_only_where_every_promise_stands_under_it():
    w = World()
    w.node("n1", 2.0)
    w.tick()
    w.apply(job("loose", units=40, deadline=200.0))
    w.apply(job("tight", units=50, deadline=40.0, arrival=0.0))
    w.run(1)
    assert all(w.records[uid].promise for uid in ("loose", "tight"))
    before = w.spec
    w.edit_pool(replace(before, discipline=Discipline(order="FIFO"), generation=2))
    w.run(2)
    assert w.pool_record.spec_applied.status in {"True", "False"}
    w.run_until(lambda w: w.done("loose") and w.done("tight"))
    assert w.met("tight")
    assert w.met("loose")
