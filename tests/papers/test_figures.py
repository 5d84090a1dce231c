"""The figures of chapters 4 to 7 in small: what `make papers` runs, and what the page shows of it.

Sizes are so small that curves cross by chance; what is asserted is what the figures are about. Everything is drawn from
fixed seeds: the same code gives the same numbers.
"""

import re

import numpy as np
import pytest
from figures import chapter4, chapter5, chapter6, chapter7, page, progress
from figures.figure import FULL, Found, Size
from figures.index import FIGURES

from punctual.scheduling.model.discipline import Discipline
from punctual.sim.options import Options
from punctual.sim.run import simulate
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace
from punctual.theory.cost import Cost

SMALL = Size(seeds=1, stretch=0.3)


def mean(points, name="rejected", size=SMALL, seeds=(1, 2)):
    """The mean of points and seeds."""
    return float(np.mean([point.run(seed, size)[name] for point in points for seed in seeds]))


def refused4(panel, algorithm, loads=(0.6, 1.0), seeds=(1, 2), **how):
    return mean([chapter4.Point(panel, algorithm, load, **how) for load in loads], seeds=seeds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("panel", "loads", "seeds"), [("letter 5", (0.6, 1.0), (1, 2)), ("pool 5", (1.0,), (1,))])
def test_4_6_opr_refuses_less_than_epr_and_all_nodes_less_than_the_least(panel, loads, seeds):
    algorithms = "EDF-OPR-MN", "EDF-EPR-MN", "EDF-OPR-AN"
    opr_mn, epr_mn, opr_an = (refused4(panel, a, loads, seeds) for a in algorithms)
    assert opr_mn < epr_mn - 0.02
    assert opr_an < opr_mn


def test_4_6_with_the_printed_set_ups_all_nodes_refuse_more_on_one_port_and_to_the_letter():
    for panel in ("letter 500", "pool 500"):
        most, least = (refused4(panel, f"EDF-OPR-{assign}", [1.0], seeds=[1]) for assign in ("AN", "MN"))
        assert most > least + 0.1


def test_4_7_with_loose_deadlines_nothing_is_refused_at_low_load():
    for rule in ("OPR", "EPR"):
        assert refused4("letter 5", f"EDF-{rule}-AN", [0.4], dc_ratio=100.0) == 0.0
    assert refused4("pool 5", "EDF-OPR-AN", [0.4], dc_ratio=100.0) == 0.0


def test_4_8_opr_and_epr_come_together_as_processors_get_slow():
    gaps = [
        refused4("letter 5", "EDF-EPR-MN", chi=chi) - refused4("letter 5", "EDF-OPR-MN", chi=chi)
        for chi in (100.0, 10000.0)
    ]
    assert gaps[0] > 0.05
    assert abs(gaps[1]) < 0.02


def test_4_9_the_least_nodes_gain_on_all_nodes_as_sending_gets_slow():
    over = [
        refused4("letter 5", "EDF-OPR-MN", tau=tau) - refused4("letter 5", "EDF-OPR-AN", tau=tau) for tau in (1.0, 20.0)
    ]
    assert over[0] > 0.0 > over[1]


@pytest.mark.parametrize("tau", [1.0, 10.0, 20.0])
def test_4_10_to_4_12_orders_are_all_alike_where_few_wait(tau):
    refused = [refused4("letter 5", f"{order}-OPR-MN", tau=tau) for order in ("FIFO", "EDF", "MWF")]
    assert max(refused) - min(refused) < 0.03


def test_5_a_job_becomes_the_reservation_that_it_would_be():
    """Algorithm 5: σ = 2000 due after 20000 s; γ = 0.9, n = ⌈ln 0.9 / ln β⌉ = 106."""
    made = chapter5.reservation(JobLine(id="j", arrival=100.0, load=2000.0, deadline=20000.0), 30.0)
    assert (made.kind, made.arrival, made.start, made.processors) == ("reservation", 70.0, 100.0, 106)
    assert made.end - made.start == pytest.approx(2002000.0 * (1 - 1000 / 1001) / (1 - (1000 / 1001) ** 106))
    assert made.io_ratio == pytest.approx(2000.0 / (made.end - made.start))
    assert made.end <= 20100.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("panel", list(chapter5.PANELS))
