"""The demo's arithmetic is that of admission: its jobs need just the processors that it says."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.scheduling.state.startup_times import StartupTimes
from punctual.theory.cost import Cost

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))  # hypothesis wants it before any fixture

from demo_lib import programs, sizes


def demand(size, cost, startups):
    core = Cost(cost.chi, 0.0, 0.0, cost.theta)
    margin = sizes.MARGIN + StartupTimes(startups).beyond(core.setup)
    kept_back = margin + sizes.REDUCE + cost.theta
    return Demand(
        order=Order(float(size.deadline), 0.0, "j"),
        ranges=Ranges.of((0, size.units)),
        cost=core.with_headroom(sizes.HEADROOM),
        due=size.deadline - kept_back,
        reduce=sizes.REDUCE + cost.theta,
    )


@given(
    chi=st.floats(0.05, 0.5),
    theta=st.floats(4, 7),
    processors=st.integers(1, int(sizes.TAKEN * sizes.MOST)),
    startups=st.lists(st.floats(0.5, 9), max_size=20),
    now=st.floats(0, sizes.DELAY),
)
def test_a_job_fits_on_its_processors_and_not_on_one_less(chi, theta, processors, startups, now):
    cost = programs.Cost(chi, theta)
    size = sizes.filling(cost, processors, 75, startups)
    asked, ready = demand(size, cost, startups), np.full(size.processors, now)
    assert isinstance(place(asked, Timeline(ready)), Placement)
    if processors > 1:
        assert isinstance(place(asked, Timeline(ready[1:])), Shortfall)


def test_costs_are_read_from_what_was_measured():
    told = '{"primes": [0.15, 0.63], "mertens": [0.03, 0.39], "clocks": [0.13, 0.64]}'
    found = programs.costs(told, 0.1)
    assert found["primes"].chi == pytest.approx(sizes_chi(0.15, 0.63, 2, 26))
    assert found["primes"].theta == pytest.approx(programs.START + (0.15 - 2 * 0.02) / 0.1)


def sizes_chi(few, many, small, large):
    return programs.SAFETY * (many - few) / (large - small) / 0.1
