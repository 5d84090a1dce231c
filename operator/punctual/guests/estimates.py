"""What a guest job has shown: CPU of a unit, time of a chunk's start, and how long its chunks should be."""

from dataclasses import dataclass
from typing import Final

FIRST: Final = 10.0
"""Seconds of work in a job's first chunks, and the least ever."""
LONGEST: Final = 600.0
UNKNOWN: Final = 10.0
"""CPU seconds of a unit while nothing is known of it: the first chunks are of one unit, and measure it."""
GROW, SHRINK = 1.5, 0.5
START: Final = 5.0
"""Seconds from a decision to a chunk that works, before one was measured."""
MEMORY: Final = 0.2
"""Weight of the newest start in the mean."""


@dataclass(slots=True)
class ChunkLength:
    """Seconds of work in a chunk: longer after each chunk that has ended well, shorter after each that was lost.

    Longer chunks start less often; a lost chunk costs more (Ryu 2001, 2, on Bhatt).
    """

    seconds: float = FIRST

    def saved(self) -> None:
        """Take in that a chunk has ended well."""
        self.seconds = min(LONGEST, self.seconds * GROW)

    def lost(self) -> None:
        """Take in that a chunk was lost with work in it."""
        self.seconds = max(FIRST, self.seconds * SHRINK)


@dataclass(slots=True)
class UnitCost:
    """CPU seconds of a unit: as declared, then as measured."""

    units: int = 0
    cpu: float = 0.0
    """CPU seconds of those units."""

    def measure(self, units: int, cpu: float) -> None:
        """Take in a chunk that has ended well."""
        if units > 0 and cpu > 0.0:
            self.units, self.cpu = self.units + units, self.cpu + cpu

    def seconds(self, declared: float) -> float:
        """Return CPU seconds of a unit."""
        return self.cpu / self.units if self.units else declared


@dataclass(slots=True)
class StartTime:
    """Mean seconds from the decision to create a chunk until it ran: the cost of a move (T_migr)."""

    mean: float | None = None

    def measure(self, seconds: float) -> None:
        """Take in a start. A clock that was set back shows none."""
        if seconds >= 0.0:
            self.mean = seconds if self.mean is None else (1.0 - MEMORY) * self.mean + MEMORY * seconds

    @property
    def seconds(self) -> float:
        """The mean, or what is assumed before the first start."""
        return START if self.mean is None else self.mean
