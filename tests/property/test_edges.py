"""At the edge between in time and late the cut alone decides: what is looked at before only saves work.

A plan is asked with deadlines some ulps around the least that does; the reference tries each number of processors and
looks at nothing but the end of what it has cut.
"""

from dataclasses import replace
from itertools import product
from math import inf, nextafter

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from punctual.scheduling.admission.exact import PlanTest
from punctual.scheduling.admission.offers import earliest_deadline
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Placement, Timeline, extra_fragments
from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import equal_partition, partition
from punctual.theory.tolerance import tolerance

DISCIPLINES = [
    Discipline(order="FIFO", partition=partition, assign=assign, network=network, start=start)
    for partition, assign, network, start in product(
        ("OPR", "EPR"), ("MN", "AN"), ("OnePort", "Concurrent"), ("Ready", "Together")
    )
]


def cut(demand, timeline, n):
    """Return the booking on the first n processors, as the rule cuts it, whenever it ends."""
    d, cost, units = timeline.discipline, demand.cost, demand.ranges.total
    ready = np.maximum(timeline.ready, demand.not_before)
    where = ready.argsort(kind="stable")[:n]
    begin = ready[where]
    if demand.least > 1:  # the first of them begin at one time, each with a unit
        begin = np.maximum(begin, begin[demand.least - 1])
    if d.together:
        begin = np.full(n, begin[-1])
    if d.one_port:
        begin = np.maximum(begin, timeline.port)
    speeds = None if timeline.speeds is None else timeline.speeds[where]
    divide = partition if d.partition == "OPR" else equal_partition
    sizes = np.diff(cut_points(divide(units, begin, cost, one_port=d.one_port, speeds=speeds).shares, units))
    for i in range(demand.least if demand.least > 1 else 0):
        if not sizes[i]:
            sizes[(sizes - (np.arange(n) < demand.least)).argmax()] -= 1
            sizes[i] = 1
    kept = np.flatnonzero(sizes)
    where, begin, sizes = where[kept], begin[kept], sizes[kept]
    if timeline.unbroken(demand):
        where, sizes, begin = timeline.at_holes(demand, where, sizes, begin)
    cuts = np.concatenate(([0], sizes.cumsum()))
    walk = timeline.walk(where, sizes, begin, cost)
    ends = walk.ends + cost.setup * extra_fragments(demand.ranges, cuts)
    finish = float(ends.max())
    if finish - float(ends.min()) <= tolerance(finish):
        ends = np.full(ends.size, finish)
    return Placement(demand, where, cuts, walk.starts, ends, finish, port=walk.port)


def tried(demand, timeline):
    """Return on how many processors a demand may be cut.

    Which of different processors can begin together depends on the due time: there the reference knows none.
    """
    if demand.least > 1 and timeline.speeds is not None:
        return range(0)
    size, d = timeline.ready.size, timeline.discipline
    most = min(size, demand.most or size)
    if d.assign == "MN":
        return range(demand.least, most + 1)
    n = max(demand.least, d.most_useful(demand.ranges.total, demand.cost, limit=most))
    return range(n, min(n, most) + 1)


def ends(demand, timeline):
    """Yield each cut and when it is done, from the least number of processors on.

    With MN a processor counts where it, or one behind it, could do a unit by then, though rounding may give it none.
    """
    cost, order = demand.cost, timeline.ready.argsort(kind="stable")
    begin = timeline.ready[order]
    if 1 < demand.least <= begin.size:
        begin = np.maximum(begin, begin[demand.least - 1])
    begin = np.maximum(begin, timeline.port) if timeline.discipline.one_port else begin
    unit = begin + cost.setup + cost.tau + timeline.chi(cost, order)
    could = np.minimum.accumulate(unit[::-1])[::-1]
    for n in tried(demand, timeline):
        placement = cut(demand, timeline, n)
        counts = timeline.discipline.assign == "AN" or could[n - 1] <= placement.finish + tolerance(placement.finish)
        yield placement, placement.finish if counts else could[n - 1]


def least_end(demand, timeline):
    """Return when a demand is done at the soonest; inf: it may not be cut on any number of processors."""
    return min((end for _, end in ends(demand, timeline)), default=inf)


