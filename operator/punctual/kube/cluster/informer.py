"""What the API server has, kept as projections: pods, nodes, and what else changes too often for kopf.

An `Informer` lists a collection, then follows it, and tells a callback what changed, in order, in the loop it runs
in. Of each object it keeps what ``project`` makes of it (a small frozen value), never the body. A change that the
projection does not show is not told.

Each watch asks the server to end it after `WATCH_SECONDS`: where nothing changes that is the one sign of life that can
be had, so a connection that silently died is noticed within ``silence`` seconds, and each watch goes on from where the
last one ended. When the server no longer knows that place (410), the collection is listed again and the differences are
told, deletions among them. A server that says so again and again is asked less and less: a list costs it the most.
It never writes, and never gives up: what fails is tried again, and `staleness` tells how long ago it last worked.
"""

import asyncio
import contextlib
import math
import random
import time
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
"""The same for the stream of what is there at first, which may be long."""

log = structlog.get_logger()


@dataclass(slots=True)
class Counts:
    """What an informer did since it began."""

    events: int = 0
    relists: int = 0
    reconnects: int = 0
    failures: int = 0


class Informer(Generic[P]):
    """Follows one collection: ``await Informer(client, PODS.path(), project=…, on_change=…).run()``.

    ``project(body)`` returns a value that can be compared, or None for an object that is of no interest.
    ``on_change(change, key, projection)`` gets the key "namespace/name" (or "name") and the newest projection; for
    DELETED the last one, made of the object's last state where the server told it. It must not block; what it raises
    ends `run`. An object replaced by one of the same name is told as DELETED, then ADDED.
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.counts = Counts()
        self.synced = asyncio.Event()
        """Set once all that is there has been told."""
        self._client = client
        self._project = project
        self._on_change = on_change
        self._silence = silence
        self._page = page
        self._monotonic = monotonic
        self._known: dict[str, tuple[str, P]] = {}  # uid and projection by key
        self._version = ""  # the place to go on from; empty: list again
        self._streams = True  # until the server says that it has no watch-list
        self._alive = monotonic()

    @property
    def items(self) -> Mapping[str, P]:
        """The newest projections by key (a copy)."""
        return {key: projection for key, (_, projection) in self._known.items()}

    @property
    def staleness(self) -> float:
        """Seconds since the server last gave a sign of life: an event, a page, the end of a watch in order."""
        return self._monotonic() - self._alive

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        pause = FIRST_RETRY
        while True:
            began = math.inf
            try:
                if not self._version:
                    await self._list()
                began = self._monotonic()
                await self._follow()
                self._alive = self._monotonic()
                pause = FIRST_RETRY
                if self._monotonic() - began < FIRST_RETRY:  # a proxy that closes each watch at once
                    await asyncio.sleep(FIRST_RETRY)
            except errors.ClusterError as error:
                if isinstance(error, errors.Gone):
                    self._version = ""
                else:
                    self.counts.failures += 1
                if self._monotonic() - began >= LAST_RETRY:  # it worked for a while
                    pause = FIRST_RETRY
                log.warning("watch_failed", path=self.path, error=str(error), again_in=pause)
                # jitter: a thousand watchers must not meet a recovering server at once
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  no secret
                pause = min(2 * pause, LAST_RETRY)

    async def _list(self) -> None:
        """Learn all that is there, tell what differs, and the place to follow from."""
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
                self._alive = self._monotonic()
                for body in page.items:
                    seen.add(self._told(body))
                version = page.resource_version
        for key in self._known.keys() - seen:
            self._tell_gone(key)
        self._version = version
        self.synced.set()

    async def _stream(self, seen: set[str]) -> str:
        """Have all objects streamed (watch-list): neither side needs memory for the whole list."""
        watch = self._client.watch(self.path, initial=True, seconds=INITIAL_SECONDS, silence=self._silence)
        async with contextlib.aclosing(watch):
            async for event in watch:
                self._alive = self._monotonic()
                body = event["object"]
                if event["type"] == "DELETED":  # since the list began
                    seen.discard(_key(body["metadata"]))
                    self._tell_deleted(body)
                elif event["type"] != "BOOKMARK":
                    seen.add(self._told(body))
                elif body["metadata"].get("annotations", {}).get("k8s.io/initial-events-end") == "true":
                    version: str = body["metadata"]["resourceVersion"]
                    return version
        raise errors.Unreachable(f"{self.path}: the server ended its list before all was told")

    async def _follow(self) -> None:
        """Tell what changes, until the server ends the watch."""
        self.counts.reconnects += 1
        watch = self._client.watch(
            self.path, resource_version=self._version, seconds=WATCH_SECONDS, silence=self._silence
        )
        async with contextlib.aclosing(watch):
            async for event in watch:
                self._alive = self._monotonic()
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
                # after the event was told: a callback that raises must meet it again
                self._version = body["metadata"]["resourceVersion"]

    def _told(self, body: Json) -> str:
        """Take in an object as it is now, tell what that changes, return its key."""
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
        """Take in the last state of an object: a pod's end and its deletion may be one event."""
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
            # one object nobody can read must not hide all others; it is of no interest until it can be read
            self.counts.failures += 1
            log.exception("projection_failed", path=self.path, key=key)
            return None


def _key(meta: Json) -> str:
    namespace = meta.get("namespace")
    name: str = meta["name"]
    return f"{namespace}/{name}" if namespace else name
