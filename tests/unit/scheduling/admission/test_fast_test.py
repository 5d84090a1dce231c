"""Hybrid admission: when it switches, and what a hand-over does."""

import numpy as np
import pytest

from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.scheduling.admission.fast_test import Obstacle, to_fast, turn_of, wanted
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

NOW = 1.8e9
UNIT = Cost(1.0)


@pytest.mark.parametrize(
    ("test", "waiting", "threshold", "then"),
    [
        ("Exact", 0, 300, "Exact"),
        ("Exact", 299, 300, "Exact"),
        ("Exact", 300, 300, "Fast"),
        ("Fast", 299, 300, "Fast"),
        ("Fast", 150, 300, "Fast"),
        ("Fast", 149, 300, "Exact"),
        ("Exact", 150, 300, "Exact"),
        ("Fast", 0, 1, "Exact"),
        ("Exact", 1, 1, "Fast"),
        ("Exact", 0, 0, "Fast"),
        ("Fast", 0, 0, "Fast"),
    ],
)
def test_which_test_is_wanted(test, waiting, threshold, then):
    assert wanted(test, waiting, threshold=threshold) == then


def test_a_queue_that_swings_around_the_threshold_switches_once():
    test, switches = "Exact", 0
    for waiting in [290, 301, 299, 302, 280, 305, 160, 299, 300]:
        then = wanted(test, waiting, threshold=300)
        switches += then != test
        test = then
    assert (test, switches) == ("Fast", 1)


def demand(uid="j", *, units=10, due=100.0, cost=UNIT, **other):
    order = Order(NOW + due, NOW, uid)
    return Demand(order=order, ranges=Ranges.of((0, units)), cost=cost, due=NOW + due, **other)


def timeline(*ends, port=-np.inf, network="Concurrent"):
    return Timeline(NOW + np.array(ends), Discipline(network=network), port=port)


def test_the_line_has_all_that_waits_by_due_time_and_what_runs():
    line = to_fast(NOW, timeline(0.0, 40.0), [demand("b", due=90.0), demand("a", due=50.0, units=20)])
    assert isinstance(line, FastQueue)
    assert [w.order[2] for w in line.waiting] == ["a", "b"]
    # two processors: 50 + 10 s until a's due time, 20 taken by a; 90 + 50 until b's; a unit is kept back
    assert [w.slack for w in line.waiting] == pytest.approx([30 - 10 - 1, 70 - 10 - 5 - 1])
    assert line.delay(NOW, NOW + 50.0) == pytest.approx(20.0)


def test_over_one_port_the_line_has_the_least_beta_of_all_that_waits():
    line = to_fast(
        NOW,
        timeline(0.0, 0.0, port=NOW + 3.0, network="OnePort"),
        [demand("a", cost=Cost(9.0, 1.0), units=1), demand("b")],
    )
    assert isinstance(line, FastQueue)
    assert (line.beta, line.port) == (0.9, NOW + 3.0)
    assert line.delay(NOW, NOW + 100.0) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("given", "upon", "what"),
    [
        (demand(least=2), timeline(0.0, 0.0), "needs 2 processors at once"),
        (demand(most=1), timeline(0.0, 0.0), "may use 1 of 2 processors"),
        (demand(most=2), timeline(0.0, 0.0), None),
        (demand(not_before=NOW + 5.0), timeline(0.0, 0.0), "may not begin for 5 s"),
        (demand(not_before=NOW - 5.0), timeline(0.0, 0.0), None),
        (demand(reduce=2.0), timeline(0.0, 0.0), "ends with a reduce step"),
        (demand(due=20.0), timeline(15.0, 15.0), "could be late by 1 s"),
        (demand(due=20.0), timeline(14.0, 14.0), None),
    ],
)
def test_who_cannot_be_promised_by_the_line_keeps_it_from_taking_over(given, upon, what):
    line = to_fast(NOW, upon, [demand("other", due=200.0), given])
    if what is None:
        assert isinstance(line, FastQueue)
    else:
        assert line == Obstacle("j", what)


def test_holes_and_different_speeds_are_for_the_exact_test():
    holes = Demand(order=Order(NOW + 90.0, NOW, "j"), ranges=Ranges.of((0, 2), (5, 7)), cost=Cost(1.0), due=NOW + 90.0)
    assert to_fast(NOW, timeline(0.0), [holes]) == Obstacle("j", "has its units in 2 ranges")
    slow = Timeline(NOW + np.zeros(2), speeds=np.array([1.0, 2.0]))
    assert to_fast(NOW, slow, [demand()]) == Obstacle("", "processors differ in speed")


def test_back_to_exact_if_all_of_it_can_be_placed():
    places = [Place("n", 0), Place("n", 1)]
    plan, short = Plan.of(
        places, timeline(0.0, 40.0), [demand("b", due=90.0), demand("a", due=50.0, units=20)], stop=True
    )
    assert not short
    assert [b.demand.uid for b in plan.placements] == ["a", "b"]
    assert plan.keeps_all()
    _, (missed,) = Plan.of(
        places, timeline(0.0, 40.0), [demand("b", due=90.0), demand("a", due=15.0, units=20)], stop=True
    )
    assert isinstance(missed, Shortfall)
    assert missed.uid == "a"


def test_a_turn_is_by_due_time_in_any_order_of_the_pool():
    first_come = Demand(order=Order(NOW - 9.0, NOW - 9.0, "j"), ranges=Ranges.of((0, 1)), cost=Cost(1.0), due=NOW + 5.0)
    assert turn_of(first_come) == (NOW + 5.0, NOW - 9.0, "j")
