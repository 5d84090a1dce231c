"""The input step: what each chunk gets of an input, and what it does when a server does not do as it should."""

import contextlib
import gzip
import hashlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
from email.message import Message
from itertools import count, pairwise
from pathlib import Path
from unittest import mock

import pytest
from files import EMPTY, serving
from hypothesis import given
from hypothesis import strategies as st

from punctual import fetch, worker

LINES = b"".join(b"line %d %s\n" % (n, b"x" * (n % 40)) for n in range(500))


class Memory:
    """A source that gives what it has in blocks of one size, and notes the furthest byte that was asked for."""

    def __init__(self, data, block=7):
        self.data, self.block, self.furthest = data, block, 0

    def size(self):
        return len(self.data)

    def read(self, begin, end):
        assert 0 <= begin <= end <= len(self.data)
        for at in range(begin, end, self.block):
            self.furthest = max(self.furthest, min(at + self.block, end))
            yield self.data[at : min(at + self.block, end)]


def taken(data, begin, end, total, *, separator=b"", record=1, block=7):
    source = Memory(data, block)
    bounds = fetch.share(begin, end, total, len(data), record=record)
    found = list(fetch.cut(source, bounds, len(data), separator=separator))
    at = found[0][0] if found else 0
    for where, part in found:
        assert where == at
        assert data[where : where + len(part)] == part
        at += len(part)
    return b"".join(part for _, part in found)


texts = st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\n\n", b"long line "]), max_size=60).map(b"".join)


@st.composite
def cuts(draw):
    """Draw a number of units and where they are cut."""
    total = draw(st.integers(1, 50))
    points = draw(st.sets(st.integers(1, max(1, total - 1)), max_size=8))
    return total, [0, *sorted(p for p in points if p < total), total]


@given(texts, cuts(), st.integers(1, 30))
def test_every_line_is_taken_whole_by_exactly_one_chunk_wherever_a_job_is_cut(data, drawn, block):
    total, points = drawn
    parts = [taken(data, a, b, total, separator=b"\n", block=block) for a, b in pairwise(points)]
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts if part and part is not _last(parts))


def _last(parts):
    return next((part for part in reversed(parts) if part), None)


@given(texts, cuts())
def test_a_line_belongs_to_the_unit_in_whose_bytes_it_begins(data, drawn):
    total, points = drawn
    starts = [0] if data else []
    starts += [n + 1 for n in range(len(data) - 1) if data[n : n + 1] == b"\n"]
    for a, b in pairwise(points):
        bounds = fetch.share(a, b, total, len(data))
        wanted = [data[s:].split(b"\n")[0] for s in starts if bounds.begin <= s < bounds.end]
        assert taken(data, a, b, total, separator=b"\n").splitlines() == b"\n".join([*wanted, b""]).splitlines()


SEPARATORS = (b"\n>", b"\nFrom ", b";;x", b"\r\n")
bits = st.lists(
    st.sampled_from([b"a", b"\n", b">", b"\n>", b"\nFrom ", b"From ", b";;x", b";", b"x", b"\r\n", b"long "]),
    max_size=60,
)


@given(bits.map(b"".join), cuts(), st.sampled_from(SEPARATORS), st.integers(1, 30))
def test_every_record_behind_a_separator_is_taken_whole_by_the_chunk_in_which_it_begins(data, drawn, separator, block):
    total, points = drawn
    closing = separator.rfind(b"\n") + 1 or len(separator)
    begins = [0, *(m.start() + closing for m in re.finditer(re.escape(separator), data))]
    for a, b in pairwise(points):
        bounds = fetch.share(a, b, total, len(data))
        mine = [at for at in begins if bounds.begin <= at < bounds.end]
        behind = next((at for at in begins if at >= bounds.end), len(data))
        whole = data[mine[0] : behind] if mine else b""
        assert taken(data, a, b, total, separator=separator, block=block) == whole


def test_behind_the_share_no_more_is_read_than_the_end_of_the_last_record_needs():
    data = b">" + b"x" * 100 + b"\n>" + b"y" * 200_000
    source = Memory(data, block=1000)
    bounds = fetch.share(0, 1, 4000, len(data))
    assert b"".join(part for _, part in fetch.cut(source, bounds, len(data), separator=b"\n>")) == data[:102]
    assert source.furthest <= 102 + 20_000


