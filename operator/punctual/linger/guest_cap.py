"""The CPU cap of a node's guests: what the node's own work (its hosts) leaves, and each guest's part of it.

The kernel compares the weights of siblings only, so a guest of the least weight still takes up to a fifth of a
contended CPU from a pod with a small request. Therefore guests are also capped at what hosts leave, less a margin.

What hosts use is smoothed, and its small changes are left to the weights: with a cap that yielded to each of them,
guests would get half of what they can have. A large change counts at once, and for a while.

What hosts use can be measured, but not what they need while guests use the rest. The margin shows it: guests cannot use
it, so hosts that use most of it *press*, they would use more. If they have just gained much, their need is taken as
several times that: a large burst puts guests at their floor at once. If they press again and again, it is taken as more
each time.

The cap falls at once and rises slowly, so a node that is busy each other second counts as busy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, inf
from typing import Final

MARGIN: Final = 0.03
"""Part of the node that guests leave beside what hosts use."""
TAKEN: Final = 0.5
"""Part of the margin that hosts leave at least; below it, they press."""
SMOOTH: Final = 2.0
"""Seconds over which hosts' use is smoothed."""
LARGE: Final = 0.1
"""Part of the node by which hosts' use rises in a burst. Less is noise."""
MORE: Final = 3.0
"""What hosts that press need beyond their use, relative to what a burst is above LARGE."""
HOLD: Final = 3.0
"""Seconds for which the need of a burst, or of hosts that press again, counts."""
PRESSES: Final = 8
"""Looks in a row after which hosts that press need the whole node: the need doubles each time."""
RISE: Final = 0.1
"""Part of the node by which the cap rises in a second."""
STEP: Final = 0.01
"""Part of the node below which a change of the cap is not worth a write."""

BOUND: Final = 0.9
"""Part of its cap from which on a guest could use more."""
FITTING: Final = 0.6
"""Part of what it was believed to want below which a guest wants less."""
ROOM: Final = 1.25
"""What a guest that does not use its cap may have, relative to what it uses. Between FITTING and BOUND, so that a guest
of constant use keeps its cap."""


@dataclass(slots=True)
class GuestCap:
    """The cap of all guests of a node together. CPU in cores."""

    cores: float
    """CPU of the node."""
    margin: float = MARGIN
    cap: float = 0.0
    _level: float | None = None
    """Smoothed use by hosts. None: nothing was seen yet."""
    _presses: int = 0
    """Looks in a row at which hosts pressed."""
    _needs: list[tuple[float, float]] = field(default_factory=list)
    """Needs that count for a while: seconds left, and cores."""

    def see(self, seconds: float, hosts: float, guests: float) -> float:
        """Take in what hosts and guests used in the last ``seconds``. Returns the cap."""
        self._needs = [(left - seconds, need) for left, need in self._needs if left > seconds]
        level = hosts if self._level is None else self._level
        large, spare = LARGE * self.cores, self.margin * self.cores
        # guests that have used more than their cap have taken the margin themselves
        presses = self.cores - hosts - min(guests, self.cap) < TAKEN * spare
        self._presses = min(self._presses + 1, PRESSES) if presses else 0
        gained = hosts - level
        more = spare * 2.0 ** (self._presses - 2) if self._presses > 1 else 0.0
        if gained > large:
            more = max(more, MORE * (gained - large) if presses else 0.0)
            level = hosts
        else:
            level += (1.0 - exp(-seconds / SMOOTH)) * gained
        if more > 0.0 or gained > large:
            self._needs.append((HOLD, max(hosts, level) + more))
        self._level = level
        self._move(self.cores - spare - max([level, *(need for _, need in self._needs)]), seconds)
        return self.cap

    def _move(self, left: float, seconds: float) -> None:
        """Bring the cap to what is left: down at once, up slowly."""
        step = STEP * self.cores
        if left <= 0.0:
            self.cap = 0.0
        elif left < self.cap - step:
            self.cap = left
        elif left > self.cap + step:
            self.cap = min(left, self.cap + RISE * self.cores * seconds)


@dataclass(frozen=True, slots=True)
class GuestClaim:
    """One guest's claim to what all have together. CPU in cores, memory in bytes."""

    weight: float = 1.0
    """0: it is paused, and has its floor only."""
    floor: float = 0.0
    """What it has in any case."""
    want: float = inf
    """What it can use."""


def want(before: float, used: float, cap: float) -> float:
    """Return what a guest can use, cores: infinite if its cap holds it back, or else a little more than it uses.

    before  what it was believed to want so far
    used    since the last look
    """
    if used >= BOUND * cap:
        return inf
    return before if FITTING * before <= used <= BOUND * before else ROOM * used


def share(most: float, guests: Mapping[str, GuestClaim]) -> dict[str, float]:
    """Divide what all guests have together by weight. What one does not want is the others'; what none wants, too.

    Each guest has its floor. So the parts add up to ``most``, or to the floors if these are more. They are less if all
    guests are paused.
    """
    caps = {name: one.floor for name, one in guests.items()}
    rest = max(0.0, most - sum(caps.values()))
    more = {name: one.want - one.floor for name, one in guests.items() if one.want > one.floor and one.weight > 0.0}
    while more:
        part = rest / sum(guests[name].weight for name in more)
        content = {name: wish for name, wish in more.items() if wish <= part * guests[name].weight}
        if not content:
            return caps | {name: caps[name] + part * guests[name].weight for name in more}
        for name, wish in content.items():
            caps[name] += wish
            rest -= wish
            del more[name]
    weights = sum(one.weight for one in guests.values())
    if weights == 0.0:
        return caps
    return {name: cap + max(0.0, rest) * guests[name].weight / weights for name, cap in caps.items()}
