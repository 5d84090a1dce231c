"""The takeover: reads what the API server has on record, in an order in which nothing can be lost.

    list       pools, profiles, reservations and jobs as they are now; of the jobs only the unfinished ones, if nearly
               all are known
    stamp      the new epoch onto each pool and each unfinished job and reservation, by itself: the answer is what an
               earlier leader wrote last, because from then on the API server refuses what it still has under way
    restore    the records from these answers
    wait       while the time is in doubt: a decision at a wrong time is permanent

Nothing is decided before its end. Settled jobs (`directory.settled`: ended, refused, a dry run) are put aside
(`settled_jobs`). A pool with a status that cannot be written is not led until it can. Others go on.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import JOBS, POOLS, PROFILES, RESERVATIONS, Directory
from punctual.kube.format.clock import ServerClock
from punctual.kube.takeover.fencing import UNFINISHED, Fence
from punctual.kube.takeover.restore import Restore
from punctual.kube.takeover.statuses import Statuses
from punctual.sim.gc_pause import uncollected

LOOK: Final = 0.25
"""Seconds between checks whether the time is still in doubt."""


class Takeover:
    """Reads everything once: ``await run()``. ``put_aside(uid, body)``: see `settled_jobs`."""

    def __init__(
        self,
        fence: Fence,
        restore: Restore,
        statuses: Statuses,
        directory: Directory,
        *,
        put_aside: Callable[[str, Json | None], bool],
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
        before = {resource: self._directory.metadata(resource) for resource in (PROFILES, POOLS, RESERVATIONS, JOBS)}
        fence, restore = self._fence, self._restore
        with uncollected():  # to look for cycles in so many bodies takes half of the CPU that reading them takes
            async for body in fence.all(PROFILES, before[PROFILES]):
                restore.profile(body)
            async for body in fence.all(POOLS, before[POOLS]):
                restore.pool(body)
            async for body in fence.all(RESERVATIONS, before[RESERVATIONS]):
                restore.reservation(body)
            selector = UNFINISHED if await fence.lists_unfinished(len(before[JOBS])) else ""
            async for body in fence.all(JOBS, before[JOBS], aside=self._put_aside, selector=selector):
                await restore.job(body)
        while self._clock.doubted:
            fence.note_progress()  # this wait does not count as a stall
            await asyncio.sleep(LOOK)
            self._statuses.begun = self._clock.now()

    def end(self) -> None:
        """End it: it is done, or the term ends before."""
        self._over = True

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self._monotonic() - self._began

    @property
    def age(self) -> float:
        """Seconds since it began; 0 when it is over."""
        return 0.0 if self._over else self.seconds

    @property
    def stalled(self) -> float:
        """Seconds since it last read a page or took a stamp; 0 when it is over."""
        return 0.0 if self._over else self._fence.idle
