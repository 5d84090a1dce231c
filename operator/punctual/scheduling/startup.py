"""How long pods take to start, and what of that must be kept as margin.

Declared setup costs (theta_cp) cover the usual start-up; the margin covers what start-ups were seen to take beyond
them.
"""

from collections import deque
from collections.abc import Iterable

KEPT = 64
"""Start-ups remembered."""
ENOUGH = 5
"""Fewer samples say nothing about a spread."""


class Startups:
    """The last start-up times, seconds from the decision to create a pod until it ran."""

    def __init__(self, seen: Iterable[float] = ()) -> None:
        self.seen: deque[float] = deque(seen, maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """Take in one start-up."""
        self.seen.append(round(max(0.0, seconds), 3))

    def quantile(self, q: float) -> float:
        """Return the q-quantile (nearest rank) of what was seen, 0 if nothing was."""
        if not self.seen:
            return 0.0
        ordered = sorted(self.seen)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    def beyond(self, setup: float) -> float:
        """Seconds by which start-ups exceed the declared setup cost in all but one of twenty cases."""
        if len(self.seen) < ENOUGH:
            return 0.0
        return max(0.0, self.quantile(0.95) - setup)
