"""What a row takes over from another, and where sums alone do not tell that a demand fits."""

from dataclasses import replace

import numpy as np
import pytest

from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.lazy_plan import MARK, LazyPlan
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.sufficient_test import surely_fit
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

ONE_PORT = Discipline(network="OnePort")
AHEAD = Blackouts.of(2, np.array([0]), np.array([50.0]), np.array([60.0]))


def demand(units: int, due: float, uid: str = "j", **setup: float) -> Demand:
    order = Order(due, 0.0, uid)
    return Demand(order=order, ranges=Ranges.of((0, units)), cost=Cost(chi=1.0, tau=0.1, **setup), due=due)


@pytest.mark.parametrize(
    "changed",
    [
        {"ready": np.array([0.0, 1.0])},
        {"port": 3.0},
        {"discipline": Discipline(network="OnePort", partition="EPR")},
        {"speeds": np.array([1.0, 2.0])},
        {"blackouts": AHEAD},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_bookings_are_taken_over_only_upon_a_ground_that_is_the_same(changed):
    timeline = Timeline(np.zeros(2), ONE_PORT, 0.0)
    row, queue = LazyPlan(timeline.copy()), [demand(4, 20.0, "a"), demand(4, 40.0, "b")]
    assert row.follow(queue) == []
    row.end()
    assert len(row.upon(timeline, queue)) == 2
    other = replace(timeline.copy(), **changed)
    again = row.upon(other, queue)
    assert len(again) == 0
    assert again.follow(queue) == []
    found = [again.placement(i).finish for i in range(2)]
    fresh = LazyPlan(replace(timeline.copy(), **changed))
    fresh.follow(queue)
    assert found == [fresh.placement(i).finish for i in range(2)]


def test_demands_that_come_before_others_twice_leave_no_times_of_the_queue_without_them():
    queue = [demand(4, 1000.0 + n, f"j{n}") for n in range(MARK + 8)]
    row, timeline = LazyPlan(Timeline(np.zeros(2))), Timeline(np.zeros(2))
    row.follow(queue)
    row.end()
    for at in (MARK // 2, MARK):
        queue.insert(at, demand(40, queue[at].due, f"before {at}"))
        row = row.upon(timeline, queue)
        assert len(row) == at
        row.follow(queue[at:])
        row.end()
    fresh = LazyPlan(timeline)
    fresh.follow(queue)
    assert np.array_equal(row.end().ready, fresh.end().ready)


@pytest.mark.parametrize(("due", "fits"), [(1.8, False), (2.25, True)])
def test_sums_alone_tell_of_no_demand_that_whole_units_make_late(due, fits):
    """Three units on two processors: as real numbers 1.65 s each, in whole units 2.2 s."""
    asked = demand(3, due)
    timeline = Timeline(np.zeros(2))
    assert isinstance(place(asked, timeline), Shortfall) is not fits
    assert surely_fit(timeline, [asked]) == 0


@pytest.mark.parametrize("setup", [0.0, 5.0])
def test_sums_alone_tell_of_a_demand_with_a_unit_to_spare(setup):
    assert surely_fit(Timeline(np.zeros(2)), [demand(3, 2.8 + setup, theta_cp=setup)]) == 1
