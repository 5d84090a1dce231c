"""Slots of aligned applications: where they begin, and that no node ever lacks cores for their slices."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.rates.slots import PERIODS, Slot, Slots, allowed


def placed(nodes, *asked, kept=None):
    """Place applications a, b, … of (period ms, share, nodes) in turn; return the slots and the last answer."""
    slots, ceilings = Slots(nodes), {}
    answer = None
    for name, (period, share, *there) in zip("abcdef", asked, strict=False):
        ceilings[name] = share
        slot = Slot(round(1000 * period), dict.fromkeys(there or nodes, 1.0), share, share)
        answer = slots.place(name, slot, kept=kept, ceilings=ceilings)
    return slots, answer


def offsets(*asked, nodes):
    """Return the offsets in ms."""
    return {name: slot.offset / 1000 for name, slot in placed(nodes, *asked)[0].placed.items()}


TABLE = {
    "enough cores: all at once": ({"n": 2.0}, [(100, 0.4), (100, 0.4)], {"a": 0, "b": 0}),
    "one core: one after the other": ({"n": 1.0}, [(100, 0.4), (100, 0.4)], {"a": 0, "b": 40}),
    "a full node": ({"n": 1.0}, [(100, 0.5), (100, 0.5)], {"a": 0, "b": 50}),
    "no place for the third": ({"n": 1.0}, [(100, 0.4), (100, 0.4), (100, 0.3)], {"a": 0, "b": 40}),
    "the third finds the gap": ({"n": 1.0}, [(100, 0.4), (100, 0.4), (100, 0.2)], {"a": 0, "b": 40, "c": 80}),
    "half a period: between two slices": ({"n": 1.0}, [(50, 0.4), (100, 0.1)], {"a": 0, "b": 20}),
    "half a period: behind a slice, twice": ({"n": 1.0}, [(100, 0.2), (50, 0.6)], {"a": 0, "b": 20}),
    "half a period: no gap is wide enough": ({"n": 1.0}, [(50, 0.6), (100, 0.3)], {"a": 0}),
    "they share no node": ({"n": 1.0, "m": 1.0}, [(100, 0.6, "n"), (100, 0.6, "m")], {"a": 0, "b": 0}),
    "one of its nodes is taken": ({"n": 1.0, "m": 1.0}, [(100, 0.3, "n"), (100, 0.6, "n", "m")], {"a": 0, "b": 30}),
    "each node is taken at another time": (
        {"n": 1.0, "m": 1.0},
        [(100, 0.3, "n"), (100, 0.3, "n", "m"), (100, 0.3, "m")],
        {"a": 0, "b": 30, "c": 0},
    ),
    "two cores: the third waits for one": ({"n": 2.0}, [(100, 0.3), (100, 0.5), (100, 0.6)], {"a": 0, "b": 0, "c": 30}),
    "nothing is known of the node": ({}, [(100, 0.9, "n"), (100, 0.9, "n")], {"a": 0, "b": 0}),
}


@pytest.mark.parametrize(("nodes", "asked", "expected"), TABLE.values(), ids=TABLE)
def test_offsets(nodes, asked, expected):
    assert offsets(*asked, nodes=nodes) == expected


def test_a_refusal_names_node_moment_and_the_other_one():
    _, clash = placed({"n": 1.0, "m": 1.0}, (100, 0.4, "m"), (100, 0.7, "n"), (100, 0.5, "m", "n"))
    assert clash == ("m", 0, "a")


def test_a_slot_leaves_place_for_what_the_law_may_use_if_there_is_any():
    def wide(*widest):
        slots = Slots({"n": 1.0})
        ceilings = dict(zip("ab", widest, strict=True))
        for name, most in ceilings.items():
            assert slots.place(name, Slot(100_000, {"n": 1.0}, 0.4, most), kept=None, ceilings=ceilings) is None
        return slots.placed["b"].offset, slots.shares(ceilings)

    assert wide(0.43, 0.42) == (43_000, {"a": 0.43, "b": 0.42})
    assert wide(0.7, 0.7) == (40_000, {"a": 0.4, "b": 0.6}), "the first one cannot grow beyond the second"


def test_what_has_a_slot_keeps_it_while_its_least_slice_fits():
    slots = Slots({"n": 1.0})
    slot, ceilings = Slot(100_000, {"n": 1.0}, 0.4, 0.5), {"a": 0.5, "b": 0.5}
    assert slots.place("a", slot, kept=0, ceilings=ceilings) is None
    assert slots.place("b", slot, kept=40_000, ceilings=ceilings) is None
    assert slots.placed["b"].offset == 40_000
    assert slots.place("b", slot, kept=39_999, ceilings=ceilings) is None
    assert slots.placed["b"].offset == 50_000, "it meets the other one there, and moves"


def test_periods_nest_and_are_whole_microseconds():
    assert all(isinstance(p, int) for p in PERIODS)
    assert all(longer == 2 * shorter for shorter, longer in pairwise(PERIODS))
    assert allowed(0.005, 0.2) == [6250, 12500, 25000, 50000, 100000, 200000]
    assert allowed(0.06, 0.09) == []


APPLICATION = st.tuples(
    st.sampled_from(PERIODS),
    st.floats(0.01, 1.0),
    st.floats(0.0, 0.3),
    st.dictionaries(st.sampled_from("nmk"), st.floats(0.1, 2.0), min_size=1),
    st.none() | st.integers(0, 900_000),
    st.floats(0.05, 1.0),
)
NODES = st.fixed_dictionaries({"n": st.floats(0.5, 4.0), "m": st.floats(0.5, 4.0)})


def fill(nodes, applications):
    """Place all; return the slots, and the shares that each may use."""
    slots, ceilings = Slots(nodes), {}
    for name, (period, least, more, cpus, kept, run) in zip("abcdefgh", applications, strict=False):
        before = dict(slots.placed)
        cores = {node: min(cpu, nodes.get(node, cpu)) for node, cpu in cpus.items()}
        ceilings[name] = min(least + more, 1.0)
        clash = slots.place(name, Slot(period, cores, least, ceilings[name], run), kept=kept, ceilings=ceilings)
        assert (clash is None) == (name in slots.placed)
        assert {other: slot for other, slot in slots.placed.items() if other != name} == before, "none moves"
        if clash:
            assert clash.other in before
            assert clash.node in cores
    return slots, slots.shares(ceilings)


@given(NODES, st.lists(APPLICATION, max_size=8))
def test_at_no_moment_a_node_lacks_cores(nodes, applications):
    slots, shares = fill(nodes, applications)
    slices = {name: slot.length(shares[name]) for name, slot in slots.placed.items()}
    for name, slot in slots.placed.items():
        assert slices[name] >= slot.length(slot.least)
    begins = {begin for slot in slots.placed.values() for begin in range(slot.offset, max(PERIODS), slot.period)}
    for at in begins:
        for node, has in nodes.items():
            used = sum(
                slot.cores[node]
                for name, slot in slots.placed.items()
                if node in slot.cores and (at - slot.offset) % slot.period < slices[name]
            )
            assert used <= has + 1e-5


@given(NODES, st.lists(APPLICATION, max_size=8))
def test_the_same_applications_get_the_same_slots(nodes, applications):
    again = dict(reversed(nodes.items()))
    assert fill(nodes, applications) == fill(again, applications) or nodes != again


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.sampled_from(PERIODS), st.sampled_from(PERIODS))
def test_the_first_offset_is_the_earliest_at_which_it_fits(one, two, period, other):
    """Of two applications on one core: no earlier microsecond would do."""
    slots, clash = placed({"n": 1.0}, (period / 1000, one), (other / 1000, two))
    span, mine = max(period, other), Slot(other, {}, two, two).length(two)
    theirs = Slot(period, {}, one, one).length(one)

    def fits(offset):
        return all(
            (begin - offset) % other >= mine and (offset + k - begin) % period >= theirs
            for begin in range(0, span, period)
            for k in range(0, span, other)
        )

    if clash:
        assert not any(fits(offset) for offset in range(0, other, 997))
    else:
        found = slots.placed["b"].offset
        assert fits(found)
        assert found == 0 or not fits(found - 1)
