"""Deadlines offered: found wherever one would do, the earliest that is seen, and a bounded number of tests."""

import numpy as np
import pytest

from punctual.scheduling.admission import offers
from punctual.scheduling.admission.exact import PlanTest
from punctual.scheduling.admission.fast_schedule import FastSchedule
from punctual.scheduling.admission.schedule import QueueTest
from punctual.scheduling.admission.statistical import StatisticalQueue
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace
from punctual.theory.cost import Cost

PLACES = [Place(f"n{i}", 0) for i in range(4)]


def asked(name="j", load=1.0, deadline=200.0, arrival=0.0, **costs):
    return JobLine(id=name, arrival=arrival, load=load, deadline=deadline, **costs)


def window(start, end, processors=1):
    return ReservationLine(id="r", kind="reservation", arrival=0.0, start=start, end=end, processors=processors)


def answer(lines, **options):
    """Return what is decided about the last line."""
    document = simulate(Trace.of(lines), Options(**options)).document()
    return next(d for d in document["decisions"] if d["id"] == lines[-1].id)


@pytest.mark.parametrize(
    ("before", "job", "options", "offered"),
    [
        pytest.param(
            [window(1.0, 10000.0)],
            asked(),
            {"processors": 1, "integer_units": True},
            10101.0,
            id="behind a long window",
        ),
        pytest.param([], asked(), {"processors": 1, "speeds": (20.0,)}, 2001.0, id="on a slow processor"),
        pytest.param(
            [window(1.0, 10000.0, 2)],
            asked(load=4.0),
            {"processors": 2, "speeds": (20.0, 40.0), "discipline": Discipline(partition="EPR", assign="AN")},
            18002.0,
            id="in equal parts on slow processors behind a window",
        ),
        pytest.param(
            [asked("first", load=10.0, deadline=1250.0)],
            asked(load=100.0, deadline=6000.0),
            {"processors": 1, "bound": 1.7, "discipline": Discipline()},
            1010.0 + 10100.0 / 1.7,
            id="behind others under a bound above 1",
        ),
        pytest.param(
            [
                asked("first", load=1000.0, deadline=1e6),
                FaultLine(id="f", kind="fault", arrival=0.0, processors=(1, 2, 3)),
            ],
            asked(load=1.0, deadline=101.0, arrival=1.0),
            {"processors": 4, "discipline": Discipline()},
            101100.0,
            id="on one of four processors, the others away",
        ),
    ],
)
def test_an_offer_is_found_however_long_windows_last_and_processors_take(before, job, options, offered):
    first = answer([*before, job], **options)
    assert not first["accepted"]
    earliest = first["earliest_deadline"]
    assert earliest == pytest.approx(offered, rel=2e-6)
    assert answer([*before, job.model_copy(update={"deadline": earliest})], **options)["accepted"]
    tighter = job.model_copy(update={"deadline": earliest * (1.0 - 1e-6)})
    assert not answer([*before, tighter], **options)["accepted"]


@pytest.mark.parametrize("deadline", [51.0, 70.0, 99.0])
def test_one_unit_that_only_the_quick_processor_does_in_time_is_accepted(deadline):
    cost = Cost(chi=100.0)
    found = answer([asked(deadline=deadline)], processors=2, cost=cost, speeds=(1.0, 0.5), integer_units=True)
    assert found["accepted"]


def test_one_unit_is_accepted_that_is_due_when_it_is_done_but_for_rounding():
    job = asked(arrival=1000.1, deadline=147.85714285714286)
    options = {"cost": Cost(chi=100.0, tau=5.0), "headroom": 0.3, "integer_units": True}
    assert job.arrival + job.deadline - job.arrival < job.deadline
    assert answer([job], **options)["accepted"]


@pytest.mark.parametrize("how", [{}, {"admission": "Fast"}, {"bound": 0.8}, {"bound": 0.05}], ids=str)
def test_none_is_made_while_no_processor_is_there(how):
    gone = FaultLine(id="f", kind="fault", arrival=0.0, processors=(0, 1))
    found = answer([gone, asked(arrival=1.0)], processors=2, **how)
    assert not found["accepted"]
    assert "earliest_deadline" not in found


