"""Sets of units as half-open ranges, and counts over them.

A job's ledger consists of these: the completed units, the units that chunks own, and the attempts of each. Both classes
are values: every operation returns a new one, kept sorted, disjoint and merged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

from punctual.errors import InvariantError


class Range(NamedTuple):
    """Units ``begin <= u < end``."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of units."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Ranges:
    """A set of units: sorted, disjoint, merged half-open ranges."""

    parts: tuple[Range, ...] = ()

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> Self:
        """Build from (begin, end) pairs in any order; overlapping and touching ones merge, empty ones vanish."""
        merged: list[Range] = []
        for begin, end in sorted(pairs):
            if begin >= end:
                continue
            if merged and begin <= merged[-1].end:
                merged[-1] = Range(merged[-1].begin, max(merged[-1].end, end))
            else:
                merged.append(Range(begin, end))
        return cls(tuple(merged))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def total(self) -> int:
        """Number of units in the set."""
        if len(self.parts) == 1:
            begin, end = self.parts[0]
            return end - begin
        return sum(r.size for r in self.parts)

    def __or__(self, other: "Ranges") -> "Ranges":
        if len(other.parts) == 1:
            return self.plus(other.parts[0])
        return Ranges.of(*self.parts, *other.parts) if other.parts else self

    def plus(self, more: Range) -> "Ranges":
        """Return the set with one more range, which is not empty; looks only at the ranges that it overlaps."""
        if not self.parts or more.begin > self.parts[-1].end:  # usually: chunks end in the order of their units
            return Ranges((*self.parts, more))
        if more.begin >= (last := self.parts[-1]).begin:
            return Ranges((*self.parts[:-1], Range(last.begin, max(last.end, more.end))))
        i = bisect_left(self.parts, more.begin, key=lambda r: r.end)
        j = bisect_right(self.parts, more.end, key=lambda r: r.begin)
        met = self.parts[i:j]
        one = Range(min(met[0].begin, more.begin), max(met[-1].end, more.end)) if met else more
        return Ranges((*self.parts[:i], one, *self.parts[j:]))

    def __sub__(self, other: "Ranges") -> "Ranges":
        left: list[Range] = []
        cuts = other.parts
        i = 0
        for begin, end in self.parts:
            at = begin
            while i < len(cuts) and cuts[i].end <= at:
                i += 1
            j = i
            while j < len(cuts) and cuts[j].begin < end:
                if cuts[j].begin > at:
                    left.append(Range(at, cuts[j].begin))
                at = max(at, cuts[j].end)
                j += 1
            if at < end:
                left.append(Range(at, end))
        return Ranges(tuple(left))

    def __and__(self, other: "Ranges") -> "Ranges":
        return self - (self - other)

    def units(self) -> Iterator[Range]:
        """Yield each unit as a range, ascending."""
        return (Range(unit, unit + 1) for begin, end in self.parts for unit in range(begin, end))

    def slices(self, cuts: Iterable[int]) -> list[list[Range]]:
        """Divide the set, read as one sequence of ``total`` units, at the given places.

        ``cuts`` ascends from 0 to ``total``; slice k holds the units between cuts k and k+1, in several ranges if the
        set has a hole there.
        """
        places = list(cuts)
        if len(self.parts) == 1:
            first = self.parts[0].begin
            return [[Range(first + low, first + high)] if low < high else [] for low, high in pairwise(places)]
        out: list[list[Range]] = []
        part = 0
        used = 0  # units of parts[part] that earlier slices have
        for low, high in pairwise(places):
            want = high - low
            piece: list[Range] = []
            while want > 0:
                begin, end = self.parts[part]
                take = min(want, end - begin - used)
                piece.append(Range(begin + used, begin + used + take))
                used += take
                want -= take
                if begin + used == end:
                    part, used = part + 1, 0
            out.append(piece)
        return out

    def check(self) -> None:
        """Raise InvariantError unless sorted, disjoint, merged and non-empty throughout."""
        for r in self.parts:
            if r.begin < 0 or r.begin >= r.end:
                raise InvariantError(f"empty or negative range {r}")
        for a, b in pairwise(self.parts):
            if a.end >= b.begin:
                raise InvariantError(f"ranges {a} and {b} overlap, touch or are out of order")


