"""Calendar of a simulation: what happens when, and in which order if several things happen at one time."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from punctual.sim.cluster import Running
from punctual.sim.trace import JobLine, ReservationLine
from punctual.theory.tolerance import tolerance


@dataclass(slots=True)
class Away:
    """Processors go away."""

    processors: Sequence[int]


@dataclass(slots=True)
class Back:
    """Processors come back."""

    processors: Sequence[int]


@dataclass(slots=True)
class End:
    """A chunk ends, if this version of its times still holds."""

    running: Running
    turn: int


@dataclass(slots=True)
class Look:
    """A chunk should have ended: the Pool is to look at it."""

    running: Running
    """Late, if it still runs."""
    turn: int


@dataclass(slots=True)
class Open:
    """The port is free, and a chunk waits for it."""


@dataclass(slots=True)
class Sample:
    """A period of the miss-ratio controller ends."""


@dataclass(slots=True)
class Turn:
    """A reservation's window approaches, begins or ends."""


@dataclass(slots=True)
class Report:
    """Agents report the chunks on the processors of a reservation: its window approaches."""

    reservation: str


@dataclass(slots=True)
class Reminder:
    """A chunk that was offered an end may have passed it."""


ARRIVALS = frozenset({JobLine, ReservationLine})
Happening = End | Look | Open | Away | Back | Sample | Turn | Report | Reminder | JobLine | ReservationLine
RANK = {
    End: 0, Turn: 0, Sample: 1, Look: 2, Report: 2, Reminder: 2, Open: 3, Back: 4, Away: 5,
    JobLine: 6, ReservationLine: 6,
}  # fmt: skip


@dataclass(slots=True)
class Happenings:
    """What is still to happen."""

    heap: list[tuple[float, int, int, Happening]] = field(default_factory=list)
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self.heap)

    def at(self, when: float, what: Happening) -> None:
        """Add an event."""
        self.count += 1
        heapq.heappush(self.heap, (when, RANK[type(what)], self.count, what))

    def next(self) -> tuple[float, list[Happening]]:
        """Take the next events: all that happen at one time, within the precision of floats."""
        heap, entries = self.heap, []
        until = heap[0][0] + tolerance(heap[0][0])
        while heap and heap[0][0] <= until:
            entries.append(heapq.heappop(heap))
        now = entries[-1][0]
        entries.sort(key=itemgetter(1))
        return now, [what for *_, what in entries]
