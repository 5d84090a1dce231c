"""The demo's guest job: what it has to do, where it runs, and what its chunks have found together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from demo_lib.objects import CPU, NAMESPACE
from demo_lib.programs import Cost
from punctual.cli.kubectl import Kubectl
from punctual.view.jobs import Board, JobView

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/primes/primes.py"
SECONDS = 45.0
"""Seconds that the guest job takes while no other work comes ..."""
PART = 0.8
"""... if it gets this part of its nodes."""


def units(cost: Cost, cores: float) -> int:
    """Return how many units the guest job has. ``cores``: CPU of the nodes."""
    return max(20, round(SECONDS * PART * cores / (cost.chi * CPU)))


def nodes(board: Board, job: JobView) -> dict[str, str]:
    """Return the nodes with running pods of a job, and one of these pods each."""
    return {pod.node: pod.name for pod in board.pods.values() if pod.job == job.uid and pod.phase == "Running"}


def told(kubectl: Kubectl, job: str) -> list[str]:
    """Return what was told of moves of a job's chunks."""
    words = ("get", "events", "-n", NAMESPACE, "--field-selector", "reason=GuestMoves", "-o", "json")
    found = json.loads(kubectl.run(*words))["items"]
    about = [e for e in found if (e.get("involvedObject") or {}).get("name", "").startswith(f"{job}-")]
    return [e["message"] for e in about]


def joined(kubectl: Kubectl, job: str, total: int) -> str:
    """Return what a job's chunks have found together: the example joins their results."""
    data = json.loads(kubectl.run("get", "configmap", f"{job}-results", "-n", NAMESPACE, "-o", "json"))["data"]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.mkdir()
        for key, text in data.items():
            begin, end = map(int, key.split("-"))
            (results / f"{begin}-{end}").write_text(text)
        message = Path(folder) / "message"
        env = {
            "PUNCTUAL_RESULTS": str(results),
            "PUNCTUAL_TOTAL": str(total),
            "PUNCTUAL_TERMINATION_LOG": str(message),
        }
        subprocess.run([sys.executable, EXAMPLE, "reduce"], env=env, check=True, stdout=subprocess.DEVNULL)
        return message.read_text()
