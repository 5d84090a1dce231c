"""Index of waiting jobs by deadline, with slacks: shifts a suffix, or finds its minimum, in one operation.

Fast admission (Mamat 2011, ch. 6, algs. 6 and 7) runs one waiting job after the other on all processors. A job's slack
is d − C, how much later it could end (6.3). One more job of length E takes E from the slack of all jobs behind it, and
must not take more than the least of those. The paper walks over the queue for both. Here, jobs lie in blocks of some
hundred. Each block is a numpy array with one number that is still to be added to all its slacks. A decision costs two
passes over one block and two over the blocks: 37,000 waiting jobs are processed as 2 × 500 numbers.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError

Floats = NDArray[np.float64]
Turn = tuple[float, float, str]
"""Due time, arrival and uid: a queue key, like `Order`."""
BLOCK = 512
"""Number of jobs at which a block is split."""
_sum, _least = np.add.reduce, np.minimum.reduce  # without the overhead of .sum() and .min()


class SlackEntry(NamedTuple):
    """One waiting job. ``length``: seconds that it takes of the queue, E(σ, N)."""

    order: Turn
    length: float
    slack: float


class _Block:
    """Neighbours in the queue. Their slacks are ``slacks[:n]`` plus the index's pending sum for the block."""

    __slots__ = ("lengths", "orders", "slacks")

    def __init__(self, orders: list[Turn], lengths: Sequence[float] | Floats, slacks: Sequence[float] | Floats) -> None:
        self.orders = orders
        self.lengths: Floats = np.zeros(2 * BLOCK)
        self.lengths[: len(orders)] = lengths
        self.slacks: Floats = np.empty(2 * BLOCK)
        self.slacks[: len(orders)] = slacks

    def insert(self, at: int, order: Turn, length: float, slack: float) -> None:
        n = len(self.orders)
        self.orders.insert(at, order)
        for line, value in ((self.lengths, length), (self.slacks, slack)):
            line[at + 1 : n + 1] = line[at:n]
            line[at] = value

    def pop(self, at: int) -> float:
        n = len(self.orders)
        del self.orders[at]
        length = self.lengths.item(at)
        for line in (self.lengths, self.slacks):
            line[at : n - 1] = line[at + 1 : n]
        return length

    @property
    def total(self) -> float:
        return float(_sum(self.lengths[: len(self.orders)]))

    def least(self, begin: int = 0) -> float:
        slacks = self.slacks[begin : len(self.orders)]
        return float(_least(slacks)) if slacks.size else inf


