from math import inf, nan

import pytest

from punctual.theory.cost import Cost


@pytest.mark.parametrize(
    ("field", "value"),
    [("chi", 0.0)] + [(field, bad) for field in ("chi", "tau", "theta_cm", "theta_cp") for bad in (-1.0, inf, nan)],
)
def test_a_cost_that_makes_no_sense_is_named(field, value):
    with pytest.raises(ValueError, match=rf"^{field} must"):
        Cost(**{"chi": 1.0} | {field: value})


def test_a_chunk_costs_its_setup_and_its_units():
    cost = Cost(chi=3.0, tau=1.0, theta_cm=5.0, theta_cp=7.0)
    assert (cost.setup, cost.per_unit, cost.beta) == (12.0, 4.0, 0.75)
    assert cost.seconds(10) == 52.0


def test_beta_is_one_where_nothing_is_sent():
    assert Cost(chi=3.0).beta == 1.0


def test_headroom_slows_the_computation_only():
    cost = Cost(chi=7.0, tau=1.0, theta_cm=2.0, theta_cp=3.0)
    assert cost.with_headroom(0.125) == Cost(chi=8.0, tau=1.0, theta_cm=2.0, theta_cp=3.0)
    assert cost.with_headroom(0.0) == cost


@pytest.mark.parametrize("r", [-0.1, 1.0, nan])
def test_headroom_is_a_part_of_one(r):
    with pytest.raises(ValueError, match="headroom"):
        Cost(chi=1.0).with_headroom(r)


def test_with_a_pod_for_each_unit_each_has_the_setup():
    cost = Cost(chi=3.0, tau=1.0, theta_cm=5.0, theta_cp=7.0)
    assert cost.in_unit_pods() == Cost(chi=16.0)
    assert cost.in_unit_pods().seconds(10) == 10 * cost.seconds(1)
    assert cost.in_unit_pods().in_unit_pods() == cost.in_unit_pods()
