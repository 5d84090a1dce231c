"""The memory rule of aligned applications: how long their pods stay at the floor, and stories of what happens there."""

from dataclasses import replace

import pytest
from held import Held, Ranks, member

from punctual.control.rate import QUOTA
from punctual.rates.model import MembersSeen, MemorySeen, PhaseSeen, Record
from punctual.rates.paging import AGAIN, FIRST, MOST, TRIAL, BackOff

ALONE = 0.5
"""Seconds of an iteration alone."""
MIB = 1 << 20
PAGES = MemorySeen(47 * MIB, 48 * MIB, "pod")
FLOOR = QUOTA / 0.1


# the back-off


def downs(reports, until=600):
    """Return (begin, seconds) of the times at the floor when a pod is short at these seconds."""
    one, found = BackOff(), []
    for now in range(until):
        if now in reports and one.report(float(now), member(), PAGES):
            found.append((now, one.until - now))
        if one.is_over(float(now)):
            one.come_back(float(now))
    return found


LONG = round(FIRST + AGAIN)
BACKOFF = {
    "once": ([0], [(0, 10)]),
    "reports at the floor": (range(10), [(0, 10)]),
    "of the floor, just after": (range(10 + round(TRIAL)), [(0, 10)]),
    "again": ([0, 20], [(0, 10), (20, 20)]),
    "again as late as counts": ([0, LONG], [(0, 10), (LONG, 20)]),
    "long after": ([0, LONG + 1], [(0, 10), (LONG + 1, 10)]),
    "for ever": (range(600), [(0, 10), (15, 20), (40, 40), (85, 60), (150, 60), (215, 60), (280, 60), (345, 60),
                              (410, 60), (475, 60), (540, 60)]),
    "for ever, with a break": ([*range(86), *range(300, 330)], [(0, 10), (15, 20), (40, 40), (85, 60), (300, 10),
                                                                (315, 20)]),
}  # fmt: skip


@pytest.mark.parametrize(("reports", "found"), BACKOFF.values(), ids=BACKOFF)
def test_they_stay_twice_as_long_each_time_that_it_happens_again_and_a_minute_at_most(reports, found):
    assert downs(set(reports)) == found
    assert max(seconds for _, seconds in found) <= MOST


TEXTS = {
    "it pages": (PAGES, "pod default/p0 on node n0 pages: it uses 47 MiB of 48 MiB; ", "raise its memory limit"),
    "without a limit": (MemorySeen(1500, None, "pod"), "it uses 1.46 KiB; ", "less data"),
    "nothing is known": (MemorySeen(0, 48, "pod"), "pages: it runs; ", "raise"),
    "much is said": (MemorySeen(2**63 - 1, 2**63 - 1, "pod"), "uses 8.39e+06 TiB of", "raise"),
    "the node": (MemorySeen(3 << 30, 4 << 30, "node"), "node n0 is short of memory, and pod default/p0 uses 3 GiB",
                 "move other pods off the node"),
    "the node, nothing is known": (MemorySeen(0, None, "node"), "pod default/p0 runs there", "more memory"),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "what", "advice"), TEXTS.values(), ids=TEXTS)
def test_the_message_names_pod_node_and_bytes_and_says_what_to_do(seen, what, advice):
    one = BackOff()
    one.report(0.0, member(), seen)
    assert what in one.why
    assert "all pods have the least CPU for 10 s" in one.why
    assert advice in one.why.rpartition(": ")[2]


# stories


def cluster(**more):
    held = Held({"a": Ranks("a", alone=ALONE, **more)})
    for ranks in held.ranks.values():
        ranks.pods = [pod._replace(cores=1.0) for pod in ranks.pods]
    return held


def ask(held, target=0.4, **more):
    return held.ask("a", target, **{"aligned": True, "max_rate": 1 / ALONE, **more})


def aligned(**more):
    """Return an application that is on target."""
    held = ask(cluster(**more)).run(60)
    assert reasons(held) == ("OnTarget", "Aligned")
    return held


def reasons(held):
    status = held.statuses["a"]
    return tuple(verdict and verdict.reason for verdict in (status.on_target, status.aligned))


