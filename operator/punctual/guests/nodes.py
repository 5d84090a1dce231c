"""Nodes with guests: what their hosts do, what chunks take of them, and what one more chunk would get there."""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Final

from punctual.guests.model import Guest, GuestNode, HostSeen
from punctual.linger.episode import Interval

FRESH: Final = 15.0
"""Seconds after a report for which it counts: no chunk starts on a node with a silent agent."""
FLAPS: Final = 3
"""A node that becomes busy so often in `MINUTE` counts as busy until it does so less often: each change of it would
otherwise move chunks."""
MINUTE: Final = 60.0
PRESSED: Final = 60.0
"""Seconds without new chunks on a node where guests had to give back memory."""
GIVEN: Final = 7.0
"""Seconds in which a chunk that was told to leave is gone, and its agent's reports show it."""
LEAST_RATE: Final = 0.05
"""A chunk does not start where it would get less of the CPU that it can use."""


@dataclass(slots=True)
class NodeState:
    """A node. ``cores`` and ``memory`` are what chunks have of it, with those that are expected."""

    node: GuestNode
    cores: float = 0.0
    memory: int = 0
    leaving: float = 0.0
    """Of ``cores``, what chunks have that were asked to leave."""
    pressed_at: float = -inf
    """When guests had to give back memory."""
    _given: deque[tuple[float, int]] = field(default_factory=deque)
    """When chunks were told to leave for that, and their memory."""
    _host: HostSeen | None = None
    _heard: float = 0.0
    _turned: deque[float] = field(default_factory=deque)
    """When it became busy, in the last minute."""
    _flapping: Interval | None = None

    def see(self, now: float, host: HostSeen) -> None:
        """Take in what its agent says of its hosts."""
        if host.busy and self._host is not None and not self._host.busy:
            self._turned.append(now)
        while self._turned and abs(now - self._turned[0]) > MINUTE:
            self._turned.popleft()
        if len(self._turned) < FLAPS:
            self._flapping = None
        else:
            self._flapping = self._flapping or Interval()
            self._flapping.pass_by(max(0.0, now - self._heard), host.use, busy=True)
        self._host, self._heard = host, now

    def press(self, now: float, excess: int) -> int:
        """Take in that guests must give back memory; return how much of it others than those told already."""
        self.pressed_at = now
        while self._given and abs(now - self._given[0][0]) > GIVEN:
            self._given.popleft()
        return excess - sum(memory for _, memory in self._given)

    def give(self, now: float, memory: int) -> None:
        """Note that a chunk was told to leave."""
        self._given.append((now, memory))

    def looked_at(self, now: float) -> bool:
        """Whether its agent has reported recently."""
        return self._host is not None and abs(now - self._heard) <= FRESH

    @property
    def busy(self) -> bool:
        """Whether its hosts make it busy."""
        return self._flapping is not None or (self._host is not None and self._host.busy)

    @property
    def age(self) -> float | None:
        """Seconds for which it has been busy; None: it is idle."""
        if self._flapping is not None:
            return self._flapping.age
        return self._host.age if self._host is not None and self._host.busy else None

    @property
    def use(self) -> float:
        """Mean use by hosts in the present interval, a fraction."""
        if self._flapping is not None:
            return self._flapping.use
        return 0.0 if self._host is None else self._host.mean

    def count(self, guest: Guest) -> None:
        """Count a chunk of a guest job."""
        self.cores += guest.cores
        self.memory += guest.memory

    def release(self, guest: Guest) -> None:
        """Note that a chunk of a guest job was asked to leave. Until it is gone, its place is taken."""
        self.leaving += guest.cores

    def fits(self, guest: Guest) -> bool:
        """Whether one more chunk fits. A node with less CPU than a chunk can use takes one."""
        fits = self.cores == 0.0 or self.cores + guest.cores <= self.node.cores + 1e-9
        return fits and self.memory + guest.memory <= self.node.memory

    def rate(self, guest: Guest, *, more: bool) -> float:
        """Return the work of a chunk in a second, as a part of that on a processor of speed 1 without hosts.

        Chunks share what hosts leave: N cores at use H leave N (1 − H). ``more``: the chunk is not counted yet.
        """
        return self._rate(self.cores - self.leaving + (guest.cores if more else 0.0))

    def least_rate(self, guest: Guest) -> float:
        """Return what a chunk gets (`rate`) when chunks have all places of the node."""
        return self._rate(max(self.node.cores, guest.cores))

    def _rate(self, wanted: float) -> float:
        left = self.node.cores * max(0.0, 1.0 - self.use)
        return min(1.0, left / wanted if wanted > 0.0 else 1.0) / self.node.speed

    def takes(self, now: float, guest: Guest, *, busy: bool) -> bool:
        """Whether a chunk may start here; ``busy``: also while the node is busy."""
        if not self.node.schedulable or not self.looked_at(now):
            return False
        if (self.busy and not busy) or abs(now - self.pressed_at) < PRESSED:
            return False
        return self.fits(guest) and self.rate(guest, more=True) * self.node.speed >= LEAST_RATE
