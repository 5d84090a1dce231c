"""Chunks of jobs without a promise, however they behave, make no promised job late."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual import reasons
from punctual.verdict import Verdict

manners = st.builds(Worker, pace=st.sampled_from([0.5, 1.0, 3.0, 12.0]), answers=st.booleans(), deaf=st.booleans())
requests = st.tuples(
    st.integers(1, 80),  # units
    st.integers(8, 250),  # relative deadline
    st.integers(1, 3),  # processors.min
    st.floats(0, 40),  # gap to the next arrival
)


@given(
    st.lists(requests, min_size=1, max_size=6),
    st.integers(1, 4),
    st.lists(manners, min_size=1, max_size=4),
    st.sampled_from(["Redo", "Resume"]),
    st.booleans(),
)
def test_no_promised_job_is_late_because_of_a_leftover_chunk(wanted, count, manners, restart, one_port):
    spec = World().spec
    if one_port:
        spec = replace(spec, discipline=replace(spec.discipline, network="OnePort"))
    w = World(spec=spec, startup=2.0)
    for n in range(count):
        w.node(f"n{n}", 1.0)
    w.tick()
    w.workers = lambda uid, c: manners[(c.begin + c.attempt) % len(manners)] if uid == "left" else Worker()
    w.apply(job("left", units=4000, deadline=5000.0, theta_cp=2.5, restart=restart))
    w.tick()
    given_up = Verdict("False", reasons.OVERRUN, "its units take longer than declared")
    w.records["left"] = w.records["left"]._replace(on_track=given_up)
    w.crash()
    w.tick()
    for k, (units, deadline, least, gap) in enumerate(wanted):
        asked = job(f"j{k}", units=units, theta_cp=2.5, arrival=w.now, deadline=w.now + deadline)
        w.apply(replace(asked, min_processors=least))
        w.run(w.now + gap)
    w.run(w.now + 260)
    for uid in w.records:
        if uid != "left":
            w.check_promise(uid)
