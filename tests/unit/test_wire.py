"""Agents and operators of two releases understand each other, whichever is upgraded first."""

import copy
import json
from typing import get_args

import pytest
from pydantic import ValidationError

from punctual.wire import (
    ApplicationOrder,
    ClockReport,
    Followed,
    GuestOrder,
    HoldOrder,
    LineOrder,
    Loop,
    Order,
    PodReport,
    Report,
    ResponseModel,
    SetPoint,
    SetPoints,
    encoded,
)
from punctual_agent.modes import MODES

LINE = {
    "pool": "main", "pool_cores": 2.0, "units": 400, "seconds_left": 395.0, "due_seconds_left": 610.0, "floor": 0.025,
    "sample": 5.0, "model": {"a": 0.0, "b": 20.0, "delay": 0, "learned": False}, "noise": 0.05,
    "loop": {"kp": 0.1, "ki": 0.2, "alpha": 0.3, "calm": 0.4, "threshold": 0.5},
}  # fmt: skip
GUEST = {"weight": 250, "paused": True}
BEFORE = {
    "epoch": 7,
    "pods": [
        {"uid": "h", "cap": 0.5, "rest_cap": 0.5, "period": 0.1, "units": 10},
        {"uid": "l", "cap": 0.5, "rest_cap": 0.5, "period": 0.1, "units": 400, "follow": LINE},
        {"uid": "a", "cap": 0.4, "rest_cap": 0.4, "period": 0.02, "units": 0, "application": True},
        {"uid": "g", "cap": 0.01, "rest_cap": 0.01, "units": 7, "period": 0.1, "guest": GUEST},
    ],
    "applications_complete": True,
}
"""An answer, as the release before has it."""
LOOP = Loop(kp=0.1, ki=0.2, alpha=0.3, calm=0.4, threshold=0.5)
NOW = SetPoints(
    epoch=7,
    pods=[
        SetPoint(uid="h", cap=0.5, rest_cap=0.5, units=10, mode=HoldOrder()),
        SetPoint(
            uid="l", cap=0.5, rest_cap=0.5, units=400,
            mode=LineOrder(pool="main", pool_cores=2.0, units=400, seconds_left=395.0, due_seconds_left=610.0,
                           floor=0.025, sample=5.0, model=ResponseModel(a=0.0, b=20.0), loop=LOOP),
        ),
        SetPoint(uid="a", cap=0.4, rest_cap=0.4, period=0.02, mode=ApplicationOrder()),
        SetPoint(uid="g", cap=0.01, rest_cap=0.01, units=7, mode=GuestOrder(weight=250, paused=True)),
    ],
    applications_complete=True,
)  # fmt: skip


def test_an_agent_understands_an_operator_of_the_release_before():
    sent = copy.deepcopy(BEFORE)
    for point in sent["pods"]:
        point |= {"application": point.get("application", False), "seconds_left": 9.0, "units_left": 4.0}
    assert SetPoints.model_validate_json(json.dumps(sent)) == NOW


def test_an_agent_of_the_release_before_gets_each_mode_as_it_knows_it():
    found = json.loads(encoded(NOW, ()))
    for point in found["pods"]:
        for order in (point.get("follow"), point.get("guest")):
            if order is not None:
                del order["kind"]  # a field that it does not know
    del found["held"]  # another one
    assert found == BEFORE


def test_an_operator_of_the_release_before_has_all_that_it_asks_for():
    """It refuses a report without one of these fields."""
    followed = Followed(needed=0.7, sample=1.0, model=ResponseModel(a=0.0, b=1.0))
    pod = PodReport(uid="p", followed=followed)
    report = Report(node="n", instance="i", sequence=1, modes=tuple(MODES), pods=[pod])
    sent = json.loads(report.model_dump_json(exclude_none=True))
    assert sent.keys() >= {"node", "instance", "sequence"}
    assert sent["pods"][0].keys() >= {"uid"}
    assert sent["pods"][0]["followed"].keys() >= {"needed", "sample", "model"}


