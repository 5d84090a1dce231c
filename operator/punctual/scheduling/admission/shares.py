"""Shares: how much of a pool's capacity may be promised to each namespace.

The share of a namespace is tested as if it were a pool of its own, with one ideal processor: as fast as its share of
all processors together, without set-ups and without whole units. It works through the promises of its namespace in the
order of their due times, from when each is made. A further promise fits if all of them still end in time there. So for
each deadline, what is promised until then is no more than the share of the capacity until then.

Real processors may do the work earlier, while other namespaces do not need them. That takes nothing off the account: a
namespace cannot have its share a second time by asking again once its work is done. Nor does it matter to a namespace
that work of others is done first. A reserved window takes its processors from the share while it lasts.

If the shares of all namespaces with promises add up to no more than the pool, all their work fits the pool, because
whatever is due by a time fits the shares until that time. What a plan needs beyond that (set-ups, chunks that run,
several processors at once) is not counted here; :mod:`punctual.scheduling.admission.schedule` tests it.

A test takes one look into an index of the namespace's promises, however many there are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.admission.slack_index import SlackIndex, Turn
from punctual.scheduling.model.pool_spec import Tenancy
from punctual.scheduling.placement.calendar import BookedSpan, Calendar
from punctual.scheduling.placement.demand import Demand
from punctual.theory.tolerance import tolerance

Floats = NDArray[np.float64]


class Account:
    """The promises of one namespace on its part of the pool, a number of ``rate`` processors (a fraction).

    The slack of a promise is how much less work than possible is promised until its due time. While there is work, time
    takes as much off the work as off what is possible, so slacks stay as they are.
    """

    def __init__(self, rate: float, at: float) -> None:
        self.rate = rate
        self.windows: tuple[BookedSpan, ...] = ()
        self._calendar = Calendar()
        self._steps: tuple[Floats, Floats, Floats] | None = None
        """Starts, ends and processors of the windows, where they do not overlap; None: there is none."""
        self._now = self._at = at
        """The present, and the time up to which the ideal processor has worked in the index."""
        self._index = SlackIndex()

    def __iter__(self) -> Iterator[tuple[Turn, float]]:
        """Yield each promise's key and the processor seconds that are left of it on the account, by due time."""
        self._settle()
        return ((order, length) for order, length, _ in self._index)

    def advance(self, now: float) -> None:
        """Let the ideal processor work until now. A promise that is due then is over, whatever is left of it."""
        self._now = max(self._now, now)

    def fits(self, due: float, work: float) -> bool:
        """Whether so many processor seconds more may be promised until a time."""
        return self._surely_fits(due, work) or work <= self.spare(due) + self._near(due)

    def spare(self, due: float) -> float:
        """Return the processor seconds that may still be promised until a time; below 0: too much is."""
        self._settle()
        before, least = self._index.around((due, inf, ""))
        return min(self._supply(due) - before, least)

    def add(self, order: Turn, work: float) -> None:
        """Add a promise. Its key begins with the due time, and is behind all others with the same."""
        self._settle()  # what was done until now was not done of this promise
        self._index.insert_behind(order, work, self._supply(order[0]))

    def left(self, order: Turn) -> float:
        """Return the processor seconds that are left of a promise on the account."""
        self._settle()
        try:
            return self._index.length(order)
        except KeyError:
            return 0.0

    def take_off(self, order: Turn, work: float) -> None:
        """Take work off a promise: it will not be done. Of work that the ideal processor has done, nothing is left."""
        left = self.left(order)
        if left <= 0.0:
            return
        if left <= work:
            self._index.remove(order)
        else:
            self._index.shorten(order, left - work)

    def fits_at(self, rate: float, due: float, work: float, *, but: Turn | None = None) -> bool:
        """Whether they might be if the part had this size, without one promise. It looks at each of them."""
        entries = sorted([(order[0], length) for order, length in self if order != but] + [(due, work)])
        dues, lengths = (np.array(column) for column in zip(*entries, strict=True))
        slack = self._supplies(rate, dues) - np.cumsum(lengths)
        return bool((slack >= -self._near(due))[dues >= due].all())

    def behind_all(self, work: float) -> float:
        """Return a due time at which so many processor seconds fit behind all promises; inf: there is none."""
        if self.rate <= 0.0:
            return inf
        entries = list(self)
        needed = work + sum(length for _, length in entries)
        low = high = self._at + needed / self.rate
        if self._steps is not None:
            starts, ends, counts = self._steps
            high += float(((ends - np.maximum(starts, self._at)) * np.minimum(counts, self.rate)).sum()) / self.rate
        while high - low > 1.0:
            middle = (low + high) / 2.0
            low, high = (low, middle) if self._supply(middle) >= needed else (middle, high)
        return max([high, *(order[0] for order, _ in entries[-1:])])

    def resize(self, rate: float, windows: Iterable[BookedSpan]) -> None:
        """Let the part have another size, and these windows, from now on."""
        windows = tuple(windows)
        if (rate, windows) == (self.rate, self.windows):
            return
        before = list(self)
        self.rate, self.windows = rate, windows
        self._calendar = Calendar(windows)
        columns = [np.array(column, dtype=np.float64) for column in zip(*self._calendar.windows(), strict=True)]
        self._steps = (columns[0], columns[1], columns[2]) if columns else None
        self._index = SlackIndex()
        for order, length in before:
            self._index.insert_behind(order, length, self._supply(order[0]))

    def free_in(self, start: float, end: float) -> float:
        """Return the processors of the part that no window has, at the worst moment of a time."""
        return self.rate - self._calendar.most(start, end)

    def keeps_with(self, window: BookedSpan) -> bool:
        """Whether all promises would still fit if a window took its processors."""
        self._settle()
        start = max(window.start, self._at)
        for order, _, slack in self._index:
            lost = window.processors * max(0.0, min(window.end, order[0]) - start)
            if lost > 0.0 and slack < lost - self._near(order[0]):
                return False
        return True

    def promised(self, now: float, capacity: float) -> float:
        """Return the part of the whole pool that is promised: the most until any of the due times, or in a window."""
        self.advance(now)
        entries = [(order[0], length) for order, length in self]
        most = self._calendar.most(now, inf) / capacity if self._steps else 0.0
        if not entries:
            return most
        dues, lengths = (np.array(column) for column in zip(*entries, strict=True))
        return max(most, float((np.cumsum(lengths) / (capacity * (dues - self._at))).max()))

    def _surely_fits(self, due: float, work: float) -> bool:
        """Whether work fits even if all that is promised were due before: then what is due later fits behind it.

        After a time without work, sums are not enough.
        """
        total = self._index.total
        return self._supply(self._now) <= total and work <= self._supply(due) - total

    def _settle(self) -> None:
        """Let the ideal processor work until now."""
        if self._at == self._now:
            return
        done, self._at = self._supply(self._now), self._now
        while len(self._index):
            order, length, _ = next(iter(self._index))
            spent = min(length, done)
            if spent < length and order[0] > self._now:
                self._index.shorten(order, length - spent, spent=spent)
                break
            self._index.remove(order, spent=spent)
            done -= spent

    def _supply(self, until: float) -> float:
        """Return the processor seconds that the part does until a time, without those of its windows."""
        if self._steps is None:
            return self.rate * (until - self._at)
        return float(self._supplies(self.rate, np.array([until]))[0])

    def _supplies(self, rate: float, until: Floats) -> Floats:
        found = rate * (until - self._at)
        for start, end, count in zip(*self._steps, strict=True) if self._steps else ():
            found = found - min(count, rate) * np.maximum(0.0, np.minimum(end, until) - max(start, self._at))
        return found

    def _near(self, due: float) -> float:
        return 2.0 * tolerance(due) * max(1.0, self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What may be promised to one namespace at one time."""

    namespace: str
    now: float
    latest: float = inf
    """The latest deadline."""
    share: float = 1.0
    capacity: float = 0.0
    """Processors of the whole pool, each counted by its speed."""
    account: Account | None = None
    """None: it may have all of the pool."""

    @property
    def is_void(self) -> bool:
        """Whether it limits nothing."""
        return self.account is None and self.latest == inf

    def work(self, demand: Demand) -> float:
        """Return the processor seconds that a demand takes off the share: its work, and the set-ups that it must have.

        These are one for each processor that it needs at least, or begins with.
        """
        return self._work(demand, demand.due)

    def _work(self, demand: Demand, due: float) -> float:
        setup, work = demand.cost.setup, demand.work
        seconds = due - self.now - setup
        processors = ceil(work / seconds) if seconds > 0.0 else 1
        if processors > 1 or demand.least > 1:
            processors = min(max(demand.least, processors), max(1, demand.ranges.total))
        return work + max(1, processors) * setup + demand.reduce

    def spare(self, demand: Demand) -> float:
        """Return the processor seconds that are left of the share until a demand is due."""
        return inf if self.account is None else self.account.spare(demand.due)

    def in_time(self, deadline: float) -> bool:
        """Whether a deadline is not too far ahead."""
        return deadline <= self.latest

    def fits(self, demand: Demand) -> bool:
        """Whether neither the horizon nor the share refuses a demand."""
        return self.in_time(demand.due + demand.kept_back) and self.within_share(demand)

    def within_share(self, demand: Demand) -> bool:
        """Whether the share is enough for a demand."""
        return self.account is None or self.account.fits(demand.due, self.work(demand))

    def fits_with(self, more: int, demand: Demand) -> bool:
        """Whether the share is enough with further processors."""
        rate = self.share * (self.capacity + more)
        return self.account is None or self.account.fits_at(rate, demand.due, self.work(demand))

    def over(self, demand: Demand) -> float:
        """Return a due time with which the demand fits the share behind all promises; inf: there is none."""
        if self.account is None:
            return -inf
        soon = self.account.behind_all(self._work(demand, inf))
        return self.account.behind_all(self._work(demand, soon))  # a later one needs no more processors


class ShareUse(NamedTuple):
    """How much of a pool's capacity is promised to a namespace. Both are parts of the whole pool."""

    namespace: str
    promised: float
    """The most until any of its due times, or in one of its windows."""
    share: float
    """What may be."""


class Booking(NamedTuple):
    """A promise on the account of its namespace."""

    namespace: str
    order: Turn
    deadline: float
    work: float
    """Processor seconds when it was booked ..."""
    units: int
    """... and units that were to be done then."""


class Shares:
    """The accounts of all namespaces that may have less than the whole pool."""

    def __init__(self) -> None:
        self.tenancy = Tenancy()
        self.active = False
        """Whether any namespace may have less than the whole pool."""
        self.capacity = 0.0
        self.accounts: dict[str, Account] = {}
        self.bookings: dict[str, Booking] = {}
        """By job's uid."""
        self.touched: dict[str, None] = {}
        """Uids of jobs with records that may have changed since the accounts were last brought up to date."""
        self._made = 0
        self._limits: dict[str, Limit] = {}
        """Limits of namespaces at the time that was asked about last."""

    def touch(self, uid: str) -> None:
        """Note that a job's record may have changed."""
        if self.active:
            self.touched[uid] = None

    def put_in_force(self, now: float, tenancy: Tenancy, capacity: float) -> bool:
        """Let accounts follow the spec and the pool's capacity; return whether all promises must be booked anew."""
        if tenancy == self.tenancy and capacity == self.capacity:
            return False
        anew = tenancy != self.tenancy
        self.tenancy, self.active, self.capacity = tenancy, tenancy.limits_shares, capacity
        self._limits.clear()
        for namespace, account in list(self.accounts.items()):
            account.advance(now)
            if tenancy.share_of(namespace) < 1.0:
                account.resize(tenancy.share_of(namespace) * capacity, account.windows)
            else:
                del self.accounts[namespace]
        if anew:
            self.bookings = {uid: b for uid, b in self.bookings.items() if b.namespace in self.accounts}
        return anew

    def account(self, namespace: str, now: float) -> Account | None:
        """Return the account of a namespace as it is now; None: it may have all of the pool."""
        if (found := self.accounts.get(namespace)) is None:
            share = self.tenancy.share_of(namespace)
            if share >= 1.0:
                return None
            found = self.accounts[namespace] = Account(share * self.capacity, now)
        found.advance(now)
        return found

    def use(self, now: float) -> list[ShareUse]:
        """Return what is promised to the namespaces that may have less than all, by name. Nothing changes."""
        limited = {name for name, share in self.tenancy.own if share < 1.0} | self.accounts.keys()
        found = []
        for name in sorted(limited):
            account = self.accounts.get(name)
            promised = account.promised(now, self.capacity) if account and self.capacity else 0.0
            found.append(ShareUse(name, promised, self.tenancy.share_of(name)))
        return found

    def limit(self, namespace: str, now: float, *, inside: bool = False) -> Limit:
        """Return what may be promised to a namespace now. ``inside``: in a reserved window, which has its share."""
        if not inside and (known := self._limits.get(namespace)) is not None and known.now == now:
            return known
        limit = Limit(
            namespace=namespace,
            now=now,
            latest=now + self.tenancy.horizon,
            share=self.tenancy.share_of(namespace),
            capacity=self.capacity,
            account=None if inside else self.account(namespace, now),
        )
        if not inside:
            self._limits[namespace] = limit
        return limit

    def book(self, uid: str, limit: Limit, *, deadline: float, due: float, work: float, units: int) -> None:
        """Put a promise on the account of its namespace, if that has one."""
        if limit.account is None:
            return
        self._made += 1
        order = due, float(self._made), uid
        limit.account.add(order, work)
        self.bookings[uid] = Booking(limit.namespace, order, deadline, work, units)

    def move(self, uid: str, now: float, *, deadline: float, due: float) -> None:
        """Give a promise another deadline."""
        booking = self.bookings[uid]
        if (account := self.account(booking.namespace, now)) is None:
            return
        self._made += 1
        order = due, float(self._made), uid
        if (left := account.left(booking.order)) > 0.0:
            account.take_off(booking.order, left)
            account.add(order, left)
        self.bookings[uid] = booking._replace(order=order, deadline=deadline)

    def may_move(self, uid: str, limit: Limit, due: float) -> bool:
        """Whether a promise may be due earlier by the share of its namespace. Nothing changes."""
        booking, account = self.bookings.get(uid), limit.account
        if booking is None or account is None:
            return True
        return account.fits_at(account.rate, due, account.left(booking.order), but=booking.order)

    def end(self, uid: str, undone: int) -> None:
        """Take a promise that has ended off the books. So many of its units will not be done.

        What was done stays on the account for as long as the ideal processor needs.
        """
        if (booking := self.bookings.pop(uid, None)) is not None and booking.namespace in self.accounts:
            if not undone and booking.units:
                return
            part = min(1.0, undone / booking.units) if booking.units else 1.0
            self.accounts[booking.namespace].take_off(booking.order, part * booking.work)

    def reserve(self, namespace: str, now: float, windows: Iterable[BookedSpan]) -> None:
        """Let these be the windows of a namespace."""
        if (account := self.account(namespace, now)) is not None:
            account.resize(account.rate, windows)
