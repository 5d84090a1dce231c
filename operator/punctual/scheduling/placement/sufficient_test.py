"""Sufficient O(1) feasibility test from aggregate work and capacity, and the necessary one.

A load partitioned by divisible load theory leaves no gaps: equal concurrent processors begin when they are ready, so
their total busy time does not depend on which load got which of them. The mean of that time alone shows that a demand
can be placed in time, and on how many processors at most. The time that the demand adds to the sum bounds the demand
behind it. O(1) for each demand, whereas a placement takes O(N).

The test is conservative compared to :func:`punctual.scheduling.placement.place.place`. A demand that fails it must be
placed to decide. A demand that passes can be placed, however those before it are placed. Rounding to whole units and of
floats is included.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.tolerance import tolerance

ROUNDING = 1e-9
"""Upper bound of the relative error of a sum of shares in floats; a hundred times the actual error."""


def surely_fit(timeline: Timeline, demands: Sequence[Demand], begin: int = 0) -> int:
    """Return the index of the first demand, from ``begin`` on, that may not fit on the timeline behind those before it.

    ``len(demands)``: all fit. With the n processors that are ready first, T is a common end if n·T equals the sum of
    their ready times, their set-ups and the work. Each ready time counts as the mean of all, which is no earlier than
    the mean of the first n. Rounding to whole units moves an end by less than a unit. So n = ⌈work/(due − set-up − unit
    − mean)⌉ are enough, and the least sufficient number is not larger: the total busy time grows by no more than the
    work and n set-ups.
    """
    total = timeline.ready.size
    if not total or not timeline.uniform:
        return begin
    origin = float(timeline.ready.min())  # sums of times since 1970 would lose milliseconds
    busy = float((timeline.ready - origin).sum())
    for i in range(begin, len(demands)):
        demand = demands[i]
        if not demand.simple or demand.not_before > origin:
            return i
        cost, parts = demand.cost, demand.ranges.parts
        unit, setup = cost.per_unit, cost.setup
        work = demand.work * (1.0 + ROUNDING)
        holes = setup * (len(parts) - 1)  # at worst, one chunk has them all
        window = (demand.due - origin) - busy / total - setup - holes - unit
        if window <= 0.0:
            return i
        processors = ceil(work / window)
        if processors > (demand.most or total) or processors > total:
            return i
        busy += work + holes + processors * (setup + tolerance(demand.due))
    return len(demands)


class Load(NamedTuple):
    """Work that is due by a time on some processors, and what they can do until then."""

    jobs: int
    """Number of promised jobs that must be done there by then."""
    work: float
    """Processor seconds of those."""
    processors: int
    room: float
    """Seconds that the processors have."""


def load_before(timeline: Timeline, demands: Iterable[Demand], demand: Demand) -> Load:
    """Return the load of the processors that a demand may use, by its due time, without the demand."""
    due, there = demand.due, timeline.allowed(demand)
    if there is timeline:
        before = [d.work for d in demands if d.due <= due]
    else:
        nodes = timeline.sites.nodes(demand.eligible)
        before = [d.work for d in demands if d.due <= due and timeline.sites.nodes(d.eligible) <= nodes]
    room = np.maximum(due - there.ready, 0.0)
    return Load(len(before), sum(before), room.size, float(room.sum()))


def overloaded(timeline: Timeline, demands: Iterable[Demand], demand: Demand) -> bool:
    """Whether more work is due by a demand's due time than its processors could do until then: it cannot fit."""
    load = load_before(timeline, demands, demand)
    speeds = timeline.allowed(demand).speeds
    quickest = 1.0 if speeds is None else min(1.0, float(speeds.min(initial=1.0)))
    return (load.work + demand.work) * quickest > load.room + load.processors * (demand.surely_late - demand.due)
