"""The baselines do what the paper says: checked against the partition, and by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.benchmarks.literal import AcFast, EdfIit2, Task
from punctual.theory.cost import Cost
from punctual.theory.partition import least_processors, partition

COST = Cost(10.0, 1.0)


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=12),
    st.floats(0.1, 100),
    st.floats(1, 400),
    st.sampled_from([0.0, 0.1, 1.0, 5.0]),
)
def test_the_exact_test_takes_the_least_processors_and_ends_them_together(free, load, due, tau):
    cost = Cost(10.0, tau)
    test = EdfIit2(cost)
    ready = sorted(free)
    n = least_processors(load, ready, cost, deadline=due, one_port=True)
    best = partition(load, ready, cost, one_port=True).finish
    accepted = test.decide(Task("j", 0.0, load, due), port=0.0, free=free)
    assert accepted == (n is not None) or abs(best - due) < 1e-6
    if accepted and n == len(test.schedule):
        split = partition(load, ready[:n], cost, one_port=True)
        assert [p.load for p in test.schedule] == pytest.approx(split.shares.tolist(), abs=1e-6)
        assert [p.end for p in test.schedule] == pytest.approx([split.finish] * n)


def test_the_exact_test_places_the_whole_queue_anew_and_keeps_the_old_schedule_where_it_refuses():
    test = EdfIit2(COST)
    assert test.decide(Task("late", 0.0, 20.0, 300.0), port=0.0, free=[0.0, 0.0])
    assert test.decide(Task("soon", 0.0, 10.0, 80.0), port=0.0, free=[0.0, 0.0])
    schedule = test.schedule
    assert [p.task.uid for p in schedule] == ["soon", "soon", "late"]
    assert [(p.start, p.sent) for p in schedule[:2]] == [(0.0, schedule[0].sent), (schedule[0].sent, schedule[1].sent)]
    assert not test.decide(Task("too much", 0.0, 40.0, 250.0), port=0.0, free=[0.0, 0.0])
    assert test.schedule is schedule
    assert [t.uid for t in test.queue] == ["soon", "late"]


def test_fast_as_printed_line_by_line():
    """E(σ, 2) = σ · 121/21."""
    test = AcFast(2, COST)
    idle = [0.0, 0.0]
    a, b, c = Task("a", 0.0, 21.0, 200.0), Task("b", 0.0, 21.0, 300.0), Task("c", 0.0, 10.5, 150.0)
    assert not test.decide(Task("x", 0.0, 21.0, 121.0 - 1e-9), port=0.0, free=idle)
    assert not test.decide(Task("x", 0.0, 21.0, 130.0), port=110.0, free=idle)  # lines 1-4
    assert test.decide(a, port=0.0, free=idle)
    assert (a.execution, a.completion, a.slack, a.slack_min) == pytest.approx((121.0, 121.0, 79.0, 79.0))
    assert test.decide(b, port=0.0, free=idle)
    assert (b.completion, b.slack) == pytest.approx((242.0, 58.0))
    assert a.slack_min == pytest.approx(58.0)
    assert not test.decide(c, port=0.0, free=idle)  # lines 8-10: 60.5 > 58
    c.load = 10.0
    assert test.decide(c, port=0.0, free=idle)
    assert [t.uid for t in test.queue] == ["c", "a", "b"]
    assert (a.completion, b.completion) == pytest.approx((121.0 + c.execution, 242.0 + c.execution))
    assert b.slack_min == pytest.approx(58.0 - c.execution)


def test_fast_counts_idle_processors_where_nobody_waits():
    """Alg. 8: one processor idle for 44 s could have done 4 units, which take both 4 · 121/21 s."""
    test = AcFast(2, COST)
    a = Task("a", 0.0, 10.0, 200.0)
    assert test.decide(a, port=0.0, free=[0.0, 0.0])
    test.given(a, 10.0)
    assert not test.queue
    b = Task("b", 50.0, 10.0, 400.0)
    assert test.decide(b, port=6.0, free=[6.0, 110.0])
    assert b.completion == pytest.approx(a.completion + 4.0 * 121.0 / 21.0 + b.execution)
    empty = Task("c", 500.0, 10.0, 600.0)
    test.given(b, 10.0)
    assert test.decide(empty, port=6.0, free=[110.0, 300.0])
    assert empty.completion == pytest.approx(500.0 + empty.execution)
