"""Decisions as a table: what stands, what is asked, what is answered."""

import numpy as np
import pytest

from punctual import reasons
from punctual.scheduling.admission.application import JobToTest, Rejected
from punctual.scheduling.admission.exact import ExactSchedule, admit
from punctual.scheduling.admission.schedule import Accepted
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

DISCIPLINE = Discipline()


def pool(
    *ready: float,
    booked: tuple[Demand, ...] = (),
    discipline: Discipline = DISCIPLINE,
    ahead: tuple[int, float, float] | None = None,
) -> Plan:
    """Return a plan; ``ahead``: a processor, and from when to when it is booked ahead."""
    places = [Place("n", i) for i in range(len(ready))]
    blackouts = None
    if ahead:
        where, start, end = ahead
        blackouts = Blackouts.of(len(ready), np.array([where]), np.array([start]), np.array([end]))
    plan, missed = Plan.of(places, Timeline(np.array(ready, dtype=float), discipline, blackouts=blackouts), booked)
    assert not missed
    return plan


def demand(units: int, due: float, *, uid: str = "new", chi: float = 1.0, theta: float = 0.0, **more) -> Demand:
    order = Order(more.pop("deadline", due), 0.0, uid)
    return Demand(order=order, ranges=Ranges.of((0, units)), cost=Cost(chi=chi, theta_cp=theta), due=due, **more)


def asked(plan: Plan, wanted: Demand, **more) -> JobToTest:
    job = Job(
        uid="new",
        namespace="default",
        name="new",
        arrival=0.0,
        units=wanted.ranges.total,
        deadline=wanted.order.rank,
        cost=wanted.cost,
        refusal=more.pop("refusal", None),
    )
    more.setdefault("processors", len(plan.places))
    return JobToTest(job=job, demand=wanted, plan=plan, now=0.0, cpu=1.0, **more)


def case(sentence, plan, wanted, expected, **more):
    return pytest.param(plan, wanted, expected, more, id=sentence)


@pytest.mark.parametrize(
    ("plan", "wanted", "expected", "more"),
    [
        case("fits on one", pool(0, 0, 0, 0), demand(100, 100), 1),
        case("fits exactly on two", pool(0, 0, 0, 0), demand(200, 100), 2),
        case("one second too early takes a third", pool(0, 0, 0, 0), demand(200, 99), 3),
        case("needs all", pool(0, 0, 0, 0), demand(400, 100), 4),
        case("one unit too many", pool(0, 0, 0, 0), demand(401, 100), reasons.INFEASIBLE_CAPACITY),
        case("set-up counts on each", pool(0, 0), demand(200, 101, theta=2.0), reasons.INFEASIBLE_CAPACITY),
        case("inserted idle time is used", pool(0, 50), demand(150, 100), 2),
        case(
            "a processor that is ready too late is no help", pool(0, 100), demand(101, 100), reasons.INFEASIBLE_CAPACITY
        ),
        case("no processors at all", pool(), demand(1, 100), reasons.INFEASIBLE_CAPACITY),
        case("more than max", pool(0, 0, 0), demand(200, 100, most=1), reasons.INFEASIBLE_CAPACITY),
        case("min is taken though fewer would do", pool(0, 0, 0), demand(100, 100, least=3), 3),
        case("min beyond the pool", pool(0, 0, 0), demand(10, 100, least=4), reasons.INFEASIBLE_CAPACITY),
        case("the deadline is shorter than set-up", pool(0), demand(10, 2, theta=3.0), reasons.INFEASIBLE_STARTUP),
        case("the deadline is past", pool(0), demand(10, -5), reasons.INFEASIBLE_STARTUP),
        case(
            "before a looser promise that can wait",
            pool(0, booked=(demand(100, 300, uid="old"),)),
            demand(100, 100),
            1,
        ),
        case(
            "not before a tighter promise that cannot",
            pool(0, booked=(demand(100, 120, uid="old"),)),
            demand(100, 100),
            reasons.INFEASIBLE_CAPACITY,
        ),
        case("refused at the door", pool(0), demand(1, 9), reasons.NOT_ALLOWED, refusal=(reasons.NOT_ALLOWED, "no")),
        case("a pool that is going", pool(0), demand(1, 9), reasons.POOL_DELETED, deleting=True),
    ],
)
def test_an_application_is_answered(plan, wanted, expected, more):
    answer = admit(asked(plan, wanted, **more))
    if isinstance(expected, int):
        assert isinstance(answer, Accepted), answer
        assert answer.processors == expected
        answer.proof.check()
        assert answer.proof.keeps_all()
    else:
        assert isinstance(answer, Rejected)
        assert answer.reason == expected


