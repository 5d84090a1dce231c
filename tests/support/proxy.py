"""Faults between an operator and a real API server: a reverse proxy that does to a call what its rules say.

    async with Proxy(kubeconfig, tmp_path / "kubeconfig") as proxy:
        rule = proxy.on("create", "pods", answer(429), nth=2)
        ...                                  # an operator runs with proxy.kubeconfig
        await rule.met.wait()

A fault (see `faults`) is a coroutine function ``fault(call, forward) -> Answer``: it may ask the server by ``await
forward()``, and raise `HangUp` to end the connection without a word. Verbs are those of RBAC; a create on trial (dry
run) is a "try". Towards the operator it speaks plain HTTP. ``narrow`` lets through one namespace, one pool and its
nodes alone, so that operators that know nothing of each other stand side by side on one server.
"""

import asyncio
import contextlib
import inspect
import json
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

WRITES = frozenset({"create", "update", "patch", "delete"})
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PASSED = {"Authorization", "Accept", "Content-Type", "User-Agent"}
_RETURNED = {"Content-Type", "Date", "Retry-After"}
JSON = {"Content-Type": "application/json"}
MAKING = 8
"""Turns of the loop, more than asyncio takes from accepting a connection to one that can be ended."""


class HangUp(Exception):  # noqa: N818  what happens, not an error
    """The connection ends, and no answer with it."""


@dataclass(frozen=True)
class Call:
    """A request, in RBAC's words; the resource with its subresource ("pods", "divisiblejobs/status")."""

    verb: str
    resource: str
    namespace: str
    name: str
    url: URL
    body: bytes
    how: str
    """Of a patch: apply, merge or json."""

    @property
    def kind(self):
        """What it does to what: ``patch divisiblejobs/status merge``."""
        return " ".join(word for word in (self.verb, self.resource, self.how) if word)


