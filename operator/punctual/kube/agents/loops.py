"""Controllers for the models that agents have learned: the search needs arrays, which agents do not have.

A search takes tens of milliseconds, so it runs in a thread, and its results are kept: they depend on little of a model.
"""

import asyncio
from bisect import bisect_left
from typing import Final

from punctual import wire
from punctual.control.model import Model
from punctual.control.tuning import tune

STEP: Final = 0.05
"""Models with an ``a`` that differs by less have the same controller."""
NOISES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Noise is rounded up to one of these."""

Key = tuple[int, int, float]


class Loops:
    """Controllers found so far."""

    def __init__(self) -> None:
        self._found: dict[Key, wire.Loop] = {}
        self._searches: dict[Key, asyncio.Task[None]] = {}

    def loop(self, model: wire.Model, noise: float) -> wire.Loop | None:
        """Return the controller for a model and the noise of a sample; None: it is being searched."""
        rounded = NOISES[min(bisect_left(NOISES, noise), len(NOISES) - 1)]
        key = round(model.a / STEP), model.delay, rounded
        if key not in self._found and key not in self._searches:
            self._searches[key] = asyncio.create_task(self._search(key))
        return self._found.get(key)

    async def _search(self, key: Key) -> None:
        steps, delay, noise = key
        try:
            self._found[key] = await asyncio.to_thread(_searched, min(steps * STEP, 0.95), delay, noise)
        finally:
            del self._searches[key]


def _searched(a: float, delay: int, noise: float) -> wire.Loop:
    found = tune(Model.first_order(a, 1.0 - a, delay=delay), noise=noise)
    return wire.Loop(
        kp=found.gains.kp, ki=found.gains.ki, alpha=found.alpha, calm=found.calm, threshold=found.threshold
    )
