"""What was promised is kept, in any trace where costs are as declared; and the Pool survives any crash."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from pool_machine import PoolMachine, admissions
from world import Worker, World, job

from punctual.scheduling.model.ranges import Ranges

requests = st.tuples(
    st.integers(1, 300),  # units
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),  # chi
    st.integers(5, 200),  # relative deadline
    st.floats(0, 60),  # gap to the next arrival
    st.booleans(),  # reduce
)


@given(st.lists(requests, min_size=1, max_size=12), st.integers(1, 8), st.integers(1, 3), admissions)
def test_no_accepted_job_misses_when_costs_are_as_declared(wanted, cpu, nodes, admission):
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, **admission))
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    chis = {}
    w.workers = lambda uid, c: Worker(pace=2.0 if c.kind == "Reduce" else chis[uid])
    for k, (units, chi, deadline, gap, reduce) in enumerate(wanted):
        uid = f"j{k}"
        chis[uid] = chi
        # ticks see an end up to 0.25 s late, and a pod starts at a tick: theta_cp holds both
        w.apply(
            job(
                uid,
                units=units,
                chi=chi,
                theta_cp=2.5,
                arrival=w.now,
                deadline=w.now + deadline,
                reduce_duration=3.0 if reduce else None,
            )
        )
        w.run(w.now + gap)
    w.run(w.now + 400)
    for uid in w.jobs:
        record = w.records[uid]
        if record.promise is not None:
            assert record.finished is not None, uid
            assert record.finished <= record.promise.deadline, (uid, record)
            assert record.completed == Ranges.of((0, w.jobs[uid].units))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(stateful_step_count=30)
