"""A plan for a demand placed now: places without a placement, on which chunks of others are still to leave."""

import numpy as np

from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

NOTHING = np.zeros(3)


def planned() -> Plan:
    """Ten units on the first of three processors, from 0 to 10."""
    order = Order(100.0, 0.0, "j")
    demand = Demand(order=order, ranges=Ranges.of((0, 10)), cost=Cost(chi=1.0), due=100.0)
    plan, missed = Plan.of([Place("n", i) for i in range(3)], Timeline(NOTHING.copy()), [demand])
    assert not missed
    return plan


def times(plan):
    """When its processors are free before all placements, and behind them."""
    return plan.timeline.ready.tolist(), plan.after.ready.tolist()


def test_a_place_that_no_placement_waits_for_is_free_once_what_runs_there_has_left():
    held = planned().held(np.array([7.0, 5.0, 0.0]))
    assert times(held) == ([0.0, 5.0, 0.0], [10.0, 5.0, 0.0])
    assert times(held.held(NOTHING)) == times(held), "the plan has no earlier time"
    assert times(held.held(np.array([0.0, 0.0, 6.0]))) == ([0.0, 5.0, 6.0], [10.0, 5.0, 6.0])


def test_a_chunk_that_ends_as_planned_though_it_was_to_end_sooner_keeps_its_place_until_then():
    plan = planned()
    (placement,) = plan.placements
    sooner = plan.created(placement, {0: Range(0, 10)}, [8.0], -np.inf)
    assert times(sooner) == ([8.0, 0.0, 0.0], [10.0, 0.0, 0.0])
    assert times(sooner.held(np.array([10.0, 0.0, 0.0]))) == ([10.0, 0.0, 0.0], [10.0, 0.0, 0.0])


def test_a_plan_to_which_nothing_is_new_keeps_the_placements_that_are_yet_to_be_made():
    plan = planned()
    assert plan.held(NOTHING) is plan
