r"""The input step of a chunk's pod: waits for its turn, fetches the chunk's share of the input, reports the result.

The operator puts it before a job's own containers if ``spec.input`` asks for it: ``python3 -m punctual.fetch``. It
needs the standard library only, Python 3.9 or newer, and nothing else of Punctual.

Unit k of n has the bytes from k·size/n to (k+1)·size/n of the input, rounded down (``punctual.worker`` cuts files the
same way). Of the bytes of its units, a chunk [begin, end) gets:

    Bytes      exactly these
    Records    these, in whole records of one size
    Lines      the lines that *start* in them, the last one up to its end, wherever that is
    Records with a separator: the records that start in them, in the same way. A record starts at the input's first
               byte, and at the byte after the last line end of each separator (after the whole separator, if it has no
               line end): with "\n>" (FASTA) a line end closes a record, and ">" begins the next

Each byte, record or line is therefore fetched for exactly one chunk, wherever a job is cut, and nothing is counted
beforehand.

The invariant: **nothing is fetched before the turn**, because another chunk may have the port. Beyond its share, a
chunk reads only the rest of its last line.

Shares of two versions of an input do not fit together: with another size every border moves, and lines are lost or read
twice. The step therefore reports the version that it has read: the input's size and its validator, which distinguishes
contents of one size. A server's validator is its strong ETag. With a weak ETag (RFC 9110, 8.8.1: it may stand for other
bytes), it is the ETag with Last-Modified; without an ETag, Last-Modified. A server that sends neither has no validator.
A file's validator is its modification time. If the job began with a known version, the step fetches no other. If it
sees two versions, it exits with the status CHANGED.

A server that is not up yet, or is busy, is asked again until it has sent nothing for the timeout. Then the step exits
with the status UNAVAILABLE: this is no fault of the work.

Environment: PUNCTUAL_BEGIN, PUNCTUAL_END, PUNCTUAL_TOTAL (units), PUNCTUAL_DIR (folder of ``received``), PUNCTUAL_INPUT
(the file to write; the ``offset`` of its first byte in the input and the input's ``size`` are written beside it),
PUNCTUAL_INPUT_URL or PUNCTUAL_INPUT_PATH, PUNCTUAL_INPUT_CUT, PUNCTUAL_INPUT_RECORD_BYTES,
PUNCTUAL_INPUT_SEPARATOR, PUNCTUAL_INPUT_SIZE and PUNCTUAL_INPUT_VALIDATOR (the version that the job began with; unset:
any version), PUNCTUAL_INPUT_TIMEOUT (seconds without a byte after which the step fails),
PUNCTUAL_INPUT_HEADERS (names of secret headers; the value of header n, from
0 on, is in PUNCTUAL_INPUT_HEADER_n and appears in no message); for tests PUNCTUAL_TURN (default /etc/punctual/fetch)
and PUNCTUAL_TERMINATION_LOG (default /dev/termination-log).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

__all__ = [
    "CHANGED",
    "UNAVAILABLE",
    "ByteRange",
    "ChangedError",
    "FetchError",
    "Source",
    "UnavailableError",
    "Version",
    "cut",
    "main",
    "overlaps",
    "share",
]

CHANGED: Final = 65
"""Exit status if the input changed."""
UNAVAILABLE: Final = 75
"""Exit status if the server sent nothing for the timeout. EX_TEMPFAIL of sysexits.h."""
LONGEST: Final = 64
"""Maximum characters of a validator. In a pod with many containers, the step's message has a few hundred bytes."""

_BLOCK: Final = 2**18
"""Bytes per read."""
_BEYOND: Final = 2**14
"""Bytes per read beyond the share, in search of the end of its last line."""
_PERIOD: Final = 0.25
"""Seconds between two writes of ``received``."""
_LOOK: Final = 0.1
"""Seconds between two checks for the turn."""
_PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds before each repeated attempt after one without data; the last one also before all later ones."""
_NEVER: Final = frozenset({501, 505})
"""Statuses of servers that no later attempt changes, unlike the others from 500 on."""
_LATER: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which a later attempt may succeed."""


class FetchError(Exception):
    """The input cannot be fetched. The message explains why to the user."""

    status = 1
    """Exit status of the step."""


class ChangedError(FetchError):
    """The input is no longer the version that was read before."""

    status = CHANGED


class UnavailableError(FetchError):
    """The server sends nothing: it is not up, or busy. A later attempt may succeed."""

    status = UNAVAILABLE


