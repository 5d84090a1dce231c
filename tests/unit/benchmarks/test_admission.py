"""What `punctual bench` measures is what it says, on lines that are small."""

import json
import threading

import pytest
from typer.testing import CliRunner

from punctual.benchmarks import admission
from punctual.cli import app
from punctual.theory.execution_time import execution_time


def small(processors=8):
    return admission.BenchQueue(40, processors, execution_time(admission.AVERAGE, processors, admission.COST), 10.0)


MEASURES = [admission.fast, admission.fast_literal, admission.exact, admission.exact_stays, admission.exact_literal]


@pytest.mark.parametrize("measure", MEASURES)
def test_each_decision_is_timed_and_told(measure):
    ticks = []
    times = measure(small(), 5, lambda: ticks.append(1))
    assert len(times) == len(ticks) == 5
    assert all(0 < t.wall < 10 and 0 < t.cpu < 10 for t in times)


def test_a_summary_has_quantiles_by_nearest_rank_in_its_unit():
    times = [admission.Spent(n / 1000, (101 - n) / 2000) for n in range(1, 101)]
    wall, cpu = {"mean": 50.5, "p50": 50.0, "p99": 99.0}, {"cpu_mean": 25.25, "cpu_p50": 25.0, "cpu_p99": 49.5}
    assert admission.summary(times, per_second=1e3) == {**wall, **cpu, "decisions": 100}
    one = admission.summary([admission.Spent(0.002, 0.001)], per_second=1e3)
    assert {key: one[key] for key in ("p50", "p99", "cpu_p50", "cpu_p99")} == {
        "p50": 2.0, "p99": 2.0, "cpu_p50": 1.0, "cpu_p99": 1.0,
    }  # fmt: skip


def test_time_in_which_the_thread_waits_is_not_of_its_cpu_time():
    times = []
    with admission.timed(times):
        started = threading.Event()
        threading.Timer(0.05, started.set).start()
        assert started.wait(10)
    assert times[0].wall >= 0.04
    assert times[0].cpu < times[0].wall


def test_the_json_has_a_number_for_each_that_is_asked_for(monkeypatch):
    names = [row[0] for row in admission.rows(quick=True)]
    rows = [(name, measure, small(), 2) for name, measure, *_ in admission.rows(quick=True)]
    monkeypatch.setattr(admission, "rows", lambda *, quick: rows)
    ran = CliRunner().invoke(app, ["bench", "admission", "--json"])
    assert ran.exit_code == 0
    numbers = json.loads(ran.stdout)
    assert list(numbers) == [*names, "ratios"]
    assert names[:2] == ["fast_us", "fast_literal_us"]
    for name in names:
        assert {"mean", "p50", "p99", "cpu_mean", "cpu_p50", "cpu_p99", "decisions"} == set(numbers[name])
        assert numbers[name]["p50"] > 0
    assert set(numbers["ratios"]) == {"fast", "fast_3000", "exact_3000"}
    table = CliRunner().invoke(app, ["bench", "admission", "--quick"])
    assert table.exit_code == 0
    assert [line.split()[0] for line in table.stdout.splitlines()] == [*names, "ratios"]


def test_the_queues_are_as_long_and_as_wide_as_they_are_called():
    sizes = {name: (line.waiting, line.processors) for name, _, line, _ in admission.rows()}
    assert sizes["fast_us"] == sizes["fast_literal_us"] == (37_000, 41_863)
    assert sizes["fast_3000_us"] == sizes["fast_literal_3000_us"] == (3_000, 512)
    assert sizes["exact_ms"] == sizes["exact_stays_ms"] == (1_000, 512)
    assert sizes["exact_stays_3000_ms"] == sizes["exact_3000_ms"] == sizes["exact_literal_3000_ms"] == (3_000, 512)
