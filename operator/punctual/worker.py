"""The interface between a user's program and Punctual: the range of units, progress, early stops, results.

    from punctual import worker

    total = 0
    for unit in worker.units():             # or: for record in worker.records("input.csv")
        total += work(unit)
    worker.result(str(total))

and in the job's ``reduce``:

    print(sum(int(data) for begin, end, data in worker.results()))

Users' programs call it in chunk pods. It writes progress to files that the node agent reads each second, and answers
offers: the operator may ask a chunk to stop at an earlier end. The module needs the standard library only, Python 3.9
or newer, and nothing else of Punctual: this one file may be copied into any image. It also works outside Punctual
(``PUNCTUAL_TOTAL=100 python program.py``).

The invariant: **a unit at or after an answered end is not started**, because another pod may process it by then. An
answer and the end of the loop therefore change together under one lock, and an answer that could not be written leaves
the range as it was.

Environment: PUNCTUAL_BEGIN, PUNCTUAL_END, PUNCTUAL_TOTAL (units), PUNCTUAL_DIR (folder of ``progress`` and ``end``;
unset: nothing is written), PUNCTUAL_RESULTS (folder, for reduce), PUNCTUAL_INPUT (file, if the job has an input),
PUNCTUAL_INPUT_CUT, PUNCTUAL_INPUT_RECORD_BYTES and PUNCTUAL_INPUT_SEPARATOR (as in the job's spec),
PUNCTUAL_RESULT_LIMIT (maximum bytes of a result, default 4095); for tests PUNCTUAL_OFFER (default /etc/punctual/end)
and PUNCTUAL_TERMINATION_LOG (default /dev/termination-log).
"""

from __future__ import annotations

import atexit
import mmap
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

__all__ = ["MAX_RESULT", "Result", "WorkerError", "pieces", "records", "result", "results", "span", "units"]

MAX_RESULT: Final = 4095
"""Maximum bytes of a result in a pod of up to three containers. PUNCTUAL_RESULT_LIMIT has the limit of the actual pod.

The kubelet reads the last 4096 bytes of a container's termination message and passes on the first 12288 / containers of
these. A message of exactly the limit may have been cut, so a result is one byte shorter.
"""

_PERIOD: Final = 0.25
"""Seconds between two checks for progress to write and for offers to answer."""
_ANSWER_STANDS: Final = 2.5
"""Seconds that an answer stands before a finished worker exits. The agent reads once a second. If a worker exits before
the agent has read its answer, it is unknown which range was done, and the whole range must be done again."""
_OFFER: Final = "/etc/punctual/end"
_TERMINATION_LOG: Final = "/dev/termination-log"


class WorkerError(Exception):
    """The environment or the program is wrong. The message names the variable or call and the correct value."""


class Result(NamedTuple):
    """The result of one chunk: ``data`` belongs to the units [begin, end)."""

    begin: int
    end: int
    data: bytes


def units(total: int | None = None) -> Iterator[int]:
    """Iterate over the units of this chunk, in order.

    A unit counts as done when the next one is asked for. ``total`` is the number of units of the whole job, for a
    program that knows it. Outside Punctual, the range is all of these units. Under Punctual, a job with another number
    of units raises WorkerError. The iteration stops early at an offered end that was honoured. A process iterates once.
    """
    chunk = _this(total)
    return chunk.units()


def records(path: str | os.PathLike[str], *, separator: bytes = b"\n", total: int | None = None) -> Iterator[bytes]:
    r"""Iterate over the records of a file that belong to this chunk, each without its separator.

    ``separator``: one byte or more. If it has a line end, its bytes up to the last line end close a record, and the
    rest begins the next one: with ``b"\n>"`` each record of a FASTA file begins with its ``>``. A separator must not
    overlap itself, as ``b"\n\n"`` does.

    The file's bytes are divided evenly among the job's units: unit k of n has the bytes from k·size/n to (k+1)·size/n,
    and a record belongs to the unit that contains its *first* byte. Any number of units therefore works, every record
    is read exactly once wherever the range is cut, and no index is needed. A unit in which no record starts is done at
    once. Outside Punctual, without ``total``, the chunk is the whole file.
    """
    if not separator or _overlaps(separator):
        # where a record starts would depend on where reading began
        raise WorkerError(f"separator is {separator!r}: it must have a byte or more and must not overlap itself")
    if not Path(path).is_file():
        raise WorkerError(f"{os.fspath(path)} is not a file that can be cut into records")
    return _this(total, otherwise=1).records(path, separator)


