"""kopf at the edge: our kinds, followed in a thread and loop of its own.

Every handler is two lines, an ``on.event`` one: kopf finds our kinds, lists and watches them, and an event goes from
its watch straight to its handler. What kopf does in between (causes, diffs, storages, memories, a task for each object)
is left out, for nothing here needs it and it took half of the operator's CPU: kopf keeps and writes nothing. Its
watches are re-opened by kopf, and kopf is begun anew where it gives up; what comes twice or late is sorted out by the
directory. What it does not tell, such as a deletion between two of its lists, `unheard` finds out.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import kopf
import structlog
from kopf import OperatorRegistry, OperatorSettings
from kopf._cogs.clients import api as kopf_api
from kopf._cogs.clients import watching
from kopf._core.reactor import processing, queueing

from punctual.errors import ClusterError
from punctual.kube import api
from punctual.kube.cluster.caches import Post
from punctual.kube.cluster.client import load_configuration
from punctual.kube.cluster.informer import WATCH_SECONDS
from punctual.kube.cluster.oversize import lightened
from punctual.kube.format.decode import decode

PAUSE: Final = 1.0
"""Seconds before kopf is begun anew."""
CHUNK: Final = 4
"""Objects that kopf lists at once: it measures none, and an object of 1.5 MB may take 40 MiB once it is read."""
GRACE: Final = 5.0
"""Seconds that kopf may take to end."""

log = structlog.get_logger(__name__)


async def process(*, registry: OperatorRegistry, resource: Any, raw_event: Any, **_: Any) -> None:
    """Tell our handlers of an event, in place of kopf's search for what it might mean to it."""
    for handler in registry._watching.get_all_handlers():  # noqa: SLF001  asked in public, it wants a cause made first
        if handler.selector is not None and handler.selector.check(resource):
            tell: Any = handler.fn  # ours need none of the other words that kopf has for them
            await tell(event=raw_event)


async def watcher(
    *, processor: Callable[..., Any], settings: Any, resource: Any, namespace: Any, operator_paused: Any, **_: Any
) -> None:
    """Process a kind's events as they come, in place of kopf's queue and task for each object."""
    stream = watching.infinite_watch(
        settings=settings, resource=resource, namespace=namespace, operator_paused=operator_paused
    )
    try:
        async for event in stream:
            if not isinstance(event, watching.Bookmark) and event["type"] != "BOOKMARK":
                await processor(raw_event=event)
    finally:
        _watch_ended.get().set()


def only_watch() -> None:
    """Have kopf list and watch and no more: what it did with an event took more than all that we do about it."""
    vars(processing)["process_resource_event"] = process
    vars(queueing)["watcher"] = watcher


def read_any_depth() -> None:
    """Have kopf read JSON by `decode`: by its own means an object nested deep ends the watch of all, for good."""
    vars(kopf_api)["json"] = SimpleNamespace(loads=decode)  # in the place of the module
    # of a list; nobody else here reads by it
    aiohttp.ClientResponse.json.__kwdefaults__["loads"] = decode  # type: ignore[index]


_watch_ended: ContextVar[asyncio.Event] = ContextVar("watch_ended")
"""Of the kopf that a watch is of: the first that ends is the end of all, though kopf may not get to an end itself."""


class Patience:
    """Seconds between tries of one request, for ever: where they end kopf does too, and all its watches with it."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1.0, 2.0), itertools.repeat(5.0))


def registry(post: Post, *, kubeconfig: str | None = None) -> OperatorRegistry:
    """Return handlers that post each event of our kinds; handlers are global otherwise."""
    made = OperatorRegistry()

    @kopf.on.event(api.GROUP, api.VERSION, "pools", registry=made)
    async def pool(event: Any, **_: Any) -> None:
        post("pools", event["type"], event["object"])

    @kopf.on.event(api.GROUP, api.VERSION, "divisiblejobs", registry=made)
    async def job(event: Any, **_: Any) -> None:
        post("divisiblejobs", event["type"], lightened(event["object"]))  # here: what waits for our loop adds up

    @kopf.on.event(api.GROUP, api.VERSION, "profiles", registry=made)
    async def profile(event: Any, **_: Any) -> None:
        post("profiles", event["type"], event["object"])

    @kopf.on.event(api.GROUP, api.VERSION, "reservations", registry=made)
    async def reservation(event: Any, **_: Any) -> None:
        post("reservations", event["type"], event["object"])

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(kubeconfig)

    return made


def connection(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Return the same way to the API server that our own client takes."""
    configuration = load_configuration(kubeconfig)
    header: str = configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
    scheme, _, token = header.partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme if token else None,
        token=token or scheme or None,
        proxy_url=configuration.proxy,
    )


