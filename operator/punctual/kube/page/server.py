"""Serves the page, read-only. Its document contains no data, and the data needs a right.

    GET /          the document
    GET /events    the page as server-sent events: once as a whole, then a merge patch per change
    GET /why       ?job=UID or ?rate=UID: why a job or a TargetRate is as it is, in sentences

At the port for all interfaces (HTTPS) each request for data carries a bearer token, and its user sees the namespaces in
which it may list jobs. At the loopback port no token is needed: only a program in the pod reaches it, or a user with
the right to forward ports of the operator's pod, and that user sees everything.
"""

import asyncio
import base64
import contextlib
import hashlib
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import resources
from typing import Final, NamedTuple

import orjson
import structlog
from aiohttp import web

from punctual.errors import ClusterError
from punctual.kube.page.model import Json, Reading, page, patch
from punctual.kube.page.viewers import Viewers
from punctual.kube.page.why import explain, explain_rate
from punctual.kube.port import Cause, Limits, Port

log = structlog.get_logger(__name__)

EVERY: Final = 1.0
"""Seconds between two looks at the leader's state, for each open page ..."""
SHARE: Final = 0.05
"""... or more: all open pages together take at most this share of the operator's time."""
REVIEWED: Final = 60.0
"""Seconds after which an open page's rights are asked again."""
MOST_PAGES: Final = 50
"""Open pages at the same time: each costs a look a second."""
MOST_OF_ONE: Final = 10
"""The same of one user: no user keeps the others out."""
LIMITS: Final = Limits(strangers=100, of_one=MOST_PAGES)
"""Limits on connections of each of both ports. Users behind one proxy share connections."""
SLOW: Final = 20.0
"""Seconds for a viewer to accept an event."""
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names by which a browser may call the loopback port: another name is a foreign site's that points here."""
NOT_LEADING: Final = "this replica does not lead: call the leader, which the Service selects"

Rights = frozenset[str] | None
"""The namespaces that a viewer sees. None: all."""


class Viewer(NamedTuple):
    """The sender of a request. ``user``: empty at the loopback port."""

    user: str
    visible: Rights


Identify = Callable[[web.Request], Awaitable[Viewer]]
"""Identifies a request's viewer; an HTTP error for one without rights."""


