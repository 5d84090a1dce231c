"""Reservations and the placement around them, as stories with numbers; at random in tests/property."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from punctual.errors import InvariantError
from punctual.scheduling.admission.reservation_test import (
    AcceptedReservation,
    BookedReservation,
    BookedReservations,
    Refused,
    admit,
    nearest,
)
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.slotted import place_around
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.theory.cost import Cost

COST = Cost(chi=1.0, theta_cp=1.0)


def demand(units, due, uid="j", *, cost=COST, **more):
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, units)), cost=cost, due=due, **more)


def timeline(ready, windows=(), sending=(), *, speeds=None, **chosen):
    """``windows``: (place, start, end); ``sending``: intervals of the port."""
    where, start, end = (np.array([w[i] for w in windows], dtype=t) for i, t in enumerate((np.intp, float, float)))
    return Timeline(
        np.array(ready, dtype=float),
        Discipline(**chosen),
        speeds=None if speeds is None else np.array(speeds),
        blackouts=Blackouts.of(len(ready), where, start, end, sending),
    )


def lines(placement):
    """Who gets how much from when until when."""
    return list(
        zip(
            placement.where.tolist(),
            np.diff(placement.cuts).tolist(),
            placement.starts.tolist(),
            placement.ends.tolist(),
            strict=True,
        )
    )


def pool(n, demands=(), **chosen):
    places = [Place(f"n{i}", 0) for i in range(n)]
    plan, missed = Plan.of(places, Timeline(np.zeros(n), Discipline(**chosen)), demands)
    assert not missed
    return plan


def asked(start, end, processors, uid="r", io_ratio=0.0):
    return Reservation(uid=uid, arrival=0.0, start=start, end=end, processors=processors, io_ratio=io_ratio)


def answered(ahead, plan, reservation):
    return admit(reservation, ahead, blackouts(ahead, plan), 0.0)


def blackouts(ahead, plan):
    """The plan upon a ground that knows of what is booked ahead."""
    return plan.retimed(replace(plan.timeline, blackouts=ahead.on(plan.places, plan.timeline.discipline)))


def accepted(ahead, plan, reservation):
    got = answered(ahead, plan, reservation)
    assert isinstance(got, AcceptedReservation), got
    got.plan.check()
    ahead.book(got.held)
    return got


def searched(ahead, plan, reservation):
    """The start that is offered, and how many steps its search took."""
    search, steps = nearest(reservation, ahead, blackouts(ahead, plan), 0.0), 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def offered(ahead, plan, reservation):
    return searched(ahead, plan, reservation)[0]


def test_a_job_uses_the_time_before_a_window_and_behind_it_each_with_its_own_set_up():
    placement = place(demand(20, 100.0), timeline([0.0], [(0, 10.0, 30.0)]))
    assert lines(placement) == [(0, 9, 0.0, 10.0), (0, 11, 30.0, 42.0)]
    assert placement.processors == 1


def test_two_processors_of_which_one_has_a_window_end_together():
    placement = place(demand(50, 60.0, as_before=2), timeline([0.0, 0.0], [(1, 10.0, 30.0)]))
    assert lines(placement) == [(0, 36, 0.0, 37.0), (1, 9, 0.0, 10.0), (1, 5, 30.0, 36.0)]


def test_who_is_done_before_the_first_window_is_placed_as_if_there_were_none():
    free = Timeline(np.array([0.0, 3.0, 7.0]))
    later = timeline([0.0, 3.0, 7.0], [(0, 50.0, 60.0)])
    assert lines(place(demand(60, 49.0), later)) == lines(place(demand(60, 49.0), free))


def test_a_later_job_gets_the_time_before_a_window_that_an_earlier_one_could_not_use():
    left = timeline([0.0], [(0, 3.5, 30.0)])
    first = place(demand(20, 60.0, cost=Cost(chi=1.0, theta_cp=3.0)), left)
    assert lines(first) == [(0, 20, 30.0, 53.0)], "no unit fits before the window"
    left.occupy(first)
    assert lines(place(demand(2, 70.0), left)) == [(0, 2, 0.0, 3.0)]


def test_over_one_port_nobody_sends_while_the_input_of_a_reservation_is_sent_but_chunks_go_on():
    cost = Cost(chi=10.0, tau=1.0)
    placement = place(demand(8, 200.0, cost=cost), timeline([0.0], [], [(5.0, 20.0)], network="OnePort"))
    # five are sent before and computed meanwhile; the others follow when they are done
    assert lines(placement) == [(0, 5, 0.0, 55.0), (0, 3, 55.0, 88.0)]
    late = place(demand(8, 200.0, cost=cost), timeline([7.0], [], [(5.0, 20.0)], network="OnePort"))
    assert lines(late) == [(0, 8, 20.0, 108.0)]


def test_input_of_its_own_needs_no_port():
    assert lines(place(demand(8, 200.0), timeline([0.0], [], [(5.0, 20.0)]))) == [(0, 8, 0.0, 9.0)]


def test_the_reduce_step_does_not_run_into_a_window():
    placement = place(demand(8, 40.0, reduce=5.0), timeline([0.0], [(0, 12.0, 30.0)]))
    assert lines(placement) == [(0, 8, 0.0, 9.0)]
    assert placement.finish == 35.0
    other = place(demand(8, 40.0, reduce=5.0), timeline([0.0, 11.0], [(0, 12.0, 30.0)]))
    assert (other.reducer, other.finish) == (1, 16.0)
    assert isinstance(place(demand(8, 20.0, reduce=5.0), timeline([0.0], [(0, 12.0, 30.0)])), Shortfall)


def test_a_refusal_counts_what_fits_around_the_windows():
    short = place(demand(40, 40.0), timeline([0.0, 0.0], [(0, 10.0, 30.0), (1, 10.0, 30.0)]))
    assert (short.units, short.fit, short.usable) == (40, 36, 2)
    late = place(demand(40, 20.0), timeline([30.0], [(0, 10.0, 15.0)], start="Together"))
    assert (late.units, late.fit, late.usable) == (40, 0, 0)


def slots_of(ready, windows):
    """Free times by place, (begin, end, place), computed plainly."""
    found = []
    for p, at in enumerate(ready):
        begin = at
        for _, start, end in sorted(w for w in windows if w[0] == p):
            found += [(begin, start, p)] if begin < start else []
            begin = max(begin, end)
        found.append((begin, inf, p))
    return sorted(found)


def all_cuts(units, parts):
    if parts == 1:
        yield (units,)
        return
    for first in range(units + 1):
        for rest in all_cuts(units - first, parts - 1):
            yield (first, *rest)


def soonest(slots, units, cost, speeds, *, one_port, sending):
    """Try all whole cuts, at most one chunk per slot, served in order of begin; return the least finish."""
    best = inf
    for cut in all_cuts(units, len(slots)):
        port = finish = -inf
        for (begin, until, p), size in zip(slots, cut, strict=True):
            if not size:
                continue
            start, sent = begin, cost.theta_cm + size * cost.tau
            if one_port:
                start = max(begin, port)
                for begun, ended in sending:
                    start = max(start, ended) if start < ended and start + sent > begun else start
                port = start + sent
            end = start + cost.setup + size * (cost.tau + cost.chi * speeds[p])
            finish = max(finish, inf if end > until + 1e-9 else end)
        best = min(best, finish)
    return best


def compared(seed, *, one_port, intervals, count=60):
    """Finish over the least finish of a fixed sample: up to three processors, windows, up to seven units."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        n = int(rng.integers(1, 4))
        ready = rng.uniform(0.0, 10.0, n).tolist()
        windows = [
            (p, s, s + rng.uniform(1.0, 10.0)) for p in range(n) if rng.random() < 0.7 for s in [rng.uniform(2, 20)]
        ]
        sending = [(s, s + rng.uniform(1.0, 6.0)) for s in [rng.uniform(2.0, 15.0)]] if intervals else []
        setups = rng.choice([0.0, 0.5, 1.0, 5.0], 2) if rng.random() < 0.5 else (0.0, 0.0)
        cost = Cost(float(rng.choice([1.0, 3.0])), float(rng.choice([0.0, 0.2, 1.0, 4.0])), *map(float, setups))
        speeds = rng.choice([0.5, 1.0, 2.0], n).tolist()
        units = int(rng.integers(1, 8))
        network = "OnePort" if one_port else "Concurrent"
        on = timeline(ready, windows, sending, speeds=speeds, network=network)
        placement = place_around(demand(units, 1e3, cost=cost, as_before=n), on, on.blackouts)
        least = soonest(slots_of(ready, windows), units, cost, speeds, one_port=one_port, sending=sending)
        found.append((placement.finish / least, cost.theta_cm > 0.0))
    return found


