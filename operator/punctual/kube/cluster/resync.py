"""Periodic resync: finds changes of our kinds that kopf's watches missed.

kopf tells of no deletion that happened between two of its lists, and it goes on without a watch that has failed for
good. So each replica compares what it knows with a list of metadata. A list can be older than what is known, and an
event can be under way, so a difference counts only if it is still there some seconds later. What counts is taken in as
an event, and the second such change has kopf list and watch anew.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from punctual.errors import ClusterError, NotFound
from punctual.kube.cluster.caches import Post
from punctual.kube.cluster.client import METADATA, ApiClient, Json, Resource
from punctual.kube.cluster.directory import JOBS, POOLS, PROFILES, RESERVATIONS, Directory, Known
from punctual.kube.cluster.walk import walk

RESOURCES: Final = (POOLS, JOBS, PROFILES, RESERVATIONS)
PAUSE: Final = 20.0
"""Seconds between two comparisons: with `SETTLE` and a list of a few seconds a change is found within 30."""
SOON: Final = 5.0
"""Seconds until the first comparison, and until the next after one that found something."""
SHARE: Final = 0.1
"""Of the time that comparisons may take: where many objects are, they are further apart."""
SETTLE: Final = 2.0
"""Seconds in which a watch tells of what a list has told already."""
ENOUGH: Final = 2
"""Changes that the watches missed until they are begun anew."""

log = structlog.get_logger(__name__)


class Resync:
    """Compares the directory with the API server until cancelled.

    ``take`` gets what the watches missed, as a watch's event; ``renew`` begins the watches anew.
    """

    def __init__(self, client: ApiClient, directory: Directory, take: Post, renew: Callable[[], None]) -> None:
        self._client = client
        self._directory = directory
        self._take = take
        self._renew = renew
        self._missed = 0

    async def run(self) -> None:
        """Compare for ever."""
        took, soon = 0.0, True
        while True:
            await asyncio.sleep(max(SOON if soon else PAUSE, took / SHARE))
            began = time.monotonic()
            try:
                soon = await self.compare() > 0
            except ClusterError as error:
                log.warning("resync_failed", error=str(error))
            took = time.monotonic() - began

    async def compare(self) -> int:
        """Take in what the watches missed, have them begun anew the second time; return how much they missed now."""
        missed = 0
        async for resource, change, body in self._changes():
            log.warning("change_missed", kind=resource.plural, uid=body["metadata"]["uid"], change=change)
            self._take(resource.plural, change, body)
            missed += 1
        self._missed += missed
        if self._missed >= ENOUGH:
            self._missed = 0
            self._renew()
        return missed

    async def _changes(self) -> AsyncIterator[tuple[Resource, str | None, Json]]:
        """Yield (resource, change, body) of what the directory lacks, knows as it was before, or has too much."""
        new: list[tuple[Resource, Json]] = []
        gone: list[tuple[Resource, Json]] = []
        for resource in RESOURCES:
            known, listed = self._directory.metadata(resource), set()
            async for page in walk(self._client, resource.path(), patience=_wait, accept=METADATA):
                for item in page.items:
                    meta = item["metadata"]
                    listed.add(meta["uid"])
                    if is_news(meta, known.get(meta["uid"])):
                        new.append((resource, meta))
            gone += [(resource, one.metadata) for uid, one in known.items() if uid not in listed]
        if not new and not gone:
            return
        await asyncio.sleep(SETTLE)
        now = {resource: self._directory.metadata(resource) for resource in RESOURCES}
        for resource, meta in gone:
            if meta["uid"] in now[resource] and await still_there(self._client, resource, meta) is None:
                yield resource, "DELETED", {"metadata": meta}
        for resource, meta in new:
            if is_news(meta, now[resource].get(meta["uid"])) and (
                body := await still_there(self._client, resource, meta)
            ):
                yield resource, None, body


async def _wait(error: ClusterError) -> None:
    log.warning("resync_delayed", error=str(error))
    await asyncio.sleep(error.retry_after)


def is_news(meta: Json, known: Known | None) -> bool:
    """Whether an object with this metadata is another than the one that is known."""
    if known is None or meta["generation"] > known.generation:
        return True
    return "deletionTimestamp" in meta and not known.deleting


async def still_there(client: ApiClient, resource: Resource, meta: Json) -> Json | None:
    """Return the body of this very object; None where it is gone."""
    try:
        body = await client.get(resource.path(namespace=meta.get("namespace", ""), name=meta["name"]))
    except NotFound:
        return None
    return body if body["metadata"]["uid"] == meta["uid"] else None
