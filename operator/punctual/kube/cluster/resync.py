"""Periodic resync: finds changes of Punctual's kinds that kopf's watches missed.

kopf does not report a deletion between two of its lists, and it continues without a watch that has failed for good.
Each replica therefore compares its state with a list of metadata. A list can be older than the known state, and events
can be on their way, so differences count only when no more of them disappear within some seconds. A difference that
counts is processed as an event, and the second one makes kopf list and watch again.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, Protocol

import structlog

from punctual.errors import ClusterError, NotFound
from punctual.kube.api.resources import Resource
from punctual.kube.cluster.caches import EventReceiver
from punctual.kube.cluster.client import METADATA_LIST, ApiClient, Json
from punctual.kube.cluster.walk import walk
from punctual.kube.known.directory import Directory
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.store import Known, metadata_of

PAUSE: Final = 20.0
"""Seconds between two comparisons. With `SETTLE` and a list of a few seconds, a change is found within 30."""
SOON: Final = 5.0
"""Seconds before the first comparison, and after one that found a difference."""
SHARE: Final = 0.1
"""Maximum share of the time for comparisons. With many objects they are further apart."""
LONGEST: Final = 60.0
"""Maximum seconds between two comparisons. One that seems to have taken long may have met a frozen process."""
SETTLE: Final = 2.0
"""Seconds in which a watch delivers a change that a list has shown."""
ENOUGH: Final = 2
"""Changes that the watches missed before they are restarted."""

log = structlog.get_logger(__name__)


class Renewed(Protocol):
    """Watches that can begin anew."""

    def renew(self) -> None:
        """List and watch all kinds again."""


class Resync:
    """Compares the directory with the API server until cancelled.

    Missed changes are events for the receiver. The second one restarts the watches.
    """

    def __init__(self, client: ApiClient, directory: Directory, receiver: EventReceiver, watches: Renewed) -> None:
        self._client = client
        self._directory = directory
        self._receiver = receiver
        self._watches = watches
        self._missed = 0

    async def run(self) -> None:
        """Compare until cancelled. Raises StoreFellBack if the API server's store was set back."""
        took, soon, caught_up = 0.0, True, False
        while True:
            await asyncio.sleep(pause_after(took, soon=soon))
            began = time.monotonic()
            try:
                soon = await self.compare() > 0
                if not soon and not caught_up:
                    caught_up = True
                    log.info("caught_up", jobs=len(self._directory.jobs))
            except ClusterError as error:
                log.warning("resync_failed", error=str(error))
            took = time.monotonic() - began

    async def compare(self) -> int:
        """Process the changes that the watches missed, and restart the watches at the second.

        Returns the number missed.
        """
        missed = 0
        async for resource, change, body in self._changes():
            log.warning("change_missed", kind=resource.plural, uid=body["metadata"]["uid"], change=change)
            self._receiver.observe(resource.plural, change, body)
            missed += 1
        self._missed += missed
        if self._missed >= ENOUGH:
            self._missed = 0
            self._watches.renew()
        return missed

    async def _changes(self) -> AsyncIterator[tuple[Resource, str | None, Json]]:
        """Yield (resource, change, body) of each object that is missing in the directory, outdated or surplus there."""
        new: list[tuple[Resource, Json]] = []
        gone: list[tuple[Resource, Json]] = []
        for store in self._directory.stores:
            resource, known, listed = store.resource, dict(store), set()
            async for page in walk(self._client, resource.path(), patience=_wait, accept=METADATA_LIST):
                for item in page.items:
                    meta = item["metadata"]
                    listed.add(meta["uid"])
                    if is_news(meta, known.get(meta["uid"])):
                        new.append((resource, meta))
            gone += [(resource, metadata_of(one)) for uid, one in known.items() if uid not in listed]
        left = len(new) + len(gone) + 1
        # kopf needs a minute for its first list of 20,000 objects; as long as differences disappear, it is at work
        while 0 < len(new) + len(gone) < left:
            left = len(new) + len(gone)
            await asyncio.sleep(SETTLE)
            now = {store.resource: store for store in self._directory.stores}
            new = [(resource, meta) for resource, meta in new if is_news(meta, now[resource].get(meta["uid"]))]
            gone = [(resource, meta) for resource, meta in gone if meta["uid"] in now[resource]]
        for resource, meta in gone:
            if await still_there(self._client, resource, meta) is None:
                yield resource, "DELETED", {"metadata": meta}
        for resource, meta in new:
            if body := await still_there(self._client, resource, meta):
                yield resource, None, body


def pause_after(took: float, *, soon: bool) -> float:
    """Return the seconds before the next comparison, after one of ``took`` seconds. ``soon``: it found a difference."""
    return max(SOON if soon else PAUSE, min(took / SHARE, LONGEST))


async def _wait(error: ClusterError) -> None:
    log.warning("resync_delayed", error=str(error))
    await asyncio.sleep(error.retry_after)


def is_news(meta: Json, known: Known | None) -> bool:
    """Return whether an object with this metadata differs from the known one."""
    if known is None or meta["generation"] > known.generation:
        return True
    if isinstance(known, KnownPool) and known.finalizers != tuple(meta.get("finalizers") or ()):
        return True  # edits of finalizers raise no generation, and the next one is refused without them
    return "deletionTimestamp" in meta and not known.deleting


async def still_there(client: ApiClient, resource: Resource, meta: Json) -> Json | None:
    """Return the body of this object. None: it is gone."""
    try:
        body = await client.get(resource.path(namespace=meta.get("namespace", ""), name=meta["name"]))
    except NotFound:
        return None
    return body if body["metadata"]["uid"] == meta["uid"] else None