def test_with_input_of_its_own_no_whole_cut_around_windows_ends_sooner():
    ratios = compared(3, one_port=False, intervals=False)
    assert all(abs(ratio - 1.0) < 1e-9 for ratio, _ in ratios)


def test_over_one_port_no_whole_cut_ends_sooner_but_where_transfers_are_set_up():
    """With θcm, serving all that could have a share is not always best, as without windows (docs/papers.md)."""
    found = compared(3, one_port=True, intervals=False, count=300)
    assert all(abs(ratio - 1.0) < 1e-9 for ratio, setups in found if not setups)
    with_setups = [ratio for ratio, setups in found if setups]
    assert np.mean(with_setups) < 1.01
    assert max(with_setups) < 1.4


def test_around_intervals_of_the_port_a_second_chunk_makes_it_better_than_any_cut_with_one_per_slot():
    found = compared(4, one_port=True, intervals=True, count=300)
    assert all(ratio < 1.0 + 1e-9 for ratio, setups in found if not setups)
    assert min(ratio for ratio, _ in found) < 0.9
    with_setups = [ratio for ratio, setups in found if setups]
    assert np.mean(with_setups) < 1.01
    assert max(with_setups) < 1.4


def test_a_reservation_gets_the_places_on_which_least_is_booked():
    plan = pool(3, [demand(30, 40.0)])
    assert set(plan.placements[0].where.tolist()) == {0}
    got = accepted(BookedReservations(), plan, asked(10.0, 20.0, 2))
    assert [p.node for p in got.held.places] == ["n1", "n2"]
    assert got.plan.placements[0].starts.tolist() == [0.0]


