"""A plan answers as the plain test does, which places the whole queue at every question (Mamat 2011, ch. 4).

What a plan leaves out (bookings that nobody has looked at, the head of a queue in which somebody comes to stand
further back) may not show: not in a decision, not in the last bit of a time.
"""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.lazy_plan import LazyPlan
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.stretch import FRONT, ROWS, WORTH, place_next
from punctual.scheduling.placement.sufficient_test import overloaded, surely_fit
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

NOW = 1.8e9
"""The clock counts from 1970, as in life."""
POOLS = Discipline()
DISCIPLINES = [POOLS] * 24 + [
    Discipline(order=order, partition=partition, assign=assign, network=network, start=start)
    for order, partition, assign, network, start in product(
        ("EDF", "FIFO", "MWF"), ("OPR", "EPR"), ("MN", "AN"), ("OnePort", "Concurrent"), ("Ready", "Together")
    )
]
costs = st.builds(
    Cost,
    chi=st.sampled_from([0.25, 1.0, 3.7]),
    tau=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    theta_cm=st.sampled_from([0.0, 0.5]),
    theta_cp=st.sampled_from([0.0, 0.0, 2.0]),
)
ready = st.lists(st.sampled_from([0.0, 1.0, 7.3]) | st.floats(0.0, 30.0), min_size=1, max_size=6)
speeds = st.none() | st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=6, max_size=6)
grounds = st.builds(
    lambda ready, speeds, discipline: Timeline(
        NOW + np.array(ready), discipline, NOW, None if speeds is None else np.array(speeds[: len(ready)])
    ),
    ready,
    speeds,
    st.sampled_from(DISCIPLINES),
)
fineness = st.sampled_from([1, 1, 2**40])
"""Into how many units a unit is cut: where they are coarse rounding tells, where they are fine floats do."""
asked = st.fixed_dictionaries({
    "arrival": st.floats(0.0, 9.0).map(round),
    "units": st.integers(1, 60),
    "deadline": st.floats(1.0, 250.0),
    "cost": costs,
    "holes": st.just(0) | st.integers(0, 2),
    "least": st.just(1) | st.integers(1, 3),
    "most": st.none() | st.integers(1, 4),
    "not_before": st.just(0.0) | st.floats(0.0, 40.0),
    "reduce": st.just(0.0) | st.sampled_from([0.0, 3.0]),
})  # fmt: skip


def demand_of(asked, n, timeline, fine):
    cost = asked["cost"]
    cost = replace(cost, chi=cost.chi / fine, tau=cost.tau / fine)
    units, deadline = asked["units"] * fine, NOW + asked["deadline"]
    steps = [units * k // (asked["holes"] + 1) for k in range(asked["holes"] + 2)]
    ranges = Ranges.of(*((a + k, b + k) for k, (a, b) in enumerate(pairwise(steps)) if a < b))
    order = timeline.discipline.order_of(
        f"j{n}",
        arrival=NOW + asked["arrival"],
        deadline=deadline,
        load=units,
        cost=cost,
        processors=timeline.ready.size,
    )
    return Demand(
        order=order,
        ranges=ranges,
        cost=cost,
        due=deadline - asked["reduce"],
        least=asked["least"],
        most=None if asked["most"] is None else max(asked["most"], asked["least"]),
        not_before=NOW + asked["not_before"] if asked["not_before"] else 0.0,
        reduce=asked["reduce"],
    )


class Plain:
    """Bookings one after the other, each made at once."""

    def __init__(self, timeline, placements=(), after=None):
        self.timeline, self.placements, self.after = timeline, list(placements), after or timeline.copy()

    def walked(self, demands):
        """Return it with these placed one after the other, or the first that is missed."""
        found = Plain(self.timeline)
        for demand in demands:
            got = place(demand, found.after)
            if isinstance(got, Shortfall):
                return got
            found.after.occupy(got)
            found.placements.append(got)
        return found

    def insert(self, demand, *, overloaded):
        got = place(demand, self.after)
        if not isinstance(got, Shortfall):
            after = self.after.copy()
            after.occupy(got)
            return Plain(self.timeline, [*self.placements, got], after)
        if overloaded or not self.placements:
            return got
        return self.walked(sorted([*(b.demand for b in self.placements), demand], key=lambda d: d.order))

    def at(self, now):
        return Plain(self.timeline.at(now), self.placements, self.after.at(now))


def same(a, b):
    """Whether two bookings are one, to the last bit."""
    return (
        a.demand == b.demand
        and (a.finish, a.reducer, a.port) == (b.finish, b.reducer, b.port)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("where", "cuts", "starts", "ends"))
    )


