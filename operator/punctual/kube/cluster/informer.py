"""Keeps projections of collections of the API server: pods, nodes, and other objects that change too often for kopf.

An `Informer` lists a collection, watches it, and calls a callback for each change, in order, in its own loop. Of each
object it stores the result of ``project`` (a small frozen value), never the body. A change that does not alter the
projection is not delivered.

Each watch asks the server to end it after `WATCH_SECONDS`. If nothing changes, that end is the only sign of life, so a
silently lost connection is found within ``silence`` seconds. Each watch continues where the last one ended. If the
server no longer has that resource version (410), the collection is listed again and the differences are delivered,
deletions included. Repeated 410 answers lengthen the pause, because a list is the server's most expensive call. The
informer never writes and never gives up: failures are retried, and `staleness` is the time since the last success.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import structlog

from punctual import errors
from punctual.kube.cluster.client import ApiClient, Json

Change = Literal["ADDED", "MODIFIED", "DELETED"]
P = TypeVar("P")

WATCH_SECONDS = 12
FIRST_RETRY, LAST_RETRY = 0.2, 5.0  # seconds; doubled in between, with jitter
INITIAL_SECONDS = 60
"""The same for the initial stream, which may be long."""

log = structlog.get_logger()


@dataclass(slots=True)
class InformerCounts:
    """Counters of an informer since its start."""

    events: int = 0
    relists: int = 0
    reconnects: int = 0
    failures: int = 0


class Informer(Generic[P]):
    """Follows one collection: ``await Informer(client, PODS.path(), project=…, on_change=…).run()``.

    ``project(body)`` returns a comparable value, or None for an object to ignore. ``on_change(change, key,
    projection)`` gets the key "namespace/name" (or "name") and the newest projection. For DELETED it is the last one,
    made of the object's last state if the server sent it. The callback must not block, and its exception ends `run`. An
    object replaced by one of the same name is delivered as DELETED, then ADDED.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        *,
        project: Callable[[Json], P | None],
        on_change: Callable[[Change, str, P], None],
        silence: float = 15.0,
        page: int = 500,
    ) -> None:
        self.path = path
        self.counts = InformerCounts()
        self.synced = asyncio.Event()
        """Set once every existing object has been delivered."""
        self._client = client
        self._project = project
        self._on_change = on_change
        self._silence = silence
        self._page = page
        self._known: dict[str, tuple[str, P]] = {}  # uid and projection by key
        self._version = ""  # the position to continue from; empty: list again
        self._streams = True  # until the server refuses the watch-list
        self._alive = client.clock.monotonic()

    @property
    def items(self) -> Mapping[str, P]:
        """The newest projections by key (a copy)."""
        return {key: projection for key, (_, projection) in self._known.items()}

    @property
    def staleness(self) -> float:
        """Seconds since the server's last sign of life: an event, a page, or the normal end of a watch."""
        return self._client.clock.monotonic() - self._alive

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        pause = FIRST_RETRY
        while True:
            began = math.inf
            try:
                if not self._version:
                    await self._list()
                began = self._client.clock.monotonic()
                await self._follow()
                self._alive = self._client.clock.monotonic()
                pause = FIRST_RETRY
                if self._client.clock.monotonic() - began < FIRST_RETRY:  # for a proxy that closes each watch at once
                    await asyncio.sleep(FIRST_RETRY)
            except errors.ClusterError as error:
                if isinstance(error, errors.Gone):
                    self._version = ""
                else:
                    self.counts.failures += 1
                if self._client.clock.monotonic() - began >= LAST_RETRY:  # it worked for a while
                    pause = FIRST_RETRY
                log.warning("watch_failed", path=self.path, error=str(error), again_in=pause)
                # jitter: a thousand watchers must not return to a recovering server at the same time
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  no secret
                pause = min(2 * pause, LAST_RETRY)

    async def _list(self) -> None:
        """List all objects, deliver the differences, and store the position to watch from."""
        self.counts.relists += 1
        seen: set[str] = set()
        if self._streams:
            try:
                version = await self._stream(seen)
            except errors.Invalid:
                self._streams = False
                seen.clear()
        if not self._streams:
            async for page in self._client.pages(self.path, page=self._page):
                self._alive = self._client.clock.monotonic()
                for body in page.items:
                    seen.add(self._told(body))
                version = page.resource_version
        for key in self._known.keys() - seen:
            self._tell_gone(key)
        self._version = version
        self.synced.set()

    async def _stream(self, seen: set[str]) -> str:
        """Receive all objects as a stream (watch-list). Neither side then needs memory for the whole list."""
        watch = self._client.watch(self.path, initial=True, seconds=INITIAL_SECONDS, silence=self._silence)
        async with contextlib.aclosing(watch):
            async for event in watch:
                self._alive = self._client.clock.monotonic()
                body = event["object"]
                if event["type"] == "DELETED":  # deleted since the list began
                    seen.discard(_key(body["metadata"]))
                    self._tell_deleted(body)
                elif event["type"] != "BOOKMARK":
                    seen.add(self._told(body))
                elif body["metadata"].get("annotations", {}).get("k8s.io/initial-events-end") == "true":
                    version: str = body["metadata"]["resourceVersion"]
                    return version
        raise errors.Unreachable(f"{self.path}: the server ended its list before it was complete")

    async def _follow(self) -> None:
        """Deliver changes until the server ends the watch."""
        self.counts.reconnects += 1
        watch = self._client.watch(
            self.path, resource_version=self._version, seconds=WATCH_SECONDS, silence=self._silence
        )
        async with contextlib.aclosing(watch):
            async for event in watch:
                self._alive = self._client.clock.monotonic()
                body = event["object"]
                match event["type"]:
                    case "BOOKMARK":
                        pass
                    case "DELETED":
                        self.counts.events += 1
                        self._tell_deleted(body)
                    case _:
                        self.counts.events += 1
                        self._told(body)
                # after delivery: after an exception of the callback, the event must be delivered again
                self._version = body["metadata"]["resourceVersion"]

    def _told(self, body: Json) -> str:
        """Process an object's present state, deliver the change, and return its key."""
        meta = body["metadata"]
        key, uid = _key(meta), meta["uid"]
        known = self._known.get(key)
        if known is not None and known[0] != uid:
            self._tell_gone(key)
            known = None
        projection = self._projected(key, body)
        if projection is None:
            if known is not None:
                self._tell_gone(key)
        elif known is None:
            self._known[key] = uid, projection
            self._tell("ADDED", key, projection)
        elif known[1] != projection:
            self._known[key] = uid, projection
            self._tell("MODIFIED", key, projection)
        return key

    def _tell_deleted(self, body: Json) -> None:
        """Process the last state of an object: a pod's end and its deletion may be one event."""
        key = _key(body["metadata"])
        known = self._known.get(key)
        if known is None or known[0] != body["metadata"]["uid"]:
            return
        projection = self._projected(key, body)
        if projection is not None:
            self._known[key] = known[0], projection
        self._tell_gone(key)

    def _tell_gone(self, key: str) -> None:
        self._tell("DELETED", key, self._known.pop(key)[1])

    def _tell(self, change: Change, key: str, projection: P) -> None:
        self._on_change(change, key, projection)

    def _projected(self, key: str, body: Json) -> P | None:
        try:
            return self._project(body)
        except Exception:
            # one unreadable object must not hide the others; it is ignored until it can be read
            self.counts.failures += 1
            log.exception("projection_failed", path=self.path, key=key)
            return None


def _key(meta: Json) -> str:
    namespace = meta.get("namespace")
    name: str = meta["name"]
    return f"{namespace}/{name}" if namespace else name
