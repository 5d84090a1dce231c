"""``punctual simulate jobs`` as programs use it: one object, the same for the same seed, and 2 for what cannot be."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import command_line
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
    return command_line.punctual("simulate", "jobs", *words, text=text, env=env)


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
    assert set(found["metrics"]) == {"reject_ratio", "miss_ratio", "utilization", "decision_seconds", "offer_seconds"}
    assert found["metrics"]["reject_ratio"] == 0.5


def test_the_plain_words_of_a_pool_mean_what_the_letters_of_the_papers_do():
    letters, words = (
        document("-", "--partition", *pair, "--assign", *more, text=TRACE)
        for pair, more in ((["EPR"], ["AN"]), (["equal"], ["all"]))
    )
    for found in (letters, words):
        del found["metrics"]["decision_seconds"], found["metrics"]["offer_seconds"]
    assert words == letters


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
        del found["metrics"]["decision_seconds"], found["metrics"]["offer_seconds"]
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
        (["-", "--chi", "1e308"], TRACE, "--chi"),
        (["-", "--chi", "1e-320"], TRACE, "--chi"),
        (["-", "--tau", "1e308"], TRACE, "--tau"),
        (["-", "--theta-cp", "1e308"], TRACE, "--theta-cp"),
        (["-", "--actual", "2,1"], TRACE, "--actual"),
        (["-", "--actual", "1,1e308"], TRACE, "--actual"),
        (["-"], b'{"id": "\xff"}\n', "line 1: is not UTF-8, in column 9"),
        (["-"], TRACE.encode("utf-16"), "line 1: is not UTF-8"),
        (["--workload", "mamat", "--tasks", "1", "--avg-load", "1e308"], None, "average"),
        (["--workload", "mamat", "--tasks", "1", "--system-load", "1e-308"], None, "load"),
        (["--workload", "mamat", "--tasks", "1", "--dc-ratio", "1e-5"], None, "dc_ratio"),
        (
            ["--workload", "mamat", "--tasks", "1", "--avg-load", "1e9", "--chi", "1e12"],
            None,
            "--workload: what is drawn",
        ),
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
    for wrong in ("[1]", "[1, true]", "[1, 1e300]", f"[1, {'9' * 400}]", "[" * 5000):
        file.write_text(wrong)
        refused = punctual("-", "--processors", "2", "--speeds", str(file), text=TRACE)
        assert refused.exit_code == 2
        assert "punctual: --speeds: " in refused.stderr


def test_the_largest_and_smallest_numbers_taken_are_worked_with():
    """Costs at both ends once ended in a logarithm of 0, times in an overflow."""
    lines = (
        '{"id": "a", "arrival": 0, "load": 2000, "deadline": 1e12, "chi": 1e-12, "tau": 1e3, "theta_cm": 1e6}',
        '{"id": "b", "arrival": 1e10, "load": 1e12, "deadline": 1e12, "chi": 1e12, "tau": 1e12, "theta_cp": 1e12}',
        '{"id": "r", "kind": "reservation", "arrival": 0, "start": 1e9, "end": 1e10, "processors": 16}',
    )
    found = document("-", text="\n".join(lines))
    assert [d["accepted"] for d in found["decisions"]] == [True, True, False]
    assert [job["met"] for job in found["jobs"]] == [True]
    assert 0 < found["metrics"]["utilization"] <= 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_has_nowhere_to_go_is_one_sentence_and_2(more, tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text(f"\N{BYTE ORDER MARK}{TRACE}".replace("\n", "\r\n"), encoding="utf-8")
    words = [sys.executable, "-c", "from punctual.cli import main; main()", "simulate", "jobs", trace, *more]
    env = {**os.environ, "PYTHONUNBUFFERED": ""}  # what is buffered fails when the program has ended
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "punctual: the output cannot be written: No space left on device\n")


def test_a_picture_may_go_into_a_pipe_and_a_closed_input_is_no_trace(tmp_path):
    (tmp_path / "t.jsonl").write_text(TRACE)
    run = f"{sys.executable} -c 'from punctual.cli import main; main()'"
    script = f"{run} simulate jobs t.jsonl --svg /dev/stdout | grep -c '</svg>'; {run} plan -f - --pool-state . <&-"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "1\n")
    assert done.stderr == "punctual: -: cannot be read: standard input is closed\n"


def test_a_picture_that_cannot_be_written_costs_nobody_the_answer(tmp_path):
    words = ["-", "--json", "--svg", str(tmp_path / "none" / "t.svg")]
    found = CliRunner().invoke(app, ["simulate", "jobs", *words], input=TRACE)
    assert len(json.loads(found.stdout)["decisions"]) == 2
    assert "t.svg cannot be written" in str(found.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("admission", ["exact", "fast", "hybrid"])
def test_a_fault_may_take_all_processors_for_good_or_for_no_time_at_all(admission):
    lines = (
        '{"id": "a", "arrival": 0, "load": 300, "deadline": 3000}',
        '{"id": "no", "kind": "fault", "arrival": 40, "processors": [0], "until": 40.0000000000001}',
        '{"id": "gone", "kind": "fault", "arrival": 50, "processors": [0]}',
        '{"id": "b", "arrival": 100, "load": 1, "deadline": 300}',
    )
    words = ("-", "--processors", "1", "--admission", admission, "--hybrid-threshold", "1")
    found = document(*words, text="\n".join(lines))
    assert [d["accepted"] for d in found["decisions"]] == [False, False]
    assert "earliest_deadline" not in found["decisions"][1], "no time would do"


def test_a_reservation_that_a_fault_robs_is_decided_once_and_counts_what_it_had():
    """Each change of its processors was one more decision, and one more window in the utilization: 2000 % of it."""
    ahead = '{"id": "r", "kind": "reservation", "arrival": 0, "start": 100, "end": 200, "processors": 4}'

    def run(since, processors):
        fault = f'{{"id": "f", "kind": "fault", "arrival": {since}, "processors": [0, 1, 2, 3]}}'
        return document("-", "--processors", str(processors), text=f"{ahead}\n{fault}")

    moved = run(10, 8)
    assert [d["processors"] for d in moved["decisions"]] == [[4, 5, 6, 7]]
    assert moved["metrics"]["utilization"] == pytest.approx(400 / (4 * 10 + 4 * 200))
    gone = run(150, 5)
    assert [d["processors"] for d in gone["decisions"]] == [[0, 1, 2, 3]]
    assert gone["metrics"]["utilization"] == pytest.approx(4 * 50 / (4 * 150 + 200))


def test_the_end_that_a_lost_chunk_would_have_had_counts_as_no_time():
    lines = [
        {"id": "a", "arrival": 0, "load": 100, "deadline": 1000},
        {"id": "f", "kind": "fault", "arrival": 30, "processors": [0, 1]},
        {"id": "b", "arrival": 40, "load": 1, "deadline": 1},
    ]
    trace = "\n".join(json.dumps(line) for line in lines)
    options = ("--processors", "2", "--chi", "10", "--tau", "0", "--network", "concurrent", "--assign", "AN")
    found = document("-", *options, text=trace)
    assert [chunk["end"] for chunk in found["chunks"]] == [30, 30]
    assert found["metrics"]["utilization"] == pytest.approx(1.0)  # both processors were busy until they were lost