def begin(plan, plain, k):
    """Let the k-th booking's chunks begin as booked; return what both have become."""
    ours, theirs = plan.placements[k], plain.placements[k]
    chunks = {i: piece[0] for i, piece in enumerate(ours.pieces())}
    ends = ours.ends.tolist()
    left = theirs.created(chunks, ends)
    timeline = plain.timeline.copy()
    timeline.ready[theirs.where] = ends
    timeline.port = max(timeline.port, theirs.port)
    now_there = [left if b is theirs else b for b in plain.placements]
    return plan.created(ours, chunks, ends, ours.port), Plain(timeline, [b for b in now_there if b], plain.after)


@given(grounds, st.lists(asked, min_size=2, max_size=14), fineness, st.data())
def test_it_answers_as_the_plain_test_does(timeline, questions, fine, data):
    size = timeline.ready.size
    places = tuple(Place(f"n{p}", 0) for p in range(size))
    plan, plain, now = Plan.of(places, timeline, [])[0], Plain(timeline), NOW
    for n, question in enumerate(questions):
        demand = demand_of(question, n, timeline, fine)
        got, expected = (
            plan.insert(demand),
            plain.insert(demand, overloaded=overloaded(plan.timeline, plan.demands, demand)),
        )
        if isinstance(expected, Shortfall):
            assert got == expected._replace(placements=got.placements)
        else:
            assert isinstance(got, Plan)
            assert same(got.placement_of(demand.uid), next(b for b in expected.placements if b.demand is demand))
            follows = all(map(same, expected.placements, plain.placements))
            assert not got.follows(plan) or follows
            plan, plain = got, expected
        match data.draw(st.sampled_from(["ask", "ask", "ask", "wait", "begin", "look", "leave"])):
            case "wait":
                now += data.draw(st.floats(0.0, 10.0))
                plan, plain = plan.at(now), plain.at(now)
            case "begin" if begins := [k for k, b in enumerate(plain.placements[:2]) if b.where.size]:
                plan, plain = begin(plan, plain, data.draw(st.sampled_from(begins)))
            case "leave" if plain.placements:
                uid = data.draw(st.sampled_from([b.demand.uid for b in plain.placements]))
                plan = plan.without(uid)
                plain = Plain(plain.timeline, [b for b in plain.placements if b.demand.uid != uid], plain.after)
            case "look":
                assert plan.begins_before(now + 5.0) == any(b.start < now + 5.0 for b in plain.placements)
        assert len(plan) == len(plain.placements)
    assert all(map(same, plan, plain.placements))
    assert np.array_equal(plan.after.ready, plain.after.ready)
    assert plan.after.port == plain.after.port


@given(grounds, st.lists(asked, min_size=2, max_size=8), st.floats(1.0, 250.0), st.randoms(use_true_random=False))
def test_jobs_of_equal_keys_may_be_listed_in_any_order(timeline, questions, deadline, random):
    """As a new leader reads them in the order of an API server."""
    places = tuple(Place(f"n{p}", 0) for p in range(timeline.ready.size))
    alike = [question | {"arrival": 0, "deadline": deadline} for question in questions]
    listed = [demand_of(question, n, timeline, 1) for n, question in enumerate(alike)]
    shuffled = listed.copy()
    random.shuffle(shuffled)
    (one, left_out), (other, also_left_out) = (Plan.of(places, timeline, some) for some in (listed, shuffled))
    assert len(one) == len(other)
    assert all(map(same, one, other))
    assert left_out == also_left_out


@given(ready, st.lists(asked, min_size=1, max_size=14), fineness)
def test_who_surely_fits_does_fit_whatever_comes_before(ready, questions, fine):
    timeline = Timeline(NOW + np.array(ready))
    demands = [demand_of({**q, "deadline": 3.0 * q["deadline"]}, n, timeline, fine) for n, q in enumerate(questions)]
    for demand in demands[: surely_fit(timeline, demands)]:
        placement = place(demand, timeline)
        assert not isinstance(placement, Shortfall)
        timeline.occupy(placement)


