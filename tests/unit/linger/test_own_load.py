"""The ready tasks of a node's own work, told from CPU counters."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.linger.own_load import own_load

CORES = st.floats(0.1, 256.0)
PODS = st.lists(st.floats(0.0, 64.0), max_size=8)


@pytest.mark.parametrize(
    ("used", "held", "cores", "load"),
    [
        ([], 0.0, 1.0, 0.0),
        ([0.0, 0.0], 0.9, 1.0, 0.0),
        ([0.1] * 9, 0.0, 1.0, 9.0),  # M/M/1: 0.9 / 0.1
        ([0.25, 0.25], 0.0, 1.0, 1.0),  # M/M/1: 0.5 / 0.5
        ([0.25, 0.25], 0.3, 1.0, 2.0),  # 0.5 / 0.2 is more than two tasks
        ([1.0], 0.0, 1.0, 1.0),
        ([0.1], 0.9, 1.0, 1.0),
        ([0.2, 0.2, 0.2], 0.4, 1.0, 3.0),
        ([0.05, 0.04, 0.01], 0.9, 1.0, 1 / 0.42),
        ([0.15, *[0.005] * 10], 0.8, 1.0, 0.04 / 0.02275),  # one without an end, and ten that do little
        ([0.1] * 3 + [0.3], 0.4, 1.0, 3.0),  # one has three times the weight
        ([1.0], 0.0, 4.0, 0.25),
        ([1.0], 2.0, 4.0, 0.25),
        ([0.8] * 5, 0.0, 4.0, 1.25),
        ([0.3, 0.3], 3.4, 4.0, 0.5),
        ([4.0], 0.0, 4.0, 1.0),  # four threads
        ([3.0, 1.0], 0.0, 4.0, 1.0),
        ([0.5, 0.5, 2.0], 1.0, 4.0, 0.9),
        ([0.5], 0.0, 0.5, 1.0),  # half a CPU
    ],
)
def test_ready_tasks_of_each_cpu(used, held, cores, load):
    assert own_load(used, held, cores) == pytest.approx(load)


def test_with_several_cpus_few_tasks_wait():
    light = [0.25] * 8
    assert own_load(light, 0.0, 4.0) == pytest.approx(0.5, abs=0.06), "half of each CPU, and hardly a queue"
    assert own_load(light, 1.8, 4.0) == pytest.approx(2.0), "nearly nothing is left: each pod has a task"


@given(hogs=st.integers(1, 60), cores=st.integers(1, 64), part=st.floats(0.0, 0.99))
def test_equal_pods_without_an_end_are_so_many_tasks(hogs, cores, part):
    held = part * cores
    each = min(1.0, (cores - held) / hogs)
    assert own_load([each] * hogs, held, float(cores)) >= hogs / cores * (1 - 1e-9)


@given(PODS, st.floats(0.0, 300.0), CORES, st.floats(0.0, 1.0))
def test_it_never_falls_when_all_use_less_or_applications_take_less(used, held, cores, less):
    load = own_load(used, held, cores)
    assert own_load([less * each for each in used], held, cores) <= load * (1 + 1e-9)
    assert own_load(used, less * held, cores) <= load * (1 + 1e-9)


@given(PODS, st.floats(0.0, 300.0), CORES)
def test_it_is_at_least_what_runs_and_at_most_one_task_for_each_pod_or_cpu_in_use(used, held, cores):
    load, total = own_load(used, held, cores), sum(min(each, cores) for each in used)
    cpus = max(cores, 1.0)
    assert min(total, cores) / cpus * (1 - 1e-9) <= load
    assert load * cpus <= (sum(each > 0 for each in used) + total) * (1 + 1e-9)


@given(st.lists(st.floats(), max_size=8), st.floats(), st.floats())
def test_any_numbers_give_a_finite_load(used, held, cores):
    load = own_load(used, held, cores)
    assert isfinite(load)
    assert load >= 0.0


@pytest.mark.parametrize(("odd", "load"), [(nan, 1.0), (-inf, 1.0), (-1.0, 1.0), (inf, 1.8)])
def test_a_use_that_makes_no_sense_counts_as_none_or_as_all_cpus(odd, load):
    assert own_load([0.5, odd], 0.0, 1.0) == pytest.approx(load)
