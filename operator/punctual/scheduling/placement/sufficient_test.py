"""Who surely fits, told from sums alone: how much all processors have to do, and how much time there is.

A load cut by divisible load theory uses up what there is: equal concurrent processors that begin when they are ready
leave no gaps, so how long they are busy together does not depend on who got which of them. By the mean of that time
alone it follows that a demand can be placed in time, and on how many processors at most; what it adds to the sum
bounds the one behind it. O(1) for each demand, where a placement takes O(N).

It says less than :func:`punctual.scheduling.placement.place.place` and never more: who is not sure to fit here is to be
placed, who is sure will be, whatever comes of those before. Rounding to whole units is in it, and that of floats.
"""

from collections.abc import Sequence
from math import ceil

from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.tolerance import tolerance

ROUNDING = 1e-9
"""What floats may make of a sum of shares, as a part of it; a hundred times more than they do."""


def surely_fit(ground: Timeline, demands: Sequence[Demand], begin: int = 0) -> int:
    """Return the index of the first demand, from ``begin`` on, that may not fit on the ground behind those before it.

    ``len(demands)``: all fit. With n processors, those that are ready first, T is a common end where n·T is their ready
    times, their set-ups and the work together; each ready time counts as the mean of all, which the first n are not
    behind. Rounding to whole units moves an end by less than a unit. So n = ⌈work/(due − set-up − unit − mean)⌉ do, and
    the least number that does is not more: the time that all are busy grows by no more than the work and n set-ups.
    """
    total = ground.ready.size
    if not ground.discipline.plain or not total or ground.speeds is not None or ground.around is not None:
        return begin
    origin = float(ground.ready.min())  # not from 1970 on: the sums would lose milliseconds
    busy = float((ground.ready - origin).sum())
    for i in range(begin, len(demands)):
        demand = demands[i]
        if demand.reduce or demand.least > 1 or demand.not_before > origin or not demand.ranges:
            return i
        cost, parts = demand.cost, demand.ranges.parts
        unit, setup = cost.per_unit, cost.setup
        work = demand.work * (1.0 + ROUNDING)
        holes = setup * (len(parts) - 1)  # at worst one chunk has them all
        window = (demand.due - origin) - busy / total - setup - holes - unit
        if window <= 0.0:
            return i
        processors = ceil(work / window)
        if processors > (demand.most or total) or processors > total:
            return i
        busy += work + holes + processors * (setup + tolerance(demand.due))
    return len(demands)
