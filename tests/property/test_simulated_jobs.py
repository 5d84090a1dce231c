"""Random traces through the operator's own Pool: what it promises is kept, under every discipline."""

from dataclasses import replace
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from schedule import flaws

from punctual.scheduling.model.actions import WriteStatus
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.pool import Pool
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace
from punctual.theory.cost import Cost

N = 4
DISCIPLINES = [
    Discipline(order=order, partition=partition, assign=assign, network=network, start=start)
    for order, partition, assign, network, start in product(
        ("EDF", "FIFO", "MWF"), ("OPR", "EPR"), ("MN", "AN"), ("OnePort", "Concurrent"), ("Ready", "Together")
    )
]
COSTS = {"chi": 10.0, "tau": 1.0, "theta_cm": 0.5, "theta_cp": 2.0}
times = st.floats(0.0, 400.0).map(lambda t: round(t, 3))
jobs = st.lists(
    st.builds(
        JobLine,
        id=st.just("j"),
        arrival=times,
        load=st.floats(0.01, 60.0),
        deadline=st.floats(1.0, 600.0),
        chi=st.none() | st.floats(1.0, 30.0),
        tau=st.none() | st.floats(0.0, 5.0),
        theta_cm=st.none() | st.floats(0.0, 5.0),
        theta_cp=st.none() | st.floats(0.0, 5.0),
    ),
    min_size=1,
    max_size=8,
).map(lambda lines: [line.model_copy(update={"id": f"j{i}"}) for i, line in enumerate(lines)])
disciplines = st.sampled_from(DISCIPLINES)


def run(lines, discipline, processors=N, cost=COSTS, **more):
    trace = Trace.of(lines)
    options = Options(processors=processors, cost=Cost(**cost), discipline=discipline, **more)
    document = simulate(trace, options).document()
    return [line.model_dump(exclude_none=True) for line in trace.lines], document


def accepted_with(lines, name, deadline, discipline, **more):
    """Whether a job of these lines is accepted when it asks for another deadline."""
    again = [line.model_copy(update={"deadline": deadline}) if line.id == name else line for line in lines]
    _, document = run(again, discipline, offers=False, **more)
    return next(d["accepted"] for d in document["decisions"] if d["id"] == name)


def the_offers_hold(lines, discipline, **more):
    """Ask again for what was refused, with what was offered and a millionth less; look whether there is none to offer.

    Of the first refused jobs: each costs some runs.
    """
    _, document = run(lines, discipline, **more)
    asked = {line.id: line.deadline for line in lines if isinstance(line, JobLine)}
    refused = [d for d in document["decisions"] if not d["accepted"] and d["id"] in asked]
    for decision in refused[:3]:
        name = decision["id"]
        if "earliest_deadline" not in decision:
            later = [asked[name] * 8.0**k for k in range(1, 8)]
            assert not [at for at in later if accepted_with(lines, name, at, discipline, **more)]
            continue
        offered = decision["earliest_deadline"]
        assert offered > asked[name]
        assert accepted_with(lines, name, offered, discipline, **more)
        assert not accepted_with(lines, name, offered * (1.0 - 1e-6), discipline, **more)


@given(jobs, disciplines)
def test_with_exact_costs_no_promise_is_broken(lines, discipline):
    trace, document = run(lines, discipline, offers=False)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port) == []


@given(jobs, disciplines, st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=N, max_size=N))
@example(
    lines=[JobLine(id="j0", arrival=0.0, load=10.5, deadline=13.0, chi=1.0, tau=0.125, theta_cm=3.0)],
    discipline=Discipline(assign="AN", network="OnePort"),  # the third's share is nothing, but for rounding
    speeds=[1.0, 0.5, 0.5, 0.5],
)
def test_nor_on_processors_of_different_speed(lines, discipline, speeds):
    trace, document = run(lines, discipline, offers=False, speeds=tuple(speeds))
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port, speeds=speeds) == []


speeds = st.lists(st.sampled_from([0.5, 1.0, 2.0, 20.0]), min_size=N, max_size=N)


