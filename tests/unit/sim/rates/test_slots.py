"""The CPU that slots give: by hand, and by properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.control.rate import Pair
from punctual.sim.rates.slots import Share, SharedNode, Slots

periods = st.floats(0.002, 0.2)
parts = st.floats(0.02, 1.0)
phases = st.floats(0.0, 0.999)
times = st.floats(0.0, 5.0)


def slots(period=1.0, slice_=0.4, phase=0.25, switch_cost=0.0):
    return Slots(Pair(period, slice_), phase, switch_cost)


@pytest.mark.parametrize(
    ("start", "cpu", "finish"),
    [
        (0.0, 0.1, 0.35),
        (0.0, 0.4, 0.65),  # to the end of the slot
        (0.3, 0.1, 0.4),  # from within it
        (0.3, 0.4, 1.3),  # the rest in the next one
        (0.65, 0.4, 1.65),
        (0.7, 1.2, 3.65),
        (5.0, 0.0, 5.0),
    ],
)
def test_a_work_is_done_when_its_slots_have_given_it(start, cpu, finish):
    assert slots().finish(start, cpu) == pytest.approx(finish)
    assert slots().given(start, finish) == pytest.approx(cpu)


def test_the_begin_of_each_slot_is_lost():
    made = slots(switch_cost=0.1)
    assert made.finish(0.0, 0.3) == pytest.approx(0.65)
    assert made.finish(0.3, 0.3) == pytest.approx(0.65), "the switch goes on until 0.35"
    assert made.given(0.0, 10.0) == pytest.approx(10 * 0.3)
    assert made.switched(0.0, 10.0) == pytest.approx(10 * 0.1)
    assert made.switched(0.3, 1.25) == pytest.approx(0.05)


def test_slots_that_are_all_switch_never_finish_anything():
    assert slots(switch_cost=0.4).finish(0.0, 1e-6) == float("inf")
    assert slots(switch_cost=0.5).given(0.0, 100.0) == 0.0
    assert slots(switch_cost=0.5).switched(0.0, 100.0) == pytest.approx(40.0)


@given(periods, parts, phases, st.integers(1, 500), times)
def test_so_many_periods_give_exactly_so_many_slices(period, part, phase, n, start):
    made = slots(period, part * period, phase)
    assert made.given(start, start + n * period) == pytest.approx(n * part * period, abs=1e-9)


@given(st.tuples(periods, parts, phases), st.floats(0.0, 0.001), times, st.floats(0.0, 2.0))
def test_between_start_and_finish_the_work_is_given_and_not_before(slot, cost, start, cpu):
    period, part, phase = slot
    made = slots(period, part * period, phase, cost)
    finish = made.finish(start, cpu)
    if finish < float("inf"):
        assert made.given(start, finish) == pytest.approx(cpu, abs=1e-8)
        assert made.given(start, finish - 1e-6) <= cpu
    else:
        assert part * period <= cost


pairs = st.tuples(periods, parts, phases, st.floats(0.0, 0.5))


@given(st.lists(pairs, min_size=1, max_size=4), st.floats(0.0, 0.001), st.floats(0.0, 0.3), st.floats(0.0, 0.02))
def test_an_application_without_neighbours_gets_its_slots_on_a_shared_node_too(changes, cost, later, cpu):
    node, at = SharedNode(3), 0.0
    for period, part, phase, stays in changes:
        made = slots(period, part * period, phase, cost)
        node.set(at, 1, made)
        share = Share(node, 1)
        finish = share.finish(at + later, cpu)
        if finish < float("inf"):
            assert made.given(at + later, finish) == pytest.approx(cpu, abs=1e-8)
        else:
            assert part * period <= cost
        assert share.given(at, at + stays) == pytest.approx(made.given(at, at + stays), abs=1e-9)
        at += stays
    first = changes[0]
    alone = slots(first[0], first[1] * first[0], first[2], cost).switched(0.0, at) if len(changes) == 1 else None
    assert alone is None or node.switched(1, at) == pytest.approx(alone, abs=1e-9)


@given(st.lists(st.tuples(periods, parts, phases), min_size=2, max_size=6), st.sampled_from([0.5, 0.98, 1.0]))
def test_by_edf_each_gets_its_slice_in_each_of_its_periods_up_to_a_whole_node(asked, load):
    total = sum(part for _, part, _ in asked)
    node = SharedNode(len(asked))
    made = [slots(period, part / total * load * period, phase) for period, part, phase in asked]
    for n, each in enumerate(made):
        node.set(0.0, n, each)
    for n, each in enumerate(made):
        for k in (1, 2, 7, 8, 30):
            given_ = node.given(n, each.begin(k), each.begin(k + 1))
            assert given_ == pytest.approx(each.pair.slice, abs=1e-9)


@given(st.lists(st.tuples(periods, parts, phases), min_size=2, max_size=5), st.floats(0.0, 1.0))
def test_no_more_is_given_than_there_is_and_a_change_of_one_leaves_the_past_alone(asked, at):
    node = SharedNode(len(asked))
    for n, (period, part, phase) in enumerate(asked):
        node.set(0.0, n, slots(period, part * period / len(asked), phase))
    before = [node.given(n, 0.0, at) for n in range(len(asked))]
    later = [node.finish(n, at, 0.02) for n in range(len(asked))]
    assert all(finish > at for finish in later)
    node.set(at, 0, slots(0.05, 0.05 / len(asked), 0.5))
    assert [node.given(n, 0.0, at) for n in range(len(asked))] == pytest.approx(before, abs=1e-9)
    assert sum(node.given(n, at, at + 1.0) for n in range(len(asked))) <= 1.0 + 1e-9


def test_the_earliest_deadline_runs_first_and_divides_the_others_slots():
    node = SharedNode(2)
    node.set(0.0, 0, slots(1.0, 0.5, 0.0))
    node.set(0.0, 1, slots(0.2, 0.1, 0.0))
    assert node.finish(1, 0.0, 0.1) == pytest.approx(0.1)
    assert node.finish(0, 0.0, 0.2) == pytest.approx(0.4), "0.1 to 0.2, then 0.3 to 0.4"
    assert node.finish(0, 0.0, 0.5) == pytest.approx(0.9), "both are due at 1.0: the first application runs"


def test_a_work_that_fills_its_slots_waits_for_no_other_one_whatever_the_rounding():
    node = SharedNode(2)
    for n in range(1, 60):
        made = slots(0.125, 0.02, 0.0)
        node.set(0.0, 0, made)
        assert made.finish(0.0, n * 0.02) == pytest.approx((n - 1) * 0.125 + 0.02)
        assert node.finish(0, 0.0, n * 0.02) == pytest.approx((n - 1) * 0.125 + 0.02)
