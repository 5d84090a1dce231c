"""Processors booked ahead over a window, beside jobs: who is accepted, where, and when it would be (Mamat 2011, ch. 5).

A reservation is refused where fewer processors than asked are free at some time of its window, where its input would be
sent while that of another is (OnePort), or where a job that was promised would fit no more around it (algs. 1 and 2).

It gets its processors when it is accepted, and keeps them: jobs are placed around windows of given places, whoever is
told the answer can rely on the places named in it, and nothing has to be moved later. The price: windows that are kept
where they are can leave enough processors at each time but not the same ones throughout; then it is refused, where the
paper's count of free processors would accept what cannot be held without moving others. To have that seldom, and to
disturb jobs least, it gets of all places that are free throughout those on which least is booked in its window, and of
these the ones that would be idle for the shortest time before it.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.calendar import BookedSpan, Calendar
from punctual.scheduling.placement.plan import Plan
from punctual.theory.tolerance import tolerance

EARLIER = 1e-6
"""How much nearer, relative to now, no window may be than the one that is offered."""
ROUNDS = 8
"""How often what bisection found is found to be beatable before it is offered all the same."""


class BookedReservation(NamedTuple):
    """A reservation that was accepted, and the places that it has: fewer than it asked for where nodes went."""

    reservation: Reservation
    places: tuple[Place, ...]


class Accepted(NamedTuple):
    """The reservation with its places, and the plan of all promised jobs around it; nothing is booked yet."""

    held: BookedReservation
    plan: Plan


class Refused(NamedTuple):
    """Why not."""

    reason: str
    message: str


@dataclass(slots=True)
class BookedReservations:
    """All reservations that are accepted and not over."""

    held: dict[str, BookedReservation] = field(default_factory=dict)
    calendar: Calendar = field(default_factory=Calendar)
    """Processors booked over time."""
    port: Calendar = field(default_factory=Calendar)
    """When inputs of reservations are sent: 0 or 1 at a time."""
    clearance: float = 0.0
    """Seconds before a window, and before its end, in which nothing planned may still run, nor be sent before its
    input is."""
    _groups: dict[str, int] = field(default_factory=dict)
    """Numbers of what jobs can name."""
    _number: dict[Place, int] = field(default_factory=dict)
    """Of each place that ever had a window; arrays below hold these, one entry per window and place."""
    _where: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    _start: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _end: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    _owner: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def book(self, held: BookedReservation) -> None:
        """Book what was accepted."""
        r = held.reservation
        if r.uid in self.held:
            raise ValueError(f"{r.uid} is booked already")
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
        """Take a booking back; KeyError where there is none."""
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
        """Forget reservations that are over; say whether there was one."""
        over = [uid for uid, held in self.held.items() if held.reservation.end <= until]
        for uid in over:
            self.release(uid)
        return bool(over)

    def number(self, group: str) -> int:
        """Return by which number placement knows what a job may name."""
        return self._groups.setdefault(group, len(self._groups))

    def inside(self, group: str) -> tuple[int, float] | None:
        """Return that number and when the last of its windows ends; None: it has none (any more)."""
        ends = [held.reservation.end for held in self.held.values() if held.reservation.group == group]
        return (self.number(group), max(ends)) if ends else None

    def on(self, places: Sequence[Place], discipline: Discipline) -> Blackouts | None:
        """Return what a ground of these places carries; None: nothing is booked."""
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
        taken = np.zeros(len(self._number) + 1, dtype=bool)  # the last one: places that never had a window
        taken[self._where[(self._start < end) & (self._end > start)]] = True
        none = len(self._number)
        return ~taken[[self._number.get(place, none) for place in places]]

    def sendable(self, at: float, seconds: float) -> float:
        """Return from when on, not before ``at``, the port is kept for nobody for so long (OnePort)."""
        free = self.port.next_window(1, seconds, capacity=1, not_before=at)
        assert free is not None  # behind all bookings it is
        return free

    def ends_after(self, at: float) -> float:
        """Return when the next window ends after ``at``; inf: none does."""
        return float(self._end[self._end > at].min(initial=inf))


def admit(asked: Reservation, ahead: BookedReservations, plan: Plan, now: float) -> Accepted | Refused:
    """Answer: where it is held and what becomes of the plan, in which every promise stands; or the first objection.

    The plan's ground is around what is booked ahead (`Ahead.on`).
    """
    where = _room(asked, ahead, plan, now)
    if isinstance(where, Refused):
        return where
    held = BookedReservation(asked, tuple(plan.places[i] for i in where.tolist()))
    ground = replace(plan.ground, around=_with(plan, ahead, where, asked))
    kept = plan.retimed(ground)
    if not _moved(plan, kept):
        return Accepted(held, kept)
    anew, missed = Plan.of(plan.places, ground, plan.demands, stop=True)
    if not missed:
        return Accepted(held, anew)
    if kept.keeps_all():
        return Accepted(held, kept)
    return Refused(
        reasons.INFEASIBLE_RESERVATION,
        f"{some(where.size, 'processor')} from {span(asked.start - now)} on for {span(asked.end - asked.start)} "
        f"would break an earlier promise: {missed[0].uid} would fit no more",
    )


def _with(plan: Plan, ahead: BookedReservations, where: NDArray[np.intp], asked: Reservation) -> Blackouts:
    """Return what the plan's ground is around, this reservation included."""
    around = plan.ground.around
    if around is None:
        none = np.empty(0)
        around = Blackouts.of(len(plan.places), np.empty(0, dtype=np.intp), none, none, clearance=ahead.clearance)
    sent = asked.sent if plan.ground.discipline.one_port else asked.start
    return around.plus(where, asked.start, asked.end, sent, owner=ahead.number(asked.group))


