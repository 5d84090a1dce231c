"""The agent's client for the operator: one POST each second sends a Report and receives SetPoints.

It uses ``http.client`` in a separate thread. An agent asks one server once a second, and name resolution, which no
time-out limits, must not delay the caps. Token and CA are files that rotate, so both are read at each exchange. The
connection is kept while answers are 200 and closed at any other answer: a Service routes only a new connection to the
new leader.

A failure is an :class:`ExchangeError` with a kind for counters. No failure is fatal; the agent continues alone.
"""

import contextlib
import http.client
import queue
import ssl
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from punctual.wire import REPORT_PATH, Report, SetPoints

LARGEST_ANSWER: Final = 4 << 20
"""Limit in bytes. A thousand set points take a twentieth of it."""


class ExchangeError(Exception):
    """An exchange that gave no set points.

    ``kind``: noToken, noCA, unreachable, timeout, tls, refused (401, 403), notLeader (503), status, badAnswer,
    lowerEpoch.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Answered(NamedTuple):
    """The answer to a report, and when the report left and the answer was there, on CLOCK_MONOTONIC."""

    points: SetPoints
    sent: float
    received: float


def question(report: Report) -> bytes:
    """Return the body that asks for the set points."""
    return report.model_dump_json(exclude_none=True).encode()


def understood(report: Report, status: int, text: bytes) -> SetPoints:
    """Return the set points that answer a report. Raises ExchangeError, or ValidationError if the answer is none."""
    if status != http.HTTPStatus.OK:
        kind = {401: "refused", 403: "refused", 503: "notLeader"}.get(status, "status")
        raise ExchangeError(
            kind, f"{status} {http.client.responses.get(status, '')}: {text[:200].decode(errors='replace')}"
        )
    if len(text) > LARGEST_ANSWER:
        raise ExchangeError("badAnswer", f"the answer has more than {LARGEST_ANSWER} bytes")
    points = SetPoints.model_validate_json(text)
    if points.epoch < report.epoch:
        raise ExchangeError("lowerEpoch", f"epoch {points.epoch} after {report.epoch}: the leader was replaced")
    return points


class Exchange:
    """A client of one operator. Not safe for use by two threads at the same time."""

    def __init__(self, url: str, *, token_file: Path, ca_file: Path, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"not an https:// address: {url!r}")
        self._host, self._port = parts.hostname, parts.port or 443
        self._path = parts.path.rstrip("/") + REPORT_PATH
        self._token_file, self._ca_file = token_file, ca_file
        self._timeout = timeout
        self._ca = b""
        self._context: ssl.SSLContext | None = None
        self._connection: http.client.HTTPSConnection | None = None

    def post(self, report: Report) -> Answered:
        """Send the report and return the set points. Raises ExchangeError."""
        token = self._read(self._token_file, "noToken").decode("ascii", "replace").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            status, text, sent, received = self._request(question(report), headers, self._read(self._ca_file, "noCA"))
            return Answered(understood(report, status, text), sent, received)
        except Exception as error:
            self.close()
            raise _explained(error) from error

    def close(self) -> None:
        """Close the connection. The next exchange opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, body: bytes, headers: dict[str, str], ca: bytes) -> tuple[int, bytes, float, float]:
        if ca != self._ca or self._context is None:
            self.close()
            self._context, self._ca = _trusting(ca), ca
        kept = self._connection is not None
        try:
            return self._send(body, headers, self._context)
        except (ConnectionError, ssl.SSLEOFError, http.client.HTTPException):
            # a kept connection may have closed since; the sequence number makes a repeated report harmless
            self.close()
            if not kept:
                raise
        return self._send(body, headers, self._context)

    def _send(self, body: bytes, headers: dict[str, str], context: ssl.SSLContext) -> tuple[int, bytes, float, float]:
        """Return status and text, and when the request left and the text was there."""
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=context
            )
            self._connection.connect()  # not counted as time under way; it sets TCP_NODELAY
        sent = time.monotonic()
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read(LARGEST_ANSWER + 1)
        return answer.status, text, sent, time.monotonic()

    @staticmethod
    def _read(path: Path, kind: str) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise ExchangeError(kind, f"{path}: {error.strerror}") from error


def _trusting(ca: bytes) -> ssl.SSLContext:
    """Return a TLS context that trusts these certificates only. Raises ExchangeError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ValueError, ssl.SSLError) as error:
        raise ExchangeError("noCA", f"the CA file holds no PEM certificate: {error}") from error
    return context


# the order matters: time-outs and TLS errors are OSErrors too
_EXPLAINED: Final = (
    (ConnectionError, "unreachable"),
    (ValidationError, "badAnswer"),
    (http.client.HTTPException, "badAnswer"),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (OSError, "unreachable"),
)


def _explained(error: Exception) -> Exception:
    """Convert a network error to an ExchangeError. Other errors are returned unchanged."""
    if isinstance(error, ExchangeError):
        return error
    for kind, word in _EXPLAINED:
        if isinstance(error, kind):
            return ExchangeError(word, str(error)[:300] or repr(error))
    return error


class Exchanger(threading.Thread):
    """Thread that sends reports to the operator and puts each result, Answered or an error, into ``inbox``.

    The newest report wins: a report that waits while an exchange hangs is replaced, because an old one has no value. An
    error that is not an ExchangeError is a bug. It reaches the inbox too and ends the agent.
    """

    def __init__(self, exchange: Exchange, inbox: "queue.SimpleQueue[Answered | BaseException | None]") -> None:
        super().__init__(name="exchange", daemon=True)
        self._exchange = exchange
        self._inbox = inbox
        self._outbox: queue.Queue[Report] = queue.Queue(maxsize=1)

    def offer(self, report: Report) -> None:
        """Send this report next. Only one thread may call it."""
        with contextlib.suppress(queue.Empty):
            self._outbox.get_nowait()
        self._outbox.put(report)

    def run(self) -> None:
        """Exchange until the process ends. The thread is a daemon."""
        while True:
            report = self._outbox.get()
            try:
                self._inbox.put(self._exchange.post(report))
            except BaseException as error:  # noqa: BLE001  passed to the main thread, which tells them apart
                self._inbox.put(error)