def test_5_reservations_at_once_cost_most_and_are_worth_booking_ahead(panel):
    refused = {
        (share, advance): mean([chapter5.Point(panel, load, share, advance) for load in (0.6, 1.0)])
        for share, advance in ((0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.5, 2.0))
    }
    assert refused[0.0, 0.0] < refused[0.5, 0.0] < refused[1.0, 0.0]
    assert refused[0.5, 2.0] < refused[0.5, 0.0]


@pytest.mark.parametrize(
    ("booked", "accepted", "worked"), [(1.0, {"job"}, [(0, 10)]), (-1.0, {"job", "window"}, [(0, 4), (8, 14)])]
)
def test_5_19_a_job_goes_round_a_window_that_was_booked_before_it_and_one_that_is_asked_for_later_is_refused(
    booked, accepted, worked
):
    """On one processor; the window is booked ``booked`` seconds after the job comes."""
    trace = Trace.of(
        [
            JobLine(id="job", arrival=1.0, load=10.0, deadline=20.0),
            ReservationLine(id="window", kind="reservation", arrival=1.0 + booked, start=5.0, end=9.0, processors=1),
        ]
    )
    found = simulate(trace, Options(processors=1, cost=Cost(1.0), discipline=Discipline(), offers=False))
    assert {decision.id for decision in found.decisions if decision.accepted} == accepted
    assert [(chunk.send_start - 1.0, chunk.end - 1.0) for chunk in found.chunks] == [pytest.approx(at) for at in worked]


def test_5_what_is_sent_computed_and_booked_to_the_letter_never_overlaps():
    """`letter5.letter` checks each of its runs; here with many chunks in later stages."""
    for seed in range(20):
        assert 0.0 <= chapter5.Point("letter", 1.0, 0.5, 2.0).run(seed, SMALL)["rejected"] < 1.0


def test_6_10_the_pool_is_exact_where_the_paper_is_and_its_fast_test_refuses_less_than_the_papers():
    refused = {
        test: mean([chapter6.Refused(test, 1.0, 2.0)]) for test in (chapter6.EXACT, chapter6.IIT_2, chapter6.AC_FAST)
    }
    assert refused[chapter6.EXACT] == pytest.approx(refused[chapter6.IIT_2], abs=0.02)
    assert refused[chapter6.EXACT] < refused[chapter6.AC_FAST]


@pytest.mark.parametrize("test", [chapter6.EXACT, chapter6.HYBRID, chapter6.FAST])
def test_6_16_each_decision_is_taken_and_its_time_told(monkeypatch, test):
    """How long it takes is for the figure: a machine that does something else meanwhile says nothing of us."""
    monkeypatch.setattr(chapter6, "SWITCH", 50)
    monkeypatch.setattr(chapter6, "AFTER", (40, 120, 999))
    found = chapter6.Decided(test, 64, 120).run(1, SMALL)
    assert found["n"] == [40, 120]
    assert len(found["after"]) == len(found["first"]) == 2
    assert min(found["after"] + found["first"]) > 0


def test_6_17_hybrid_is_exact_while_few_wait():
    exact, hybrid = (chapter6.Refused(test, 0.8, 2.0).run(1, SMALL) for test in (chapter6.EXACT, chapter6.HYBRID))
    assert exact == hybrid


def test_6_18_hybrid_beyond_the_switch_refuses_no_more_than_the_exact_test():
    exact, hybrid = (
        chapter6.Refused(test, 2.0, 60.0, processors=16, chi=100.0, average=200.0, threshold=20).run(1, Size(1, 0.1))
        for test in (chapter6.EXACT, chapter6.HYBRID)
    )
    assert hybrid != exact, "the switch is reached"
    assert hybrid["rejected"] < exact["rejected"] + 0.02


def test_7_2_costs_that_are_known_break_nothing_and_the_worst_case_refuses_most():
    runs = {
        how: chapter7.Rising(how, 2.0).run(1, Size(1, 0.1)) for how in (chapter7.OPEN, chapter7.IDEAL, chapter7.WORST)
    }
    assert max(runs[chapter7.IDEAL]["missed"]) == max(runs[chapter7.WORST]["missed"]) == 0.0
    assert np.mean(runs[chapter7.OPEN]["missed"]) > 0.1
    assert np.mean(runs[chapter7.WORST]["rejected"]) > np.mean(runs[chapter7.IDEAL]["rejected"]) + 0.1
    assert np.mean(runs[chapter7.WORST]["utilization"]) < np.mean(runs[chapter7.IDEAL]["utilization"])


