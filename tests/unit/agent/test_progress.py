"""Files of workers that lie: nothing is followed, nothing blocks, nothing large is read."""

import os
import socket
import typing
from contextlib import contextmanager
from pathlib import Path

import pytest

from punctual import wire
from punctual_agent import progress
from punctual_agent.progress import PodProgress, Wrong, read_count, with_volume

UID = "7a9e1f0c-3b2d-4c5e-8f70-112233445566"


@contextmanager
def opened(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


@pytest.fixture
def pods(tmp_path):
    folder = tmp_path / "pods"
    folder.mkdir()
    return folder


@pytest.fixture
def volume(pods):
    folder = pods / UID / "volumes/kubernetes.io~empty-dir/punctual"
    folder.mkdir(parents=True)
    return folder


def look(pods, of):
    """Read once; return what is newly wrong with the file `progress`, which is the only one that can be."""
    with opened(pods) as handle:
        new = of.read(handle, 0.0, 0.0)
    assert {file for file, _ in new} <= {"progress"}
    return [fault for _, fault in new]


@contextmanager
def without_rights():
    """As somebody whom the kernel may refuse, which it does not do with root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_words_are_the_wires():
    assert typing.get_args(progress.Fault) == typing.get_args(wire.Fault)
    assert typing.get_args(progress.File) == typing.get_args(wire.File)


@pytest.mark.parametrize("text", ["412", "412\n", " 412\r\n", "0000412"])
def test_a_count_is_read(volume, text):
    (volume / "progress").write_text(text)
    with opened(volume) as handle:
        assert read_count(handle, "progress").value == 412


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("-1", "negative"),
        ("12.5", "notANumber"),
        ("1e3", "notANumber"),
        ("+4", "notANumber"),
        ("0x10", "notANumber"),
        ("twelve", "notANumber"),
        ("1\n2", "notANumber"),
        ("٣", "notANumber"),
        ("\0\0", "notANumber"),
        (str(2**63), "beyondEnd"),
        ("9" * 64, "beyondEnd"),
        ("9" * 65, "tooLarge"),
        (" " * 65, "tooLarge"),
    ],
)
def test_what_is_no_count_is_a_fault(volume, text, fault):
    (volume / "progress").write_text(text)
    with opened(volume) as handle, pytest.raises(Wrong) as caught:
        read_count(handle, "progress")
    assert caught.value.fault == fault


def link_to_shadow(path):
    path.symlink_to("/etc/shadow")


def link_to_a_count(path):
    (path.parent / "elsewhere").write_text("7")
    path.symlink_to("elsewhere")


def sparse_gigabyte(path):
    with path.open("wb") as file:
        file.truncate(1 << 30)


def bound_socket(path):
    # a relative name: an address has 108 bytes
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (link_to_shadow, "notRegular"),
        (link_to_a_count, "notRegular"),
        (os.mkfifo, "notRegular"),
        (Path.mkdir, "notRegular"),
        (bound_socket, "notRegular"),
        (sparse_gigabyte, "tooLarge"),
    ],
)
def test_what_is_no_small_regular_file_is_not_read(pods, volume, make, fault):
    make(volume / "progress")
    one = PodProgress(UID)
    assert look(pods, one) == [fault]
    assert one.done is None


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
def test_a_device_is_not_even_opened(pods, volume, monkeypatch):
    try:
        os.mknod(volume / "progress", 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this machine does not let root make devices")
    names = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: (names.append(path), real(path, *rest, **more))[1])
    assert look(pods, PodProgress(UID)) == ["notRegular"]
    assert "punctual" in names
    assert "progress" not in names


def test_a_file_exchanged_for_a_fifo_after_the_look_neither_blocks_nor_counts(volume, monkeypatch):
    (volume / "progress").write_text("5")
    real = os.stat

    def exchanging(path, **more):
        there = real(path, **more)
        (volume / "progress").unlink()
        os.mkfifo(volume / "progress")
        return there

    monkeypatch.setattr(os, "stat", exchanging)
    with opened(volume) as handle, pytest.raises(Wrong) as caught:
        read_count(handle, "progress")
    assert caught.value.fault == "notRegular"


@pytest.mark.parametrize(
    "step", ["volumes", "volumes/kubernetes.io~empty-dir", "volumes/kubernetes.io~empty-dir/punctual"]
)
def test_no_step_on_the_way_is_followed(pods, step, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    target = elsewhere / Path("volumes/kubernetes.io~empty-dir/punctual").relative_to(step)
    target.mkdir(parents=True)
    (target / "progress").write_text("7")
    (pods / UID / step).parent.mkdir(parents=True)
    (pods / UID / step).symlink_to(elsewhere)
    one = PodProgress(UID)
    assert look(pods, one) == []
    assert one.done is None


def test_a_file_that_the_kernel_refuses_us_is_a_fault(volume):
    (volume / "progress").write_text("5")
    (volume / "progress").chmod(0)
    with opened(volume) as handle, without_rights(), pytest.raises(Wrong) as caught:
        read_count(handle, "progress")
    assert caught.value.fault == "unreadable"


def test_story_of_a_worker_that_lies(pods, volume):
    file = volume / "progress"
    one = PodProgress(UID, units=100)
    log = []
    for text in ("5", "50", "50", "20", "20", "19", "101", "60", "", "", "x", None, None, None, "70", None, "80"):
        if text is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(text)
        log.append((text, *look(pods, one), one.done))
    assert log == [
        ("5", 5),
        ("50", 50),
        ("50", 50),
        ("20", "backwards", 50),
        ("20", 50),  # the same fault once
        ("19", "backwards", 50),
        ("101", "beyondEnd", 50),
        ("60", 60),
        ("", "empty", 60),
        ("", 60),
        ("x", "notANumber", 60),
        (None, 60),  # its volume may just be taken down
        (None, "missing", 60),
        (None, 60),
        ("70", 70),
        (None, 70),  # written by halves
        ("80", 80),
    ]
    assert one.faults == {"progress": {"backwards": 2, "beyondEnd": 1, "empty": 1, "notANumber": 1, "missing": 1}}


def test_a_volume_that_is_taken_down_is_no_fault(pods, volume):
    (volume / "progress").write_text("5")
    one = PodProgress(UID)
    assert look(pods, one) == []
    (volume / "progress").unlink()  # as the kubelet does, and is looked at just then
    assert look(pods, one) == []
    volume.rmdir()
    assert look(pods, one) == []
    assert one.done == 5
    assert one.faults == {}


def test_what_was_read_before_the_length_was_known_is_not_believed_beyond_it(pods, volume):
    (volume / "progress").write_text("1000000")
    one = PodProgress(UID)
    assert look(pods, one) == []
    one.bound(100)
    assert one.done is None
    assert look(pods, one) == ["beyondEnd"]
    (volume / "progress").write_text("7")  # nor does it make what is honest go backwards
    assert look(pods, one) == []
    assert one.done == 7


def test_a_worker_that_writes_nothing_is_no_fault(pods, volume):
    one = PodProgress(UID)
    assert look(pods, one) == []
    assert (one.done, one.end, one.received, dict(one.faults)) == (None, None, None, {})


def test_an_end_may_be_drawn_in_and_bytes_may_not_go_back(pods, volume):
    one = PodProgress(UID, units=10)
    for end, received in ((900, 5000), (800, 4000)):
        (volume / "end").write_text(str(end))
        (volume / "received").write_text(str(received))
        with opened(pods) as handle:
            one.read(handle, 0.0, 0.0)
    assert (one.end, one.received, one.faults) == (800, 5000, {"received": {"backwards": 1}})


def test_no_descriptor_is_left_open(pods, volume):
    link_to_shadow(volume / "progress")
    (volume / "end").write_text("x")
    sparse_gigabyte(volume / "received")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for uid in (UID, "gone", "../" + UID):
        with opened(pods) as handle:
            PodProgress(uid).read(handle, 0.0, 0.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_pods_with_the_volume_are_found(pods, volume):
    (pods / "other/volumes/kubernetes.io~empty-dir/cache").mkdir(parents=True)
    (pods / "linked/volumes/kubernetes.io~empty-dir").mkdir(parents=True)
    (pods / "linked/volumes/kubernetes.io~empty-dir/punctual").symlink_to(volume)
    (pods / "file").write_text("")
    with opened(pods) as handle:
        assert with_volume(handle) == {UID}
        assert with_volume(handle) == {UID}


class Clocks:
    """A file that is written, and two clocks: one that only runs, and one that can be set."""

    def __init__(self, pods, file):
        self.pods, self.file, self.of = pods, file, PodProgress(UID)
        self.now, self.wall = 5000.0, 1_700_000_000.0

    def run(self, seconds):
        self.now += seconds
        self.wall += seconds

    def write(self, count, age=0.0):
        self.file.write_text(str(count))
        os.utime(self.file, ns=(0, round((self.wall - age) * 1e9)))

    def look(self):
        with opened(self.pods) as handle:
            self.of.read(handle, self.now, self.wall)
        return self.of.written(self.now)


@pytest.fixture
def clocks(pods, volume):
    return Clocks(pods, volume / "progress")


def test_how_long_ago_the_progress_was_written_is_told_within_a_second(clocks):
    assert clocks.look() is None
    clocks.write(3)
    clocks.run(0.25)
    assert clocks.look() == pytest.approx(0.25, abs=1e-3)
    clocks.run(1.0)
    assert clocks.look() == pytest.approx(1.25, abs=1e-3)
    clocks.run(0.5)
    clocks.write(3)  # written again, the same number
    clocks.run(0.125)
    assert clocks.look() == pytest.approx(0.125, abs=1e-3)


def test_what_was_written_before_the_agent_began_is_as_old_as_it_is(clocks):
    clocks.write(3, age=3000.0)
    assert clocks.look() == pytest.approx(3000.0, abs=1e-3)


def test_a_wall_clock_that_is_set_changes_nothing_that_was_seen(clocks):
    clocks.write(3)
    clocks.look()
    for step in (3600.0, -7200.0, 1e9):
        clocks.wall += step
        clocks.run(1.0)
        clocks.look()
    assert clocks.look() == pytest.approx(3.0, abs=1e-3)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 5.0, -5.0])
def test_a_wall_clock_that_is_set_between_write_and_look_tells_nothing_until_the_next_write(clocks, step):
    clocks.write(3)
    clocks.look()
    clocks.run(0.5)
    clocks.write(4)
    clocks.wall += step
    clocks.run(0.5)
    assert clocks.look() is None
    assert clocks.of.done == 4
    clocks.write(5)
    clocks.run(0.25)
    assert clocks.look() == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("age", [-60.0, -1e9, 6000.0, 1e9])
def test_a_time_that_a_program_has_invented_is_not_told(clocks, age):
    clocks.write(3, age=age)  # it is not from before the machine started, which was 5000 s ago, nor from the future
    assert clocks.look() is None


def test_a_file_written_while_it_is_looked_at_was_written_now(clocks):
    clocks.write(3, age=-0.004)
    assert clocks.look() == 0.0


def test_a_fault_tells_no_time_of_its_own(clocks):
    clocks.write(3)
    clocks.look()
    clocks.run(1.0)
    clocks.write("x")
    assert clocks.look() == pytest.approx(1.0, abs=1e-3)


def test_an_application_whose_container_starts_again_counts_from_the_beginning(clocks):
    clocks.write(300)
    clocks.look()
    clocks.of.application = True
    clocks.write(2)
    clocks.look()
    assert (clocks.of.done, clocks.of.faults) == (2, {})
