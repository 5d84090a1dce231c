"""The sizes of the demo's jobs: two that fill the pool together, and a third that does not fit.

The arithmetic is that of admission (docs/architecture.md): a processor has the time between now and the deadline minus
margin, reduce and the chunk's start. A unit takes chi/(1 - headroom) of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo_lib.programs import Cost

HEADROOM = 0.125
MARGIN = 2.0
REDUCE = 5.0
LEAST = 4
"""Processors the demo needs."""
MOST = 24
"""Processors it will not go beyond: with more, the delay of a decision is worth a processor."""
DELAY = 1.5
"""Seconds that an answer may come after the whole second that a job's creation is stamped with."""
TAKEN = 0.6
"""The part of them that the first job is to take."""
FULL = 0.75
"""How full the last processor of a job is planned: between 0 (one less would do) and 1 (it just fits)."""


@dataclass(frozen=True, slots=True)
class Size:
    """What to ask for."""

    units: int
    deadline: int
    """Seconds after creation."""
    processors: int
    """The least number that can meet it."""
    each: int
    """Units that one processor does in time."""


def margin(startups: Sequence[float], cost: Cost) -> float:
    """Return the pool's margin: its own, and by how much pods were seen to start later than the cost says."""
    if len(startups) < 5:
        return MARGIN
    ordered = sorted(startups)
    late = ordered[min(len(ordered) - 4, int(0.95 * len(ordered)))]  # three may be one job's own
    return MARGIN + max(0.0, late - cost.theta)


def filling(cost: Cost, processors: int, deadline: int, startups: Sequence[float]) -> Size:
    """Return a load that needs just so many processors to be done by the deadline."""
    # the reduce step is a pod too, and pays for its start
    window = deadline - DELAY - margin(startups, cost) - REDUCE - 2 * cost.theta
    each = max(1, int(window * (1 - HEADROOM) / cost.chi))
    return Size(max(1, int((processors - 1 + FULL) * each)), deadline, processors, each)
