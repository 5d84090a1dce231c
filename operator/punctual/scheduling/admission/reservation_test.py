"""Admission test for reservations: which are accepted, on which processors, and when (Mamat 2011, ch. 5).

A reservation is refused if fewer processors than requested are free at some time of its window, if its input would be
sent at the same time as another reservation's (OnePort), or if a promised job would no longer fit around it (algs. 1
and 2).

A reservation gets its processors when it is accepted, and keeps them. Jobs are placed around windows of fixed places, a
user can rely on the places named in the answer, and nothing has to be moved later. The price: fixed windows can leave
enough processors at each time, but not the same ones throughout. Such a reservation is refused, although the paper's
count of free processors would accept it: it cannot be held without moving others. To make this rare, and to disturb
jobs least, the reservation gets, of all places that are free throughout, those with the least work planned in its
window, and of these the ones that would be idle for the shortest time before it.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual import reasons
from punctual.scheduling.admission.application import share_of
from punctual.scheduling.admission.exact import broken
from punctual.scheduling.admission.shares import Limit
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.calendar import BookedSpan, Calendar
from punctual.scheduling.placement.plan import Plan
from punctual.theory.tolerance import tolerance

EARLIER = 1e-6
"""Resolution of an offered window: no window this much nearer, relative to now, is accepted."""
ROUNDS = 8
"""Maximum number of times that a result of bisection is improved before it is offered."""


class BookedReservation(NamedTuple):
    """An accepted reservation and its places: fewer than requested after nodes were lost."""

    reservation: Reservation
    places: tuple[Place, ...]


class AcceptedReservation(NamedTuple):
    """The reservation with its places, and the plan of all promised jobs around it; nothing is booked yet."""

    held: BookedReservation
    plan: Plan


class Refused(NamedTuple):
    """Reason for a refusal."""

    reason: str
    message: str


@dataclass(slots=True)
class BookedReservations:
    """All accepted reservations that are not over."""

    held: dict[str, BookedReservation] = field(default_factory=dict)
    calendar: Calendar = field(default_factory=Calendar)
    """Reserved processors over time."""
    port: Calendar = field(default_factory=Calendar)
    """Times at which inputs of reservations are sent: 0 or 1 at a time."""
    clearance: float = 0.0
    """Seconds before a window, and before its end, in which no planned work may run, and before the transfer of its
    input, in which nothing may be sent."""
    _groups: dict[str, int] = field(default_factory=dict)
    """Numbers of the groups that jobs can name."""
    _number: dict[Place, int] = field(default_factory=dict)
    """Number of each place that ever had a window; the arrays below hold these, one entry per window and place."""
    _where: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    _start: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _end: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _owner: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def book(self, held: BookedReservation) -> None:
        """Add an accepted reservation."""
        r = held.reservation
        if r.uid in self.held:
            raise ValueError(f"{r.uid} is already booked")
        self.held[r.uid] = held
        if held.places:
            self.calendar.book(BookedSpan(r.start, r.end, len(held.places)))
        if r.sends:
            self.port.book(BookedSpan(r.start, r.sent, 1))
        numbers = [self._number.setdefault(place, len(self._number)) for place in held.places]
        self._where = np.concatenate((self._where, np.array(numbers, dtype=np.intp)))
        self._start = np.concatenate((self._start, np.full(len(numbers), r.start)))
        self._end = np.concatenate((self._end, np.full(len(numbers), r.end)))
        self._owner = np.concatenate((self._owner, np.full(len(numbers), self.number(r.group))))

    def release(self, uid: str) -> None:
        """Remove a reservation; KeyError if there is none."""
        r, places = self.held.pop(uid)
        if places:
            self.calendar.release(BookedSpan(r.start, r.end, len(places)))
        if r.sends:
            self.port.release(BookedSpan(r.start, r.sent, 1))
        mine = np.isin(self._where, [self._number[place] for place in places])
        keep = ~(mine & (self._start == r.start) & (self._end == r.end))
        self._where, self._start, self._end = self._where[keep], self._start[keep], self._end[keep]
        self._owner = self._owner[keep]
        if not self.held:
            self._number.clear()
            self._groups.clear()

    def forget(self, until: float) -> bool:
        """Drop reservations that are over; return whether there was one."""
        over = [uid for uid, held in self.held.items() if held.reservation.end <= until]
        for uid in over:
            self.release(uid)
        return bool(over)

    def number(self, group: str) -> int:
        """Return the number that placement uses for the group that a job may name."""
        return self._groups.setdefault(group, len(self._groups))

    def inside(self, group: str) -> tuple[int, float] | None:
        """Return that number, and when the last of its windows ends; None: it has none (any more)."""
        ends = [held.reservation.end for held in self.held.values() if held.reservation.group == group]
        return (self.number(group), max(ends)) if ends else None

    def on(self, places: Sequence[Place], discipline: Discipline) -> Blackouts | None:
        """Return the blackouts of a timeline of these places; None: there are none."""
        if not self.held:
            return None
        index = {place: i for i, place in enumerate(places)}
        where = np.array([index.get(place, -1) for place in self._number], dtype=np.intp)[self._where]
        there = where >= 0
        sending: list[tuple[float, float]] = []
        if discipline.one_port:
            sending = [(r.start, r.sent) for r, _ in self.held.values() if r.sends]
        return Blackouts.of(
            len(places),
            where[there],
            self._start[there],
            self._end[there],
            sending,
            owner=self._owner[there],
            clearance=self.clearance,
        )

    def free(self, places: Sequence[Place], start: float, end: float) -> NDArray[np.bool_]:
        """Return which places have no window over [start, end)."""
        taken = np.zeros(len(self._number) + 1, dtype=bool)  # the last entry: places that never had a window
        taken[self._where[(self._start < end) & (self._end > start)]] = True
        none = len(self._number)
        return ~taken[[self._number.get(place, none) for place in places]]

    def sendable(self, at: float, seconds: float) -> float:
        """Return the time from which, not before ``at``, no reservation keeps the port for so long (OnePort)."""
        free = self.port.next_window(1, seconds, capacity=1, not_before=at)
        assert free is not None  # there is a gap after all bookings
        return free

    def open_at(self, at: float) -> int:
        """Return the number of processors of the windows that are open then."""
        return int(np.count_nonzero((self._start <= at) & (at < self._end)))

    def begins_after(self, at: float) -> float:
        """Return the first begin of a window after ``at``; inf: there is none."""
        return float(self._start[self._start > at].min(initial=inf))

    def ends_after(self, at: float) -> float:
        """Return the first end of a window after ``at``; inf: there is none."""
        return float(self._end[self._end > at].min(initial=inf))


def admit(
    asked: Reservation, ahead: BookedReservations, plan: Plan, now: float, limit: Limit | None = None
) -> AcceptedReservation | Refused:
    """Return the places of the reservation and the plan that keeps every promise around it, or the first obstacle.

    The plan's timeline contains the blackouts of `BookedReservations.on`. ``limit``: what may be promised to its
    namespace; None: whatever the pool can do.
    """
    where = _room(asked, ahead, plan, now)
    if isinstance(where, Refused):
        return where
    if limit is not None and (why := exceeds_share(asked, where.size, limit)):
        return Refused(reasons.SHARE_USED_UP, why)
    held = BookedReservation(asked, tuple(plan.places[i] for i in where.tolist()))
    timeline = replace(plan.timeline, blackouts=_with(plan, ahead, where, asked))
    kept = plan.retimed(timeline)
    if not _moved(plan, kept):
        return AcceptedReservation(held, kept)
    anew, missed = Plan.of(plan.places, timeline, plan.demands, stop=True)
    if not missed:
        return AcceptedReservation(held, anew)
    if kept.keeps_all():
        return AcceptedReservation(held, kept)
    return Refused(
        reasons.INFEASIBLE_RESERVATION,
        f"{some(where.size, 'processor')} from {span(asked.start - now)} on for {span(asked.end - asked.start)} "
        f"would break an earlier promise: {broken(plan.demands, missed[0], now)}",
    )


def exceeds_share(asked: Reservation, processors: int, limit: Limit) -> str | None:
    """Return why a window takes more than the share of its namespace, if it does."""
    if (account := limit.account) is None:
        return None
    window = (
        f"{some(processors, 'processor')} from {span(asked.start - limit.now)} on for {span(asked.end - asked.start)}"
    )
    free = account.free_in(asked.start, asked.end)
    if processors > free + tolerance(1.0):
        return f"{window}: {share_of(limit)}, and {max(0.0, free):.4g} of those are left in this time"
    if not account.keeps_with(BookedSpan(asked.start, asked.end, processors)):
        return f"{window}: {share_of(limit)}, and jobs of it that are promised need those by their deadlines"
    return None


def _with(plan: Plan, ahead: BookedReservations, where: NDArray[np.intp], asked: Reservation) -> Blackouts:
    """Return the blackouts of the plan's timeline, this reservation included."""
    blackouts = plan.timeline.blackouts
    if blackouts is None:
        none = np.empty(0)
        blackouts = Blackouts.of(len(plan.places), np.empty(0, dtype=np.intp), none, none, clearance=ahead.clearance)
    sent = asked.sent if plan.timeline.discipline.one_port else asked.start
    return blackouts.plus(where, asked.start, asked.end, sent, owner=ahead.number(asked.group))


