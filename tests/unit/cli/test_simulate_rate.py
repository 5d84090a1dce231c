"""``punctual simulate rate`` as programs and people use it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import punctual
from rates import EXAMPLE

from punctual.cli import app
from punctual.cli.completion import answer

TEXT = json.dumps(EXAMPLE)


def rate(*words, text=TEXT):
    return punctual("simulate", "rate", *words, text=text)


def test_a_scenario_gives_what_the_contract_says(tmp_path):
    file = tmp_path / "scenario.json"
    file.write_text(TEXT)
    found = json.loads(rate(str(file), "--json", text=None).stdout)
    assert list(found) == ["apps", "samples"]
    (said,) = found["apps"]
    assert list(said) == [
        "id",
        "settling_iterations",
        "in_band_fraction",
        "mean_error",
        "oscillations",
        "periods",
        "cpu_overhead",
    ]
    assert (said["id"], len(said["settling_iterations"]), len(said["periods"])) == ("p1", 2, 2)
    assert all(list(sample) == ["time", "app", "rate", "target", "period", "slice"] for sample in found["samples"])
    assert {sample["target"] for sample in found["samples"]} == {0.4, 0.2}


def test_one_seed_gives_the_same_bytes_and_another_one_others():
    first, again, other = (rate("-", "--json", "--seed", seed).stdout for seed in ("7", "7", "8"))
    assert first == again
    assert first != other


def test_the_table_has_a_row_for_each_target():
    shown = rate("-").stdout.splitlines()
    rows = [line for line in shown if " ms " in line]
    assert [("40.0%" in row, "20.0%" in row) for row in rows] == [(True, False), (False, True)]
    assert "in band in 100.0% of the iterations" in shown[3]


def test_a_target_that_is_never_reached_is_shown_as_such():
    slow = {**EXAMPLE, "duration": 70}
    slow["apps"] = [{**EXAMPLE["apps"][0], "io": 100}]
    shown = rate("-", text=json.dumps(slow)).stdout
    assert " not " in shown
    assert rate("-", "--json", text=json.dumps(slow)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "punctual: SCENARIO: Invalid JSON: Expecting property name"),
        (TEXT.replace('"rate": 0.4', '"rate": 1.4'), "punctual: SCENARIO: apps.0.targets.0.rate: Input should be less"),
        (TEXT.replace('"nodes": 4', '"nodes": 3'), "punctual: SCENARIO: apps.0.ranks: 4 ranks need as many nodes"),
        ("", "punctual: SCENARIO: Invalid JSON"),
    ],
)
def test_what_is_not_understood_ends_it_with_2_before_it_begins(text, said):
    found = rate("-", "--json", text=text)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(said)


def test_a_file_that_is_not_there_is_named():
    found = rate("/nowhere/at/all.json")
    assert (found.exit_code, found.stderr) == (
        2,
        "punctual: SCENARIO: /nowhere/at/all.json cannot be read: No such file or directory\n",
    )


def test_its_name_and_options_are_completed():
    assert answer(app, ["simulate", "r"]).splitlines()[0] == "rate"
    assert answer(app, ["simulate", "rate", "--s"]).splitlines()[0] == "--seed"
    assert answer(app, ["simulate", "rate", "sc"]).splitlines()[-1] == ":0", "files"


def test_it_needs_no_numpy():
    """So it starts quickly."""
    script = Path(sys.executable).with_name("punctual")
    code = (
        "import sys; from punctual.cli import main; sys.argv=['punctual','simulate','rate','-','--json']\n"
        "try: main()\nexcept SystemExit: pass\nprint('numpy' in sys.modules, file=sys.stderr)"
    )
    assert script.exists()
    ran = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "False"
