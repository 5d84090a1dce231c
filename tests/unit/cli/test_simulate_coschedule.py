"""``punctual simulate coschedule`` as programs and people use it."""

import json
import subprocess
import sys

import pytest
from command_line import punctual
from coschedule import EXAMPLE, STATIONS

from punctual.cli import app
from punctual.cli.completion import answer
from punctual.sim.coschedule import table

SHORT = {**EXAMPLE, "duration": 1.0}
TEXT = json.dumps(SHORT)
SMALL = json.dumps({**STATIONS, "policy": "PRE", "tasks": 200})


def coschedule(*words, text=TEXT):
    return punctual("simulate", "coschedule", *words, text=text)


def test_slices_give_what_the_contract_says(tmp_path):
    file = tmp_path / "scenario.json"
    file.write_text(TEXT)
    found = json.loads(coschedule(str(file), "--json", text=None).stdout)
    assert list(found) == ["apps", "nodes"]
    (said,) = found["apps"]
    assert list(said) == ["id", "rate", "iterations", "cpu", "spun", "overlap"]
    assert said["id"] == "a"
    assert said["rate"] == pytest.approx(said["iterations"] * 0.00505)
    assert [list(node) for node in found["nodes"]] == [["node", "local"]] * 2
    assert [node["node"] for node in found["nodes"]] == [0, 1]


def test_stations_give_what_the_contract_says():
    found = json.loads(coschedule("-", "--json", text=SMALL).stdout)
    assert list(found) == ["system_code", "dret", "dwait", "lret", "lwait", "task_d", "queue", "served"]
    assert list(found["served"]) == ["distributed", "local"]
    assert found["served"]["distributed"] == 200


def test_an_empty_object_is_a_scenario():
    assert json.loads(coschedule("-", "--json", text="{}").stdout)["apps"][0]["id"] == "a"


@pytest.mark.parametrize("text", [TEXT.replace('"phases": [0.0, 0.03], ', ""), SMALL])
def test_one_seed_gives_the_same_bytes_and_another_one_others(text):
    first, again, other = (coschedule("-", "--json", "--seed", seed, text=text).stdout for seed in ("7", "7", "8"))
    assert first == again
    assert first != other


def test_people_get_tables():
    shown = coschedule("-").stdout.splitlines()
    assert shown[0].split() == ["app", "rate", "iterations", "CPU", "of", "it", "waiting", "all", "could", "run"]
    assert shown[1].split()[0] == "a"
    assert [line.split()[0] for line in shown[3:5]] == ["0", "1"]
    shown = coschedule("-", text=SMALL).stdout
    assert shown.splitlines()[1].split()[:2] == ["distributed", "200"]
    assert "SystemCoDe 0." in shown
    assert "–" in coschedule("-", text=SMALL.replace('"pdt": 0.5', '"pdt": 1')).stdout


def test_the_papers_table_needs_no_scenario_and_takes_one(monkeypatch):
    asked = []

    def codes(policy, base, seed):
        asked.append((base.tasks, seed))
        return {cell: 0.1 * cell.mrql for cell in table.cells(policy)}

    monkeypatch.setattr(table, "codes", codes)
    found = json.loads(coschedule("--paper", "--json", text=None).stdout)
    assert (found["letters"], len(found["table"])) == (26, 26)
    shown = coschedule("-", "--paper", "--seed", "3", text=SMALL).stdout
    assert set(asked) == {(10_000, 0), (200, 3)}
    head, *rows = shown.splitlines()[:7]
    assert head.split() == list(table.PUBLISHED)
    assert [row.split()[0] for row in rows] == list(table.POLICIES)
    assert "+0.300 I (D)" in rows[0]
    assert f"{found['equal']} of 26 letters as published" in shown


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["-"], "{", "SCENARIO: Invalid JSON: Expecting property name"),
        (["-"], "", "SCENARIO: Invalid JSON"),
        (["-"], TEXT.replace('"spin"', '"yield"'), "SCENARIO: apps.0.wait: Input should be 'spin' or 'block'"),
        (["-"], SMALL.replace('"PRE"', '"GANG"'), "SCENARIO: policy: Input should be 'LIN', 'IMP'"),
        (["-"], '{"model": "slots"}', "SCENARIO: model: Input should be 'slices' or 'stations', not 'slots'"),
        (["-", "--paper"], TEXT, "SCENARIO: model: --paper needs 'stations', not 'slices'"),
        ([], None, "SCENARIO: is missing: name a file, or - for standard input"),
        (["/nowhere/at/all.json"], None, "SCENARIO: /nowhere/at/all.json cannot be read: No such file or directory"),
    ],
)
def test_what_is_not_understood_ends_it_with_2_before_it_begins(words, text, said):
    found = coschedule(*words, "--json", text=text)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"punctual: {said}")


def test_its_name_and_options_are_completed():
    assert answer(app, ["simulate", "co"]).splitlines()[:2] == ["control", "coschedule"]
    assert answer(app, ["simulate", "coschedule", "--p"]).splitlines()[0] == "--paper"


def test_it_needs_no_numpy():
    """So it starts quickly."""
    code = (
        "import sys; from punctual.cli import main; sys.argv=['punctual','simulate','coschedule','-','--json']\n"
        "try: main()\nexcept SystemExit: pass\nprint('numpy' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "False"
