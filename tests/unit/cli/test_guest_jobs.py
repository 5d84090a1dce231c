"""Jobs without a deadline on each screen of the command line: they have no deadline, no ETA, no slack, and no blank."""

import io
import json
import re
import xml.etree.ElementTree as ET

import pytest
from guest_job import NOW, at, chunk, guest_job, guest_pod
from rich.console import Console

from punctual.cli.cluster import tables
from punctual.cli.cluster.answers import submitted
from punctual.cli.cluster.writes import PROMISED, Submitted
from punctual.cli.plan import jobs
from punctual.cli.record import WatchRecorder, read
from punctual.cli.screen import Teller, screen
from punctual.errors import PunctualError
from punctual.view.changes import Change
from punctual.view.jobs import Board, job_of
from punctual.view.svg import svg
from punctual.view.timeline import timeline

DONE = {"Completed": ("True", "Completed", "all 400 units are done")}
PROMISED_JOB = {
    "metadata": {"uid": "u-primes", "name": "primes", "namespace": "demo", "creationTimestamp": at(-10)},
    "spec": {"units": 100, "deadline": "60s", "pool": "main"},
    "status": {"state": "Running", "promise": {"deadline": at(50), "finish": at(40)}, "eta": at(40)},
}


def over():
    return guest_job(state="Completed", conditions=DONE, chunks=(), done=400, finishTime=at(0))


def board_of(*bodies):
    board = Board()
    board.apply([Change("DivisibleJob", "ADDED", body) for body in bodies])
    return board


def printed(part, width=130):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(part)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 100, 130])
def test_watch_shows_chunks_of_guests_without_an_end_that_nothing_knows(width):
    chunks = [chunk(0, 40, done=10), chunk(40, 80, ends=-3.0)]
    text = printed(screen(board_of(guest_job(chunks=chunks)), NOW, width=width), width)
    assert re.search(r"sums +Running .* 28% +no deadline\n", text)
    assert re.search(r"0-40 +guest .* 25% +about 1:00 left +n1", text)
    assert re.search(r"40-80 +guest .* 0% +slower than expected +n1", text)
    assert "…" not in text
    assert not re.search("ETA|slack|ends", text)


def test_watch_says_how_long_a_finished_guest_took():
    assert re.search(r"sums +Completed .* 100% +took 1:40\n", printed(screen(board_of(over()), NOW)))


def test_watch_in_a_pipe_says_that_there_is_no_deadline():
    lines = Teller().tell(board_of(guest_job()), NOW)
    assert lines == ["sums: Running; 115 of 400 units, 3 chunks; no deadline"]
    assert Teller().tell(board_of(over()), NOW) == ["sums: Completed; Completed, all 400 units are done; took 1:40"]


def test_tables_say_none_and_put_guests_behind_deadlines():
    found = tables.in_order(board_of(guest_job(), PROMISED_JOB, over() | {"metadata": {
        **over()["metadata"], "uid": "u-over", "name": "over"}}).jobs.values())  # fmt: skip
    assert [job.name for job in found] == ["primes", "sums", "over"]
    rows = printed(tables.jobs(found, NOW)).splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["0:10", "none", "100"]
    assert "0:50" in rows[0]


def test_json_names_the_class_and_leaves_out_what_there_is_not():
    found = tables.job_document(job_of(guest_job()))
    assert found["class"] == "Guest"
    assert not {"deadlineTime", "eta", "slackSeconds", "offer"} & found.keys()
    assert "class" not in tables.job_document(job_of(PROMISED_JOB))
    assert tables.job_document(job_of(over()))["finishTime"] == at(0)


def test_submit_says_that_a_guest_is_admitted_not_promised(capsys):
    one = Submitted(job_of(guest_job(observedGeneration=1)), "created")
    assert (one.answer, one.settled(0.0)) == (PROMISED, True)
    submitted([one], timeout=60.0, output="table")
    assert capsys.readouterr().out.splitlines() == [
        "demo/sums created: admitted as a guest by pool main",
        "  Guest: it has no deadline and runs on what is left",
    ]
    submitted([one], timeout=60.0, output="json")
    assert json.loads(capsys.readouterr().out)[0]["answer"] == "guest"


def test_the_picture_of_a_record_calls_it_a_guest_without_a_deadline(tmp_path):
    mine = chunk(100, 140, created=-30.0)
    story = [
        (-30, "DivisibleJob", guest_job(chunks=[mine])),
        (-20, "Pod", guest_pod(mine)),
        (-1, "Pod", guest_pod(mine, phase="Succeeded")),
        (0, "DivisibleJob", over()),
    ]
    with WatchRecorder(tmp_path / "record") as recorder:
        for seconds, kind, body in story:
            recorder.note([Change(kind, "MODIFIED", body)], NOW + seconds)
    line = timeline(read(tmp_path / "record"))
    (bar,) = line.bars
    assert (bar.kind, bar.planned_end, line.end) == ("Guest", None, NOW)
    texts = ["".join(node.itertext()) for node in ET.fromstring(svg(line)).iter("{http://www.w3.org/2000/svg}text")]
    row = texts[texts.index("sums") :]
    assert row == ["sums", "guest", "none", "", "1:40", ""]
    assert not any(text.endswith("due") for text in texts)


def test_plan_says_that_a_guest_has_nothing_to_plan():
    body = {"kind": "DivisibleJob", "metadata": {"name": "sums"}, "spec": {"class": "Guest", "units": 4}}
    with pytest.raises(
        PunctualError, match=r"^f\.yaml: spec\.class: a Guest has no deadline, so there is nothing to plan"
    ):
        jobs([body], "f.yaml", namespace="demo", now=NOW)