def _room(asked: Reservation, ahead: BookedReservations, plan: Plan, now: float) -> NDArray[np.intp] | Refused:
    """Return the places that it gets whatever becomes of the waiting jobs, or the obstacle."""
    there = _there(asked, plan)
    n = _number(asked, there)
    if why := _objection(asked, there, ahead, plan, now):
        window = f"{some(n, 'processor')} from {span(asked.start - now)} on"
        return Refused(reasons.INFEASIBLE_RESERVATION, f"{window} for {span(asked.end - asked.start)}: {why}")
    throughout = there & ahead.free(plan.places, asked.start, asked.end)
    soonest = max(now, asked.start - ahead.clearance)
    able = throughout & (plan.timeline.ready <= soonest + tolerance(asked.start))
    if np.count_nonzero(able) < n:
        if np.count_nonzero(throughout) < n:
            why = f"enough are free at each time, but only {np.count_nonzero(throughout)} from start to end"
        else:
            why = f"running chunks will still occupy all but {np.count_nonzero(able)}"
        return Refused(reasons.INFEASIBLE_RESERVATION, f"{some(n, 'processor')}: {why}")
    since = plan.timeline.ready
    if plan.timeline.blackouts is not None:
        since = np.maximum(since, plan.timeline.blackouts.idle_since(asked.start))
    best = np.lexsort((-since, np.where(able, _disturbed(asked, plan), inf)))[:n]
    return np.sort(best)


