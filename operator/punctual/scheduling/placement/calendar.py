"""Calendar of reserved processors over all future time: a step function.

Reservations book processors over windows, half-open as ranges are (Mamat 2011, ch. 5). The calendar returns the largest
number booked at once within a window, and the next window in which enough processors are free. With a capacity of one
it is the calendar of a port, with the intervals in which inputs of reservations are sent.

Times and counts lie in two sorted arrays, so each query is a slice and a maximum: 10,000 bookings take some tens of
microseconds.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError


class BookedSpan(NamedTuple):
    """Processors over [start, end), seconds on the caller's clock."""

    start: float
    end: float
    processors: int


class Calendar:
    """Booked processors over time; nothing is booked before the first and after the last booking."""

    def __init__(self, windows: Iterable[BookedSpan] = ()) -> None:
        self._times = np.array([-inf])
        self._booked: NDArray[np.int64] = np.zeros(1, dtype=np.int64)  # from its time until the next one
        edges: dict[float, int] = {}
        for window in windows:
            _check_window(window)
            edges[window.start] = edges.get(window.start, 0) + window.processors
            edges[window.end] = edges.get(window.end, 0) - window.processors
        if edges:
            times = sorted(edges)
            self._times = np.array([-inf, *times])
            self._booked = np.cumsum([0, *(edges[t] for t in times)])
            self._drop_equal(0, self._times.size)

    def book(self, window: BookedSpan) -> None:
        """Add a booking; the caller checks that enough processors are free (`most`)."""
        _check_window(window)
        self._add(window, window.processors)

    def release(self, window: BookedSpan) -> None:
        """Remove a booking, or the part that is left of it after it began, was cut short or was moved."""
        _check_window(window)
        self._add(window, -window.processors)

    def forget(self, until: float) -> None:
        """Drop all bookings before ``until``."""
        first = int(self._times.searchsorted(until, side="right")) - 1
        if first > 0:
            self._times = self._times[first:].copy()
            self._booked = self._booked[first:].copy()
            self._times[0] = -inf

    def most(self, start: float, end: float) -> int:
        """Return the largest number of processors booked at one time of [start, end)."""
        first = int(self._times.searchsorted(start, side="right")) - 1
        last = int(self._times.searchsorted(end, side="left"))
        return int(self._booked[first : max(last, first + 1)].max())

    def next_window(self, processors: int, seconds: float, *, capacity: int, not_before: float) -> float | None:
        """Return the earliest start at which so many of ``capacity`` are free for so long; None: there is none."""
        if processors > capacity:
            return None
        full = self._booked > capacity - processors
        # Begin and end of each stretch that is too full; the gaps lie between them.
        edges = np.flatnonzero(np.diff(full, prepend=False, append=False))
        begins, ends = self._times[edges[::2]], np.append(self._times, inf)[edges[1::2]]
        starts = np.maximum(np.concatenate(([-inf], ends)), not_before)
        until = np.concatenate((begins, [inf]))
        fits = starts + seconds <= until
        return float(starts[int(fits.argmax())]) if fits.any() else None

    def windows(self) -> list[BookedSpan]:
        """Return the steps of the calendar that have a booking."""
        booked = self._booked.tolist()
        times = [*self._times.tolist(), inf]
        return [BookedSpan(times[i], times[i + 1], n) for i, n in enumerate(booked) if n]

    def _add(self, window: BookedSpan, count: int) -> None:
        first, last = self._edge(window.start), self._edge(window.end)
        self._booked[first:last] += count
        self._drop_equal(first, last + 1)

    def _edge(self, at: float) -> int:
        """Return the index of the step that begins at a time; insert it if there is none."""
        i = int(self._times.searchsorted(at))
        if i == self._times.size or self._times[i] != at:
            self._times = np.insert(self._times, i, at)
            self._booked = np.insert(self._booked, i, self._booked[i - 1])
        return i

    def _drop_equal(self, first: int, last: int) -> None:
        """Drop steps of [first, last) that have the same count as the step before."""
        first = max(first, 1)
        same = np.flatnonzero(self._booked[first:last] == self._booked[first - 1 : last - 1]) + first
        if same.size:
            self._times = np.delete(self._times, same)
            self._booked = np.delete(self._booked, same)

    def check(self) -> None:
        """Raise InvariantError if times do not ascend, a step repeats its count, or a count is negative."""
        if not (np.diff(self._times) > 0).all() or not np.diff(self._booked).all():
            raise InvariantError("the calendar's steps are out of order or redundant")
        if self._booked[0] or self._booked[-1] or (self._booked < 0).any():
            raise InvariantError("a count is negative, or a booking has no end")


def _check_window(window: BookedSpan) -> None:
    if not (-inf < window.start < window.end < inf and window.processors > 0):
        raise ValueError(f"a window has a start before its end, and processors: not {window}")
