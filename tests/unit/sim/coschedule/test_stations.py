"""The stations of the thesis: its algorithms by hand, limits that are exact, and what must hold of any run."""

import json

import pytest
from coschedule import stations
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.sim.coschedule.scenario import Stations
from punctual.sim.coschedule.stations import Task, _Station, simulate


def station(policy, mco=2, **more):
    return _Station(Stations(policy=policy, mco=mco, **more), 1, 0, 0)


def task(frequency, *, distributed=True, de=0):
    made = Task(distributed, 3 if distributed else 0, 5.0, 0.0)
    made.frequency, made.de = frequency, de
    return made


def queue_after(policy, waiting, entering, **more):
    """Return where a task with given messages (receive, send) lands, and how often the others are overtaken then."""
    at = station(policy, **more)
    at.queue = list(waiting)
    at._frequencies = lambda _cf: entering
    new = Task(True, 3, 5.0, 0.0)
    at._insert(new)
    return at.queue.index(new), [each.de for each in waiting], new


@pytest.mark.parametrize(
    ("policy", "entering", "place"),
    [
        ("PRE", (1, 2), 1),
        ("DYN", (1, 2), 3),
        ("PRE", (3, 3), 0),
        ("DYN", (3, 0), 1),
        ("LIN", (3, 3), 3),
        ("IMP", (3, 3), 3),
    ],
)
def test_algorithm_4_puts_a_task_before_those_with_fewer_messages(policy, entering, place):
    """PRE counts both directions, DYN what is received; equal ones keep their order."""
    found, overtaken, new = queue_after(policy, [task(5), task(2), task(1)], entering)
    assert found == place
    assert overtaken == [n >= place for n in range(3)]
    assert new.pco


def test_a_task_is_overtaken_so_often_and_then_no_more():
    assert queue_after("PRE", [task(1), task(1, de=2), task(1)], (3, 3))[:2] == (2, [0, 2, 1])
    assert queue_after("PRE", [task(1)], (3, 3), mco=0)[0] == 1


def test_a_task_without_messages_overtakes_no_one_and_may_not_be_coscheduled():
    place, _, new = queue_after("PRE", [task(1), task(0, distributed=False)], (0, 0))
    assert (place, new.pco) == (2, False)


def test_hpdt_puts_distributed_tasks_before_local_ones_whatever_their_messages():
    local = task(0, distributed=False, de=99)
    assert queue_after("HPDT", [task(1), local], (3, 3))[0] == 1
    assert queue_after("HPDT", [local], (0, 0))[0] == 0


def test_a_stay_in_the_queue_begins_anew_at_its_end():
    at = station("PRE")
    old = task(1, de=2)
    old.ovt = {task(3)}
    at._insert(old)
    assert (old.de, old.ovt) == (0, set())


def test_exp_runs_the_class_that_has_the_slice_and_the_other_one_if_there_is_none():
    local, distributed = task(0, distributed=False), task(2)
    at = station("EXP")
    for now, waiting, first, rest in (
        (30.0, [local, distributed], distributed, 70.0),
        (130.0, [distributed, local], local, 70.0),
        (30.0, [local], local, 70.0),
        (200.0, [local, distributed], distributed, 100.0),
    ):
        at.now, at.queue = now, waiting
        assert at._put_first() == pytest.approx(rest)
        assert at.queue[0] is first


def test_algorithm_3_counts_who_ran_who_waited_and_who_was_delayed_by_whom():
    at = station("PRE")
    top, other, local = task(3), task(1), task(0, distributed=False)
    top.pco = other.pco = True
    local.ovt = {top}
    at.queue = [top, other, local]
    at._count(top, 2.0, spins=False)
    assert [(each.tco, each.tth, each.td, each.waited) for each in at.queue] == [
        (2, 0, 0, 0),
        (0, 2, 0, 2),
        (0, 0, 2, 2),
    ]
    at._count(top, 1.0, spins=True)
    assert (top.tco, other.tth) == (2.0, 3.0), "spinning is no work"
    assert (at.sums.length, at.sums.time) == (9.0, 3.0)


@pytest.mark.parametrize("policy", ["PRE", "DYN"])
def test_if_no_task_may_be_overtaken_it_is_round_robin(policy):
    assert stations(policy, mco=0, tasks=500) == stations("LIN", tasks=500)


def test_with_equal_frequencies_both_directions_tell_no_more_than_one():
    assert stations("PRE", symmetry=1.0, tasks=500) == stations("DYN", symmetry=1.0, tasks=500)