def demand(units, due, uid="new", **more):
    cost = more.pop("cost", Cost(chi=1.0))
    return Demand(order=Order(due, 0.0, uid), ranges=Ranges.of((0, units)), cost=cost, due=due, **more)


def searched(test, wanted):
    """Return what is offered at 0, and after how many tests."""
    search, tests = offers.earliest_deadline(test, wanted, 0.0), 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value, tests
        tests += 1


def bound_line(*waiting, bound):
    return QueueTest(StatisticalQueue.of(0.0, PLACES, Timeline(np.zeros(4)), waiting, bound=bound), 0.0)


def test_a_job_that_would_press_on_one_due_later_is_offered_to_come_behind_it():
    """Though by the bound it is done much earlier."""
    earliest, _ = searched(bound_line(demand(40, 205.0, "other"), bound=0.05), demand(24, 2.0))
    assert earliest == pytest.approx(205.0, rel=2e-6)
    assert earliest > 205.0


@pytest.mark.parametrize("kept_back", [0.0, 30.0, 400.0])
def test_of_two_deadlines_that_would_do_the_earlier_is_offered(kept_back):
    """One in front of a job due later, one behind it; between the two none would do."""
    test = bound_line(demand(800, 1000.0, "other"), bound=0.5)
    assert [test.fits(demand(1960, due)) for due in (979.0, 981.0, 1001.0, 1179.0, 1181.0)] == [0, 1, 0, 0, 1]
    found, _ = searched(test, demand(1960, 500.0, kept_back=kept_back))
    assert found == pytest.approx(980.0 + kept_back, rel=2e-6)


def plan(*booked, places=4):
    made, missed = Plan.of(PLACES[:places], Timeline(np.zeros(places)), booked)
    assert not missed
    return PlanTest(made)


@pytest.mark.parametrize("jobs", [0, 3, 40])
def test_the_number_of_tests_is_bounded(jobs):
    """As a year and a second are apart: from a deadline that has passed to one behind everything."""
    waiting = [demand(10**6, 1e7 * (k + 1), f"j{k}") for k in range(jobs)]
    for test in (plan(*waiting), bound_line(*waiting, bound=1.0)):
        for due in (-5.0, 1e-3, 1e4):
            earliest, tests = searched(test, demand(10**6, due))
            assert earliest is not None
            assert tests <= offers.LOOKS + 1 + 26


def test_a_deadline_is_offered_before_a_slow_processor_can_be_of_use():
    """From 20 s on it gets one of two equal parts, and takes 100 s for it; a third is booked ahead."""
    blackouts = Blackouts.of(3, np.array([2]), np.array([0.0]), np.array([1e6]))
    discipline = Discipline(partition="EPR", assign="AN")
    made, _ = Plan.of(
        PLACES[:3], Timeline(np.zeros(3), discipline, speeds=np.array([1.0, 20.0, 1.0]), blackouts=blackouts), ()
    )
    test = PlanTest(made)
    assert [test.fits(demand(10, due)) for due in (9.9, 10.1, 19.9, 20.1, 99.9, 100.1)] == [0, 1, 1, 0, 0, 1]
    assert searched(test, demand(10, 5.0))[0] == pytest.approx(10.0, rel=2e-6)


def test_inside_windows_that_are_too_short_no_deadline_is_offered():
    blackouts = Blackouts.of(1, np.array([0]), np.array([5.0]), np.array([10.0]), owner=np.array([0]))
    made, _ = Plan.of(PLACES[:1], Timeline(np.zeros(1), blackouts=blackouts), ())
    test = PlanTest(made)
    earliest, tests = searched(test, demand(6, 9.0, inside=0))
    assert earliest is None
    assert tests <= offers.LOOKS + 1


def test_what_sends_more_than_the_line_is_for_gets_no_offer_by_it():
    timeline = Timeline(np.zeros(4), Discipline(network="OnePort"), 0.0)
    line = FastSchedule.of(0.0, PLACES, timeline, [demand(10, 100.0, "first")])
    assert isinstance(line, FastSchedule)
    assert searched(QueueTest(line, 0.0), demand(10, 1.0, cost=Cost(chi=1.0, tau=1.0))) == (None, 0)
