"""Writes ("stamps") the epoch into stored objects: from then on the API server refuses earlier leaders' writes to them.

The response to a stamp has the last status that an earlier leader wrote. A call that may succeed later is repeated
while this replica leads. An object that cannot be stamped while others can is left alone, so that it does not stop the
takeover.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import structlog

from punctual.errors import ClusterError, Fenced, Invalid, NotFound, Replaced
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.directory import HIGHEST, JOBS, PROFILES, Known, ended
from punctual.kube.cluster.oversize import MARK, PATIENCE
from punctual.kube.cluster.resources import Resource
from punctual.kube.cluster.resync import still_there
from punctual.kube.cluster.walk import walk
from punctual.kube.writes.operations import FIELD_MANAGER

AT_ONCE: Final = 32
"""Maximum stamps that run at once."""
TRIES: Final = 5
"""Tries to stamp an object before another object is stamped to find the cause."""
PAGE: Final = 250
"""Objects per page of a list. Two pages are in memory; a body takes ten times as much as what is kept of it."""
UNFINISHED: Final = ",".join(f"status.state!={state}" for state in ("Refused", "Completed", "Missed", "Failed"))
"""Selects the jobs with something left to be done, so that the API server does not send thousands of finished ones."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Fence:
    """Reads objects and stamps them with an epoch.

    ``leave(body, text)`` is called for an object that cannot be stamped while others can, ``forget(resource, meta)``
    for one that was known and is gone.
    """

    def __init__(
        self,
        epoch: int,
        client: ApiClient,
        *,
        leading: Callable[[], bool],
        leave: Callable[[Json, str], None],
        forget: Callable[[Resource, Json], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epoch = epoch
        self._client = client
        self._leading = leading
        self._leave = leave
        self._forget = forget
        self._monotonic = monotonic
        self._moved = monotonic()
        self._last: tuple[str, Json] | None = None  # path and patch of the last stamp that was taken

    @property
    def idle(self) -> float:
        """Seconds since a page or an object was read or a stamp was taken."""
        return self._monotonic() - self._moved

    def note_progress(self) -> None:
        """Record that it does not hang."""
        self._moved = self._monotonic()

    async def all(
        self,
        resource: Resource,
        known: dict[str, Known],
        *,
        aside: Callable[[str, Json | None], bool] = lambda _uid, _body: False,
        selector: str = "",
    ) -> AsyncIterator[Json]:
        """Yield each object of a kind, stamped unless it has ended; also known ones (by uid) that no page contains.

        Objects with ``aside(uid, body)`` are neither stamped nor yielded. The body is None if the field selector may
        be the reason why no page contains a known object.
        """
        pages = walk(self._client, resource.path(), patience=self._wait, page=PAGE, field_selector=selector)
        async for page in pages:
            self.note_progress()
            wanted = []
            for body in page.items:
                if aside(body["metadata"]["uid"], body):
                    known.pop(body["metadata"]["uid"], None)
                else:
                    wanted.append(body)
            for body in await self._stamp_all(resource, wanted):
                known.pop(body["metadata"]["uid"], None)
                yield body
        left = [one.metadata for uid, one in known.items() if not (selector and aside(uid, None))]
        async for body in self.missed(resource, left):
            yield body

    async def lists_unfinished(self, known: int) -> bool:
        """Return whether a list of jobs can leave out the finished ones, given the number of known jobs.

        The CRD must be as new as this operator, and nearly all jobs must be known: each other one is read by itself.
        """

        async def selects() -> bool:
            try:
                await self._client.first(JOBS.path(), field_selector=UNFINISHED)
            except Invalid:
                log.warning("crd_outdated", plural=JOBS.plural, missing="selectableFields")
                return False
            return True

        if not await self.patiently(selects):
            return False
        first = await self.patiently(partial(self._client.first, JOBS.path()))
        return len(first.items) + first.left - known <= PAGE

    async def _stamp_all(self, resource: Resource, bodies: Iterable[Json]) -> list[Json]:
        """Write the epoch onto each. Returns them with it, without those that are gone."""
        if resource is PROFILES:  # their status carries no promise
            return list(bodies)
        slots = asyncio.Semaphore(AT_ONCE)

        async def stamp(body: Json) -> Json | None:
            if ended(body):
                return body
            meta = body["metadata"]
            path = resource.path(namespace=meta.get("namespace", ""), name=meta["name"])
            patch = {"metadata": {"uid": meta["uid"]}, "status": {"epoch": self._epoch}}
            async with slots:
                try:
                    return await self._stamp(path, patch, deadline=PATIENCE if MARK in body else None)
                except (NotFound, Replaced):  # gone, or another of that name by now
                    return None
                except ClusterError as error:
                    if isinstance(error, Fenced) and not self._is_forged(resource, body):
                        raise
                    what = resource.plural.removesuffix("s")
                    self._leave(body, f"its status cannot be written, so the {what} is left alone: {error}")
                    return body

        return [b for b in await asyncio.gather(*(stamp(b) for b in bodies)) if b is not None]

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

    async def _wait(self, error: ClusterError) -> None:
        """Wait before the next try. Raises the error if this replica no longer leads."""
        if not self._leading():
            raise error
        log.warning("takeover_delayed", error=str(error))
        await asyncio.sleep(error.retry_after)

    async def missed(self, resource: Resource, known: Iterable[Json]) -> AsyncIterator[Json]:
        """Yield the known objects (metadata) that exist, stamped. Calls ``forget`` for those that are gone."""
        for meta in known:
            body = await self.patiently(partial(still_there, self._client, resource, meta))
            if body is None:
                self._forget(resource, meta)
                continue
            for found in await self._stamp_all(resource, [body]):
                yield found
