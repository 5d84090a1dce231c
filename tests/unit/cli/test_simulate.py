"""``punctual simulate jobs`` as programs use it: one object, the same for the same seed, and 2 for what cannot be."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from rich.text import Text
from typer.testing import CliRunner

from punctual.cli import app

TRACE = """\
{"id": "j1", "arrival": 0.0, "load": 200.0, "deadline": 4000.0}
{"id": "j2", "arrival": 3.5, "load": 80.0, "deadline": 90.0, "chi": 100.0, "tau": 1.0, "theta_cm": 0, "theta_cp": 0}

{"id": "f1", "kind": "fault", "arrival": 500.0, "processors": [0, 1, 2], "until": 900.0}
"""


def punctual(*words, text=None, env=None):
    return CliRunner().invoke(app, ["simulate", "jobs", *words], input=text, env=env)


def screen(*words, text, width=108):
    """Return the lines that a terminal shows, and what stood in its progress bar last."""
    found = punctual(*words, text=text, env={"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)})
    assert found.exit_code == 0, found.output
    plain = [Text.from_ansi(line).plain for line in found.stdout.splitlines()]
    return plain, re.findall(r"\d+/\d+", Text.from_ansi(found.stderr).plain)[-1]


def document(*words, text=None):
    found = punctual(*words, "--json", text=text)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_a_trace_gives_what_the_contract_says():
    found = document("-", text=TRACE)
    assert list(found) == ["decisions", "chunks", "jobs", "metrics"]
    first, second = found["decisions"]
    assert (first["id"], first["time"], first["accepted"]) == ("j1", 0.0, True)
    # E(200, 6) on one port: the least number that ends within 4000 s
    assert first["promised_finish"] == pytest.approx(3450.967334217631, rel=1e-12)
    assert (second["id"], second["accepted"]) == ("j2", False)
    assert second["earliest_deadline"] > 90.0
    assert {c["processor"] for c in found["chunks"] if c["end"] == 500.0 and c["load"] == 0.0} == {0, 1, 2}
    assert sum(c["load"] for c in found["chunks"]) == pytest.approx(200.0)
    assert set(found["metrics"]) == {"reject_ratio", "miss_ratio", "utilization", "decision_seconds"}
    assert found["metrics"]["reject_ratio"] == 0.5


def test_a_reservation_gets_its_processors_and_stands_in_the_table(tmp_path):
    ahead = '{"id": "r1", "kind": "reservation", "arrival": 5.0, "start": 4000.0, "end": 5000.0, "processors": 4}'
    found = document("-", text=f"{TRACE}{ahead}\n")
    answer = next(d for d in found["decisions"] if d["id"] == "r1")
    assert (answer["accepted"], len(set(answer["processors"]))) == (True, 4)
    assert found["metrics"]["utilization"] > document("-", text=TRACE)["metrics"]["utilization"] * 0.5
    shown = punctual("-", "--svg", str(tmp_path / "r.svg"), text=f"{TRACE}{ahead}\n")
    assert "4 ahead" in shown.stdout
    assert "r1" in (tmp_path / "r.svg").read_text()
    late = ahead.replace("4000.0", "3000.0").replace('"processors": 4', '"processors": 99')
    refused = next(d for d in document("-", text=f"{TRACE}{late}\n")["decisions"] if d["id"] == "r1")
    assert (refused["accepted"], refused["reason"]) == (False, "InfeasibleReservation")


AHEAD = """\
{"id": "slow", "arrival": 0, "load": 8, "deadline": 100}
{"id": "quick", "arrival": 1, "load": 1, "deadline": 21, "chi": 10}
{"id": "held", "kind": "reservation", "arrival": 2, "start": 80, "end": 100, "processors": 1}
{"id": "no", "kind": "reservation", "arrival": 3, "start": 80, "end": 107, "processors": 2}
{"id": "last", "arrival": 4, "load": 8, "deadline": 100}
"""
SMALL = "--processors", "2", "--chi", "10", "--tau", "0", "--integer-units", "--network", "concurrent"


def test_the_progress_bar_counts_reservations_in_what_is_to_come_too():
    assert screen("-", *SMALL, text=AHEAD)[1] == "5/5"


def test_a_terminal_shows_who_has_the_processors_when_reservations_too():
    shown, _ = screen("-", *SMALL, text=AHEAD)
    assert [line.split()[:2] for line in shown[1:4]] == [["A", "slow"], ["B", "quick"], ["░", "held"]]
    assert document("-", *SMALL, text=AHEAD)["chunks"][0]["job"] == "quick", "slow is A though its chunk ends later"
    rows = [line[7:].rstrip() for line in shown if re.match(r" {4}[01]  ", line)]
    assert rows == ["A" * 80 + "░" * 20, " " + "B" * 10 + "C" * 80], "a column is a second"


def test_what_is_refused_has_no_finish_in_the_table():
    shown = punctual("-", *SMALL, text=AHEAD).stdout.splitlines()
    assert next(line.split()[-1] for line in shown if line.startswith(" no ")) == "InfeasibleReservation"
    assert next(line.split()[-1] for line in shown if line.startswith(" held ")) == "100"


def test_one_seed_gives_the_same_bytes():
    words = "--workload", "mamat", "--tasks", "20", "--seed", "7", "--actual", "0.5,1.5", "--network", "concurrent"
    first, second = document(*words), document(*words)
    for found in (first, second):
        del found["metrics"]["decision_seconds"]
    assert json.dumps(first) == json.dumps(second)


def test_offers_are_left_out_when_nobody_wants_them():
    assert all("earliest_deadline" not in d for d in document("-", "--no-offers", text=TRACE)["decisions"])


def test_a_table_and_a_picture(tmp_path):
    found = punctual("-", "--svg", str(tmp_path / "t.svg"), text=TRACE)
    assert found.exit_code == 0
    assert "would do" in found.stdout
    assert "refused 50.0%" in found.stdout
    root = ET.fromstring((tmp_path / "t.svg").read_text())
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("j1 on processor 00") for title in titles)


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["-"], '{"id": "j1", "arrival": 0, "load": -1, "deadline": 5}', "line 1: load"),
        (["-"], TRACE + "{", "line 5"),
        (["-"], '{"id": "j1", "arrival": NaN, "load": 1, "deadline": 5}', "line 1"),
        (["-", "--processors", "2"], TRACE, "line 4: processors: there is no 2"),
        (["/nowhere/trace"], None, "TRACE"),
        ([], None, "TRACE or --workload"),
        (["--workload", "mamat"], None, "--tasks or --horizon"),
        (["--workload", "mamat", "--tasks", "1", "--dc-ratio", "0"], None, "dc_ratio"),
        (["-", "--chi", "0"], TRACE, "chi"),
        (["-", "--actual", "2,1"], TRACE, "--actual"),
        (["-", "--processors", "0"], TRACE, "--processors"),
        (["-", "--processors", "10000000000"], TRACE, "--processors"),
        (["-", "--margin", "inf"], TRACE, "--margin"),
        (["--workload", "mamat", "--horizon", "inf"], None, "--horizon"),
        (["-", "--order", "LIFO"], TRACE, "--order"),
        (["-", "--order", "FIFO", "--admission", "fast"], TRACE, "--order"),
        (["-", "--bound", "1", "--miss-set-point", "0.1"], TRACE, "--bound"),
    ],
)
def test_what_cannot_be_is_named_and_ends_with_2(words, text, said):
    found = punctual(*words, text=text)
    assert found.exit_code == 2
    assert said in found.output
    assert "Traceback" not in found.output


def test_speeds_are_one_per_processor(tmp_path):
    file = tmp_path / "speeds.json"
    file.write_text("[1, 2]")
    line = '{"id": "j", "arrival": 0, "load": 150, "deadline": 12000}'
    found = document("-", "--processors", "2", "--speeds", str(file), text=line)
    quick, slow = sorted(found["chunks"], key=lambda c: c["processor"])
    assert quick["end"] == pytest.approx(slow["end"])
    assert quick["load"] > 1.9 * slow["load"]
    file.write_text("[1]")
    assert "a list of 2" in punctual("-", "--processors", "2", "--speeds", str(file), text=TRACE).output
