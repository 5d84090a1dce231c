"""``hack/edge``: one seed is one run, bit for bit, and the last line counts."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def edge(*words):
    return subprocess.run([ROOT / "hack/edge", *words], capture_output=True, text=True, check=False, timeout=600)


def digest(ran):
    return re.search(r"digest (\w+)", ran.stdout)[1]


def test_the_same_seed_is_the_same_run_in_a_fresh_process():
    first, second, other = (edge("--replay", seed) for seed in ("3", "3", "4"))
    assert first.returncode == 0, first.stdout
    assert first.stdout == second.stdout
    assert digest(first) != digest(other)


def test_the_last_line_counts():
    ran = edge("--seeds", "2", "--start", "5")
    assert ran.returncode == 0, ran.stdout
    assert re.fullmatch(r"2 seeds, 0 failed, \d\.\d virtual hours, \d+ faults\n", ran.stdout)
