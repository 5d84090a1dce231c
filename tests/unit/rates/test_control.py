"""Stories of applications under a RateControl, with the ranks, slots and switches of the simulator."""

from dataclasses import replace

import pytest
from held import Held, Ranks

from punctual.rates.model import MembersSeen, Record

ALONE = 0.5
"""Seconds of an iteration alone."""


def cluster(*names, **more):
    return Held({name: Ranks(name, alone=ALONE, **more) for name in names or ("a",)})


def reason(held, uid="a"):
    status = held.statuses[uid]
    return (status.on_target or status.admitted)[1]


@pytest.mark.parametrize("target", [0.4, 0.2, 0.1])
def test_an_application_is_held_at_its_rate(target):
    held = cluster(request=1.0).ask("a", target, max_rate=1 / ALONE)
    held.run(60)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 100) * ALONE == pytest.approx(target, abs=0.03)
    pair = held.holds["a-0"]
    assert abs(pair.cap - target) <= 0.03
    assert held.holds["a-1"] == replace(pair, pod="a-1", node="n1"), "one pair for all pods"


def test_a_changed_target_is_reached_within_three_iterations_and_held():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    held.ask("a", 0.2, max_rate=1 / ALONE).run(15)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 60) * ALONE == pytest.approx(0.2, abs=0.03)
    before = len(held.changes)
    held.ask("a", 0.4, max_rate=1 / ALONE).run(15)
    assert reason(held) == "OnTarget"
    assert len(held.changes) == before + 2, "the pair that held 40 % is known: one change for each pod"


def test_two_applications_are_held_at_once():
    held = cluster("a", "b")
    held.ask("a", 0.3, max_rate=1 / ALONE).ask("b", 0.4, max_rate=1 / ALONE).run(80)
    assert (reason(held, "a"), reason(held, "b")) == ("OnTarget", "OnTarget")
    begin = dict(zip("ab", (min(held.ranks[n].counts) for n in "ab"), strict=True))
    held.run(100)
    rates = [(min(held.ranks[n].counts) - begin[n]) * ALONE / 100 for n in "ab"]
    assert rates == pytest.approx([0.3, 0.4], abs=0.03)


def test_a_slow_program_is_held_by_single_iterations():
    held = Held({"a": Ranks("a", alone=6.0)}).ask("a", 0.4, max_rate=1 / 6.0).run(120)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 300) * 6.0 == pytest.approx(0.4, abs=0.03)


def test_without_a_rate_alone_it_is_measured_first_with_all_cpu():
    held = cluster().ask("a", 0.4).run(5)
    assert reason(held) == "Measuring"
    assert held.holds["a-0"].cap == 1.0
    held.run(60)
    assert held.statuses["a"].max_rate == pytest.approx(1 / ALONE, rel=0.02)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 60) * ALONE == pytest.approx(0.4, abs=0.03)


def test_a_new_leader_goes_on_with_the_pair_that_is_in_force():
    held = cluster().ask("a", 0.4).run(60)
    status, pair = held.statuses["a"], held.holds["a-0"]
    utilization, period = round(status.utilization, 8), round(status.period, 6)
    record = Record(status.target, status.max_rate, utilization, period, status.rate, on_target=True)
    heir = held.elsewhere(record, "a").run(1)
    assert reason(heir) == "OnTarget", "nothing says otherwise"
    heir.run(60)
    assert heir.holds["a-0"].cap == pytest.approx(pair.cap, abs=1e-6)
    assert heir.holds["a-0"].period == pytest.approx(pair.period, abs=1e-5)
    assert len(heir.changes) == 2, "both pods are named once, and stay as they were"
    assert reason(heir) == "OnTarget"


def test_a_count_that_goes_back_is_said_and_counted_from_there():
    held = cluster(pattern="none").ask("a", 0.4, max_rate=1 / ALONE).run(60)
    pair = held.holds["a-0"]
    held.ranks["a"].restart(0)
    held.run(2)
    assert reason(held) == "CountFell"
    held.run(20)
    assert reason(held) == "OnTarget"
    assert held.holds["a-0"] == pair


def test_pods_that_stop_are_stalled_and_keep_their_cap():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    pair = held.holds["a-0"]
    held.ranks["a"].stopped = True
    held.run(40)
    assert reason(held) == "OnTarget"
    held.run(40)
    assert reason(held) == "Stalled"
    assert held.holds["a-0"] == pair


def test_pods_that_never_write_are_held_by_their_cpu():
    held = cluster()
    held.writes = False
    held.ask("a", 0.4).run(50)
    assert held.holds["a-0"].cap == 1.0, "it may still begin"
    held.run(50)
    assert reason(held) == "NoProgress"
    assert held.holds["a-0"].cap == pytest.approx(0.4)


def test_a_silent_agent_is_named_and_changes_nothing():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    pair = held.holds["a-0"]
    held.reports = False
    held.run(600)
    assert held.statuses["a"].on_target[1] == "CapNotInForce"
    assert "the agent of node n0" in held.statuses["a"].on_target[2]
    held.reports = True
    held.run(30)
    assert held.holds["a-0"] == pair
    assert reason(held) == "OnTarget"


def test_the_others_are_controlled_while_one_agent_is_silent():
    held = cluster(pattern="none").ask("a", 0.4, max_rate=1 / ALONE).run(60)
    held.silent = {"n0"}
    held.run(20).ask("a", 0.2, max_rate=1 / ALONE).run(30)
    assert reason(held) == "CapNotInForce"
    assert "the agent of node n0" in held.statuses["a"].on_target[2]
    assert held.statuses["a"].rate == pytest.approx(0.2, abs=0.03)


def test_a_replaced_pod_gets_the_same_pair_and_the_rate_stays():
    held = cluster(pattern="none").ask("a", 0.4, max_rate=1 / ALONE).run(60)
    pair, ranks = held.holds["a-0"], held.ranks["a"]
    ranks.pods[0] = ranks.pods[0]._replace(pod="new", name="default/new")
    ranks.restart(0)
    held.inbox.append(MembersSeen("a", tuple(ranks.pods)))
    held.run(1)
    assert set(held.holds) == {"new", "a-1"}
    assert held.holds["new"] == replace(pair, pod="new")
    held.run(30)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 60) * ALONE == pytest.approx(0.4, abs=0.03)


def test_a_deleted_rate_releases_its_pods():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(30)
    held.delete("a")
    held.run(2)
    assert held.holds == {}
    assert held.rate_of("a", 50) * ALONE == pytest.approx(1.0, abs=0.05)


def test_statuses_are_written_when_more_than_numbers_changes_and_else_seldom():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    held.statuses.clear()
    written = 0
    for _ in range(120):
        held.run(1)
        written += bool(held.statuses)
        held.statuses.clear()
    assert written <= 6
