"""The origin of the cluster's grid: the moment, of the leader's clock, from which all offsets count.

A new leader has another clock than the one before, and the slices of restored applications are on the old grid already.
It finds the origin in what agents report, so that no slice moves. Until then it lets them only find out when periods
begin. Not all may have said so exactly after `LIMIT` seconds: then it goes by those that have said it at all. If there
are none, each origin is as good.
"""

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
VOTES: Final = 64
"""So many pods at most are candidates: the origin of each is compared with all others."""
_SPAN: Final = max(PERIODS) / 1e6
"""The origin matters only to within the longest period, s."""


class Kept(NamedTuple):
    """A restored aligned application: its slot, and when a period of each pod begins, the oldest pod first.

    ``begins`` has None for a pod of which it is not known yet. The others may be wrong by ``half`` seconds.
    """

    period: float
    offset: float
    begins: Sequence[float | None]
    half: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether all pods tell, exactly."""
        return None not in self.begins and self.half <= EXACT


@dataclass(slots=True)
class GridOrigin:
    """``begins``: where the grid begins. None: it is not decided yet."""

    begins: float | None = None
    _since: float | None = None
    """When it was needed first."""

    def settle(self, now: float, kept: Sequence[Kept]) -> bool:
        """Decide; return whether it is decided now and was not before.

        ``kept`` are all restored applications that are on the grid.
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
    """Return the origin that most pods agree with, of those of the longest period; None: no pod tells.

    One agent that is wrong moves no other pod. Of equal numbers, the oldest pod's origin counts.
    """
    marks = [(begins - k.offset, k.period) for k in kept for begins in k.begins if begins is not None]
    longest = max((period for _, period in marks), default=0.0)
    asked = [origin for origin, period in marks if period == longest][:VOTES]
    return max(asked, key=lambda origin: sum(_agree(origin, *mark) for mark in marks), default=None)


def _agree(origin: float, other: float, period: float) -> bool:
    apart = (origin - other) % period
    return min(apart, period - apart) <= NEAR
