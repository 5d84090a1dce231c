"""A node in the model `slices`: one CPU, and which rank or hog has it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from punctual.sim.coschedule.application import Rank
from punctual.sim.coschedule.rounding import TINY


@dataclass(slots=True, eq=False)
class Node:
    """The ranks of a node, in the order of their applications, and its hogs.

    A rank with slices runs before all that comes after it, and before the hogs. Ranks with policy `share` take turns
    with the hogs in a ring, a quantum each. A rank that blocks leaves the ring; it comes back to its end.
    """

    hogs: int
    quantum: float
    ranks: list[Rank] = field(default_factory=list)
    version: int = 0
    """Counts choices: what was expected before the last one no longer holds."""
    _ring: deque[Rank | None] = field(default_factory=deque)
    """Ranks and hogs (None), the first one has its turn."""
    _turn: float = 0.0
    """Seconds left of that turn."""
    _running: Rank | None = None
    _in_ring: bool = False
    """Whether the ring has the CPU."""
    _since: float = 0.0

    def begin(self, rng: Random) -> None:
        """Put the ring at a random point of its course."""
        shared = [rank for rank in self.ranks if rank.shares]
        if shared:
            self._ring.extend([*shared, *[None] * self.hogs])
            past, gone = divmod(rng.uniform(0.0, len(self._ring) * self.quantum), self.quantum)
            self._ring.rotate(-int(past))
            self._turn = self.quantum - gone

    def start(self, rank: Rank) -> None:
        """Have a rank begin its next iteration."""
        rank.start()
        if rank.shares and rank.application.app.wait == "block":
            self._ring.append(rank)

    def settle(self, at: float) -> Rank | None:
        """Count what has been done until ``at``; return the rank that has just sent."""
        spent, self._since = at - self._since, at
        rank = self._running
        sent = rank is not None and rank.run(spent)
        if self._in_ring:
            self._turn -= spent
            if sent and rank is not None and not rank.wants:
                self._ring.popleft()
                self._turn = self.quantum
            elif self._turn <= TINY:
                self._ring.rotate(-1)
                self._turn = self.quantum
        return rank if sent else None

    def choose(self, at: float) -> float:
        """Give the CPU to the first that may have it; return when that ends by itself."""
        self.version += 1
        self._running = None
        for rank, able in self._able():
            rank.application.note(at, rank, able=able)
            if able and rank.wants:
                self._running = rank
        span = inf if self._running is None else self._running.until
        return at + (min(span, self._turn) if self._in_ring else span)

    def _able(self) -> Iterator[tuple[Rank, bool]]:
        """Yield all ranks, and whether each one could have the CPU."""
        taken = False
        for rank in self.ranks:
            if not rank.shares:
                able = not taken and rank.budget > 0.0
                taken = taken or (able and rank.wants)
                yield rank, able
        self._in_ring = not taken and bool(self._ring)
        for rank in self.ranks:
            if rank.shares:
                yield rank, self._in_ring and rank is self._ring[0]