@pytest.mark.parametrize(
    ("separator", "does"), [(b"\n\n", True), (b"abab", True), (b"aba", True), (b"\n>", False), (b"x", False)]
)
def test_a_separator_that_overlaps_itself_is_found(separator, does):
    assert fetch.overlaps(separator) is does


@given(st.binary(max_size=200), cuts())
def test_every_byte_is_taken_by_exactly_one_chunk(data, drawn):
    total, points = drawn
    assert b"".join(taken(data, a, b, total) for a, b in pairwise(points)) == data


@given(st.integers(1, 9), st.integers(0, 40), cuts())
def test_every_record_is_taken_whole_by_exactly_one_chunk(record, count, drawn):
    total, points = drawn
    data = b"".join(bytes([n]) * record for n in range(count))
    parts = [taken(data, a, b, total, record=record) for a, b in pairwise(points)]
    assert b"".join(parts) == data
    assert all(len(part) % record == 0 for part in parts)


def test_half_a_record_is_refused_with_the_arithmetic():
    with pytest.raises(fetch.FetchError, match="2 more than whole records of 8"):
        fetch.share(0, 1, 1, 26, record=8)


def test_behind_the_share_no_more_is_read_than_the_end_of_the_last_line_needs():
    data = b"x" * 100 + b"\n" + b"y" * 200_000
    source = Memory(data, block=1000)
    bounds = fetch.share(0, 1, 4000, len(data))
    assert b"".join(part for _, part in fetch.cut(source, bounds, len(data), separator=b"\n")) == b"x" * 100 + b"\n"
    assert source.furthest <= 100 + 20_000


# what a program gets of it


def pieces_of(folder, data, begin, end, total, kind, record, separator=""):  # noqa: PLR0917
    """Fetch a chunk's share of a file and read it as a program does."""
    (folder / "file").write_bytes(data)
    (folder / "turn").write_text("now")
    env = {
        "PUNCTUAL_BEGIN": str(begin),
        "PUNCTUAL_END": str(end),
        "PUNCTUAL_TOTAL": str(total),
        "PUNCTUAL_INPUT": str(folder / "data"),
        "PUNCTUAL_INPUT_PATH": str(folder / "file"),
        "PUNCTUAL_INPUT_CUT": kind,
        "PUNCTUAL_INPUT_RECORD_BYTES": str(record),
        "PUNCTUAL_INPUT_SEPARATOR": separator,
        "PUNCTUAL_TURN": str(folder / "turn"),
    }
    fetch._fetch(env)
    with mock.patch.dict(os.environ, env):
        return list(worker._Chunk(begin, end, total).pieces())


