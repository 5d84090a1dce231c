"""A port that serves HTTP, with limits on its connections: callers without rights must not take what others need.

A connection is a stranger's until the server has identified its caller. Each costs memory before its caller has shown
anything, so strangers have limits on number, time and bytes. They begin with the TCP connection:

    no whole request in time      the handshake and the first request's header share one limit; it is closed
    no further request in time    closed, also if the caller does not read the answer
    too many bytes                more than a request without its body needs; closed
    too many strangers            of those that wait for no answer, the oldest of the address with the most is closed

Many honest callers may share an address (NAT, a proxy), so no address has a limit of its own. Identified callers are
limited in the number of their own connections only, and strangers never displace them. While a request is being
answered, its connection has no limit on time: the API server that reviews a token may be slow.
"""

import asyncio
import logging
import math
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = structlog.get_logger(__name__)

TLS_BUFFER: Final = 1 << 14
"""Bytes that each TLS connection of the process reads at a time, from a buffer of its own: one TLS record. asyncio's
262,144 were nine tenths of a connection's memory and are no faster, because a read returns one record."""
UNREAD: Final = 1 << 14
"""Bytes of a body that wait for their reader before the caller must wait."""
OF_STRANGER: Final = 3 << 15
"""Bytes that a stranger may send for a request, beyond what waits for a reader elsewhere."""
BACKLOG: Final = 2048
"""Connections that wait to be accepted: all agents of a big cluster come at once after a takeover."""
GOODBYE: Final = 5.0
"""Seconds for a caller to confirm the end of TLS."""
PAUSE: Final = 1.0
"""Seconds without accepting after an error."""

Cause = Literal["tooSlow", "idle", "tooMuch", "crowded", "replaced", "handshakeFailed"]
"""Why the port has closed a connection. replaced: its caller has opened too many others."""


def allow_open_files() -> None:
    """Raise this process's limit on open files, and so on connections, as far as it may.

    A container often begins with 1,024, which select() of old programs needs: fewer than agents may connect.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the connections of one port."""

    strangers: int
    """Connections with a caller that is not identified."""
    of_one: int
    """Connections of one identified caller."""
    first: float = 15.0
    """Seconds from the connection to its first whole request header, with the TLS handshake."""
    headers: int = 64
    """Lines of a request's header: parsed, one takes ten times its bytes."""
    idle: float = 75.0
    """Seconds from an answer to the next whole request header."""


class Port:
    """An open port. ``closed`` is called for each connection that the port closes itself."""

    def __init__(self, limits: Limits, *, closed: Callable[[Cause], None] = lambda _: None) -> None:
        self.closed = closed
        self._limits = limits
        self._strangers: dict[_Connection, None] = {}
        """In the order in which they came."""
        self._identified: dict[str, dict[_Connection, None]] = {}
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(
        self,
        app: web.Application,
        *,
        host: str | None,
        port: int,
        context: ssl.SSLContext | None = None,
        grace: float = 1.0,
    ) -> int:
        """Serve an application: HTTPS with a ``context``, else HTTP; on all interfaces if ``host`` is None.

        ``grace``: seconds that requests have to end when the port is closed. Returns the port (for 0, the one that was
        assigned).
        """
        if context is not None:
            SSLProtocol.max_size = TLS_BUFFER  # there is no setting for it; one limit for the whole process
        app.middlewares.append(self._answer)
        logging.getLogger("aiohttp.server").addFilter(_is_ours)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=grace, read_bufsize=UNREAD, max_headers=self._limits.headers
        )
        await self._runner.setup()
        listener = _listen(host, port)
        self._tasks = [
            asyncio.create_task(self._accept(listener, context)),
            asyncio.create_task(self._close_the_silent()),
        ]
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Close the port. Open requests have the grace period to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._runner:
            for connection in [c for c in self._strangers if c.transport is None]:
                connection.abort()
            await self._runner.cleanup()
            self._runner = None

    def identified(self, transport: asyncio.BaseTransport | None, name: str) -> None:
        """Take note of the caller of a connection. The first name of a connection stays."""
        connection = _connection_of(transport)
        if connection is None or connection not in self._strangers:
            return
        self.left(connection)
        own = self._identified.setdefault(name, {})
        connection.name = name
        own[connection] = None
        if len(own) > self._limits.of_one:
            self.drop(next(iter(own)), "replaced")

    def left(self, connection: "_Connection") -> None:
        """Forget a connection that has ended, or that is no stranger's any more."""
        if connection in self._strangers:
            del self._strangers[connection]
        elif connection.name is not None and (own := self._identified.get(connection.name)):
            own.pop(connection, None)
            if not own:
                del self._identified[connection.name]

    def drop(self, connection: "_Connection", cause: Cause) -> None:
        """Close a connection."""
        self.left(connection)
        self.closed(cause)
        connection.abort()

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        connection = _connection_of(request.transport)
        if connection is None:  # the caller has gone
            return await handler(request)
        connection.expect(math.inf)
        try:
            return await handler(request)
        finally:
            connection.expect(asyncio.get_running_loop().time() + self._limits.idle, asked=True)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        assert self._runner is not None
        assert self._runner.server is not None
        with listener:
            while True:
                try:
                    sock, address = await loop.sock_accept(listener)
                except OSError as error:
                    # usually no file descriptor is left
                    log.warning("connection_not_accepted", error=str(error))
                    self._make_way()
                    await asyncio.sleep(PAUSE)
                    continue
                connection = _Connection(self, address[0], self._runner.server())
                connection.expect(loop.time() + self._limits.first)
                self._strangers[connection] = None
                connection.begin(sock, context)
                if len(self._strangers) > self._limits.strangers:
                    self._make_way()
                await asyncio.sleep(0)  # accepting alone does not yield: a flood would stop all else

    def _make_way(self) -> None:
        """Close a stranger that waits for no answer: of the address that has the most of these, the oldest.

        The newest is one, so strangers that wait for their answers stay, and their number is limited, too.
        """
        silent = [c for c in self._strangers if c.until < math.inf]
        if silent:
            hosts = Counter(c.host for c in silent)
            self.drop(max(silent, key=lambda c: hosts[c.host]), "crowded")  # max: the first of equals

    async def _close_the_silent(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._limits.first, self._limits.idle) / 10)
            now = loop.time()
            known = (c for own in self._identified.values() for c in own)
            for connection in [c for c in (*self._strangers, *known) if c.until < now]:
                self.drop(connection, "idle" if connection.asked else "tooSlow")


