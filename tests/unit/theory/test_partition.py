import itertools
import random
from bisect import bisect_right
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest

from punctual.theory.cost import Cost
from punctual.theory.execution_time import execution_time_equal
from punctual.theory.partition import _bracket, equal_partition, least_processors, partition

UNIT = Cost(chi=1.0)


@pytest.mark.parametrize(
    ("why", "load", "ready", "cost", "given", "shares", "starts", "finish"),
    [
        ("one alone", 10, [5], Cost(2, 1, 3, 4), {}, [10], [5], 42),
        ("equal ready times, equal shares", 10, [5, 5], Cost(2, 1, 3, 4), {}, [5, 5], [5, 5], 27),
        ("a later one gets less", 10, [0, 4], UNIT, {}, [7, 3], [0, 4], 7),
        ("one ready as the rest ends is skipped", 10, [0, 0, 5], UNIT, {}, [5, 5, 0], [0, 0, 5], 5),
        ("one ready later too", 10, [0, 0, 99], UNIT, {}, [5, 5, 0], [0, 0, 99], 5),
        ("set-up is paid by those that join", 10, [0, 4], Cost(1, 0, 0, 2), {}, [7, 3], [0, 4], 9),
        ("in any order", 10, [4, 99, 0], UNIT, {}, [3, 0, 7], [4, 99, 0], 7),
        ("half as fast, half as much", 9, [0, 0], UNIT, {"speeds": [1, 2]}, [6, 3], [0, 0], 6),
        ("a fast one comes late", 10, [0, 4], UNIT, {"speeds": [1, 0.5]}, [6, 4], [0, 4], 6),
        ("one port: the second waits", 7, [0, 0], Cost(3, 1), {"one_port": True}, [4, 3], [0, 4], 16),
        ("one port: till it is ready", 5, [0, 8], Cost(3, 1), {"one_port": True}, [3.5, 1.5], [0, 8], 14),
        (
            "one port: the set-up of a transfer holds it",
            7, [0, 0], Cost(3, 1, 1, 9), {"one_port": True}, [29 / 7, 20 / 7], [0, 36 / 7], 186 / 7,
        ),
        (
            "one port: a skipped one does not use it",
            7, [0, 0, 99], Cost(3, 1), {"one_port": True}, [4, 3, 0], [0, 4, 99], 16,
        ),
        (
            "one port: all wait for a first that is late",
            7, [9, 0], Cost(3, 1), {"one_port": True}, [4, 3], [9, 13], 25,
        ),
        (
            "one port: a late first is skipped",
            2, [9, 0], Cost(3, 1), {"one_port": True}, [0, 2], [9, 0], 8,
        ),
        (
            "one port: before a late first joins and lowers the sum",
            9, [100, 0], Cost(10, 1), {"one_port": True}, [0, 9], [100, 0], 99,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_partition(*, why, load, ready, cost, given, shares, starts, finish):
    got = partition(load, ready, cost, **given)
    assert got.shares == pytest.approx(np.array(shares, dtype=float), abs=1e-12)
    assert got.starts == pytest.approx(np.array(starts, dtype=float), abs=1e-12)
    assert got.finish == pytest.approx(finish, abs=1e-12)


@pytest.mark.parametrize("one_port", [False, True])
@pytest.mark.parametrize(
    ("load", "ready", "given"),
    [(0, [0], {}), (-1, [0], {}), (nan, [0], {}), (inf, [0], {}), (1, [], {}), (1, [[0]], {}), (1, [nan], {}),
     (1, [0, inf], {}), (1, [0, nan, 2], {}), (1, [-inf, 0], {}), (1, [0], {"speeds": [0]}),
     (1, [0], {"speeds": [nan]}), (1, [0, 0], {"speeds": [1]})],
)  # fmt: skip
def test_what_cannot_be_cut(load, ready, given, one_port):
    with pytest.raises(ValueError, match="must be"):
        partition(load, ready, UNIT, one_port=one_port, **given)


@pytest.mark.parametrize("one_port", [False, True])
@pytest.mark.parametrize("given", [{}, {"speeds": np.linspace(0.5, 2.0, 300)}])
def test_a_clock_that_counts_since_1970_loses_no_work(one_port, given):
    ready = np.linspace(0.0, 90.0, 300)
    cost = Cost(chi=0.25, tau=0.001, theta_cm=0.01, theta_cp=2.0)
    near = partition(20_000, ready, cost, one_port=one_port, **given)
    far = partition(20_000, ready + 1.8e9, cost, one_port=one_port, **given)
    assert far.shares.sum() == pytest.approx(20_000, rel=1e-12)
    assert far.finish - 1.8e9 == pytest.approx(near.finish, abs=1e-6)  # the clock itself ticks in 2.4e-7 s


def test_the_callers_arrays_stay_as_they_are():
    ready = np.array([1.0, 0.0, 2.0])
    got = partition(5, ready, UNIT)
    got.starts[0] = 7.0
    assert ready.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("why", "load", "ready", "deadline", "given", "n"),
    [
        ("one is enough", 10, [0, 0, 0], 10, {}, 1),
        ("a hair too little for one", 10, [0, 0, 0], 9.999, {}, 2),
        ("all of them, exactly", 10, [0, 0, 5], 5, {}, 2),
        ("one that is late helps a little", 10, [0, 0, 4], 4.9, {}, 3),
        ("one that is ready at the deadline does not", 10, [0, 0, 4.9], 4.9, {}, None),
        ("not even all", 10, [0, 0, 0], 3, {}, None),
        ("the deadline is over", 10, [5, 6, 7], 4, {}, None),
        ("no fewer than asked", 1, [0, 0, 0], 9, {"least": 2}, 2),
        ("more asked than there are", 1, [0, 0, 0], 9, {"least": 4}, None),
        ("one port, no transfer to wait for", 10, [0, 0, 4], 4.9, {"one_port": True}, 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_least_processors(*, why, load, ready, deadline, given, n):
    assert least_processors(load, ready, UNIT, deadline=deadline, **given) == n


def test_transfers_through_one_port_ask_for_more_processors():
    cost = Cost(chi=9.0, tau=1.0)
    assert least_processors(10, [0.0] * 9, cost, deadline=25.0) == 4
    assert least_processors(10, [0.0] * 9, cost, deadline=25.0, one_port=True) == 5


@pytest.mark.parametrize(("ready", "deadline"), [([1, 0], 9), ([0, nan], 9), ([], 9), ([0], inf), ([0], nan)])
def test_least_processors_wants_ready_times_in_order_and_a_deadline(ready, deadline):
    with pytest.raises(ValueError, match="must"):
        least_processors(1, ready, UNIT, deadline=deadline)


@pytest.mark.parametrize(
    ("why", "load", "ready", "cost", "given", "starts", "finish"),
    [
        ("one alone", 10, [5], Cost(2, 1, 3, 4), {}, [5], 42),
        ("the one that is ready last ends last", 10, [0, 4], UNIT, {}, [0, 4], 9),
        ("the slow one ends last", 10, [0, 0], UNIT, {"speeds": [1, 2]}, [0, 0], 10),
        ("one port: the second waits", 10, [0, 0], Cost(2, 1, 1, 4), {"one_port": True}, [0, 6], 26),
        ("one port: till it is ready", 10, [0, 9], Cost(2, 1, 1, 4), {"one_port": True}, [0, 9], 29),
        (
            "one port: a gap is not made up for",
            30, [0, 90, 0], Cost(2, 1), {"one_port": True}, [0, 90, 100], 130,
        ),
        (
            "one port: a slow processor holds it no longer",
            10, [0, 0], Cost(1, 1), {"one_port": True, "speeds": [3, 1]}, [0, 5], 20,
        ),
    ],
)  # fmt: skip
def test_equal_shares(*, why, load, ready, cost, given, starts, finish):
    found = equal_partition(load, ready, cost, **given)
    assert found.shares == pytest.approx([load / len(ready)] * len(ready))
    assert found.starts == pytest.approx(starts)
    assert found.finish == pytest.approx(finish)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_equal_shares_that_start_together_end_as_the_paper_says(n):
    cost = Cost(chi=1000.0, tau=1.0, theta_cm=500.0, theta_cp=300.0)
    found = equal_partition(1000.0, [17.0] * n, cost, one_port=True)
    assert found.finish == pytest.approx(17.0 + execution_time_equal(1000.0, n, cost), rel=1e-12)


@pytest.mark.parametrize("load", [0, -1, inf, nan])
def test_equal_shares_of_no_load_are_refused(load):
    with pytest.raises(ValueError, match="load"):
        equal_partition(load, [0.0], UNIT)


def test_the_common_end_is_found_on_any_line_that_never_falls():
    for seed in range(300):
        rng = random.Random(seed)
        ends, totals, slopes = [0.0], [0.0], []
        for _ in range(rng.randint(2, 8)):
            slopes.append(10 ** rng.uniform(-3, 3))
            ends.append(ends[-1] + 10 ** rng.uniform(-2, 2))
            totals.append(totals[-1] + slopes[-1] * (ends[-1] - ends[-2]))
        walks = itertools.count(1)

        def walk(at: float, ends=ends, totals=totals, slopes=slopes, walks=walks) -> SimpleNamespace:
            assert next(walks) < 100, "the bracket does not shrink"
            piece = min(max(bisect_right(ends, at) - 1, 0), len(slopes) - 1)
            return SimpleNamespace(total=totals[piece] + slopes[piece] * (at - ends[piece]), slope=slopes[piece])

        load = rng.uniform(0.0, totals[-1])
        _, found = _bracket(load, walk, first=0.0, high=ends[-1])
        assert found.total == pytest.approx(load, rel=1e-9)
