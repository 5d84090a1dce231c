"""Stamps and reads single objects after the takeover, before anything is decided about them.

A list from an API server that lags behind may lack an object that an earlier leader has written to. A watch that begins
at such a list shows the object as it was created, without the promises made since. Objects that were put aside are read
here too: settled ones when something is due about them, oversized ones one by one.
"""

import asyncio
from typing import Final

from punctual.kube.known.jobs import KnownJob
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.kind import K, Kind

AT_ONCE: Final = 32
"""Maximum objects that are read at once."""


class LateReader:
    """Reads single objects."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._oversized = asyncio.Lock()

    async def read(self, kind: Kind[K], known: K) -> bool:
        """Read an object. Returns whether it was read, and was not replaced meanwhile."""
        known.term.reading = True
        async with self._oversized if isinstance(known, KnownJob) and known.flaw else self._slots:
            async for body, unwritable in self._fence.missed(kind, [known]):
                await kind.restore(body, unwritable)
        known.term.reading = False
        return known.term.read and kind.store.get(known.uid) is known
