"""What the experiments compute from samples, and the load that follows from their seed."""

import json
from itertools import pairwise
from random import Random

import pytest
from experiments_lib import guests, moves, page, rate, samples, storm, watching
from experiments_lib.outcome import Ended, outcome
from experiments_lib.programs import PROGRAMS, costs
from hypothesis import given
from hypothesis import strategies as st

from punctual.errors import PunctualError


def track(rate, *, until=60.0, every=0.05):
    """Integrate ``rate(t)`` from 0 on."""
    found, count = [], 0.0
    for k in range(int(until / every) + 1):
        found.append((k * every, count))
        count += rate(k * every) * every
    return found


@given(delay=st.floats(0.0, 3.0), slow=st.floats(1, 50), factor=st.floats(1.3, 5))
def test_a_step_s_delay_is_found(delay, slow, factor):
    seen = track(lambda t: slow if t < 20 + delay else slow * factor, until=30)
    assert samples.step_delay(seen, 20.0, before=5, after=9, settled=4) == pytest.approx(delay, abs=0.06)


def test_a_lag_counts_as_delay_by_its_time_constant():
    seen, value, count = [], 1.0, 0.0
    for k in range(800):
        t = k * 0.05
        value += 0.05 / 0.8 * ((2.0 if t >= 20 else 1.0) - value)
        seen.append((t, count))
        count += value * 0.05
    assert samples.step_delay(seen, 20.0, before=5, after=15, settled=6) == pytest.approx(0.8, abs=0.1)


def test_a_rate_that_does_not_change_has_no_delay():
    assert samples.step_delay(track(lambda _: 7.0), 20.0, before=5, after=9, settled=4) is None


def test_noise_is_the_deviation_of_the_rate_over_its_mean():
    rng = Random(1)
    rates = [rng.gauss(100, 8) for _ in range(400)]
    seen = track(lambda t: rates[min(int(t + 1e-9), 399)], until=400)
    assert samples.noise(seen, 0, 400) == pytest.approx(0.08, rel=0.1)
    assert samples.noise(track(lambda _: 3.0), 0, 50) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("begin", "end"), [(0, 2), (0, 50)])
def test_noise_of_nothing_is_refused(begin, end):
    with pytest.raises(ValueError, match="three periods"):
        samples.noise(track(lambda _: 0.0), begin, end)


@pytest.mark.parametrize(
    ("rates", "settled", "outside"),
    [
        (lambda _: 5.0, 4.0, 0),
        (lambda t: 10.0 if t < 22 else 5.0, 16.0, 0),
        (lambda t: 6.0 if 32 <= t < 36 else 5.0, 4.0, 1),
        (lambda _: 6.0, None, 0),
    ],
    ids=["at once", "the fourth four seconds", "held but for four seconds", "never"],
)
def test_a_held_rate_is_told_by_when_it_settled_and_how_often_it_left(rates, settled, outside):
    found = rate.part(track(rates), 10.0, 0.5, 12.0, 52.0)
    assert found["settled"] == settled
    assert found["outside"] == outside
    assert (found["rates"] is None) == (settled is None)
    if settled is not None:
        assert found["rates"]["median"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("pace", "depth", "seconds"),
    [
        (lambda _: 10.0, 1.0, 0.0),
        (lambda t: 5.0 if 20 <= t < 26 else 10.0, 0.5, 9.0),
        (lambda t: 5.0 if t >= 20 else 10.0, 0.5, None),
    ],
)
def test_recovery_tells_depth_and_time(pace, depth, seconds):
    found = samples.recovery(track(pace), 20.0, before=10, until=30, band=0.1, window=3)
    assert found.depth == pytest.approx(depth, abs=0.02)
    assert found.seconds == (None if seconds is None else pytest.approx(seconds, abs=0.5))


def test_counts_between_samples_lie_on_a_straight_line():
    seen = [(0.0, 0.0), (2.0, 4.0), (3.0, 4.0)]
    assert [samples.at(seen, t) for t in (-1, 0, 1, 2.5, 9)] == [0, 0, 2, 4, 4]
    assert samples.between(seen, 1, 3) == seen[1:]


def test_a_spread_of_nothing_is_refused():
    assert samples.Spread.of([3, 1, 2]) == samples.Spread(2, 1, 3, 3)
    with pytest.raises(ValueError, match="nothing"):
        samples.Spread.of([])