def test_implicit_waits_for_nothing_if_messages_always_come_or_it_does_not_spin():
    lin = stations("LIN", pdt=1.0, tasks=500)
    assert stations("IMP", pdt=1.0, tasks=500).dret == lin.dret
    assert stations("IMP", spin=0.0, tasks=500).dret == stations("LIN", tasks=500).dret
    assert stations("IMP", tasks=500).dret > stations("LIN", tasks=500).dret


def test_without_local_tasks_nothing_is_said_of_them():
    found = stations("HPDT", pdt=1.0, tasks=300).document()
    assert (found["lret"], found["lwait"], found["task_d"], found["served"]["local"]) == (None, None, None, 0)
    assert found["system_code"] is not None


def test_the_warm_up_is_served_and_not_counted():
    cold, warm = (stations("LIN", tasks=400, warm=part) for part in (0.0, 0.5))
    assert cold.distributed == warm.distributed == 400
    assert cold.local == warm.local
    assert cold.dret != warm.dret


def test_two_stations_have_mirrored_draws_so_that_their_errors_even_out():
    one, other, third = (_Station(Stations(), 1, 7, number) for number in range(3))
    draws = [(each.arrivals.random(), each.messages.random()) for each in (one, other, third)]
    assert draws[0][0] + draws[1][0] == pytest.approx(1.0)
    assert len({draw for pair in draws for draw in pair}) == 6
    assert (
        0.0 <= min(other.arrivals.random() for _ in range(1000)) < max(other.arrivals.random() for _ in range(99)) < 1.0
    )


def test_more_stations_than_tasks_are_no_harm():
    assert stations("LIN", tasks=3, stations=16, warm=0.0).distributed == 3


def test_times_are_in_the_units_of_the_scenario():
    one, ten = (stations("EXP", mit=10.0 * n, quantum=10.0 * n, slice=100.0 * n, tasks=300) for n in (1, 10))
    assert ten.dret == pytest.approx(10.0 * one.dret)
    assert ten.system_code == pytest.approx(one.system_code)


policies = st.sampled_from(["LIN", "IMP", "EXP", "HPDT", "DYN", "PRE"])
scenarios = st.builds(
    Stations,
    policy=policies,
    stations=st.integers(1, 3),
    mrql=st.floats(0.5, 6.0),
    pdt=st.floats(0.1, 1.0),
    maxm=st.integers(1, 5),
    mco=st.none() | st.integers(0, 5),
    quantum=st.floats(1.0, 50.0),
    slice=st.floats(1.0, 200.0),
    tasks=st.integers(1, 40),
    warm=st.sampled_from([0.0, 0.1]),
    spin=st.just(0.01),
)


@settings(deadline=None, max_examples=50)
@given(scenarios, st.integers(0, 1000))
def test_one_seed_gives_the_same_bytes_and_all_that_was_asked_for(scenario, seed):
    first, second = (json.dumps(simulate(scenario, seed).document()) for _ in range(2))
    assert first == second
    found = json.loads(first)
    assert found["served"]["distributed"] == scenario.tasks
    assert found["system_code"] is None or 0.0 <= found["system_code"] <= 1.0
    assert all(
        found[stay] is None or found[stay] >= found[wait] for stay, wait in (("dret", "dwait"), ("lret", "lwait"))
    )


@settings(deadline=None, max_examples=50)
@given(scenarios, st.integers(0, 1000))
def test_each_task_is_served_in_full_and_the_queue_is_what_tasks_stay(scenario, seed):
    """Little: the queue's length over time is the time that tasks stay."""
    made = _Station(scenario.model_copy(update={"warm": 0.0}), scenario.tasks, seed, 0)
    insert, needs = made._insert, {}

    def noted(task):
        needs.setdefault(task, task.left)
        insert(task)

    made._insert = noted
    made.run()
    there = made.queue
    stays = sum(made.sums.stays.values()) + sum(made.now - task.arrived for task in there)
    waits = sum(made.sums.waits.values()) + sum(task.waited for task in there)
    assert made.sums.length == pytest.approx(stays, rel=1e-6, abs=1e-6)
    done = sum(need - task.left for task, need in needs.items())
    assert done <= stays - waits + 1e-6
    if scenario.policy != "IMP":
        assert done == pytest.approx(stays - waits, rel=1e-6, abs=1e-6)