@given(texts, cuts(), st.sampled_from(["Lines", "Bytes", "Records"]))
def test_a_program_sees_each_line_record_or_byte_of_the_input_once(tmp_path_factory, data, drawn, kind):
    total, points = drawn
    record = 3 if kind == "Records" else 1
    data = data[: len(data) // record * record]
    folder = tmp_path_factory.mktemp("pieces")
    seen = [piece for a, b in pairwise(points) for piece in pieces_of(folder, data, a, b, total, kind, record)]
    match kind:
        case "Lines":
            assert seen == data.split(b"\n")[: len(seen)]
            assert len(seen) == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        case "Records":
            assert seen == [data[n : n + 3] for n in range(0, len(data), 3)]
        case "Bytes":
            assert b"".join(seen) == data
            assert len(seen) <= total


@given(bits.map(b"".join), cuts(), st.sampled_from(SEPARATORS))
def test_a_program_sees_each_record_of_the_input_as_it_would_see_it_in_the_whole_file(
    tmp_path_factory, data, drawn, separator
):
    total, points = drawn
    folder = tmp_path_factory.mktemp("pieces")
    kind = "Records", 1, separator.decode()
    seen = [piece for a, b in pairwise(points) for piece in pieces_of(folder, data, a, b, total, *kind)]
    (folder / "whole").write_bytes(data)
    with mock.patch.dict(os.environ, {"PUNCTUAL_INPUT_SEPARATOR": ""}):
        assert seen == list(worker._Chunk(0, 1, 1).records(folder / "whole", separator))


def test_a_program_without_an_input_is_told_so(monkeypatch):
    monkeypatch.delenv("PUNCTUAL_INPUT", raising=False)
    with pytest.raises(worker.WorkerError, match="PUNCTUAL_INPUT is not set"):
        worker._Chunk(0, 1, 1).pieces()


# the step itself


@pytest.fixture
def place(tmp_path):
    """Return the environment of a step whose turn has come."""
    (tmp_path / "turn").write_text("now")
    return {
        "PUNCTUAL_BEGIN": "10",
        "PUNCTUAL_END": "20",
        "PUNCTUAL_TOTAL": "40",
        "PUNCTUAL_DIR": str(tmp_path),
        "PUNCTUAL_INPUT": str(tmp_path / "data"),
        "PUNCTUAL_INPUT_TIMEOUT": "10",
        "PUNCTUAL_TURN": str(tmp_path / "turn"),
        "PUNCTUAL_TERMINATION_LOG": str(tmp_path / "said"),
    }


def ran(env):
    """Run the step as its container does; return its status and what it said."""
    command = [sys.executable, "-m", "punctual.fetch"]
    done = subprocess.run(command, env={**os.environ, **env}, timeout=200, check=False, capture_output=True)
    return done.returncode, Path(env["PUNCTUAL_TERMINATION_LOG"]).read_text()


def left(env):
    folder = Path(env["PUNCTUAL_INPUT"]).parent
    return tuple(int((folder / name).read_text()) for name in ("received", "offset", "size"))


def test_exactly_the_range_of_the_chunk_is_asked_for_and_measured(place):
    with serving(LINES) as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == 0, said
    quarter = len(LINES) // 4
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == LINES[quarter : 2 * quarter]
    assert server.asked == ["bytes=0-0", f"bytes={quarter}-{2 * quarter - 1}"]
    assert left(place) == (quarter, quarter, len(LINES))
    told = json.loads(said)
    assert told["bytes"] == quarter
    assert 0 <= told["opening"] <= told["seconds"]


def test_lines_come_whole(place):
    with serving(LINES) as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url, "PUNCTUAL_INPUT_CUT": "Lines"})
    assert status == 0, said
    got = Path(place["PUNCTUAL_INPUT"]).read_bytes()
    _, offset, _ = left(place)
    assert got == LINES[offset : offset + len(got)]
    quarter = len(LINES) // 4
    assert LINES[offset - 1 : offset] == b"\n" == got[-1:]
    assert quarter <= offset < quarter + 60
    assert 2 * quarter <= offset + len(got) < 2 * quarter + 60


def test_a_file_of_a_volume_is_cut_alike(place, tmp_path):
    (tmp_path / "file").write_bytes(LINES)
    env = place | {"PUNCTUAL_INPUT_PATH": str(tmp_path / "file"), "PUNCTUAL_INPUT_CUT": "Records"}
    status, said = ran(env | {"PUNCTUAL_INPUT_RECORD_BYTES": "1"})
    assert status == 0, said
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == LINES[len(LINES) // 4 : len(LINES) // 2]


@pytest.mark.parametrize("manner", ["short", "busy"])
def test_what_breaks_off_is_taken_up_where_it_ended(place, manner):
    with serving(LINES, manner=manner) as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == 0, said
    quarter = len(LINES) // 4
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == LINES[quarter : 2 * quarter]
    assert len(server.asked) > 2


@pytest.mark.parametrize(
    ("manner", "says"),
    [
        ("ranges unknown", "does not support byte ranges (it answers 200, not 206"),
        ("size unknown", "does not say how large the input is"),
        ("other range", "asked for bytes"),
        ("missing", "the server answers 404"),
        ("never", "the server answers 501"),
    ],
)
def test_a_server_that_cannot_be_relied_on_is_an_error_that_says_so(place, manner, says):
    with serving(LINES, manner="busy" if manner == "never" else manner) as server:
        server.busy_with = 501
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == 1
    assert says in said
    assert server.url in said


@pytest.mark.parametrize("kind", ["Lines", "Bytes", "Records"])
@pytest.mark.parametrize("packing", ["gzip", "x-gzip", "BR", "gzip, identity"])
def test_an_input_that_the_server_sends_packed_is_refused_by_name(place, kind, packing):
    """The step has asked for identity. The bytes of the packed file have no lines."""
    with serving(gzip.compress(LINES)) as server:
        server.says = {"Content-Encoding": packing, "ETag": '"one"'}
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url, "PUNCTUAL_INPUT_CUT": kind})
    assert status == 1
    assert f"the server sends the input packed (Content-Encoding: {packing})" in said
    assert "store it unpacked" in said
    assert not Path(place["PUNCTUAL_INPUT"]).exists()


