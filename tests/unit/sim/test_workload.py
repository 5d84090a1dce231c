"""The paper's workload: its distributions, as numbers."""

import numpy as np
import pytest

from punctual.sim.trace import jobs
from punctual.sim.workload import Workload
from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time

PAPER = Workload(cost=Cost(1000.0, 1.0), processors=256, load=0.8, average=1000.0, dc_ratio=2.0)


def test_load_and_deadlines_are_as_the_paper_draws_them():
    drawn = jobs(PAPER.draw(seed=1, tasks=20_000))
    loads = np.array([j.load for j in drawn])
    deadlines = np.array([j.deadline for j in drawn])
    arrivals = np.array([j.arrival for j in drawn])
    middle = 2.0 * execution_time(1000.0, 256, PAPER.cost)
    assert (loads > 0).all()
    assert 1.15 < loads.mean() / 1000.0 < 1.25
    assert deadlines.min() >= middle / 2
    assert deadlines.max() <= 1.5 * middle
    assert all(j.deadline > execution_time(j.load, 256, PAPER.cost) for j in drawn)
    # SystemLoad = E(Avgσ, 1) λ / N, and the interarrival times are exponential: as spread as their mean
    gaps = np.diff(arrivals)
    assert execution_time(1000.0, 1, PAPER.cost) / gaps.mean() / 256 == pytest.approx(0.8, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_the_same_seed_draws_the_same_jobs_and_another_others():
    assert PAPER.draw(seed=3, tasks=50) == PAPER.draw(seed=3, tasks=50)
    assert PAPER.draw(seed=3, tasks=50) != PAPER.draw(seed=4, tasks=50)


def test_a_horizon_ends_the_arrivals():
    drawn = jobs(PAPER.draw(seed=1, horizon=1e6))
    assert 100 < len(drawn) < 400
    assert drawn[-1].arrival < 1e6
    assert list(drawn) == list(jobs(PAPER.draw(seed=1, tasks=len(drawn))))


@pytest.mark.parametrize("field", ["processors", "load", "average", "dc_ratio"])
def test_what_makes_no_workload_is_refused_by_name(field):
    numbers = {"processors": 16, "load": 0.5, "average": 200.0, "dc_ratio": 2.0} | {field: 0}
    with pytest.raises(ValueError, match=field):
        Workload(cost=Cost(100.0, 1.0), **numbers)


def test_deadlines_that_set_up_costs_alone_exceed_would_be_drawn_for_ever():
    with pytest.raises(ValueError, match="dc_ratio"):
        Workload(cost=Cost(1.0, 1.0, 0.0, 1e6), processors=4, load=0.5, average=10.0, dc_ratio=0.5)
    with pytest.raises(ValueError, match="tasks or horizon"):
        PAPER.draw(seed=1)
