"""Running searches for offers: each step advances them by a bounded amount, oldest first."""

from collections.abc import Callable, Generator, Iterator

from punctual.scheduling.admission import offers
from punctual.scheduling.admission.larger_pool import LargerPool, further_processors
from punctual.scheduling.model.job import Offer
from punctual.scheduling.placement.demand import Demand

Larger = Callable[[str], LargerPool | None]
"""Returns the pool with further processors as it is now, for a refused job (uid); None: they do not help."""
TestOf = Callable[[str], offers.Test]
"""Returns the admission test for a refused job (uid)."""
TESTS = 24
"""Admission tests that a step may spend on offers."""


class OfferSearches:
    """Jobs that wait for an offer, and the progress of each search."""

    def __init__(self) -> None:
        self._demands: dict[str, Demand] = {}
        self._search: Generator[None, None, Offer] | None = None
        self._for: str | None = None

    def __len__(self) -> int:
        return len(self._demands)

    def __contains__(self, uid: str) -> bool:
        return uid in self._demands

    def ask(self, uid: str, demand: Demand) -> None:
        """Queue a search; a newer request replaces an older one of the same job."""
        self.drop(uid)
        self._demands[uid] = demand

    def drop(self, uid: str) -> None:
        """Drop a job's request."""
        self._demands.pop(uid, None)
        if self._for == uid:
            self._search = self._for = None

    def clear(self) -> None:
        """Drop all requests."""
        self._demands.clear()
        self._search = self._for = None

    def work(self, test: TestOf, larger: Larger, now: float, *, size: int) -> Iterator[tuple[str, Offer]]:
        """Spend one step's budget, which shrinks with the plan's ``size`` (placements); yield the offers found.

        A search continues under the plan and time it began with. With a plan that changes each second, it would never
        end.
        """
        budget = max(1, TESTS * 32 // (32 + size))
        while self._demands and budget > 0:
            if self._search is None:
                self._for = next(iter(self._demands))
                self._search = _search(test(self._for), larger(self._for), self._demands[self._for], now)
            try:
                next(self._search)
                budget -= 1
            except StopIteration as end:
                uid = self._for
                assert uid is not None
                self.drop(uid)
                yield uid, end.value


def _search(test: offers.Test, larger: LargerPool | None, demand: Demand, now: float) -> Generator[None, None, Offer]:
    earliest = yield from offers.earliest_deadline(test, demand, now)
    largest = yield from offers.largest_load(test, demand)
    further = None if larger is None else (yield from further_processors(larger))
    shown = None if earliest is None else offers.shown(earliest)
    return Offer(shown, now + offers.VALID, largest, further)
