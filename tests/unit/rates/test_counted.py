"""Stories of applications under a RateControl, with iterations that Prometheus counts at its scrapes."""

import pytest
from held import Held, Ranks, member, rate

from punctual.rates.application import Application
from punctual.rates.model import PodsCounted, ReportedPod, ScrapedCount
from punctual.rates.scrapes import UNCOUNTED

ALONE = 0.1
"""Seconds of an iteration alone."""


def cluster(scrape, *, alone=ALONE, **more):
    return Held({"a": Ranks("a", alone=alone, **more)}, scrape=scrape)


def reason(held):
    return held.statuses["a"].on_target[1]


@pytest.mark.parametrize("scrape", [5, 10, 15])
@pytest.mark.parametrize("target", [0.4, 0.2])
def test_an_application_is_held_at_its_rate_however_often_it_is_scraped(scrape, target):
    held = cluster(scrape).ask("a", target, max_rate=1 / ALONE).run(240)
    assert reason(held) == "OnTarget"
    assert held.rate_of("a", 100) * ALONE == pytest.approx(target, abs=0.03)


@pytest.mark.parametrize("scrape", [5, 15])
def test_the_rate_alone_is_measured(scrape):
    held = cluster(scrape).ask("a", 0.4).run(240)
    assert held.statuses["a"].max_rate == pytest.approx(1 / ALONE, rel=0.02)
    assert reason(held) == "OnTarget"


@pytest.mark.parametrize("target", [0.37, 0.23])
def test_a_count_at_a_scrape_is_exact_to_one_so_the_pair_rests(target):
    held = cluster(5, alone=0.53, pattern="none").ask("a", target, max_rate=1 / 0.53).run(1500)
    assert reason(held) == "OnTarget"
    assert len(held.changes) <= 4, "two pairs for two pods: one scrape finds a quarter more iterations than the next"


def test_files_are_not_read():
    held = cluster(5)
    held.scraped = {}
    held.counted = list
    held.ask("a", 0.4, max_rate=1 / ALONE).run(120)
    assert held.statuses["a"].rate is None
    assert reason(held) == "NoProgress"
    assert "Prometheus" in held.statuses["a"].on_target[2]


def test_what_is_wrong_is_said_if_it_lasts_and_the_pair_stays():
    held = cluster(5).ask("a", 0.4, max_rate=1 / ALONE).run(120)
    pair = held.holds["a-0"]
    held.answers = "it is away"
    held.run(UNCOUNTED - 5)
    assert reason(held) == "OnTarget"
    held.run(120)
    assert held.statuses["a"].on_target == ("Unknown", "NotCounted", "it is away")
    assert held.holds["a-0"] == pair
    held.answers = ""
    held.run(60)
    assert reason(held) == "OnTarget"
    assert held.holds["a-0"] == pair


def test_an_edit_to_files_and_back_counts_anew():
    held = cluster(5).ask("a", 0.4, max_rate=1 / ALONE).run(120)
    pair = held.holds["a-0"]
    held.ask("a", 0.4, max_rate=1 / ALONE, query=None).run(60)
    assert (reason(held), held.holds["a-0"]) == ("OnTarget", pair)
    held.ask("a", 0.4, max_rate=1 / ALONE).run(60)
    assert (reason(held), held.holds["a-0"]) == ("OnTarget", pair)


def test_a_restart_is_said_and_counted_from_there():
    held = cluster(5, pattern="none").ask("a", 0.4, max_rate=1 / ALONE).run(120)
    held.ranks["a"].restart(0)
    held.run(9)
    assert reason(held) == "CountFell"
    held.run(60)
    assert reason(held) == "OnTarget"


def app():
    made = Application(rate("a", 0.4, max_rate=10.0, query="n"))
    made.select([member("p")], now=0.0)
    made.hold(0.4, 1.0, now=0.0)
    return made


def test_another_source_counts_from_its_own_beginning():
    made = app()
    made.scrapes.observe(PodsCounted("a", "n", 6.0, (ScrapedCount("p", 100, 3.0),)), made.members)
    assert last(made, 6.0) == (3.0, 100)
    made.ask(rate("a", 0.4, max_rate=10.0))
    assert last(made, 7.0) == (7.0, 7)
    assert not made._counts.pods["p"].fell


def last(made, now):
    """Return count and time of the pod as they are after a report."""
    made.observe(now, ReportedPod("p", 7, 0.0, 0.4, 0.1))
    return made._counts.pods["p"].last


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        ([("n", "p", 100, 3.0)], (3.0, 100)),
        ([("n", "p", 100, 3.0), ("n", "p", 120, 5.0)], (5.0, 120)),
        ([("n", "p", 100, 3.0), ("n", "p", 90, 2.0)], (3.0, 100)),  # of a replica that is behind
        ([("n", "p", 100, 3.0), ("n", "p", 90, 5.0)], (5.0, 90)),  # it was restarted
        ([("m", "p", 100, 3.0)], None),  # an answer to the query before an edit
        ([("n", "q", 100, 3.0)], None),  # another's pod
        ([], None),  # and the file's count does not help
    ],
)
def test_which_counts_are_taken(answers, taken):
    made = app()
    for query, pod, done, at in answers:
        made.scrapes.observe(PodsCounted("a", query, 6.0, (ScrapedCount(pod, done, at),)), made.members)
        found = last(made, 6.0)
    assert (last(made, 7.0) if not answers else found) == taken
