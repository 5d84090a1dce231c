"""Index of the times at which busy processors become free, and of the capacity that they leave.

The times are sorted in blocks with partial sums. Adding or removing one end, or computing the capacity left until a
time, takes some microseconds with 40,000 processors. No dot product is long enough to make numpy wake threads, which
takes milliseconds on a busy machine.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import exp, log

import numpy as np

from punctual.errors import InvariantError
from punctual.theory.geometric import partial_sum

BLOCK = 256
"""Number of ends at which a block is split."""


class BusyIndex:
    """The ends (s) of running work, one per busy processor, and the weights of :meth:`left`."""

    def __init__(self, ends: Iterable[float] = (), *, beta: float = 1.0) -> None:
        if not 0.0 < beta <= 1.0:
            raise ValueError(f"beta must be in (0, 1], not {beta}")
        self._rest, self._log = 1.0 - beta, log(beta)
        self._powers = np.exp(self._log * np.arange(2 * BLOCK))
        line = sorted(ends)
        self._blocks = [array("d", line[i : i + BLOCK]) for i in range(0, len(line), BLOCK)]
        self._last = [block[-1] for block in self._blocks]
        self._sums = np.array([self._sum(block) for block in self._blocks])
        self._before = np.empty(0)  # per block: the number of ends before it; last, the total
        self._count()

    def __len__(self) -> int:
        return int(self._before.item(-1))

    def add(self, end: float) -> None:
        """Add a processor that is busy until ``end``."""
        if not self._blocks:
            self._blocks, self._last, self._sums = [array("d", [end])], [end], np.array([end])
            self._count()
            return
        b = min(bisect_left(self._last, end), len(self._blocks) - 1)
        insort(self._blocks[b], end)
        self._before[b + 1 :] += 1
        self._changed(b)
        if len(self._blocks[b]) == 2 * BLOCK:
            block = self._blocks[b]
            self._blocks[b : b + 1] = [block[:BLOCK], block[BLOCK:]]
            self._last.insert(b, 0.0)
            self._sums = np.insert(self._sums, b, 0.0)
            self._changed(b)
            self._changed(b + 1)
            self._count()

    def remove(self, end: float) -> None:
        """Remove a processor that was busy until ``end``; KeyError if there is none."""
        b = bisect_left(self._last, end)
        at = bisect_left(self._blocks[b], end) if b < len(self._blocks) else 0
        if b == len(self._blocks) or self._blocks[b][at] != end:
            raise KeyError(end)
        del self._blocks[b][at]
        if self._blocks[b]:
            self._before[b + 1 :] -= 1
            self._changed(b)
        else:
            self._drop(b, b + 1)

    def forget(self, now: float) -> None:
        """Drop the processors that are free by ``now``: :meth:`left` returns the same without them."""
        b, at, _ = self._find(now, after=True)
        if at:
            del self._blocks[b][:at]
            self._changed(b)
        if b or at:
            self._drop(0, b)

    def weight(self, processors: int) -> float:
        """Return 1 + β + … + β^(n−1): the sum of the weights of n processors, n for β = 1."""
        return partial_sum(processors, self._rest)

    def left(self, processors: int, now: float, until: float) -> float:
        """Return Σ β^(j−1) (until − max(end_j, now))⁺ over as many processors, in the order in which they are free.

        Processors that are idle, or busy only until before ``now``, are free at ``now``.
        """
        if until <= now:
            return 0.0
        b, i, first = self._find(now, after=True)
        c, j, last = self._find(until)
        free, late = processors - (len(self) - first), 0.0
        if last > first:  # those that become free in between, with weights from β^0 on
            late = until * self.weight(last - first) - self._between(first, b, i, c, j)
        return self.weight(free) * (until - now) + exp(self._log * free) * late

    def _between(self, first: int, b: int, i: int, c: int, j: int) -> float:
        """Return Σ β^k end_k, k = 0, 1, … from the i-th end of block b (``first`` overall) up to the j-th of c."""
        if b == c:
            return self._sum(self._blocks[b], i, j)
        total = self._sum(self._blocks[b], i)
        weights = np.exp(self._log * (self._before[b + 1 : c + 1] - first))
        total += float(weights[: c - b - 1].dot(self._sums[b + 1 : c]))
        return total + (weights.item(-1) * self._sum(self._blocks[c], 0, j) if j else 0.0)

    def _sum(self, block: "array[float]", begin: int = 0, end: int | None = None) -> float:
        ends = np.frombuffer(block)[begin:end]
        return float(self._powers[: ends.size].dot(ends))

    def _find(self, at: float, *, after: bool = False) -> tuple[int, int, int]:
        """Return block, index in it, and index overall, of the first end not before (``after``: after) a time."""
        bisect = bisect_right if after else bisect_left
        b = bisect(self._last, at)
        if b == len(self._blocks):
            return b, 0, len(self)
        i = bisect(self._blocks[b], at)
        return b, i, int(self._before.item(b)) + i

    def _changed(self, b: int) -> None:
        self._last[b] = self._blocks[b][-1]
        self._sums[b] = self._sum(self._blocks[b])

    def _drop(self, begin: int, end: int) -> None:
        del self._blocks[begin:end], self._last[begin:end]
        self._sums = np.delete(self._sums, slice(begin, end))
        self._count()

    def _count(self) -> None:
        self._before = np.cumsum([0.0, *(len(block) for block in self._blocks)])

    def check(self) -> None:
        """Raise InvariantError if ends are out of order or a block's summary is wrong."""
        ends = [end for block in self._blocks for end in block]
        if ends != sorted(ends) or len(ends) != len(self):
            raise InvariantError("ends are out of order")
        for b, block in enumerate(self._blocks):
            if not block or self._last[b] != block[-1] or self._before[b + 1] - self._before[b] != len(block):
                raise InvariantError(f"block {b} is empty, has another last end or a wrong count")
            if self._sums.item(b) != self._sum(block):
                raise InvariantError(f"block {b} has a wrong sum")
