"""A job that loses its promise goes on with what it has: what its chunks have computed counts."""

from dataclasses import replace

import numpy as np
import pytest
from waste import BRIEF, CUT, FAULT, INPUT, LOST, waste

from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace, jobs
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

N, COST = 8, Cost(chi=100.0, tau=1.0, theta_cm=1.0, theta_cp=2.0)
DISCIPLINES = {
    "Concurrent": Discipline(),
    "OnePort": Discipline(network="OnePort"),
    "AN": Discipline(network="OnePort", assign="AN"),
    "EPR": Discipline(partition="EPR", order="FIFO"),
}
LOW, HIGH = 0.5, 1.5


def true_costs(trace, seed):
    """Return what each job costs in truth: factors drawn as the simulation draws them, in order of arrival."""
    rng, found = np.random.default_rng(seed), {}
    for line in jobs(trace):
        tau, chi = rng.uniform(LOW, HIGH, 2).tolist()
        found[line.id] = replace(COST, tau=COST.tau * tau, chi=COST.chi * chi)
    return found


def run(discipline, *, restart, faults=()):
    """Return busy and wasted seconds of a few seeds together."""
    busy, wasted, given_up = 0.0, dict.fromkeys((FAULT, INPUT, CUT, LOST), 0.0), 0
    for seed in (1, 2):
        drawn = Workload(cost=COST, processors=N, load=0.8, average=100.0, dc_ratio=2.0).draw(seed=seed, tasks=15)
        trace = Trace.of([*drawn.lines, *faults])
        options = Options(
            processors=N, cost=COST, discipline=discipline, actual=(LOW, HIGH), offers=False, seed=seed, restart=restart
        )
        document = simulate(trace, options).document()
        more, by_cause = waste([line.model_dump() for line in trace.lines], document, true_costs(drawn, seed))
        busy += more
        for cause, seconds in by_cause.items():
            wasted[cause] += seconds
        given_up += sum(not job["met"] for job in document["jobs"])
    assert given_up, "no promise was lost: nothing is shown"
    return busy, wasted


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
@pytest.mark.parametrize("discipline", DISCIPLINES.values(), ids=DISCIPLINES)
def test_chunks_of_jobs_that_lose_their_promise_are_offered_an_end(discipline, restart):
    busy, wasted = run(discipline, restart=restart)
    assert wasted[LOST] == 0.0
    assert sum(wasted.values()) <= 0.05 * busy


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_beside_faults_nothing_else_is_lost(restart):
    faults = [
        FaultLine(id=f"f{p}", kind="fault", arrival=2000.0 * (1 + p), processors=(p,), until=2000.0 * (3 + p))
        for p in range(4)
    ]
    busy, wasted = run(DISCIPLINES["OnePort"], restart=restart, faults=faults)
    assert wasted[FAULT] > 0.0
    assert wasted[LOST] == 0.0
    assert sum(wasted.values()) - wasted[FAULT] <= 0.05 * busy


@pytest.mark.parametrize("margin", [0.0, 6.0])
@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_a_chunk_that_turns_out_slow_leaves_before_a_reserved_window_with_what_it_has_computed(restart, margin):
    lines = [
        ReservationLine(id="r", kind="reservation", arrival=0.0, start=1000.0, end=1500.0, processors=1),
        JobLine(id="j", arrival=1.0, load=20.0, deadline=4000.0),
    ]
    options = Options(
        processors=1, cost=COST, discipline=Discipline(), actual=(HIGH, HIGH), margin=margin, restart=restart
    )
    document = simulate(Trace.of(lines), options).document()
    true = {"j": replace(COST, tau=COST.tau * HIGH, chi=COST.chi * HIGH)}
    busy, wasted = waste([line.model_dump() for line in lines], document, true)
    assert wasted[LOST] == 0.0
    assert sum(wasted.values()) <= 0.05 * busy
    before, *_ = document["chunks"]
    assert before["end"] == pytest.approx(1000.0, abs=7.0)
    assert before["load"] == pytest.approx((before["end"] - before["send_end"] - 2.0) / 150.0)
    assert sum(chunk["load"] for chunk in document["chunks"]) == 20.0


@pytest.mark.parametrize(
    ("end", "window", "cause"),
    [
        (102.5, 102.5, INPUT),
        (103.4, 103.4, BRIEF),
        (104.1, 104.1, LOST),  # it could have read an offer
        (103.4, 110.0, LOST),
    ],
)
def test_only_a_window_excuses_the_loss_of_what_was_computed_and_only_of_a_moment(end, window, cause):
    trace = [{"id": "r", "kind": "reservation", "start": window}]
    chunk = {"job": "j", "processor": 0, "send_start": 90.0, "send_end": 101.0, "end": end, "load": 0.0}
    document = {"chunks": [chunk], "decisions": [{"id": "r", "accepted": True, "processors": [0, 1]}]}
    _, wasted = waste(trace, document, {"j": COST})
    assert wasted == {cause: end - 90.0}
