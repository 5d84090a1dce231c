"""Which chunks leave a node that needs its memory: those with the least to lose, never the largest first."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Candidate(NamedTuple):
    """A chunk that could leave."""

    key: Hashable
    loss: float
    """CPU seconds that are lost if its pod is killed."""
    memory: int
    """Bytes that this frees."""


def victims(candidates: Iterable[Candidate], excess: int) -> list[Candidate]:
    """Return the chunks that leave, the least loss first, so that together they free ``excess`` bytes.

    Those that turn out not to be needed stay, the most valuable first. If all together free less, all leave.
    """
    chosen: list[Candidate] = []
    freed = 0
    for one in sorted((c for c in candidates if c.memory > 0), key=lambda c: (c.loss, -c.memory)):
        if freed >= excess:
            break
        chosen.append(one)
        freed += one.memory
    for one in sorted(chosen, key=lambda c: -c.loss):
        if freed - one.memory >= excess:
            chosen.remove(one)
            freed -= one.memory
    return chosen
