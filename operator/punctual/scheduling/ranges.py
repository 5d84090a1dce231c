"""Sets of units as half-open ranges, and counts over them.

The ledger of a job is made of these: which units are done, which are owned by a chunk, how often each was tried. Both
classes are values: every operation returns a new one, kept sorted, disjoint and merged.
"""

from collections.abc import Iterable, Iterator
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
        return sum(r.size for r in self.parts)

    def __or__(self, other: "Ranges") -> "Ranges":
        return Ranges.of(*self.parts, *other.parts)

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

    def slices(self, cuts: Iterable[int]) -> list[list[Range]]:
        """Cut the set, read as one line of ``total`` units, at the given places.

        ``cuts`` ascends from 0 to ``total``; slice k holds the units between cuts k and k+1 and is more than one
        range where the set has a hole.
        """
        out: list[list[Range]] = []
        places = list(cuts)
        part = 0
        used = 0  # units of parts[part] already given out
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


class Count(NamedTuple):
    """So many ``times`` for every unit in [begin, end)."""

    begin: int
    end: int
    times: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened to each unit: a step function, 0 where nothing is said."""

    parts: tuple[Count, ...] = ()

    def __iter__(self) -> Iterator[Count]:
        return iter(self.parts)

    def add(self, begin: int, end: int, count: int = 1) -> "Counts":
        """Count ``count`` more for every unit in [begin, end)."""
        if begin >= end or count == 0:
            return self
        return self._combine((*self.parts, Count(begin, end, count)))

    def raise_to(self, begin: int, end: int, count: int) -> "Counts":
        """Count at least ``count`` for every unit in [begin, end)."""
        inside = [c for c in self.parts if c.begin < end and begin < c.end]
        out = self.drop(begin, end)
        at = begin
        for c in inside:
            low, high = max(c.begin, begin), min(c.end, end)
            out = out.add(at, low, count).add(low, high, max(count, c.times))
            at = high
        return out.add(at, end, count)

    def drop(self, begin: int, end: int) -> "Counts":
        """Forget all about [begin, end)."""
        kept: list[Count] = []
        for c in self.parts:
            kept.append(Count(c.begin, min(c.end, begin), c.times))
            kept.append(Count(max(c.begin, end), c.end, c.times))
        return self._combine(tuple(c for c in kept if c.begin < c.end))

    def largest(self, begin: int, end: int) -> int:
        """Return the largest count of any unit in [begin, end)."""
        return max((c.times for c in self.parts if c.begin < end and begin < c.end), default=0)

    def coarse(self, most: int) -> "Counts":
        """Say it in at most so many parts: neighbours become one, with what lies between, at the larger count."""
        parts = self.parts
        while len(parts) > most:
            pairs = (parts[i : i + 2] for i in range(0, len(parts), 2))
            parts = tuple(Count(some[0].begin, some[-1].end, max(c.times for c in some)) for some in pairs)
        return self if parts is self.parts else self._combine(parts)

    @staticmethod
    def _combine(parts: Iterable[Count]) -> "Counts":
        steps: dict[int, int] = {}
        for c in parts:
            steps[c.begin] = steps.get(c.begin, 0) + c.times
            steps[c.end] = steps.get(c.end, 0) - c.times
        out: list[Count] = []
        level = 0
        places = sorted(steps)
        for here, there in pairwise(places):
            level += steps[here]
            if level == 0:
                continue
            if out and out[-1].end == here and out[-1].times == level:
                out[-1] = Count(out[-1].begin, there, level)
            else:
                out.append(Count(here, there, level))
        return Counts(tuple(out))

    def check(self) -> None:
        """Raise InvariantError unless sorted, disjoint, positive and merged."""
        for c in self.parts:
            if c.begin >= c.end or c.times < 1:
                raise InvariantError(f"empty count {c}")
        for a, b in pairwise(self.parts):
            if a.end > b.begin or (a.end == b.begin and a.times == b.times):
                raise InvariantError(f"counts {a} and {b} overlap or should be one")