def pieces() -> Iterator[bytes]:
    """Iterate over the pieces that the input step (``spec.input``) fetched for this chunk, unit by unit.

    With ``cut: Lines`` a piece is a line without its end, with Records it is a record, and with Bytes it is one block
    for each unit that has a byte. Raises WorkerError if nothing was fetched.
    """
    return _this(None).pieces()


def span() -> tuple[int, int]:
    """Return begin and end of the range that this process is responsible for.

    The end falls when an offer is honoured. After the loop over units() it is final.
    """
    chunk = _this(None)
    return chunk.begin, chunk.end


def result(data: str | bytes) -> None:
    """Write the result of this chunk's range, in UTF-8. Call it once, after the loop.

    The limit is PUNCTUAL_RESULT_LIMIT bytes: 4095 in a pod of up to three containers (init containers count), less in a
    pod with more. The result is the container's termination message. Outside a pod it goes to standard output. Raises
    WorkerError if the result is too large, not UTF-8, or has the character U+FFFD.
    """
    raw = data.encode() if isinstance(data, str) else data
    limit = _count("PUNCTUAL_RESULT_LIMIT", "bytes")
    limit = MAX_RESULT if limit is None else limit
    if len(raw) > limit:
        raise WorkerError(
            f"a result of {len(raw)} bytes does not fit into the {limit} that the kubelet passes on from this "
            "container: store it elsewhere under a name made of its range and use the name as the result"
        )
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise WorkerError(f"a result must be UTF-8 ({error}): encode it, say as base64") from None
    if "\ufffd" in text:  # as the API server shows bytes that are not UTF-8
        raise WorkerError("a result must not have the character U+FFFD: it stands for bytes that are not UTF-8")
    given = os.environ.get("PUNCTUAL_TERMINATION_LOG")
    if given is None and not Path(_TERMINATION_LOG).exists():
        sys.stdout.buffer.write(raw + b"\n")
        sys.stdout.flush()
        return
    # written in place: the kubelet mounts the file itself, so it cannot be replaced by renaming
    Path(given or _TERMINATION_LOG).write_bytes(raw)


def results(total: int | None = None) -> list[Result]:
    """Return the results of all chunks, sorted by range, for a job's reduce.

    Raises WorkerError unless they cover [0, total) exactly once. ``total`` defaults to PUNCTUAL_TOTAL.
    """
    folder = os.environ.get("PUNCTUAL_RESULTS")
    if not folder:
        raise WorkerError("PUNCTUAL_RESULTS is not set: it names the folder of the chunks' results, one per range")
    total = _total(total)
    if total is None:
        raise WorkerError("PUNCTUAL_TOTAL is not set: without it a missing result cannot be found")
    found = []
    for entry in Path(folder).iterdir():
        if entry.name.startswith("."):  # a mounted ConfigMap keeps its versions there
            continue
        match = re.fullmatch(r"([0-9]+)-([0-9]+)", entry.name)
        if match is None:
            raise WorkerError(f"{entry} is not a result: results are named <begin>-<end>")
        found.append(Result(int(match[1]), int(match[2]), entry.read_bytes()))
    found.sort(key=lambda one: (one.begin, one.end))
    missing = _missing(found, total)
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise WorkerError(f"results are missing for {', '.join(missing[:10])}{more} of {total} units")
    return found


