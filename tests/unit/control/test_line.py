"""What an agent begins a chunk's line with."""

import math
from dataclasses import astuple

import pytest

from punctual.control.line import first_model, floor, sample_length, spare
from punctual.control.model import Model
from punctual.control.response import Response

RESPONSE = Response(cpu_per_unit=0.2, lag=4.0 / math.log(2.0), delay=4.0, noise=0.1)


@pytest.mark.parametrize(
    ("cpu_per_unit", "planned", "sample", "before"),
    [
        (0.25, 200.0, 5.0, 15.0),  # ten units at half a core
        (0.01, 200.0, 1.0, 4.0),
        (5.0, 200.0, 5.0, 15.0),  # a fortieth of the planned time
        (50.0, 1e5, 60.0, 2000.0),
        (0.25, 2.0, 1.0, 3.0),
    ],
)
def test_a_line_ends_before_the_planned_end_by_what_noise_may_take(cpu_per_unit, planned, sample, before):
    found = sample_length(cpu_per_unit, 0.5, planned)
    assert (found, spare(found, planned)) == (sample, before)


@pytest.mark.parametrize(("cap", "ceiling", "least"), [(0.5, None, 0.025), (0.5, 1.0, 0.01), (0.1, 2.0, 0.02)])
def test_a_chunk_always_has_some_cpu_and_less_where_processors_are_shared(cap, ceiling, least):
    assert floor(cap, ceiling) == least


@pytest.mark.parametrize(
    ("own", "others", "wanted"),
    [
        (None, None, (Model((0.0,), (20.0,)), 0.05, False)),
        (None, RESPONSE, (Model((0.5,), (0.0, 10.0)), 0.05, True)),
        (Response(0.5, 0.0, 0.0, 0.3), RESPONSE, (Model((0.0,), (8.0,)), 0.15, True)),
        (Response(0.5, 0.0, 0.0, 0.3), None, (Model((0.0,), (8.0,)), 0.15, True)),
        (Response(100.0, 0.0, 0.0, 0.3), RESPONSE, (Model((0.5,), (0.0, 10.0)), 0.05, True)),
        (Response(100.0, 0.0, 0.0, 0.3), None, (Model((0.0,), (20.0,)), 0.05, False)),
    ],
    ids=["the cost", "the others", "its own", "its own alone", "its own cannot be true", "no other either"],
)
def test_a_chunk_begins_with_its_own_model_else_with_that_of_others_else_with_the_cost(own, others, wanted):
    found = first_model(own, others, 0.2, 4.0, learned=True)
    model, noise, learned = wanted
    assert [*astuple(found.model)] == [pytest.approx(part) for part in astuple(model)]
    assert (found.noise, found.learned) == (pytest.approx(noise), learned)


@pytest.mark.parametrize("learned", [False, True])
def test_what_a_pod_was_sent_is_no_more_learned_when_its_agent_tells_of_it(learned):
    assert first_model(RESPONSE, None, 0.2, 4.0, learned=learned).learned == learned
