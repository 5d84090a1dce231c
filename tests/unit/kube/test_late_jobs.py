"""A job that will be late, from its units' cost to the alert: all that shows it says the same at the same time."""

import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from clocks import clock
from rich.console import Console
from world import Worker, World, job

from punctual import metric_names as names
from punctual import reasons
from punctual.cli.cluster import tables
from punctual.cli.cluster.tables import job_document
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.api import DivisibleJob
from punctual.kube.known.jobs import JobInTerm, KnownJob, Owner
from punctual.kube.known.translate import job_status
from punctual.kube.metrics import Metrics
from punctual.kube.page.model import Reading, page
from punctual.notation.duration import format_duration, format_time, parse_time
from punctual.scheduling.state.tracking import BACK_AFTER, LATE_AFTER
from punctual.view.jobs import job_of

sys.path.append(str(Path(__file__).parents[3] / "hack"))

from monitoring_lib.alerts import ALERTS

DEADLINE = 60.0


class Shown:
    """A pool of one node, and every view of its job ``j1``."""

    def __init__(self, pace: float, **more):
        self.world = w = World()
        w.node("n1", 2.0)
        w.tick()
        w.workers = lambda _j, _c: Worker(pace=pace)
        w.apply(job(units=40, deadline=DEADLINE, **more))
        w.run(1.0)
        self.owner = Owner("j1", "default", "j1", "main", 40)

    @property
    def known(self) -> KnownJob:
        w = self.world
        term = JobInTerm(job=w.jobs["j1"], record=w.records["j1"])
        return KnownJob(self.owner, 1, False, "", "", b"{}", "1", term=term)

    @property
    def status(self) -> dict:
        w = self.world
        return job_status(w.records["j1"], w.jobs["j1"], owner=self.owner, transition_times={}, now=w.now)

    @property
    def body(self) -> dict:
        meta = {"uid": "j1", "name": "j1", "namespace": "default", "creationTimestamp": format_time(0.0)}
        return {"metadata": meta, "spec": {"units": 40, "deadline": format_duration(DEADLINE)}, "status": self.status}

    def columns(self) -> dict[str, str]:
        """Return what `kubectl get dj -o wide` shows."""
        found = {}
        for column in DivisibleJob.COLUMNS:
            if re.fullmatch(r"\.status(\.\w+)+", column.path):
                value = self.status
                for part in column.path.split(".")[2:]:
                    value = (value or {}).get(part)
                found[column.name] = value
        return found

    def row(self) -> list[str]:
        """Return the cells of `kubectl punctual get` and `top`."""
        console = Console(width=200, file=io.StringIO())
        console.print(tables.jobs([job_of(self.body)], self.world.now))
        return console.file.getvalue().splitlines()[1].split()

    def page(self) -> dict:
        reading = Reading(self.world.now, {"main": self.world.pool.view()}, {"j1": self.known}, {}, {})
        return page(reading)["jobs"]["j1"]

    def metrics(self) -> dict[str, float]:
        metrics = Metrics()
        PromiseMetrics(metrics, clock(now=lambda: self.world.now)).promises("main", [self.known])
        return {s.name: s.value for f in metrics.registry.collect() for s in f.samples if s.labels == {"pool": "main"}}

    def alerts(self) -> bool:
        """Return whether the expression of the alert is true."""
        (alert,) = (alert for alert in ALERTS if alert.name == "PunctualPromiseLate")
        name, least = re.fullmatch(r"max by \(pool\) \((\w+)\) > (\d+)", alert.expr).groups()
        return self.metrics()[name] > float(least)

    def check(self) -> str:
        """Check that all views agree; return the state."""
        columns, shown, now = self.columns(), self.page(), self.world.now
        late, eta = columns["State"] == "Late", parse_time(columns["ETA"])
        on_track = next(c for c in self.status["conditions"] if c["type"] == "OnTrack")
        assert late == (on_track["status"] == "False") == self.alerts()
        assert columns["Reason"] == (on_track["reason"] if late else reasons.FEASIBLE)
        assert eta <= DEADLINE or late
        assert columns["Slack"] in {format_duration(round(DEADLINE - eta) + off) for off in (-1, 0, 1)}
        assert (shown["state"], shown["reason"]) == (columns["State"], columns["Reason"])
        assert shown["end"] == pytest.approx(eta, abs=1.0)
        document = job_document(job_of(self.body))
        assert (document["state"], document["reason"]) == (columns["State"], columns["Reason"])
        assert parse_time(document["eta"]) == eta
        row = self.row()
        assert row[1] == columns["State"]
        minutes, seconds = row[-2].split(":")
        assert int(minutes) * 60 + int(seconds) == pytest.approx(eta - now, abs=1.0)
        assert row[-1].startswith("-") == (eta > DEADLINE)
        assert self.metrics()[names.SLACK.name] == pytest.approx(DEADLINE - eta, abs=1.0)
        return columns["State"]


def test_units_that_cost_nine_times_as_declared_are_told_from_the_first_reports_to_the_alert_until_the_end():
    shown = Shown(9.0)
    w = shown.world
    states = []
    while not w.done("j1"):
        states.append((w.now, shown.check()))
        w.run(w.now + 1.0)
    first = next(at for at, state in states if state == "Late")
    assert first < 30.0, "half of its time is left"
    assert {state for at, state in states if at >= first} == {"Late"}
    assert {state for at, state in states if at < first} == {"Running"}
    assert w.now > 2 * DEADLINE
    assert (shown.status["state"], shown.status["reason"]) == ("Missed", reasons.DEADLINE_MISSED)
    assert not {"eta", "slack"} & shown.status.keys()


def test_units_that_cost_what_is_declared_raise_no_alert():
    shown = Shown(1.0)
    while not shown.world.done("j1"):
        assert shown.check() == "Running"
        shown.world.run(shown.world.now + 1.0)
    assert (shown.status["state"], shown.status["reason"]) == ("Completed", reasons.COMPLETED)


def test_a_job_that_gets_faster_is_on_track_again_everywhere_at_once():
    shown = Shown(3.0, max_processors=1)
    w = shown.world
    w.run_until(lambda _: shown.check() == "Late", within=30.0)
    (pod,) = w.pods.values()
    w.set_worker(pod, Worker(pace=0.3))
    w.run_until(lambda _: shown.check() == "Running", within=20.0 + LATE_AFTER + BACK_AFTER)


def test_an_open_promise_without_a_forecast_raises_the_alert():
    shown = Shown(1.0)
    assert not shown.alerts()
    shown.world.records["j1"] = shown.world.records["j1"]._replace(eta=None)
    assert shown.alerts()


def test_an_eta_is_not_rounded_beyond_a_deadline_that_is_kept():
    shown = Shown(1.0)
    record = shown.world.records["j1"]
    promise = record.promise._replace(deadline=60.4)
    shown.world.records["j1"] = record._replace(eta=60.2, promise=promise)
    assert parse_time(shown.status["eta"]) <= 60.4
    assert shown.status["slack"] == "0s"
    late = replace(shown.world.jobs["j1"], deadline=60.4)
    shown.world.jobs["j1"] = late
    shown.world.records["j1"] = record._replace(eta=60.5, promise=promise)
    assert parse_time(shown.status["eta"]) == 61.0