def _there(asked: Reservation, plan: Plan) -> NDArray[np.bool_]:
    """Return which places are on its nodes, without those that are there for jobs that name them."""
    closed = plan.timeline.sites.closed
    if asked.nodes is None and not closed:
        return np.ones(len(plan.places), dtype=bool)
    wanted = (asked.nodes is None or place.node in asked.nodes for place in plan.places)
    return np.array([so and p.node not in closed for so, p in zip(wanted, plan.places, strict=True)], dtype=bool)


def _total(plan: Plan) -> int:
    """Return the number of processors that can be reserved."""
    closed = plan.timeline.sites.closed
    return sum(place.node not in closed for place in plan.places) if closed else len(plan.places)


def _number(asked: Reservation, there: NDArray[np.bool_]) -> int:
    """Return the number of places that it requests, of those ``there`` on its nodes."""
    return asked.processors or int(np.count_nonzero(there))


def _objection(
    asked: Reservation, there: NDArray[np.bool_], ahead: BookedReservations, plan: Plan, now: float
) -> str | None:
    """Return the obstacle found by counting processors, those ``there`` on its nodes, and the port's transfers."""
    total, own = _total(plan), int(np.count_nonzero(there))
    n = _number(asked, there)
    if asked.start < now:
        return "the window has already begun"
    if n == 0 or n > own:
        return f"the pool has {own}" if asked.nodes is None else f"the {some(len(asked.nodes), 'node')} selected: {own}"
    booked = ahead.calendar.most(asked.start, asked.end)
    if total - booked < n:
        return f"at some time in it, {booked} of {total} are reserved"
    if plan.timeline.discipline.one_port and asked.sends:
        if ahead.port.most(asked.start, asked.sent):
            return "its input would be sent at the same time as another reservation's"
        if plan.timeline.port > asked.start + tolerance(asked.start):
            return f"running transfers occupy the port for {span(plan.timeline.port - now)} from now"
    return None


def _moved(before: Plan, after: Plan) -> bool:
    """Whether the times of any chunk or reduce step changed."""
    return any(
        abs(a.finish - b.finish) > tolerance(b.finish) or (np.abs(a.starts - b.starts) > tolerance(b.finish)).any()
        for a, b in zip(after, before, strict=True)
    )


