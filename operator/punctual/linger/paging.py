"""Whether memory is short, from the kernel's counters: of a pod (`PodPaging`), and of a node (`NodeShortage`).

A pod of a parallel program that pages makes all others wait for it (Giné et al., cooperating coscheduling), so what is
asked is whether its program *stands still* for memory. Major page faults alone do not tell: a program that maps its
input file has one for each part that it reads for the first time. So there must be more:

- cgroup v2 with PSI (``memory.pressure``): all processes of the pod that would run have waited for memory for part of
  the time. The first read of a file counts as no such wait, the second read of what was taken away does.
- Without PSI (v2): the pod reaches its limit again and again (``max`` of ``memory.events``), with many major faults.
- v1: the same from ``memory.failcnt`` and ``total_pgmajfault``. A program that reads a large mapped file once, at its
  limit, looks the same here: nothing on v1 tells it apart.

All is pure: times and counters come in, the answer goes out. The agent uses it, so standard library only.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.linger.memory_mark import PATIENCE, TIGHT

PRESSURE: Final = 0.05
"""Part of the time for which a pod stands still for memory from which on it is short of it."""
SPAN: Final = 4.0
"""Seconds over which the waits are added up. The kernel adds to its counter each two seconds only."""
FAULTS: Final = 50.0
"""Major page faults a second from which on a pod at its limit is short of memory ..."""
LASTING: Final = 2.0
"""... if this lasts for so many seconds."""


class Pressure(NamedTuple):
    """How much of the time all processes of a pod that would run have waited for memory (PSI, ``full``)."""

    recent: float
    """The kernel's mean over 10 s, a part of the time."""
    total: float
    """Seconds in all."""


class Counters(NamedTuple):
    """What the kernel counts for a pod. None: it has no such file here, or the file was not readable."""

    pressure: Pressure | None = None
    """Where it is known, nothing else counts."""
    faults: int | None = None
    """Major page faults."""
    at_limit: int | None = None
    """How often the pod, or a container of it, has reached its memory limit."""


@dataclass(slots=True)
class PodPaging:
    """The memory counters of one pod. Counters that fall are those of another program: they begin anew."""

    _waits: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, total of the pressure) of the last readings."""
    _last: tuple[float, Counters] | None = None
    _lasted: float = 0.0
    """Seconds for which it has faulted at its limit."""

    def see(self, at: float, seen: Counters) -> bool:
        """Take in a reading. Returns whether the pod is short of memory."""
        if seen.pressure is not None:
            self._last, self._lasted = None, 0.0
            return self._stands_still(at, seen.pressure)
        self._waits.clear()
        return self._faults(at, seen)

    def _stands_still(self, at: float, pressure: Pressure) -> bool:
        """Return whether it has waited lately.

        The kernel's mean still remembers a shortage for half a minute after its end. So the counter must rise, too.
        """
        if self._waits and (pressure.total < self._waits[-1][1] or at <= self._waits[-1][0]):
            self._waits.clear()
        self._waits.append((at, pressure.total))
        while at - self._waits[0][0] > SPAN and len(self._waits) > 2:
            self._waits.popleft()
        begin, before = self._waits[0]
        return pressure.recent >= PRESSURE and at > begin and pressure.total - before >= PRESSURE * (at - begin)

    def _faults(self, at: float, seen: Counters) -> bool:
        last, self._last = self._last, (at, seen)
        if last is None:
            return False
        seconds, before = at - last[0], last[1]
        faults, reached = _rise(before.faults, seen.faults), _rise(before.at_limit, seen.at_limit)
        pages = seconds > 0.0 and faults >= FAULTS * seconds and reached > 0
        self._lasted = self._lasted + seconds if pages else 0.0
        return self._lasted >= LASTING


def _rise(before: int | None, now: int | None) -> int:
    """Return by how much a counter has risen; not at all if it fell or is not known."""
    return 0 if before is None or now is None else max(now - before, 0)


@dataclass(slots=True)
class NodeShortage:
    """The memory of a node. It is short when guests must leave; they do, and mostly it is not short for longer."""

    _at: float | None = None
    _lasted: float = 0.0
    """Seconds for which it has been tight."""

    def see(self, at: float, total: int, available: int) -> bool:
        """Take in the node's memory, bytes. Returns whether it is short."""
        seconds, self._at = (0.0 if self._at is None else max(at - self._at, 0.0)), at
        self._lasted = self._lasted + seconds if available < TIGHT * total else 0.0
        return self._lasted >= PATIENCE
