#!/usr/bin/env python3
"""Writes what monitors Punctual: alerts and dashboards in charts/punctual. A test compares them."""

from __future__ import annotations

from pathlib import Path

import yaml
from monitoring_lib import grafana
from monitoring_lib.alerts import rules
from monitoring_lib.panels import DASHBOARDS

CHART = Path(__file__).resolve().parent.parent / "charts" / "punctual"
RULES = CHART / "alerts" / "punctual.yaml"
BOARDS = CHART / "dashboards"
HEADER = "# Made by hack/generate from hack/monitoring_lib/alerts.py; edit that.\n"


def rules_text() -> str:
    """Return the text of the file of rules."""
    return HEADER + yaml.safe_dump(rules(), sort_keys=False, width=4096, allow_unicode=True)


def boards() -> dict[str, str]:
    """Return the dashboards' text by the name of the file."""
    return {f"{board.name}.json": grafana.text(board) for board in DASHBOARDS}


if __name__ == "__main__":
    RULES.parent.mkdir(exist_ok=True)
    RULES.write_text(rules_text())
    BOARDS.mkdir(exist_ok=True)
    for name, text in boards().items():
        (BOARDS / name).write_text(text)
