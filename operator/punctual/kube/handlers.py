"""kopf at the edge: our three kinds, followed in a thread and loop of its own.

Every handler is two lines, an ``on.event`` one: kopf keeps no state of ours, writes nothing, and knows nothing of what
an event means. (A create or update handler would fire on every event here: with no storage all is new to it.) kopf's
watches are re-opened by kopf; what comes twice or late is sorted out by the directory.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
from kopf import OperatorRegistry, OperatorSettings
from kopf._cogs.clients import api as kopf_api

from punctual.kube import api
from punctual.kube.caches import Post
from punctual.kube.client import load_configuration
from punctual.kube.decode import decode


class NoProgress(kopf.ProgressStorage):
    """Keeps no handler's progress: there is none."""

    def fetch(self, **_: Any) -> None:
        """Know nothing."""

    def store(self, **_: Any) -> None:
        """Write nothing."""

    def purge(self, **_: Any) -> None:
        """Remove nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Leave it as it is, uncopied."""
        return essence


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last state and builds none: the copies it would be made of are most of what an event costs."""

    def build(self, **_: Any) -> Any:
        """See nothing that could differ."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Know nothing."""

    def store(self, **_: Any) -> None:
        """Write nothing."""


def read_any_depth() -> None:
    """Have kopf read JSON by `decode`: by its own means an object nested deep ends the watch of all, for good."""
    vars(kopf_api)["json"] = SimpleNamespace(loads=decode)  # in the place of the module
    # of a list, from API servers before 1.34; nobody else here reads by it
    aiohttp.ClientResponse.json.__kwdefaults__["loads"] = decode  # type: ignore[index]


def registry(post: Post, *, kubeconfig: str | None = None) -> OperatorRegistry:
    """Return handlers that post each event of our kinds; handlers are global otherwise."""
    made = OperatorRegistry()

    @kopf.on.event(api.GROUP, api.VERSION, "pools", registry=made)
    async def pool(event: Any, **_: Any) -> None:
        post("pools", event["type"], event["object"])

    @kopf.on.event(api.GROUP, api.VERSION, "divisiblejobs", registry=made)
    async def job(event: Any, **_: Any) -> None:
        post("divisiblejobs", event["type"], event["object"])

    @kopf.on.event(api.GROUP, api.VERSION, "profiles", registry=made)
    async def profile(event: Any, **_: Any) -> None:
        post("profiles", event["type"], event["object"])

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


def settings(*, streaming: bool) -> OperatorSettings:
    """Return settings under which kopf only watches. ``streaming``: the API server has watch-lists (1.34 and later)."""
    made = OperatorSettings()
    made.posting.enabled = False
    made.persistence.progress_storage = NoProgress()
    made.persistence.diffbase_storage = NoDiffBase()
    made.persistence.finalizer = "punctual.dev/kopf"  # must never appear
    made.scanning.disabled = True
    made.peering.standalone = True
    if streaming:
        made.watching.initial_streaming = True
    else:
        made.watching.chunk_size = 500
    made.queueing.error_delays = (1, 2, 5, 10)
    made.networking.request_timeout = 10
    made.networking.error_backoffs = (0.2, 0.5, 1, 2)
    made.process.ultimate_exiting_timeout = 25
    made.execution.max_workers = 4
    return made


IDENTITY: Any = "punctual"
"""What kopf would call us among peers, which we are not."""


class KopfThread(threading.Thread):
    """kopf, in a thread and loop of its own; ``post`` is called on the loop that made it.

    ``await thread.ended`` raises what ended it otherwise than :meth:`stop`.
    """

    def __init__(self, post: Post, *, kubeconfig: str | None, streaming: bool) -> None:
        super().__init__(name="kopf", daemon=True)
        self._home = asyncio.get_running_loop()
        read_any_depth()
        self._registry = registry(self._forward(post), kubeconfig=kubeconfig)
        self._settings = settings(streaming=streaming)
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
        """Stop watching and end the thread."""
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # that loop is closed: it has ended
            self._stop()
        await asyncio.wait([self.ended])

    async def _operate(self) -> None:
        # not a threading.Event: kopf waits for one in a thread that would outlive a failure, and so hide it
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping.is_set():  # before there was anything to stop
            return
        await kopf.operator(
            registry=self._registry,
            settings=self._settings,
            identity=IDENTITY,  # else kopf asks for our user's name, and a container's uid has none
            standalone=True,
            clusterwide=True,
            stop_flag=stop,
        )

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