def test_outcome_counts_what_was_late_and_by_how_much():
    jobs = [Ended("a", 100, 90), Ended("b", 100, 110), Ended("c", 200, 250), Ended("d", 100, None)]
    found = outcome(jobs)
    assert (found.admitted, found.met, found.unfinished, found.ratio) == (4, 1, 1, 0.25)
    assert found.mean_lateness == pytest.approx((0.1 + 0.25) / 2)
    assert found.worst_lateness == pytest.approx(0.25)
    assert outcome([]).ratio == 0


@given(seed=st.integers(0, 10**6), seconds=st.floats(0, 3000))
def test_disturbances_of_a_kind_never_overlap(seed, seconds):
    found = storm.disturbances(seed, seconds)
    assert found == storm.disturbances(seed, seconds)
    assert all(one.begin < seconds for one in found)
    assert [one.begin for one in found] == sorted(one.begin for one in found)
    for kind in ("halved", "stranger"):
        for a, b in pairwise(one for one in found if one.kind == kind):
            assert a.end < b.begin


@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 120))
def test_jobs_have_the_cpu_seconds_and_the_deadlines_that_were_asked_for(seed, jobs):
    costs = {"a": 0.1, "b": 0.5}
    found = storm.arrivals(seed, jobs, cpu_seconds=20, processors=6, cpu=0.1, costs=costs, startup=5)
    assert found == storm.arrivals(seed, jobs, cpu_seconds=20, processors=6, cpu=0.1, costs=costs, startup=5)
    assert len({one.name for one in found}) == jobs
    for one in found:
        assert one.units * costs[one.program] == pytest.approx(20 / 0.1)
        assert 1.5 * 105 <= one.deadline <= 5 * 105


def test_costs_are_read_from_what_was_measured():
    found = costs(
        '{"blastp": [[0.2, 0.3], [2.2, 2.7]], "pagerank": [[1, 1], [3, 3]], "sqlite": [[0.1, 0.2], [1.1, 2.2]]}'
    )
    assert found["blastp"].unit == pytest.approx(0.05)
    assert found["blastp"].start == pytest.approx(0.1)
    assert found["blastp"].seconds(0.1) == pytest.approx(0.5), "the CPU limits it"
    assert found["sqlite"].seconds(0.6) == pytest.approx(0.02), "it waits for the disk"
    assert found["sqlite"].waiting == pytest.approx(0.5)
    assert found["pagerank"].waiting == pytest.approx(0)
    assert set(found) == {program.name for program in PROGRAMS}


def test_a_recorder_s_lines_become_tracks():
    text = """["written", 9.5, "a", 0.2, 0.1]
["seen", 10.0, "a", null, 0.5, 0.2, 0.1]
["seen", 10.5, "a", 3, 0.6, 0.2, 0.1]
["seen", 11.0, "a", 4, 0.7, 0.1, 0.05]
["seen", 11.0, "b", 1, 0.7, null, null]"""
    found = watching.read(text)
    assert found["a"].units == [(10.0, 0.0), (10.5, 3.0), (11.0, 4.0)]
    assert found["a"].caps == [(10.0, 0.2, 0.1), (11.0, 0.1, 0.05)]
    assert found["a"].written == [(9.5, 0.2, 0.1)]
    assert found["b"].caps == []


POINTS = {
    "commit": "abc",
    "jobs": 2,
    "seed": 1,
    "cpu_seconds": 10.0,
    "headroom": "25%",
    "processors": {"Feedback": 6, "None": 6},
    "seconds": 100,
    "disturbances": [{"kind": "halved", "begin": 1, "seconds": 2}],
    "pools": {
        name: {
            "admitted": 2,
            "met": 1,
            "ratio": 0.5,
            "refused": 1,
            "unfinished": 0,
            "mean_lateness": 0.1,
            "worst_lateness": 0.1,
            "ended": [{"name": "x", "deadline": 10.0, "finish": f} for f in (9.0, 11.0)],
        }
        for name in ("Feedback", "None")
    },
}


def test_tables_stand_between_their_marks_and_nothing_else_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    begin, end = page.BEGIN.format("disturbed"), page.END.format("disturbed")
    page.PAGE.write_text(f"before\n\n{begin}\nold\n{end}\n\nafter\n")
    (tmp_path / "disturbed.json").write_text(json.dumps(POINTS))
    page.write()
    once = page.PAGE.read_text()
    page.write()
    assert page.PAGE.read_text() == once
    assert once.startswith(f"before\n\n{begin}\n\n| progressControl")
    assert once.endswith(f"{end}\n\nafter\n")
    assert "| Feedback | 2 | 1 | 1 | 50.0% | 10.0% | 10.0% | 0 |" in once
    assert "half the CPU 1 times" in once
    assert (tmp_path / "disturbed.svg").read_text().count("progressControl") >= 2