def _room(asked: Reservation, ahead: BookedReservations, plan: Plan, now: float) -> NDArray[np.intp] | Refused:
    """Return which places it gets whatever becomes of the jobs that wait, or what stands against it."""
    there = _there(asked, plan.places)
    n = _number(asked, there)
    if why := _objection(asked, there, ahead, plan, now):
        window = f"{some(n, 'processor')} from {span(asked.start - now)} on"
        return Refused(reasons.INFEASIBLE_RESERVATION, f"{window} for {span(asked.end - asked.start)}: {why}")
    throughout = there & ahead.free(plan.places, asked.start, asked.end)
    soonest = max(now, asked.start - ahead.clearance)
    able = throughout & (plan.ground.ready <= soonest + tolerance(asked.start))
    if np.count_nonzero(able) < n:
        if np.count_nonzero(throughout) < n:
            why = f"at each time enough are free, but only {np.count_nonzero(throughout)} from its start to its end"
        else:
            why = f"chunks that run now will still run on all but {np.count_nonzero(able)}"
        return Refused(reasons.INFEASIBLE_RESERVATION, f"{some(n, 'processor')}: {why}")
    since = plan.ground.ready
    if plan.ground.around is not None:
        since = np.maximum(since, plan.ground.around.idle_since(asked.start))
    best = np.lexsort((-since, np.where(able, _disturbed(asked, plan), inf)))[:n]
    return np.sort(best)


def _there(asked: Reservation, places: Sequence[Place]) -> NDArray[np.bool_]:
    """Return which places are on its nodes."""
    if asked.nodes is None:
        return np.ones(len(places), dtype=bool)
    return np.array([place.node in asked.nodes for place in places], dtype=bool)


def _number(asked: Reservation, there: NDArray[np.bool_]) -> int:
    """Return how many places it wants, of those ``there`` on its nodes."""
    return asked.processors or int(np.count_nonzero(there))


