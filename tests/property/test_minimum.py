"""processors.min: the first chunks of a job begin at one time, at least so many, and no promise is made otherwise."""

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from pool_machine import admissions
from world import Worker, World, job

from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import place, retimed, together_from
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

DISCIPLINES = [
    Discipline(partition=partition, assign=assign, network=network, start=start)
    for partition, assign, network, start in product(
        ("OPR", "EPR"), ("MN", "AN"), ("OnePort", "Concurrent"), ("Ready", "Together")
    )
]
costs = st.builds(
    Cost,
    chi=st.sampled_from([0.25, 1.0, 3.7]),
    tau=st.sampled_from([0.0, 0.1, 1.0]),
    theta_cm=st.sampled_from([0.0, 0.5]),
    theta_cp=st.sampled_from([0.0, 2.0]),
)


@st.composite
def timelines(draw, disciplines=DISCIPLINES):
    """Up to eight processors that become free at different times, most with reserved windows ahead."""
    ready = np.array(draw(st.lists(st.sampled_from([0.0, 7.0]) | st.floats(0.0, 40.0), min_size=2, max_size=8)))
    discipline, blackouts = draw(st.sampled_from(disciplines)), None
    if draw(st.booleans()):
        where, start, end = [], [], []
        for p in range(ready.size):
            if draw(st.booleans()):
                begin = draw(st.floats(5.0, 50.0))
                where.append(p)
                start.append(begin)
                end.append(begin + draw(st.floats(1.0, 20.0)))
        sends = [(12.0, 15.0), (25.0, 26.0)] if discipline.one_port and draw(st.booleans()) else []
        blackouts = Blackouts.of(ready.size, np.array(where, dtype=np.intp), np.array(start), np.array(end), sends)
    speeds = None
    if draw(st.integers(0, 3)) == 0:
        speeds = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 10.0]), min_size=ready.size, max_size=ready.size)))
    return Timeline(ready, discipline, draw(st.sampled_from([-np.inf, 3.0])), speeds, blackouts)


@st.composite
def demands(draw):
    least = draw(st.integers(2, 5))
    units = draw(st.integers(least, 60))
    ranges = Ranges.of((0, units))
    if units > 3 and draw(st.integers(0, 3)) == 0:
        ranges = Ranges.of((0, units // 3), (units, 2 * units - units // 3))
    due = draw(st.floats(5.0, 150.0))
    return Demand(
        order=Order(due, 0.0, "j"),
        ranges=ranges,
        cost=draw(costs),
        due=due,
        least=least,
        most=draw(st.none() | st.just(least) | st.integers(least, 8)),
        reduce=draw(st.sampled_from([0.0, 0.0, 3.0])),
    )


@given(timelines(), demands(), st.data())
def test_so_many_chunks_begin_at_one_time_and_still_do_when_processors_are_late(timeline, demand, data):
    placement = place(demand, timeline)
    assume(not isinstance(placement, Shortfall))
    assert placement.finish - demand.reduce <= demand.late
    assert int(placement.cuts[-1]) == demand.ranges.total
    assert (np.diff(placement.cuts) > 0).all()
    timeline.copy().check(placement)
    later = timeline.copy()
    later.ready = later.ready + np.array([data.draw(st.sampled_from([0.0, 0.0, 0.5, 9.0])) for _ in later.ready])
    later.copy().check(retimed(placement, later))


concurrent = [Discipline(assign=assign, start=start) for assign in ("MN", "AN") for start in ("Ready", "Together")]


@given(timelines(concurrent), demands())
def test_a_unit_on_each_is_placed_wherever_so_many_are_free_together_in_time(timeline, demand):
    demand = replace(demand, ranges=Ranges.of((0, demand.least)), reduce=0.0, most=demand.least)
    ready = timeline.ready
    begin, until, place_of = ready, np.full(ready.size, np.inf), np.arange(ready.size)
    if timeline.blackouts is not None:
        begin, until, place_of = (free := timeline.blackouts.slots(ready)).begin, free.until, free.place
    lasts = demand.cost.setup + demand.cost.tau + np.broadcast_to(timeline.chi(demand.cost, place_of), begin.shape)
    fits = [
        at
        for at in begin.tolist()
        if np.count_nonzero((begin <= at) & (at + lasts <= np.minimum(until, demand.late))) >= demand.least
    ]
    edges = [abs(x - demand.late) for x in (begin[:, None] + lasts[None, :]).ravel().tolist()]
    assume(min(edges) > 10 * tolerance(demand.late))
    placement = place(demand, timeline)
    assert isinstance(placement, Shortfall) == (not fits)
    if fits:
        assert placement.starts.tolist() == [min(fits)] * demand.least
        assert together_from(demand, timeline) <= min(fits)


requests = st.tuples(
    st.integers(1, 120),  # units
    st.sampled_from([0.5, 1.0, 3.0]),  # chi
    st.integers(10, 200),  # relative deadline
    st.integers(1, 6),  # processors.min
    st.booleans(),  # processors.max is the same
    st.floats(0, 30),  # gap to the next arrival
)


class Watched(World):
    """Notes the number of chunks that are created in the first step that creates any of a job."""

    def tick(self):
        before = {uid: record.started for uid, record in self.records.items()}
        actions = super().tick()
        for uid, record in self.records.items():
            if record.started is not None and before.get(uid) is None:
                self.first[uid] = len(record.chunks)
        return actions


@given(
    st.lists(requests, min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 3),
    admissions,
    st.none() | st.tuples(st.floats(20.0, 60.0), st.floats(5.0, 30.0), st.integers(1, 3)),
)
def test_the_first_step_that_creates_chunks_of_a_promised_job_creates_so_many(wanted, cpu, nodes, admission, window):
    w = Watched(startup=2.0)
    w.first = {}
    w.edit_pool(replace(w.spec, generation=2, **admission))
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    chis = {}
    w.workers = lambda uid, _c: Worker(pace=chis[uid])
    if window is not None:
        w.reserve("r", window[0], window[0] + window[1], processors=min(window[2], cpu * nodes))
    for k, (units, chi, deadline, least, exactly, gap) in enumerate(wanted):
        uid = f"j{k}"
        chis[uid] = chi
        asked = job(uid, units=units, chi=chi, theta_cp=2.5, arrival=w.now, deadline=w.now + deadline)
        asked = replace(asked, min_processors=least, max_processors=least if exactly else None)
        w.apply(asked)
        w.tick()
        if (offer := w.records[uid].offer) is not None and offer.earliest_deadline is not None:
            chis[again := f"{uid}-again"] = chi
            w.apply(replace(asked, uid=again, name=again, deadline=w.now + offer.earliest_deadline))
            w.tick()
            assert w.records[again].promise is not None, w.records[again].admitted
        w.run(w.now + gap)
    w.run(w.now + 450)
    for uid, record in w.records.items():
        if record.promise is not None:
            assert record.finished is not None, uid
            assert record.finished <= record.promise.deadline, (uid, record)
            assert w.first[uid] >= w.jobs[uid].min_processors, uid
        elif w.jobs[uid].min_processors > w.jobs[uid].units:
            assert f"spec.processors.min is {w.jobs[uid].min_processors}" in record.admitted.message
