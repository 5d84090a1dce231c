"""Slots: where in the cluster's grid each aligned application has its slices, so that no node lacks cores for them.

All slices of an application begin at the same moments: the grid's origin plus the application's offset plus whole
periods. Applications may run at once where a node has cores for all. Elsewhere the slices come one after the other, so
the periods must nest: each of `PERIODS` is a whole multiple of every shorter one. This is Ousterhout's matrix with
columns of any width.

An application takes the first offset at which its slice fits on all its nodes; applications that have a slot never move
for it. Times are whole microseconds, as the kernel's: sums of slices are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

PERIODS: Final = tuple(3125 * 2**k for k in range(9))
"""The periods of aligned applications, µs: 100 ms · 2^k, whole microseconds, up to the kernel's longest of 1 s."""
_TINY: Final = 1e-6
"""Part of a core or a microsecond that is not counted: shares and cores are floats."""


class Slot(NamedTuple):
    """Where an application has its slices: at ``offset`` of each ``period``.

    cores   by node, the CPUs that it runs on in a slice, and no more than the node has
    least   the share of its CPU that its target takes
    most    the share that its law may use, if its nodes have it to spare
    run     the part of a period for which it runs if it has all its CPU: half a CPU is a whole one for half the time
    """

    period: int
    cores: Mapping[str, float]
    least: float
    most: float
    run: float = 1.0
    offset: int = 0

    def length(self, share: float) -> int:
        """Return for how long it runs in each period with a share of its CPU."""
        return min(ceil(share * self.run * self.period - _TINY), self.period)


class Clash(NamedTuple):
    """Why there is no place: at a moment of the grid a node lacks cores beside another application."""

    node: str
    at: int
    other: str


class _Busy(NamedTuple):
    """A part of the period, from ``begin`` to ``end``, in which a node lacks cores. ``at``: such a moment."""

    begin: int
    end: int
    node: str
    at: int


@dataclass(slots=True)
class Slots:
    """The slots of all aligned applications, by name, in the order in which they got them."""

    nodes: Mapping[str, float]
    """The cores of each node. One that is missing has enough."""
    placed: dict[str, Slot] = field(default_factory=dict)

    def place(self, name: str, slot: Slot, *, kept: int | None, ceilings: Mapping[str, float]) -> Clash | None:
        """Give an application a slot; None: it has one now.

        kept      the offset that it has: it stays if the least slice fits there
        ceilings  the most share of each application that the nodes have to spare

        Otherwise it gets the first offset with place for its widest slice, else the first one for its least.
        """
        others = {other: there for other, there in self.placed.items() if other != name}
        narrow, wide = _narrow({**others, name: slot}), _wide({**others, name: slot}, ceilings)
        busy = self._busy(slot, others, narrow)
        offset = None
        if kept is not None and _room(busy, kept % slot.period, slot.period) >= narrow[name]:
            offset = kept % slot.period
        if offset is None:
            offset = _first(self._busy(slot, others, wide), slot.period, wide[name])
        if offset is None:
            offset = _first(busy, slot.period, narrow[name])
        if offset is None:
            first = min(busy, key=lambda part: part.begin)
            return Clash(first.node, first.at, _open_at(first, others, narrow))
        self.placed[name] = slot._replace(offset=offset)
        return None

    def shares(self, ceilings: Mapping[str, float]) -> dict[str, float]:
        """Return the share of each application: as wide as its slice can be before another one begins."""
        slices, wide = _narrow(self.placed), _wide(self.placed, ceilings)
        for name, slot in self.placed.items():
            others = {other: there for other, there in self.placed.items() if other != name}
            room = _room(self._busy(slot, others, slices), slot.offset, slot.period)
            slices[name] = max(slices[name], min(wide[name], room))
        return {name: slices[name] / (slot.run * slot.period) for name, slot in self.placed.items()}

    def _busy(self, asked: Slot, others: Mapping[str, Slot], slices: Mapping[str, int]) -> list[_Busy]:
        """Return the parts of a period in which a node of the one that asks lacks cores for it."""
        found: list[_Busy] = []
        for node, cores in asked.cores.items():
            there = {name: slot for name, slot in others.items() if node in slot.cores}
            has = self.nodes.get(node)
            if has is None or cores + sum(slot.cores[node] for slot in there.values()) <= has + _TINY:
                continue
            span = max(asked.period, *(slot.period for slot in there.values()))
            used, edges = 0.0, {0: 0.0, span: 0.0}
            for name, slot in there.items():
                for begin in range(slot.offset, span, slot.period):
                    end = begin + slices[name]
                    if end > span:  # it goes on at the begin of the grid
                        used += slot.cores[node]
                        end -= span
                    edges[begin] = edges.get(begin, 0.0) + slot.cores[node]
                    edges[end] = edges.get(end, 0.0) - slot.cores[node]
            for at, until in pairwise(sorted(edges)):
                used += edges[at]
                if used + cores > has + _TINY:
                    found.append(_Busy(at % asked.period, at % asked.period + until - at, node, at))
        return found


def _narrow(slots: Mapping[str, Slot]) -> dict[str, int]:
    """Return the slices that the targets take."""
    return {name: slot.length(slot.least) for name, slot in slots.items()}


def _wide(slots: Mapping[str, Slot], ceilings: Mapping[str, float]) -> dict[str, int]:
    """Return the slices that the laws may use."""
    return {name: slot.length(max(slot.least, min(slot.most, ceilings[name]))) for name, slot in slots.items()}


def _room(busy: list[_Busy], offset: int, period: int) -> int:
    """Return for how long from ``offset`` on no node lacks cores."""
    if any((offset - b.begin) % period < b.end - b.begin for b in busy):
        return 0
    return min(((b.begin - offset) % period for b in busy), default=period)


def _first(busy: list[_Busy], period: int, slice_: int) -> int | None:
    """Return the first offset with place for a slice: the period's begin, or the end of what is in the way."""
    parts = _merged(busy, period)
    if not parts or parts[0][0] >= slice_:
        return 0
    nexts = [begin for begin, _ in parts[1:]] + [parts[0][0] + period]
    return next((end for (_, end), begin in zip(parts, nexts, strict=True) if begin - end >= slice_), None)


def _merged(busy: list[_Busy], period: int) -> list[tuple[int, int]]:
    """Return the busy parts of a period in order, none of which meet."""
    parts = [(b.begin, min(b.end, period)) for b in busy]
    parts += [(0, min(b.end - period, period)) for b in busy if b.end > period]
    found: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _open_at(busy: _Busy, others: Mapping[str, Slot], slices: Mapping[str, int]) -> str:
    """Return the first application with a slice at the begin of a busy part of its node."""
    return next(
        name
        for name, slot in others.items()
        if busy.node in slot.cores and (busy.at - slot.offset) % slot.period < slices[name]
    )


def allowed(low: float, high: float) -> list[int]:
    """Return the periods, µs, from ``low`` to ``high`` seconds."""
    return [p for p in PERIODS if low * 1e6 - _TINY <= p <= high * 1e6 + _TINY]
