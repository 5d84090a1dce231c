"""Until when processors are busy: how much of the time to come is taken already.

Kept sorted in blocks, so that one end more or less, and the sum of all up to a moment, cost some microseconds with
40,000 processors.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import numpy as np

from punctual.errors import InvariantError

BLOCK = 256
"""Ends in a block when it is cut in two."""


class Busy:
    """The ends (s) of what runs, one per busy processor. All operations are O(BLOCK + n / BLOCK)."""

    def __init__(self, ends: Iterable[float] = ()) -> None:
        line = sorted(ends)
        self._blocks = [line[i : i + BLOCK] for i in range(0, len(line), BLOCK)]
        self._last = [block[-1] for block in self._blocks]
        self._counts = np.array([len(block) for block in self._blocks], dtype=np.float64)
        self._sums = np.array([sum(block) for block in self._blocks])

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, end: float) -> None:
        """Count one more processor that is busy until ``end``."""
        if not self._blocks:
            self._blocks, self._last = [[end]], [end]
            self._counts, self._sums = np.ones(1), np.array([end])
            return
        b = min(bisect_left(self._last, end), len(self._blocks) - 1)
        block = self._blocks[b]
        insort(block, end)
        self._last[b] = block[-1]
        self._counts[b] += 1
        self._sums[b] += end
        if len(block) == 2 * BLOCK:
            halves = [block[:BLOCK], block[BLOCK:]]
            self._blocks[b : b + 1] = halves
            self._last[b : b + 1] = [half[-1] for half in halves]
            self._counts[b] = BLOCK
            self._counts = np.insert(self._counts, b, BLOCK)
            self._sums = np.insert(self._sums, b, sum(halves[0]))
            self._sums[b + 1] = sum(halves[1])

    def remove(self, end: float) -> None:
        """Count one less that was busy until ``end``; KeyError where there is none."""
        b = bisect_left(self._last, end)
        at = bisect_left(self._blocks[b], end) if b < len(self._blocks) else 0
        if b == len(self._blocks) or self._blocks[b][at] != end:
            raise KeyError(end)
        block = self._blocks[b]
        del block[at]
        if block:
            self._last[b] = block[-1]
            self._counts[b] -= 1
            self._sums[b] -= end
            return
        del self._blocks[b], self._last[b]
        self._counts, self._sums = np.delete(self._counts, b), np.delete(self._sums, b)

    def taken(self, now: float, until: float) -> float:
        """Return the processor seconds of [now, until) that are taken: Σ (min(end, until) − now), those after now."""
        if until <= now:
            return 0.0
        over, over_sum = self._up_to(now)
        within, within_sum = self._up_to(until)
        beyond = self._counts.sum() - within
        return float(within_sum - over_sum - (within - over) * now + beyond * (until - now))

    def _up_to(self, at: float) -> tuple[float, float]:
        """Return how many end by a time, and the sum of their ends."""
        b = bisect_right(self._last, at)
        count, total = float(self._counts[:b].sum()), float(self._sums[:b].sum())
        if b == len(self._blocks):
            return count, total
        block = self._blocks[b]
        n = bisect_right(block, at)
        return count + n, total + sum(block[:n])

    def check(self) -> None:
        """Raise InvariantError where ends are out of order or a block's summary is wrong."""
        ends = [end for block in self._blocks for end in block]
        if ends != sorted(ends):
            raise InvariantError("ends are out of order")
        for b, block in enumerate(self._blocks):
            if not block or self._last[b] != block[-1] or self._counts[b] != len(block):
                raise InvariantError(f"block {b} is empty, ends elsewhere or counts wrongly")
            if abs(self._sums.item(b) - sum(block)) > 1e-6 * (1 + abs(sum(block))):
                raise InvariantError(f"block {b} has another sum than it says")
