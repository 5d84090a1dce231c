"""Ranks that wait for each other on shared nodes: published and exact values, and what must hold of any run."""

import json
from random import Random
from statistics import fmean

import pytest
from coschedule import one, slices
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.sim.coschedule.application import partners
from punctual.sim.coschedule.scenario import App
from punctual.sim.coschedule.slices import _Simulation, phases, simulate
from punctual.theory.slices import Slices as Law
from punctual.theory.slices import spinning_rate

MS = 0.001

SPINNING = {
    1: (0.500, 0.411, 0.308, 0.215, 0.111, 0.029),
    5: (0.500, 0.405, 0.306, 0.206, 0.107, 0.107),
    20: (0.498, 0.401, 0.401, 0.401, 0.401, 0.401),
    50: (0.501, 0.501, 0.501, 0.501, 0.501, 0.501),
}
"""Rates of two spinning ranks, buckets of 50 of 100 ms, slices 0 to 50 ms apart, in the first 6 s; by grain in ms."""


@pytest.mark.parametrize(("grain", "rates"), SPINNING.items())
def test_two_spinning_ranks_lose_what_their_slices_do_not_share(grain, rates):
    found = [one(grain=grain * MS, policy="bucket", phases=[0.0, n * 10 * MS]).rate for n in range(6)]
    assert found == pytest.approx(rates, abs=0.001)


@pytest.mark.parametrize(("grain", "rate"), [(1, 0.525), (5, 0.505), (20, 0.501), (50, 0.501)])
@pytest.mark.parametrize("apart", [0, 50])
def test_ranks_that_block_keep_their_budgets_and_lose_nothing(grain, apart, rate):
    found = one(grain=grain * MS, policy="bucket", wait="block", phases=[0.0, apart * MS])
    assert found.rate == pytest.approx(rate, abs=0.001)
    assert found.spun == 0.0


WINDOWS = {1: (0.500, 0.304, 0.021), 5: (0.500, 0.302, 0.100), 20: (0.498, 0.398, 0.398)}


@pytest.mark.parametrize(("grain", "rates"), WINDOWS.items())
@pytest.mark.parametrize("wait", ["block", "spin"])
def test_in_windows_ranks_that_block_lose_as_those_that_spin(grain, rates, wait):
    found = [one(grain=grain * MS, policy="windows", wait=wait, phases=[0.0, n * MS]).rate for n in (0, 20, 50)]
    assert found == pytest.approx(rates, abs=0.001)


def test_work_that_just_fits_into_a_window_does_not_wait_for_another_one():
    assert one(grain=50 * MS, policy="windows", phases=[0.0, 0.0]).iterations == 60


@pytest.mark.parametrize(("grain", "measured"), [(1, 0.34), (5, 0.44), (20, 0.48)])
def test_ranks_that_take_turns_with_a_hog_have_what_was_measured(grain, measured):
    found = [one(seed, duration=2.0, grain=grain * MS).rate for seed in range(40)]
    assert fmean(found) == pytest.approx(measured, abs=0.04)


def test_with_nothing_beside_it_a_rank_has_all():
    for wait in ("spin", "block"):
        found = one(hogs=0, wait=wait)
        assert found.rate == pytest.approx(1.0, abs=0.001)
        assert found.cpu == pytest.approx(1.0 if wait == "spin" else 0.005 / 0.00505, abs=0.001)
        assert found.spun == pytest.approx(0.01 if wait == "spin" else 0.0, abs=0.001)


def test_a_rank_that_blocks_goes_to_the_end_of_the_turns():
    """Alone beside a hog it has 1 ms, then the hog has 4 ms: it wakes while the hog has its turn."""
    found = one(nodes=1, wait="block", grain=1 * MS)
    assert found.rate == pytest.approx(1.05 / 5.0, abs=0.001)


@pytest.mark.parametrize(("apart", "overlap"), [(0, 0.5), (20, 0.3), (50, 0.0)])
def test_the_overlap_is_that_of_the_slices(apart, overlap):
    found = one(policy="windows", phases=[0.0, apart * MS])
    assert found.overlap == pytest.approx(overlap)
    assert found.cpu == pytest.approx(0.5)


def test_slices_as_long_as_their_period_never_end():
    for policy in ("bucket", "windows"):
        assert one(policy=policy, slice=0.1).rate == pytest.approx(1.0, abs=0.001)


