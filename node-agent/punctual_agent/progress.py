"""Reads the files that the workers of a pod write: units done, the end they will honour, bytes fetched.

The files are in the pod's emptyDir volume ``punctual``. The agent reads it through a read-only mount of the kubelet's
pods folder. Any program in the pod can write anything there, so nothing is trusted: each step is opened by directory
descriptor without following links, a file that is not regular is never opened, no open can block, and at most 64 bytes
are read.

A malformed file is a *fault* of one kind (:data:`Fault`). A fault is counted when it appears or changes, not each
second. The last good value stays in force meanwhile. A file that never existed is not a fault, because a worker need
not report. A file that existed and is gone is a fault from the second read on: when the kubelet removes a volume, the
files vanish first and the volume after them. Standard library only; nothing here raises.
"""

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from punctual_agent.cgroup import valid_uid

PODS: Final = "/var/lib/kubelet/pods"
VOLUME: Final = "punctual"
LARGEST: Final = 64
"""Limit in bytes. A count has at most 19 digits."""
LIMIT: Final = 2**63
INEXACT: Final = 0.5
"""Seconds by which a time of modification may seem wrong: files are read a moment after the clocks."""

_BELOW_POD: Final = ("volumes", "kubernetes.io~empty-dir", VOLUME)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

File = Literal["progress", "end", "received"]
Fault = Literal[
    "missing", "empty", "notANumber", "negative", "beyondEnd", "backwards", "notRegular", "tooLarge", "unreadable"
]
"""The values of ``punctual.wire``, repeated because this module does not import pydantic. A test compares them."""


class Wrong(Exception):  # noqa: N818  a finding about a file, not an error of the agent
    """A file is not a count. ``seen`` is the content that caused it, which tells a new fault from a persisting one."""

    def __init__(self, fault: Fault, seen: bytes = b"") -> None:
        super().__init__(fault)
        self.fault: Fault = fault
        self.seen = seen


class Count(NamedTuple):
    """The content of a file."""

    value: int
    modified: float
    """The file's modification time, by the wall clock."""


def read_count(folder: int, name: str) -> Count:
    """Read the count in one file below a directory descriptor. Raises Wrong. It follows no link and never blocks."""
    try:
        # checked before it is opened: to open a device can have side effects
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode):
            raise Wrong("notRegular")
        handle = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        raise Wrong(_reason(error)) from error
    try:
        there = os.fstat(handle)
        if not stat.S_ISREG(there.st_mode):  # replaced since the check
            raise Wrong("notRegular")
        if there.st_size > LARGEST:
            raise Wrong("tooLarge")
        text = os.read(handle, LARGEST + 1)
    except OSError as error:
        raise Wrong(_reason(error)) from error
    finally:
        os.close(handle)
    return Count(_parsed(text), there.st_mtime_ns / 1e9)


def _reason(error: OSError) -> Fault:
    if error.errno == errno.ENOENT:
        return "missing"
    if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
        return "notRegular"
    return "unreadable"


def _parsed(text: bytes) -> int:
    if len(text) > LARGEST:
        raise Wrong("tooLarge")
    word = text.strip()
    if not word:
        raise Wrong("empty")
    if word.isdigit():  # ASCII digits: bytes know no others
        value = int(word)
        if value >= LIMIT:
            raise Wrong("beyondEnd", word)
        return value
    if word[:1] == b"-" and word[1:].isdigit():
        raise Wrong("negative", word)
    raise Wrong("notANumber", word)


@dataclass(slots=True)
class _File:
    """The last good value and the last fault of one file."""

    value: int | None = None
    modified: float | None = None
    """The file's modification time with that value, by the wall clock."""
    written: float | None = None
    """The same by the agent's clock. None: it cannot be true."""
    wrong: tuple[Fault, bytes] | None = None
    missing: bool = False
    """The file was missing at the last read."""


