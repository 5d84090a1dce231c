"""The experiment on aligned slices: what it starts, and what it makes of its points."""

import pytest
from experiments_lib import aligned, coscheduling, draw, page
from experiments_lib.application import LIMIT, NAME, Counters, Program, manifests, run_of, target
from experiments_lib.ranks import Seen

from punctual.kube.api import TargetRate, parse


def block(rates, *, skew=0.1):
    told = {arm: {"rate": rate, "local": 0.45, "agent": 0.001, "other": 0.1} for arm, rate in rates.items()}
    told["aligned"] |= {"skew": skew, "half": 0.1, "starts": [1.0, 3.0]}
    return told


def points(**more):
    runs = [block({"aligned": 0.46, "uncoordinated": 0.26, "apart": 0.1, "none": 0.31})] * 2
    arms = {"uncoordinated": 0.26, "apart": 0.1, "none": 0.31}
    ratios = {arm: coscheduling.quartiles([0.46 / rate] * 2) for arm, rate in arms.items()}
    one = {"runs": runs, "ratios": ratios, "slices": {"aligned": [[[0, 50]], [[1, 51]]]}}
    return {"commit": "0", "short": True, "blocks": 2, "share": 0.5, "programs": {"spin, 1 ms": one}, **more}


def test_the_figures_are_those_for_which_there_are_points():
    few = {figure.number for figure in aligned.figures(points())}
    assert few == {"A1", "A2", "A4", "A7", "A9", "A10", "A11"}
    more = points(
        sweep={"spin, 5 ms": [[0.0, 0.4], [0.05, 0.2]]},
        interactive={"50 ms": {"aligned": [50.0, None], "uncoordinated": [52.0]}},
        killed={"before": {"rate": 0.4}, "after": {"rate": 0.4}},
        takeover=[0.1, -0.2],
    )
    found = {figure.number: figure.value for figure in aligned.figures(more)}
    assert found["A3"] == pytest.approx(4 / 3)
    assert (found["A8"], found["A12"], found["A13"]) == (-2.0, 1.0, 0.2)


def test_points_become_tables_and_pictures(tmp_path):
    text = "\n".join(page.coscheduling(points()))
    assert "| A1 | spin, 1 ms: aligned ÷ uncoordinated | 1.77 | 1.5– | yes |" in text
    draw.coscheduling(points(), tmp_path / "coscheduling.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"coscheduling.svg", "coscheduling-slices.svg"}


def test_slices_are_the_times_in_which_cpu_is_used():
    samples = [(0.0, 0.0), (1.0, 0.001), (2.0, 0.002), (3.0, 0.002), (4.0, 0.00205), (5.0, 0.003)]
    assert coscheduling.slices(samples) == [[0.0, 2.0], [4.0, 5.0]]


@pytest.mark.parametrize("program", [*coscheduling.PROGRAMS, *coscheduling.SHORT])
def test_ranks_are_guaranteed_pods_that_their_target_selects(program):
    service, ranks = manifests(program, "image")
    template = ranks["spec"]["template"]
    (container,) = template["spec"]["containers"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"] == f"{1000 * LIMIT:.0f}m"
    assert f"{program.grain:g}" in container["command"][-1]
    spec = parse(TargetRate, target(program)).spec
    assert spec.selector.match_labels.items() <= template["metadata"]["labels"].items()
    assert service["metadata"]["name"] == ranks["spec"]["serviceName"] == NAME


def test_a_run_is_that_of_the_slower_rank_and_tells_what_else_the_machine_did():
    before = Counters(0.0, (Seen(0.0, 0, 0.0), Seen(0.0, 0, 0.0)), (0.0, 0.0), (0.0, 0.0), 0.0)
    after = Counters(2.0, (Seen(2.0, 900, 1.0), Seen(1.0, 400, 1.0)), (0.8, 1.0), (0.0, 0.01), 4.2)
    run = run_of(Program("spin", 1.0), before, after)
    assert run == {"rate": 0.4, "local": 0.45, "agent": 0.0025, "other": pytest.approx(0.2)}