def test_an_input_that_the_server_calls_unpacked_is_read(place):
    with serving(LINES) as server:
        server.says = {"Content-Encoding": "Identity"}
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == 0, said


# servers that are busy, or not up yet


class Clock:
    """A clock that only waiting moves; ``slept`` are the pauses, ``at_pause`` what happens before each."""

    def __init__(self, at_pause=lambda _n: None):
        self.now, self.slept, self.at_pause = 0.0, [], at_pause

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.at_pause(len(self.slept))
        self.slept.append(seconds)
        self.now += seconds


def read_all(server_url, monkeypatch, *, at_pause=lambda _n: None, timeout=60.0):
    """Read a byte as the step does; return the pauses between its attempts."""
    clock = Clock(at_pause)
    monkeypatch.setattr(fetch, "time", clock)
    assert b"".join(fetch._Http(server_url, timeout, {}).read(0, 4)) == LINES[:4]
    return clock.slept


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again_until_the_timeout(status, monkeypatch):
    with serving(LINES, manner="busy") as server:
        server.busy_with, server.busy_for = status, 20
        slept = read_all(server.url, monkeypatch)
    assert slept == [0.5, 1.0, *[2.0] * 18]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"Retry-After": "0"}, 1.0),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After": "Tue, 24 Nov 2026 10:00:30 GMT", "Date": "Tue, 24 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"Retry-After": "Tue, 24 Nov 2026 10:00:00 GMT", "Date": "Tue, 24 Nov 2026 10:00:30 GMT"}, 1.0),
        ({"Retry-After": "Tue, 24 Nov 2026 10:00:30 GMT", "Date": "yesterday"}, 1.0),
    ],
)
def test_a_server_that_names_a_time_is_left_alone_for_so_long(headers, seconds):
    error = urllib.error.HTTPError("http://x", 429, "Too Many Requests", message(headers), None)
    assert max(1.0, fetch._BusyError(error).wait) == seconds


def message(headers):
    made = Message()
    for name, value in headers.items():
        made[name] = value
    return made


def test_the_time_that_a_server_names_passes_before_it_is_asked_again(monkeypatch):
    with serving(LINES, manner="busy") as server:
        server.busy_with, server.busy_for, server.busy_says = 429, 2, {"Retry-After": "20"}
        assert read_all(server.url, monkeypatch) == [20.0, 20.0]


def test_a_server_that_comes_up_meanwhile_is_read(monkeypatch):
    with serving() as gone:
        port = gone.server_port
    with contextlib.ExitStack() as stack:

        def at_pause(n):
            if n == 9:
                stack.enter_context(serving(LINES, port=port))

        assert len(read_all(f"http://127.0.0.1:{port}/data", monkeypatch, at_pause=at_pause)) == 10


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("refused", "Connection refused"),
        ("no such name", "not known"),
        ("busy", "429 Too Many Requests and asks to come again in 3600 s"),
    ],
)
def test_what_does_not_come_within_the_timeout_is_told_apart_from_failures_of_the_work(place, trouble, says):
    with serving() as gone:
        refused = gone.url
    with serving(LINES, manner="busy") as server:
        server.busy_with, server.busy_for, server.busy_says = 429, 2, {"Retry-After": "3600"}
        url = {"refused": refused, "no such name": "http://nowhere.invalid/data", "busy": server.url}[trouble]
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": url, "PUNCTUAL_INPUT_TIMEOUT": "1"})
    assert status == fetch.UNAVAILABLE
    assert f"{url}: no data arrived from byte 0 on: " in said
    assert says in said or trouble == "no such name"


