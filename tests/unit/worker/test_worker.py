import ast
import itertools
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual import worker

GATED = Path(__file__).parent / "gated.py"
COUNT = "from punctual import worker\nfor unit in worker.units(): print(unit)\nprint(worker.span())"


def test_the_units_of_the_range_are_iterated_and_reported(pod):
    code, out, err = pod.run("-c", COUNT, PUNCTUAL_BEGIN=3, PUNCTUAL_END=6, PUNCTUAL_TOTAL=10)
    assert (code, out.split(maxsplit=3), err) == (0, ["3", "4", "5", "(3, 6)\n"], "")
    assert pod.read("progress") == 3
    assert pod.read("end") is None
    assert [path.name for path in pod.dir.iterdir()] == ["progress"]


def test_an_empty_range_is_done_at_once(pod):
    assert pod.run("-c", COUNT, PUNCTUAL_BEGIN=3, PUNCTUAL_END=3, PUNCTUAL_TOTAL=10)[:2] == (0, "(3, 3)\n")
    assert pod.read("progress") == 0


def test_outside_punctual_a_total_is_enough_and_nothing_is_written(pod):
    assert pod.run("-c", COUNT, PUNCTUAL_TOTAL=2, PUNCTUAL_DIR=None)[:2] == (0, "0\n1\n(0, 2)\n")
    assert not list(pod.dir.iterdir())


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "PUNCTUAL_END is not set"),
        ({"PUNCTUAL_BEGIN": "3"}, "PUNCTUAL_END is not set"),
        ({"PUNCTUAL_END": "3"}, "PUNCTUAL_BEGIN is not set"),
        ({"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": "-1"}, "PUNCTUAL_END must be a number of units, not '-1'"),
        ({"PUNCTUAL_BEGIN": "4", "PUNCTUAL_END": "3"}, "PUNCTUAL_BEGIN=4, PUNCTUAL_END=3: not a valid range"),
        (
            {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": "9", "PUNCTUAL_TOTAL": "8"},
            "not a valid range within 8 units",
        ),
    ],
)
def test_an_environment_that_cannot_be_right_is_named(environment, said, monkeypatch):
    forget(monkeypatch, environment)
    with pytest.raises(worker.WorkerError, match=said):
        worker.units()


