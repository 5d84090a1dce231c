"""The file of alerts is made from its source, and each alert has its runbook."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "hack"))

import monitoring  # noqa: E402
from monitoring_lib.alerts import ALERTS, RUNBOOKS  # noqa: E402


def test_the_file_of_alerts_is_up_to_date():
    assert monitoring.RULES.read_text() == monitoring.rules_text(), "run: make docs"


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