class PageServer:
    """The server. ``state`` returns the leader's, None while this replica does not lead. ``viewers`` knows rights."""

    def __init__(
        self,
        state: Callable[[], Reading | None],
        viewers: Viewers,
        *,
        closed: Callable[[Cause], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._viewers = viewers
        self._document = resources.files(__package__).joinpath("page.html").read_bytes()
        self._headers = {
            "Content-Security-Policy": _policy(self._document.decode()),
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        self._open: Counter[str] = Counter()
        self._outer, self._loopback = Port(LIMITS, closed=closed), Port(LIMITS, closed=closed)

    async def start(self, context: ssl.SSLContext, *, port: int = 8444, loopback_port: int = 8090) -> tuple[int, int]:
        """Listen: HTTPS on all interfaces, HTTP on loopback. Returns both ports (for 0, the one that was assigned)."""
        return (
            await self._outer.open(self._app(self._by_token), host=None, port=port, context=context),
            await self.listen_on_loopback(loopback_port),
        )

    async def listen_on_loopback(self, port: int) -> int:
        """Listen to loopback only. Returns the port."""
        return await self._loopback.open(self._app(self._by_loopback), host="127.0.0.1", port=port)

    async def stop(self) -> None:
        """Stop listening. Open pages end."""
        await self._outer.close()
        await self._loopback.close()

    def _app(self, identify: Identify) -> web.Application:
        app = web.Application(client_max_size=1 << 12)
        app.router.add_get("/", self._page)
        app.router.add_get("/events", partial(self._events, identify))
        app.router.add_get("/why", partial(self._why, identify))
        return app

    # rights

    async def _by_token(self, request: web.Request) -> Viewer:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise web.HTTPUnauthorized(text="a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})
        try:
            user = await self._viewers.user(token.strip())
            if user is None:
                raise web.HTTPUnauthorized(text="the cluster does not accept this token: get a new one")
            self._outer.identified(request.transport, user.name)
            return Viewer(user.name, await self._viewers.visible(user, self._namespaces()))
        except ClusterError as error:
            log.warning("viewer_not_reviewed", error=str(error))
            raise web.HTTPServiceUnavailable(text="the API server does not answer: try again") from error

    async def _by_loopback(self, request: web.Request) -> Viewer:
        if re.sub(r":\d+$", "", request.host) not in LOCAL:
            raise web.HTTPForbidden(text="call this port as localhost or 127.0.0.1")
        return Viewer("", None)

    def _namespaces(self) -> frozenset[str]:
        reading = self._read()
        jobs = {known.owner.namespace for known in reading.jobs.values()}
        others = (*reading.reservations.values(), *reading.rates.values())
        return frozenset(jobs | {known.metadata.namespace for known in others})

    def _read(self) -> Reading:
        if (reading := self._state()) is None:
            raise web.HTTPServiceUnavailable(text=NOT_LEADING)
        return reading

    # answers

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._document, content_type="text/html", charset="utf-8", headers=self._headers)

    async def _why(self, identify: Identify, request: web.Request) -> web.Response:
        viewer = await identify(request)
        reading = self._read()
        if (uid := request.query.get("rate")) is not None:
            sentences = explain_rate(reading, uid, viewer.visible)
        else:
            sentences = explain(reading, request.query.get("job", ""), viewer.visible)
        if sentences is None:
            raise web.HTTPNotFound(text="there is no such object, or you may not see it")
        return web.Response(
            body=orjson.dumps({"sentences": sentences}), content_type="application/json", headers=self._headers
        )

    async def _events(self, identify: Identify, request: web.Request) -> web.StreamResponse:
        viewer = await identify(request)
        self._read()
        if self._open.total() >= MOST_PAGES or (viewer.user and self._open[viewer.user] >= MOST_OF_ONE):
            raise web.HTTPServiceUnavailable(
                text=f"{self._open[viewer.user]} pages are open ({self._open.total()} of all users); the maximum is "
                f"{MOST_OF_ONE} ({MOST_PAGES}): close one"
            )
        response = web.StreamResponse(headers={**self._headers, "Content-Type": "text/event-stream"})
        self._open[viewer.user] += 1
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, TimeoutError, web.HTTPException):  # the viewer connects again
                await self._stream(request, response, identify, viewer.visible)
        finally:
            self._open[viewer.user] -= 1
            self._open += Counter()  # drop users without a page
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, identify: Identify, visible: Rights
    ) -> None:
        """Send the page, then what changes, until the viewer goes, its rights end or this replica leads no more."""
        loop = asyncio.get_running_loop()
        before: Json | None = None
        reviewed = loop.time()
        while True:
            if loop.time() - reviewed > REVIEWED:
                visible, reviewed = (await identify(request)).visible, loop.time()
            began = loop.time()
            after = page(self._read(), visible)
            kind, data = (b"page", after) if before is None else (b"patch", patch(before, after))
            event = b"event: %s\ndata: %s\n\n" % (kind, orjson.dumps(data))
            pause = max(EVERY, (loop.time() - began) * self._open.total() / SHARE)
            async with asyncio.timeout(SLOW):
                await response.write(event)
            before = after
            await asyncio.sleep(pause)


def _policy(document: str) -> str:
    """Return a policy under which only the document's own script and style run, and only this server is called."""
    own = {"script": "script-src", "style": "style-src"}
    allowed = [
        f"{rule} 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for tag, rule in own.items()
        for text in re.findall(f"<{tag}>(.*?)</{tag}>", document, re.DOTALL)
    ]
    rest = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return "; ".join([rest, "img-src data:", *allowed])