class RangeCount(NamedTuple):
    """Number of ``times`` for every unit in [begin, end)."""

    begin: int
    end: int
    times: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of occurrences per unit: a step function, 0 outside its parts."""

    parts: tuple[RangeCount, ...] = ()

    def __iter__(self) -> Iterator[RangeCount]:
        return iter(self.parts)

    def add(self, begin: int, end: int, count: int = 1) -> "Counts":
        """Add ``count`` for every unit in [begin, end)."""
        return self._change(begin, end, lambda times: times + count) if count else self

    def raise_to(self, begin: int, end: int, count: int) -> "Counts":
        """Raise every unit in [begin, end) to at least ``count``."""
        return self._change(begin, end, lambda times: max(times, count))

    def drop(self, begin: int, end: int) -> "Counts":
        """Drop the counts of [begin, end)."""
        if not self.parts:  # usually: nothing has failed
            return self
        i, j = self._meeting(begin, end)
        return self._change(begin, end, lambda _: 0) if i < j else self

    def largest(self, begin: int, end: int) -> int:
        """Return the largest count of any unit in [begin, end)."""
        if not self.parts:
            return 0
        i, j = self._meeting(begin, end)
        return max((c.times for c in self.parts[i:j]), default=0) if i < j else 0

    def _meeting(self, begin: int, end: int) -> tuple[int, int]:
        """Return the indices of the parts with a unit in [begin, end)."""
        i = bisect_right(self.parts, begin, key=lambda c: c.end)
        return i, max(i, bisect_left(self.parts, end, key=lambda c: c.begin))

    def _change(self, begin: int, end: int, new: Callable[[int], int]) -> "Counts":
        """Give every unit in [begin, end) a new count; looks only at the parts there and those that they touch."""
        if begin >= end:
            return self
        i, j = self._meeting(begin, end)
        here = [RangeCount(c.begin, min(c.end, begin), c.times) for c in self.parts[i:j]]  # the part before
        at = begin
        for c in self.parts[i:j]:
            low, high = max(c.begin, begin), min(c.end, end)
            here += [RangeCount(at, low, new(0)), RangeCount(low, high, new(c.times))]
            at = high
        here.append(RangeCount(at, end, new(0)))
        here += [RangeCount(max(c.begin, end), c.end, c.times) for c in self.parts[i:j]]  # and the part behind
        left, right = max(0, i - 1), j + 1  # neighbours may have the same count now
        joined = _joined((*self.parts[left:i], *here, *self.parts[j:right]))
        return Counts((*self.parts[:left], *joined, *self.parts[right:]))

    def coarse(self, most: int) -> "Counts":
        """Return an upper bound with at most ``most`` parts: merges neighbours, and gaps, at the larger count."""
        parts = self.parts
        while len(parts) > most:
            pairs = (parts[i : i + 2] for i in range(0, len(parts), 2))
            parts = tuple(RangeCount(some[0].begin, some[-1].end, max(c.times for c in some)) for some in pairs)
        return self if parts is self.parts else Counts(tuple(_joined(parts)))

    def check(self) -> None:
        """Raise InvariantError unless sorted, disjoint, positive and merged."""
        for c in self.parts:
            if c.begin >= c.end or c.times < 1:
                raise InvariantError(f"empty count {c}")
        for a, b in pairwise(self.parts):
            if a.end > b.begin or (a.end == b.begin and a.times == b.times):
                raise InvariantError(f"counts {a} and {b} overlap or should be one")


def _joined(parts: Iterable[RangeCount]) -> list[RangeCount]:
    """Merge touching parts with the same count and drop those with count 0; the parts come in order."""
    out: list[RangeCount] = []
    for c in parts:
        if c.begin >= c.end or c.times == 0:
            continue
        if out and out[-1].end == c.begin and out[-1].times == c.times:
            out[-1] = RangeCount(out[-1].begin, c.end, c.times)
        else:
            out.append(c)
    return out


def tiles(ranges: Iterable[tuple[int, int]], units: int) -> list[tuple[int, int]] | None:
    """Choose ranges (begin, end) that cover all units without overlap, the last first. None: no choice does."""
    # reachable from 0 by whole ranges; if there are several ways, any is correct
    came: dict[int, tuple[int, int] | None] = {0: None}
    for begin, end in sorted(ranges, key=lambda one: (one[1], one[0])):
        if begin in came:
            came.setdefault(end, (begin, end))
    chosen: list[tuple[int, int]] = []
    at = units
    if at not in came:
        return None
    while step := came[at]:
        at = step[0]
        chosen.append(step)
    return chosen