def test_a_job_of_another_size_than_the_program_is_refused(monkeypatch):
    forget(monkeypatch, {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": "8", "PUNCTUAL_TOTAL": "8"})
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_TOTAL is 8, but this program has 9 units"):
        worker.units(9)


def test_units_are_iterated_once(monkeypatch):
    forget(monkeypatch, {"PUNCTUAL_TOTAL": "2"})
    assert list(worker.units()) == [0, 1]
    with pytest.raises(worker.WorkerError, match="a process iterates once"):
        worker.units()


def test_progress_counts_finished_units_only_and_is_written_now_and_then(pod, tmp_path, eventually):
    pod.start(GATED, tmp_path, PUNCTUAL_BEGIN=10, PUNCTUAL_END=13, PUNCTUAL_TOTAL=100)
    eventually((tmp_path / "begun-10").exists)
    assert pod.read("progress") == 0
    (tmp_path / "open-10").touch()
    eventually(lambda: pod.read("progress") == 1)  # while unit 11 goes on
    assert not (tmp_path / "open-11").exists()


def test_many_small_units_cost_few_writes(pod):
    program = (
        "import time\nfrom punctual import worker\nreplace, written = worker._replace, []\n"
        "worker._replace = lambda path, number: (written.append(number), replace(path, number))\n"
        "began = time.monotonic()\nfor unit in worker.units(): pass\n"
        "assert written[0] == 0 and written[-1] == 50_000, written\n"
        "assert len(written) <= 3 + (time.monotonic() - began) / worker._PERIOD, written"
    )
    assert pod.run("-c", program, PUNCTUAL_BEGIN=0, PUNCTUAL_END=50_000, PUNCTUAL_TOTAL=50_000) == (0, "", "")
    assert pod.read("progress") == 50_000


@pytest.mark.parametrize(("offered", "honoured"), [(14, 14), (10, 12), (3, 12), (18, 18), (500, 20)])
def test_an_offered_end_is_answered_with_what_is_begun_at_least(pod, tmp_path, eventually, offered, honoured):
    pod.start(GATED, tmp_path, PUNCTUAL_BEGIN=10, PUNCTUAL_END=20, PUNCTUAL_TOTAL=100)
    pod.offer.write_text("")  # the file is there before the annotation is
    (tmp_path / "open-10").touch()
    eventually((tmp_path / "begun-11").exists)
    pod.offer.write_text(f"{offered}\n")
    eventually(lambda: pod.read("end") == honoured)
    for unit in range(11, 20):
        (tmp_path / f"open-{unit}").touch()
    eventually(lambda: pod.message.exists() and pod.message.read_text() == f"10-{honoured}")
    assert not (tmp_path / f"begun-{honoured}").exists()
    assert pod.read("progress") == honoured - 10


def test_an_offer_is_never_taken_back_by_a_later_and_larger_one(pod, tmp_path, eventually):
    pod.start(GATED, tmp_path, PUNCTUAL_BEGIN=0, PUNCTUAL_END=9, PUNCTUAL_TOTAL=9)
    eventually((tmp_path / "begun-0").exists)
    for offered, honoured in ((5, 5), (7, 5), (3, 3)):
        pod.offer.write_text(str(offered))
        (pod.dir / "end").unlink(missing_ok=True)
        eventually(lambda honoured=honoured: pod.read("end") == honoured)


def test_a_garbled_offer_is_no_offer(pod, tmp_path, eventually):
    pod.offer.write_bytes(b"\xff soon")
    pod.start(GATED, tmp_path, PUNCTUAL_BEGIN=0, PUNCTUAL_END=2, PUNCTUAL_TOTAL=2)
    for unit in range(2):
        (tmp_path / f"open-{unit}").touch()
    assert pod.process.wait(100) == 0
    assert pod.read("end") is None
    assert pod.read("progress") == 2


def test_an_answer_that_cannot_be_written_leaves_the_range_whole(pod, tmp_path):
    (pod.dir / "end").mkdir()
    pod.offer.write_text("1")
    for unit in range(4):
        (tmp_path / f"open-{unit}").touch()
    code, _, err = pod.run(GATED, tmp_path, PUNCTUAL_BEGIN=0, PUNCTUAL_END=4, PUNCTUAL_TOTAL=4)
    assert (code, pod.message.read_text()) == (0, "0-4")
    assert err.count("punctual.worker: ") == 1


def test_an_answer_stands_long_enough_to_be_seen(pod, tmp_path):
    pod.offer.write_text("1")
    (tmp_path / "open-0").touch()
    began = time.monotonic()
    code, _, err = pod.run(GATED, tmp_path, PUNCTUAL_BEGIN=0, PUNCTUAL_END=4, PUNCTUAL_TOTAL=4)
    assert (code, err, pod.read("end")) == (0, "", 1)
    assert time.monotonic() - began >= worker._ANSWER_STANDS


def test_sigterm_leaves_the_last_progress_and_a_failure(pod, tmp_path, eventually):
    pod.start(GATED, tmp_path, PUNCTUAL_BEGIN=0, PUNCTUAL_END=4, PUNCTUAL_TOTAL=4)
    for unit in range(2):
        (tmp_path / f"open-{unit}").touch()
    eventually((tmp_path / "begun-2").exists)
    pod.process.send_signal(signal.SIGTERM)
    _, err = pod.process.communicate(timeout=100)
    assert (pod.process.returncode, err) == (143, "")
    assert pod.read("progress") == 2
    assert not pod.message.exists()


def test_a_program_that_fails_has_reported_what_was_done(pod):
    program = "from punctual import worker\nfor unit in worker.units():\n    if unit == 7: raise OSError('disk')"
    code, _, err = pod.run("-c", program, PUNCTUAL_BEGIN=5, PUNCTUAL_END=9, PUNCTUAL_TOTAL=9)
    assert (code, pod.read("progress")) == (1, 2)
    assert "OSError: disk" in err


def test_a_forked_child_has_no_say(pod):
    program = (
        "import os\nfrom punctual import worker\nloop = worker.units()\nnext(loop)\n"
        "if os.fork() == 0:\n    list(loop)\n    raise SystemExit(0)\nos.wait()"
    )
    code, _, err = pod.run("-c", program, PUNCTUAL_BEGIN=0, PUNCTUAL_END=9, PUNCTUAL_TOTAL=9)
    assert (code, err, pod.read("progress")) == (0, "", 0)


@pytest.mark.parametrize(("told", "limit"), [({}, 4095), ({"PUNCTUAL_RESULT_LIMIT": "2456"}, 2456)])
def test_a_result_fits_up_to_the_limit_of_its_pod_and_one_byte_more_does_not(pod, monkeypatch, told, limit):
    forget(monkeypatch, pod.environment(**told))
    worker.result("x" * limit)
    assert pod.message.read_text() == "x" * limit
    with pytest.raises(worker.WorkerError, match=f"{limit + 1} bytes does not fit into the {limit}"):
        worker.result("é" + "x" * (limit - 1))
    with pytest.raises(worker.WorkerError, match="must be UTF-8"):
        worker.result(b"\xff")
    with pytest.raises(worker.WorkerError, match="U\\+FFFD"):
        worker.result("caf\ufffd")
    assert len(pod.message.read_bytes()) == limit


def test_a_limit_that_is_no_number_is_an_error_that_names_the_variable(pod, monkeypatch):
    forget(monkeypatch, pod.environment(PUNCTUAL_RESULT_LIMIT="4k"))
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_RESULT_LIMIT must be a number of bytes, not '4k'"):
        worker.result("x")


def test_results_are_sorted_and_cover_everything(tmp_path, monkeypatch):
    # as the kubelet mounts ConfigMaps: links into a hidden folder
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    for name in ("10-100", "0-2", "2-10"):
        (tmp_path / "..2026" / name).write_text(name)
        (tmp_path / name).symlink_to(f"..data/{name}")
    forget(monkeypatch, {"PUNCTUAL_RESULTS": str(tmp_path), "PUNCTUAL_TOTAL": "100"})
    assert worker.results() == [(0, 2, b"0-2"), (2, 10, b"2-10"), (10, 100, b"10-100")]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], r"missing for \[0, 9\) of 9 units"),
        (["2-4", "5-9"], r"missing for \[0, 2\), \[4, 5\) of 9"),
        (["0-8"], r"missing for \[8, 9\)"),
        (["0-5", "4-9"], r"4-9 does not fit: \[0, 5\) of 9 units exists already"),
        (["0-9", "9-10"], r"9-10 does not fit"),
        (["0-9", "notes"], "notes is not a result"),
    ],
)
def test_results_that_do_not_cover_everything_once_are_refused(tmp_path, monkeypatch, names, said):
    for name in names:
        (tmp_path / name).touch()
    forget(monkeypatch, {"PUNCTUAL_RESULTS": str(tmp_path), "PUNCTUAL_TOTAL": "9"})
    with pytest.raises(worker.WorkerError, match=said):
        worker.results()


