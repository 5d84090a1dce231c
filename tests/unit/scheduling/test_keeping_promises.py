"""Stories about promises that stand while everything else moves: plans kept, repaired, and made anew."""

from dataclasses import replace

import numpy as np
import pytest
from world import World, job

from punctual.scheduling.plan import Booking, Demand, Order, Plan
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Ranges
from punctual.theory.cost import Cost


def nodes(count: int, cpu: float = 1.0, **more) -> World:
    w = World(**more)
    for n in range(count):
        w.node(f"n{n}", cpu)
    w.tick()
    return w


# a plan that is kept


def three_places() -> tuple[list[Place], Plan]:
    """Book two of three processors."""
    places = [Place(name, 0) for name in "abc"]
    demand = Demand(order=Order(90.0, 0.0, "j"), ranges=Ranges.of((0, 100)), cost=Cost(chi=1.0), due=90.0)
    plan, missed = Plan.of(places, np.array([30.0, 10.0, 0.0]), [demand])
    assert not missed
    assert [places[w].node for w in plan.bookings[0].where] == ["c", "b"]
    return places, plan


def test_a_plan_that_is_kept_knows_nothing_of_a_processor_that_went():
    """Else no offer could be searched for: no finite deadline lies behind a processor that is never free."""
    _, plan = three_places()
    kept = plan.upon([Place("d", 0), Place("b", 0), Place("c", 0)], np.array([5.0, 11.0, 0.0]))
    assert kept
    kept.check()
    (booking,) = kept.bookings
    assert [kept.places[w].node for w in booking.where] == ["c", "b"]
    assert kept.ready.tolist() == [5.0, 11.0, 0.0]
    assert sorted(kept.after) == [5.0, booking.ends[0], booking.ends[1]]
    assert booking.starts.tolist() == [0.0, 11.0]


def test_a_plan_is_not_kept_where_a_booked_processor_went():
    places, plan = three_places()
    assert plan.upon(places[:2], np.zeros(2)) is None


# chunks of a booking


@pytest.mark.parametrize(("most", "left", "held_up"), [(3, 1, False), (2, 2, True), (None, None, False)])
def test_what_is_left_of_a_booking_leaves_the_rest_of_its_maximum(most, left, held_up):
    """Else, booked anew for another job's sake, a running job would get more processors than it wants."""
    _, plan = three_places()
    (booking,) = plan.bookings
    booking.demand = replace(booking.demand, least=2, most=most)
    chunks = {i: pieces[0] for i, pieces in enumerate(booking.pieces())}
    assert booking.created(chunks) is None
    booking = replace(booking, reducer=0)
    rest = booking.created(chunks).demand
    assert (rest.least, rest.most, rest.ranges.total) == (1, left, 0)
    assert rest.not_before == (booking.ends.max() if held_up else 0.0)
    assert rest.running_until == booking.ends.max()


@pytest.mark.parametrize("count", [1, 8])
def test_all_chunks_that_begin_together_are_cut_from_their_booking_at_once(monkeypatch, count):
    """Cutting it anew for each made a step with N chunks take O(N^2): half a minute for 4000."""
    cut = []
    pieces = Booking.pieces
    monkeypatch.setattr(Booking, "pieces", lambda booking: cut.append(1) or pieces(booking))
    w = nodes(count, cpu=50.0)
    w.apply(job(units=4500 * count, deadline=100.0))
    w.tick()
    assert len(w.records["j1"].chunks) > 45 * count
    assert len(cut) == 1