class _Chunk:
    """The range of this process, its reports to the agent, and its answers to the operator.

    ``begin`` ≤ units done < ``_begun`` ≤ ``end``. The loop moves ``_done`` and ``_begun``, and the watching thread
    lowers ``end``. Both hold the lock.
    """

    def __init__(self, begin: int, end: int, total: int | None) -> None:
        self.begin, self.end, self.total = begin, end, total
        self._done = self._begun = begin
        folder = os.environ.get("PUNCTUAL_DIR")
        self._folder = Path(folder) if folder else None
        self._offer = Path(os.environ.get("PUNCTUAL_OFFER", _OFFER))
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._started = self._finished = self._warned = False
        self._reported = self._offered = -1
        self._answered = 0.0
        self._pid = os.getpid()

    def units(self) -> Iterator[int]:
        if self._started:
            raise WorkerError("the units of this process were already iterated: a process iterates once")
        self._started = True
        if self._folder is not None:
            self._look()
            threading.Thread(target=self._watch, name="punctual-worker", daemon=True).start()
            atexit.register(self._leave)
            main = threading.current_thread() is threading.main_thread()
            if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                # the first process of a container ignores SIGTERM without a handler, and would be killed much later
                signal.signal(signal.SIGTERM, _terminated)
        return self._loop()

    def records(self, path: str | os.PathLike[str], separator: bytes) -> Iterator[bytes]:
        total = self.total
        if total is None:
            raise WorkerError("PUNCTUAL_TOTAL is not set: without it the share of a unit in the file is unknown")
        loop = self.units()

        def read() -> Iterator[bytes]:
            with Path(path).open("rb") as file:
                data = _mapped(file)
                size = len(data)
                at = -1
                for unit in loop:
                    if at < 0:
                        at = _start(data, unit * size // total, separator)
                    while at < (unit + 1) * size // total:
                        record, at = _record(data, at, separator)
                        yield record

        return read()

    def pieces(self) -> Iterator[bytes]:
        path, total = os.environ.get("PUNCTUAL_INPUT", ""), self.total
        if not path or total is None:
            raise WorkerError("PUNCTUAL_INPUT is not set: it names the file that the input step (spec.input) fetched")
        offset, size = (_read(Path(path).with_name(name)) for name in ("offset", "size"))
        if offset is None or size is None:
            raise WorkerError(f"{path} has no offset and size beside it: punctual.fetch did not fetch it")
        kind, record = os.environ.get("PUNCTUAL_INPUT_CUT", "Bytes"), _count("PUNCTUAL_INPUT_RECORD_BYTES") or 1
        separator = b"\n" if kind == "Lines" else os.environ.get("PUNCTUAL_INPUT_SEPARATOR", "").encode()
        loop = self.units()

        def read() -> Iterator[bytes]:
            with Path(path).open("rb") as file:
                data = _mapped(file)
                there = len(data)
                at = 0
                for unit in loop:
                    end = (unit + 1) * (size // record) // total * record - offset
                    while at < min(end, there):
                        if separator:
                            piece, at = _record(data, at, separator)
                        else:
                            stop = min(at + record if kind == "Records" else end, there)
                            piece, at = data[at:stop], stop
                        yield piece

        return read()

    def _loop(self) -> Iterator[int]:
        unit = self.begin
        while True:
            with self._lock:
                self._done = unit
                if unit >= self.end:
                    break
                self._begun = unit + 1
            yield unit
            unit += 1
        self._finished = True
        self._look()

    def _watch(self) -> None:
        while not self._leaving.wait(_PERIOD):
            self._look()

    def _look(self) -> None:
        """Answer a new offer and report new progress."""
        if self._folder is None or os.getpid() != self._pid:  # a forked child does not report
            return
        with self._lock:
            try:
                self._answer(self._folder)
                if self._done - self.begin != self._reported:
                    _replace(self._folder / "progress", self._done - self.begin)
                    self._reported = self._done - self.begin
            except OSError as error:  # the work continues: a chunk need not report
                if not self._warned:
                    print(f"punctual.worker: {error}", file=sys.stderr)  # noqa: T201  the program's log is ours
                self._warned = True

    def _answer(self, folder: Path) -> None:
        offered = _read(self._offer)
        if offered is None or offered == self._offered:
            return
        end = min(self.end, max(offered, self._begun))
        _replace(folder / "end", end)  # first: if this fails, no answer was given, and the range stays whole
        self.end, self._offered, self._answered = end, offered, time.monotonic()

    def _leave(self) -> None:
        """Write the last progress at exit, also after an exception or SIGTERM, and wait until the answer was read."""
        if os.getpid() != self._pid:
            return
        self._leaving.set()
        self._look()
        if self._finished and self._answered:
            if signal.getsignal(signal.SIGTERM) is _terminated:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(max(0.0, self._answered + _ANSWER_STANDS - time.monotonic()))


def _overlaps(separator: bytes) -> bool:
    """Whether two occurrences of a separator may overlap: it ends as it begins."""
    return any(separator.startswith(separator[k:]) for k in range(1, len(separator)))


def _closing(separator: bytes) -> int:
    """Return how many bytes of a separator close a record: those up to its last line end, or all."""
    return separator.rfind(b"\n") + 1 or len(separator)


def _mapped(file: BinaryIO) -> bytes | mmap.mmap:
    """Return the file's bytes without reading them. An empty file cannot be mapped."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


def _start(data: bytes | mmap.mmap, at: int, separator: bytes) -> int:
    """Return where the first record begins at byte ``at`` or later; the data's length if none does."""
    if at == 0:
        return 0
    closing = _closing(separator)
    found = data.find(separator, max(0, at - closing))
    return len(data) if found < 0 else found + closing


def _record(data: bytes | mmap.mmap, at: int, separator: bytes) -> tuple[bytes, int]:
    """Return the record that begins at byte ``at``, and the start of the next one."""
    closing = _closing(separator)
    found = data.find(separator, at)
    if found >= 0:
        return data[at:found], found + closing
    last = data[at:]
    return last.removesuffix(separator[:closing]), len(data)  # a file may end as a record does


def _missing(found: list[Result], total: int) -> list[str]:
    gaps, at = [], 0
    for one in found:
        if one.begin < at or one.end < one.begin or one.end > total:
            raise WorkerError(f"result {one.begin}-{one.end} does not fit: [0, {at}) of {total} units exists already")
        if one.begin > at:
            gaps.append(f"[{at}, {one.begin})")
        at = one.end
    return gaps if at == total else [*gaps, f"[{at}, {total})"]


_current: _Chunk | None = None


def _this(total: int | None, *, otherwise: int | None = None) -> _Chunk:
    """Return this process's chunk, read from the environment at the first call.

    ``otherwise`` is the total if no other source gives one.
    """
    global _current  # noqa: PLW0603  one process, one chunk
    if _current is None:
        whole = _total(total)
        begin, end = _count("PUNCTUAL_BEGIN"), _count("PUNCTUAL_END")
        if begin is None and end is None:
            whole = otherwise if whole is None else whole
            begin, end = 0, whole
        if end is None:
            raise WorkerError(
                "PUNCTUAL_END is not set: the operator sets it in a chunk's pod; elsewhere set PUNCTUAL_BEGIN and "
                "PUNCTUAL_END, or PUNCTUAL_TOTAL alone for all units"
            )
        if begin is None:
            raise WorkerError("PUNCTUAL_BEGIN is not set, but PUNCTUAL_END is: a range needs both")
        if not begin <= end <= (end if whole is None else whole):
            of = "" if whole is None else f" within {whole} units"
            raise WorkerError(f"PUNCTUAL_BEGIN={begin}, PUNCTUAL_END={end}: not a valid range{of}")
        _current = _Chunk(begin, end, whole)
    return _current


def _total(given: int | None) -> int | None:
    told = _count("PUNCTUAL_TOTAL")
    if told is not None and given is not None and told != given:
        raise WorkerError(f"PUNCTUAL_TOTAL is {told}, but this program has {given} units: set spec.units to that")
    return given if told is None else told


def _count(name: str, what: str = "units") -> int | None:
    text = os.environ.get(name, "").strip()
    if text and not re.fullmatch("[0-9]+", text):
        raise WorkerError(f"{name} must be a number of {what}, not {text!r}")
    return int(text) if text else None


def _read(path: Path) -> int | None:
    """Return the number in a file, or None if it has none.

    The file of an offer is empty until the operator sets the pod's annotation.
    """
    try:
        text = path.read_bytes().strip()
    except OSError:
        return None
    return int(text) if re.fullmatch(b"[0-9]{1,19}", text) else None


def _replace(path: Path, number: int) -> None:
    """Write a number atomically: a reader sees the old number or the new one."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(f"{number}\n", encoding="ascii")
    draft.replace(path)


def _terminated(signum: int, _frame: object) -> None:
    raise SystemExit(128 + signum)  # _leave writes the progress; the range is not counted as done