def test_promised_jobs_make_way_where_they_can_and_stand_where_they_cannot():
    ahead, plan = BookedReservations(), pool(1, [demand(20, 60.0)])
    got = accepted(ahead, plan, asked(10.0, 30.0, 1))
    assert lines(got.plan.placements[0]) == [(0, 9, 0.0, 10.0), (0, 11, 30.0, 42.0)]
    tight = pool(1, [demand(20, 41.0, "tight")])
    no = answered(BookedReservations(), tight, asked(10.0, 30.0, 1))
    assert no == Refused(
        "InfeasibleReservation",
        "1 processor from 10s on for 20s would break an earlier promise: a job due in 41s would finish 19 of its 20 "
        "units in time",
    )
    # behind it there is room: 1 + 20 s of work
    start, steps = searched(BookedReservations(), tight, asked(10.0, 30.0, 1))
    assert start == pytest.approx(21.0, rel=1e-6)
    assert steps < 60, "once nothing a millionth nearer is accepted, the search ends"


REFUSED = [
    (asked(-1.0, 5.0, 1), "has already begun", 0.0),
    (asked(5.0, 9.0, 4), "the pool has 3", None),
    (asked(15.0, 25.0, 2), "at some time in it, 2 of 3 are reserved", 20.0),
    (asked(8.0, 12.0, 2), "at some time in it, 2 of 3 are reserved", 20.0),
]


