"""What is computed from samples: rates, the delay of a step, noise, how long a disturbance is felt. Pure functions.

A track is a list of (time, count) in order of time, where the count never falls: units done, or CPU seconds used.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median, pstdev

Track = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of repeated measurements."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum up values. Raises ValueError if there are none."""
        if not values:
            raise ValueError("there is nothing to sum up")
        return cls(median(values), min(values), max(values), len(values))


def at(track: Track, moment: float) -> float:
    """Return the count at a time, between two samples by a straight line. Outside the track: the nearest sample's."""
    if not track:
        raise ValueError("the track is empty")
    k = bisect_left(track, moment, key=lambda one: one[0])
    if k == 0:
        return track[0][1]
    if k == len(track):
        return track[-1][1]
    (t0, n0), (t1, n1) = track[k - 1], track[k]
    return n0 + (n1 - n0) * (moment - t0) / (t1 - t0)


def between(track: Track, begin: float, end: float) -> Track:
    """Return the samples from ``begin`` to ``end``."""
    times = [one[0] for one in track]
    return track[bisect_left(times, begin) : bisect_right(times, end)]


def line(track: Track) -> tuple[float, float]:
    """Return (count at time 0, rate) of the straight line through the samples by least squares."""
    if len(track) < 2 or track[0][0] == track[-1][0]:
        raise ValueError("a line needs samples at two times")
    middle, level = mean(t for t, _ in track), mean(n for _, n in track)
    rate = sum((t - middle) * (n - level) for t, n in track) / sum((t - middle) ** 2 for t, _ in track)
    return level - rate * middle, rate


def step_delay(track: Track, moment: float, *, before: float, after: float, settled: float) -> float | None:
    """Return how long after ``moment`` the rate of a track changes, in seconds; None: it does not change.

    A straight line is laid through the ``before`` seconds until the moment, and one through the samples from
    ``settled`` to ``after`` seconds behind it. They cross when a change at once would have happened: dead time and lag
    together. A change by less than a tenth says nothing.
    """
    (n0, r0), (n1, r1) = (
        line(between(track, moment - before, moment)),
        line(between(track, moment + settled, moment + after)),
    )
    if abs(r1 - r0) < 0.1 * max(abs(r0), abs(r1)):
        return None
    return (n0 - n1) / (r1 - r0) - moment


def noise(track: Track, begin: float, end: float, *, period: float = 1.0) -> float:
    """Return the standard deviation of the rate from one period to the next, relative to its mean.

    Raises ValueError if nothing happens, or if there are fewer than three periods.
    """
    count = int((end - begin) / period + 1e-9)
    marks = [at(track, begin + k * period) for k in range(count + 1)]
    rates = [b - a for a, b in pairwise(marks)]
    if len(rates) < 3 or mean(rates) <= 0.0:
        raise ValueError("noise needs three periods with progress")
    return pstdev(rates) / mean(rates)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a rate came back after a disturbance."""

    depth: float
    """The least rate while it was disturbed, relative to that before."""
    seconds: float | None
    """Until it is back for good, within the time that was watched; 0: it never left the band. None: it is not."""


def recovery(track: Track, moment: float, *, before: float, until: float, band: float, window: float) -> Recovery:
    """Return how a rate falls and comes back after ``moment``, watched ``until`` so many seconds behind it.

    ``before``: seconds that give the rate from before. ``band``: 0.1 means that 90 % of that rate is back.
    ``window``: seconds over which a rate is taken; a time is the end of the first good window behind the last bad one.
    """
    usual = (at(track, moment) - at(track, moment - before)) / before
    if usual <= 0.0:
        raise ValueError("there is no progress before the disturbance")
    ends = [window + k * 0.25 for k in range(int((until - window) / 0.25) + 1)]
    rates = [(at(track, moment + e) - at(track, moment + e - window)) / window / usual for e in ends]
    bad = [k for k, rate in enumerate(rates) if rate < 1.0 - band]
    if not bad:
        return Recovery(min(rates), 0.0)
    back = bad[-1] + 1
    return Recovery(min(rates), ends[back] if back < len(ends) else None)
