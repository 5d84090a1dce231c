"""Offers for refused jobs: the earliest deadline and the largest load, found by repeated admission tests.

Acceptance is not monotone in the deadline: a later one moves the job behind others in the order, and may use slower
processors. So bisection finds an edge, and there may be earlier ones. The search first tests deadlines just before
those at which the job's place in the order changes, and others between them. It then bisects below the first accepted
deadline. Its resolution is a millionth, so the deadline one step below the answer is refused. The search is a
generator: each ``next`` costs at most one test, so a step can bound its work.
"""

import math
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Protocol

from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.theory.tolerance import tolerance

ALLOWANCE = 3.0
"""Seconds added to an offered deadline: creation times are whole seconds, and submitting takes a moment."""
VALID = 60.0
"""Seconds for which an offer is valid; it reserves nothing, and ends when another job is admitted."""
LONGEST = 87600 * 3600.0
"""Seconds: the longest deadline that ``spec.deadline`` accepts, so no longer one is offered."""
TIGHTER = 1e-6
LEAST = 1e-6
"""Seconds: the shortest deadline that is offered."""
LOOKS = 16
"""Deadlines that the search tests before it bisects."""


class Test(Protocol):
    """Admission test at one moment: a plan, or the queue of the fast test."""

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline, with its due time and queue key."""

    def over(self, demand: Demand) -> float:
        """Return when the demand is done behind all others at the latest: with that due time it is admitted."""

    def turns(self, demand: Demand) -> Iterable[float]:
        """Return the absolute deadlines at which the demand moves behind one more job, in any order."""


def earliest_deadline(test: Test, demand: Demand, now: float) -> Generator[None, None, float | None]:
    """Search the earliest deadline, seconds after ``now``, that is accepted while one a millionth tighter is not.

    It is later than the requested deadline, which is assumed to be refused. Returns None if no deadline is accepted. At
    most LOOKS + 1 tests and some 25 more.
    """

    def ok(relative: float) -> bool:
        return test.fits(test.under(demand, now + relative))

    low = max(LEAST, demand.due + demand.kept_back - now)
    for high in _looks(test, demand, now, low):
        yield
        if ok(high):
            break
        low = high
    else:
        return None
    while True:
        below, above = 0, math.ceil(math.log(high / low) / -math.log1p(-TIGHTER))
        while above - below > 1:
            middle = (below + above) // 2
            yield
            if ok(at := _above(low, middle)):
                above, high = middle, at
            else:
                below = middle
        tighter = high * (1.0 - TIGHTER)
        if tighter <= low:
            return high
        yield
        if not ok(tighter):
            return high
        high = tighter


def _above(low: float, steps: int) -> float:
    """Return the deadline that the given number of steps of a millionth brings down to ``low``."""
    return low * math.exp(-math.log1p(-TIGHTER) * steps)


def _looks(test: Test, demand: Demand, now: float, low: float) -> list[float]:
    """Return the deadlines to test first, ascending; the last one is accepted if any later one is."""
    last = test.over(demand) + demand.kept_back - now
    last = max(last + 2.0 * tolerance(now + last), low * (1.0 + 2.0 * TIGHTER))
    if not math.isfinite(last):
        return []
    before = sorted({turn - 2.0 * tolerance(turn) - now for turn in test.turns(demand)})
    before = [at for at in before if low < at < last]
    some = min(LOOKS, len(before))
    looks = {before[(i + 1) * len(before) // some - 1] for i in range(some)}
    begin = low if low > LEAST else last / 1000.0
    between = LOOKS - some
    looks.update(begin * (last / begin) ** (k / (between + 1)) for k in range(1, between + 1))
    return [*sorted(looks), last]


def largest_load(test: Test, demand: Demand) -> Generator[None, None, int]:
    """Search the largest part of the requested units that would be accepted under the requested deadline; 0: none."""
    low, high = demand.least - 1, demand.ranges.total  # fewer units than processors are never accepted
    while high - low > 1:
        middle = (low + high) // 2
        yield
        if test.fits(replace(demand, ranges=Ranges.of((0, middle)))):
            low = middle
        else:
            high = middle
    return low if low >= demand.least else 0


def shown(relative: float) -> float | None:
    """Return the deadline to offer: whole seconds, submission allowance included; None if it exceeds the maximum."""
    offered = float(math.ceil(relative + ALLOWANCE))
    return offered if offered <= LONGEST else None
