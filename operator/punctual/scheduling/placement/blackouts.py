"""What is booked ahead: windows of processors, and intervals in which the port sends for them.

Windows cut the free time of each place into slots, intervals cut that of the port into gaps. Slots and gaps are taken
from their front, in the plan's order: what stands behind a window leaves the time before it to those that come later.
So each has one time from which on it is free: that of a place's first slot is the ground's ``ready``, that of the
port's first gap its ``port``, those behind windows are kept here.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.placement.demand import Floats

Places = NDArray[np.intp]
NOBODY = -1
"""Number of a reservation inside of which nobody works."""


@dataclass(slots=True, eq=False)
class Blackouts:
    """What of a ground's time is booked ahead, and how far the time behind it is taken."""

    place: Places
    """Of each window; windows are in order of place, then start, and do not overlap on a place."""
    start: Floats
    """From when on the place is kept free: ``clearance`` before the window begins."""
    behind: Floats
    """From when on the place is free behind each window."""
    first: Places
    """By place, the first of its windows; one more than places."""
    sends: list[float]
    """From when on the port is kept free, ascending: ``clearance`` before an interval begins."""
    sent: list[float]
    """From when on it is free behind each of these."""
    clearance: float
    """Seconds before a window, and before its end, in which nothing planned may still run; before an interval of the
    port, in which no transfer may."""
    owner: Places
    """Of each window the number of its reservation: jobs that name it work inside."""
    inside: Floats
    """From when on each window is free for those."""
    until: Floats
    """By when they must be done there."""

    @classmethod
    def of(
        cls,
        places: int,
        where: Places,
        start: Floats,
        end: Floats,
        sending: Iterable[tuple[float, float]] = (),
        *,
        owner: Places | None = None,
        clearance: float = 0.0,
    ) -> "Blackouts":
        """Take windows [start, end) of places, in any order; ``sending``: the port's intervals, none over another."""
        order, intervals = np.lexsort((start, where)), sorted(sending)
        return cls(
            where[order],
            start[order] - clearance,
            end[order],
            where[order].searchsorted(np.arange(places + 1)),
            [begin - clearance for begin, _ in intervals],
            [until for _, until in intervals],
            clearance,
            np.full(where.size, NOBODY) if owner is None else owner[order],
            start[order],
            end[order] - clearance,
        )

    def plus(self, where: Places, start: float, end: float, sent: float, *, owner: int = NOBODY) -> "Blackouts":
        """Return it with one more window on these places, and an interval of the port where ``sent`` > ``start``."""
        where = np.sort(where)
        kept = start - self.clearance
        at = np.array([self.window_before(p, kept) for p in where.tolist()], dtype=np.intp)
        at = np.where(at < 0, self.first[where], at + 1)
        gap, more = bisect_left(self.sends, kept), [kept] if sent > start else []
        return Blackouts(
            _inserted(self.place, at, where),
            _inserted(self.start, at, np.full(where.size, kept)),
            _inserted(self.behind, at, np.full(where.size, end)),
            self.first + where.searchsorted(np.arange(self.first.size)),
            [*self.sends[:gap], *more, *self.sends[gap:]],
            [*self.sent[:gap], *(sent for _ in more), *self.sent[gap:]],
            self.clearance,
            _inserted(self.owner, at, np.full(where.size, owner)),
            _inserted(self.inside, at, np.full(where.size, start)),
            _inserted(self.until, at, np.full(where.size, end - self.clearance)),
        )

    def copy(self) -> "Blackouts":
        """Return one whose times can be moved."""
        return replace(self, behind=self.behind.copy(), sent=self.sent.copy(), inside=self.inside.copy())

    def begins_behind(self, at: float) -> bool:
        """Whether all of it begins at ``at`` or later: who is done by then meets nothing of it."""
        return not bool((self.start < at).any()) and (not self.sends or self.sends[0] >= at)

    def over(self) -> float:
        """Return from when on nothing of it is ahead; -inf: nothing is."""
        return max(float(self.behind.max(initial=-np.inf)), max(self.sent, default=-np.inf))

    def window_before(self, place: int, at: float) -> int:
        """Return the index of the last window that begins on a place at ``at`` or before; -1: none does."""
        first, last = int(self.first[place]), int(self.first[place + 1])
        found = first + int(self.start[first:last].searchsorted(at, side="right")) - 1
        return found if found >= first else -1

    def idle_since(self, at: float) -> Floats:
        """Return until when the last window that begins before ``at`` keeps each place; -inf: there is none."""
        found, before = np.full(self.first.size - 1, -np.inf), self.start < at
        found[self.place[before]] = self.behind[before]  # of several the last one is written last
        return found

    def send(self, start: float, end: float, port: float) -> float:
        """Let the gap in which ``start`` lies be free from ``end`` on; return when the first is, till now ``port``."""
        gap = bisect_right(self.sends, start) - 1
        if gap < 0:
            return max(port, end)
        self.sent[gap] = max(self.sent[gap], end)
        return port

    def occupy(self, ready: Floats, place: int, start: float, end: float, *, within: bool) -> None:
        """Let the slot in which ``start`` lies, or ``within`` the window there, be free from ``end`` on."""
        window = self.window_before(place, start)
        if within:
            self.inside[window] = max(self.inside[window], end)
        elif window < 0:
            ready[place] = max(ready[place], end)
        else:
            self.behind[window] = max(self.behind[window], end)

    def slot_behind(self, window: int, place: int, ready: float) -> tuple[float, float]:
        """Return from when to when a place is free behind that window; before its first one where that is -1."""
        later = max(window + 1, int(self.first[place]))
        begin = ready if window < 0 else max(ready, float(self.behind[window]))
        return begin, float(self.start[later]) if later < self.first[place + 1] else np.inf

    def gap_at(self, at: float, port: float) -> tuple[float, float]:
        """Return from when to when the port is free in the gap in which ``at`` lies."""
        gap = bisect_right(self.sends, at) - 1
        begin = port if gap < 0 else max(port, self.sent[gap])
        return begin, self.sends[gap + 1] if gap + 1 < len(self.sends) else np.inf

    def slots(self, ready: Floats, inside: int | None = None) -> "Slots":
        """Return the free times of all places, some of them without length: first slots, then those behind windows.

        Or what is free inside the windows of one reservation.
        """
        if inside is not None:
            own = np.flatnonzero(self.owner == inside)
            return Slots(self.place[own], np.maximum(self.inside[own], ready[self.place[own]]), self.until[own])
        until = np.full(ready.size, np.inf)
        has = self.first[:-1] < self.first[1:]
        until[has] = self.start[self.first[:-1][has]]
        last = np.append(self.place[1:] != self.place[:-1], True)[: self.place.size]
        ends = np.where(last, np.inf, np.append(self.start[1:], np.inf)[: self.place.size])
        return Slots(
            np.concatenate((np.arange(ready.size), self.place)),
            np.concatenate((ready, np.maximum(self.behind, ready[self.place]))),
            np.concatenate((until, ends)),
        )

    def from_slot(self, slots: "Slots", place: int, at: float, inside: int | None) -> "Slots":
        """Return of a place that slot in which ``at`` lies and all later ones, the last without an end.

        What does not fit inside its windows any more goes on behind them, and is seen to be too late.
        """
        window = self.window_before(place, at)
        if inside is not None:
            own = np.flatnonzero(self.owner == inside)
            here = slots.of(np.flatnonzero((self.place[own] == place) & (own >= window)))
            here.until[-1:] = np.inf
            return here
        places, last = self.first.size - 1, int(self.first[place + 1])
        behind = [places + w for w in range(max(window, int(self.first[place])), last)]
        return slots.of([place, *behind] if window < 0 else behind)


class Slots(NamedTuple):
    """Free times of places: [begin, until), seconds."""

    place: Places
    begin: Floats
    until: Floats

    def of(self, chosen: NDArray[np.intp] | NDArray[np.bool_] | list[int]) -> "Slots":
        """Return some of them."""
        return Slots(self.place[chosen], self.begin[chosen], self.until[chosen])


T = TypeVar("T", bound=np.generic)


def _inserted(line: NDArray[T], at: Places, values: NDArray[T]) -> NDArray[T]:
    """Return a line with values inserted before these ascending indices: a few pieces, quicker than `np.insert`."""
    edges = [0, *at.tolist(), line.size]
    pieces = [line[begin:end] for begin, end in pairwise(edges)]
    return np.concatenate([*(p for k in range(values.size) for p in (pieces[k], values[k : k + 1])), pieces[-1]])