def test_a_certificate_that_is_not_trusted_is_no_server_that_is_not_up(monkeypatch):
    source = fetch._Http("https://example.invalid/data", 60.0, {})
    error = urllib.error.URLError(ssl.SSLCertVerificationError("self-signed certificate"))
    monkeypatch.setattr(source._opener, "open", mock.Mock(side_effect=error))
    with pytest.raises(fetch.FetchError, match="self-signed certificate") as found:
        source.version()
    assert not isinstance(found.value, fetch.UnavailableError)


# versions of an input

MONDAY, TUESDAY = "Mon, 23 Nov 2026 10:00:00 GMT", "Tue, 24 Nov 2026 10:00:00 GMT"


def begun_with(said):
    """Return the environment that tells a step which version another has seen."""
    told = json.loads(said)
    return {"PUNCTUAL_INPUT_SIZE": str(told["size"]), "PUNCTUAL_INPUT_VALIDATOR": told["validator"]}


def digest(etag):
    return f"sha256:{hashlib.sha256(etag.encode()).hexdigest()[:32]}"


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": '"a"', "Last-Modified": MONDAY}, '"a"'),
        ({"ETag": 'W/"a"', "Last-Modified": MONDAY}, f'W/"a" {MONDAY}'),
        ({"ETag": 'W/"a"'}, 'W/"a"'),
        ({"Last-Modified": MONDAY}, MONDAY),
        ({}, ""),
        ({"ETag": '"' + "a" * 62 + '"'}, '"' + "a" * 62 + '"'),
        ({"ETag": '"' + "a" * 63 + '"'}, digest('"' + "a" * 63 + '"')),
        ({"ETag": '"\xfc"'}, digest('"\xfc"')),
    ],
)
def test_a_step_tells_which_version_of_the_input_it_has_read(place, headers, validator):
    with serving(LINES) as server:
        server.says = headers
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
        assert status == 0, said
        assert (json.loads(said)["size"], json.loads(said)["validator"]) == (len(LINES), validator)
        assert len(validator) <= fetch.LONGEST
        assert ran(place | {"PUNCTUAL_INPUT_URL": server.url} | begun_with(said))[0] == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ETag": '"a"'}, {"ETag": '"b"'}),
        ({"ETag": '"a"'}, {}),
        ({"ETag": 'W/"a"', "Last-Modified": MONDAY}, {"ETag": 'W/"a"', "Last-Modified": TUESDAY}),
        ({"Last-Modified": MONDAY}, {"Last-Modified": TUESDAY}),
    ],
)
def test_an_input_of_the_same_size_with_another_validator_is_another(place, before, after):
    with serving(LINES) as server:
        server.says = before
        _, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
        server.says, server.asked[:] = after, []
        status, why = ran(place | {"PUNCTUAL_INPUT_URL": server.url} | begun_with(said))
    assert status == fetch.CHANGED
    assert f"the job began with {len(LINES)} bytes, validator {json.loads(said)['validator']}" in why
    assert server.asked == ["bytes=0-0"]


