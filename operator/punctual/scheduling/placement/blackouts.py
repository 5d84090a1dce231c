"""Blackouts: windows in which processors are reserved, and intervals in which the port sends for reservations.

Windows divide the free time of each place into slots; intervals divide that of the port into gaps. Slots and gaps are
used from their front, in the plan's order: a placement behind a window leaves the time before the window to later
placements. So each slot and gap has one time from which it is free. That of a place's first slot is the timeline's
``ready``, that of the port's first gap its ``port``; those behind windows are kept here.
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
NO_OWNER = -1
"""Number of a reservation without an owner: no job works inside it."""


@dataclass(slots=True, eq=False)
class Blackouts:
    """Reserved times of a timeline, and how far the time behind each of them is used."""

    place: Places
    """Place of each window; windows are in order of place, then start, and do not overlap on a place."""
    start: Floats
    """Time from which the place is kept free: ``clearance`` before the window begins."""
    behind: Floats
    """Time from which the place is free behind each window."""
    first: Places
    """By place, the index of its first window; one more entry than places."""
    sends: list[float]
    """Times from which the port is kept free, ascending: ``clearance`` before an interval begins."""
    sent: list[float]
    """Times from which the port is free behind each of these."""
    clearance: float
    """Seconds before a window, and before its end, in which no planned work may run; before an interval of the port, in
    which no transfer may run."""
    owner: Places
    """Number of each window's reservation: jobs that name the reservation run inside."""
    inside: Floats
    """Time from which each window is free for those jobs."""
    until: Floats
    """Time by which those jobs must be done there."""

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
        """Build from windows [start, end) of places, in any order; ``sending``: disjoint intervals of the port."""
        order, intervals = np.lexsort((start, where)), sorted(sending)
        return cls(
            where[order],
            start[order] - clearance,
            end[order],
            where[order].searchsorted(np.arange(places + 1)),
            [begin - clearance for begin, _ in intervals],
            [until for _, until in intervals],
            clearance,
            np.full(where.size, NO_OWNER) if owner is None else owner[order],
            start[order],
            end[order] - clearance,
        )

    def plus(self, where: Places, start: float, end: float, sent: float, *, owner: int = NO_OWNER) -> "Blackouts":
        """Return a copy with one more window on these places, and an interval of the port if ``sent`` > ``start``."""
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
        """Return a copy with times that can be moved."""
        return replace(self, behind=self.behind.copy(), sent=self.sent.copy(), inside=self.inside.copy())

    def only(self, places: Places) -> "Blackouts":
        """Return a copy for these places alone (ascending), numbered anew; the port keeps all of its intervals."""
        number = np.full(self.first.size - 1, -1)
        number[places] = np.arange(places.size)
        there = number[self.place] >= 0
        place = number[self.place[there]]
        return Blackouts(
            place,
            self.start[there],
            self.behind[there],
            place.searchsorted(np.arange(places.size + 1)),
            self.sends,
            self.sent.copy(),
            self.clearance,
            self.owner[there],
            self.inside[there],
            self.until[there],
        )

    def begins_behind(self, at: float) -> bool:
        """Whether every blackout begins at ``at`` or later: a placement done by then meets none of them."""
        return not bool((self.start < at).any()) and (not self.sends or self.sends[0] >= at)

    def over(self) -> float:
        """Return the time after which there are no blackouts; -inf: there are none."""
        return max(float(self.behind.max(initial=-np.inf)), max(self.sent, default=-np.inf))

    def window_before(self, place: int, at: float) -> int:
        """Return the index of the last window that begins on a place at ``at`` or before; -1: none does."""
        first, last = int(self.first[place]), int(self.first[place + 1])
        found = first + int(self.start[first:last].searchsorted(at, side="right")) - 1
        return found if found >= first else -1

    def idle_since(self, at: float) -> Floats:
        """Return by place the end of the last window that begins before ``at``; -inf: there is none."""
        found, before = np.full(self.first.size - 1, -np.inf), self.start < at
        found[self.place[before]] = self.behind[before]  # of several windows, the last is written last
        return found

    def send(self, start: float, end: float, port: float) -> float:
        """Make the gap that contains ``start`` free from ``end`` on; return when the first (till now ``port``) is."""
        gap = bisect_right(self.sends, start) - 1
        if gap < 0:
            return max(port, end)
        self.sent[gap] = max(self.sent[gap], end)
        return port

    def occupy(self, ready: Floats, place: int, start: float, end: float, *, within: bool) -> None:
        """Make the slot that contains ``start`` (``within``: the window there) free from ``end`` on."""
        window = self.window_before(place, start)
        if within:
            self.inside[window] = max(self.inside[window], end)
        elif window < 0:
            ready[place] = max(ready[place], end)
        else:
            self.behind[window] = max(self.behind[window], end)

    def slot_behind(self, window: int, place: int, ready: float) -> tuple[float, float]:
        """Return begin and end of a place's free time behind that window; -1: before its first window."""
        later = max(window + 1, int(self.first[place]))
        begin = ready if window < 0 else max(ready, float(self.behind[window]))
        return begin, float(self.start[later]) if later < self.first[place + 1] else np.inf

    def gap_at(self, at: float, port: float) -> tuple[float, float]:
        """Return begin and end of the port's free time in the gap that contains ``at``."""
        gap = bisect_right(self.sends, at) - 1
        begin = port if gap < 0 else max(port, self.sent[gap])
        return begin, self.sends[gap + 1] if gap + 1 < len(self.sends) else np.inf

    def slots(self, ready: Floats, inside: int | None = None) -> "Slots":
        """Return the free times of all places, some without length: first slots, then those behind windows.

        With ``inside``, return the free times inside the windows of that reservation.
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
        """Return the slot of a place that contains ``at``, and all later ones, the last without an end.

        Work that no longer fits inside its windows continues behind them, and is then found to be late.
        """
        window = self.window_before(place, at)
        if inside is not None:
            own = np.flatnonzero(self.owner == inside)
            here = slots.chosen(np.flatnonzero((self.place[own] == place) & (own >= window)))
            here.until[-1:] = np.inf
            return here
        places, last = self.first.size - 1, int(self.first[place + 1])
        behind = [places + w for w in range(max(window, int(self.first[place])), last)]
        return slots.chosen([place, *behind] if window < 0 else behind)


class Slots(NamedTuple):
    """Free times of places: [begin, until), seconds."""

    place: Places
    begin: Floats
    until: Floats

    def chosen(self, chosen: NDArray[np.intp] | NDArray[np.bool_] | list[int]) -> "Slots":
        """Return a selection of them."""
        return Slots(self.place[chosen], self.begin[chosen], self.until[chosen])


T = TypeVar("T", bound=np.generic)


def _inserted(line: NDArray[T], at: Places, values: NDArray[T]) -> NDArray[T]:
    """Return an array with values inserted before these ascending indices; faster than `np.insert` for few values."""
    edges = [0, *at.tolist(), line.size]
    pieces = [line[begin:end] for begin, end in pairwise(edges)]
    return np.concatenate([*(p for k in range(values.size) for p in (pieces[k], values[k : k + 1])), pieces[-1]])
