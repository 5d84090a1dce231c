"""What a scenario may say; what it may not is refused with its field and what would be right."""

import json

import pytest
from rates import EXAMPLE

from punctual.sim.rates.scenario import parse
from punctual.sim.scenario import ScenarioError


def changed(path, value):
    """Return the example with another value at a path; None: without it."""
    made = json.loads(json.dumps(EXAMPLE))
    *before, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = made
    for part in before:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return json.dumps(made).encode()


def test_the_example_is_understood():
    read = parse(json.dumps(EXAMPLE).encode())
    (app,) = read.apps
    assert (app.alone, app.factors, read.switch_cost, app.law) == (2.0, (1.0,) * 4, 0.0001, "bracketing")


@pytest.mark.parametrize("path", ["load", "apps.0.pattern", "apps.0.epsilon", "apps.0.speeds"])
def test_what_has_a_default_may_be_left_out(path):
    assert parse(changed(path, None))


def test_alone_counts_the_slowest_rank():
    assert parse(changed("apps.0.speeds", [1, 1, 2, 0.5])).apps[0].alone == 4.0


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("nodes", None, "nodes: Field required"),
        ("nodes", 0, "nodes: Input should be greater than or equal to 1, not 0"),
        ("nodes", 2.5, "nodes: Input should be a valid integer"),
        ("node", 3, "node: Extra inputs are not permitted"),
        ("duration", 0, "duration: Input should be greater than 0, not 0"),
        ("duration", "300", "duration: Input should be a valid number, not '300'"),
        ("duration", 1e8, "duration: 1e+08 s have up to"),
        ("max_period", 0.001, "max_period: 0.001 is below min_period, 0.002"),
        ("min_period", 0, "min_period: Input should be greater than or equal to 0.000001, not 0"),
        ("switch_cost", -1, "switch_cost: Input should be greater than or equal to 0, not -1"),
        ("apps", [], "apps: Tuple should have at least 1 item"),
        ("apps.0.id", "", "apps.0.id: String should have at least 1 character"),
        ("apps.0.compute", -1, "apps.0.compute: Input should be greater than or equal to 0, not -1"),
        ("nodes", 3, "apps.0.ranks: 4 ranks need as many nodes, there are 3"),
        ("apps.0.pattern", "ring", "apps.0.pattern: Input should be 'all-to-all', 'neighbour' or 'none', not 'ring'"),
        ("apps.0.law", "pi", "apps.0.law: Input should be 'bracketing' or 'linear', not 'pi'"),
        ("apps.0.speeds", [1, 1], "apps.0: speeds: 2 are given, 4 are needed, one for each rank"),
        ("apps.0.speeds", [1, 1, 1, 0], "apps.0.speeds.3: Input should be greater than or equal to 0.001, not 0"),
        ("apps.0.phases", [0, 0, 0, 1], "apps.0.phases.3: Input should be less than 1, not 1"),
        ("apps.0.epsilon", 0, "apps.0.epsilon: Input should be greater than 0, not 0"),
        ("apps.0.targets", [], "apps.0.targets: Tuple should have at least 1 item"),
        ("apps.0.targets.1.at", 0, "apps.0.targets: target 1 is at 0 s, after that at 0 s: order them by `at`"),
        ("apps.0.targets.1.at", 300, "apps.0.targets: 300 s is not before the end, 300 s"),
        ("apps.0.targets.0.rate", 0, "apps.0.targets.0.rate: Input should be greater than or equal to 0.001, not 0"),
        ("apps.0.targets.0.rate", 1.1, "apps.0.targets.0.rate: Input should be less than or equal to 1, not 1.1"),
        ("load.0.node", 4, "load.0.node: there is no 4, nodes are 0 to 3"),
        ("load.0.until", 100, "load.0: until must be later than from"),
        ("load.0.amount", -1, "load.0.amount: Input should be greater than or equal to 0, not -1"),
    ],
)
def test_what_is_not_understood_is_named_with_what_would_be_right(path, value, said):
    with pytest.raises(ScenarioError) as raised:
        parse(changed(path, value))
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "Invalid JSON: Expecting property name enclosed in double quotes, in line 1, column 2"),
        (b"[]", "Input should be an object"),
        (b'{"nodes": NaN}', "nodes: Input should be a valid integer, not nan"),
        (b"\xff", "is not UTF-8, at byte 1"),
        (b'{"nodes": 1, "nodes": 2}', "nodes: appears twice in one object"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_what_is_no_json_is_refused(text, said):
    with pytest.raises(ScenarioError) as raised:
        parse(text)
    assert str(raised.value).startswith(said)


def test_ids_are_unique():
    with pytest.raises(ScenarioError, match=r"apps\.1\.id: 'p1' is the id of apps\.0 already"):
        parse(changed("apps", EXAMPLE["apps"] * 2))


def test_targets_that_a_node_has_no_cpu_for_are_refused_with_the_node_and_its_numbers():
    other = {**EXAMPLE["apps"][0], "id": "p2", "ranks": 2, "speeds": [1, 1], "targets": [{"at": 30, "rate": 0.7}]}
    with pytest.raises(ScenarioError) as raised:
        parse(changed("apps", [EXAMPLE["apps"][0], other]))
    assert str(raised.value) == (
        "apps: from 30 s on node 0 is asked for 1.1 CPU (p1 0.4, p2 0.7) and has 1: lower the rates by 0.1 CPU in all, "
        "or use other nodes"
    )