@dataclass(slots=True)
class PodProgress:
    """The files of one pod. ``units`` is the length of its chunk, once known: a higher count of units is a fault."""

    uid: str
    units: int | None = None
    application: bool = False
    """It is an application's, which counts from 0 again when its container starts again."""
    faults: dict[File, Counter[Fault]] = field(default_factory=dict)
    _looked: float | None = None
    _files: dict[File, _File] = field(default_factory=lambda: {n: _File() for n in get_args(File)})

    @property
    def done(self) -> int | None:
        """Units done. None before the first good value."""
        return self._files["progress"].value

    @property
    def end(self) -> int | None:
        """The end that the worker said it will honour."""
        return self._files["end"].value

    @property
    def received(self) -> int | None:
        """Bytes fetched by the input step."""
        return self._files["received"].value

    def written(self, now: float) -> float | None:
        """Return the seconds since the progress file was last written. None: never, or nothing tells it."""
        file = self._files["progress"]
        return None if file.value is None or file.written is None else max(0.0, now - file.written)

    def bound(self, units: int | None) -> None:
        """Set the length of the chunk. A value beyond it that was accepted earlier is discarded."""
        self.units = units
        file = self._files["progress"]
        if units is not None and file.value is not None and file.value > units:
            file.value = None

    def read(self, pods: int, now: float, wall: float) -> list[tuple[File, Fault]]:
        """Read the files below the pods folder (a directory descriptor). Returns the faults that are new.

        ``now`` and ``wall``: the same time by the agent's clock and by the wall clock.
        """
        with _volume(pods, self.uid) as folder:
            if folder is None:
                return []
            found = [(name, fault) for name in self._files if (fault := self._read(folder, name, now, wall))]
        self._looked = now
        return found

    def _read(self, folder: int, name: File, now: float, wall: float) -> Fault | None:
        file = self._files[name]
        try:
            value, modified = read_count(folder, name)
            self._check(name, value)
        except Wrong as wrong:
            before, file.missing = file.missing, wrong.fault == "missing"
            if file.missing and (not before or (file.value is None and file.wrong is None)):
                return None
            if file.wrong == (wrong.fault, wrong.seen):
                return None
            file.wrong = (wrong.fault, wrong.seen)
            self.faults.setdefault(name, Counter())[wrong.fault] += 1
            return wrong.fault
        file.value, file.wrong, file.missing = value, None, False
        if modified != file.modified:
            file.modified, file.written = modified, self._time(modified, now, wall)
        return None

    def _time(self, modified: float, now: float, wall: float) -> float | None:
        """Return the agent's time at which a file was written that was not yet written at the last look.

        The wall clock may have been set since, and a program may set its file's time. So a time before the last look is
        not believed, nor one to come. Before the first look, it is a time before the machine started.
        """
        time = now - (wall - modified)
        since = 0.0 if self._looked is None else self._looked
        return time if since - INEXACT <= time <= now + INEXACT else None

    def _check(self, name: File, value: int) -> None:
        """Compare a value with what is known of the pod. Raises Wrong."""
        last = self._files[name].value
        if name == "progress" and self.units is not None and value > self.units:
            raise Wrong("beyondEnd", b"%d" % value)
        if name == "end" or (name == "progress" and self.application):  # an end may move closer repeatedly
            return
        if last is not None and value < last:
            raise Wrong("backwards", b"%d" % value)


@contextlib.contextmanager
def _volume(pods: int, uid: str) -> Iterator[int | None]:
    """Open the pod's volume folder as a descriptor, without following links. Yields None if there is none."""
    handle: int | None = None
    try:
        if valid_uid(uid):
            handle = os.open(uid, _FOLDER, dir_fd=pods)
            for name in _BELOW_POD:
                above, handle = handle, None
                try:
                    handle = os.open(name, _FOLDER, dir_fd=above)
                finally:
                    os.close(above)
    except OSError:
        handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def with_volume(pods: int) -> set[str]:
    """Return the uids of the pods on this node that have the volume."""
    found = set()
    for uid in os.listdir(pods):
        with contextlib.suppress(OSError):
            there = os.stat("/".join((uid, *_BELOW_POD)), dir_fd=pods, follow_symlinks=False)
            if valid_uid(uid) and stat.S_ISDIR(there.st_mode):
                found.add(uid)
    return found
