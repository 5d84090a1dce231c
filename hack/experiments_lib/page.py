"""The points of the experiments as files, pictures and text."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from typing import Any

from experiments_lib.ground import ROOT, Ground

Json = dict[str, Any]
FOLDER = ROOT / "docs/experiments"


def keep(name: str, points: Json, ground: Ground) -> None:
    """Store the points of an experiment, with what the programs cost and the commit."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    whole = {"commit": commit, "costs": {key: asdict(cost) for key, cost in ground.costs.items()}, **points}
    (FOLDER / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")


def write() -> None:
    """Write pictures and text."""