def caps(held):
    return {hold.cap for hold in held.holds.values()}


def page(held, pod="a-0", seen=PAGES, seconds=1):
    """Let a pod be short of memory for some seconds."""
    held.short[pod] = seen
    held.run(seconds)
    held.short.pop(pod)
    return held


def seconds_down(held, most=200):
    """Return for how long the pods are at the floor from now on."""
    began = held.now
    while caps(held) == {FLOOR}:
        held.run(1)
        assert held.now - began <= most
    return held.now - began


def test_all_pods_go_down_together_and_come_back_together():
    held = aligned(ranks=3)
    before, phases = dict(held.holds), list(held.ranks["a"].phases)
    utilization, moved = held.statuses["a"].utilization, list(held.ranks["a"].steered)
    held.changes.clear()
    page(held, "a-1")
    assert held.holds == {pod: replace(hold, cap=FLOOR) for pod, hold in before.items()}, "same period, same grid"
    status = held.statuses["a"]
    assert (status.on_target.status, status.on_target.reason) == ("False", "MemoryShort")
    assert "pod default/a-1 on node n1 pages: it uses 47 MiB of 48 MiB" in status.on_target.message
    assert (status.cap, status.utilization, status.rate) == (FLOOR, utilization, None), "the law's pair is kept"
    assert seconds_down(held) == FIRST
    assert held.holds == before
    assert [{at for at, hold in held.changes if (hold.cap == FLOOR) == down} for down in (True, False)] == [
        {held.now - FIRST},
        {held.now},
    ], "in one step each"
    assert reasons(held) == ("Settling", "Aligned")
    held.run(20)
    assert reasons(held) == ("OnTarget", "Aligned")
    assert held.holds == before, "the law has learned nothing from it"
    assert (held.ranks["a"].phases, held.ranks["a"].steered) == (phases, moved)


def test_again_within_a_minute_takes_longer_and_later_it_begins_anew():
    held = aligned()
    found = []
    for _ in range(5):
        found.append(seconds_down(page(held)))
        held.run(30)
    assert found == [10, 20, 40, 60, 60]
    held.run(AGAIN)
    assert seconds_down(page(held)) == FIRST


def test_a_pod_that_pages_for_ever_gets_a_trial_each_minute_and_its_slices_stay_where_they_are():
    held = aligned()
    before = dict(held.holds)
    held.short["a-0"] = PAGES
    held.throttled = 0.0
    down, seen = 0, set()
    for _ in range(600):
        held.run(1)
        down += caps(held) == {FLOOR}
        seen.add(reasons(held))
    assert 500 <= down <= 560
    assert seen == {("MemoryShort", "Aligned"), ("Settling", "Aligned")}, "that slices are not filled is no news"
    held.short.clear()
    held.throttled = 1.0
    held.run(120)
    assert (reasons(held), held.holds) == (("OnTarget", "Aligned"), before)


def test_memory_of_a_node_counts_as_that_of_a_pod():
    held = page(aligned(), "a-1", MemorySeen(MIB, None, "node"))
    assert caps(held) == {FLOOR}
    assert "node n1 is short of memory" in held.statuses["a"].on_target.message


def test_without_alignment_nothing_is_touched():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    before = dict(held.holds)
    assert {hold.watch_memory for hold in before.values()} == {False}
    page(held, seconds=30)
    assert (reasons(held), held.holds) == (("OnTarget", None), before)


def test_an_edit_at_the_floor_is_in_force_afterwards():
    held = page(aligned())
    ask(held, 0.3).run(5)
    assert caps(held) == {FLOOR}
    assert held.statuses["a"].target == 0.3
    assert seconds_down(held) == FIRST - 5
    held.run(40)
    assert reasons(held) == ("OnTarget", "Aligned")
    assert caps(held).pop() == pytest.approx(0.3, abs=0.03)


def test_an_edit_to_another_period_moves_the_floor():
    held = page(aligned())
    ask(held, 0.4, max_slice=0.025).run(2)
    assert {(hold.cap, hold.period) for hold in held.holds.values()} == {(QUOTA / 0.05, 0.05)}
    held.run(60)
    assert reasons(held) == ("OnTarget", "Aligned")


