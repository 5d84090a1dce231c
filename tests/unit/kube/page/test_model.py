"""What the page shows of a leader's state, and what it hides from viewers without the right to see it."""

import json

import pytest
from shown import Shown, crowd

from punctual.kube.page import model
from punctual.kube.page.model import page, patch
from punctual.scheduling.model.job import JobRecord
from punctual.scheduling.model.pool_spec import Tenancy
from punctual.verdict import Verdict


@pytest.fixture
def shown():
    """Two processors on each of two nodes; one job runs, one waits for it, one is refused."""
    shown = Shown().pool("main", nodes=2, processors=2)
    shown.job("a", "runs", units=40, most=4, deadline=110.0)
    shown.job("b", "waits", units=40, most=4, deadline=230.0)
    shown.job("a", "refused", units=4000, deadline=60.0)
    return shown


def bars(found, kind):
    return [bar for bar in found["pools"]["main"]["bars"] if bar[1] == kind]


def test_bars_show_what_runs_and_what_is_planned_on_which_processor(shown):
    found = page(shown.read())
    rows = found["pools"]["main"]["rows"]
    assert [list(row) for row in rows] == [[f"main-{n:03}", slot] for n in range(2) for slot in range(2)]
    running, planned = bars(found, "running"), bars(found, "planned")
    assert {bar[4] for bar in running} == {"a-runs"}
    assert {bar[4] for bar in planned} == {"b-waits"}
    assert sorted(bar[0] for bar in running) == [0, 1, 2, 3]
    ends = {bar[0]: bar[3] for bar in running}
    assert all(start >= ends[row] for row, _, start, *_ in planned)
    assert sorted(bar[5] for bar in running) == ["units 0 to 9", "units 10 to 19", "units 20 to 29", "units 30 to 39"]


def test_a_pool_names_its_scarcest_resource():
    found = page(Shown().pool("main", nodes=1, processors=2, others=(("example.com/gpu", 1),)).read())
    assert (found["pools"]["main"]["processors"], found["pools"]["main"]["scarcest"]) == (0, "example.com/gpu")


def test_a_pool_shows_what_is_promised_of_shares_to_those_who_may_see_the_namespaces():
    tenancy = Tenancy(max_share=0.5, own=(("b", 0.25),))
    shown = Shown().pool("main", nodes=2, processors=2, tenancy=tenancy)
    shown.job("a", "half", units=10, deadline=110.0, most=4)
    assert page(shown.read())["pools"]["main"]["shares"] == [
        ["a", pytest.approx(0.234, abs=0.01), 0.5],
        ["b", 0.0, 0.25],
    ]
    assert [name for name, *_ in page(shown.read(), {"b"})["pools"]["main"]["shares"]] == ["b"]


def test_a_job_says_its_state_its_deadline_and_its_slack(shown):
    jobs = page(shown.read())["jobs"]
    assert [(job["name"], job["state"]) for job in jobs.values()] == [
        ("runs", "Running"),
        ("waits", "Waiting"),
        ("refused", "Refused"),
    ]
    runs = jobs["a-runs"]
    assert (runs["deadline"], runs["units"], runs["done"], runs["processors"]) == (1110.0, 40, 0, 4)
    assert runs["slack"] == pytest.approx(runs["deadline"] - runs["end"], abs=0.05)
    assert jobs["a-refused"]["reason"] == "InfeasibleStartup" or jobs["a-refused"]["reason"] == "InfeasibleCapacity"
    assert jobs["a-refused"]["slack"] is None


def test_a_job_without_a_deadline_comes_behind_those_with_one_and_has_neither_deadline_nor_slack(shown):
    shown.guest("a", "guest", JobRecord(admitted=Verdict("True", "Guest", ""), started=1000.0, done=30))
    jobs = page(shown.read())["jobs"]
    assert [job["name"] for job in jobs.values() if job["over"] is None][-1] == "guest"
    guest = jobs["a-guest"]
    assert (guest["state"], guest["done"], guest["reason"]) == ("Running", 30, "Guest")
    assert (guest["deadline"], guest["slack"], guest["end"]) == (None, None, None)
    assert "Infinity" not in json.dumps(jobs)
    assert "a-guest" not in page(shown.read(), {"b"})["jobs"]