@given(jobs, disciplines, st.none() | speeds, st.sampled_from([{}, {"headroom": 0.3}, {"margin": 20.0}]))
@example(  # due at the sum of its costs, but for rounding
    lines=[
        JobLine(
            id="j0",
            arrival=1000.1,
            load=1.0,
            deadline=5.0 + 100.0 / 0.7,
            chi=100.0,
            tau=5.0,
            theta_cm=0.0,
            theta_cp=0.0,
        )
    ],
    discipline=DISCIPLINES[0],
    speeds=None,
    more={"headroom": 0.3, "integer_units": True},
)
@example(
    lines=[JobLine(id="j0", arrival=0.0, load=1.0, deadline=5.0)],
    discipline=DISCIPLINES[0],
    speeds=[200.0] * N,
    more={},
)
def test_what_is_offered_would_have_been_accepted_and_a_millionth_tighter_not(lines, discipline, speeds, more):
    the_offers_hold(lines, discipline, speeds=speeds and tuple(speeds), **more)


@given(jobs, disciplines, st.data())
def test_so_it_is_while_processors_are_away(lines, discipline, data):
    the_offers_hold([*lines, *faults(data)], discipline)


def faults(data):
    """Draw processors that are away for a time or for good."""
    return [
        FaultLine(
            id=f"f{p}",
            kind="fault",
            arrival=begin,
            processors=(p,),
            until=data.draw(st.none() | times.filter(lambda t, begin=begin: t > begin)),
        )
        for p, begin in enumerate(data.draw(st.lists(times, max_size=3, unique=True)))
    ]


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
@given(lines=jobs, discipline=disciplines, data=st.data())
def test_what_faults_take_is_done_again_or_counts(lines, discipline, data, restart):
    trace, document = run([*lines, *faults(data)], discipline, offers=False, restart=restart)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port, redo=restart == "Redo") == []


class Told(Pool):
    """A Pool that notes the last record of each job, and those that came after a time."""

    since = 0.0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        Told.records, Told.given_up = {}, set()

    def step(self, now, events):
        actions = super().step(now, events)
        for action in actions:
            if isinstance(action, WriteStatus) and (promise := action.record.promise) is not None:
                if promise.given_up and now > Told.since and not Told.records[action.job].promise.given_up:
                    Told.given_up.add(action.job)
                Told.records[action.job] = action.record
        return actions


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
@given(lines=jobs, discipline=disciplines, data=st.data())
@example(
    lines=[JobLine(id="j0", arrival=0.0, load=8.0, deadline=54.0, chi=10.0, tau=2.0, theta_cm=0.0, theta_cp=0.0)],
    discipline=Discipline(partition="EPR", assign="AN", network="OnePort"),
    data=None,
)
def test_what_is_planned_after_the_last_fault_is_kept(lines, discipline, data, restart):
    lost = faults(data) if data else [FaultLine(id="f", kind="fault", arrival=13.0, processors=(0, 2), until=None)]
    Told.since = max((until for fault in lost for until in (fault.arrival, fault.until or 0.0)), default=0.0)
    with patch("punctual.sim.run.Pool", Told):
        _, document = run([*lines, *lost], discipline, offers=False, restart=restart)
    assert Told.given_up == set()
    kept = {uid for uid, record in Told.records.items() if not record.promise.given_up}
    assert [job for job in document["jobs"] if job["id"] in kept and not job["met"]] == []


