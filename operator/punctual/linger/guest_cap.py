"""The CPU cap of a node's guests: what the node's own work (its hosts) leaves, and each guest's part of it.

The kernel compares the weights of siblings only, so a guest of the least weight still takes up to a fifth of a
contended CPU from a pod with a small request. Therefore guests are also capped at what hosts leave, less a margin.

What hosts use can be measured, but not what they need while guests use the rest. The margin shows it: guests cannot use
it, so hosts that use most of it would use more. Then their need is taken as several times what they have just gained.
Hosts that still press gain more each time, so guests are at their floor after one look if a burst is large, and after a
few if it is small.

The cap falls at once. It rises slowly, after hosts have needed less for a while, so a node that is busy each other
second counts as busy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

MARGIN: Final = 0.03
"""Part of the node that guests leave beside what hosts use."""
TAKEN: Final = 0.5
"""Part of the margin that hosts leave at least; below it, they press."""
MORE: Final = 3.0
"""What hosts that press need beyond their use, relative to what they have just gained."""
HOLD: Final = 3.0
"""Seconds for which hosts' need counts after it was seen."""
RISE: Final = 0.1
"""Part of the node by which the cap rises in a second."""
STEP: Final = 0.25
"""Part of the margin below which a change of the cap is not worth a write."""

BOUND: Final = 0.9
"""Part of its cap from which on a guest could use more."""
FITTING: Final = 0.6
"""Part of what it was believed to want below which a guest wants less."""
ROOM: Final = 1.25
"""What a guest that does not use its cap may have, relative to what it uses. Between FITTING and BOUND, so that a guest
of constant use keeps its cap."""


class _Look(NamedTuple):
    """What was seen of the hosts."""

    left: float
    """Seconds for which it counts."""
    used: float
    need: float


@dataclass(slots=True)
class GuestCap:
    """The cap of all guests of a node together. CPU in cores."""

    cores: float
    """CPU of the node."""
    margin: float = MARGIN
    cap: float = 0.0
    _looks: list[_Look] = field(default_factory=list)

    def see(self, seconds: float, hosts: float, guests: float) -> float:
        """Take in what hosts and guests used in the last ``seconds``. Returns the cap."""
        spare = self.margin * self.cores
        before = max((one.used for one in self._looks), default=hosts)
        need = hosts
        # guests that have used more than their cap have taken the margin themselves
        if self.cores - hosts - min(guests, self.cap) < TAKEN * spare:
            need += max(spare, MORE * (hosts - before))
        self._looks = [one._replace(left=one.left - seconds) for one in self._looks if one.left > seconds]
        self._looks.append(_Look(HOLD, hosts, need))
        left = max(0.0, self.cores - spare - max(one.need for one in self._looks))
        if left < self.cap - STEP * spare or left == 0.0:
            self.cap = left
        elif left > self.cap + STEP * spare:
            self.cap = min(left, self.cap + RISE * self.cores * seconds)
        return self.cap


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest's claim to the cap of all. CPU in cores."""

    weight: float = 1.0
    floor: float = 0.0
    """What it has in any case."""
    want: float = inf
    """What it can use."""


def want(before: float, used: float, cap: float) -> float:
    """Return what a guest can use, cores: infinite if its cap holds it back, or else a little more than it uses.

    before  what it was believed to want so far
    used    in the last second
    """
    if used >= BOUND * cap:
        return inf
    return before if FITTING * before <= used <= BOUND * before else ROOM * used


def share(cores: float, guests: Mapping[str, Guest]) -> dict[str, float]:
    """Divide the cap of all guests by weight, cores. What one does not want is the others'; what none wants, too.

    Each guest has its floor. So the caps add up to ``cores``, or to the floors if these are more.
    """
    caps = {name: one.floor for name, one in guests.items()}
    rest = max(0.0, cores - sum(caps.values()))
    more = {name: one.want - one.floor for name, one in guests.items() if one.want > one.floor}
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
    return {name: cap + max(0.0, rest) * guests[name].weight / weights for name, cap in caps.items()}
