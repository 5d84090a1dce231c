"""Beside refused jobs that run all the same, every promise is kept, and none is refused that would be made without."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pool_machine import admissions
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.timing import NOTICE

requests = st.tuples(
    st.booleans(),  # it runs although it is refused
    st.booleans(),  # one unit in each pod, which nothing ends
    st.integers(1, 25),  # units
    st.sampled_from([0.5, 2.0, 4.0]),  # chi
    st.sampled_from([1, 4, 15, 40, 120]),  # relative deadline
    st.floats(0, 25),  # gap to the next arrival
    st.booleans(),  # its cost is measured
)


def world(nodes: int, cpu: int, **more) -> World:
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, **more))
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    w.tick()
    return w


@given(st.lists(requests, min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 2), admissions, st.booleans())
def test_promises_are_kept_beside_jobs_that_start_anyway(wanted, cpu, nodes, more, crash):
    w = world(nodes, cpu, **more)
    paces = {}
    w.workers = lambda uid, _c: Worker(pace=paces[uid])
    for k, (anyway, unit_pods, units, chi, deadline, gap, measured) in enumerate(wanted):
        uid = f"j{k}"
        paces[uid] = chi
        asked = job(
            uid,
            unit_pods=unit_pods,
            units=units,
            chi=None if measured and anyway else chi,
            theta_cp=2.5,
            arrival=w.now,
            deadline=w.now + deadline,
            on_refusal="Continue" if anyway else "Stop",
        )
        w.apply(asked)
        w.run(w.now + gap)
        if crash and k % 2:
            w.crash()
    w.run(w.now + 200)
    for uid, asked in w.jobs.items():
        record = w.records[uid]
        if asked.cost is not None:
            w.check_promise(uid)
        if record.refused is not None:
            assert uid not in w.processed or asked.cost is None, uid
    of_pods = {uid for uid, asked in w.jobs.items() if asked.unit_pods}
    assert not [said for said in w.said if said[0] in of_pods and said[1] == reasons.CAPACITY_LOST]


load = st.tuples(st.integers(1, 60), st.sampled_from([0.5, 1.0, 2.0]), st.integers(3, 90), st.integers(1, 3))
"""Units, chi, relative deadline, processors.min."""


@given(
    st.lists(load, min_size=1, max_size=8),
    st.integers(1, 4),
    st.sampled_from(["EDF", "FIFO"]),
    st.sampled_from(["OPR", "EPR"]),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_with_the_time_of_a_notice_more_the_same_jobs_are_promised(loads, cpu, order, partition, pace):
    """Chunks of jobs without a promise leave within `NOTICE`, so a pool full of them is one that is free then."""
    discipline = Discipline(order=order, partition=partition)
    answers = []
    for notice in (0.0, NOTICE):
        w = world(1, cpu, discipline=discipline)
        w.workers = lambda uid, _c: Worker(pace=pace if uid == "left" else 1.0)
        if notice:
            w.apply(job("left", units=4000, deadline=1.0, on_refusal="Continue"))
        w.run(10)
        assert len(w.pods) == (cpu if notice else 0)
        for k, (units, chi, deadline, least) in enumerate(loads):
            due = w.now + deadline + notice
            wanted = job(f"j{k}", units=units, chi=chi, arrival=w.now + k / 1000, deadline=due)
            w.apply(replace(wanted, min_processors=min(least, units)))
        w.tick()
        answers.append([w.records[f"j{k}"].admitted.status for k in range(len(loads))])
    assert answers[0] == answers[1]