def _objection(
    asked: Reservation, there: NDArray[np.bool_], ahead: BookedReservations, plan: Plan, now: float
) -> str | None:
    """Return what counting processors, those ``there`` on its nodes, and the port tells against it."""
    total, own = len(plan.places), int(np.count_nonzero(there))
    n = _number(asked, there)
    if asked.start < now:
        return "that has begun already"
    if n == 0 or n > own:
        return f"the pool has {own}" if asked.nodes is None else f"the {some(len(asked.nodes), 'node')} selected: {own}"
    booked = ahead.calendar.most(asked.start, asked.end)
    if total - booked < n:
        return f"at one time of it {booked} of {total} are reserved"
    if plan.ground.discipline.one_port and asked.sends:
        if ahead.port.most(asked.start, asked.sent):
            return "its input would be sent while another reservation's is"
        if plan.ground.port > asked.start + tolerance(asked.start):
            return f"the port sends what was begun until {span(plan.ground.port - now)} from now"
    return None


def _moved(before: Plan, after: Plan) -> bool:
    """Whether a chunk or a reduce step got another time."""
    return any(
        abs(a.finish - b.finish) > tolerance(b.finish) or (np.abs(a.starts - b.starts) > tolerance(b.finish)).any()
        for a, b in zip(after, before, strict=True)
    )


def _disturbed(asked: Reservation, plan: Plan) -> NDArray[np.float64]:
    """Return how many seconds of the window are booked by jobs, by place."""
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
    """Return the earliest start from which on there is room beside other reservations; None: there never is."""
    n = _number(asked, _there(asked, plan.places))
    length, at = asked.end - asked.start, max(not_before, now)
    if n == 0:
        return None
    sends = plan.ground.discipline.one_port and asked.sends
    if sends:
        at = max(at, plan.ground.port)
    while True:
        start = ahead.calendar.next_window(n, length, capacity=len(plan.places), not_before=at)
        if start is None:
            return None
        if sends:
            gap = ahead.port.next_window(1, asked.sent - asked.start, capacity=1, not_before=start)
            if gap is not None and gap > start:
                at = gap
                continue
        for exact in (start, start + tolerance(start)):  # windows that touch, moved: their ends are rounded anew
            if not isinstance(_room(asked.at(exact), ahead, plan, now), Refused):
                return exact
        ready = plan.ground.ready + ahead.clearance
        at = min(ahead.ends_after(start), float(ready[ready > start].min(initial=inf)))
        if at == inf:
            return None


class _Starts(NamedTuple):
    """The same window moved."""

    asked: Reservation
    ahead: BookedReservations
    plan: Plan
    now: float

    def room(self, not_before: float) -> float:
        """Return the next start with room beside other reservations; inf: there never is."""
        found = next_start(self.asked, self.ahead, self.plan, self.now, not_before=not_before)
        return inf if found is None else found

    def fits(self, start: float) -> bool:
        """Whether it is accepted."""
        return isinstance(admit(self.asked.at(start), self.ahead, self.plan, self.now), Accepted)

    def some_later(self, start: float) -> Generator[None, None, float]:
        """Search some start behind one with which a job stands in the way; behind all jobs none does. inf: none."""
        step = self.asked.end - self.asked.start
        while start < inf:
            start = self.room(start + step)
            yield
            if start < inf and self.fits(start):
                break
            step *= 2.0
        return start

    def between(self, low: float, high: float) -> Generator[None, None, float]:
        """Search by bisection an earlier start than ``high``, which is accepted, behind ``low``, which is not."""
        top = high  # from here to ``high`` there is no room
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
    asked: Reservation, ahead: BookedReservations, plan: Plan, now: float
) -> Generator[None, None, float | None]:
    """Search the earliest start, not before the one asked for, with which it is accepted; None: there is none.

    One a millionth nearer to now is not accepted. Each ``next`` costs at most one test, some 60 a round.
    """
    starts = _Starts(asked, ahead, plan, now)
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