@dataclass(frozen=True)
class Answer:
    """What the operator gets; ``events`` in place of a body is a watch, ``then`` is called when it has all of it."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: bytes = b""
    events: AsyncIterator[bytes] | None = None
    then: Callable[[], object] | None = None


@dataclass
class Rule:
    """Does ``fault`` to the nth call that it fits and those behind it, ``times`` in all (None: for ever).

    ``verb`` may be "write" for all that change something, "" for any, ``resource`` "" for any; a list of pods is of
    "pods" too.
    """

    verb: str
    resource: str
    fault: Callable
    nth: int = 1
    times: int | None = 1
    where: Callable[[Call], bool] = lambda _call: True
    seen: int = 0
    done: int = 0
    """To how many calls its fault was done, or is being done."""
    met: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was done."""

    def applies(self, call):
        """Count a call; return whether it is to meet the fault."""
        verbs = WRITES if self.verb == "write" else {self.verb}
        if (self.verb and call.verb not in verbs) or self.resource not in ("", call.resource) or not self.where(call):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class Proxy:
    """Stands before the API server of a kubeconfig (by token); writes a kubeconfig that leads through it to ``to``."""

    def __init__(self, kubeconfig, to, *, page=None):
        self.kubeconfig = to
        self.calls = []
        """Those that came, in order."""
        self._page = page  # objects in a page of a list, at most
        self._rules = []
        self._scope = None
        self._handling = set()
        self._sockets = weakref.WeakSet()  # towards the server
        self._config = json.loads(kubeconfig.read_text())
        cluster = self._config["clusters"][0]["cluster"]
        self._target = URL(cluster["server"])
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.port = 0

    async def __aenter__(self):
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0, socket_factory=self._socket)
        patience = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=patience, read_bufsize=2**20)
        self._server = web.Server(self._handle, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.come_back()
        self._config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        self.kubeconfig.write_text(json.dumps(self._config))
        return self

    async def __aexit__(self, *_):
        await self._abort()
        for task in self._handling:
            task.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._runner.cleanup()
        await self._abort()  # who came meanwhile
        await self._session.close()
        # a TLS goodbye that the server is slow to answer would outlive the loop
        for made in self._sockets:
            with contextlib.suppress(OSError):  # closed, or its other end has left
                made.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while any(made.fileno() >= 0 for made in self._sockets):  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0)

    def _socket(self, address):
        self._sockets.add(made := socket.socket(*address[:3]))
        return made

    def on(self, verb, resource, fault, **more):
        """Add a rule; the first that applies to a call is done to it."""
        self._rules.append(Rule(verb, resource, fault, **more))
        return self._rules[-1]

    def unmet(self):
        """Return the rules that no call has met: a test that needs them shows nothing."""
        return [f"{rule.verb} {rule.resource} #{rule.nth}" for rule in self._rules if not rule.done]

    def forgive(self):
        """Forget all rules."""
        self._rules.clear()

    def narrow(self, *, namespace, pool, nodes):
        """Show no other namespace, no other pool and no nodes but those with this label ("key=value")."""
        self._scope = namespace, pool, nodes

    async def leave(self):
        """Be away: all connections end, new ones are refused."""
        await self._site.stop()
        await self._abort()

    async def come_back(self):
        """Listen, at the same port as before."""
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def _abort(self):
        """End all connections, also those that are accepted and that asyncio has not made yet."""
        for _ in range(MAKING):
            for connection in self._server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)

    async def _handle(self, request):
        self._handling.add(task := asyncio.current_task())
        task.add_done_callback(self._handling.discard)
        call = _call(request, await request.read())
        self.calls.append(call)
        rule, *_ = [*(rule for rule in self._rules if rule.applies(call)), None]
        if rule:
            rule.done += 1
        async with contextlib.AsyncExitStack() as stack:

            async def forward():
                return await self._forward(request, call, stack)

            try:
                answer = await (rule.fault(call, forward) if rule else forward())
                response = await _deliver(request, answer)
                if answer.then:
                    await do(answer.then)
            except (HangUp, aiohttp.ClientError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
                response = web.Response()
            finally:
                if rule:
                    rule.met.set()
        return response

    async def _forward(self, request, call, stack):
        headers = {k: v for k, v in request.headers.items() if k.title() in _PASSED} | {"Accept-Encoding": "identity"}
        asked = self._session.request(
            request.method, self._narrowed(call), data=call.body or None, headers=headers, allow_redirects=False
        )
        found = await stack.enter_async_context(asked)
        headers = {k: v for k, v in found.headers.items() if k.title() in _RETURNED}
        if call.verb == "watch" and found.status == 200:
            return Answer(200, headers, events=_lines(found.content))
        return Answer(found.status, headers, await found.read())

    def _narrowed(self, call):
        url = self._target.join(call.url)
        if self._page and call.verb == "list":
            url = url.update_query(limit=str(self._page))
        if self._scope is None or call.verb not in ("list", "watch"):
            return url
        namespace, pool, nodes = self._scope
        match call.resource:
            case "pods" | "divisiblejobs" | "profiles" | "reservations" | "targetrates" if not call.namespace:
                head, _, plural = url.path.rpartition("/")
                return url.with_path(f"{head}/namespaces/{namespace}/{plural}", keep_query=True)
            case "namespaces":
                return url.update_query(fieldSelector=f"metadata.name={namespace}")
            case "pools":
                return url.update_query(fieldSelector=f"metadata.name={pool}")
            case "nodes":
                return url.update_query(labelSelector=nodes)
        return url


def _call(request, body):
    parts = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    verb = _VERBS.get(request.method, request.method)
    if "dryRun" in request.query:
        verb = "try"
    elif verb == "get" and plural and not name:
        verb = "watch" if "watch" in request.query else "list"
    how = request.content_type.partition("/")[2].partition("-")[0] if verb == "patch" else ""
    resource = f"{plural}/{subresource}" if subresource else plural
    return Call(verb, resource, namespace, name, request.rel_url, body, how)


async def _lines(content):
    rest = b""
    async for some in content.iter_any():
        *lines, rest = (rest + some).split(b"\n")
        for line in lines:
            yield line + b"\n"


async def _deliver(request, answer):
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    await response.prepare(request)
    if answer.events is None:
        await response.write(answer.body)
    else:
        async with contextlib.aclosing(answer.events) as events:
            async for line in events:
                await response.write(line)
    await response.write_eof()
    return response


async def do(act):
    """Call a function or coroutine function."""
    done = act()
    if inspect.isawaitable(done):
        await done
