"""What a node did lately: its use by hosts and by guests in steps of ten seconds for an hour, and its last episodes.

It has a fixed size, and is lost with the process that keeps it.
"""

from array import array
from collections import deque
from dataclasses import dataclass, field
from math import isnan, nan
from statistics import fmean
from typing import Final, NamedTuple

STEP: Final = 10.0
"""Seconds of which a mean is kept."""
STEPS: Final = 360
"""Steps that are kept: an hour."""
EPISODES: Final = 5
"""Episodes that are kept."""


class Episode(NamedTuple):
    """An episode (:mod:`punctual.linger.episode`)."""

    length: float
    """Seconds. They end with quiet time."""
    use: float
    """Mean use by hosts, fraction of the node."""


@dataclass(slots=True)
class Means:
    """The means of a value in the last steps."""

    _kept: "array[float]" = field(default_factory=lambda: array("f", [nan] * STEPS))
    """By the step's number modulo STEPS. NaN: nothing was seen in it."""
    _step: int = 0
    _count: int = 0
    """The present step, and how often the value was seen in it."""

    def see(self, now: float, value: float) -> None:
        """Take in the value at ``now``, seconds on any clock."""
        step = int(now // STEP)
        if step != self._step:
            passed = step - self._step
            for one in range(step - min(passed, STEPS) + 1, step + 1) if passed > 0 else range(STEPS):
                self._kept[one % STEPS] = nan  # a clock that was set back makes all of it unknown
            self._step, self._count = step, 0
        before = self._kept[step % STEPS] if self._count else 0.0
        self._count += 1
        self._kept[step % STEPS] = before + (value - before) / self._count

    def last(self, now: float, each: int) -> list[float | None]:
        """Return the means of ``each`` steps up to now, the oldest first. None: nothing was seen in them."""
        oldest = (self._step + 1) % STEPS
        kept = [*self._kept[oldest:], *self._kept[:oldest]]
        unseen = int(now // STEP) - self._step
        kept = [*kept[unseen:], *[nan] * min(unseen, STEPS)] if unseen >= 0 else [nan] * STEPS
        return [_mean(kept[first : first + each]) for first in range(0, STEPS, each)]


def _mean(values: list[float]) -> float | None:
    known = [value for value in values if not isnan(value)]
    return fmean(known) if known else None


@dataclass(slots=True)
class History:
    """A node. Uses are fractions of it."""

    hosts: Means = field(default_factory=Means)
    guests: Means = field(default_factory=Means)
    episodes: deque[Episode] = field(default_factory=lambda: deque(maxlen=EPISODES))
    """Those that are over, the newest last."""
    _present: Episode | None = None

    def see(self, now: float, *, hosts: float, guests: float, episode: Episode | None) -> None:
        """Take in the uses at ``now``, and the present episode. None: the node is idle."""
        self.hosts.see(now, hosts)
        self.guests.see(now, guests)
        before, self._present = self._present, episode
        if before is not None and (episode is None or episode.length < before.length):
            self.episodes.append(before)
