"""Slices that follow the load of the nodes' own work."""

from dataclasses import replace
from math import exp

import pytest
from held import Held, Ranks, rate
from hypothesis import given
from hypothesis import strategies as st

from punctual.rates.application import Application
from punctual.rates.balanced import FRESH, LEAST, Balance, NodeLoads
from punctual.rates.model import MembersSeen, Record
from punctual.theory.slices import STEP, parallel_part

PARTS = [(0, 0.9), (1, 0.8), (3, 0.4), (10, 0.1)]
"""Pods without an end on each node of one CPU, and the part of table 2.1."""


def cluster(hogs, request=1.0, **more):
    return Held({"a": Ranks("a", request=request, **more)}, hogs={"n0": hogs, "n1": hogs})


def balanced(held, **more):
    return held.ask("a", LEAST, balanced=True, **more)


def part(held):
    (found,) = {hold.cap for hold in held.holds.values()}
    return round(found, 9)


def reason(held):
    return held.statuses["a"].on_target.reason


# the index of a node, and the part of an application


def test_the_first_load_counts_whole_and_later_ones_within_a_minute():
    loads = NodeLoads()
    loads.observe("n0", 0.0, 2.0)
    assert loads.mean(["n0"], 0.0) == 2.0
    for second in range(1, 61):
        loads.observe("n0", float(second), 0.0)
    assert loads.mean(["n0"], 60.0) == pytest.approx(2.0 * exp(-1.0)), "however often it is told"


def test_the_mean_is_of_the_nodes_that_have_told_lately():
    loads = NodeLoads()
    loads.observe("n0", 0.0, 2.0)
    loads.observe("n1", 30.0, 1.0)
    loads.observe("other", 30.0, 9.0)
    assert loads.mean(["n0", "n1", "silent"], 30.0) == 1.5
    assert loads.mean(["n0", "n1", "silent"], FRESH + 1.0) == 1.0
    loads.forget(FRESH + 1.0)
    assert loads.mean(["n0", "silent"], 0.0) is None


@pytest.mark.parametrize(
    ("loads", "parts"),
    [
        ([0.0, 0.5, 0.51], [0.9, 0.9, 0.8]),
        ([1.0, 1.4, 0.6, 0.5, 0.49], [0.8, 0.8, 0.8, 0.8, 0.9]),
        ([3.0, 2.6, 3.4, 3.6], [0.4, 0.4, 0.4, 0.2]),
        ([3.0 + 1e-12], [0.4]),
        ([4.0, 4.6, 100.0], [0.2, 0.1, 0.1]),
    ],
)
def test_a_part_stays_until_the_load_differs_by_more_than_a_step(loads, parts):
    balance, found = Balance(), []
    for load in loads:
        balance.weigh(load)
        found.append(balance.part)
    assert found == parts


@given(st.lists(st.floats(0.0, 1e6), min_size=1))
def test_the_part_is_that_of_a_load_within_a_step_of_the_present(loads):
    balance = Balance()
    for load in loads:
        balance.weigh(load)
        near = {round(parallel_part(max(load + move * STEP, 0.0)), 1) for move in (-1.0, 0.0, 1.0)}
        assert min(near) <= balance.part <= max(near)


# stories


@pytest.mark.parametrize(("hogs", "right"), PARTS)
def test_it_gets_the_part_for_its_nodes_load_and_keeps_it(hogs, right):
    held = balanced(cluster(hogs)).run(5)
    assert (part(held), reason(held)) == (LEAST, "Settling"), "no node has told"
    held.run(40)
    status = held.statuses["a"]
    assert (part(held), status.target, reason(held)) == (right, right, "Balanced")
    assert f"{100 * right:.0f}% of their CPU" in status.on_target.message
    changes = len(held.changes)
    held.run(900)
    assert (part(held), len(held.changes)) == (right, changes)
    assert held.statuses["a"].load == pytest.approx(hogs, abs=0.05)


@pytest.mark.parametrize(("hogs", "right"), PARTS[1:])
def test_own_work_that_comes_takes_its_part_within_minutes_and_what_goes_gives_it_back(hogs, right):
    held = balanced(cluster(0)).run(60)
    assert part(held) == 0.9
    held.hogs = dict.fromkeys(held.hogs, hogs)
    held.run(600)
    assert part(held) == right
    held.hogs = dict.fromkeys(held.hogs, 0)
    held.run(600)
    assert part(held) >= 0.8, "the last step of table 2.1 may be left: the load differs by less than half a task"


def test_all_nodes_have_the_part_for_their_mean_load():
    held = cluster(0)
    held.hogs["n0"] = 4
    balanced(held).run(60)
    assert part(held) == 0.6


