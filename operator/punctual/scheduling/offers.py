"""What could be promised instead: the earliest deadline and the largest load, found by asking admission again.

Acceptance is not monotone in the deadline (a later one moves the job behind others in EDF order), so bisection alone
may stop at the wrong edge: what it finds is tested a millionth tighter, and searched on below if that would pass. The
search is a generator: each ``next`` costs at most one test, so that a step can bound its work.
"""

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Protocol

from punctual.scheduling.demand import Demand
from punctual.scheduling.ranges import Ranges

ALLOWANCE = 3.0
"""Seconds added to what is offered: creation times are whole seconds, and submitting takes a moment."""
VALID = 60.0
"""Seconds an offer is held out; it reserves nothing, and ends when something else is admitted."""
LONGEST = 87600 * 3600.0
"""Seconds: no deadline further away can be asked for (``spec.deadline``), so none is offered."""
TIGHTER = 1e-6
ROUNDS = 8


class Test(Protocol):
    """What decides about admission at one moment: a plan, or the line of the fast test."""

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline: due time and place in the order move."""

    def over(self, demand: Demand) -> float:
        """Return when the demand would as a rule be done behind all others."""


def earliest_deadline(test: Test, demand: Demand, now: float) -> Generator[None, None, float | None]:
    """Search the earliest deadline, seconds after ``now``, that is accepted while one a millionth tighter is not.

    Returns None where none is. At most about 40 tests a round, ROUNDS rounds.
    """

    def ok(relative: float) -> bool:
        return test.fits(test.under(demand, now + relative))

    high = test.over(demand) - now + demand.kept_back
    if not math.isfinite(high):
        return None
    for _ in range(4):
        yield
        if ok(high):
            break
        high *= 2
    else:
        return None
    floor = max(0.0, demand.kept_back)
    for _ in range(ROUNDS):
        low = floor
        while high - low > TIGHTER / 10 * high:
            middle = (low + high) / 2
            yield
            if ok(middle):
                high = middle
            else:
                low = middle
        yield
        tighter = high * (1 - TIGHTER)
        if not ok(tighter):
            return high
        high = tighter
    return high


def largest_load(test: Test, demand: Demand) -> Generator[None, None, int]:
    """Search the most units, of those asked, that would be accepted under the deadline asked; 0: none."""
    low, high = 0, demand.ranges.total
    while high - low > 1:
        middle = (low + high) // 2
        yield
        if test.fits(replace(demand, ranges=Ranges.of((0, middle)))):
            low = middle
        else:
            high = middle
    return low


def shown(relative: float) -> float | None:
    """Return the deadline to offer: whole seconds, submission allowance included; None where it cannot be asked for."""
    offered = float(math.ceil(relative + ALLOWANCE))
    return offered if offered <= LONGEST else None
