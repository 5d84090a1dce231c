"""What processes reach each other by: latency, cuts, busy servers, answers that are lost, watches that fall silent.

A request is delivered although its sender dies meanwhile: the way is the world's, not the sender's.
"""

import asyncio
import collections
import hashlib

import orjson

from edge.apiserver import Answer, Watching, partial, token
from edge.store import Compacted

NEAR, FAR = 0.001, 0.02
"""Seconds of a way."""
BOOKMARK = 60.0
RESENT = 0.2
"""Seconds after which TCP tries again."""


class Network:
    """Ways between processes and the API server. ``story`` is called for each write with
    the name of its process, method, path, body and code."""

    def __init__(self, loop, server, random, story=lambda *_: None):
        self.loop, self.server, self.random, self.story = loop, server, random, story
        self.cut = set()  # (from, to)
        self.deaf = set()  # names of processes: their watches are silent
        self.lag = {}  # seconds by which the watches of a process are late
        self.refusing = 0.0  # part of the requests that the server refuses: it is busy
        self.losing = 0.0  # part of the answers that are lost
        self.behind = {}  # by process: the version at which the watch cache of its server stands still
        self.relists = set()  # names of processes that are told if they watch from a version of the future
        self.digest = hashlib.sha256()

    def later(self, seconds, callback, *args):
        """Call in the world's time, also if the process that asks for it dies meanwhile."""
        self.loop.in_world(seconds, callback, *args)

    def way(self):
        """Return the seconds that one way takes."""
        return NEAR + (FAR - NEAR) * self.random.random() ** 3

    def passes(self, begin, end):
        """Return whether anything comes through."""
        return (begin, end) not in self.cut

    def note(self, process, method, path, params, data, code):  # noqa: PLR0917
        """Put a request into the digest."""
        line = f"{self.loop.now:.6f} {process} {method} {path} {sorted((params or {}).items())} {code}"
        self.digest.update(line.encode() + (data or b""))

    def request(self, process, method, path, params, headers, data):  # noqa: PLR0917
        """Send a request; return the future of its response. It may never come."""
        future = self.loop.create_future()
        if not self.passes(process.name, "server"):
            return future
        self.later(self.way(), self._arrive, future, process, method, path, dict(params or {}), headers, data)
        return future

    def _arrive(self, future, process, method, path, params, headers, data):  # noqa: PLR0917
        if self.refusing and self.random.random() < self.refusing:
            status = {"kind": "Status", "message": "too many requests", "reason": "TooManyRequests", "code": 429}
            answer = Answer(429, status, {"Retry-After": "1"})
        else:
            answer = self.server.answer(method, path, self._aged(process, method, params, headers), headers, data)
        code = 200 if isinstance(answer, Watching) else answer.code
        self.note(process.name, method, path, params, data, code)
        if method != "GET" and not path.endswith("tokenreviews") and "dryRun" not in params:
            self.story(process.name, method, path, data, code)
        if not self.passes("server", process.name):
            return
        if self.losing and self.random.random() < self.losing:
            self.later(self.way(), _fail, future, ConnectionResetError("connection reset by peer"))
            return
        head = {"Date": self.server.date()}
        if isinstance(answer, Watching):
            response = Response(200, head, Stream(self, process, answer))
            self.later(self.way(), _give, future, response)
            response.content.begin()
        else:
            self.later(self.way(), _give, future, Response(answer.code, head | answer.headers, Body(answer.body)))

    def fall_behind(self, name):
        """Let a process reach a server with a watch cache that stands still from now on; return what ends that."""
        self.behind[name] = self.server.store.version
        for stream in self._streams(name):
            stream.end()

        def catch_up():
            self.behind.pop(name, None)
            for stream in self._streams(name):
                stream.catch_up()

        return catch_up

    def _streams(self, name=None):
        """Return the open watches of a process, or all."""
        watching = [hear.__self__ for hears in self.server.store.watching.values() for hear in hears]
        return [stream for stream in watching if name in {None, stream.process.name}]

    def end_watches(self):
        """End all watches, as a server does that stops."""
        for stream in self._streams():
            stream.end()

    def _aged(self, process, method, params, headers):
        """Let kopf's lists be those of a watch cache that is behind: all that hears from kopf must bear it."""
        version = self.behind.get(process.name, -1)
        ours = method == "GET" and "limit" in params and headers.get("User-Agent") == "kopf"
        if not ours or "continue" in params or version < self.server.store.compacted:
            return params
        return {**params, "continue": token(version, "")}

    def report(self, process, replica, token, data):
        """Send a report to a replica; return the future of (code, text)."""
        future = self.loop.create_future()
        if self.passes(process.name, replica.name):
            self.later(self.way(), self._deliver, future, process, replica, Request(token, data))
        return future

    def _deliver(self, future, process, replica, request):
        if replica.report_server is None or replica.process.dead:
            self.later(self.way(), _give, future, (502, ""))
        else:
            self.loop.create_task(self._hand(future, process, replica, request), context=replica.context.copy())

    async def _hand(self, future, process, replica, request):
        response = await replica.report_server.handle(request)
        if self.passes(replica.name, process.name):
            self.later(self.way(), _give, future, (response.status, response.text))


def _give(future, response):
    if not future.done():
        future.set_result(response)


def _fail(future, error):
    if not future.done():
        future.set_exception(error)


