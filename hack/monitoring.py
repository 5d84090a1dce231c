#!/usr/bin/env python3
"""Writes what monitors Punctual: the alerts in charts/punctual/alerts. A test compares them."""

from __future__ import annotations

from pathlib import Path

import yaml
from monitoring_lib.alerts import rules

CHART = Path(__file__).resolve().parent.parent / "charts" / "punctual"
RULES = CHART / "alerts" / "punctual.yaml"
HEADER = "# Made by hack/generate from hack/monitoring_lib/alerts.py; edit that.\n"


def rules_text() -> str:
    """Return the text of the file of rules."""
    return HEADER + yaml.safe_dump(rules(), sort_keys=False, width=4096, allow_unicode=True)


if __name__ == "__main__":
    RULES.parent.mkdir(exist_ok=True)
    RULES.write_text(rules_text())
