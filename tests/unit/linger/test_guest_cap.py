"""What guests of a node may use together, and each of them."""

import itertools
import random
from math import inf, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.linger.guest_cap import (
    BOUND,
    FITTING,
    HOLD,
    LARGE,
    MARGIN,
    RISE,
    ROOM,
    STEP,
    GuestCap,
    GuestClaim,
    share,
    want,
)

CORES = 4.0
SPARE = MARGIN * CORES


def node(needs, *, protected=0.8, guests=inf, cores=CORES, seconds=1.0):
    """Hosts that need this much each second, and guests that use their cap, or less. Yields cap, hosts and guests.

    Where both want more than there is, hosts get this part of what is too much: weights protect them that well.
    """
    one = GuestCap(cores)
    for need in needs:
        over = max(0.0, need + min(one.cap, guests) - cores)
        used = min(one.cap, guests) - protected * over
        hosts = min(need, cores - used)
        yield one.see(seconds, hosts, used), hosts, used


def caps(needs, **more):
    return [cap for cap, _, _ in node(needs, **more)]


QUIET = [0.0] * 12


def test_guests_of_a_quiet_node_get_all_but_the_margin_slowly():
    assert caps(QUIET) == pytest.approx([min(RISE * CORES * n, CORES - SPARE) for n in range(1, 13)])


@pytest.mark.parametrize("protected", [1.0, 0.8, 0.5])
def test_a_burst_puts_guests_at_their_floor_at_the_first_look(protected):
    """Weights may protect hosts well or hardly: the first look at a second of it is enough."""
    assert caps([*QUIET, CORES], protected=protected)[-1] == 0.0


@pytest.mark.parametrize("seen", [0.52, 0.6, 0.8, 1.0])
def test_so_does_a_burst_of_which_the_first_look_saw_more_than_half(seen):
    one = GuestCap(CORES)
    for _ in QUIET:
        one.see(1.0, 0.0, one.cap)
    assert one.see(1.0, seen * 0.8 * CORES, (1.0 - seen) * one.cap + seen * 0.2 * CORES) == 0.0


@pytest.mark.parametrize("seen", [0.02, 0.1, 0.3, 0.48])
def test_one_of_which_it_saw_less_does_so_at_the_second_look(seen):
    one = GuestCap(CORES)
    for _ in QUIET:
        one.see(1.0, 0.0, one.cap)
    one.see(1.0, seen * 0.8 * CORES, (1.0 - seen) * one.cap + seen * 0.2 * CORES)
    assert one.see(1.0, 0.8 * CORES, 0.2 * CORES) == 0.0


@pytest.mark.parametrize("steady", [0.3, 1.0, 2.0, 3.5])
def test_hosts_of_constant_use_leave_guests_all_but_the_margin_and_nothing_is_written(steady):
    found = caps([steady] * 40)
    assert found[-1] >= CORES - SPARE - steady - STEP * CORES
    assert len(set(found[15:])) == 1


@pytest.mark.parametrize(("spread", "least"), [(0.01, 0.92), (0.02, 0.9), (0.05, 0.8)])
def test_guests_of_a_noisy_node_get_most_of_what_hosts_leave(spread, least):
    """Hosts that need half of the node, in half a second a little more and in another one a little less."""
    dice = random.Random(1)
    needs = [CORES * min(1.0, max(0.0, dice.gauss(0.5, spread))) for _ in range(2000)]
    found = list(node(needs, seconds=0.5))
    assert sum(guests for _, _, guests in found) >= least * sum(CORES - need for need in needs)
    assert sum(hosts for _, hosts, _ in found) >= 0.995 * sum(needs)


def test_after_a_burst_guests_wait_and_then_rise_slowly():
    found = caps([*QUIET, *([CORES] * 3), *([0.0] * 14)])[14:]
    assert found[: int(HOLD)] == [0.0] * int(HOLD)
    for before, after in itertools.pairwise(found):
        assert after <= before + RISE * CORES + 1e-9
    assert found[-1] == pytest.approx(CORES - SPARE, abs=STEP * CORES)


def test_a_burst_that_leaves_the_margin_counts_for_a_while_too():
    """Guests do not use their cap, so hosts do not press."""
    found = caps([*QUIET, 2.0, *([0.0] * 4)], guests=0.1)[12:]
    assert found[: int(HOLD)] == pytest.approx([CORES - SPARE - 2.0] * int(HOLD))


def test_a_node_that_is_busy_each_other_second_counts_as_busy():
    found = caps([*QUIET, *([CORES, 0.0] * 30)])[12:]
    assert set(found) == {0.0}, "one change in a minute"


