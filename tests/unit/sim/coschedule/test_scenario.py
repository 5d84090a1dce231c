"""What a scenario may say; what it may not is refused with its field and what would be right."""

import json
from math import exp

import pytest
from coschedule import EXAMPLE, STATIONS

from punctual.sim.coschedule.scenario import Slices, Stations, parse
from punctual.sim.scenario import ScenarioError


def changed(example, path, value):
    """Return an example with another value at a path."""
    made = json.loads(json.dumps(example))
    *before, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = made
    for part in before:
        at = at[part]
    at[last] = value
    return json.dumps(made).encode()


def test_every_field_may_be_left_out():
    read = parse("{}")
    assert read == parse('{"model": "slices"}') == Slices()
    assert (read.nodes, read.duration, read.hogs, read.quantum) == (2, 20.0, 1, 0.004)
    (app,) = read.apps
    assert (app.id, app.nodes, app.grain, app.latency, app.alone) == ("a", (0, 1), 0.005, 0.00005, 0.00505)
    assert (app.wait, app.pattern, app.policy) == ("spin", "all", "share")
    assert (app.period, app.slice, app.phases, app.offset, app.error) == (0.1, 0.05, None, 0.0, 0.0)
    assert parse('{"apps": [{}]}') == read


def test_every_field_of_stations_may_be_left_out_too():
    read = parse('{"model": "stations"}')
    assert read == parse(json.dumps(STATIONS)) == Stations()
    assert read.mst == pytest.approx(10 * 5 / 6)


def test_a_task_may_be_overtaken_as_often_as_tasks_are_in_a_queue():
    """As in the thesis, if `mco` is left out."""
    assert parse('{"model": "stations"}').overtakings == 5
    assert parse('{"model": "stations", "mrql": 2}').overtakings == 2
    assert parse('{"model": "stations", "mrql": 2, "mco": 0}').overtakings == 0


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("model", "slots", "model: Input should be 'slices' or 'stations', not 'slots'"),
        ("nodes", 0, "nodes: Input should be greater than or equal to 1, not 0"),
        ("nodes", 2.5, "nodes: Input should be a valid integer"),
        ("node", 2, "node: Extra inputs are not permitted, not 2"),
        ("duration", "20", "duration: Input should be a valid number, not '20'"),
        ("duration", 0, "duration: Input should be greater than or equal to 0.000001, not 0"),
        ("duration", 1e6, "duration: 1e+06 s have up to 8.32e+08 events, at most 2e+07 are simulated: shorten it"),
        ("hogs", -1, "hogs: Input should be greater than or equal to 0, not -1"),
        ("quantum", 0, "quantum: Input should be greater than or equal to 0.000001, not 0"),
        ("apps", [], "apps: Tuple should have at least 1 item"),
        ("apps", EXAMPLE["apps"] * 2, "apps.1.id: 'a' is the id of apps.0 already"),
        ("apps.0.id", "", "apps.0.id: String should have at least 1 character"),
        ("apps.0.nodes", [], "apps.0.nodes: Tuple should have at least 1 item"),
        ("apps.0.nodes", [0, 2], "apps.0.nodes: there is no 2, nodes are 0 to 1"),
        ("apps.0.nodes", [1, 1], "apps.0: nodes: 1 is named twice, and a node has one rank of an application"),
        ("apps.0.grain", 0, "apps.0.grain: Input should be greater than or equal to 0.000001, not 0"),
        ("apps.0.wait", "yield", "apps.0.wait: Input should be 'spin' or 'block', not 'yield'"),
        ("apps.0.pattern", "ring", "apps.0.pattern: Input should be 'all' or 'neighbours', not 'ring'"),
        ("apps.0.latency", -1, "apps.0.latency: Input should be greater than or equal to 0, not -1"),
        (
            "apps.0.policy",
            "quota",
            "apps.0.policy: Input should be 'share', 'bucket', 'aligned', 'windows' or 'gang', not 'quota'",
        ),
        ("apps.0.period", 0, "apps.0.period: Input should be greater than or equal to 0.000001, not 0"),
        ("apps.0.slice", 0.2, "apps.0: slice: 0.2 s is longer than the period, 0.1 s"),
        ("apps.0.phases", [0.0], "apps.0: phases: 1 is given, 2 are needed, one for each of nodes"),
        (
            "apps.0.phases",
            [0.0, 1e9],
            "apps.0.phases.1: Input should be less than or equal to 1000000, not 1000000000.0",
        ),
        ("apps.0.offset", None, "apps.0.offset: Input should be a valid number, not None"),
        ("apps.0.error", -0.1, "apps.0.error: Input should be greater than or equal to 0, not -0.1"),
    ],
)
def test_what_is_not_understood_is_named_with_what_would_be_right(path, value, said):
    with pytest.raises(ScenarioError) as raised:
        parse(changed(EXAMPLE, path, value))
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("policy", "GANG", "policy: Input should be 'LIN', 'IMP', 'EXP', 'HPDT', 'DYN' or 'PRE', not 'GANG'"),
        ("stations", 0, "stations: Input should be greater than or equal to 1, not 0"),
        ("mrql", 0, "mrql: Input should be greater than or equal to 0.01, not 0"),
        ("pdt", 0, "pdt: Input should be greater than or equal to 0.01, not 0"),
        ("pdt", 1.1, "pdt: Input should be less than or equal to 1, not 1.1"),
        ("maxm", 0, "maxm: Input should be greater than or equal to 1, not 0"),
        ("mco", -1, "mco: Input should be greater than or equal to 0, not -1"),
        ("quantum", 0, "quantum: Input should be greater than or equal to 0.001, not 0"),
        ("mit", 0, "mit: Input should be greater than or equal to 0.001, not 0"),
        ("slice", 0, "slice: Input should be greater than or equal to 0.001, not 0"),
        ("spin", -1, "spin: Input should be greater than or equal to 0, not -1"),
        ("symmetry", 2, "symmetry: Input should be less than or equal to 1, not 2"),
        ("tasks", 0, "tasks: Input should be greater than or equal to 1, not 0"),
        ("warm", 1, "warm: Input should be less than 1, not 1"),
        ("apps", [], "apps: Extra inputs are not permitted"),
    ],
)
def test_what_is_not_understood_of_stations_is_named_too(path, value, said):
    with pytest.raises(ScenarioError) as raised:
        parse(changed(STATIONS, path, value))
    assert str(raised.value).startswith(said)


