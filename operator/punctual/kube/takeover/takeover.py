"""The takeover: reads the stored objects in an order that loses no write of an earlier leader.

    list       the objects of each kind as they are now. A replica that already knows nearly all jobs lists only the
               unfinished ones
    stamp      write the new epoch into each pool, target rate, and unfinished job and reservation. Each response has
               the last status that an earlier leader wrote, because the API server refuses its later writes
    restore    the records from these responses
    wait       until the time is certain: a decision at a wrong time is permanent

Nothing is decided before the takeover ends. Settled jobs (`directory.settled`: ended, refused, a dry run), oversized
ones and refused reservations are put aside (`Kind.put_aside`). A pool is not led while its status cannot
be written; other pools are unaffected.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from punctual.gc_pause import uncollected
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.kind import Kind
from punctual.runtime.clock import ServerClock

LOOK: Final = 0.25
"""Seconds between checks whether the time is still in doubt."""


class Takeover:
    """Reads everything once: ``await run()``. The kinds are read in their order."""

    def __init__(
        self,
        fence: Fence,
        kinds: Sequence[Kind[Any]],
        clock: ServerClock,
    ) -> None:
        self._fence = fence
        self._kinds = kinds
        self._clock = clock
        self._began = clock.monotonic()
        self._over = False

    async def run(self) -> None:
        """Read all objects, and wait until the time is known."""
        before = {kind: dict(kind.store) for kind in self._kinds}
        with uncollected():  # garbage collection of so many bodies would take half as much CPU as reading them
            for kind in self._kinds:
                async for body, unwritable in self._fence.all(kind, before[kind]):
                    await kind.restore(body, unwritable)
        while self._clock.doubted:
            self._fence.note_progress()  # this wait does not count as a stall
            await asyncio.sleep(LOOK)
            self._fence.begun = self._clock.now()

    def end(self) -> None:
        """Mark the takeover as over: it is done, or the term ended first."""
        self._over = True

    @property
    def seconds(self) -> float:
        """Seconds since the takeover began."""
        return self._clock.monotonic() - self._began

    @property
    def age(self) -> float:
        """Seconds since the takeover began; 0 when it is over."""
        return 0.0 if self._over else self.seconds

    @property
    def stalled(self) -> float:
        """Seconds since it last read a page or took a stamp; 0 when it is over."""
        return 0.0 if self._over else self._fence.idle