def test_of_two_applications_on_a_node_the_first_one_feels_nothing_and_the_second_one_gets_the_rest():
    first = {"id": "a", "policy": "bucket", "phases": [0.0, 0.0]}
    second = {"id": "b", "policy": "bucket", "slice": 0.08, "phases": [0.0, 0.0]}
    found = simulate(slices(first, second))
    alone = simulate(slices(first))
    assert found.apps[0] == alone.apps[0]
    assert found.apps[1].rate == pytest.approx(0.5, abs=0.01)
    assert [node.local for node in found.nodes] == pytest.approx([0.0, 0.0], abs=0.001)


def test_slices_beside_each_other_disturb_no_one():
    first = {"id": "a", "policy": "aligned", "slice": 0.04}
    second = {"id": "b", "policy": "aligned", "slice": 0.04, "offset": 0.05}
    found = simulate(slices(first, second, duration=10.0))
    assert [app.rate for app in found.apps] == pytest.approx([0.4, 0.4], abs=0.01)
    assert [app.overlap for app in found.apps] == pytest.approx([0.4, 0.4], abs=0.01)
    assert found.nodes[0].local == pytest.approx(0.2, abs=0.01)


def test_two_that_take_turns_share_with_the_hog():
    found = simulate(slices({"id": "a"}, {"id": "b"}, duration=12.0))
    assert [app.cpu for app in found.apps] == pytest.approx([1 / 3, 1 / 3], abs=0.001)
    assert found.nodes[0].local == pytest.approx(1 / 3, abs=0.001)


def test_a_node_without_ranks_is_left_to_its_hogs():
    found = simulate(slices({"nodes": [0, 2]}, nodes=4))
    assert [(node.node, node.local) for node in found.nodes][1::2] == [(1, 1.0), (3, 1.0)]


@pytest.mark.parametrize(
    ("pattern", "ranks", "expected"),
    [
        ("all", 5, [0, 1, 2, 3, 4]),
        ("neighbours", 5, [0, 1, 4]),
        ("neighbours", 4, [0, 1, 3]),
        ("neighbours", 3, [0, 1, 2]),
    ],
)
def test_whom_a_rank_waits_for(pattern, ranks, expected):
    assert list(partners(pattern, 0, ranks)) == expected


def test_on_a_ring_a_late_rank_holds_up_its_neighbours_only():
    """In windows half a period apart each pair of neighbours is in step, and no rank waits for all."""
    far = [0.0, 0.0, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0]
    ring, everyone = (
        one(nodes=8, policy="windows", pattern=p, phases=far, duration=2.0) for p in ("neighbours", "all")
    )
    assert ring.rate == pytest.approx(everyone.rate, abs=0.02), "the slowest counts"
    assert ring.spun < everyone.spun


def test_slices_begin_where_they_are_said_to_together_or_anywhere():
    given_, nodes = (0.01, 0.03), range(2)
    for policy in ("bucket", "aligned", "windows", "gang"):
        assert phases(App(nodes=nodes, policy=policy, phases=given_), Random(1)) == given_
    for policy in ("aligned", "gang"):
        assert list(phases(App(policy=policy, offset=0.02), Random(1))) == [0.02, 0.02]
        near = phases(App(nodes=range(50), policy=policy, offset=0.02, error=0.001), Random(1))
        assert 0.019 <= min(near) < 0.0195
        assert 0.0205 < max(near) <= 0.021
    for policy in ("bucket", "windows"):
        drawn = phases(App(nodes=range(50), policy=policy, offset=0.02, error=0.001), Random(1))
        assert 0.0 <= min(drawn) < 0.01
        assert 0.09 < max(drawn) < 0.1


apps = st.fixed_dictionaries(
    {
        "grain": st.sampled_from([0.5, 1.0, 3.0, 7.0, 30.0]).map(lambda ms: ms * MS),
        "wait": st.sampled_from(["spin", "block"]),
        "pattern": st.sampled_from(["all", "neighbours"]),
        "latency": st.sampled_from([0.0, 0.05, 2.0]).map(lambda ms: ms * MS),
        "policy": st.sampled_from(["share", "bucket", "aligned", "windows", "gang"]),
        "slice": st.floats(5.0, 100.0).map(lambda ms: ms * MS),
        "offset": st.floats(-0.1, 0.1),
        "error": st.sampled_from([0.0, 0.002]),
    }
)
nodes = st.integers(1, 6)
DURATION = 0.5