@pytest.mark.parametrize("protected", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("before", [0.0, 1.0, 2.5])
def test_hosts_that_weights_hardly_protect_get_the_node_within_a_few_looks(before, protected):
    """Guests use what they may, so hosts show little of what they need."""
    found = caps([*([before] * 15), *([CORES] * 8)], protected=protected)
    assert found[-1] == 0.0
    assert all(after < before or after == 0.0 for before, after in itertools.pairwise(found[15:]))


def test_guests_that_use_more_than_their_cap_are_no_sign_that_hosts_need_more():
    one = GuestCap(CORES)
    for _ in range(12):
        one.see(1.0, 1.0, one.cap)
    before = one.cap
    for _ in range(5):
        assert one.see(1.0, 1.0, CORES - 1.0) == before


NEEDS = st.lists(st.floats(0.0, 1.5 * CORES), min_size=1, max_size=120)


@given(NEEDS, st.floats(0.0, 1.0), st.floats(0.0, 2 * CORES), st.sampled_from([0.2, 0.5, 1.0, 2.0, 30.0]))
@settings(max_examples=300, deadline=None)
def test_whatever_hosts_do_the_cap_leaves_them_what_they_use_but_for_noise_and_rises_slowly(
    needs, protected, guests, seconds
):
    before = 0.0
    for cap, hosts, _ in node(needs, protected=protected, guests=guests, seconds=seconds):
        assert 0.0 <= cap <= max(0.0, CORES - SPARE - hosts + LARGE * CORES) + STEP * CORES + 1e-9
        assert cap <= before + RISE * CORES * seconds + 1e-9
        assert cap in {before, 0.0} or abs(cap - before) > STEP * CORES - 1e-9 or seconds < 0.5
        before = cap


@given(st.lists(st.sampled_from([0.0, CORES]), min_size=30, max_size=120), st.floats(0.3, 1.0))
@settings(max_examples=200, deadline=None)
def test_however_bursts_follow_each_other_guests_turn_once_in_a_while(needs, protected):
    """A turn is a fall after a rise: at most one for each time in which a burst counts."""
    found = caps(needs, protected=protected)
    moves = [after - before for before, after in itertools.pairwise(found) if after != before]
    turns = sum(one > 0.0 > other for one, other in itertools.pairwise(moves))
    assert turns <= len(needs) / HOLD


def test_a_node_that_gets_fewer_cores_is_seen_at_once():
    one = GuestCap(CORES)
    for _ in QUIET:
        one.see(1.0, 0.0, one.cap)
    one.cores = 1.0
    assert one.see(1.0, 0.0, 0.5) == pytest.approx(1.0 - MARGIN)


@pytest.mark.parametrize(
    ("cores", "guests", "caps"),
    [
        (3.0, {}, {}),
        (3.0, {"a": GuestClaim()}, {"a": 3.0}),
        (3.0, {"a": GuestClaim(), "b": GuestClaim()}, {"a": 1.5, "b": 1.5}),
        (3.0, {"a": GuestClaim(2.0), "b": GuestClaim()}, {"a": 2.0, "b": 1.0}),
        (3.0, {"a": GuestClaim(want=0.4), "b": GuestClaim()}, {"a": 0.4, "b": 2.6}),
        (
            3.0,
            {"a": GuestClaim(want=0.4), "b": GuestClaim(), "c": GuestClaim(want=1.2)},
            {"a": 0.4, "b": 1.4, "c": 1.2},
        ),
        (3.0, {"a": GuestClaim(want=0.5), "b": GuestClaim(want=0.5)}, {"a": 1.5, "b": 1.5}),
        (0.0, {"a": GuestClaim(floor=0.01), "b": GuestClaim(floor=0.02)}, {"a": 0.01, "b": 0.02}),
        (0.1, {"a": GuestClaim(floor=0.01), "b": GuestClaim(floor=0.01, want=0.0)}, {"a": 0.09, "b": 0.01}),
    ],
)
def test_guests_share_by_weight_what_they_want(cores, guests, caps):
    assert share(cores, guests) == pytest.approx(caps)


GUESTS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        GuestClaim,
        st.integers(1, 10_000).map(float),
        st.floats(0.0, 0.1),
        st.one_of(st.just(inf), st.floats(0.0, 8.0)),
    ),
    min_size=1,
)


@given(st.floats(0.0, 64.0), GUESTS)
def test_caps_add_up_and_no_guest_that_wants_more_has_less_by_weight(cores, guests):
    caps = share(cores, guests)
    floors = sum(one.floor for one in guests.values())
    assert isclose(sum(caps.values()), max(cores, floors), rel_tol=1e-9, abs_tol=1e-9)
    more = {name: caps[name] - one.floor for name, one in guests.items()}
    for name, one in guests.items():
        assert more[name] >= -1e-9
        if caps[name] < one.want - 1e-9:
            assert all(more[name] * other.weight >= more[o] * one.weight - 1e-6 for o, other in guests.items())


def test_a_guest_that_uses_its_cap_wants_more():
    assert want(0.3, 0.5, 0.5) == inf


def test_a_guest_that_does_not_wants_a_little_more_than_it_uses_and_the_same_while_that_fits():
    first = want(inf, 0.4, 1.0)
    assert first == ROOM * 0.4
    for used in (FITTING * first, 0.4, BOUND * first - 1e-9):
        assert want(first, used, first) == first
    assert want(first, 0.2, first) == ROOM * 0.2
    assert want(first, BOUND * first, first) == inf
