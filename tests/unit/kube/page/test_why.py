"""Why a job is as it is, as the page tells it."""

import pytest
from shown import Shown

from punctual.kube.page.why import explain, explain_rate


@pytest.fixture
def shown():
    """Two processors; one job runs on both, one of another namespace waits behind it, one is refused."""
    shown = Shown().pool("main", nodes=1, processors=2)
    shown.job("b", "first", units=20, most=2, deadline=110.0)
    shown.job("a", "waits", units=20, most=2, deadline=230.0)
    shown.job("a", "refused", units=4000, deadline=60.0)
    return shown


def test_it_says_what_a_job_waits_for_and_why_one_is_refused(shown):
    waits = " ".join(explain(shown.read(), "a-waits", None))
    assert "b/first" in waits
    assert "4000 units" in " ".join(explain(shown.read(), "a-refused", None))


def test_it_names_no_job_of_a_namespace_that_is_not_visible(shown):
    waits = " ".join(explain(shown.read(), "a-waits", {"a"}))
    assert "first" not in waits.split()
    assert "b/first" not in waits
    assert "a job of another namespace" in waits
    assert explain(shown.read(), "b-first", {"a"}) is None
    assert explain(shown.read(), "none", None) is None


def test_a_job_without_an_answer_says_so(shown):
    reading = shown.read()
    reading.jobs["a-waits"].term.record = None
    assert explain(reading, "a-waits", None) == ("It has no answer yet.",)


def test_it_explains_a_target_rate_of_a_namespace_that_is_visible(shown):
    refused = {"type": "Admitted", "status": "False", "reason": "SlicesDoNotFit", "message": "no place"}
    uid = shown.rate("b", "solver", conditions=[refused])
    told = ("It is refused, and its pods are not held (SlicesDoNotFit): no place.",)
    assert explain_rate(shown.read(), uid, None) == explain_rate(shown.read(), uid, {"b"}) == told
    assert explain_rate(shown.read(), uid, {"a"}) is None
    assert explain_rate(shown.read(), "none", None) is None