def test_implicit_stations_that_could_not_serve_all_tasks_are_refused():
    """ρ · (1 + spin · (1 − pdt) / (1 − e^(−quantum/mst))) must be below 1."""
    limit = 1 / (5 * 0.5 / (1 - exp(-10 / (50 / 6))))
    text = json.dumps({**STATIONS, "policy": "IMP", "spin": limit + 0.001})
    with pytest.raises(ScenarioError, match=r"spin: with 0\.28\d* stations cannot serve .* must be less than 0\.28"):
        parse(text)
    assert parse(json.dumps({**STATIONS, "policy": "IMP", "spin": limit - 0.001}))
    assert parse(json.dumps({**STATIONS, "policy": "IMP", "spin": 9, "pdt": 1}))
    assert parse(json.dumps({**STATIONS, "policy": "PRE", "spin": 9}))


def test_stations_that_would_take_hours_are_refused():
    with pytest.raises(
        ScenarioError, match=r"tasks: 100000 distributed ones have about 1\.67e\+09 events, at most 2e\+07"
    ):
        parse(json.dumps({**STATIONS, "tasks": 100_000, "quantum": 0.001}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "Invalid JSON: Expecting property name enclosed in double quotes, in line 1, column 2"),
        (b"[]", "Input should be an object"),
        (b"\xff", "is not UTF-8, at byte 1"),
        (b'{"nodes": 1, "nodes": 2}', "nodes: appears twice in one object"),
        (b'{"duration": Infinity}', "duration: Input should be"),
    ],
)
def test_what_is_no_json_is_refused(text, said):
    with pytest.raises(ScenarioError) as raised:
        parse(text)
    assert str(raised.value).startswith(said)
