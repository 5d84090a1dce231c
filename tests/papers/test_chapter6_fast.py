"""Fast admission (Mamat 2011, ch. 6): what the paper's test admits and cannot keep, and how much each test refuses.

Measured are shares of all jobs, the mean over seeds, with the paper's workload over SystemLoad 0.1 to 1: `fast` is
`FastLine` for one port, `literal` is AC-FAST as printed, of which jobs that it admits and that are late count as not
admitted at all (but did take their processors), `exact` is EDF-IIT-2: the whole queue placed anew for each job.
"""

import os

import contest
import pytest

from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.sim.trace import JobLine, Trace
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
LOADS = [n / 10 for n in range(1, 11)]
BEYOND_LITERAL, BEYOND_EXACT = 0.003, 0.02
"""By how much the mean share of refused jobs may be more."""


def test_the_papers_test_admits_what_cannot_be_met_where_others_hold_processors():
    """Four processors. `g` takes one until 4, `h` the others until 100, and goes on waiting for more.

    Run one after the other on all four, `g` ends at 1 and `h` could wait 11 s: the paper gives `k` all four from 1 on.
    """
    cost = Cost(1.0)
    trace = Trace.of(
        [
            JobLine(id="g", arrival=0.0, load=4.0, deadline=5.0),
            JobLine(id="h", arrival=0.0, load=350.0, deadline=100.0),
            JobLine(id="k", arrival=1.0, load=30.0, deadline=8.0),
        ]
    )
    assert contest.literal(trace, 4, cost) == pytest.approx((0.0, 1 / 3))
    assert contest.literal(trace, 4, cost, left=True) == pytest.approx((1 / 3, 0.0))
    assert contest.fast(trace, 4, cost) == pytest.approx((1 / 3, 0.0))
    assert contest.exact(trace, 4, cost) == pytest.approx((1 / 3, 0.0))


def test_processors_that_are_idle_count_as_if_there_were_no_others():
    """Eight of 16 work beyond the deadline; the other eight do the job with a hundredth of the time to spare."""
    cost = Cost(100.0, 1.0)
    line = FastQueue(16, beta=cost.beta, ends=[1000.0] * 8)
    alone = 8.0 * cost.per_unit * (1 - cost.beta) / (1 - cost.beta**8)
    room = line.room(0.0, (1.01 * alone, 0.0, "j"), 8.0, cost)
    assert room.fits
    assert room.slack == pytest.approx(0.01 * alone * line.busy.weight(8) / line.busy.weight(16))


@pytest.mark.timeout(3600 if NIGHTLY else 300)
@pytest.mark.parametrize("dc_ratio", [2.0, 10.0])
@pytest.mark.parametrize(
    "size", [(16, 100.0, 200.0, 300, 100), (256, 1000.0, 1000.0, 60, 100)] if NIGHTLY else [(16, 100.0, 200.0, 60, 20)]
)
def test_fast_refuses_no_more_than_the_literal_algorithm_and_little_more_than_the_exact_test(size, dc_ratio):
    processors, chi, average, tasks, seeds = size
    cost = Cost(chi, 1.0)
    for load in LOADS:
        workload = Workload(cost=cost, processors=processors, load=load, average=average, dc_ratio=dc_ratio)
        traces = [workload.draw(seed=seed, tasks=tasks) for seed in range(seeds)]
        found = {
            test: [getattr(contest, test)(trace, processors, cost) for trace in traces]
            for test in ("fast", "literal", "exact")
        }
        assert not any(outcome.missed for outcome in found["fast"] + found["exact"])
        lost = {test: sum(outcome.lost for outcome in outcomes) / seeds for test, outcomes in found.items()}
        assert lost["fast"] <= lost["literal"] + BEYOND_LITERAL, load
        assert lost["fast"] <= lost["exact"] + BEYOND_EXACT, load
