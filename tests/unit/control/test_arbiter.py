"""Caps of one node's chunks: never more than the node has, the most urgent first, loops switched with patience."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.control.arbiter import GIVEN, TAKEN, Arbiter, CpuClaim


def claim(name, wish, *, modelled=None, slack=100.0, low=0.0, high=1.0, starved=False):
    return CpuClaim(
        id=name, wish=wish, modelled=wish if modelled is None else modelled, low=low, high=high, slack=slack,
        starved=starved,
    )  # fmt: skip


@st.composite
def claims(draw):
    """Claims with least caps that fit two cores."""
    names = draw(st.integers(0, 12))
    found = []
    for n in range(names):
        low = draw(st.floats(0.0, 2.0 / 12.0))
        high = low + draw(st.floats(0.0, 2.0))
        wish, modelled = draw(st.floats(0.0, 4.0)), draw(st.floats(0.0, 4.0))
        slack = draw(st.floats(-1e6, 1e6))
        starved = draw(st.booleans())
        found.append(claim(f"c{n}", wish, modelled=modelled, slack=slack, low=low, high=high, starved=starved))
    return found


@given(st.lists(claims(), min_size=1, max_size=12), st.booleans(), st.floats(0.0, 0.5))
@settings(max_examples=200, deadline=None)
def test_caps_fit_the_node_and_their_ranges_whatever_is_wished(ticks, lend, headroom):
    arbiter = Arbiter(2.0, 2.0 * (1.0 - headroom))
    for each in ticks:
        caps = arbiter.share(each, lend=lend)
        assert caps.keys() == {one.id for one in each}
        assert sum(caps.values()) <= 2.0 + 1e-9
        for one in each:
            assert one.low - 1e-12 <= caps[one.id] <= one.high + 1e-9


@given(claims())
@settings(max_examples=100, deadline=None)
def test_cpu_is_not_kept_back_while_a_wish_is_cut(each):
    each = [replace(one, starved=False) for one in each]
    caps = Arbiter(2.0, 1.75).share(each)
    wishes = {one.id: min(max(one.wish, one.low), one.high) for one in each}
    if any(caps[name] < wishes[name] - 1e-9 for name in caps):
        assert sum(caps.values()) == pytest.approx(2.0)


def test_wishes_that_fit_are_given_and_the_headroom_is_used_first():
    caps = Arbiter(2.0, 1.5).share([claim("a", 0.9), claim("b", 0.9)])
    assert caps == {"a": 0.9, "b": 0.9}


def test_the_least_slack_gets_its_wish_and_others_share_what_is_left():
    each = [claim("late", 1.0, slack=-5.0), claim("calm", 1.0, slack=500.0), claim("tight", 1.0, slack=5.0)]
    assert Arbiter(2.0, 1.75).share(each) == {"tight": 1.0, "calm": 1.0, "late": 0.0}
    assert Arbiter(1.5, 1.25).share(each) == {"tight": 1.0, "calm": 0.5, "late": 0.0}


def test_least_caps_are_kept_while_wishes_are_cut():
    each = [claim("a", 1.0, slack=1.0), claim("b", 1.0, slack=9.0, low=0.4)]
    assert Arbiter(1.0, 0.9).share(each) == {"a": pytest.approx(0.6), "b": 0.4}


def test_what_no_wish_takes_is_lent_to_those_that_can_use_it():
    each = [claim("waits", 0.2, slack=1.0, starved=True), claim("a", 0.2, slack=9.0), claim("b", 0.2, slack=5.0)]
    assert Arbiter(2.0, 1.5).share(each) == {"waits": 0.2, "a": 0.2, "b": 0.2}
    caps = Arbiter(2.0, 1.5).share(each, lend=True)
    assert caps == {"b": 1.0, "a": pytest.approx(0.8), "waits": 0.2}


def test_chunks_with_time_leave_the_disk_to_one_that_has_none_and_get_it_back():
    arbiter = Arbiter(8.0, 7.0)
    pressed, cpu = claim("pressed", 1.0, slack=1.0, starved=True), claim("cpu", 0.2)
    calm, busy = claim("calm", 0.2, slack=900.0, starved=True), claim("busy", 0.8, slack=100.0, starved=True)
    for _ in range(20):
        caps = arbiter.share([pressed, calm, busy, cpu])
    assert caps == {"pressed": 1.0, "cpu": 0.2, "calm": pytest.approx(0.2 * 0.2), "busy": pytest.approx(0.8 * 0.8)}
    assert arbiter.share([pressed, calm, busy, cpu], lend=True)["calm"] == caps["calm"]
    assert arbiter.share([pressed, calm, busy, cpu], lend=True)["cpu"] == 1.0
    first = arbiter.share([calm, busy, cpu])
    assert caps["calm"] < first["calm"] < 0.2
    for _ in range(20):
        caps = arbiter.share([calm, busy, cpu])
    assert caps == {"cpu": 0.2, "calm": 0.2, "busy": 0.8}


def test_who_waited_for_a_disk_is_lent_nothing_for_a_while_after_its_last_wait_if_another_one_is_pressed():
    """Without loans no chunk waits; with them all would wait again, the pressed one included."""
    arbiter = Arbiter(8.0, 7.0)
    pressed, calm, cpu = claim("pressed", 1.0, slack=1.0), claim("calm", 0.2), claim("cpu", 0.2)
    waiting = [replace(pressed, starved=True), replace(calm, starved=True), cpu]
    assert arbiter.share(waiting, lend=True)["calm"] < 0.2
    for _ in range(GIVEN - 1):
        caps = arbiter.share([pressed, calm, cpu], lend=True)
        assert (caps["calm"], caps["cpu"]) == (0.2, 1.0)
    for _ in range(20):
        caps = arbiter.share([pressed, calm, cpu], lend=True)
    assert caps == {"pressed": 1.0, "calm": 1.0, "cpu": 1.0}


def test_loops_open_one_after_the_other_those_that_wait_for_a_disk_first_and_then_by_slack():
    arbiter = Arbiter(2.0, 1.75)
    each = [
        claim("disk", 1.0, modelled=0.5, slack=1.0, starved=True),
        claim("calm", 1.0, modelled=0.5, slack=900.0),
        claim("tight", 1.0, modelled=0.5, slack=9.0),
        claim("open", 0.5, modelled=0.9, slack=9999.0),
    ]
    for _ in range(TAKEN - 1):
        arbiter.share(each)
        assert arbiter.opened == []
    arbiter.share(each)
    assert arbiter.opened == ["disk"]
    for _ in range(TAKEN):
        caps = arbiter.share(each)
    assert arbiter.opened == ["disk", "calm"]
    for _ in range(TAKEN):
        caps = arbiter.share(each)
    assert arbiter.opened == ["disk", "calm"]
    assert caps["tight"] == 1.0, "the least slack keeps its loop closed"


def test_one_tick_of_overload_opens_nothing_and_one_of_room_closes_nothing():
    arbiter = Arbiter(1.0, 0.9)
    full = [claim("a", 1.0, modelled=0.2, slack=200.0), claim("b", 0.5)]
    calm = [claim("a", 0.2), claim("b", 0.5)]
    for _ in range(10):
        arbiter.share(full)
        arbiter.share(full)
        arbiter.share(calm)
    assert arbiter.opened == []
    for _ in range(TAKEN):
        arbiter.share(full)
    assert arbiter.opened == ["a"]
    for _ in range(GIVEN - 1):
        arbiter.share(calm)
    assert arbiter.opened == ["a"]
    arbiter.share(calm)
    assert arbiter.opened == []


def test_a_chunk_that_is_gone_is_forgotten():
    arbiter = Arbiter(1.0, 0.9)
    for _ in range(TAKEN):
        arbiter.share([claim("a", 1.0, modelled=0.2), claim("b", 0.5)])
    arbiter.share([claim("b", 0.5)])
    assert arbiter.opened == []


def test_a_node_without_chunks():
    assert Arbiter(8.0, 7.0).share([], lend=True) == {}


def test_the_most_urgent_chunk_keeps_its_loop_closed_however_long_the_node_is_full():
    arbiter = Arbiter(2.0, 2.0)
    urgent = CpuClaim(id="urgent", wish=1.4, modelled=1.0, high=2.0, slack=0.0)
    other = CpuClaim(id="other", wish=0.9, modelled=0.9, slack=50.0)
    for _ in range(20):
        caps = arbiter.share([urgent, other])
        assert caps == pytest.approx({"urgent": 1.4, "other": 0.6})
    assert not arbiter.opened


def test_a_chunk_that_takes_longer_leaves_others_what_they_must_have():
    slow = CpuClaim(id="slow", wish=4.0, modelled=1.0, high=4.0, must=1.0, slack=-5.0)
    late = replace(slow, id="late", slack=1.0)
    others = [CpuClaim(id=f"c{n}", wish=0.9, modelled=0.9, must=0.875, slack=50.0) for n in range(2)]
    caps = Arbiter(4.0, 4.0).share([slow, late, *others])
    assert [caps[one.id] for one in others] == [0.875, 0.875]
    assert caps["late"] == pytest.approx(1.25), "and of what is left, the urgent one gets its wish first"
    assert caps["slow"] == pytest.approx(1.0)