class Version(NamedTuple):
    """The version of an input.

    Its bytes, and a validator that distinguishes contents of one size (empty: none known).
    """

    size: int
    validator: str

    def __str__(self) -> str:
        """Format the version for a message."""
        return f"{self.size} bytes, " + (f"validator {self.validator}" if self.validator else "no validator")


class ByteRange(NamedTuple):
    """Bytes [begin, end) of the input."""

    begin: int
    end: int


class Source(Protocol):
    """A source of input bytes."""

    def version(self) -> Version:
        """Return the version of the input. All later reads must be of this version; another one raises ChangedError."""

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield all bytes of [begin, end), in blocks."""


def share(begin: int, end: int, total: int, size: int, *, record: int = 1) -> ByteRange:
    """Return the bytes of the units [begin, end) of ``total``, in whole records of an input of ``size`` bytes."""
    if size % record:
        raise FetchError(
            f"the input has {size} bytes, {size % record} more than whole records of {record} (spec.input.recordBytes)"
        )
    records = size // record
    return ByteRange(begin * records // total * record, end * records // total * record)


def cut(source: Source, bounds: ByteRange, size: int, *, separator: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Give what of the source belongs to a share, in order: where in the input each block begins, and the block.

    ``separator``: the share has the records that begin in its bounds, to their ends; empty: just its bytes. It must not
    overlap itself, or where a record begins would depend on where reading began (:func:`overlaps`).
    """
    if not separator:
        at = bounds.begin
        for block in source.read(*bounds):
            yield at, block
            at += len(block)
    elif bounds.begin < bounds.end:
        yield from _records(source, bounds, size, separator)


def _records(source: Source, bounds: ByteRange, size: int, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the bytes from the first record that begins in the bounds to the first that begins behind them."""
    closing, undecided = _closing(separator), len(separator) - 1
    at, begun, window = max(0, bounds.begin - closing), bounds.begin == 0, b""
    for block in _blocks(source, at, bounds.end, size):
        window += block
        if not begun:
            found = window.find(separator)
            begun = found >= 0
            skip = found + closing if begun else max(0, len(window) - undecided)
            at, window = at + skip, window[skip:]
            if (at if begun else at + closing) >= bounds.end:
                return  # no record begins in the bounds
        if begun:
            end = window.find(separator, max(0, bounds.end - closing - at))
            # the last bytes may begin a separator
            sure = end + closing if end >= 0 else max(0, len(window) - undecided)
            if sure:
                yield at, window[:sure]
            if end >= 0:
                return
            at, window = at + sure, window[sure:]
    if begun and window:
        yield at, window


def _blocks(source: Source, begin: int, end: int, size: int) -> Iterator[bytes]:
    """Give the bytes from ``begin`` on: those before ``end`` in large blocks, those behind in small ones."""
    yield from source.read(begin, end)
    while end < size:
        behind = min(size, end + _BEYOND)
        yield from source.read(end, behind)
        end = behind


def overlaps(separator: bytes) -> bool:
    """Whether two occurrences of a separator may overlap: it ends as it begins, as two line ends do."""
    return any(separator.startswith(separator[k:]) for k in range(1, len(separator)))


def _closing(separator: bytes) -> int:
    """Return how many bytes of a separator close a record: those up to its last line end, or all."""
    return separator.rfind(b"\n") + 1 or len(separator)


class _Seen:
    """The version that every read of a source must find."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.version: Version | None = None

    def look(self, found: Version) -> None:
        if self.version is not None and found != self.version:
            raise ChangedError(
                f"the input has changed while it was fetched: it is {found} now, before it was {self.version} "
                f"({self._where})"
            )
        self.version = found


class _File:
    """A source that reads a file of a volume."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen = _Seen(path)

    def version(self) -> Version:
        if not self._path.is_file():
            raise FetchError(f"{self._path} is not a file (spec.input.volume.path)")
        return self._look(self._path.stat())

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            self._look(os.fstat(file.fileno()))
            file.seek(begin)
            while begin < end:
                block = file.read(min(_BLOCK, end - begin))
                if not block:
                    self._look(os.fstat(file.fileno()))
                    raise FetchError(f"{self._path}: nothing can be read at byte {begin}")
                begin += len(block)
                yield block
        self._look(self._path.stat())  # this also finds a file that was written or replaced during the read

    def _look(self, found: os.stat_result) -> Version:
        seconds, rest = divmod(found.st_mtime_ns, 10**9)
        version = Version(found.st_size, f"@{seconds}.{rest:09d}")  # as `date -d` reads it
        self._seen.look(version)
        return version


def _validator(headers: Message) -> str:
    """Return the validator in an answer's headers, which distinguishes inputs of the same size."""
    etag, modified = (headers.get(name, "").strip() for name in ("ETag", "Last-Modified"))
    found = etag if etag and not etag.startswith("W/") else f"{etag} {modified}".strip()
    if re.fullmatch(f"[ -~]{{0,{LONGEST}}}", found):
        return found
    return f"sha256:{hashlib.sha256(found.encode(errors='surrogateescape')).hexdigest()[:32]}"


def _retry_after(headers: Message) -> float:
    """Return the seconds for which an answer asks to wait, 0 if it does not: a number, or a date by the server's clock.

    RFC 9110, 10.2.3.
    """
    told = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]{1,9}", told):
        return float(told)
    with contextlib.suppress(TypeError, ValueError):
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("Retry-After", "Date"))
        return max(0.0, (until - now).total_seconds())
    return 0.0