def settings() -> OperatorSettings:
    """Return settings of kopf's watches, and of what it would do beside them."""
    made = OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.peering.standalone = True
    # not as a stream: kopf goes on from the middle of one that was cut, and never learns of the objects behind
    made.watching.chunk_size = CHUNK
    # a connection that died in silence is noticed as soon as by our informers
    made.watching.server_timeout = WATCH_SECONDS
    made.watching.inactivity_timeout = WATCH_SECONDS + 3.0
    made.networking.request_timeout = 30  # an API server may need seconds for each object of 1 MB
    made.networking.connect_timeout = 10
    made.networking.error_backoffs = Patience()
    made.process.ultimate_exiting_timeout = None  # that would be the end of us all
    return made


IDENTITY: Any = "punctual"
"""What kopf would call us among peers, which we are not."""


async def follow(post: Post, *, kubeconfig: str | None) -> None:
    """Have kopf watch our kinds until cancelled; whenever it has given up it is begun anew."""
    while True:
        thread = KopfThread(post, kubeconfig=kubeconfig)
        thread.start()
        try:
            await asyncio.wait([thread.ended])
        finally:
            await thread.stop()
        log.warning("kopf_ended", error=repr(thread.ended.exception()), again_in=PAUSE)
        await asyncio.sleep(PAUSE)


class KopfThread(threading.Thread):
    """kopf, in a thread and loop of its own; ``post`` is called on the loop that made it.

    ``await thread.ended`` raises what ended it otherwise than :meth:`stop`. It has ended as soon as one of its watches
    has: what is left of kopf then may swallow that it is cancelled and never come to an end, and is left behind.
    """

    def __init__(self, post: Post, *, kubeconfig: str | None) -> None:
        super().__init__(name="kopf", daemon=True)
        self._home = asyncio.get_running_loop()
        read_any_depth()
        only_watch()
        self._registry = registry(self._forward(post), kubeconfig=kubeconfig)
        self._settings = settings()
        self._stopping = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self.ended: asyncio.Future[None] = self._home.create_future()

    def run(self) -> None:
        """Do not call it: `start` does, in the new thread."""
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as raised:  # noqa: BLE001  it is raised where somebody waits for it
            error = raised
        self._call(self._end, error)

    async def stop(self) -> None:
        """Stop watching and end the thread, if it can be done within `GRACE` seconds."""
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # that loop is closed: it has ended
            self._stop()
        await asyncio.wait([self.ended], timeout=GRACE)

    async def _operate(self) -> None:
        # not a threading.Event: kopf waits for one in a thread that would outlive a failure, and so hide it
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping.is_set():  # before there was anything to stop
            return
        _watch_ended.set(watch_ended := asyncio.Event())  # before the task is made: it inherits what is set
        operator = asyncio.ensure_future(
            kopf.operator(
                registry=self._registry,
                settings=self._settings,
                identity=IDENTITY,  # else kopf asks for our user's name, and a container's uid has none
                standalone=True,
                clusterwide=True,
                stop_flag=stop,
            )
        )
        lost = asyncio.ensure_future(watch_ended.wait())
        await asyncio.wait((operator, lost), return_when=asyncio.FIRST_COMPLETED)
        if not operator.done() and not self._stopping.is_set():
            self._call(self._end, ClusterError("kopf has given up one of its watches"))
        await operator

    def _forward(self, post: Post) -> Post:
        return lambda plural, change, body: self._call(post, plural, change, body)

    def _call(self, callback: Any, *args: Any) -> None:
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(callback, *args)

    def _end(self, error: BaseException | None) -> None:
        if self.ended.done():
            return
        if error is None or self._stopping.is_set():
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