@st.composite
def scenarios(draw):
    many = draw(nodes)
    written = [
        {"id": name, "nodes": draw(st.permutations(range(many))), **draw(apps)}
        for name in draw(st.sampled_from(["a", "ab"]))
    ]
    return slices(*written, nodes=many, duration=DURATION, hogs=draw(st.integers(0, 2)))


@settings(deadline=None, max_examples=60)
@given(scenarios(), st.integers(0, 5))
def test_cpu_goes_into_work_and_waiting_and_the_rest_to_the_hogs(scenario, seed):
    run = _Simulation(scenario, seed)
    report = run.run()
    for rank in run.ranks:
        app = rank.application.app
        begun = app.grain - rank.left if rank.left else 0.0
        assert rank.used - rank.spun == pytest.approx(rank.done * app.grain + begun, abs=1e-6)
        assert rank.spun == 0.0 or app.wait == "spin"
        assert rank.begun - rank.done in {0, 1}
    for application in run.applications:
        for rank in application.ranks:
            for other in rank.partners:
                assert abs(rank.done - application.ranks[other].done) <= 1
    used = sum(app.cpu * len(asked.nodes) for app, asked in zip(report.apps, scenario.apps, strict=True))
    assert sum(1.0 - node.local for node in report.nodes) == pytest.approx(used)
    assert all(-1e-9 <= node.local <= 1.0 for node in report.nodes)


@settings(deadline=None, max_examples=40)
@given(apps, nodes, st.integers(0, 5))
def test_no_slices_take_more_of_a_node_than_their_part(app, many, seed):
    scenario = slices({"nodes": range(many), **app}, nodes=many, duration=DURATION)
    report = simulate(scenario, seed).apps[0]
    asked = scenario.apps[0]
    share = 0.5 if asked.policy == "share" else asked.slice / asked.period
    most = share * (DURATION + 2.0 * asked.period) / DURATION
    assert report.cpu <= most + 1e-9
    assert report.rate <= most * asked.alone / asked.grain + 1e-9
    assert 0.0 <= report.overlap <= 1.0 + 1e-9


@settings(deadline=None, max_examples=30)
@given(scenarios(), st.integers(0, 1000))
def test_one_seed_gives_the_same_bytes(scenario, seed):
    first, second = (json.dumps(simulate(scenario, seed).document()) for _ in range(2))
    assert first == second


def test_another_seed_draws_other_phases():
    assert one(1, policy="bucket") != one(2, policy="bucket")
    assert one(1, policy="aligned") == one(2, policy="aligned")


@settings(deadline=None, max_examples=30)
@given(apps, st.lists(st.floats(0.0, 0.1), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_nodes_are_alike(app, at, random):
    """Which node has which phase changes nothing, if all ranks wait for all."""
    app = {**app, "policy": "bucket", "pattern": "all"}
    first = one(nodes=len(at), duration=DURATION, **app, phases=at)
    random.shuffle(at)
    assert one(nodes=len(at), duration=DURATION, **app, phases=at).rate == first.rate


@settings(deadline=None, max_examples=30)
@given(st.floats(0.001, 0.06), st.floats(0.01, 0.09), st.lists(st.floats(0.0, 0.099), min_size=1, max_size=5))
def test_in_windows_the_rate_is_that_of_the_theory(grain, length, at):
    duration = 5.0
    found = one(nodes=len(at), duration=duration, policy="windows", grain=grain, slice=length, phases=at)
    law = spinning_rate(Law(length, 0.1), grain, at, 0.00005)
    assert found.rate == pytest.approx(law, abs=3.0 * (grain + 0.1) / duration)


@pytest.mark.parametrize("many", [2, 4, 8])
def test_ranks_that_block_gain_nothing_by_alignment(many):
    how = {"nodes": many, "wait": "block", "duration": 4.0}
    aligned = one(policy="aligned", **how).rate
    assert fmean(one(seed, policy="bucket", **how).rate for seed in range(8)) == pytest.approx(aligned, rel=0.02)
