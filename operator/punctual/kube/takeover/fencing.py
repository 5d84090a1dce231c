"""Writes ("stamps") the epoch into stored objects: from then on the API server refuses earlier leaders' writes to them.

The response to a stamp has the last status that an earlier leader wrote. A call that may succeed later is repeated
while this replica leads. An object that cannot be stamped while others can is left alone, so that it does not stop the
takeover.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from punctual.errors import ClusterError, Fenced, Invalid, NotFound, Replaced
from punctual.kube.api.resources import JOBS, Resource
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.resync import still_there
from punctual.kube.cluster.walk import walk
from punctual.kube.known.jobs import ended
from punctual.kube.known.oversize import MARK, PATIENCE
from punctual.kube.known.store import HIGHEST, Known, metadata_of
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.operations import FIELD_MANAGER
from punctual.kube.writes.writer import Holder

AT_ONCE: Final = 32
"""Maximum stamps that run at once."""
TRIES: Final = 5
"""Tries to stamp an object before another object is stamped to find the cause."""
PAGE: Final = 250
"""Objects per page of a list. Two pages are in memory; a body takes ten times as much as what is kept of it."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Stamped(NamedTuple):
    """An object as it is with this epoch. ``unwritable``: why it could not be stamped while others could."""

    body: Json
    unwritable: str = ""