def test_reports_of_the_release_before_and_of_a_later_one_are_read():
    before = {
        "node": "n", "instance": "i", "sequence": 1, "started": 1.0, "epoch": 3,
        "host": {"cpu_seconds": 1.0, "memory_bytes": 2, "pressure": 3.0, "cgroup": "v2", "driver": "systemd",
                 "guest_priority": "idle", "guest_memory": "high", "guest_disk": ["weight"], "guest_excess": 4},
        "pods": [{"uid": "p", "done": 3, "throttled_seconds": 1.0,
                  "followed": {"needed": 0.4, "sample": 1.0, "model": {"a": 0.0, "b": 1.0}}}],
    }  # fmt: skip
    assert Report.model_validate_json(json.dumps(before)).modes == ()
    later = {**before, "modes": ["Hold", "Unheard"], "weather": "fine"}
    assert Report.model_validate_json(json.dumps(later)).modes == ("Hold", "Unheard")


@pytest.mark.parametrize("used", [-1, 2**63, 1.5, "much", None])
@pytest.mark.parametrize("field", ["used", "limit"])
def test_memory_that_no_kernel_counts_is_refused(field, used):
    memory = {"used": 5, "limit": 7, "cause": "pod"}
    assert PodReport.model_validate({"uid": "p", "memory": memory}).memory.limit == 7
    if (field, used) == ("limit", None):
        return  # there is none
    with pytest.raises(ValidationError):
        PodReport.model_validate({"uid": "p", "memory": {**memory, field: used}})


def test_memory_has_a_known_cause_and_an_agent_of_the_release_before_reports_none():
    assert PodReport.model_validate({"uid": "p"}).memory is None
    with pytest.raises(ValidationError):
        PodReport.model_validate({"uid": "p", "memory": {"used": 5, "cause": "moon"}})


def test_an_operator_of_the_release_before_asks_for_no_memory():
    order = {"kind": "Application", "grid": {"begins": 1.5, "slice": 0.03}}
    point = SetPoint.model_validate({"uid": "p", "cap": 0.3, "rest_cap": 0.3, "mode": order})
    assert not point.mode.watch_memory


def test_all_modes_come_back_from_the_wire():
    assert SetPoints.model_validate_json(encoded(NOW, tuple(MODES))) == NOW
    assert {type(point.mode) for point in NOW.pods} == set(get_args(Order)), "a mode more needs a line here"


def test_a_pod_in_a_mode_that_its_agent_does_not_know_is_left_out_and_not_released():
    found = SetPoints.model_validate_json(encoded(NOW, ["Hold", "Guest"]))
    assert ([point.uid for point in found.pods], found.applications_complete) == (["h", "g"], False)
    assert NOW.applications_complete


def test_an_agent_has_a_mode_for_each_order():
    assert {order.model_fields["kind"].default for order in get_args(Order)} == MODES.keys()


ODD = [{"mode": {"kind": "Unheard"}}, {"mode": {}}, {"mode": "Hold"}, {"guest": {"weight": 0}}]


@pytest.mark.parametrize("odd", ODD)
def test_an_order_that_makes_no_sense_is_refused(odd):
    """The agent then goes on as without an answer, and releases nothing."""
    with pytest.raises(ValidationError):
        SetPoints.model_validate({"epoch": 1, "pods": [{"uid": "p", "cap": 1.0, "rest_cap": 1.0} | odd]})


@pytest.mark.parametrize("odd", [5, "much", [1]])
def test_what_stands_in_the_place_of_an_order_ends_no_agent(odd):
    point = SetPoint.model_validate({"uid": "p", "cap": 1.0, "rest_cap": 1.0, "guest": odd})
    assert point.mode == HoldOrder()


HOSTILE = [
    {"begins": "NaN"},
    {"begins": "Infinity"},
    {"begins": -1e18},
    {"begins": 1e18},
    {"half": "NaN"},
    {"half": -0.001},
    {"error": "NaN"},
    {"error": 1e9},
    {"error": -1.5},
    {"age": -1.0},
    {"age": "Infinity"},
    {"moves": -1},
    {"failed": 1.5},
]


@pytest.mark.parametrize("lie", HOSTILE, ids=str)
def test_a_phase_that_cannot_be_is_refused_with_its_report(lie):
    said = {"begins": 1.0, "half": 0.0001, "error": 0.0} | lie
    text = json.dumps(said).replace('"NaN"', "NaN").replace('"Infinity"', "Infinity")
    with pytest.raises(ValidationError):
        PodReport.model_validate_json('{"uid": "p", "phase": ' + text + "}")


@pytest.mark.parametrize("bound", ["NaN", "Infinity", "-0.001"])
def test_a_bound_of_the_clock_that_cannot_be_is_refused(bound):
    with pytest.raises(ValidationError):
        ClockReport.model_validate_json('{"bound": ' + bound + "}")
