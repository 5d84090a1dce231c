"""The random load of the experiment with many jobs: which jobs come when, and what disturbs their nodes.

All of it follows from the seed, so both pools get the same jobs and the same disturbances at the same moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

LOAD = 0.5
"""CPU that the jobs need, relative to that of the pool's processors."""
HALVED = ((40.0, 100.0), (15.0, 40.0))
"""Seconds (from, to) between two times with half the CPU, and of such a time."""
STRANGER = ((50.0, 120.0), (10.0, 25.0))
"""The same for a program of the node that takes all the CPU it gets."""
FACTORS = (1.5, 5.0)
"""Deadlines, relative to a job's time on two processors."""

Span = tuple[float, float]
Kind = Literal["halved", "stranger"]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens to both nodes from ``begin`` on, for some seconds."""

    kind: Kind
    begin: float
    seconds: float

    @property
    def end(self) -> float:
        """When it is over."""
        return self.begin + self.seconds


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes."""

    at: float
    name: str
    program: str
    units: int
    deadline: float
    """Seconds after it comes."""


def disturbances(seed: int, seconds: float) -> list[Disturbance]:
    """Return all disturbances that begin within so many seconds, in order of their beginning.

    Two of the same kind never overlap; two of different kinds may.
    """
    found = []
    kinds: dict[Kind, tuple[Span, Span]] = {"halved": HALVED, "stranger": STRANGER}
    for kind, (pause, length) in kinds.items():
        rng = Random(f"{seed} {kind}")
        at = rng.uniform(*pause)
        while at < seconds:
            lasts = rng.uniform(*length)
            found.append(Disturbance(kind, at, lasts))
            at += lasts + rng.uniform(*pause)
    return sorted(found, key=lambda one: (one.begin, one.kind))


def arrivals(
    seed: int, jobs: int, *, cpu_seconds: float, processors: int, cpu: float, costs: dict[str, float], startup: float
) -> list[Arrival]:
    """Return so many jobs for a pool of ``processors`` with ``cpu`` cores each.

    Each takes one processor as long as ``cpu_seconds`` of CPU take there. ``costs``: seconds of a unit there by
    program; each program has every nth job. ``startup``: seconds.
    """
    rng = Random(f"{seed} jobs")
    pause = cpu_seconds / (LOAD * processors * cpu)
    names = sorted(costs)
    found, at = [], 0.0
    for number in range(jobs):
        program = names[number % len(names)]
        on_two = startup + cpu_seconds / (2 * cpu)
        deadline = on_two * rng.uniform(*FACTORS)
        units = max(1, round(cpu_seconds / cpu / costs[program]))
        found.append(Arrival(at, f"{program}-{number}", program, units, deadline))
        at += rng.expovariate(1 / pause)
    return found