def first_cut(demand, timeline):
    """Return the first cut that is in time, None where there is none."""
    late = demand.due + tolerance(demand.due)
    return next((placement for placement, end in ends(demand, timeline) if end <= late), None)


def in_time(demand, timeline):
    """Whether a cut is in time."""
    return first_cut(demand, timeline) is not None


def edge(end):
    """Return the least due time that allows this end."""
    due = end - tolerance(end)
    while due + tolerance(due) >= end:
        due = nextafter(due, -inf)
    while due + tolerance(due) < end:
        due = nextafter(due, inf)
    return due


def around(due):
    """Return due times, ascending: by ulps and by parts of 1e-12 around this one."""
    steps, down, up = [due], due, due
    for _ in range(3):
        down, up = nextafter(down, -inf), nextafter(up, inf)
        steps += [down, up]
    return sorted([*steps, due * (1.0 - 1e-12), due * (1.0 + 1e-12)])


costs = st.builds(
    Cost,
    chi=st.floats(0.1, 10.0),
    tau=st.just(0.0) | st.floats(0.01, 3.0),
    theta_cm=st.just(0.0) | st.floats(0.01, 3.0),
    theta_cp=st.just(0.0) | st.floats(0.01, 5.0),
)
fineness = st.sampled_from([1, 1, 2**20, 2**40])


@st.composite
def grounds(draw, most=8):
    origin = draw(st.sampled_from([0.0, 1.7e9]))
    line = st.lists(st.sampled_from([0.0, 7.3]) | st.floats(0.0, 60.0), min_size=1, max_size=most)
    ready = origin + np.array(draw(line))
    speeds = None
    if draw(st.integers(0, 5)) == 0:
        speeds = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 1.7]), min_size=ready.size, max_size=ready.size)))
    return Timeline(ready, draw(st.sampled_from(DISCIPLINES)), origin + draw(st.sampled_from([0.0, 3.3])), speeds)


@st.composite
def asked(draw, uid="new", rank=0.0):
    cost, fine, units = draw(costs), draw(fineness), draw(st.integers(1, 60))
    cost = replace(cost, chi=cost.chi / fine, tau=cost.tau / fine)
    ranges = Ranges.of((0, units * fine))
    if units > 2 and draw(st.integers(0, 4)) == 0:
        ranges = Ranges.of((0, fine), (2 * fine, (units + 1) * fine))
    least = draw(st.just(1) | st.integers(1, min(3, units * fine)))
    most = draw(st.none() | st.integers(least, 4))
    return Demand(order=Order(rank, 0.0, uid), ranges=ranges, cost=cost, due=0.0, least=least, most=most)


def places(timeline):
    return tuple(Place(f"n{p}", 0) for p in range(timeline.ready.size))


def may_be_cut(demand, timeline):
    """Whether it is a cut that decides when it is done at the soonest."""
    end = least_end(demand, timeline)
    return end < inf and any(placement.finish == end for placement, _ in ends(demand, timeline))


def taken(timeline, placement):
    """Return the ground behind a booking."""
    after = timeline.copy()
    after.occupy(placement)
    return after


def compare(plan, demand, due, reference):
    """Ask a plan and the reference with due times around an edge; return the verdicts."""
    asked = [replace(demand, due=at) for at in around(due)]
    verdicts = [PlanTest(plan).fits(at) for at in asked]
    assert verdicts == [reference(at) for at in asked]
    return verdicts


@given(grounds(), asked())
def test_a_job_alone_is_admitted_exactly_where_a_cut_is_in_time(timeline, demand):
    assume(may_be_cut(demand, timeline))
    plan, _ = Plan.of(places(timeline), timeline, [])
    verdicts = compare(plan, demand, edge(least_end(demand, timeline)), lambda asked: in_time(asked, timeline))
    assert verdicts == sorted(verdicts)  # no later due time is refused
    assert {*verdicts} == {False, True}