@pytest.mark.parametrize(("reservation", "why", "offer"), REFUSED)
def test_a_refusal_tells_why_and_what_would_do(reservation, why, offer):
    ahead, plan = BookedReservations(), pool(3)
    accepted(ahead, plan, asked(10.0, 20.0, 2, "first"))
    no = answered(ahead, plan, reservation)
    assert no.reason == "InfeasibleReservation"
    assert why in no.message
    assert offered(ahead, plan, reservation) == offer


def test_windows_may_touch():
    ahead, plan = BookedReservations(), pool(1)
    accepted(ahead, plan, asked(10.0, 20.0, 1, "a"))
    accepted(ahead, plan, asked(20.0, 30.0, 1, "b"))
    accepted(ahead, plan, asked(0.0, 10.0, 1, "c"))


def test_inputs_of_two_reservations_meet_on_one_port_only():
    for network, refused in (("OnePort", True), ("Concurrent", False)):
        ahead, plan = BookedReservations(), pool(4, network=network)
        accepted(ahead, plan, asked(10.0, 30.0, 1, "first", io_ratio=0.5))
        second = asked(19.0, 29.0, 1, "second", io_ratio=0.1)
        no = answered(ahead, plan, second)
        assert isinstance(no, Refused) == refused
        assert offered(ahead, plan, second) == (20.0 if refused else 19.0)


def test_the_port_is_free_for_so_long_before_between_or_behind_what_is_kept_of_it():
    ahead, plan = BookedReservations(), pool(4, network="OnePort")
    assert ahead.sendable(3.0, 1e6) == 3.0
    accepted(ahead, plan, asked(10.0, 30.0, 1, "first", io_ratio=0.5))
    accepted(ahead, plan, asked(25.0, 30.0, 1, "second", io_ratio=1.0))
    for at, seconds, free in ((3.0, 7.0, 3.0), (4.0, 7.0, 30.0), (10.5, 0.0, 20.0), (12.0, 5.0, 20.0)):
        assert ahead.sendable(at, seconds) == free


def test_what_is_planned_before_the_port_is_kept_is_sent_the_clearance_before():
    ahead, plan = BookedReservations(clearance=3.0), pool(2, network="OnePort")
    with_one = accepted(ahead, plan, asked(10.0, 20.0, 1, "first", io_ratio=0.5)).plan
    again = accepted(ahead, with_one, asked(30.0, 40.0, 1, "second", io_ratio=0.5)).plan
    for blackouts in (again.timeline.blackouts, ahead.on(plan.places, plan.timeline.discipline)):
        assert (blackouts.sends, blackouts.sent) == ([7.0, 27.0], [15.0, 35.0])


def test_what_runs_beyond_the_start_keeps_its_processor():
    plan = replace(pool(2), timeline=Timeline(np.array([0.0, 15.0])))
    no = answered(BookedReservations(), plan, asked(10.0, 20.0, 2))
    assert "running chunks will still occupy all but 1" in no.message
    assert offered(BookedReservations(), plan, asked(10.0, 20.0, 2)) == 15.0


def test_enough_at_each_time_but_not_the_same_ones_throughout_is_refused():
    """Two processors, one window on each: by the count of alg. 2 a third that touches both is accepted."""
    ahead, plan = BookedReservations(), pool(2)
    ahead.book(BookedReservation(asked(0.0, 10.0, 1, "a"), (plan.places[0],)))
    ahead.book(BookedReservation(asked(12.0, 20.0, 1, "b"), (plan.places[1],)))
    no = answered(ahead, plan, asked(8.0, 14.0, 1))
    assert "enough are free at each time, but only 0 from start to end" in no.message
    assert offered(ahead, plan, asked(8.0, 14.0, 1)) == 10.0


def test_of_places_that_are_free_that_with_the_shortest_idle_time_before_is_taken():
    ahead, plan = BookedReservations(), pool(2)
    ahead.book(BookedReservation(asked(0.0, 10.0, 1, "a"), (plan.places[1],)))
    assert accepted(ahead, plan, asked(12.0, 20.0, 1, "b")).held.places == (plan.places[1],)


