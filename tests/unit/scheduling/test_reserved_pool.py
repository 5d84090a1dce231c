"""A Pool with reservations, as stories: what was planned around a window is begun around it."""

import pytest
from world import World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import ReservationApplied
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import JobLine, ReservationLine, Trace


def line(name, load, deadline, arrival, **costs):
    return JobLine(id=name, arrival=arrival, load=load, deadline=deadline, **{"chi": 1.0, "tau": 0.0, **costs})


def test_a_job_booked_before_a_window_begins_though_an_earlier_one_is_booked_behind_it():
    window = ReservationLine(id="r", kind="reservation", arrival=0.0, start=3.5, end=30.0, processors=1)
    trace = Trace.of(
        [
            window,
            line("behind", 20.0, 60.0, 0.1, theta_cp=3.4),  # not a unit of it fits before the window
            line("before", 2.0, 70.0, 0.2, theta_cp=1.0),
            line("last", 30.0, 59.99, 0.3, chi=0.1, theta_cp=1.0),  # only if the one before is out of the way by then
        ]
    )
    options = Options(processors=1, discipline=Discipline(), offers=False, integer_units=True)
    document = simulate(trace, options).document()
    assert all(decision["accepted"] for decision in document["decisions"])
    assert all(job["met"] for job in document["jobs"])
    assert [chunk["job"] for chunk in document["chunks"]] == ["before", "behind", "last"]


def test_the_reduce_step_waits_for_the_end_of_a_window_that_it_would_run_into():
    w = World()
    w.node("n1", 1.0)
    reservation = Reservation(uid="r", arrival=0.0, start=20.0, end=60.0, processors=1)
    w.inbox.append(ReservationApplied(reservation))
    w.tick()
    w.apply(job(units=10, deadline=100, reduce_duration=15.0))
    w.run_until(lambda w: "j1" in w.records and w.records["j1"].completed.total == 10)
    assert w.pool.view().due == 60.0, "by the clock alone it may begin"
    w.run_until(lambda w: w.done("j1"))
    (begun,) = [float(line.split()[0]) for line in w.log if "Reduce" in line and "create" in line]
    assert begun >= 60.0
    assert w.met("j1")


def test_a_trace_with_inputs_of_reservations_runs_where_no_port_is_shared_too():
    window = ReservationLine(id="r", kind="reservation", arrival=0.0, start=5.0, end=15.0, processors=1, io_ratio=0.5)
    sent = {}
    for network in ("OnePort", "Concurrent"):
        options = Options(processors=2, discipline=Discipline(network=network), offers=False)
        found = simulate(Trace.of([window, line("j", 4.0, 60.0, 1.0, tau=1.0)]), options).document()
        assert all(decision["accepted"] for decision in found["decisions"])
        sent[network] = [(chunk["send_start"], chunk["send_end"]) for chunk in found["chunks"]]
    assert not [s for s in sent["OnePort"] if s[0] < 10.0 and s[1] > 5.0]
    assert [s for s in sent["Concurrent"] if s[0] < 10.0]


@pytest.mark.parametrize("window", [False, True], ids=["alone", "beside a window"])
@pytest.mark.parametrize(("least", "processors"), [(1, 8), (2, 8), (3, 5), (5, 3), (16, 1)])
def test_of_all_useful_processors_as_many_are_taken_as_have_chunks_that_are_worth_their_set_up(
    window, least, processors
):
    w = World(spec=PoolSpec(name="main", cpu=1.0, margin=2.0, discipline=Discipline(assign="AN")))
    w.node("n1", 8.0)
    if window:
        w.inbox.append(ReservationApplied(Reservation(uid="r", arrival=0.0, start=100.0, end=110.0, processors=1)))
    w.tick()
    w.apply(job(units=16, deadline=400, least_chunk=least))
    w.tick()
    assert w.records["j1"].promise.processors == processors