@given(grounds(), st.lists(asked(), min_size=1, max_size=5), asked(rank=1.0))
def test_so_it_is_behind_others(timeline, others, demand):
    booked = [replace(d, order=Order(0.0, n, f"j{n}"), due=timeline.port + 1e4) for n, d in enumerate(others)]
    plan, missed = Plan.of(places(timeline), timeline, booked)
    assume(not missed)
    assume(may_be_cut(demand, plan.after))
    verdicts = compare(plan, demand, edge(least_end(demand, plan.after)), lambda asked: in_time(asked, plan.after))
    assert verdicts == sorted(verdicts)
    assert {*verdicts} == {False, True}


@given(grounds(), asked(), asked("other", 1.0))
def test_and_in_front_of_one_due_just_when_it_ends_then(timeline, demand, other):
    """It is admitted where the other is in time behind it, or it behind the other."""
    d = timeline.discipline
    assume(d.assign == "MN")  # with AN how a load is cut depends on its due time
    demand = replace(demand, due=timeline.port + 1e4)
    assume(first := first_cut(demand, timeline))
    behind = taken(timeline, first)
    assume(may_be_cut(other, behind))
    for due in around(edge(least_end(other, behind))):
        asked = replace(other, due=due)
        if (alone := first_cut(asked, timeline)) is None:
            continue
        plan, missed = Plan.of(places(timeline), timeline, [asked])
        assert not missed
        assert PlanTest(plan).fits(demand) == (in_time(asked, behind) or in_time(demand, taken(timeline, alone)))


@given(st.sampled_from([0.0, 1.7e9]), st.integers(65, 200), st.integers(0, 2**32), fineness)
def test_so_it_is_among_many_processors(origin, size, seed, fine):
    """Where few of them are looked at, and many demands are placed at once."""
    rng = np.random.default_rng(seed)
    timeline = Timeline(origin + np.round(rng.uniform(0.0, 100.0, size), int(rng.integers(0, 17))))
    cost = Cost(chi=rng.uniform(0.1, 10.0) / fine, theta_cp=rng.choice([0.0, rng.uniform(0.1, 5.0)]))
    demands, after = [], timeline
    for n in range(20):
        units = int(rng.integers(1, 60)) * fine
        asked = Demand(order=Order(float(n), 0.0, f"j{n}"), ranges=Ranges.of((0, units)), cost=cost, due=0.0)
        some = int(rng.integers(1, 9))
        due = around(edge(cut(asked, after, some).finish))[int(rng.integers(0, 9))]
        demands.append(replace(asked, due=due))
        if placement := first_cut(demands[-1], after):
            after = taken(after, placement)
    plan, missed = Plan.of(places(timeline), timeline, demands)
    found = timeline
    for demand in demands:
        placement = first_cut(demand, found)
        assert plan.has(demand.uid) == (placement is not None)
        if placement is not None:
            assert plan.placement_of(demand.uid).finish == placement.finish
            found = taken(found, placement)
    assert len(missed) == len(demands) - len(plan)


@given(grounds(), st.lists(asked(), max_size=3), asked(rank=1.0), st.sampled_from([0.0, 2.7]), st.integers(0, 8))
def test_what_is_offered_is_accepted_and_later_than_what_was_refused(timeline, others, demand, kept_back, step):
    """Also where a deadline is refused some ulps before one that would do."""
    booked = [replace(d, order=Order(0.0, n, f"j{n}"), due=timeline.port + 1e4) for n, d in enumerate(others)]
    plan, missed = Plan.of(places(timeline), timeline, booked)
    assume(not missed)
    assume(may_be_cut(demand, plan.after))
    now = float(timeline.ready.min())
    due = around(edge(least_end(demand, plan.after)))[step]
    test = PlanTest(plan)
    asked = test.under(replace(demand, kept_back=kept_back, order=Order(now, now, "new")), due + kept_back)
    assume(not test.fits(asked))
    offered = offer(test, asked, now)
    assert offered is not None
    assert now + offered > due + kept_back
    assert test.fits(test.under(asked, now + offered))
    tighter = now + offered * (1.0 - 1e-6)
    assert tighter <= due + kept_back or not test.fits(test.under(asked, tighter))


def offer(test, demand, now):
    """Return the deadline that is offered, seconds after now."""
    search = earliest_deadline(test, demand, now)
    while True:
        try:
            next(search)
        except StopIteration as end:
            return end.value
