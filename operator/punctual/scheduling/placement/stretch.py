"""Placement of many demands at once: a stretch of a queue, on processors that become free one after the other.

:func:`punctual.scheduling.placement.place.place` spends most of its time on calls of numpy for a few dozen processors.
Neighbours in a queue take processors that are neighbours in the order of ready times. As long as no assigned processor
is free again before the processors that are still to be assigned, one sorted array of ready times serves all of them,
and one call of numpy computes many. The placements equal those of `place`, to the last bit.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.placement.demand import Demand, Floats, Shortfall
from punctual.scheduling.placement.place import FEW, first_free, place
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.theory.tolerance import tolerances

FRONT = 512
"""Number of processors considered: those that are free first."""
ROWS = 16
"""Demands that are computed at once."""
WORTH = 8
"""Demands that the processors should serve at least: for fewer, one at a time is faster."""


class _Row(NamedTuple):
    """A demand's numbers, and the part of the ready times that it is to use."""

    begin: int
    taken: int
    units: int
    work: float
    chi: float
    tau: float
    theta_cm: float
    theta_cp: float
    late: float


def place_next(demands: Sequence[Demand], timeline: Timeline, last: Placement | None) -> list[Placement] | Shortfall:
    """Return the placements of the first of these demands, at least one, or why the first could not be placed.

    ``demands``: as stored in their placements (`Demand.anew`). ``last``: the previous placement, which predicts how
    many processors a demand takes. The timeline does not change.
    """
    many = last is not None and min(len(demands), timeline.ready.size // max(WORTH, last.where.size)) >= WORTH
    if many and (booked := _place_some(demands, timeline)):
        return booked
    got = place(demands[0], timeline)
    return [got] if isinstance(got, Placement) else got


def _place_some(demands: Sequence[Demand], timeline: Timeline) -> list[Placement]:
    """Place as many demands as one array of ready times serves; none if the first needs a closer look."""
    if not timeline.uniform:
        return []
    order = first_free(timeline.ready, FRONT)
    line = timeline.ready[order]
    booked: list[Placement] = []
    begin, more, back = 0, 0, inf
    while rows := _rows(demands[len(booked) : len(booked) + ROWS], line, begin, more, back):
        cut = _cut(rows, line, back)
        for i in range(cut.right):
            end, n = begin + rows[i].taken, rows[i].taken
            booked.append(
                Placement(
                    demands[len(booked)],
                    order[begin:end].copy(),
                    cut.points[i, : n + 1].copy(),
                    line[begin:end].copy(),
                    cut.ends[i, :n].copy(),
                    cut.finish[i],
                )
            )
            begin = end
        if cut.right < len(rows) and not cut.late:
            break
        back = cut.back
        more = int(cut.late) if cut.right else more + 1
    return booked


def _rows(demands: Sequence[Demand], line: Floats, begin: int, more: int, back: float) -> list[_Row]:
    """Give each demand the least processors that might do, from ``begin`` on; the first of them so many ``more``."""
    rows = []
    for demand in demands:
        cost, parts = demand.cost, demand.ranges.parts
        if not demand.simple or len(parts) != 1 or demand.not_before > line[0]:
            break
        units = parts[0].end - parts[0].begin
        room = np.floor((demand.surely_late - cost.setup - line[begin : begin + FEW]) / (cost.tau + cost.chi))
        count = max(demand.as_before, 1 + int(room.cumsum().searchsorted(units))) + more
        if count > min(room.size, demand.most or count) or room[count - 1] < 1.0:
            break
        if line[begin + count - 1] >= back:
            break
        back = min(back, line[begin] + cost.setup + demand.work / count)  # approximate: the partition tells
        rows.append(
            _Row(begin, count, units, demand.work, cost.chi, cost.tau, cost.theta_cm, cost.theta_cp, demand.late)
        )
        begin, more = begin + count, 0
    return rows


class _Cut(NamedTuple):
    """Partitioned demands, one row each; the entries behind a row's processors are undefined."""

    right: int
    """Number of leading rows that `place` would return, too."""
    late: bool
    """Whether the next row fails only because it ends too late: more processors may help."""
    points: NDArray[np.int64]
    ends: Floats
    finish: list[float]
    back: float
    """Time at which the first assigned processor is free again."""


def _cut(rows: Sequence[_Row], line: Floats, back: float) -> _Cut:
    """Partition each demand over its part of the ready times, and test it after rounding, as `place` does."""
    told = np.array(rows).T
    begins, counts = told[:2].astype(np.intp)
    work, due = told[3], told[8]
    units, _, chi, tau, theta_cm, theta_cp, _ = told[2:, :, None]
    at, number = np.arange(len(rows)), np.arange(counts.max())
    last = at, counts - 1  # the last processor of each
    taken = number < counts[:, None]
    ready = line.take(begins[:, None] + number, mode="clip")
    gap = ready - ready[:, :1]
    total = gap.cumsum(axis=1)[last]
    usual = gap[last] * counts - total < work * (1.0 - 1e-9)  # the last has a share, so all have
    shares = np.maximum(((work + total) / counts)[:, None] - gap, 0.0) / (tau + chi)
    sums = shares.cumsum(axis=1)
    sums *= units / sums[last][:, None]
    sums += 0.5
    points = np.zeros((len(rows), number.size + 1), dtype=np.int64)
    np.floor(sums, out=points[:, 1:], casting="unsafe")
    points[at, counts] = told[2]
    sizes = points[:, 1:] - points[:, :-1]
    usual &= np.where(taken, sizes, 1).min(axis=1) > 0
    ends = ready + (theta_cm + sizes * tau) + theta_cp + sizes * chi
    finish, soonest = np.where(taken, ends, -inf).max(axis=1), np.where(taken, ends, inf).min(axis=1)
    together = finish - soonest <= tolerances(finish)
    ends[together] = finish[together, None]
    backs = np.minimum.accumulate(np.concatenate(([back], soonest)))
    usual &= ready[last] < backs[:-1]
    wrong = ~usual | (finish > due)
    right = int(wrong.argmax()) if wrong.any() else len(rows)
    late = right < len(rows) and bool(usual[right])
    return _Cut(right, late, points, ends, finish.tolist(), float(backs[right]))