def test_reduce_without_its_variables_names_them(tmp_path, monkeypatch):
    forget(monkeypatch, {})
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_RESULTS is not set"):
        worker.results()
    forget(monkeypatch, {"PUNCTUAL_RESULTS": str(tmp_path)})
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_TOTAL is not set"):
        worker.results()


@settings(max_examples=200)
@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"long" * 9]), max_size=40).map(b"".join),
    total=st.integers(1, 50),
    cuts=st.lists(st.integers(0, 50), max_size=5),
)
def test_every_record_is_read_once_wherever_the_range_is_cut(tmp_path_factory, text, total, cuts):
    path = tmp_path_factory.getbasetemp() / "records"
    path.write_bytes(text)
    ends = sorted({0, total, *(cut for cut in cuts if cut < total)})
    with pytest.MonkeyPatch.context() as patch:
        forget(patch, {})
        read = []
        for begin, end in itertools.pairwise(ends):
            forget(patch, {"PUNCTUAL_BEGIN": str(begin), "PUNCTUAL_END": str(end), "PUNCTUAL_TOTAL": str(total)})
            read += worker.records(path)
    expected = text.split(b"\n")
    assert read == (expected[:-1] if expected[-1] == b"" else expected)


FASTA = b">one a first\nMKV\nLL\n>two\nGG>G\n>three\nA\n"


@pytest.mark.parametrize("total", [1, 2, 3, 5, 7, 20, len(FASTA)])
def test_records_of_a_fasta_file_begin_with_their_headers_wherever_the_range_is_cut(tmp_path, monkeypatch, total):
    (tmp_path / "file").write_bytes(FASTA)
    read = []
    for unit in range(total):
        forget(monkeypatch, {"PUNCTUAL_BEGIN": str(unit), "PUNCTUAL_END": str(unit + 1), "PUNCTUAL_TOTAL": str(total)})
        read += worker.records(tmp_path / "file", separator=b"\n>")
    assert read == [b">one a first\nMKV\nLL", b">two\nGG>G", b">three\nA"]


def test_records_of_a_whole_file_need_no_environment(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"one\0two")
    forget(monkeypatch, {})
    assert list(worker.records(tmp_path / "file", separator=b"\0")) == [b"one", b"two"]


def test_what_cannot_be_cut_into_records_is_refused(tmp_path, monkeypatch):
    forget(monkeypatch, {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": "1"})
    (tmp_path / "file").touch()
    with pytest.raises(worker.WorkerError, match="not overlap itself"):
        worker.records(tmp_path / "file", separator=b"\n\n")
    with pytest.raises(worker.WorkerError, match="is not a file"):
        worker.records("/dev/null")
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_TOTAL is not set"):
        worker.records(tmp_path / "file")


def test_the_module_is_one_file_of_the_standard_library_for_python_3_9():
    tree = ast.parse(Path(worker.__file__).read_text(), feature_version=(3, 9))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= sys.stdlib_module_names


def forget(monkeypatch, environment):
    """A process that has not asked for its range yet, with this environment and no other of ours."""
    for name in os.environ:
        if name.startswith("PUNCTUAL_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(worker, "_current", None)
