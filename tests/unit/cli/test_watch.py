"""What the command line reads off the cluster, and what it makes of it."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from punctual.cli.kubectl import Follower, Kubectl
from punctual.cli.record import WatchRecorder, read
from punctual.cli.screen import Teller, bar, screen
from punctual.errors import ClusterError, PunctualError
from punctual.notation.duration import format_time
from punctual.view.changes import Change, Reset
from punctual.view.elapsed import clock
from punctual.view.jobs import Board, job_of, pod_of
from punctual.view.svg import svg
from punctual.view.timeline import timeline

NOW = 1_800_000_000.0


def at(seconds):
    return format_time(NOW + seconds)


def job(name="primes", *, state="Waiting", conditions=None, spec=None, **status):
    said = [{"type": k, "status": s, "reason": r, "message": m} for k, (s, r, m) in (conditions or {}).items()]
    return {
        "metadata": {"uid": f"u-{name}", "name": name, "namespace": "demo", "creationTimestamp": at(0)},
        "spec": {"units": 100, "deadline": "60s", "template": {"secret": "x"}} | (spec or {}),
        "status": {"state": state, "conditions": said} | status,
    }


ADMITTED = {"Admitted": ("True", "Feasible", "on 2 processors"), "OnTrack": ("True", "OnTrack", "")}
PROMISE = {"deadline": at(60), "finish": at(50), "margin": "2s", "processors": 2, "start": at(1)}
CHUNK = {
    "begin": 0, "end": 50, "node": "n1", "attempt": 1, "kind": "Chunk", "pod": "primes-a", "createdTime": at(1),
    "promisedEnd": at(49), "done": 20,
}  # fmt: skip


def running(**more):
    status = {"promise": PROMISE, "eta": at(50), "startTime": at(1), "chunks": [CHUNK], "units": {"done": 20}}
    return job(state="Running", conditions=ADMITTED, **(status | more))


def done(finish, reason="Completed"):
    state = "Completed" if reason == "Completed" else "Missed"
    return job(state=state, conditions=ADMITTED | {"Completed": ("True", reason, "")}, promise=PROMISE, startTime=at(1),
               finishTime=at(finish), units={"done": 100})  # fmt: skip


def pod(
    name="primes-a",
    *,
    kind="Chunk",
    begin=0,
    end=50,
    node="n1",
    created=1,
    started=None,
    finished=None,
    message="",
    phase=None,
):
    state = {}
    if finished is not None:
        state = {
            "terminated": {"startedAt": at(started), "finishedAt": at(finished), "message": message, "exitCode": 0}
        }
    elif started is not None:
        state = {"running": {"startedAt": at(started)}}
    found = "Succeeded" if finished is not None else "Running" if started is not None else "Pending"
    return {
        "metadata": {
            "uid": f"p-{name}", "name": name, "creationTimestamp": at(created),
            "labels": {"punctual.dev/job-uid": "u-primes", "punctual.dev/kind": kind},
            "annotations": {"punctual.dev/begin": str(begin), "punctual.dev/end": str(end)},
        },
        "spec": {"nodeName": node, "containers": [{"env": "secret"}]},
        "status": {"phase": phase or found, "containerStatuses": [{"state": state}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reason", "slack"),
    [
        (job(), "", None),
        (job(state="Measuring", conditions={"Admitted": ("Unknown", "Measuring", "")}), "Measuring", None),
        (
            job(state="Refused", conditions={"Admitted": ("False", "InfeasibleCapacity", "")}),
            "InfeasibleCapacity",
            None,
        ),
        (job(state="Suspended", conditions={"Admitted": ("False", "Suspended", "")}), "Suspended", None),
        (job(conditions=ADMITTED, promise=PROMISE, eta=at(50)), "Feasible", 10),
        (running(), "Feasible", 10),
        (
            job(state="Late", conditions=ADMITTED | {"OnTrack": ("False", "Overrun", "")}, promise=PROMISE, eta=at(90)),
            "Overrun",
            -30,
        ),
        (done(55), "Completed", 5),
        (done(60), "Completed", 0),
        (done(61, "DeadlineMissed"), "DeadlineMissed", -1),
        (
            job(state="Failed", conditions=ADMITTED | {"Failed": ("True", "ChunkFailed", "")}, finishTime=at(9)),
            "ChunkFailed",
            51,
        ),
    ],
)
def test_a_job_has_the_state_of_its_status_and_the_reason_of_the_condition_that_says_why(body, reason, slack):
    found = job_of(body)
    assert (found.state, found.reason, found.slack) == (body["status"]["state"], reason, slack)
    assert found.deadline == NOW + 60


def test_a_deadline_edited_and_applied_counts_before_the_spec():
    assert job_of(job(applied={"deadlineTime": at(90)})).deadline == NOW + 90
    assert job_of(job(spec={"deadline": None, "deadlineTime": at(70)})).deadline == NOW + 70


def test_a_pod_of_somebody_else_is_none_of_ours():
    body = pod()
    del body["metadata"]["annotations"]
    assert pod_of(body) is None


def test_a_watch_that_begins_anew_forgets_jobs_that_went_meanwhile_and_keeps_pods():
    board = Board()
    board.apply([Change("DivisibleJob", "ADDED", running()), Change("Pod", "ADDED", pod())])
    board.apply([Reset("DivisibleJob"), Change("DivisibleJob", "ADDED", job("other"))])
    assert [j.name for j in board.in_order()] == ["other"]
    assert list(board.pods) == ["p-primes-a"]


def test_the_first_forecast_is_kept_when_it_moves():
    board = Board()
    board.apply([Change("DivisibleJob", "ADDED", running())])
    board.apply([Change("DivisibleJob", "MODIFIED", running(promise=PROMISE | {"finish": at(40)}))])
    assert board.first_finish["u-primes"] == NOW + 50


def shown(*bodies, width=130, height=40, now=10):
    board = Board()
    board.apply([Change("DivisibleJob", "ADDED", body) for body in bodies])
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123  closed with the test
    console.print(screen(board, NOW + now, width=width, height=height))
    console.file.close()
    return console.export_text()


def test_the_screen_shows_each_chunk_with_its_progress():
    text = shown(running())
    assert re.search(r"primes +Running .* 20% +deadline in 0:50 +ETA 0:40 +slack 0:10", text)
    assert re.search(r"0-50 .* 40% +ends in 0:39 +n1", text)


def test_the_screen_says_why_not_and_what_instead():
    no = {"Admitted": ("False", "InfeasibleCapacity", "0 of 12 are free")}
    refused = job("clocks", state="Refused", conditions=no,
                  offer={"earliestDeadline": "1m22s", "earliestDeadlineTime": at(142), "largestLoad": 7,
                         "validUntilTime": at(60),
                         "processors": {"more": 3, "from": at(5), "until": at(45)}})  # fmt: skip
    text = shown(refused)
    assert "InfeasibleCapacity: 0 of 12 are free" in text
    assert f"would be promised: spec.deadlineTime {at(142)}, or 7 units by the requested deadline, " in text
    assert f"or all of it with 3 more processors from {at(5)} until {at(45)}" in " ".join(text.split())


def test_more_chunks_than_rows_are_counted():
    many = [CHUNK | {"begin": i, "end": i + 1, "pod": f"p{i}"} for i in range(50)]
    text = shown(running(chunks=many), height=13)
    assert len(re.findall("ends in", text)) == 10
    assert "and 40 more chunks" in text


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut_off_on_a_usual_terminal(width):
    text = shown(running(), width=width)
    assert "slack 0:10" in text
    assert "…" not in text


@pytest.mark.parametrize(("share", "cells"), [(0, "░░░░"), (1, "████"), (2, "████"), (0.5, "██░░"), (5 / 32, "▋░░░")])
def test_a_bar_is_filled_to_an_eighth(share, cells):
    assert bar(share, 4, "").plain == cells


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (-0.4, "0:00"), (-61, "-1:01"), (3661, "1:01:01")]
)
def test_seconds_as_a_clock_tells_them(seconds, text):
    assert clock(seconds) == text


def test_lines_tell_decisions_at_once_and_progress_now_and_then():
    board, teller = Board(), Teller()

    def tell(seconds, body):
        board.apply([Change("DivisibleJob", "MODIFIED", body)])
        return teller.tell(board, NOW + seconds)

    assert tell(0, job()) == []
    assert len(tell(1, running(units={"done": 0}))) == 1
    assert tell(2, running(units={"done": 10})) == []
    assert len(tell(12, running(units={"done": 20}))) == 1
    assert tell(23, running(units={"done": 20})) == []
    assert "Completed" in tell(55, done(55))[0]


# the record and its picture


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "record.jsonl"
    chunks = [CHUNK, CHUNK | {"begin": 50, "end": 100, "pod": "primes-b", "createdTime": at(1)}]
    story = [
        (1, "DivisibleJob", running(chunks=chunks)),
        (1.2, "Pod", pod()),
        (1.2, "Pod", pod("primes-b", begin=50, end=100)),
        (3.1, "Pod", pod(started=3)),
        (3.2, "Pod", pod("primes-b", begin=50, end=100, started=3)),
        (40.5, "Pod", pod(started=3, finished=40)),
        (41.5, "Pod", pod("primes-b", begin=50, end=100, started=3, finished=41)),
        (43, "Pod", pod("primes-r", kind="Reduce", begin=100, end=101, created=42)),
        (46.4, "Pod", pod("primes-r", kind="Reduce", begin=100, end=101, created=42, started=44, finished=46)),
        (47, "DivisibleJob", done(46.5)),
        (
            48,
            "DivisibleJob",
            job("clocks", state="Refused", conditions={"Admitted": ("False", "InfeasibleCapacity", "no")}),
        ),
    ]
    with WatchRecorder(path) as recorder:
        for seconds, kind, body in story:
            recorder.note([Change(kind, "MODIFIED", body)], NOW + seconds)
    return path


def test_a_record_holds_no_templates_and_no_environments(record):
    assert "secret" not in record.read_text()
    assert len(list(read(record))) == 11


def test_bars_share_a_row_only_one_after_the_other(record):
    line = timeline(read(record))
    assert [(b.label, b.row) for b in line.bars] == [("0-50", 0), ("50-100", 1), ("reduce", 0)]
    assert line.rows == (("n1", 2),)
    first = line.bars[0]
    assert (first.created, first.started, first.ended) == (NOW + 1, NOW + 3, NOW + 40.5)
    assert (line.begin, line.end) == (NOW, NOW + 60)


def test_the_picture_is_xml_with_jobs_deadlines_and_results(record):
    drawn = svg(timeline(read(record)), title="A <run>")
    root = ET.fromstring(drawn)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A <run>", "primes due", "0-50", "promised", "1:00", "0:50", "0:46", "InfeasibleCapacity"} <= set(texts)


def test_a_record_of_other_jobs_is_an_error(record):
    with pytest.raises(PunctualError, match="has no job absent"):
        timeline(read(record), ["absent"])


def test_a_file_that_is_no_record_is_told_by_its_line(tmp_path):
    (tmp_path / "x").write_text('{"time": 1}\n')
    with pytest.raises(PunctualError, match="x:1 is not a line of a record"):
        list(read(tmp_path / "x"))


# kubectl


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A kubectl that tells what a test puts into a folder: one file per resource, read anew by each watch."""
    script = tmp_path / "kubectl"
    script.write_text(
        f"#!/bin/sh\nfor word; do :; done\ncase $3 in\n"
        f"*divisiblejobs*) cat {tmp_path}/jobs || {{ echo 'no such resource' >&2; exit 1; }} ;;\nesac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def until(follower, kind, count):
    found = []
    while len(found) < count:
        found += [news for news in follower.wait(5) if isinstance(news, kind)]
    return found


def test_watches_are_read_line_by_line_and_opened_again(kubectl):
    (kubectl / "jobs").write_text(json.dumps({"type": "ADDED", "object": running()}) + "\n" + '{"type": "MODI')
    with Follower(Kubectl(), namespace="demo") as follower:
        changes = until(follower, Change, 2)  # the second from the next watch: the first broke off
    assert {(c.kind, c.what) for c in changes} == {("DivisibleJob", "ADDED")}


def test_a_cluster_without_our_kinds_is_an_error(kubectl):
    with Follower(Kubectl(), namespace="demo") as follower, pytest.raises(ClusterError, match="no such resource"):
        until(follower, Change, 1)


def test_no_kubectl_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PunctualError, match="kubectl is not there"):
        Kubectl().namespace()


def test_help_imports_nothing_heavy():
    lines = [
        "import sys; sys.argv = ['punctual', '--help']",
        "from punctual import cli",
        "try: cli.main()",
        "except SystemExit: pass",
        "slow = 'kopf', 'kubernetes', 'aiohttp', 'pydantic', 'numpy', 'rich', 'yaml', 'importlib.metadata'",
        "print([m for m in slow if m in sys.modules])",
    ]
    told = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "[]"


def test_the_timeline_command_writes_the_picture(record, tmp_path):
    picture = tmp_path / "run.svg"
    program = Path(sys.executable).parent / "punctual"
    subprocess.run([program, "timeline", record, "--svg", picture], check=True, capture_output=True)
    assert picture.read_text().startswith("<svg")