class SlackIndex:
    """Sorted `SlackEntry` items. All operations but iteration and `check` are O(BLOCK + n / BLOCK), mostly in numpy.

    Orders must be unique (they end with the job's uid).
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._last: list[Turn] = []  # last key of each block
        self._later = np.empty(0)  # per block: pending sum of each of its slacks
        self._least = np.empty(0)  # per block: least slack, ``_later`` included
        self._lengths = np.empty(0)  # per block: sum of its lengths
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[SlackEntry]:
        for b, later in zip(self._blocks, self._later.tolist(), strict=True):
            for order, length, slack in zip(b.orders, b.lengths.tolist(), b.slacks.tolist(), strict=False):
                yield SlackEntry(order, length, slack + later)

    def around(self, order: Turn) -> tuple[float, float]:
        """Return the length before that place, and the least slack behind it (slack_min of the successor, 6.4).

        The length is that of all jobs before it, in seconds. The slack is inf if no job is behind it.
        """
        b = bisect_left(self._last, order)
        ahead = float(_sum(self._lengths[:b]))
        if b == len(self._blocks):
            return ahead, inf
        block = self._blocks[b]
        at = bisect_left(block.orders, order)
        ahead += float(_sum(block.lengths[:at]))
        behind = at + (block.orders[at] == order)
        least = block.least(behind) + self._later.item(b)
        rest = self._least[b + 1 :]
        return ahead, min(least, float(_least(rest))) if rest.size else least

    @property
    def total(self) -> float:
        """The length of all jobs, seconds."""
        return float(_sum(self._lengths))

    def insert(self, order: Turn, length: float, slack: float) -> None:
        """Add a job and subtract its length from all slacks behind it."""
        if not self._blocks:
            self._blocks.append(_Block([order], [length], [slack]))
            self._last.append(order)
            self._later, self._least, self._lengths = np.zeros(1), np.array([slack]), np.array([length])
            self._size = 1
            return
        b = min(bisect_left(self._last, order), len(self._blocks) - 1)
        self._insert(b, bisect_left(self._blocks[b].orders, order), order, length, slack)

    def insert_behind(self, order: Turn, length: float, room: float) -> None:
        """Add a job with a slack of ``room`` less the lengths of all jobs before it, and its own."""
        if not self._blocks:
            self.insert(order, length, room - length)
            return
        b = min(bisect_left(self._last, order), len(self._blocks) - 1)
        block = self._blocks[b]
        at = bisect_left(block.orders, order)
        ahead = float(_sum(self._lengths[:b])) + float(_sum(block.lengths[:at]))
        self._insert(b, at, order, length, room - ahead - length)

    def _insert(self, b: int, at: int, order: Turn, length: float, slack: float) -> None:
        block = self._blocks[b]
        block.insert(at, order, length, slack - self._later.item(b))
        self._size += 1
        self._last[b] = block.orders[-1]
        self._lengths[b] += length
        self._move(b, at + 1, -length)
        if len(block.orders) == 2 * BLOCK:
            self._cut(b)

    def remove(self, order: Turn, *, spent: float = 0.0) -> None:
        """Remove a job; the part of its length that was not ``spent`` goes to all jobs behind it.

        KeyError if it is not in the queue.
        """
        b, at = self._find(order)
        block = self._blocks[b]
        length = block.pop(at)
        self._size -= 1
        if block.orders:
            self._last[b] = block.orders[-1]
            self._lengths[b] -= length
            self._move(b, at, length - spent)
            return
        self._later[b + 1 :] += length - spent
        self._least[b + 1 :] += length - spent
        del self._blocks[b], self._last[b]
        self._later, self._least = np.delete(self._later, b), np.delete(self._least, b)
        self._lengths = np.delete(self._lengths, b)

    def shorten(self, order: Turn, length: float, *, spent: float = 0.0) -> None:
        """Change a job's length; the part of it not ``spent`` goes to its own slack and all slacks behind it."""
        b, at = self._find(order)
        block = self._blocks[b]
        lost = block.lengths.item(at) - length
        block.lengths[at] = length
        self._lengths[b] -= lost
        self._move(b, at, lost - spent)

    def length(self, order: Turn) -> float:
        """Return a job's length; KeyError if it is not in the queue."""
        b, at = self._find(order)
        return self._blocks[b].lengths.item(at)

    def _find(self, order: Turn) -> tuple[int, int]:
        b = bisect_left(self._last, order)
        at = bisect_left(self._blocks[b].orders, order) if b < len(self._blocks) else 0
        if b == len(self._blocks) or self._blocks[b].orders[at] != order:
            raise KeyError(order)
        return b, at

    def _move(self, b: int, begin: int, by: float) -> None:
        """Add a number to all slacks from a place on."""
        block = self._blocks[b]
        block.slacks[begin : len(block.orders)] += by
        self._least[b] = block.least() + self._later.item(b)
        self._later[b + 1 :] += by
        self._least[b + 1 :] += by

    def _cut(self, b: int) -> None:
        """Split a full block in two."""
        block, later = self._blocks[b], self._later.item(b)
        halves = [
            _Block(block.orders[part], block.lengths[part], block.slacks[part])
            for part in (slice(None, BLOCK), slice(BLOCK, None))
        ]
        self._blocks[b : b + 1] = halves
        self._last[b : b + 1] = [half.orders[-1] for half in halves]
        self._later = np.insert(self._later, b, later)
        self._least = np.insert(self._least, b, halves[0].least() + later)
        self._least[b + 1] = halves[1].least() + later
        self._lengths = np.insert(self._lengths, b, halves[0].total)
        self._lengths[b + 1] = halves[1].total

    def check(self) -> None:
        """Raise InvariantError if the jobs are out of order or a block's summary is wrong."""
        orders = [w.order for w in self]
        if orders != sorted(set(orders)) or len(orders) != self._size:
            raise InvariantError("waiting jobs are out of order")
        for b, block in enumerate(self._blocks):
            if not block.orders or self._last[b] != block.orders[-1]:
                raise InvariantError(f"block {b} is empty or has another last key")
            if abs(self._least.item(b) - (block.least() + self._later.item(b))) > 1e-6:
                raise InvariantError(f"block {b} has a wrong least slack")
            if abs(self._lengths.item(b) - block.total) > 1e-6:
                raise InvariantError(f"block {b} has a wrong length")
