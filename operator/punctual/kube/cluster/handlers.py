"""Runs kopf, which lists and watches Punctual's kinds, in a separate thread and loop.

Each handler is an ``on.event`` handler of two lines that posts the event to the operator's loop, and leaves kopf only
the metadata of the object. kopf's other features (finalizers, progress, diffs) are not needed, so kopf stores and
writes nothing. The directory tolerates repeated and late events. If a watch of kopf ends or misses a change,
:mod:`punctual.kube.cluster.resync` finds it.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import kopf
import structlog
from kopf import OperatorRegistry, OperatorSettings

from punctual.kube import api
from punctual.kube.cluster.access import load_access
from punctual.kube.cluster.caches import EventReceiver
from punctual.kube.cluster.informer import WATCH_SECONDS
from punctual.kube.known.oversize import lightened

PAUSE: Final = 1.0
"""Seconds before kopf is restarted."""
CHUNK: Final = 4
"""Objects per page of kopf's lists. kopf does not limit bytes, and a decoded object of 1.5 MB may take 40 MiB."""
GRACE: Final = 5.0
"""Seconds for kopf to end."""
IDLE: Final = 0.5
"""Seconds that kopf keeps an idle task for an object."""

log = structlog.get_logger(__name__)


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last-seen state of an object: event handlers need no diff."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty essence."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Return None: nothing is stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers: an event handler is called once, whatever its result."""

    def fetch(self, **_: Any) -> None:
        """Return None: nothing is stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence unchanged."""
        return essence


class Patience:
    """Seconds between tries of one request, for ever. If the sequence ended, kopf and all its watches would end too."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1.0, 2.0), itertools.repeat(5.0))


def registry(receiver: EventReceiver, *, kubeconfig: str | None = None) -> OperatorRegistry:
    """Return handlers that pass on each event of Punctual's kinds. Without a registry, handlers are global."""
    made = OperatorRegistry()

    def watch(plural: str) -> None:
        @kopf.on.event(api.GROUP, api.VERSION, plural, id=plural, registry=made)
        async def seen(event: Any, **_: Any) -> None:
            receiver.observe(plural, event["type"], lightened(_taken(event["object"])))  # here: waiting objects add up

    for kind in api.KINDS:
        watch(kind.NAMES.plural)

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(kubeconfig)

    return made


def _taken(body: Any) -> dict[str, Any]:
    """Return the object, and leave kopf only its metadata. So there can be one handler per kind.

    kopf keeps each object in a reference cycle, which stays until the garbage collector runs (a takeover pauses it),
    and the last one of a watch until the next event: 27 MiB for each spec of 1 MB.
    """
    taken = dict(body)
    for part in ("spec", "status"):
        body.pop(part, None)
    return taken


def connection(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Return kopf's connection to the API server, with the settings of the operator's own client."""
    access = load_access(kubeconfig)
    scheme, _, token = (access.credentials.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.ca,
        insecure=not access.verified,
        certificate_path=access.certificate,
        private_key_path=access.key,
        scheme=scheme if token else None,
        token=token or scheme or None,
        proxy_url=access.proxy,
    )


def settings() -> OperatorSettings:
    """Return settings of kopf's watches. Its other features are switched off."""
    made = OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.peering.standalone = True
    # not as a stream: kopf continues from the middle of a stream that was cut, and never learns of the later objects
    made.watching.chunk_size = CHUNK
    # a silently lost connection is found as soon as by the informers
    made.watching.server_timeout = WATCH_SECONDS
    made.watching.inactivity_timeout = WATCH_SECONDS + 3.0
    made.queueing.idle_timeout = IDLE
    made.queueing.exit_timeout = GRACE / 2
    made.persistence.diffbase_storage = NoDiffBase()
    made.persistence.progress_storage = NoProgress()
    made.persistence.consistency_timeout = 0
    made.networking.request_timeout = 30  # an API server may need seconds for each object of 1 MB
    made.networking.connect_timeout = 10
    made.networking.error_backoffs = Patience()
    made.process.ultimate_exiting_timeout = None  # it would end the whole process
    return made


IDENTITY: Any = "punctual"
"""kopf's name for this process among peers, which are not used."""


class Watches:
    """Runs kopf's watches until cancelled. Restarts kopf when it has ended or :meth:`renew` is called."""

    def __init__(self, receiver: EventReceiver, *, kubeconfig: str | None) -> None:
        self._receiver = receiver
        self._kubeconfig = kubeconfig
        self._renewed = asyncio.Event()

    def renew(self) -> None:
        """List and watch all kinds again."""
        self._renewed.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._renewed.clear()
            thread = KopfThread(self._receiver, kubeconfig=self._kubeconfig)
            renewed = asyncio.ensure_future(self._renewed.wait())
            thread.start()
            try:
                ends: list[asyncio.Future[Any]] = [thread.ended, renewed]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                renewed.cancel()
                await thread.stop()
            if self._renewed.is_set():
                log.info("kopf_restarted")
            else:
                log.warning("kopf_ended", error=repr(thread.ended.exception()), again_in=PAUSE)
            await asyncio.sleep(PAUSE)


class KopfThread(threading.Thread):
    """kopf in a separate thread and loop. The receiver is called on the loop that created the thread.

    ``await thread.ended`` raises the cause of any end other than :meth:`stop`. If kopf does not end within `GRACE`
    seconds, the thread is abandoned, because kopf may swallow its cancellation. Its later events are dropped.
    """

    def __init__(self, receiver: EventReceiver, *, kubeconfig: str | None) -> None:
        super().__init__(name="kopf", daemon=True)
        self._receiver = receiver
        self._home = asyncio.get_running_loop()
        self._registry = registry(self, kubeconfig=kubeconfig)
        self._settings = settings()
        self._stopping = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self.ended: asyncio.Future[None] = self._home.create_future()

    def run(self) -> None:
        """Run kopf. Do not call it; `start` does, in the new thread."""
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as raised:  # noqa: BLE001  it is raised from ``ended``
            error = raised
        self._call(self._end, error)

    async def stop(self) -> None:
        """Stop watching and end the thread, if possible within `GRACE` seconds."""
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            self._stop()
        await asyncio.wait([self.ended], timeout=GRACE)

    async def _operate(self) -> None:
        # not a threading.Event: kopf waits for one in a thread that would outlive a failure and hide it
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping.is_set():  # set before there was anything to stop
            return
        await kopf.operator(
            registry=self._registry,
            settings=self._settings,
            identity=IDENTITY,  # otherwise kopf asks for the user's name, and the uid of a container has none
            standalone=True,
            clusterwide=True,
            stop_flag=stop,
        )

    def observe(self, plural: str, change: str | None, body: Any) -> None:
        """Pass an event on, from kopf's thread."""
        if not self._stopping.is_set():
            self._call(self._receiver.observe, plural, change, body)

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