@dataclass(eq=False, slots=True)
class _Connection(asyncio.Protocol):
    """One connection: passes all on to the protocol of HTTP, and counts."""

    port: Port
    host: str
    http: asyncio.Protocol
    name: str | None = None
    """The identified caller."""
    until: float = math.inf
    """When it is closed if it does not ask, on the loop's clock. Infinite while it is answered."""
    asked: bool = False
    """Whether it has had an answer."""
    received: int = 0
    """Bytes since its last request began or was answered."""
    transport: asyncio.Transport | None = None
    """None before the handshake is done."""
    task: "asyncio.Task[Any] | None" = field(default=None, repr=False)
    """The handshake."""

    def begin(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Begin the handshake."""

        def done(task: "asyncio.Task[Any]") -> None:
            self.task = None
            error = None if task.cancelled() else task.exception()
            if error is None and not task.cancelled():
                return
            sock.close()
            self.port.left(self)
            if error is not None:
                self.port.closed("handshakeFailed")
                if not isinstance(error, OSError):
                    log.error("handshake_failed", error=repr(error))

        loop = asyncio.get_running_loop()
        goodbye = GOODBYE if context else None
        made = loop.connect_accepted_socket(lambda: self, sock, ssl=context, ssl_shutdown_timeout=goodbye)
        self.task = loop.create_task(made)
        self.task.add_done_callback(done)

    def expect(self, until: float, *, asked: bool = False) -> None:
        """Note that a request has come or was answered, and by when the next one must come."""
        self.until, self.received = until, 0
        self.asked = self.asked or asked

    def abort(self) -> None:
        """Close it at once: a stranger could delay an orderly end."""
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("sslcontext") is not None:
            # encrypted bytes wait for the reader, too: by default sixteen times as many
            cast(Any, transport).set_read_buffer_limits(high=UNREAD)
        self.http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.name is None:
            self.received += len(data)
            if self.received > OF_STRANGER:
                self.port.drop(self, "tooMuch")
                return
        self.http.data_received(data)

    def eof_received(self) -> bool | None:
        return self.http.eof_received()

    def pause_writing(self) -> None:
        self.http.pause_writing()

    def resume_writing(self) -> None:
        self.http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.port.left(self)
        self.http.connection_lost(exc)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether the log needs a record. Strangers would fill it with a traceback for each malformed request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _connection_of(transport: asyncio.BaseTransport | None) -> _Connection | None:
    protocol = transport.get_protocol() if transport is not None else None
    return protocol if isinstance(protocol, _Connection) else None


def _listen(host: str | None, port: int) -> socket.socket:
    if host is None and socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    else:
        listener = socket.create_server((host or "", port), backlog=BACKLOG)
    listener.setblocking(False)
    return listener