@pytest.mark.parametrize(
    ("plan", "wanted", "said", "_more"),
    [
        case(
            "too few in time",
            pool(0, 30),
            demand(500, 100),
            "500 units due in 1m40s need 5 processors of 1 CPU from now; 2 of 2 are free early enough, the first in "
            "0.0s, and finish 170 units",
        ),
        case(
            "no more than its maximum",
            pool(0, 0, 0),
            demand(250, 100, most=2),
            "250 units due in 1m40s need 3 processors of 1 CPU from now; 3 of 3 are free early enough, of which it may "
            "use 2, the first in 0.0s, and finish 200 units",
        ),
        case(
            "what is promised and due by then leaves too little",
            pool(0, 40, booked=(demand(50, 60, uid="old"),)),
            demand(120, 100),
            "120 units due in 1m40s take 2m of processor time; 50s are promised to 1 job by then, and 2 processors of "
            "1 CPU have 2m40s until then",
        ),
        case(
            "what is promised and due later is not counted",
            pool(0, booked=(demand(100, 300, uid="old"),)),
            demand(120, 100),
            "120 units due in 1m40s take 2m of processor time; 1 processor of 1 CPU has 1m40s until then",
        ),
        case(
            "a promise would be broken",
            pool(0, 0, booked=(demand(140, 100, uid="old", theta=20.0),)),
            demand(50, 80),
            "50 units due in 1m20s would fit only by breaking an earlier promise: a job due in 1m40s would finish 110 "
            "of its 140 units in time",
        ),
        case(
            "the time is there, but not in equal parts",
            pool(0, 60, discipline=Discipline(partition="EPR")),
            demand(130, 100),
            "130 units due in 1m40s need 2 processors of 1 CPU from now; 2 of 2 are free early enough, the first in "
            "0.0s, and finish 140 units in total, but not in equal parts",
        ),
        case(
            "the time is there and the least number, but not in equal parts",
            pool(0, 0, 60, discipline=Discipline(partition="EPR")),
            demand(210, 100, least=2),
            "210 units due in 1m40s need 3 processors of 1 CPU from now; 3 of 3 are free early enough, the first in "
            "0.0s, and finish 240 units in total, but not in equal parts; 2 processors are free together from 0.0s on",
        ),
        case(
            "the time is there, but on less than the least number",
            pool(0, 0, 100),
            demand(130, 100, least=3),
            "130 units due in 1m40s must begin on 3 processors at one time (spec.processors.min); 3 processors are "
            "free together from 1m40s on",
        ),
        case(
            "processors are booked ahead",
            pool(0, 0, ahead=(1, 50.0, 90.0)),
            demand(180, 100),
            "180 units due in 1m40s need 2 processors of 1 CPU from now; 2 of 2 are free early enough (1 of them "
            "reserved for a time before that), the first in 0.0s, and finish 160 units",
        ),
    ],
)
def test_a_rejection_says_its_arithmetic(plan, wanted, said, _more):
    answer = admit(asked(plan, wanted))
    assert isinstance(answer, Rejected)
    assert answer.message == said


@pytest.mark.parametrize(
    ("network", "free", "begun"),
    [
        ("Concurrent", (0, 1, 2), [("a", 0), ("a", 1), ("b", 2)]),
        ("Concurrent", (0, 2), [("a", 0), ("b", 2)]),
        ("Concurrent", (1, 2), [("a", 1), ("b", 2)]),
        ("OnePort", (0, 1, 2), [("a", 0), ("a", 1), ("b", 2)]),
        ("OnePort", (0, 2), [("a", 0)]),
        ("OnePort", (1, 2), []),
    ],
)
def test_a_chunk_waits_for_earlier_ones_that_wait_for_their_processors_where_they_share_the_port(network, free, begun):
    queue = demand(150, 100, uid="a"), demand(80, 110, uid="b")
    schedule = ExactSchedule(pool(0, 0, 0, booked=queue, discipline=Discipline(network=network)))
    starts = list(schedule.starts(0.0, dict.fromkeys(Place("n", i) for i in free), {}))
    assert [(start.uid, place.slot) for start in starts for _, place in start.pieces] == begun


@pytest.mark.parametrize(
    ("wanted", "moves"),
    [
        (demand(100, 200), False),
        (demand(160, 200, most=1), True),
        (demand(90, 95), True),
        (demand(500, 200), False),
    ],
    ids=["fits behind", "too slow behind on all that it may use", "no time behind", "more than any order can do"],
)
def test_others_move_for_a_demand_that_does_not_fit_behind_them_but_might_before(wanted, moves):
    schedule = ExactSchedule(pool(0, 0, booked=(demand(100, 300, uid="a"), demand(100, 300, uid="b"))))
    assert schedule.movable(wanted) is (schedule.plan if moves else None)
