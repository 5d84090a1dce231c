"""The file of alerts is made from its source, and each alert has its runbook."""

import re
from pathlib import Path

import monitoring
from monitoring_lib.alerts import ALERTS, RUNBOOKS
from monitoring_lib.panels import DASHBOARDS

from punctual import metric_names as names

ROOT = Path(__file__).parents[2]

UNSEEN = {names.OPERATOR_BUILD, names.STATISTICAL_OPEN, names.CPU_PERIOD, names.AGENT_EPOCH, names.CLOCK_DOUBTS,
          names.REPORTED_QUOTA, names.REPORTED_DRIFT}  # fmt: skip
"""Metrics that no panel shows: details for a query by hand, or sums of what agents export themselves."""


def test_the_file_of_alerts_is_up_to_date():
    assert monitoring.RULES.read_text() == monitoring.rules_text(), "run: make docs"


def test_the_dashboards_are_up_to_date():
    there = {path.name: path.read_text() for path in monitoring.BOARDS.glob("*")}
    assert there == monitoring.boards(), "run: make docs"


def test_each_panel_shows_metrics_that_are_exported_and_says_what():
    known = {metric.name for metric in vars(names).values() if isinstance(metric, names.Metric)}
    for board in DASHBOARDS:
        titles = [panel.title for panel in board.panels]
        assert len(set(titles)) == len(titles), board.name
        for panel in board.panels:
            for query in panel.queries:
                shown = set(re.findall(r"punctual_\w+?(?=_bucket\b|[^\w]|$)", query.expr))
                assert shown, (board.name, panel.title)
                assert shown <= known, (board.name, panel.title)


def test_each_metric_of_ours_is_in_a_panel_or_an_alert():
    shown = " ".join(query.expr for board in DASHBOARDS for panel in board.panels for query in panel.queries)
    shown += " ".join(alert.expr for alert in ALERTS)
    for metric in vars(names).values():
        if isinstance(metric, names.Metric) and metric not in UNSEEN:
            assert re.search(rf"\b{metric.name}\b|\b{metric.name}_bucket\b", shown), metric.name


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    pages = {page.name for page in (ROOT / RUNBOOKS).glob("*.md")}
    assert pages == {alert.page for alert in ALERTS} | {"README.md"}
    index = (ROOT / RUNBOOKS / "README.md").read_text()
    for alert in ALERTS:
        page = (ROOT / RUNBOOKS / alert.page).read_text()
        assert re.findall("^#+ (.*)$", page, re.MULTILINE) == [
            alert.name, "What it means", "How to look", "What to do",
        ]  # fmt: skip
        assert f"({alert.page})" in index


def test_links_of_runbooks_lead_somewhere():
    anchors = {m.lower() for m in re.findall("^### (.*)$", (ROOT / "docs/reasons.md").read_text(), re.MULTILINE)}
    for page in (ROOT / RUNBOOKS).glob("*.md"):
        for path, anchor in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", page.read_text()):
            assert (page.parent / path).exists(), (page.name, path)
            assert not anchor or anchor in anchors, (page.name, anchor)


def test_each_dashboard_has_a_section_with_a_picture():
    page = ROOT / "docs/dashboards.md"
    text = page.read_text()
    for board in DASHBOARDS:
        name = board.name.removeprefix("punctual-")
        section = text.partition(f"\n## {board.title.removeprefix('Punctual / ')}\n")[2].partition("\n## ")[0]
        assert f"](img/dashboard-{name}.png)" in section, board.title
        assert (page.parent / f"img/dashboard-{name}.png").stat().st_size < 100_000, "loads slowly"
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / path).exists(), path
