"""Limited tests: an admission test within what may be promised to one namespace, for searches for offers."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from punctual.scheduling.admission.larger_pool import LargerPool, Use
from punctual.scheduling.admission.offers import Test
from punctual.scheduling.admission.shares import Limit
from punctual.scheduling.placement.demand import Demand


@dataclass(frozen=True, slots=True)
class LimitedTest:
    """The test of a schedule, within a limit."""

    test: Test
    limit: Limit

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        return self.limit.fits(demand) and self.test.fits(demand)

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand under another absolute deadline."""
        return self.test.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return a due time with which the demand is admitted, or the latest one within the horizon."""
        return min(max(self.test.over(demand), self.limit.over(demand)), self.limit.latest - demand.kept_back)

    def turns(self, demand: Demand) -> Iterable[float]:
        """Return the absolute deadlines at which the demand moves behind one more job."""
        return self.test.turns(demand)


class LimitedLargerPool(LargerPool):
    """A larger pool, within a limit that grows with it."""

    monotone: ClassVar[bool] = False

    def __init__(self, pool: LargerPool, limit: Limit) -> None:
        self.pool = pool
        self.limit = limit
        self.there = pool.there

    def use(self, more: int) -> Use | None:
        """Return when the further processors would be used, if the share with them is enough."""
        asked, _ = self.there.queue(more)
        return self.pool.use(more) if self.limit.fits_with(more, asked) else None

    @property
    def least(self) -> int:
        """The first number with which neither the share nor the sums of work refuse the job."""
        asked, most = self.there.asked.demand, self.there.most
        enough = 1 + bisect_left(range(1, most + 1), x=True, key=lambda more: self.limit.fits_with(more, asked))
        return max(enough, self.pool.least)