@given(jobs, disciplines, st.randoms(use_true_random=False))
def test_lines_are_answered_in_order_of_arrival_and_those_of_one_time_in_order_of_the_file(lines, discipline, random):
    shuffled = [line.model_copy(update={"arrival": 100.0 * (line.arrival // 100.0)}) for line in lines]
    random.shuffle(shuffled)
    _, document = run(shuffled, discipline, offers=False)
    in_turn = [line.id for at in sorted({line.arrival for line in shuffled}) for line in shuffled if line.arrival == at]
    assert [decision["id"] for decision in document["decisions"]] == in_turn
    assert [line.id for line in Trace.of(shuffled).lines] == in_turn


@given(jobs, disciplines, st.tuples(st.floats(0.2, 1.0), st.floats(1.0, 3.0)))
def test_with_costs_that_were_wrong_every_job_still_comes_to_its_end(lines, discipline, actual):
    trace, document = run(lines, replace(discipline), offers=False, actual=actual, seed=3)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port, exact=False) == []


FAST = [Discipline(network=network) for network in ("OnePort", "Concurrent")]


@pytest.mark.parametrize("admission", [{"admission": "Fast"}, {"admission": "Hybrid", "threshold": 2}], ids=str)
@given(lines=jobs, discipline=st.sampled_from(FAST))
@example(
    lines=[JobLine(id="j0", arrival=0.0, load=17.0, deadline=256.0625, tau=5.0)],  # whose first chunk ends just then
    discipline=FAST[0],
)
def test_the_fast_test_breaks_no_promise_either(lines, discipline, admission):
    trace, document = run(lines, discipline, offers=False, **admission)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port) == []


@pytest.mark.parametrize("admission", [{"admission": "Fast"}, {"admission": "Hybrid", "threshold": 2}], ids=str)
@given(lines=jobs, discipline=st.sampled_from(FAST))
@example(
    lines=[
        JobLine(id="j0", arrival=0.0, load=1.0, deadline=11.0, theta_cm=0.0, theta_cp=0.0),
        JobLine(id="j1", arrival=0.0, load=1.0, deadline=10.0),
        JobLine(id="j2", arrival=1.0, load=1.0, deadline=1.0),  # just when the port is free
    ],
    discipline=FAST[0],
)
def test_what_the_fast_test_offers_is_accepted(lines, discipline, admission):
    the_offers_hold(lines, discipline, **admission)


@given(jobs, st.sampled_from(FAST), st.data())
def test_faults_under_the_fast_test_lose_nothing(lines, discipline, data):
    begin, until = data.draw(times), data.draw(st.none() | times)
    fault = FaultLine(
        id="f", kind="fault", arrival=begin, processors=(1, 2), until=until if until and until > begin else None
    )
    trace, document = run([*lines, fault], discipline, offers=False, admission="Fast")
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port) == []


@given(jobs, st.sampled_from(FAST), st.sampled_from([{"bound": 0.8}, {"miss_set_point": 0.1, "sample_period": 150.0}]))
def test_statistical_admission_loses_nothing(lines, discipline, how):
    trace, document = run(lines, discipline, offers=False, actual=(0.2, 3.0), **how)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port, exact=False) == []
    assert ("periods" in document) == ("miss_set_point" in how)


@st.composite
def reservations(draw):
    lines = []
    for i in range(draw(st.integers(0, 4))):
        arrival, wait, length = draw(times), draw(st.floats(0.0, 200.0)), draw(st.floats(5.0, 200.0))
        lines.append(
            ReservationLine(
                id=f"r{i}",
                kind="reservation",
                arrival=arrival,
                start=arrival + wait,
                end=arrival + wait + length,
                processors=draw(st.integers(1, N)),
                io_ratio=draw(st.sampled_from([0.0, 0.1, 0.5])),
            )
        )
    return lines


@given(jobs, reservations(), st.sampled_from(DISCIPLINES))
@example(
    lines=[  # whose last transfer ends 1e-14 s before the port is kept
        JobLine(id="j0", arrival=60.0, load=1.0, deadline=10.0, theta_cm=0.0),
        JobLine(id="j1", arrival=14.938, load=38.0, deadline=246.35770845298805, tau=2.0),
    ],
    ahead=[ReservationLine(id="r0", kind="reservation", arrival=0.0, start=61.0, end=66.0, processors=1, io_ratio=0.1)],
    discipline=Discipline(network="OnePort"),
)
def test_jobs_and_reservations_keep_out_of_each_others_way(lines, ahead, discipline):
    trace, document = run([*lines, *ahead], discipline, offers=False)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port) == []


@given(jobs, reservations(), st.sampled_from(FAST))
@example(
    lines=[JobLine(id="j0", arrival=1.0, load=1.0, deadline=6.0, theta_cm=0.0)],  # whose chunks begin within a second
    ahead=[ReservationLine(id="r0", kind="reservation", arrival=0.0, start=4.0, end=9.0, processors=1)],
    discipline=FAST[0],
)
def test_also_where_the_fast_test_would_rather_decide(lines, ahead, discipline):
    trace, document = run([*lines, *ahead], discipline, offers=False, admission="Hybrid", threshold=2)
    assert flaws(trace, document, cost=COSTS, one_port=discipline.one_port) == []


PLAIN = {"chi": 1.0, "tau": 1.0, "theta_cm": 0.0, "theta_cp": 0.0}
"""The costs of many traces: no set-ups, and to send a unit takes as long as to compute it."""


