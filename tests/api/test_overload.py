"""A thousand agents report each second and a chunk runs on each node: every job is answered all the same.

How long that takes is a benchmark (`hack/bench reports`), because it depends on the machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench/reports.py"
AGENTS = 1000
SECONDS = 10


def measured(kubeconfig):
    options = ["--agents", str(AGENTS), "--pods", "1", "--seconds", str(SECONDS), "--warm", "5", "--patience", "300"]
    done = subprocess.run(
        [sys.executable, BENCH, *options],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["reports"]


@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_beside_the_reports_of_a_thousand_agents_every_job_is_decided(kubeconfig):
    found = measured(kubeconfig)  # ends badly where a job is not decided while they go on reporting
    assert found["decisions"]["jobs"] >= 10, found
    assert not [code for code in found["codes"] if code.startswith("4")], "none is refused"
    assert found["codes"]["200"] >= AGENTS, found
    assert found["operator"]["grown_mib"] <= 20, found
    assert found["operator"]["mailbox_deepest"] <= 2 * AGENTS, "what waits is bounded, and can be seen"
