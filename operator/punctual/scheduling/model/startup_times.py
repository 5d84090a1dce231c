"""How long pods take to start, and what of that must be kept as margin.

Declared setup costs (theta_cp) cover the usual start-up; the margin covers what start-ups were seen to take beyond
them. Everybody pays it, so what one job alone has shown (a slow image, an init step) is not in it: that is its own
cost.
"""

from collections import deque
from collections.abc import Iterable

KEPT = 64
"""Start-ups remembered."""
PER_JOB = 3
"""Start-ups remembered of one job: the twentieth part, and just so many of the slowest are left out."""
ENOUGH = 5
"""Fewer samples say nothing about a spread."""


class StartupTimes:
    """The last start-up times, seconds from the decision to create a pod until it ran."""

    def __init__(self, seen: Iterable[float] = ()) -> None:
        self._seen: deque[tuple[str, float]] = deque((("", seconds) for seconds in seen), maxlen=KEPT)

    @property
    def seen(self) -> tuple[float, ...]:
        """Seconds, oldest first."""
        return tuple(seconds for _, seconds in self._seen)

    def add(self, job: str, seconds: float) -> None:
        """Take in one start-up of a job (uid)."""
        own = [i for i, (uid, _) in enumerate(self._seen) if uid == job]
        if len(own) >= PER_JOB:
            del self._seen[own[0]]
        self._seen.append((job, round(max(0.0, seconds), 3)))

    def beyond(self, setup: float) -> float:
        """Seconds by which start-ups exceed the declared setup cost in all but one of twenty cases, or of one job's."""
        count = len(self._seen)
        if count < ENOUGH:
            return 0.0
        return max(0.0, sorted(self.seen)[min(int(0.95 * count), count - 1 - PER_JOB)] - setup)
