"""Parallel guests: processes that wait for each other at a barrier after each phase (Ryu 2001, 4.3).

On a busy node, a phase lasts until the host's idle bursts add up to its work. The slowest process ends the phase for
all. So a guest with more processes is faster only while the hosts on its nodes are quiet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt


@dataclass(frozen=True, slots=True)
class BurstLoad:
    """The run and idle bursts of a node's own work: means in s, variances in s²."""

    run: float
    run_variance: float
    idle: float
    idle_variance: float

    def phase(self, work: float) -> tuple[float, float]:
        """Return the mean (s) and the variance (s²) of the time in which a guest gets ``work`` CPU seconds.

        It takes work / idle bursts, each with a run burst behind it. Their number varies as in a renewal process.
        """
        bursts = work / self.idle
        return work + bursts * self.run, bursts * (self.run_variance + self.idle_variance * (self.run / self.idle) ** 2)


def phase_time(work: float, loads: Sequence[BurstLoad]) -> float:
    """Return the expected time of a phase, s: that of the slowest process, one on each node.

    The greatest of m normal variables is about √(2 ln m) standard deviations above their mean.
    """
    above = sqrt(2.0 * log(len(loads)))
    return max(mean + above * sqrt(variance) for mean, variance in (load.phase(work) for load in loads))


def power_of_two(most: int) -> int:
    """Return the largest power of two that is at most ``most``; 0: there is none."""
    return 1 << most.bit_length() - 1 if most > 0 else 0


def processes(most: int, work: float, loads: Sequence[BurstLoad]) -> int:
    """Return how many processes are fastest: a power of two, at most ``most``.

    work    CPU seconds of a process in a phase
    loads   of the nodes that the guest may have, the best first
    """
    many = power_of_two(min(most, len(loads)))
    choices = [1 << exponent for exponent in range(many.bit_length())]
    return max(choices, key=lambda k: k / phase_time(work, loads[:k]), default=0)
