"""Until when processors are busy, and what that leaves of the time to come.

One sorted array: one end more or less moves what stands behind it, and what is left until a moment is one product,
each some 20 µs with 40,000 processors.
"""

from collections.abc import Iterable
from math import log1p

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError
from punctual.theory.geometric import partial_sum

SHORT = 8192
"""Numbers that a dot product takes at a time: of more than 10,000 OpenBLAS would wake its threads, for milliseconds."""


def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return sum(float(a[i : i + SHORT].dot(b[i : i + SHORT])) for i in range(0, a.size, SHORT))


class Busy:
    """The ends (s) of what runs, one per busy processor, and the weights of :meth:`left`."""

    def __init__(self, ends: Iterable[float] = (), *, beta: float = 1.0) -> None:
        if not 0.0 < beta <= 1.0:
            raise ValueError(f"beta must be in (0, 1], not {beta}")
        line = np.sort(np.fromiter(ends, dtype=np.float64))
        self._n = line.size
        self._ends = np.empty(max(64, 2 * self._n))
        self._ends[: self._n] = line
        self._rest = 1.0 - beta
        self._weights = self._powers()

    def __len__(self) -> int:
        return self._n

    def add(self, end: float) -> None:
        """Count one more processor that is busy until ``end``."""
        if self._n == self._ends.size:
            self._ends = np.concatenate((self._ends, np.empty(self._n)))
            self._weights = self._powers()
        at = int(self._ends[: self._n].searchsorted(end))
        self._ends[at + 1 : self._n + 1] = self._ends[at : self._n]
        self._ends[at] = end
        self._n += 1

    def remove(self, end: float) -> None:
        """Count one less that was busy until ``end``; KeyError where there is none."""
        at = int(self._ends[: self._n].searchsorted(end))
        if at == self._n or self._ends[at] != end:
            raise KeyError(end)
        self._n -= 1
        self._ends[at : self._n] = self._ends[at + 1 : self._n + 1]

    def forget(self, now: float) -> None:
        """Leave out those that are free by now: :meth:`left` is the same without them."""
        gone = int(self._ends[: self._n].searchsorted(now, side="right"))
        if gone:
            self._n -= gone
            self._ends[: self._n] = self._ends[gone : gone + self._n]

    def weight(self, processors: int) -> float:
        """Return 1 + β + … + β^(n−1): the weights of so many processors together, n for β = 1."""
        return partial_sum(processors, self._rest)

    def left(self, processors: int, now: float, until: float) -> float:
        """Return Σ β^(j−1) (until − max(end_j, now))⁺ over so many processors, those that are free first first.

        Those that are not busy, or only until before ``now``, are free at ``now``.
        """
        if until <= now:
            return 0.0
        ends = self._ends[: self._n]
        first = int(ends.searchsorted(now, side="right"))
        last = int(ends.searchsorted(until))
        free = processors - (self._n - first)
        inside = last - first
        done = _dot(self._weights[:inside], ends[first:last])
        late = until * self.weight(inside) - done  # those that become free in between, as if they came first
        return self.weight(free) * (until - now) + (1.0 - self._rest) ** free * late

    def _powers(self) -> NDArray[np.float64]:
        return np.asarray(np.exp(log1p(-self._rest) * np.arange(self._ends.size)))

    def check(self) -> None:
        """Raise InvariantError where ends are out of order."""
        ends = self._ends[: self._n]
        if (ends[1:] < ends[:-1]).any():
            raise InvariantError("ends are out of order")