class Fence:
    """Reads objects and stamps them with an epoch. One that was known and is gone is removed from the caches."""

    def __init__(
        self,
        epoch: int,
        client: ApiClient,
        caches: Caches,
        holder: Holder,
    ) -> None:
        self._epoch = epoch
        self._client = client
        self._caches = caches
        self._holder = holder
        self._clock = client.clock
        self.begun = self._clock.now()
        """When the takeover began, on the API server's clock. It moves on while the time is in doubt."""
        self._moved = self._clock.monotonic()
        self._last: tuple[str, Json] | None = None  # path and patch of the last stamp that was taken

    @property
    def idle(self) -> float:
        """Seconds since a page or an object was read or a stamp was taken."""
        return self._clock.monotonic() - self._moved

    def note_progress(self) -> None:
        """Record that it does not hang."""
        self._moved = self._clock.monotonic()

    async def all(self, kind: Kind[Any], known: dict[str, Known]) -> AsyncIterator[Stamped]:
        """Yield each object of a kind, stamped unless it has ended; also known ones (by uid) that no page contains.

        Those that the kind puts aside are neither stamped nor yielded.
        """
        resource, aside = kind.store.resource, kind.put_aside
        selector = kind.unfinished if kind.unfinished and await self._lists_unfinished(kind, len(known)) else ""
        pages = walk(self._client, resource.path(), patience=self._wait, page=PAGE, field_selector=selector)
        async for page in pages:
            self.note_progress()
            wanted = []
            for body in page.items:
                if aside(body["metadata"]["uid"], body):
                    known.pop(body["metadata"]["uid"], None)
                else:
                    wanted.append(body)
            for stamped in await self._stamp_all(kind, wanted):
                known.pop(stamped.body["metadata"]["uid"], None)
                yield stamped
        async for stamped in self.missed(
            kind, [one for uid, one in known.items() if not (selector and aside(uid, None))]
        ):
            yield stamped

    async def _lists_unfinished(self, kind: Kind[Any], known: int) -> bool:
        """Return whether a list can leave out the finished objects, given the number of known ones.

        The CRD must be as new as this operator, and nearly all must be known: each other one is read by itself.
        """
        resource = kind.store.resource

        async def selects() -> bool:
            try:
                await self._client.first(resource.path(), field_selector=kind.unfinished)
            except Invalid:
                log.warning("crd_outdated", plural=resource.plural, missing="selectableFields")
                return False
            return True

        if not await self.patiently(selects):
            return False
        first = await self.patiently(partial(self._client.first, resource.path()))
        return len(first.items) + first.left - known <= PAGE

    async def _stamp_all(self, kind: Kind[Any], bodies: Iterable[Json]) -> list[Stamped]:
        """Write the epoch onto each. Returns them with it, without those that are gone."""
        if not kind.stamped:
            return [Stamped(body) for body in bodies]
        resource, slots = kind.store.resource, asyncio.Semaphore(AT_ONCE)

        async def stamp(body: Json) -> Stamped | None:
            if ended(body):
                return Stamped(body)
            meta = body["metadata"]
            path = resource.path(namespace=meta.get("namespace", ""), name=meta["name"])
            patch = {"metadata": {"uid": meta["uid"]}, "status": {"epoch": self._epoch}}
            async with slots:
                try:
                    return Stamped(await self._stamp(path, patch, deadline=PATIENCE if MARK in body else None))
                except (NotFound, Replaced):  # gone, or another of that name by now
                    return None
                except ClusterError as error:
                    if isinstance(error, Fenced) and not self._is_forged(resource, body):
                        raise
                    what = resource.plural.removesuffix("s")
                    return Stamped(body, f"its status cannot be written, so the {what} is left alone: {error}")

        return [found for found in await asyncio.gather(*(stamp(b) for b in bodies)) if found is not None]

    def _is_forged(self, resource: Resource, body: Json) -> bool:
        """Return whether an object has an epoch that no leader has. It keeps only itself from being written.

        If real epochs are that high, a newer leader still shows in the pools, which are stamped first.
        """
        forged = (body.get("status") or {}).get("epoch", 0) > HIGHEST
        return forged and (resource is JOBS or self._epoch <= HIGHEST)

    async def _stamp(self, path: str, patch: Json, *, deadline: float | None) -> Json:
        """Stamp an object, with as many tries as needed. Raises ClusterError if it concerns this object alone."""
        for tries in count(1):
            try:
                body = await self._client.patch_merge(
                    path, patch, subresource="status", field_manager=FIELD_MANAGER, deadline=deadline
                )
            except (Fenced, NotFound, Replaced):
                raise
            except ClusterError as error:
                # an object that is Invalid stays so
                if isinstance(error, Invalid) or (tries >= TRIES and await self._others_can_be_stamped()):
                    raise
                await self._wait(error)
            else:
                self._last = path, patch
                self.note_progress()
                return body
        raise AssertionError

    async def _others_can_be_stamped(self) -> bool:
        """Return whether the object that was stamped last can be stamped again at this moment."""
        if self._last is None:
            return False
        path, patch = self._last
        try:
            await self._client.patch_merge(path, patch, subresource="status", field_manager=FIELD_MANAGER)
        except (NotFound, Replaced):
            self._last = None
        except ClusterError:
            pass
        else:
            return True
        return False

    async def patiently(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call until there is an answer. Raises an error that another try would not change."""
        while True:
            try:
                answer = await call()
            except (Fenced, NotFound, Replaced):
                self.note_progress()
                raise
            except ClusterError as error:
                await self._wait(error)
            else:
                self.note_progress()
                return answer

    async def get(self, path: str) -> Json:
        """Return an object. Raises NotFound if there is none."""
        return await self.patiently(partial(self._client.get, path))

    async def _wait(self, error: ClusterError) -> None:
        """Wait before the next try. Raises the error if this replica no longer leads."""
        if not self._holder.leading():
            raise error
        log.warning("takeover_delayed", error=str(error))
        await asyncio.sleep(error.retry_after)

    async def missed(self, kind: Kind[Any], known: Iterable[Known]) -> AsyncIterator[Stamped]:
        """Yield the known objects that exist, stamped. Those that are gone are removed from the caches."""
        resource = kind.store.resource
        for one in known:
            body = await self.patiently(partial(still_there, self._client, resource, metadata_of(one)))
            if body is None:
                self._caches.forget(resource, one.uid)
                continue
            for stamped in await self._stamp_all(kind, [body]):
                yield stamped
