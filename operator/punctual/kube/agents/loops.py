"""Controllers for the models that agents have learned: the search needs arrays, which agents do not have.

A search takes tens of milliseconds, so it runs in a thread, and its results are kept.
"""

import asyncio

from punctual import wire
from punctual.control.tuning import Alike, alike, tune_alike


class Loops:
    """Controllers found so far."""

    def __init__(self) -> None:
        self._found: dict[Alike, wire.Loop] = {}
        self._searches: dict[Alike, asyncio.Task[None]] = {}

    def loop(self, model: wire.ResponseModel, noise: float) -> wire.Loop | None:
        """Return the controller for a model and the noise of a sample; None: it is being searched."""
        key = alike(model.a, model.delay, noise)
        if key not in self._found and key not in self._searches:
            self._searches[key] = asyncio.create_task(self._search(key))
        return self._found.get(key)

    async def _search(self, key: Alike) -> None:
        try:
            found = await asyncio.to_thread(tune_alike, key)
            self._found[key] = wire.Loop(
                kp=found.gains.kp, ki=found.gains.ki, alpha=found.alpha, calm=found.calm, threshold=found.threshold
            )
        finally:
            del self._searches[key]