@given(ready, st.integers(0, 40))
def test_where_there_is_room_to_spare_only_who_is_asked_about_is_placed(ready, turn):
    """What the decision is quick for: it does not come about by placing all."""
    places, timeline = [Place(f"n{p}", 0) for p in range(len(ready))], Timeline(NOW + np.array(ready))
    cost, pace = Cost(chi=1.0, theta_cp=0.5), 10.5 / len(ready)  # each takes 9.5 s of one processor

    def demand(due, uid):
        order = POOLS.order_of(uid, arrival=NOW, deadline=due, load=9, cost=cost, processors=len(ready))
        return Demand(order=order, ranges=Ranges.of((0, 9)), cost=cost, due=due)

    plan, missed = Plan.of(places, timeline, [demand(NOW + 60.0 + pace * n, f"j{n}") for n in range(100)])
    assert not missed
    assert not plan.lazy.made
    assert len(plan.placements) == len(plan.lazy.made) == 100
    got = plan.insert(demand(NOW + 60.0 + pace * turn - 0.1, "new"))
    assert isinstance(got, Plan)
    assert got.placement_of("new") is got.lazy.made[-1]
    assert len(got.lazy.made) == turn + 1
    assert got.lazy.made[:turn] == plan.lazy.made[:turn]


@st.composite
def long_queues(draw):
    """A queue on many processors: most of its demands are usual, some are not; the numbers come from one seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([WORTH**2, 100, FRONT, FRONT + 1, 700]))
    spread, fine = draw(st.sampled_from([0.0, 10.0, 1e4])), draw(st.sampled_from([1, 1, 2**20, 2**40]))
    ready = rng.uniform(0.0, spread, size)
    if draw(st.booleans()):
        ready = np.round(ready, -1)  # many are ready at one time
    timeline = Timeline((NOW if draw(st.booleans()) else 0.0) + ready)
    base, slack = draw(costs), draw(st.sampled_from([0.3, 1.2, 2.0, 5.0]))
    cost = replace(base, chi=base.chi / fine, tau=base.tau / fine)
    unusual, work, demands = draw(st.sampled_from([0.0, 0.0, 0.05])), 0.0, []
    for n in range(draw(st.integers(20, 90))):
        units = int(rng.integers(1, rng.choice([6, 80, 2000]))) * fine
        work += cost.seconds(units)
        window = spread * rng.uniform(0.3, 1.5) + slack * (work / size + cost.seconds(units) * rng.uniform(0.05, 1.0))
        due = float(timeline.ready.min()) + window
        odd = rng.uniform(size=5) < unusual
        least = int(rng.integers(1, 9)) if odd[0] else 1
        holes = odd[1] and units > 2
        demands.append(
            Demand(
                order=Order(due, 0.0, f"j{n}"),
                ranges=Ranges.of((0, units // 3), (units // 2, units)) if holes else Ranges.of((0, units)),
                cost=cost,
                due=due,
                least=least,
                most=least + 2 if odd[2] else None,
                not_before=float(timeline.ready.mean()) if odd[3] else 0.0,
                reduce=2.0 if odd[4] else 0.0,
            )
        )
    return timeline, sorted(demands, key=lambda d: d.order)


@given(long_queues())
def test_demands_that_are_placed_at_once_get_what_each_would_get_by_itself(queue):
    timeline, demands = queue
    after, alone, missed = timeline.copy(), [], []
    for demand in demands:
        got = place(demand, after)
        if isinstance(got, Shortfall):
            missed.append(got)
        else:
            after.occupy(got)
            alone.append(got)
    row = LazyPlan(timeline)
    assert row.follow(demands) == missed
    assert np.array_equal(row.end().ready, after.ready)
    assert len(row.made) == len(alone)
    assert all(map(same, row.made, alone))


def long_queue(begin=0, **changed):
    """Sixty demands for 400 units from ``begin`` on; the first is placed."""
    timeline = replace(Timeline(np.linspace(0.0, 1000.0, FRONT)), **changed)
    demands = [
        Demand(order=Order(due, 0.0, f"j{n}"), ranges=Ranges.of((begin, begin + 400)), cost=Cost(chi=10.0), due=due)
        for n, due in enumerate(np.arange(1500.0, 1560.0).tolist())
    ]
    first = place(demands[0], timeline)
    timeline.occupy(first)
    return demands[1:], timeline, first


def test_as_many_demands_of_a_long_queue_are_placed_at_once_as_one_array_of_ready_times_serves():
    demands, timeline, first = long_queue()
    assert len(place_next(demands, timeline, first)) == len(demands) > 2 * ROWS


@pytest.mark.parametrize(
    "queue",
    [
        long_queue(),
        long_queue(begin=16),
        long_queue(speeds=np.linspace(1.0, 2.0, FRONT)),
        long_queue(discipline=Discipline(partition="EPR")),
    ],
    ids=["usual", "other units", "other speeds", "equal parts"],
)
def test_what_is_placed_at_once_is_what_each_would_get_by_itself(queue):
    demands, timeline, first = queue
    for placement in place_next(demands, timeline, first):
        assert same(placement, place(placement.demand, timeline))
        timeline.occupy(placement)
