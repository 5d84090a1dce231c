"""A minute of hack/chaos, with a leader that leads again in it; `make chaos` runs ten, the workflow an hour."""

import subprocess

import pytest
from live import ROOT

SEED = 4


@pytest.mark.timeout(900)
def test_a_minute_of_chaos_leaves_the_ledger_right(cluster):
    if not cluster.own:
        pytest.skip("needs a way onto the nodes")
    command = [ROOT / "hack/chaos", "--minutes", "1", "--seed", str(SEED), "--installed", cluster.image]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