def test_it_needs_no_progress_and_shows_a_rate_only_if_the_rate_alone_is_given():
    held = balanced(cluster(1, pattern="none")).run(120)
    assert (held.statuses["a"].rate, held.statuses["a"].max_rate) == (None, None)
    balanced(held, max_rate=2.0).run(60)
    assert held.statuses["a"].rate == pytest.approx(0.8, abs=0.05)
    assert part(held) == 0.8
    held.writes = False
    held.run(120)
    assert reason(held) == "Balanced"


def test_a_cap_that_is_not_in_force_is_said():
    held = balanced(cluster(1)).run(60)
    held.reports = False
    held.run(600)
    assert (reason(held), part(held)) == ("CapNotInForce", 0.8)


def test_a_new_leader_keeps_the_part_on_record_until_a_node_tells():
    held = balanced(cluster(3)).run(60)
    status = held.statuses["a"]
    record = Record(status.target, status.max_rate, status.utilization, status.period, on_target=True)
    heir = balanced(Held(held.ranks, now=held.now), limits=rate().limits)
    heir.inbox[0] = replace(heir.inbox[0], record=record)
    heir.run(8)
    assert (part(heir), reason(heir)) == (0.4, "Balanced")
    heir.hogs = {"n0": 10, "n1": 10}
    heir.run(30)
    assert (part(heir), reason(heir)) == (0.1, "Balanced")


def test_a_larger_part_that_finds_no_place_is_refused_as_an_edit_and_tried_again():
    held = balanced(cluster(0, request=0.5)).run(60)
    assert part(held) == LEAST
    assert held.statuses["a"].admitted[:2] == ("True", "EditRefused")
    assert "10% stays in force" in held.statuses["a"].admitted.message
    held.ranks["a"].pods = [pod._replace(request=0.95) for pod in held.ranks["a"].pods]
    held.inbox.append(MembersSeen("a", tuple(held.ranks["a"].pods)))
    held.run(2)
    assert (part(held), held.statuses["a"].admitted.reason) == (0.9, "Feasible")


def test_one_that_is_created_beside_full_nodes_asks_for_the_least_part_first():
    held = Held({"a": Ranks("a", request=1.0), "b": Ranks("b", request=0.2)}, hogs={"n0": 0, "n1": 0})
    balanced(held).run(60)
    held.ask("b", LEAST, balanced=True).run(10)
    assert (held.holds["b-0"].cap, held.statuses["b"].admitted.reason) == (pytest.approx(LEAST), "EditRefused")


def test_an_edit_to_balanced_keeps_the_target_until_a_node_tells_and_one_back_is_held_by_the_law():
    held = cluster(0)
    held.hogs = {}
    held.ask("a", 0.4, max_rate=2.0).run(60)
    balanced(held, max_rate=2.0).run(20)
    assert (part(held), reason(held)) == (0.4, "Settling")
    held.hogs = {"n0": 1, "n1": 1}
    held.run(20)
    assert part(held) == 0.8
    held.ask("a", 0.4, max_rate=2.0).run(60)
    assert reason(held) == "OnTarget"
    assert held.statuses["a"].load is None
    held.hogs, held.loads = {}, {}
    balanced(held, max_rate=2.0).run(2)
    assert (part(held), reason(held)) == (0.8, "Balanced"), "the load is known"


def test_aligned_slices_are_balanced_too():
    held = balanced(cluster(3), aligned=True).run(60)
    hold = held.holds["a-0"]
    assert (part(held), hold.period, hold.grid.slice) == (0.4, 0.1, pytest.approx(0.04))
    assert held.statuses["a"].aligned.reason == "Aligned"
    held.hogs = {"n0": 0, "n1": 0}
    held.run(600)
    hold = held.holds["a-0"]
    assert hold.grid.slice == pytest.approx(hold.cap * hold.period)
    assert (part(held) >= 0.8, hold.period) == (True, 0.05), "no slice is longer than 50 ms"
    assert reason(held) == "Balanced"


@pytest.mark.parametrize(("cpu", "reason"), [(0.009, "InvalidSpec"), (0.01, "Feasible")])
def test_its_pods_must_have_cpu_for_the_least_part(cpu, reason):
    held = cluster(0, request=cpu)
    held.ranks["a"].pods = [pod._replace(cpu=cpu) for pod in held.ranks["a"].pods]
    balanced(held).run(30)
    assert held.statuses["a"].admitted.reason == reason


def test_a_part_is_asked_only_of_one_that_is_held():
    app = Application(rate(balanced=True))
    app.ask(rate(balanced=True))
    assert not app.weigh(0.0)
    assert app.rate.target == LEAST
