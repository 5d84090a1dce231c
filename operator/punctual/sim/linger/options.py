"""What `punctual simulate linger` simulates."""

from dataclasses import dataclass, field
from typing import Final

from punctual.linger.policy import PAUSE, Policy
from punctual.sim.linger.hosts import Hosts, Ryu

CHUNK_START: Final = 2.0
"""Seconds from the cut of a divisible guest's range to the first unit of the rest elsewhere."""
LEAST: Final = 10.0
"""Work of a part that a free node takes, in starts of a chunk: less is not worth a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is simulated."""

    nodes: int = 64
    policy: Policy = "LingerLonger"
    guests: int = 128
    work: float = 600.0
    """CPU seconds of a guest."""
    migration: float = 21.3
    """Seconds of a move: 8 MB at 3 Mbps."""
    switch: float = 0.0001
    """Seconds that a host loses when it preempts a guest."""
    hosts: Hosts = field(default_factory=Ryu)
    horizon: float = 3600.0
    """Seconds that are simulated; rounded up to whole windows."""
    divisible: bool = False
    """Guests are divisible: a range is cut short and its rest starts elsewhere, so no process moves. While no guest
    waits, free nodes take parts of the largest ranges."""
    parallel: int = 1
    """Processes of a guest; they wait for each other after each phase. 1: guests are single processes."""
    phase: float = 0.5
    """CPU seconds of a process from one barrier to the next."""
    adapt: bool = False
    """Guests of policy LingerLonger choose how many processes they run, up to ``parallel``."""
    batch: bool = False
    """All guests come at time 0, and no others. The run ends with the last of them, at the latest at the horizon. For
    single processes."""
    hold: float = PAUSE
    """Seconds for which PauseAndMigrate stops a single process before it moves."""

    @property
    def pause(self) -> float:
        """Seconds for which a guest that moves does nothing."""
        return min(self.migration, CHUNK_START) if self.divisible else self.migration