@pytest.mark.parametrize(("silent", "finish"), [(False, pytest.approx(320.0)), (True, None)])
def test_7_5_what_a_processor_has_that_falls_silent_never_ends(silent, finish):
    """Four units of 100 s, in chunks of 40 s on two processors; one goes at 110 s: the other does its third again."""
    trace = Trace.of(
        [
            JobLine(id="j", arrival=0.0, load=4.0, deadline=210.0),
            FaultLine(id="f", kind="fault", arrival=110.0, processors=(1,)),
        ]
    )
    options = Options(processors=2, cost=Cost(100.0), bound=5.0, offers=False, silent_faults=silent)
    found = simulate(trace, options)
    assert [(job.finish, job.met) for job in found.jobs] == [(finish, False)]
    assert {chunk.processor for chunk in found.chunks if chunk.end > 110.0} <= {0}


@pytest.mark.timeout(900)
def test_7_5_who_is_not_told_of_a_failure_breaks_half_of_what_it_promises_unless_it_is_controlled():
    open_, closed, told = (
        chapter7.Failing(how, seen).run(1, Size(1, 0.2))["missed"]
        for how, seen in ((chapter7.OPEN, False), (chapter7.CLOSED, False), (chapter7.OPEN, True))
    )
    late = slice(5, None)
    assert np.mean(open_[late]) > 0.4
    assert np.mean(closed[late]) < np.mean(open_[late]) - 0.15
    assert np.mean(told[late]) < np.mean(open_[late]) - 0.15


def test_7_2_with_looser_deadlines_control_lets_most_be_used_and_few_miss():
    found = chapter7.Rising(chapter7.CLOSED, 4.0).run(1, Size(1, 0.15))
    assert np.mean(found["utilization"][-3:]) > 0.6
    assert np.mean(found["missed"][3:]) < 0.1


def test_progress_5_ours_is_on_a_new_reference_at_once_and_the_papers_gains_do_what_its_figure_shows():
    found = {name: progress.Steps(name).run(1, SMALL) for name in (*progress.GAINS, progress.OURS)}
    settling = {name: one["settling"] for name, one in found.items()}
    assert settling[progress.OURS] <= 2.0
    assert 10.0 < settling["good"] < min(settling["slow"], settling["aggressive"])
    assert found["aggressive"]["beyond"] > 0.2 > max(found[name]["beyond"] for name in ("good", "slow", progress.OURS))


def test_progress_8_the_published_control_is_fair_and_slow_and_late_only_with_its_lines_as_printed():
    ours, early, printed = (progress.Week("compute_2_10", name).run(1, SMALL) for name in list(progress.CONTROLS)[:3])
    assert ours["met"] == early["met"] == 1.0
    assert early["hours"] > 2.0 * ours["hours"]
    assert 0.2 < printed["met"] < 0.8
    assert printed["late"] < 0.01


NUMBERS = [f"{chapter}.{n}" for chapter, last in ((4, 12), (5, 19), (6, 18), (7, 5)) for n in range(1, last + 1)]


def test_the_page_has_a_word_on_each_figure_and_table():
    text = page.PAGE.read_text().partition("## The figures again")[2]
    named = set(re.findall(r"\b[4-7]\.\d+\b", text))
    for chapter, first, last in re.findall(r"\b([4-7])\.(\d+) to (?:[4-7]\.)(\d+)\b", text):
        named |= {f"{chapter}.{n}" for n in range(int(first), int(last) + 1)}
    assert set(NUMBERS) <= named
    assert "table 6.1" in text
    assert "tables 6.2 to 6.4" in text


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_the_page_shows_each_figure_with_words_from_its_points(figure):
    document = page.read(figure.name)
    found = Found.of(document["points"])
    assert found.points.keys() <= figure.points(FULL).keys()
    assert found.document() == document["points"]
    assert figure.words(found) in page.PAGE.read_text()
    assert (page.PICTURES / f"{figure.name}.svg").read_text().startswith("<?xml")