def test_alignment_that_is_turned_off_ends_it():
    held = page(aligned())
    held.ask("a", 0.4, max_rate=1 / ALONE).run(1)
    assert min(caps(held)) > 0.3
    held.run(60)
    assert reasons(held) == ("OnTarget", None)


def select(held):
    held.inbox.append(MembersSeen("a", tuple(held.ranks["a"].pods)))
    return held.run(1)


def test_a_pod_that_comes_meanwhile_waits_with_the_others():
    held = page(aligned(pattern="none"))
    held.ranks["a"].replace(1, "new")
    select(held)
    assert held.holds["new"].cap == FLOOR
    assert seconds_down(held) == FIRST - 1
    assert len(caps(held)) == 1
    held.run(60)
    assert reasons(held) == ("OnTarget", "Aligned")


def test_they_come_back_when_the_pod_that_was_short_is_gone():
    held = page(aligned(pattern="none"))
    held.ranks["a"].replace(0, "new")
    select(held)
    assert min(caps(held)) > 0.3
    assert seconds_down(page(held.run(10), "new")) == 20, "it was no reason to begin anew"


def test_an_application_that_is_released_or_refused_at_the_floor_is_let_go():
    held = page(aligned())
    held.delete("a")
    held.run(1)
    assert not held.holds
    held = page(aligned())
    ask(held, refusal=("PoolNotFound", "gone")).run(1)
    assert not held.holds
    ask(held).run(1)
    assert min(caps(held)) > 0.3, "it begins anew"
    held.run(60)
    assert reasons(held) == ("OnTarget", "Aligned")


def test_while_the_rate_alone_is_measured_the_rule_holds_and_the_measurement_begins_anew():
    held = ask(cluster(), max_rate=None).run(5)
    assert (reasons(held), caps(held)) == (("Measuring", None), {1.0})
    page(held)
    assert {(hold.cap, hold.period, hold.grid) for hold in held.holds.values()} == {(QUOTA / 0.2, 0.2, None)}
    assert reasons(held) == ("MemoryShort", None)
    held.run(8)
    assert held.statuses["a"].utilization == 1.0
    held.run(3)
    assert caps(held) == {1.0}
    held.run(60)
    assert held.statuses["a"].max_rate == pytest.approx(1 / ALONE, rel=0.02), "the floor is not in it"
    assert reasons(held) == ("OnTarget", "Aligned")


def test_a_slow_program_counts_whole_iterations_after_the_floor_only():
    """One iteration takes 15 s at the target, longer than a visit to the floor."""
    held = Held({"a": Ranks("a", alone=6.0)})
    held.ranks["a"].pods = [pod._replace(cores=1.0) for pod in held.ranks["a"].pods]
    held.ask("a", 0.4, aligned=True, max_rate=1 / 6.0).run(200)
    assert reasons(held) == ("OnTarget", "Aligned")
    before, rates = dict(held.holds), set()
    page(held)
    for _ in range(120):
        held.run(1)
        rates.add(held.statuses["a"].rate)
    assert held.holds == before
    assert all(abs(rate - 0.4) <= 0.03 for rate in rates - {None}), rates
    assert len(rates) > 1
    assert reasons(held) == ("OnTarget", "Aligned")


def longest(held):
    """Let the pods go down four times, so that they stay for the longest time."""
    for _ in range(3):
        page(held)
        seconds_down(held)
        held.run(6)
    return page(held)


def test_pods_that_stand_still_at_the_floor_are_not_stalled_afterwards():
    held = longest(aligned())
    held.ranks["a"].stopped = True
    assert seconds_down(held) == MOST
    held.ranks["a"].stopped = False
    found = set()
    for _ in range(30):
        held.run(1)
        found.add(reasons(held)[0])
    assert found == {"Settling", "OnTarget"}


def test_what_a_fast_program_does_at_the_floor_counts_for_nothing():
    held = Held({"a": Ranks("a", alone=0.02)})
    held.ranks["a"].pods = [pod._replace(cores=1.0) for pod in held.ranks["a"].pods]
    held.ask("a", 0.4, aligned=True, max_rate=50.0).run(60)
    assert reasons(held) == ("OnTarget", "Aligned")
    before = dict(held.holds)
    longest(held)
    while caps(held) == {FLOOR}:
        assert held.statuses["a"].rate is None
        held.run(1)
    held.run(30)
    assert (reasons(held), held.holds) == (("OnTarget", "Aligned"), before)


