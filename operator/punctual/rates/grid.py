"""The origin of the cluster's grid: the moment, of the leader's clock, from which all offsets count.

A new leader has another clock than the one before, and the slices of restored applications are on the old grid already.
It finds the origin in what agents report, so that no slice moves. Until then it lets them only find out when periods
begin. Not all may have said so exactly after `LIMIT` seconds: then it goes by those that have said it at all. If there
are none, each origin is as good.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from punctual.rates.slots import PERIODS

LIMIT: Final = 30.0
"""So long agents may take to say exactly when the periods of restored applications begin, s."""
EXACT: Final = 0.0005
"""So far may an agent be wrong, s. After its first exchanges with a busy leader it may be wrong by more, and slices
would move by that once it knows better."""
NEAR: Final = 0.001
"""Origins that are nearer than this agree, s."""
CANDIDATES: Final = 64
"""So many origins at most are considered: each is compared with what all pods say."""
_SPAN: Final = max(PERIODS) / 1e6
"""The origin matters only to within the longest period, s."""


class Mark(NamedTuple):
    """When a period of a pod begins, as its node says. ``begins`` None: it is not known yet."""

    node: str
    begins: float | None


class Kept(NamedTuple):
    """A restored aligned application: its slot, and what is known of its pods, by ``half`` seconds at worst."""

    period: float
    offset: float
    marks: Sequence[Mark]
    half: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether all pods tell, exactly."""
        return all(mark.begins is not None for mark in self.marks) and self.half <= EXACT


@dataclass(slots=True)
class GridOrigin:
    """``begins``: where the grid begins. None: it is not decided yet."""

    begins: float | None = None
    _since: float | None = None
    """When it was needed first."""

    def settle(self, now: float, kept: Sequence[Kept]) -> bool:
        """Decide; return whether it is decided now and was not before.

        ``kept`` are all restored applications that are on the grid, the oldest first.
        """
        if self.begins is not None:
            return False
        self._since = now if self._since is None else self._since
        patient = now - self._since < LIMIT
        if patient and not all(each.exact for each in kept):
            return False
        found = _voted(kept)
        self.begins = now if found is None else now - (now - found) % _SPAN
        return True


def _voted(kept: Sequence[Kept]) -> float | None:
    """Return the origin that most nodes agree with, of those of the longest period; None: no pod tells.

    A node has one vote, however many pods it has: where its clock is wrong, all of them are. Of equal numbers, the
    first pod of the oldest application counts.
    """
    said = [(node, begins - k.offset, k.period) for k in kept for node, begins in k.marks if begins is not None]
    longest = max((period for _, _, period in said), default=0.0)
    turns, asked = Counter[str](), list[tuple[int, float]]()
    for node, origin, period in said:
        if period == longest:
            asked.append((turns[node], origin))
            turns[node] += 1
    asked.sort(key=lambda candidate: candidate[0])  # one of each node, then a second one: a node may have hundreds
    votes = {
        origin: len({node for node, other, period in said if _agree(origin, other, period)})
        for _, origin in asked[:CANDIDATES]
    }
    return max(votes, key=lambda origin: votes[origin], default=None)


def _agree(origin: float, other: float, period: float) -> bool:
    apart = (origin - other) % period
    return min(apart, period - apart) <= NEAR