@pytest.mark.parametrize("where", ["http", "volume"])
def test_no_chunk_reads_an_input_to_which_lines_were_added_since_the_job_began(place, tmp_path, where):
    """The second half of 1000 lines is that of 1500 bytes: what lies between would be in no chunk."""
    early, late = (b"".join(b"%04d\n" % n for n in range(count)) for count in (1000, 2000))
    first = {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": "20", "PUNCTUAL_INPUT_CUT": "Lines"}
    second = {**first, "PUNCTUAL_BEGIN": "20", "PUNCTUAL_END": "40"}
    with serving(early) as server:
        server.says = {}
        file = tmp_path / "log"
        file.write_bytes(early)
        source = {"PUNCTUAL_INPUT_URL": server.url} if where == "http" else {"PUNCTUAL_INPUT_PATH": str(file)}
        status, said = ran(place | first | source)
        assert status == 0, said
        assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == early[:2500]
        server.data = late
        with file.open("ab") as log:
            log.write(late[len(early) :])
        Path(place["PUNCTUAL_INPUT"]).unlink()
        status, why = ran(place | second | source | begun_with(said))
    assert status == fetch.CHANGED
    assert "it is 10000 bytes" in why
    assert "the job began with 5000 bytes" in why
    assert not Path(place["PUNCTUAL_INPUT"]).exists()


@pytest.mark.parametrize("manner", ["changes", "shrinks"])
def test_a_server_whose_input_changes_while_it_is_fetched_is_told_apart(place, manner):
    with serving(LINES, manner=manner) as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == fetch.CHANGED
    assert "has changed while it was fetched" in said
    assert server.url in said


@pytest.mark.parametrize("how", ["appended", "written over", "replaced", "shortened"])
def test_a_file_that_changes_while_it_is_read_is_told_at_the_end_of_its_share(tmp_path, monkeypatch, how):
    monkeypatch.setattr(fetch, "_BLOCK", 100)
    path = tmp_path / "file"
    path.write_bytes(LINES)
    os.utime(path, ns=(0, 10**18))
    source = fetch._File(str(path))
    assert source.version() == (len(LINES), "@1000000000.000000000")
    blocks = source.read(0, 300)
    next(blocks)
    match how:
        case "appended":
            with path.open("ab") as file:
                file.write(b"more\n")
            os.utime(path, ns=(0, 10**18))
        case "written over":
            path.write_bytes(LINES[::-1])
            os.utime(path, ns=(0, 10**18 + 1))
        case "replaced":
            (tmp_path / "draft").write_bytes(LINES[::-1])
            (tmp_path / "draft").replace(path)
        case "shortened":
            os.truncate(path, 150)
            os.utime(path, ns=(0, 10**18))
    with pytest.raises(fetch.ChangedError, match="the input has changed while it was fetched"):
        list(blocks)


def test_a_server_that_hangs_is_given_up_after_the_timeout_and_what_came_was_told(place):
    with serving(LINES, manner="hangs") as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url, "PUNCTUAL_INPUT_TIMEOUT": "4"})
    assert status == fetch.UNAVAILABLE
    assert "no data arrived from byte" in said
    assert int(Path(place["PUNCTUAL_DIR"], "received").read_text()) > 0


# credentials

SECRET = "Bearer 5up3r-s3cr3t"


def opened(env, url, secret=SECRET):
    """Run the step with credentials; return its status and what it said anywhere, which is never the secret."""
    headers = {"PUNCTUAL_INPUT_HEADERS": "X-Tenant Authorization", "PUNCTUAL_INPUT_HEADER_0": "us"}
    env = {**os.environ, **env, **headers, "PUNCTUAL_INPUT_HEADER_1": secret, "PUNCTUAL_INPUT_URL": url}
    command = [sys.executable, "-m", "punctual.fetch"]
    done = subprocess.run(command, env=env, timeout=200, check=False, capture_output=True, text=True)
    said = Path(env["PUNCTUAL_TERMINATION_LOG"]).read_text()
    assert "s3cr3t" not in said + done.stdout + done.stderr
    return done.returncode, said


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_credentials_go_with_each_request(place, end):
    with serving(LINES) as server:
        server.wants = SECRET
        status, said = opened(place, server.url, SECRET + end)
    assert status == 0, said
    quarter = len(LINES) // 4
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == LINES[quarter : 2 * quarter]
    assert server.credentials == [SECRET, SECRET]


def test_wrong_credentials_are_told_with_the_field_and_not_tried_again(place):
    with serving(LINES) as server:
        server.wants = "Bearer another"
        status, said = opened(place, server.url)
    assert status == 1
    assert "the server answers 401 Unauthorized: it does not take the credentials" in said
    assert "(spec.input.http.headers)" in said
    assert len(server.asked) == 1


def test_a_server_that_wants_credentials_is_told_with_the_field_that_brings_them(place):
    with serving(LINES) as server:
        server.wants = SECRET
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url})
    assert status == 1
    assert "it may need credentials (spec.input.http.headers)" in said


def test_credentials_follow_a_redirect_of_their_own_server(place):
    with serving(LINES) as server:
        server.wants, server.sends_to = SECRET, "/data"
        status, said = opened(place, server.elsewhere)
    assert status == 0, said
    assert server.credentials == [SECRET] * 4


