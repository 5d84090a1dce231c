"""A bulk-synchronous application: what its ranks make of the CPU that they get.

An iteration is ``compute`` CPU seconds, then ten exchanges: each a tenth of ``communicate``, then a wait for the
partners. A stage is the work before a wait, so the first stage of an iteration has the computing too.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from punctual.sim.rates.scenario import EXCHANGES, App


class Supply(Protocol):
    """The CPU that an application gets on a node."""

    def finish(self, start: float, cpu: float) -> float:
        """Return when ``cpu`` seconds have been given from ``start`` on."""

    def given(self, start: float, end: float) -> float:
        """Return the CPU seconds given in [start, end)."""


@dataclass(slots=True)
class Rank:
    """One process. It works from ``since`` on, or waits for its partners, or (``pause``) for its disk."""

    partners: tuple[int, ...]
    done: int = -1
    """Number of the last stage that is done; −1: none is."""
    waits: bool = True
    left: float = 0.0
    """Work left of the stage, CPU seconds at speed 1."""
    since: float = 0.0
    pause: float = 0.0
    """Seconds that the disk takes after the work."""
    cpu: float = 0.0
    """CPU used so far, without that for switching."""
    finish: float = 0.0
    version: int = 0
    """Counts predictions of ``finish``: older ones no longer hold."""


@dataclass(slots=True)
class Application:
    """The ranks of an application, at their stages."""

    app: App
    rng: Random
    ranks: list[Rank] = field(init=False)
    iterations: int = 0
    """Iterations that all ranks have ended."""
    behind: int = field(init=False)
    """Ranks that have not ended the next one."""

    def __post_init__(self) -> None:
        self.ranks = [Rank(partners(self.app.pattern, r, self.app.ranks)) for r in range(self.app.ranks)]
        self.behind = self.app.ranks

    def begin(self, at: float, r: int) -> None:
        """Have a rank begin its next stage."""
        rank = self.ranks[r]
        first = (rank.done + 1) % EXCHANGES == 0
        work = self.app.communicate / EXCHANGES + (self.app.compute if first else 0.0)
        if self.app.noise:
            work *= max(self.rng.gauss(1.0, self.app.noise), 0.0)
        rank.left, rank.since, rank.waits, rank.pause = work, at, False, self.app.io if first else 0.0

    def settle(self, at: float, r: int, supply: Supply, factor: float) -> None:
        """Count what a rank has done until ``at``; ``factor``: work of a CPU second."""
        rank = self.ranks[r]
        if rank.waits or rank.left <= 0.0:
            return
        cpu = min(supply.given(rank.since, at), rank.left / factor)
        rank.cpu += cpu
        rank.left = max(rank.left - cpu * factor, 0.0)
        if rank.left <= 0.0:
            at = min(at, rank.finish - rank.pause)
        rank.since = at

    def predict(self, r: int, supply: Supply, factor: float) -> tuple[float, int]:
        """Return when a rank will have done its stage, and the number of this prediction."""
        rank = self.ranks[r]
        rank.finish = supply.finish(rank.since, rank.left / factor) + rank.pause
        rank.version += 1
        return rank.finish, rank.version

    def end(self, r: int, factor: float) -> bool:
        """Note that a rank has done its stage; return whether all have now ended an iteration."""
        rank = self.ranks[r]
        rank.cpu += rank.left / factor
        rank.left, rank.waits = 0.0, True
        rank.done += 1
        if rank.done + 1 == EXCHANGES * (self.iterations + 1):
            self.behind -= 1
        if self.behind:
            return False
        self.iterations += 1
        self.behind = sum(rank.done + 1 < EXCHANGES * (self.iterations + 1) for rank in self.ranks)
        return True

    def free(self, r: int) -> list[int]:
        """Return the ranks that need no longer wait now that rank ``r`` has done its stage."""
        return [p for p in self.ranks[r].partners if self.ranks[p].waits and self._may_go_on(p)]

    def _may_go_on(self, r: int) -> bool:
        rank = self.ranks[r]
        return all(self.ranks[p].done >= rank.done for p in rank.partners)


def partners(pattern: str, rank: int, ranks: int) -> tuple[int, ...]:
    """Return the ranks that a rank waits for, and itself."""
    match pattern:
        case "all-to-all":
            return tuple(range(ranks))
        case "neighbour":
            return tuple(sorted({(rank - 1) % ranks, rank, (rank + 1) % ranks}))
        case _:
            return (rank,)
