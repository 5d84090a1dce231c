"""The memory that guests may have, and when they must leave for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.linger.guest_cap import GuestClaim, share
from punctual.linger.memory_mark import HOLD, MARGIN, PATIENCE, RISE, STEP, TIGHT, MemoryMark

TOTAL = 1000
ALL = TOTAL * (1.0 - MARGIN)


def seconds(one, hosts, held=0):
    """A second for each of these uses by hosts, while guests hold this much. Returns the marks."""
    return [one.see(1.0, TOTAL, TOTAL - need - held, held) for need in hosts]


@pytest.mark.parametrize(
    ("hosts", "held", "mark"),
    [(0, 0, ALL), (0, 500, ALL), (300, 0, ALL - 300), (300, 500, ALL - 300), (900, 50, 0.0), (1000, 0, 0.0)],
)
def test_guests_may_have_what_hosts_leave_less_a_margin_whatever_they_hold_already(hosts, held, mark):
    assert seconds(MemoryMark(), [hosts], held) == [pytest.approx(mark)]


def test_it_falls_at_once_and_rises_slowly_after_a_pause():
    one = MemoryMark()
    low = ALL - 600
    assert seconds(one, [100, 600]) == [pytest.approx(ALL - 100), pytest.approx(low)]
    rise = seconds(one, [100] * 40)
    pause = round(HOLD) - 1
    assert rise[:pause] == [pytest.approx(low)] * pause
    assert rise[pause:] == [pytest.approx(min(low + RISE * TOTAL * n, ALL - 100)) for n in range(1, 41 - pause)]


def test_hosts_that_grow_and_shrink_each_second_keep_it_low():
    one = MemoryMark()
    assert set(seconds(one, [100, 600, 100] + [100, 600] * 30)[1:]) == {ALL - 600}


def test_small_changes_move_nothing():
    one = MemoryMark()
    small = STEP * TOTAL / 2
    assert set(seconds(one, [100, 100 + small, 100 - small] * 20)) == {ALL - 100}


def test_guests_leave_when_memory_has_been_tight_for_seconds_as_much_as_the_margin_needs():
    one, patience = MemoryMark(), round(PATIENCE)
    hosts = TOTAL * (1 - TIGHT) - 399  # 49 are available where 50 would do
    seconds(one, [hosts] * (patience - 1), held=400)
    assert one.excess == 0
    seconds(one, [hosts], held=400)
    assert one.excess == MARGIN * TOTAL - (TIGHT * TOTAL - 1)
    seconds(one, [hosts], held=0)
    assert one.excess == 0, "they have left"


@pytest.mark.parametrize("hosts", [[560, 300] * 20, [549] * 40])
def test_guests_stay_while_memory_is_tight_for_moments_or_only_the_margin_is_used(hosts):
    one = MemoryMark()
    for need in hosts:
        seconds(one, [need], held=400)
        assert one.excess == 0


def test_guests_never_have_to_give_back_more_than_they_hold():
    one = MemoryMark()
    seconds(one, [990] * 5, held=10)
    assert one.excess == 10
    seconds(one, [1000] * 5, held=0)
    assert one.excess == 0


@pytest.mark.parametrize(
    ("most", "guests", "parts"),
    [
        (900, {"a": GuestClaim(1.0, 100), "b": GuestClaim(3.0, 200)}, {"a": 250, "b": 650}),
        (200, {"a": GuestClaim(1.0, 100), "b": GuestClaim(3.0, 200)}, {"a": 100, "b": 200}),
        (900, {"a": GuestClaim(1.0, 100), "b": GuestClaim(0.0, 200)}, {"a": 700, "b": 200}),
        (900, {"a": GuestClaim(0.0, 100), "b": GuestClaim(0.0, 200)}, {"a": 100, "b": 200}),
        (900, {}, {}),
    ],
)
def test_a_guest_keeps_what_it_holds_and_one_that_is_paused_has_no_more(most, guests, parts):
    assert share(most, guests) == pytest.approx(parts)


LOOKS = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.integers(1, 1 << 50), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=30
)


@given(LOOKS)
@settings(max_examples=200, deadline=None)
def test_whatever_is_seen_the_mark_fits_the_node_and_the_excess_what_is_held(looks):
    one = MemoryMark()
    for past, total, part, rest in looks:
        held = int(total * part)
        available = int((total - held) * rest)
        before = one.mark
        mark = one.see(past, total, available, held)
        left = max(0.0, available + held - MARGIN * total)
        assert 0.0 <= mark <= max(left + STEP * total, 0.0)
        assert mark <= left or mark == before, "above what is left only as noise"
        assert 0 <= one.excess <= held
        assert one.excess == 0 or available < TIGHT * total