def test_another_namespace_is_busy_processors_without_a_name(shown):
    shown.reserve("b", "secret")
    found = page(shown.read(), {"a"})
    assert {job["namespace"] for job in found["jobs"].values()} == {"a"}
    assert {tuple(bar[4:]) for bar in bars(found, "planned")} == {("", "")}
    assert {tuple(bar[4:]) for bar in bars(found, "reserved")} == {("", "")}
    text = json.dumps(found)
    assert "secret" not in text
    assert "waits" not in text
    assert len(bars(found, "planned")) == len(bars(page(shown.read()), "planned"))


def test_reservations_and_placeholders_are_bars():
    shown = Shown().pool("main", nodes=1, processors=3, hold="Placeholder")
    shown.reserve("a", "nightly", start=100.0, length=50.0, processors=2)
    found = page(shown.read())
    assert [bar[2:] for bar in bars(found, "reserved")] == [[1100.0, 1150.0, "", "a/nightly"]] * 2
    assert [bar[:4] for bar in bars(found, "placeholder")] == [[row, "placeholder", None, None] for row in range(3)]
    shown.job("a", "runs", units=4)
    assert len(bars(page(shown.read()), "placeholder")) == 2


def test_patches_lead_from_each_page_to_the_next(shown):
    before = page(shown.read())
    assert patch(before, page(shown.read())) == {"now": 1000.0, "omitted": 0}
    shown.forget("a-refused")
    shown.job("a", "new", units=5, deadline=500.0)
    shown.rate("a", "solver")
    shown.later(3.0)
    after = page(shown.read())
    changed = patch(before, after)
    assert changed["jobs"]["a-refused"] is None
    assert set(changed["jobs"]) <= {"a-refused", "a-new", "a-runs", "b-waits"}
    merged = {part: {k: v for k, v in (before[part] | changed[part]).items() if v is not None}
              for part in ("pools", "jobs", "rates")}  # fmt: skip
    assert merged == {part: after[part] for part in merged}


def test_a_crowd_is_bounded(monkeypatch):
    monkeypatch.setattr(model, "MOST_JOBS", 20)
    monkeypatch.setattr(model, "MOST_BARS", 10)
    found = page(crowd(jobs=50, nodes=4).read())
    assert len(found["jobs"]) == 20
    assert found["omitted"] == 30
    assert len(found["pools"]["main"]["bars"]) == 10


CONDITIONS = [
    {"type": "Admitted", "status": "True", "reason": "Feasible", "message": "it fits"},
    {"type": "OnTarget", "status": "True", "reason": "OnTarget", "message": "39.6%"},
    {"type": "Aligned", "status": "False", "reason": "PhaseOff", "message": "3 ms"},
]


def test_target_rates_show_what_they_ask_for_and_get(shown):
    shown.rate("a", "solver", conditions=CONDITIONS, target="40%", rate="39.6%", error="-0.4%", skew="3ms")
    shown.rate("b", "new")
    found = page(shown.read())["rates"]
    assert found["a-solver"] == {
        "namespace": "a", "name": "solver", "pool": "main", "state": "OnTarget", "target": "40%", "actual": "39.6%",
        "error": "-0.4%", "aligned": "PhaseOff", "skew": "3ms",
    }  # fmt: skip
    assert (found["b-new"]["state"], found["b-new"]["target"]) == ("Waiting", "40%"), "as it is asked for"
    assert page(shown.read(), {"b"})["rates"].keys() == {"b-new"}


def test_target_rates_are_bounded(shown, monkeypatch):
    monkeypatch.setattr(model, "MOST_RATES", 3)
    for i in range(5):
        shown.rate("a", f"r{i}")
    assert [rate["name"] for rate in page(shown.read())["rates"].values()] == ["r0", "r1", "r2"]
