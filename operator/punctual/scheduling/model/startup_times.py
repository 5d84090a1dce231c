"""Start-up times of pods, and the margin that they require.

Declared setup costs (theta_cp) cover the usual start-up; the margin covers the observed excess. Every job pays the
margin, so delays that only one job has shown (a slow image, an init step) are not in it: they are that job's own cost.
"""

from collections import deque
from collections.abc import Iterable

KEPT = 64
"""Number of start-ups kept."""
PER_JOB = 3
"""Start-ups kept of one job: a twentieth, and the same number of the slowest is ignored."""
ENOUGH = 5
"""Minimum number of samples for an estimate of the spread."""


class StartupTimes:
    """The last start-up times, seconds from the decision to create a pod until it ran."""

    def __init__(self, seen: Iterable[float] = ()) -> None:
        self._seen: deque[tuple[str, float]] = deque((("", seconds) for seconds in seen), maxlen=KEPT)

    @property
    def seen(self) -> tuple[float, ...]:
        """Seconds, oldest first."""
        return tuple(seconds for _, seconds in self._seen)

    def add(self, job: str, seconds: float) -> None:
        """Record one start-up of a job (uid)."""
        own = [i for i, (uid, _) in enumerate(self._seen) if uid == job]
        if len(own) >= PER_JOB:
            del self._seen[own[0]]
        self._seen.append((job, round(max(0.0, seconds), 3)))

    def beyond(self, setup: float) -> float:
        """Return the excess of start-ups over the declared setup cost, s, without the slowest twentieth or job's."""
        count = len(self._seen)
        if count < ENOUGH:
            return 0.0
        return max(0.0, sorted(self.seen)[min(int(0.95 * count), count - 1 - PER_JOB)] - setup)