async def within(seconds, future):
    """Return what a future brings. Raises TimeoutError if it brings nothing in so many seconds; None: it may take any.

    It costs less than `asyncio.timeout`, which cancels the task: the loop does little else than wait.
    """
    if seconds is None:
        return await future
    timer = asyncio.get_running_loop().call_later(seconds, _fail, future, TimeoutError())
    try:
        return await future
    finally:
        timer.cancel()


class Body:
    """The body of a complete answer."""

    def __init__(self, data):
        self.data = data

    async def iter_any(self):
        yield self.data

    def close(self):
        pass


class Stream:
    """A watch: events on their way, in order. It ends after its seconds, like the API server's."""

    def __init__(self, network, process, watching):
        self._net, self.process, self._what = network, process, watching
        self._lines = collections.deque()
        self._there = None  # a future: a line has arrived
        self._due = 0.0
        self._kept = []  # what TCP will send again
        self._ahead = []  # what its server's watch cache does not have yet
        self._over = False
        self.silence = None

    def begin(self):
        """Send what there is, and follow."""
        net, what = self._net, self._what
        store = net.server.store
        if what.initial:
            paths = sorted(path for path, body in store.objects.items() if what.selects(path, body))
            for path in paths:
                self._send("ADDED", store.objects[path])
            self._bookmark({"k8s.io/initial-events-end": "true"})
        else:
            of_the_future = what.version > store.version and self.process.name in net.relists
            try:
                events = store.since(what.kind.resource, -1 if of_the_future else what.version)
            except Compacted:
                said = f"too old resource version: {what.version} ({store.compacted})"
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": said}
                self._push({"type": "ERROR", "object": status})
                self.end()
                return
            for event in events:
                self._hear(event)
        store.watching[what.kind.resource][self._hear] = True
        net.later(what.seconds, self.end)
        if what.bookmarks:
            net.later(BOOKMARK, self._tick)

    def _tick(self):
        if not self._over:
            if self.process.name not in self._net.behind and self._net.server.store.version > self._what.version:
                self._bookmark({})
            self._net.later(BOOKMARK, self._tick)

    def _bookmark(self, annotations):
        meta = {"resourceVersion": str(self._net.server.store.version), "annotations": annotations}
        self._push({"type": "BOOKMARK", "object": {"kind": self._what.kind.kind, "metadata": meta}})

    def _hear(self, event):
        if self._over or self.process.dead:
            self.close()
            return
        if event.version <= self._what.version:
            return  # of a store that was set back: the watch was asked to begin later
        if event.version > self._net.behind.get(self.process.name, event.version):
            self._ahead.append(event)
            return
        path, select = event.path, self._what.selects
        now = event.change != "DELETED" and select(path, event.body)
        before = event.before is not None and select(path, event.before)
        if now:
            self._send("MODIFIED" if before else "ADDED", event.body)
        elif before:
            gone = event.body if event.change == "DELETED" else {**event.before, "metadata": event.body["metadata"]}
            self._send("DELETED", gone)

    def _send(self, change, body):
        self._push({"type": change, "object": partial(body) if self._what.light else body})

    def _push(self, event):
        """Put an event on its way. Events never overtake each other."""
        net = self._net
        due = net.loop.now + net.way() + net.lag.get(self.process.name, 0.0)
        self._due = max(due, self._due)
        net.later(self._due - net.loop.now, self._arrive, orjson.dumps(event) + b"\n")

    def _arrive(self, line):
        net, name = self._net, self.process.name
        if not net.passes("server", name) or name in net.deaf or self._kept:
            if not self._kept:
                net.later(RESENT, self._resend)
            self._kept.append(line)
            return
        self._lines.append(line)
        if self._there is not None:
            _give(self._there, None)

    def _resend(self):
        kept, self._kept = self._kept, []
        for line in kept:
            self._arrive(line)

    def catch_up(self):
        """Send what the watch cache has got meanwhile."""
        ahead, self._ahead = self._ahead, []
        for event in ahead:
            self._hear(event)

    def end(self):
        """End it in good order."""
        if not self._over:
            self.close()
            self._due = max(self._due, self._net.loop.now + self._net.way())
            self._net.later(self._due - self._net.loop.now, self._arrive, b"")

    def close(self):
        self._over = True
        self._net.server.store.watching[self._what.kind.resource].pop(self._hear, None)

    async def iter_any(self):
        """Yield what arrives. No byte for `silence` seconds is an error."""
        while True:
            if not self._lines:
                self._there = self._net.loop.create_future()
                await within(self.silence, self._there)
            if not (line := self._lines.popleft()):
                return
            yield line


class Response:
    """A response as aiohttp's, as far as the client looks at it."""

    def __init__(self, status, headers, content):
        self.status, self.headers, self.content = status, headers, content

    async def read(self):
        return self.content.data

    def close(self):
        self.content.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()


class Session:
    """A client's session, as aiohttp's."""

    def __init__(self, network, process):
        self._net, self._process = network, process

    async def request(self, method, url, *, params, data, headers, timeout, **_):  # noqa: ASYNC109
        future = self._net.request(self._process, method, url, params, headers, data)
        response = await within(timeout.total or timeout.sock_connect, future)
        if isinstance(response.content, Stream):
            response.content.silence = timeout.sock_read
        return response

    async def close(self):
        """Nothing is left open."""


class Request:
    """A report as it reaches the server of the reports."""

    def __init__(self, token, data):
        self.headers = {"Authorization": f"Bearer {token}"}
        self.transport = None
        self._data = data

    async def read(self):
        return self._data
