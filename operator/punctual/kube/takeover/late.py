"""Stamps and reads single objects after the takeover, before anything is decided about them.

A list from an API server that lags behind may lack an object that an earlier leader has written to. A watch that begins
at such a list shows the object as it was created, without the promises made since. Jobs that were put aside are read
here too: settled ones when something is due about them, oversized ones one by one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from punctual.kube import api
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import (
    JOBS,
    POOLS,
    RESERVATIONS,
    TARGET_RATES,
    Directory,
    KnownJob,
    KnownRate,
    KnownReservation,
)
from punctual.kube.cluster.resources import Resource
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.restore import Restore
from punctual.kube.takeover.statuses import Statuses

AT_ONCE: Final = 32
"""Maximum objects that are read at once."""

log = structlog.get_logger(__name__)


class LateReader:
    """Reads single objects. Each coroutine returns whether it read the object, and the object was not replaced."""

    def __init__(self, fence: Fence, restore: Restore, statuses: Statuses, directory: Directory) -> None:
        self._fence = fence
        self._restore = restore
        self._statuses = statuses
        self._directory = directory
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._oversized = asyncio.Lock()
        self._reading: set[str] = set()  # uids

    def reads(self, uid: str) -> bool:
        """Return whether a job, reservation or TargetRate is being read at this moment."""
        return uid in self._reading

    async def job(self, known: KnownJob) -> bool:
        """Read a job."""
        owner, statuses = known.owner, self._statuses
        if owner.uid in self._reading:
            return False
        self._reading.add(owner.uid)
        aside = owner.uid in statuses.aside
        async with self._oversized if known.flaw else self._slots:
            meta = {"uid": owner.uid, "namespace": owner.namespace, "name": owner.name}
            async for body in self._fence.missed(JOBS, [meta]):
                await self._restore.job(body)
        self._reading.discard(owner.uid)
        if owner.uid not in statuses.read or self._directory.jobs.get(owner.uid) is not known:
            return False
        if known.term.record and not aside:
            log.warning("job_found_late", job=owner.uid, namespace=owner.namespace, name=owner.name)
        return True

    async def reservation(self, known: KnownReservation) -> bool:
        """Read a reservation."""
        read = await self._read(RESERVATIONS, known.metadata, self._restore.reservation)
        return read and self._directory.reservations.get(known.uid) is known

    async def rate(self, known: KnownRate) -> bool:
        """Read a TargetRate."""
        read = await self._read(TARGET_RATES, known.metadata, self._restore.rate)
        return read and self._directory.rates.get(known.uid) is known

    async def _read(self, resource: Resource, of: api.Metadata, restore: Callable[[Json], None]) -> bool:
        if of.uid in self._reading:
            return False
        self._reading.add(of.uid)
        async with self._slots:
            meta = {"uid": of.uid, "namespace": of.namespace, "name": of.name}
            async for body in self._fence.missed(resource, [meta]):
                restore(body)
        self._reading.discard(of.uid)
        return of.uid in self._statuses.read

    async def pool(self, name: str) -> bool:
        """Read a pool that could not be stamped before."""
        known, statuses = self._directory.pools.get(name), self._statuses
        if known is None:
            return False
        statuses.left_alone.discard(known.uid)
        async for body in self._fence.missed(POOLS, [{"uid": known.uid, "name": name}]):
            if known.uid in statuses.left_alone or name not in statuses.unstamped:
                return False
            self._restore.pool(body)
            statuses.unstamped.discard(name)
            return name in self._directory.pools
        return False