def test_a_page_without_marks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    page.PAGE.write_text("nothing\n")
    (tmp_path / "disturbed.json").write_text(json.dumps(POINTS))
    with pytest.raises(PunctualError, match="begin disturbed"):
        page.write()
    assert page.PAGE.read_text() == "nothing\n"


def test_ratios_of_guests_are_those_of_neighbours_and_share_no_run():
    runs = [(False, 1.0), (False, 2.0), (True, 3.0), (True, 5.0), (False, 4.0), (False, 8.0)]
    assert guests.ratios(runs) == ([1.5, 1.25], [2.0, 2.0])
    assert guests.ratios([(False, 2.0), (True, 3.0), (True, 4.0), (False, 8.0)]) == ([1.5, 0.5], [])


def test_limits_hold_the_median_and_know_noise():
    quiet, loud = ([1.0 + size * (k - 10) for k in range(21)] for size in (0.001, 0.01))
    found = {size: guests.limits(one) for size, one in (("quiet", quiet), ("loud", loud))}
    for one in found.values():
        assert one["low"] < one["median"] < one["high"]
        assert one["median"] == pytest.approx(1.0)
    assert found["loud"]["high"] - 1.0 == pytest.approx(10 * (found["quiet"]["high"] - 1.0))


def test_the_page_tells_what_guests_cost_and_use():
    one = guests.Run(value=0.01, guests=0.5, left=0.6, rest=0.7, available=0.2, floor=0.4)
    alone = one._replace(guests=0.0, available=0.8, floor=None)
    told = guests._told([(False, alone), (False, alone), (True, one._replace(value=0.011))])
    found = {
        "name": "guests-memory",
        "killed": 3,
        "commit": "x",
        "pairs": 1,
        "requests": {"500m": {"web": told, "benchmark": told}},
    }
    lines = list(page.guests(found))
    assert any(
        "| 1.100 (1.100 to 1.100) | 1.000 (1.000 to 1.000) | 83.3% (median run 83.3%) |" in line for line in lines
    )
    assert "| 500m | 0.40 s | 0.40 s | 1 | 0 |" in lines
    assert (
        "Of the node's memory, 80% is available alone and 20% with guests. "
        "The kernel killed 3 programs for lack of memory."
    ) in lines
    assert lines[-1] == "`hack/experiments guests-memory --pairs 1`, at x."


def test_the_page_tells_how_soon_a_rest_goes_on():
    found = {"commit": "x", "cordon": moves._told([(0.5, 3.0), (0.7, 4.0), None]), "burst": moves._told([None])}
    lines = list(page.moves(found))
    assert "| is cordoned | 2 of 3 | 0.60 s | 0.70 s | 2.90 s | 3.30 s |" in lines
    assert lines[-1] == "`hack/experiments moves --cordons 3 --bursts 1`, at x."


def test_a_rest_runs_on_another_node_after_the_decision():
    log = moves.Log()
    log.events += [(1.0, ["GuestStays"]), (2.0, ["GuestLeaves"])]
    log.pods += [
        (1.5, ["a", "n2", "Running", "<none>"]),
        (2.5, ["b", "n1", "Running", "<none>"]),
        (3.0, ["c", "n2", "Pending", "<none>"]),
        (3.5, ["c", "n2", "Running", "<none>"]),
    ]
    assert log.decided(0.0) == 2.0
    assert log.decided(2.1) is None
    assert log.running(2.0, not_on="n1") == 3.5


def answers(mean, *, count, seed):
    rng = Random(seed)
    return [rng.expovariate(1 / mean) for _ in range(count)]


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_all_answers_together_tell_how_much_longer_the_slow_ones_take(factor):
    order = [False, False, True, True, False, False] * 5
    runs = [(beside, answers(factor if beside else 1.0, count=900, seed=k)) for k, beside in enumerate(order)]
    found = guests.pooled(runs)
    assert found["answers"] == 27_000
    assert found["ratio"]["low"] < factor < found["ratio"]["high"]
    assert found["ratio"]["high"] - found["ratio"]["low"] < 0.4
    assert found["noise"]["low"] < 1.0 < found["noise"]["high"]
    assert guests.pooled(runs) == found


def test_without_two_runs_alone_side_by_side_there_is_no_noise():
    runs = [(beside, answers(1.0, count=200, seed=k)) for k, beside in enumerate([False, True] * 4)]
    assert guests.pooled(runs)["noise"] is None