def _disturbed(asked: Reservation, plan: Plan) -> NDArray[np.float64]:
    """Return the seconds of the window that jobs are planned for, by place."""
    seconds = np.zeros(len(plan.places))
    for b in plan:
        over = np.minimum(b.ends, asked.end) - np.maximum(b.starts, asked.start)
        np.add.at(seconds, b.where, np.maximum(over, 0.0))
        if b.reducer is not None:
            begin = max(b.finish - b.demand.reduce, asked.start)
            seconds[b.reducer] += max(0.0, min(b.finish, asked.end) - begin)
    return seconds


def next_start(
    asked: Reservation, ahead: BookedReservations, plan: Plan, now: float, *, not_before: float
) -> float | None:
    """Return the earliest start from which the window fits beside other reservations; None: there is none."""
    n = _number(asked, _there(asked, plan))
    length, at = asked.end - asked.start, max(not_before, now)
    if n == 0:
        return None
    sends = plan.timeline.discipline.one_port and asked.sends
    if sends:
        at = max(at, plan.timeline.port)
    while True:
        start = ahead.calendar.next_window(n, length, capacity=_total(plan), not_before=at)
        if start is None:
            return None
        if sends:
            gap = ahead.port.next_window(1, asked.sent - asked.start, capacity=1, not_before=start)
            if gap is not None and gap > start:
                at = gap
                continue
        for exact in (start, start + tolerance(start)):  # touching windows that are moved: their ends are rounded again
            if not isinstance(_room(asked.at(exact), ahead, plan, now), Refused):
                return exact
        ready = plan.timeline.ready + ahead.clearance
        at = min(ahead.ends_after(start), float(ready[ready > start].min(initial=inf)))
        if at == inf:
            return None


class _Starts(NamedTuple):
    """The same window at other starts."""

    asked: Reservation
    ahead: BookedReservations
    plan: Plan
    now: float
    limit: Limit | None

    def room(self, not_before: float) -> float:
        """Return the next start that fits beside other reservations; inf: there is none."""
        found = next_start(self.asked, self.ahead, self.plan, self.now, not_before=not_before)
        return inf if found is None else found

    def fits(self, start: float) -> bool:
        """Whether the window is accepted at this start."""
        asked = self.asked.at(start)
        return isinstance(admit(asked, self.ahead, self.plan, self.now, self.limit), AcceptedReservation)

    def some_later(self, start: float) -> Generator[None, None, float]:
        """Search a start that no job prevents, after one that a job prevents; inf: there is none."""
        step = self.asked.end - self.asked.start
        while start < inf:
            start = self.room(start + step)
            yield
            if start < inf and self.fits(start):
                break
            step *= 2.0
        return start

    def between(self, low: float, high: float) -> Generator[None, None, float]:
        """Search, by bisection, an accepted start earlier than ``high`` (accepted) and later than ``low`` (refused)."""
        top = high  # from here to ``high`` the window does not fit
        while top - low > max(EARLIER / 10.0 * (high - self.now), tolerance(high)):
            middle = low + (top - low) / 2.0
            at = self.room(middle)
            if at >= high:
                top = middle
                continue
            yield
            if self.fits(at):
                high = top = at
            else:
                low = at
        return high


def nearest(
    asked: Reservation, ahead: BookedReservations, plan: Plan, now: float, limit: Limit | None = None
) -> Generator[None, None, float | None]:
    """Search the earliest accepted start, not before the requested one; None: there is none.

    A start one millionth nearer to now is not accepted. Each ``next`` costs at most one test, some 60 a round.
    """
    account = None if limit is None else limit.account
    if account is not None and _number(asked, _there(asked, plan)) > account.rate + tolerance(1.0):
        return None
    starts = _Starts(asked, ahead, plan, now, limit)
    first = starts.room(asked.start)
    yield
    if first == inf or starts.fits(first):
        return first if first < inf else None
    high = yield from starts.some_later(first)
    if high == inf:
        return None
    for _ in range(ROUNDS):
        high = yield from starts.between(first, high)
        nearer = now + (high - now) * (1.0 - EARLIER)
        yield
        if nearer <= first or not starts.fits(nearer):
            break
        high = nearer
    return high
