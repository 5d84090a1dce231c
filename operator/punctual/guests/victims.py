"""Which chunks leave a node that needs its memory: those that together lose least, not the largest first."""

from collections.abc import Iterable
from typing import NamedTuple


class LeavingChunk(NamedTuple):
    """A chunk that could leave."""

    key: tuple[str, str, int, int]
    """Job (uid), and the chunk's own."""
    loss: float
    """CPU seconds that are lost with it."""
    memory: int
    """Bytes that this frees."""


def victims(candidates: Iterable[LeavingChunk], excess: int) -> list[LeavingChunk]:
    """Return the chunks that leave, so that they free ``excess`` bytes and lose few CPU seconds together.

    The least set is a knapsack. Two orders are tried, by loss and by loss per byte; in each, those that turn out not to
    be needed stay. If all together free less, all leave.
    """
    useful = [one for one in candidates if one.memory > 0]
    by_loss = sorted(useful, key=lambda one: (one.loss, -one.memory))
    by_rate = sorted(useful, key=lambda one: (one.loss / one.memory, -one.memory))
    return min((_enough(order, excess) for order in (by_loss, by_rate)), key=_cost)


def _cost(chosen: list[LeavingChunk]) -> tuple[float, int]:
    return sum(one.loss for one in chosen), len(chosen)


def _enough(order: list[LeavingChunk], excess: int) -> list[LeavingChunk]:
    """Take from the front until it is enough, then keep those that are not needed, the most valuable first."""
    chosen: list[LeavingChunk] = []
    freed = 0
    for one in order:
        if freed >= excess:
            break
        chosen.append(one)
        freed += one.memory
    for one in sorted(chosen, key=lambda one: -one.loss):
        if freed - one.memory >= excess:
            chosen.remove(one)
            freed -= one.memory
    return chosen
