"""The takeover: reads the stored objects in an order that loses no write of an earlier leader.

    list       pools, profiles, reservations, target rates and jobs as they are now. A replica that already knows nearly
               all jobs lists only the unfinished ones
    stamp      write the new epoch into each pool, target rate, and unfinished job and reservation. Each response has
               the last status that an earlier leader wrote, because the API server refuses its later writes
    restore    the records from these responses
    wait       until the time is certain: a decision at a wrong time is permanent

Nothing is decided before the takeover ends. Settled jobs (`directory.settled`: ended, refused, a dry run), oversized
ones and refused reservations are put aside (`settled_jobs`, `reservations`). A pool is not led while its status cannot
be written; other pools are unaffected.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import JOBS, POOLS, PROFILES, RESERVATIONS, TARGET_RATES, Directory
from punctual.kube.cluster.resources import Resource
from punctual.kube.format.clock import ServerClock
from punctual.kube.takeover.fencing import UNFINISHED, Fence
from punctual.kube.takeover.restore import Restore
from punctual.kube.takeover.statuses import Statuses
from punctual.sim.gc_pause import uncollected

RESOURCES: Final = (PROFILES, POOLS, RESERVATIONS, TARGET_RATES, JOBS)
LOOK: Final = 0.25
"""Seconds between checks whether the time is still in doubt."""


class Takeover:
    """Reads everything once: ``await run()``.

    ``put_aside[resource](uid, body)`` returns whether an object is neither stamped nor read now: see `settled_jobs` and
    `reservations`.
    """

    def __init__(
        self,
        fence: Fence,
        restore: Restore,
        statuses: Statuses,
        directory: Directory,
        *,
        put_aside: Mapping[Resource, Callable[[str, Json | None], bool]],
        clock: ServerClock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fence = fence
        self._restore = restore
        self._statuses = statuses
        self._directory = directory
        self._put_aside = put_aside
        self._clock = clock
        self._monotonic = monotonic
        self._began = monotonic()
        self._over = False

    async def run(self) -> None:
        """Read all objects, and wait until the time is known."""
        before = {resource: self._directory.metadata(resource) for resource in RESOURCES}
        fence, restore = self._fence, self._restore
        with uncollected():  # garbage collection of so many bodies would take half as much CPU as reading them
            async for body in fence.all(PROFILES, before[PROFILES]):
                restore.profile(body)
            async for body in fence.all(POOLS, before[POOLS]):
                restore.pool(body)
            async for body in fence.all(RESERVATIONS, before[RESERVATIONS], aside=self._put_aside[RESERVATIONS]):
                restore.reservation(body)
            async for body in fence.all(TARGET_RATES, before[TARGET_RATES]):
                restore.rate(body)
            selector = UNFINISHED if await fence.lists_unfinished(len(before[JOBS])) else ""
            async for body in fence.all(JOBS, before[JOBS], aside=self._put_aside[JOBS], selector=selector):
                await restore.job(body)
        while self._clock.doubted:
            fence.note_progress()  # this wait does not count as a stall
            await asyncio.sleep(LOOK)
            self._statuses.begun = self._clock.now()

    def end(self) -> None:
        """Mark the takeover as over: it is done, or the term ended first."""
        self._over = True

    @property
    def seconds(self) -> float:
        """Seconds since the takeover began."""
        return self._monotonic() - self._began

    @property
    def age(self) -> float:
        """Seconds since the takeover began; 0 when it is over."""
        return 0.0 if self._over else self.seconds

    @property
    def stalled(self) -> float:
        """Seconds since it last read a page or took a stamp; 0 when it is over."""
        return 0.0 if self._over else self._fence.idle
