"""What is said of the phases of an application's pods: tables."""

from itertools import pairwise

import pytest
from held import member

from punctual.rates.model import PhaseSeen, ReportedPod
from punctual.rates.phases import PATIENCE, PodPhases

PODS = (member("p", "n0"), member("q", "n1"))
SLICE = 0.04


def phase(error=0.0001, failed=0):
    return PhaseSeen(100.0, 0.0001, error, 1.0, 3, failed)


def told(seen, *, seconds=60, clock=0.0003, throttled=1.0, silent=0):
    """Return the verdict after reports each second, of pod p with a good phase and of q with one phase after the other.

    ``silent``: so many seconds ago the last report of q came.
    """
    phases = PodPhases()
    phases.select(("p", "q"), 0.0)
    for now in range(1, seconds + 1):
        phases.observe(float(now), ReportedPod("p", 1, 0.0, 0.4, 0.1, phase(), 1.0), 0.0003)
        if now <= seconds - silent and seen:
            at = seen[min(now * len(seen) // (seconds + 1), len(seen) - 1)]
            phases.observe(float(now), ReportedPod("q", 1, 0.0, 0.4, 0.1, at, throttled), clock)
    return phases.verdict(float(seconds), PODS, SLICE, fills=True)


TABLE = {
    "all on the grid": ({"seen": [phase()]}, "Aligned", "error of at most 0.1 ms"),
    "at once": ({"seen": [phase()], "seconds": 2}, "Aligned", "2 pods"),
    "never reported": ({"seen": [], "seconds": 20}, "Steering", "pod default/q on node n1 is being moved to its place"),
    "never reported for long": ({"seen": []}, "Steering", "agent of node n1 does not report pod default/q"),
    "not found yet": ({"seen": [None], "seconds": 20}, "Steering", "for up to 30 s"),
    "not found for long": ({"seen": [None]}, "Steering", "whether it uses any CPU"),
    "found, without a begin": ({"seen": [phase(None)]}, "Steering", "has not found"),
    "off": ({"seen": [phase(0.03)], "seconds": 20}, "Steering", "moved to its place"),
    "off for long": ({"seen": [phase(-0.03)]}, "PhaseOff", "have begun 30 ms early for more than 30 s"),
    "off again": ({"seen": [phase(), phase(), phase(0.03)]}, "Aligned", "of at most 30 ms"),
    "off again for long": ({"seen": [phase(), phase(0.03), phase(0.03)]}, "PhaseOff", "node n1 have begun 30 ms late"),
    "on again": ({"seen": [phase(0.03), phase(0.03), phase(0.0002)]}, "Aligned", "0.2 ms"),
    "off by less than the margin": ({"seen": [phase(0.0007)]}, "Aligned", "0.7 ms"),
    "off by less than the clock's bound": ({"seen": [phase(0.003)], "clock": 0.0025}, "Aligned", "3 ms"),
    "given up": (
        {"seen": [phase(0.03, 3)], "seconds": 10},
        "PhaseOff",
        "did not follow 3 moves by the agent of node n1",
    ),
    "two moves failed": ({"seen": [phase(0.03, 2)], "seconds": 10}, "Steering", "moved"),
    "the clock is uncertain": ({"seen": [phase(None)], "clock": 0.005}, "ClockUncertain", "within 5 ms, and a tenth"),
    "the clock is uncertain later": (
        {"seen": [phase(), phase(None), phase(None)], "clock": 0.005},
        "ClockUncertain",
        "slice of pod default/q is 4 ms",
    ),
    "the clock is not known": ({"seen": [None], "clock": None}, "ClockUncertain", "upgrade it if its release"),
    "the clock is uncertain at first": ({"seen": [phase(None)], "clock": 0.005, "seconds": 20}, "Steering", "moved"),
    "silent for a moment": ({"seen": [phase()], "silent": 10}, "Aligned", ""),
    "silent": ({"seen": [phase()], "silent": 20}, "Steering", "agent of node n1 does not report"),
    "slices not filled": ({"seen": [phase()], "throttled": 0.2}, "SlicesNotFilled", "in only 31% of its periods"),
    "slices not filled at first": ({"seen": [phase()], "throttled": 0.2, "seconds": 15}, "Aligned", ""),
    "slices filled by half": ({"seen": [phase()], "throttled": 0.6}, "Aligned", ""),
    "it did not run": ({"seen": [phase()], "throttled": None}, "Aligned", ""),
}


@pytest.mark.parametrize(("case", "reason", "text"), TABLE.values(), ids=TABLE)
def test_verdict(case, reason, text):
    found = told(**case)
    assert found.reason == reason
    assert text in found.message
    assert found.status == {"Aligned": "True", "Steering": "Unknown"}.get(reason, "False")


def test_a_pod_with_all_its_cpu_has_nothing_to_fill():
    phases = PodPhases()
    phases.select(("p",), 0.0)
    for now in range(60):
        phases.observe(float(now), ReportedPod("p", 1, 0.0, 1.0, 0.1, phase(), 0.0), 0.0003)
    assert phases.verdict(60.0, PODS[:1], 0.1, fills=False).reason == "Aligned"


def test_without_pods():
    assert PodPhases().verdict(0.0, (), SLICE, fills=True)[:2] == ("Unknown", "NoPods")


def test_skew_is_the_largest_error_either_way():
    phases = PodPhases()
    phases.select(("p", "q", "r"), 0.0)
    for pod, error in (("p", 0.0001), ("q", -0.0004), ("r", None)):
        phases.observe(1.0, ReportedPod(pod, 1, 0.0, 0.4, 0.1, phase(error)), 0.0)
    assert phases.skew("pqr") == 0.0004
    assert phases.skew("r") is None


def test_another_place_in_the_grid_takes_time_again():
    phases = PodPhases()
    phases.select(("p",), 0.0)
    phases.observe(50.0, ReportedPod("p", 1, 0.0, 0.4, 0.1, phase()), 0.0)
    phases.restart(60.0)
    assert phases.verdict(61.0, PODS[:1], SLICE, fills=True).reason == "Steering"


def test_what_an_agent_told_counts_until_it_tells_again():
    """An agent that begins again has to search first: a new leader would forget where the slices are."""
    phases = PodPhases()
    phases.select(("p",), 0.0)
    phases.observe(1.0, ReportedPod("p", 1, 0.0, 0.4, 0.1, phase(), 1.0), 0.0003)
    phases.observe(2.0, ReportedPod("p", 1, 0.0, 0.4, 0.1, None, 1.0), 0.0003)
    assert phases.begins("p") == 100.0
    assert phases.half(("p",)) == 0.0001


def aligned_from(came, at):
    """Return the seconds that decide. Pod p is on the grid, others come at ``came`` and are so after ``at`` seconds."""
    phases, found = PodPhases(), []
    for now in range(120):
        there = {f"q{second}": now - second for second in came if second <= now}
        phases.select(("p", *there), float(now))
        for pod, age in {"p": at, **there}.items():
            phases.observe(float(now), ReportedPod(pod, 1, 0.0, 0.4, 0.1, phase(0.0 if age >= at else 0.03)), 0.0)
        if phases.allow(float(now)):
            found.append(now)
    return found


def test_a_decision_waits_for_a_new_pod_until_it_is_on_the_grid():
    assert aligned_from([10], 5) == [*range(10), *range(15, 120)]


def test_it_waits_for_one_that_never_is_as_long_as_it_has_time():
    assert aligned_from([10], 1000) == [*range(10), *range(10 + int(PATIENCE) + 1, 120)]


def test_where_new_pods_come_all_the_time_it_waits_no_longer_than_for_one():
    decided = aligned_from(range(0, 120, 3), 20)
    apart = [b - a for a, b in pairwise(decided)]
    assert decided[0] == PATIENCE + 1
    assert set(apart) == {PATIENCE + 2}
