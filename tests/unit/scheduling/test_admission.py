"""Decisions as a table: what stands, what is asked, what is answered."""

import numpy as np
import pytest

from punctual import reasons
from punctual.scheduling.admission import Admitted, Application, Rejected, admit
from punctual.scheduling.discipline import Order
from punctual.scheduling.job import Job
from punctual.scheduling.placement import Demand, Ground
from punctual.scheduling.plan import Plan
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Ranges
from punctual.theory.cost import Cost


def pool(*ready: float, booked: tuple[Demand, ...] = ()) -> Plan:
    places = [Place("n", i) for i in range(len(ready))]
    plan, missed = Plan.of(places, Ground(np.array(ready, dtype=float)), booked)
    assert not missed
    return plan


def demand(units: int, due: float, *, uid: str = "new", chi: float = 1.0, theta: float = 0.0, **more) -> Demand:
    order = Order(more.pop("deadline", due), 0.0, uid)
    return Demand(order=order, ranges=Ranges.of((0, units)), cost=Cost(chi=chi, theta_cp=theta), due=due, **more)


def asked(plan: Plan, wanted: Demand, **more) -> Application:
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
    return Application(job=job, demand=wanted, plan=plan, now=0.0, cpu=1.0, **more)


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
        assert isinstance(answer, Admitted), answer
        assert answer.booking.processors == expected
        answer.plan.check()
        assert answer.plan.keeps_all()
    else:
        assert isinstance(answer, Rejected)
        assert answer.reason == expected


def test_a_rejection_says_its_arithmetic():
    answer = admit(asked(pool(0, 30), demand(500, 100)))
    assert isinstance(answer, Rejected)
    assert answer.message == (
        "500 units due in 1m40s need 5 processors of 1 CPU from now; "
        "2 of 2 are free early enough, the first in 0.0s, and finish 170 units"
    )
