"""The agent's side of the wire: one POST per second, up a Report, down SetPoints.

Plain ``http.client`` in a thread of its own: an agent asks one server once a second, and name resolution, which no
time-out bounds, must not hold up the caps. Token and CA are files that rotate, so both are read again each time; the
connection is kept while all goes well and dropped at any answer but 200, because a Service leads a new connection, and
only a new one, to the new leader.

Failures are :class:`ExchangeError` with a word for counters; none is fatal, the agent goes on alone.
"""

import contextlib
import http.client
import queue
import ssl
import threading
import urllib.parse
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from punctual.wire import REPORT_PATH, Report, SetPoints

LARGEST_ANSWER: Final = 4 << 20
"""Bytes; a thousand set points are a twentieth of it."""


class ExchangeError(Exception):
    """One exchange that gave no set points.

    ``kind``: noToken, noCA, unreachable, timeout, tls, refused (401, 403), notLeader (503), status, badAnswer,
    lowerEpoch.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Exchange:
    """One operator. Not for two threads at a time."""

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

    def post(self, report: Report) -> SetPoints:
        """Say what was seen, be told what to do. Raises ExchangeError."""
        body = report.model_dump_json(exclude_none=True).encode()
        token = self._read(self._token_file, "noToken").decode("ascii", "replace").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            answer = self._request(body, headers, self._read(self._ca_file, "noCA"))
            points = SetPoints.model_validate_json(answer)
        except Exception as error:
            self.close()
            raise _explained(error) from error
        if points.epoch < report.epoch:
            self.close()
            raise ExchangeError("lowerEpoch", f"epoch {points.epoch} after {report.epoch}: an old leader")
        return points

    def close(self) -> None:
        """Drop the connection; the next exchange makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, body: bytes, headers: dict[str, str], ca: bytes) -> bytes:
        if ca != self._ca or self._context is None:
            self.close()
            self._context, self._ca = _trusting(ca), ca
        kept = self._connection is not None
        try:
            return self._send(body, headers, self._context)
        except (ConnectionError, ssl.SSLEOFError, http.client.HTTPException):
            # a kept connection may have ended between two seconds: the sequence number makes saying it twice harmless
            self.close()
            if not kept:
                raise
        return self._send(body, headers, self._context)

    def _send(self, body: bytes, headers: dict[str, str], context: ssl.SSLContext) -> bytes:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=context
            )
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read(LARGEST_ANSWER + 1)
        if answer.status != http.HTTPStatus.OK:
            kind = {401: "refused", 403: "refused", 503: "notLeader"}.get(answer.status, "status")
            raise ExchangeError(kind, f"{answer.status} {answer.reason}: {text[:200].decode(errors='replace')}")
        if len(text) > LARGEST_ANSWER:
            raise ExchangeError("badAnswer", f"more than {LARGEST_ANSWER} bytes")
        return text

    @staticmethod
    def _read(path: Path, kind: str) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise ExchangeError(kind, f"{path}: {error.strerror}") from error


def _trusting(ca: bytes) -> ssl.SSLContext:
    """Make a context that trusts these certificates only. Raises ExchangeError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ValueError, ssl.SSLError) as error:
        raise ExchangeError("noCA", f"the CA file holds no PEM certificate: {error}") from error
    return context


# the order counts: time-outs and TLS errors are OSErrors too
_EXPLAINED: Final = (
    (ConnectionError, "unreachable"),
    (ValidationError, "badAnswer"),
    (http.client.HTTPException, "badAnswer"),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (OSError, "unreachable"),
)


def _explained(error: Exception) -> Exception:
    """As an ExchangeError; what has nothing to do with the exchange as it is."""
    if isinstance(error, ExchangeError):
        return error
    for kind, word in _EXPLAINED:
        if isinstance(error, kind):
            return ExchangeError(word, str(error)[:300] or repr(error))
    return error


class Exchanger(threading.Thread):
    """Carries reports to the operator and puts what comes back, SetPoints or an error, into ``inbox``.

    The newest report wins: what waits while an exchange hangs is replaced, an old second is worth nothing. An error
    that is no ExchangeError is a bug: it reaches the inbox too, and the agent ends by it.
    """

    def __init__(self, exchange: Exchange, inbox: "queue.SimpleQueue[SetPoints | BaseException | None]") -> None:
        super().__init__(name="exchange", daemon=True)
        self._exchange = exchange
        self._inbox = inbox
        self._outbox: queue.Queue[Report] = queue.Queue(maxsize=1)

    def offer(self, report: Report) -> None:
        """Send this next. Only one thread offers."""
        with contextlib.suppress(queue.Empty):
            self._outbox.get_nowait()
        self._outbox.put(report)

    def run(self) -> None:
        """Exchange for ever; a daemon thread, it ends with the process."""
        while True:
            report = self._outbox.get()
            try:
                self._inbox.put(self._exchange.post(report))
            except BaseException as error:  # noqa: BLE001  handed to the main thread, which tells them apart
                self._inbox.put(error)
