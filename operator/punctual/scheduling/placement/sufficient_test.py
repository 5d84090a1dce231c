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

import numpy as np

from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.tolerance import tolerance

ROUNDING = 1e-9
"""Upper bound of the relative error of a sum of shares in floats; a hundred times the actual error."""


def surely_fit(ground: Timeline, demands: Sequence[Demand], begin: int = 0) -> int:
    """Return the index of the first demand, from ``begin`` on, that may not fit on the timeline behind those before it.

    ``len(demands)``: all fit. With the n processors that are ready first, T is a common end if n·T equals the sum of
    their ready times, their set-ups and the work. Each ready time counts as the mean of all, which is no earlier than
    the mean of the first n. Rounding to whole units moves an end by less than a unit. So n = ⌈work/(due − set-up − unit
    − mean)⌉ are enough, and the least sufficient number is not larger: the total busy time grows by no more than the
    work and n set-ups.
    """
    total = ground.ready.size
    if not ground.discipline.plain or not total or ground.speeds is not None or ground.around is not None:
        return begin
    origin = float(ground.ready.min())  # sums of times since 1970 would lose milliseconds
    busy = float((ground.ready - origin).sum())
    for i in range(begin, len(demands)):
        demand = demands[i]
        several = max(demand.least, demand.as_before) > 1
        if demand.reduce or several or demand.not_before > origin or not demand.ranges:
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


def overloaded(ground: Timeline, demands: Iterable[Demand], demand: Demand) -> bool:
    """Whether more work is due by a demand's due time than all processors could do until then: it cannot fit."""
    due = demand.due
    work = sum(d.work for d in demands if d.due <= due) + demand.work
    quickest = 1.0 if ground.speeds is None else min(1.0, float(ground.speeds.min()))
    room = np.maximum(due - ground.ready, 0.0)
    return work * quickest > float(room.sum()) + room.size * (demand.surely_late - due)