def test_what_is_released_or_over_leaves_nothing():
    ahead, plan = BookedReservations(), pool(2, network="OnePort")
    for n, start in enumerate((0.0, 20.0, 40.0)):
        accepted(ahead, plan, asked(start, start + 10.0, 2, f"r{n}", io_ratio=0.2))
    ahead.release("r1")
    ahead.forget(10.0)
    assert list(ahead.held) == ["r2"]
    for calendar in (ahead.calendar, ahead.port):
        calendar.check()
        assert len(calendar.windows()) == 1
    left = ahead.on(plan.places, plan.timeline.discipline)
    assert (left.start.tolist(), left.sends, left.sent) == ([40.0, 40.0], [40.0], [42.0])
    ahead.release("r2")
    assert ahead.on(plan.places, plan.timeline.discipline) is None
    with pytest.raises(KeyError):
        ahead.release("r2")


def test_windows_of_places_that_are_gone_are_nobodys():
    ahead, plan = BookedReservations(), pool(2, network="OnePort")
    accepted(ahead, plan, asked(10.0, 20.0, 2, io_ratio=0.5))
    left = ahead.on([Place("n1", 0), Place("n2", 0)], plan.timeline.discipline)
    assert (left.place.tolist(), left.sends) == ([0], [10.0])
    none = ahead.on([Place("n7", 0)], plan.timeline.discipline)
    held = place(demand(8, 60.0), Timeline(np.zeros(1), plan.timeline.discipline, blackouts=none))
    assert isinstance(held, Placement)


@pytest.mark.parametrize(
    "window",
    [
        (5.0, 5.0, 1, 0.0),
        (5.0, inf, 1, 0.0),
        (5.0, 9.0, 0, 0.0),
        (5.0, 9.0, 1, 1.5),
        (float("nan"), 9.0, 1, 0),
        (-inf, 9.0, 1, 0),
    ],
)
def test_a_reservation_without_length_or_processors_is_none(window):
    start, end, processors, io_ratio = window
    with pytest.raises(ValueError, match="window"):
        asked(start, end, processors, io_ratio=io_ratio)


def test_a_plan_that_meets_a_window_is_found_out():
    plan = pool(1, [demand(20, 60.0)])
    for windows, sending in ([(0, 10.0, 30.0)], ()), ([], [(0.0, 4.0)]):
        bad = replace(plan, timeline=timeline([0.0], windows, sending, network="OnePort" if sending else "Concurrent"))
        with pytest.raises(InvariantError, match="overlaps"):
            bad.check()


def test_many_jobs_around_many_windows_keep_their_rules():
    rng = np.random.default_rng(7)
    for network, partition in (("OnePort", "OPR"), ("Concurrent", "OPR"), ("Concurrent", "EPR")):
        ahead, plan = BookedReservations(), pool(12, network=network, partition=partition)
        cost = Cost(chi=2.0, tau=0.1, theta_cm=0.2, theta_cp=1.0)
        for n in range(40):
            start = rng.uniform(0.0, 400.0)
            r = asked(start, start + rng.uniform(5.0, 60.0), int(rng.integers(1, 8)), f"r{n}", io_ratio=0.05)
            got = admit(r, ahead, plan, 0.0)  # each plan is around what was accepted before
            if isinstance(got, AcceptedReservation):
                plan = got.plan
                ahead.book(got.held)
            got = plan.insert(demand(int(rng.integers(5, 300)), rng.uniform(60.0, 600.0), f"j{n}", cost=cost))
            plan = plan if isinstance(got, Shortfall) else got
        plan.check()
        assert len(plan.placements) > 10
        assert len(ahead.held) > 5
        assert any(len(set(b.where.tolist())) < b.where.size for b in plan.placements) or partition == "EPR"
        assert all(a <= b for a, b in pairwise(sorted(ahead.port.windows())))