def test_credentials_go_to_no_other_server_though_it_is_redirected_there_and_back(place):
    with serving(LINES) as server, serving(LINES) as other:
        server.sends_to = other.url
        status, said = opened(place, server.elsewhere)
        assert status == 0, said
        assert (server.credentials, other.credentials) == ([SECRET] * 2, [None] * 2)

        server.sends_to, other.sends_to = other.elsewhere, server.url
        status, said = opened(place, server.elsewhere)
        assert status == 0, said
        assert server.credentials[2:] == [SECRET, None] * 2
        assert other.credentials[2:] == [None] * 2


def test_where_another_server_wants_credentials_the_redirect_is_told(place):
    with serving(LINES) as server, serving(LINES) as other:
        server.sends_to, other.wants = other.url, SECRET
        status, said = opened(place, server.elsewhere)
    assert status == 1
    assert other.credentials == [None]
    assert "it was redirected to 127.0.0.1, which does not get the credentials (spec.input.http.headers)" in said


@pytest.mark.parametrize("secret", ["", "\n", "Bearer s3cr3t\nX-Other: s3cr3t", "Bearer s3cr3t\u00fc", "s3cr3t\x07"])
def test_what_cannot_be_a_header_is_told_with_the_field_and_not_sent(place, secret):
    with serving(LINES) as server:
        status, said = opened(place, server.url, secret)
    assert status == 1
    assert "header Authorization is not one line of ASCII (spec.input.http.headers[1])" in said
    assert server.asked == []


def test_an_empty_input_gives_nothing_and_is_no_error(place):
    with serving(b"") as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url, "PUNCTUAL_INPUT_CUT": "Lines"})
    assert status == 0, said
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == b""
    assert left(place) == (0, 0, 0)


@pytest.mark.parametrize("manner", EMPTY)
def test_an_empty_input_gives_nothing_in_whatever_way_a_server_says_so(place, manner):
    with serving(b"", manner=manner) as server:
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url, "PUNCTUAL_INPUT_CUT": "Lines"})
    assert status == 0, said
    assert Path(place["PUNCTUAL_INPUT"]).read_bytes() == b""
    assert left(place) == (0, 0, 0)
    assert json.loads(said)["size"] == 0


def test_an_input_that_has_become_empty_is_another(place):
    with serving(b"", manner="nginx, Apache, Go") as server:
        before = {"PUNCTUAL_INPUT_SIZE": "12", "PUNCTUAL_INPUT_VALIDATOR": ""}
        status, said = ran(place | {"PUNCTUAL_INPUT_URL": server.url} | before)
    assert status == fetch.CHANGED
    assert "it is 0 bytes" in said


def test_an_answer_that_may_have_been_cut_is_no_empty_input():
    """An answer without a length ends with its connection."""
    response = mock.Mock(status=200, length=None, chunked=False)
    assert not fetch._is_empty(response)


def test_a_file_that_is_not_there_is_an_error_that_names_it(place):
    status, said = ran(place | {"PUNCTUAL_INPUT_PATH": "/nowhere/data"})
    assert status == 1
    assert "/nowhere/data is not a file (spec.input.volume.path)" in said


def test_a_turn_that_was_there_was_not_waited_for_however_long_it_took_to_see(place, tmp_path):
    (tmp_path / "input").write_bytes(LINES)
    # a second between any two looks at the clock
    with mock.patch.object(fetch.time, "monotonic", side_effect=count(1.0)):
        told = fetch._fetch(place | {"PUNCTUAL_INPUT_PATH": str(tmp_path / "input")})
    assert told["waited"] == 0
    assert told["seconds"] > 0


def test_nothing_is_fetched_before_the_turn_and_sigterm_ends_the_waiting(place, tmp_path):
    (tmp_path / "turn").write_text("")
    with serving(LINES) as server:
        env = {**os.environ, **place, "PUNCTUAL_INPUT_URL": server.url}
        step = subprocess.Popen([sys.executable, "-c", WAITS], env=env, stdout=subprocess.PIPE, text=True)
        assert step.stdout.readline() == "looked twice\n"
        assert server.asked == []
        step.send_signal(signal.SIGTERM)
        assert step.wait(timeout=120) == 143
        step.stdout.close()


WAITS = """
import sys, time
from punctual import fetch

looks = 0
def sleep(seconds, sleep=time.sleep):
    global looks
    looks += 1
    if looks == 2:
        print("looked twice", flush=True)
    sleep(seconds)
fetch.time.sleep = sleep
sys.exit(fetch.main())
"""