def test_a_pod_that_does_not_have_the_floor_is_said():
    held = page(aligned())
    held.run(12)
    page(held, seconds=1)
    held.silent = {"n1"}
    held.run(17)
    assert reasons(held)[0] == "CapNotInForce"
    assert "the agent of node n1 does not report pod default/a-1" in held.statuses["a"].on_target.message


@pytest.mark.parametrize("error", [None, 0.02])
def test_what_is_not_known_of_phases_at_the_floor_turns_no_condition(error):
    """Timers of pods that hardly run stand still, and moves fail."""
    held = longest(aligned())
    ranks = held.ranks["a"]
    steer = ranks.steer
    ranks.steer = lambda *_: None if error is None else PhaseSeen(0.03, 0.001, error, 1.0, 9, 3)
    for _ in range(58):
        held.run(1)
        assert reasons(held) == ("MemoryShort", "Aligned")
    ranks.steer = steer
    held.run(30)
    assert reasons(held) == ("OnTarget", "Aligned")


def test_a_pod_that_is_not_on_the_grid_yet_has_time_for_that_when_it_runs():
    held = longest(aligned(pattern="none"))
    ranks = held.ranks["a"]
    ranks.replace(1, "new")
    steer, ranks.steer = ranks.steer, lambda *_: PhaseSeen(0.03, 0.0001, 0.02, 1.0, 1, 0)
    select(held)
    found = set()
    for _ in range(70):
        held.run(1)
        found.add(reasons(held)[1])
    assert found == {"Steering"}
    ranks.steer = steer
    held.run(30)
    assert reasons(held) == ("OnTarget", "Aligned")


def test_a_new_leader_begins_without_it_and_goes_on_with_the_laws_pair():
    held = aligned()
    before = dict(held.holds)
    page(held)
    s = held.statuses["a"]
    record = Record(s.target, s.max_rate, s.utilization, s.period, s.rate, False, s.offset)
    heir = held.led_anew(clock=17.0).restore("a", record, aligned=True, max_rate=1 / ALONE).run(1)
    assert {pod: (hold.cap, hold.period) for pod, hold in heir.holds.items()} == {
        pod: (hold.cap, hold.period) for pod, hold in before.items()
    }
    page(heir)
    assert caps(heir) == {FLOOR}
    heir.run(60)
    assert reasons(heir) == ("OnTarget", "Aligned")
    assert {pod: hold.cap for pod, hold in heir.holds.items()} == {pod: hold.cap for pod, hold in before.items()}


def test_a_new_leader_finds_the_grid_of_pods_that_are_at_the_floor_from_its_first_report_on():
    held = page(aligned())
    phases = list(held.ranks["a"].phases)
    s = held.statuses["a"]
    record = Record(s.target, s.max_rate, s.utilization, s.period, s.rate, False, s.offset)
    heir = held.led_anew(clock=17.03).restore("a", record, aligned=True, max_rate=1 / ALONE)
    heir.short = {"a-0": PAGES, "a-1": PAGES}
    heir.run(5)
    assert caps(heir) == {FLOOR}
    assert all(hold.grid.begins is not None for hold in heir.holds.values())
    heir.run(55)
    assert reasons(heir) == ("MemoryShort", "Aligned")
    heir.short.clear()
    heir.run(120)
    assert (reasons(heir), heir.ranks["a"].phases) == (("OnTarget", "Aligned"), phases)


def test_pods_that_never_write_are_at_the_floor_too_and_not_measured_once_more():
    held = cluster()
    held.writes = False
    ask(held, max_rate=None).run(100)
    before = dict(held.holds)
    assert reasons(held) == ("NoProgress", "Aligned")
    assert seconds_down(page(held)) == FIRST
    assert held.holds == before
    held.run(30)
    assert (reasons(held), held.holds) == (("NoProgress", "Aligned"), before)