class _BusyError(Exception):
    """The server answers that a later attempt may succeed. ``wait``: the seconds that it names, or 0."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        self.wait = _retry_after(error.headers)
        again = f" and asks to come again in {self.wait:g} s" if self.wait else ""
        super().__init__(f"the server answers {error.code} {error.reason}{again}")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL.

    Another port or scheme may be a server of other people.
    """
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects. ``secret`` headers are sent only to their own server."""

    def __init__(self, secret: Iterable[str]) -> None:
        self._secret = tuple(secret)

    def redirect_request(  # noqa: PLR0917  as the library calls it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            for name in self._secret:
                request.remove_header(name.capitalize())  # the library writes header names like this
        return request


class _Http:
    """A source that reads a URL. The server must support byte ranges.

    A broken connection is resumed where it ended. ``timeout`` is the maximum seconds without a byte. ``secret`` has the
    headers of each request that no other server may get.
    """

    def __init__(self, url: str, timeout: float, secret: Mapping[str, str]) -> None:
        self._url = url
        self._timeout = timeout
        self._secret = secret
        self._opener = urllib.request.build_opener(_Redirects(secret))
        self._seen = _Seen(url)

    def version(self) -> Version:
        if self._seen.version is None:
            for _ in self.read(0, 1):
                pass
        assert self._seen.version is not None
        return self._seen.version

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        tries, moved = 0, time.monotonic()
        while begin < end:
            came, wait = begin, 0.0
            try:
                answer = self._open(begin, end, self._timeout - (time.monotonic() - moved))
                if answer is None:
                    return
                with answer:
                    while begin < end and (block := answer.read1(min(_BLOCK, end - begin))):
                        moved = time.monotonic()
                        begin += len(block)
                        yield block
                if begin == end:
                    return
                trouble = "the connection closed too early"
            except _BusyError as busy:
                trouble, wait = str(busy), busy.wait
            except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                reason = getattr(error, "reason", error)
                trouble = str(reason) or type(error).__name__
                if isinstance(reason, (ssl.SSLCertVerificationError, http.client.InvalidURL)):
                    raise FetchError(f"{self._url}: {trouble}") from None
            if begin > came:
                tries, pause = 0, wait
            else:
                tries, pause = tries + 1, max(wait, _PAUSES[min(tries, len(_PAUSES) - 1)])
            if self._timeout - (time.monotonic() - moved) <= pause:
                raise UnavailableError(f"{self._url}: no data arrived from byte {begin} on: {trouble}")
            time.sleep(pause)

    def _open(self, begin: int, end: int, patience: float, *, whole: bool = False) -> http.client.HTTPResponse | None:
        """Request a range. None means that the input is empty.

        ``whole``: request all, to see whether that is nothing. Raises FetchError for failures that a retry cannot
        repair, _BusyError and OSError for the others.
        """
        headers = {**self._secret, "Accept-Encoding": "identity"}
        if not whole:
            headers["Range"] = f"bytes={begin}-{end - 1}"
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310  the scheme was checked
        try:
            response: http.client.HTTPResponse = self._opener.open(request, timeout=max(0.1, patience))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and not whole:
                    size = re.fullmatch(r"bytes \*/([0-9]{1,19})", error.headers.get("Content-Range", "").strip())
                    if size is None and begin == 0:  # a range of an empty file, from a server that does not say so
                        return self._open(begin, end, patience, whole=True)
                    known = self._seen.version
                    if size and (known is None or known.size != int(size[1])):
                        self._seen.look(Version(int(size[1]), _validator(error.headers)))
                        if int(size[1]) == 0:
                            return None
                if error.code in _LATER or (error.code >= 500 and error.code not in _NEVER):
                    raise _BusyError(error) from None
            why = self._unopened(error.url) if error.code in (401, 403) else ""
            raise FetchError(f"{self._url}: the server answers {error.code} {error.reason}{why}") from None
        try:
            self._check_packing(response)
            if _is_empty(response):
                self._seen.look(Version(0, _validator(response.headers)))
                response.close()
                return None
            self._check(response, begin, end)
        except BaseException:
            response.close()
            raise
        return response

    def _unopened(self, url: str) -> str:
        """Return the likely reason for a refusal by the server, for the message."""
        if not self._secret:
            return ": it may need credentials (spec.input.http.headers)"
        if _origin(url) != _origin(self._url):
            there = urllib.parse.urlsplit(url).hostname
            return f": it was redirected to {there}, which does not get the credentials (spec.input.http.headers)"
        return ": it does not take the credentials that the Secret holds (spec.input.http.headers)"

    def _check_packing(self, response: http.client.HTTPResponse) -> None:
        """Check that the server sends the bytes of the file itself: lines and records have no place in packed ones."""
        packing = ", ".join(response.headers.get_all("Content-Encoding", ())).strip()
        if packing.lower() not in ("", "identity"):
            raise FetchError(
                f"{self._url}: the server sends the input packed (Content-Encoding: {packing}), so it cannot be cut: "
                "store it unpacked; if its bytes are to be read as they are stored, store it without this header"
            )

    def _check(self, response: http.client.HTTPResponse, begin: int, end: int) -> None:
        """Check that the answer is the requested range of the same input as the answers before."""
        told = response.headers.get("Content-Range", "").strip()
        found = re.fullmatch(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})", told)
        if response.status != 206:
            raise FetchError(
                f"{self._url}: the server does not support byte ranges (it answers {response.status}, not 206 to "
                f"bytes={begin}-{end - 1}): no part of the input can be fetched alone"
            )
        if found is None:
            raise FetchError(f"{self._url}: the server does not say how large the input is (Content-Range: {told!r})")
        first, last, size = (int(number) for number in found.groups())
        self._seen.look(Version(size, _validator(response.headers)))
        if (first, last) != (begin, end - 1):
            raise FetchError(f"{self._url}: asked for bytes {begin}-{end - 1}, the server sends {first}-{last}")


def _is_empty(response: http.client.HTTPResponse) -> bool:
    """Whether an answer to a request for the first byte says that the file has none.

    Servers answer such a request in different ways, besides 416 (S3, Cloud Storage, Azure): nginx, Apache and Go with
    200 and no body, emulators of object stores with 206 and a Content-Range such as ``bytes 0--1/0``.
    """
    if response.status == 206:
        return response.headers.get("Content-Range", "").strip().endswith("/0")
    # an answer that ends with its connection may have been cut
    return response.status == 200 and (response.length == 0 or (bool(response.chunked) and not response.read(1)))


class _Received:
    """Writes the number of received bytes for the agent, which thereby finds a transfer that hangs.

    It is a separate thread, because the last count before a hang must be written too.
    """

    def __init__(self, folder: str | None) -> None:
        self._path = Path(folder) / "received" if folder else None
        self._told = -1
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="received", daemon=True)
        self.count = 0

    def begin(self) -> None:
        self._tell()
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._tell()

    def _tell(self) -> None:
        count = self.count
        if self._path is None or count == self._told:
            return
        draft = self._path.with_name("received.tmp")
        draft.write_text(f"{count}\n", encoding="ascii")
        draft.replace(self._path)
        self._told = count

    def _watch(self) -> None:
        while not self._over.wait(_PERIOD):
            with contextlib.suppress(OSError):  # it is written again, and the step itself reports the error
                self._tell()


def _source(env: dict[str, str]) -> Source:
    url, path = env.get("PUNCTUAL_INPUT_URL"), env.get("PUNCTUAL_INPUT_PATH")
    if url:
        if not re.match("https?://", url):
            raise FetchError(f"{url} is not an address that begins with http:// or https:// (spec.input.http.url)")
        return _Http(url, float(env.get("PUNCTUAL_INPUT_TIMEOUT", "60")), _secret(env))
    if path:
        return _File(path)
    raise FetchError("neither PUNCTUAL_INPUT_URL nor PUNCTUAL_INPUT_PATH says where the input is")


def _secret(env: dict[str, str]) -> dict[str, str]:
    """Return the secret headers that open the input.

    A header that cannot be sent is refused here: the library's error would contain its value.
    """
    found = {}
    for n, name in enumerate(env.get("PUNCTUAL_INPUT_HEADERS", "").split()):
        found[name] = env[f"PUNCTUAL_INPUT_HEADER_{n}"].strip()
        if not re.fullmatch("[ -~]+", found[name]):
            raise FetchError(
                f"what the Secret holds for the header {name} is not one line of ASCII (spec.input.http.headers[{n}])"
            )
    return found


def _wait(turn: Path) -> float:
    """Wait for the turn. Returns the seconds that it took: 0 if the turn was there before."""
    up, waited = time.monotonic(), 0.0
    while True:
        with contextlib.suppress(OSError):  # the annotation does not exist yet
            if turn.read_bytes().strip():
                return waited
        time.sleep(_LOOK)
        waited = time.monotonic() - up


def _begun_with(env: dict[str, str]) -> Version | None:
    """Return the version that the job began with, or None while no chunk has read one."""
    size = env.get("PUNCTUAL_INPUT_SIZE")
    return Version(int(size), env.get("PUNCTUAL_INPUT_VALIDATOR", "")) if size else None


def _fetch(env: dict[str, str]) -> dict[str, float | str]:
    begin, end, total = (int(env[f"PUNCTUAL_{name}"]) for name in ("BEGIN", "END", "TOTAL"))
    record, separator = (
        int(env.get("PUNCTUAL_INPUT_RECORD_BYTES", "1")),
        env.get("PUNCTUAL_INPUT_SEPARATOR", "").encode(),
    )
    if env.get("PUNCTUAL_INPUT_CUT") == "Lines":
        separator = b"\n"
    if overlaps(separator):
        raise FetchError(f"separator {separator!r} overlaps itself: where a record begins is not certain")
    target = Path(env["PUNCTUAL_INPUT"])
    source, received = _source(env), _Received(env.get("PUNCTUAL_DIR"))
    waited = _wait(Path(env.get("PUNCTUAL_TURN", "/etc/punctual/fetch")))
    began = time.monotonic()
    received.begin()
    version, wanted = source.version(), _begun_with(env)
    if wanted is not None and version != wanted:
        where = env.get("PUNCTUAL_INPUT_URL") or env.get("PUNCTUAL_INPUT_PATH")
        raise ChangedError(f"the input has changed: it is {version} now; the job began with {wanted} ({where})")
    size = version.size
    bounds = share(begin, end, total, size, record=record)
    opened, offset = None, bounds.end
    with target.open("wb") as file:
        for at, block in cut(source, bounds, size, separator=separator):
            if opened is None:
                opened, offset = time.monotonic(), at
            file.write(block)
            received.count += len(block)
    (target.parent / "offset").write_text(f"{offset}\n", encoding="ascii")
    (target.parent / "size").write_text(f"{size}\n", encoding="ascii")
    received.end()
    over = time.monotonic()
    return {
        "bytes": received.count,
        "waited": round(waited, 3),
        "opening": round((opened or over) - began, 3),
        "seconds": round(over - began, 3),
        "size": size,
        "validator": version.validator,
    }


def _terminated(signum: int, _frame: object) -> None:
    raise SystemExit(128 + signum)


def main() -> int:
    """Run the step. The termination message has the measurements or the error."""
    # the first process of a container ignores SIGTERM without a handler, and would be killed much later
    signal.signal(signal.SIGTERM, _terminated)
    os.umask(0o022)  # the agent and the job's containers may run as other users
    log = os.environ.get("PUNCTUAL_TERMINATION_LOG", "/dev/termination-log")
    try:
        told, status = json.dumps(_fetch(dict(os.environ))), 0
    except (FetchError, OSError, KeyError, ValueError) as error:
        told, status = f"{type(error).__name__}: {error}", FetchError.status
        if isinstance(error, FetchError):
            told, status = str(error), error.status
    print(told, file=sys.stderr if status else sys.stdout)
    with contextlib.suppress(OSError):  # there is none outside a container
        Path(log).write_text(told[:2000], encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