@st.composite
def pools(draw):
    """Any pool: its options, and jobs and reservations that load it more or less."""
    processors, cost, whole = draw(st.integers(1, 16)), draw(st.sampled_from([COSTS, PLAIN])), draw(st.booleans())
    span = draw(st.sampled_from([50.0, 400.0]))
    lines, arrivals = [], st.floats(0.0, span).map(lambda t: round(t, 2))
    for i in range(draw(st.integers(1, 14))):
        load = draw(st.integers(1, 250)) if whole else draw(st.floats(0.01, 250.0))
        alone = (cost["tau"] + cost["chi"]) * load
        deadline = draw(st.floats(0.3, 3.0)) * alone + draw(st.floats(1.0, 50.0))
        lines.append(JobLine(id=f"j{i}", arrival=draw(arrivals), load=float(load), deadline=deadline))
    for i in range(draw(st.integers(0, 2))):
        arrival = draw(arrivals)
        start = arrival + draw(st.floats(0.0, 400.0))
        number, end = draw(st.integers(1, processors)), start + draw(st.floats(5.0, 1500.0))
        line = ReservationLine(id=f"r{i}", kind="reservation", arrival=arrival, start=start, end=end, processors=number)
        lines.append(line)
    pool = {
        "processors": processors,
        "cost": cost,
        "integer_units": whole,
        "headroom": draw(st.sampled_from([0.0, 0.125, 0.5])),
        "margin": draw(st.sampled_from([0.0, 2.0])),
    }
    return lines, pool


PROMISES_BROKEN = (
    [
        JobLine(id="j1", arrival=0.0, load=2.0, deadline=3.257820231177215),
        JobLine(id="j2", arrival=0.0, load=2.0, deadline=20.8),
        ReservationLine(id="r0", kind="reservation", arrival=2.35, start=347.7, end=1644.5, processors=2),
        JobLine(id="j5", arrival=10.6, load=241.9, deadline=279.6),
        JobLine(id="j15", arrival=53.45, load=30.34, deadline=133.4),
    ],
    {"processors": 16, "cost": PLAIN, "headroom": 0.125},
)
"""Chunks of 1e-11 units, which ended before their transfers did: those behind them at the port never ended."""


IN_A_WINDOW = (
    [
        JobLine(id="j0", arrival=41.04, load=171.31764566120458, deadline=908.9494879022561),
        JobLine(id="j1", arrival=8.83, load=57.64734665527737, deadline=159.5147321650482),
        JobLine(id="j2", arrival=31.88, load=32.56195355971162, deadline=82.82636986383967),
        JobLine(id="j3", arrival=50.26, load=107.90076629476924, deadline=437.84324340500683),
        ReservationLine(
            id="r0", kind="reservation", arrival=1.47, start=349.983891679376, end=1565.5446104399116, processors=5
        ),
    ],
    {"processors": 8, "cost": PLAIN, "headroom": 0.5},
)
"""Its last chunks began behind the begin of the window, by less than rounding allows them to end behind it."""


@pytest.mark.parametrize("assign", ["MN", "AN"])
@given(pool=pools(), discipline=disciplines)
@example(pool=PROMISES_BROKEN, discipline=Discipline(network="OnePort"))
@example(pool=IN_A_WINDOW, discipline=Discipline(network="OnePort"))
def test_pools_of_any_size_keep_what_they_promise_with_headroom_margin_and_whole_units(pool, discipline, assign):
    lines, options = pool
    discipline = replace(discipline, assign=assign)
    trace, document = run(lines, discipline, offers=False, **options)
    assert flaws(trace, document, cost=options["cost"], one_port=discipline.one_port) == []


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
@given(pool=pools(), discipline=disciplines, actual=st.tuples(st.floats(0.3, 1.0), st.floats(1.0, 3.0)))
def test_in_pools_of_any_size_jobs_of_any_true_cost_come_to_their_end(pool, discipline, actual, restart):
    lines, options = pool
    trace, document = run(lines, discipline, offers=False, actual=actual, seed=5, restart=restart, **options)
    assert flaws(trace, document, cost=options["cost"], one_port=discipline.one_port, exact=False) == []


@given(jobs, reservations(), disciplines)
@example(  # behind a window that ends long after all bookings
    lines=[JobLine(id="j0", arrival=0.0, load=1.0, deadline=5.0)],
    ahead=[ReservationLine(id="r0", kind="reservation", arrival=0.0, start=1.0, end=10000.0, processors=N)],
    discipline=DISCIPLINES[0],
)
def test_beside_reservations_what_is_offered_would_have_been_accepted_and_a_millionth_tighter_not(
    lines, ahead, discipline
):
    the_offers_hold([*ahead, *lines], discipline)


@given(jobs, st.sampled_from(FAST), st.data())
def test_offers_hold_under_a_utilization_bound_too(lines, discipline, data):
    """More of what was asked may be allowed than is done in time: then nobody waits for less than a processor takes."""
    bound = data.draw(st.sampled_from([0.05, 0.8, 1.0, 1.7]))
    the_offers_hold([*lines, *faults(data)], discipline, bound=bound)
