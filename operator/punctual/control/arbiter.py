"""Turns the wishes of one node's chunks into caps that add up to no more than the node has.

While the wishes fit, each chunk gets its wish. The headroom is used before any wish is cut. If they do not fit, then

1. loops are opened (Park and Humphrey, ch. 7.2): a chunk gets what its model says and not what its feedback asks,
   first those that wait for something other than CPU, such as a disk, then those with the most slack. Of the others,
   the one with the least slack keeps its loop closed. A loop closes again when there has been room for a while.
2. The chunks with the least slack get their wishes, and the others share what is left.

CPU that no wish takes, the headroom included, is lent until the next tick.

Chunks that wait for a disk share it by their caps. So while one of them needs all that it may have, those that have
time get less, the less the more time they have; otherwise their feedback would take the disk from it. None of them is
lent CPU meanwhile, nor for a while after its last wait, because the disk is free only as long as there are no loans.
This needs to be known (:attr:`Arbiter.disk`): chunks that sleep, or wait for disks of their own, would give up CPU for
nothing.

Nothing winds up meanwhile: governors run their models on the CPU that chunks really had.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

TAKEN: Final = 3
"""Ticks without room after which a loop is opened."""
GIVEN: Final = 60
"""Ticks with room after which a loop is closed, and without a wait after which a chunk no longer counts as waiting."""

MORE: Final = 0.1
LESS: Final = 0.05
"""Steps per tick of what chunks that have time leave to pressed ones on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaim:
    """What one chunk asks for. CPU in cores."""

    id: str
    wish: float
    modelled: float
    """Its wish by the model alone, without feedback."""
    low: float = 0.0
    high: float = 1.0
    must: float = 0.0
    """CPU that others leave it while they get more than they must have: it is in time with that."""
    slack: float
    """Seconds that are left over if it gets its largest cap from now on; negative: it will be late."""
    starved: bool = False
    """It does not use the CPU that it has: it waits for something else."""

    @property
    def pressed(self) -> bool:
        """It needs all that it may have."""
        return self.wish >= self.high


@dataclass(slots=True)
class Arbiter:
    """Decides caps, tick by tick. ``cores``: of the node; ``usable``: those that are promised, without the headroom."""

    cores: float
    usable: float
    disk: bool = True
    """Chunks that do not use their CPU wait for one disk that they share."""
    opened: list[str] = field(default_factory=list)
    """Chunks with open loops, in the order of opening."""
    _relief: float = 0.0
    """Part of a wish of almost nothing that a chunk does not get that waits for a disk."""
    _waiting: dict[str, int] = field(default_factory=dict)
    """Ticks for which a chunk still counts as one that waits for a disk: loans would make it wait again."""
    _over: int = 0
    _room: int = 0

    def share(self, claims: Sequence[CpuClaim], *, lend: bool = False) -> dict[str, float]:
        """Return the cap of each chunk, cores.

        ``lend``: CPU that no wish takes is lent to chunks that can use it.
        """
        self._relieve(claims)
        self._switch(claims)
        wishes = {one.id: self._wish(one) for one in claims}
        if sum(wishes.values()) > self.cores:
            return _urgent_first(claims, wishes, self.cores)
        if not lend:
            return wishes
        return _lent([one for one in claims if not (one.id in self._waiting and self._relief)], wishes, self.cores)

    def _wish(self, one: CpuClaim) -> float:
        wish = min(one.wish, one.modelled) if one.id in self.opened else one.wish
        if one.starved and not one.pressed:
            wish *= 1.0 - self._relief * (1.0 - wish / one.high)
        return min(max(wish, one.low), one.high)

    def _relieve(self, claims: Sequence[CpuClaim]) -> None:
        """Take CPU from chunks that wait for a disk and have time, while one that has none waits for it, too."""
        if not self.disk:
            return
        ticks = {one.id: GIVEN if one.starved else self._waiting.get(one.id, 0) - 1 for one in claims}
        self._waiting = {name: left for name, left in ticks.items() if left > 0}
        pressed = any(one.id in self._waiting and one.pressed for one in claims)
        self._relief = min(1.0, self._relief + MORE) if pressed else max(0.0, self._relief - LESS)

    def _switch(self, claims: Sequence[CpuClaim]) -> None:
        there = {one.id for one in claims}
        self.opened = [name for name in self.opened if name in there]
        asked = sum(self._wish(one) for one in claims)
        self._over = self._over + 1 if asked > self.cores else 0
        self._room = self._room + 1 if asked <= self.usable else 0
        if self._over >= TAKEN:
            self._over = 0
            urgent = min((one for one in claims if not one.starved), key=lambda one: (one.slack, one.id), default=None)
            closed = [
                one for one in claims
                if one.id not in self.opened and one.modelled < one.wish and one is not urgent
            ]  # fmt: skip
            if closed:
                self.opened.append(max(closed, key=lambda one: (one.starved, one.slack)).id)
        elif self._room >= GIVEN and self.opened:
            self._room = 0
            self.opened.pop()


def _urgent_first(claims: Sequence[CpuClaim], wishes: Mapping[str, float], cores: float) -> dict[str, float]:
    """Give wishes in order of slack, but first what each must have: a chunk that takes longer makes no other one late.

    A chunk that will be late in any case comes after those that can be in time.
    """
    caps = {one.id: one.low for one in claims}
    left = cores - sum(caps.values())
    by_slack = sorted(claims, key=lambda one: (one.slack < 0.0, one.slack, one.id))
    for one, most in [(one, one.must) for one in by_slack] + [(one, math.inf) for one in by_slack]:
        more = min(max(0.0, min(wishes[one.id], most) - caps[one.id]), max(0.0, left))
        caps[one.id] += more
        left -= more
    return caps


def _lent(claims: Sequence[CpuClaim], wishes: Mapping[str, float], cores: float) -> dict[str, float]:
    """Add what is left of the cores to some chunks, in order of slack, those that use the CPU that they have first."""
    caps = dict(wishes)
    left = cores - sum(caps.values())
    for one in sorted(claims, key=lambda one: (one.starved, one.slack, one.id)):
        more = min(one.high - caps[one.id], max(0.0, left))
        caps[one.id] += more
        left -= more
    return caps
