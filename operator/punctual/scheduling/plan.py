"""Who computes what, where and when: the bookings of all promised jobs.

A plan is made by placing one demand after the other, in the pool's order, upon the times at which processors become
ready (:mod:`punctual.scheduling.placement`). Admission asks for a plan with one more demand; the Pool keeps a new plan
only if it keeps every promise.

A plan stays valid as time goes on while processors do as booked; ``retimed`` tells what it has become where not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError
from punctual.scheduling.placement import Booking, Demand, Ground, Shortfall, place, tolerance
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Range

Floats = NDArray[np.float64]


def _nothing() -> Ground:
    return Ground(np.empty(0))


@dataclass(frozen=True, slots=True)
class Plan:
    """Bookings over places that are free from ``ground`` on; on each place they follow each other as given."""

    places: tuple[Place, ...] = ()
    ground: Ground = field(default_factory=_nothing)
    bookings: tuple[Booking, ...] = ()
    after: Ground = field(default_factory=_nothing)
    """The ground behind the last booking."""

    @classmethod
    def of(
        cls, places: Sequence[Place], ground: Ground, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands by their order; a demand that cannot be placed in time is left out and told.

        ``stop`` at the first of those: the plan is of no use then.
        """
        return cls.in_turn(places, ground, sorted(demands, key=lambda d: d.order), stop=stop)

    @classmethod
    def in_turn(
        cls, places: Sequence[Place], ground: Ground, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands in the order given, else like :meth:`of`."""
        after = ground.copy()
        bookings: list[Booking] = []
        missed: list[Shortfall] = []
        for demand in demands:
            got = place(demand, after)
            if isinstance(got, Shortfall):
                missed.append(got)
                if stop:
                    break
                continue
            after.take(got)
            bookings.append(got)
        return cls(tuple(places), ground, tuple(bookings), after), tuple(missed)

    def at(self, now: float) -> "Plan":
        """Return the plan as a demand placed at ``now`` meets it: no processor is ready in the past."""
        return replace(self, ground=self.ground.at(now), after=self.after.at(now))

    def held(self, until: Floats) -> "Plan":
        """Return the plan where processors that nobody has booked are not ready before these times."""
        free = np.ones(len(self.places), dtype=bool)
        for b in self.bookings:
            free[b.where] = False
            if b.reducer is not None:
                free[b.reducer] = False
        ready = np.where(free, np.maximum(self.ground.ready, until), self.ground.ready)
        after = np.where(free, ready, self.after.ready)
        return replace(self, ground=replace(self.ground, ready=ready), after=replace(self.after, ready=after))

    def insert(self, demand: Demand) -> "Plan | Shortfall":
        """Return a plan with one more demand that keeps every booking in time, or what stands in its way.

        Behind all bookings first: if it is in time there, nothing else moves, O(N). Else the whole queue is placed
        anew in its order, O(W N): that is the test, and what it refuses is refused. Load that no order could finish is
        refused at once.
        """
        plan = self.append(demand)
        if isinstance(plan, Plan) or not self.bookings:
            return plan
        cheap = 1 + len(self.bookings) // 32  # a look at a booking costs so much less than placing it
        if self.overloaded(demand):
            return plan._replace(placements=cheap)
        anew = self.insert_all((demand,))
        return anew if isinstance(anew, Plan) else anew._replace(placements=cheap + 1 + len(self.bookings))

    def append(self, demand: Demand) -> "Plan | Shortfall":
        """Return a plan with one more demand behind all bookings, of which none moves."""
        after = self.after.copy()
        behind = place(demand, after)
        if isinstance(behind, Shortfall):
            return behind
        after.take(behind)
        return Plan(self.places, self.ground, (*self.bookings, behind), after)

    def insert_all(self, demands: Iterable[Demand]) -> "Plan | Shortfall":
        """Return a plan with more demands, the whole queue placed anew, or the first that is missed then."""
        plan, missed = Plan.of(self.places, self.ground, (*(b.demand for b in self.bookings), *demands), stop=True)
        return missed[0] if missed else plan

    def fits(self, demand: Demand) -> bool:
        """Whether the demand would be admitted."""
        return bool(self.places) and not isinstance(self.insert(demand), Shortfall)

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline: due time and place in the order move."""
        return self.ground.under(demand, deadline)

    def over(self, demand: Demand) -> float:
        """Return when the demand would be done behind all others, on one processor alone."""
        alone = demand.cost.seconds(demand.ranges.total) + demand.cost.setup * len(demand.ranges.parts)
        return max(float(self.after.ready.max(initial=0.0)), demand.not_before) + alone

    def overloaded(self, demand: Demand) -> bool:
        """Whether more work is due by the demand's due time than all processors could do until then."""
        due = demand.due
        work = sum(b.demand.work for b in self.bookings if b.demand.due <= due) + demand.work
        quickest = 1.0 if self.ground.speeds is None else min(1.0, float(self.ground.speeds.min()))
        room = np.maximum(due - self.ground.ready, 0.0)
        return work * quickest > float(room.sum()) + room.size * tolerance(due)

    def upon(self, places: Sequence[Place], ground: Ground) -> "Plan | None":
        """Return the same bookings where other places are there to book; None where a booked one is not."""
        at = {place: i for i, place in enumerate(places)}
        index = np.array([at.get(place, -1) for place in self.places], dtype=np.intp)
        bookings = tuple(
            replace(b, where=index[b.where], reducer=None if b.reducer is None else int(index[b.reducer]))
            for b in self.bookings
        )
        if any((b.where < 0).any() or b.reducer == -1 for b in bookings):
            return None
        return Plan(tuple(places), ground, bookings, ground).retimed(ground)

    def retimed(self, ground: Ground) -> "Plan":
        """Return the same bookings where processors are ready at other times: ends move, shares do not."""
        after = ground.copy()
        bookings = []
        for b in self.bookings:
            new = b.retimed(after)
            after.take(new)
            bookings.append(new)
        return Plan(self.places, ground, tuple(bookings), after)

    def created(self, booking: Booking, chunks: Mapping[int, Range], ends: Sequence[float], port: float) -> "Plan":
        """Return the plan when chunks of a booking have been created: their processors are busy until ``ends``.

        ``port``: when the last of their transfers ends.
        """
        left = booking.created(chunks, ends)
        ground = self.ground.copy()
        ground.ready[booking.where[list(chunks)]] = ends
        ground.port = max(ground.port, port)
        bookings = tuple(left if b is booking else b for b in self.bookings)
        return replace(self, ground=ground, bookings=tuple(b for b in bookings if b is not None))

    def booking_of(self, uid: str) -> Booking:
        """Return a job's booking; KeyError where it has none."""
        for booking in reversed(self.bookings):  # the newest is asked for most
            if booking.demand.order.uid == uid:
                return booking
        raise KeyError(uid)

    def books(self, uid: str) -> bool:
        """Whether anything is booked for a job."""
        return any(b.demand.order.uid == uid for b in self.bookings)

    def without(self, uid: str) -> "Plan":
        """Return the plan without a job's booking; the others stay where they are."""
        return replace(self, bookings=tuple(b for b in self.bookings if b.demand.uid != uid))

    def keeps_all(self) -> bool:
        """Whether every booking ends by its due time."""
        return all(b.finish - b.demand.reduce <= b.demand.due + tolerance(b.demand.due) for b in self.bookings)

    def check(self) -> None:
        """Raise InvariantError where chunks on one processor or transfers overlap, or a demand is not covered."""
        free = self.ground.copy()
        for b in self.bookings:
            if int(b.cuts[-1]) != b.demand.ranges.total or (np.diff(b.cuts) <= 0).any():
                raise InvariantError(f"{b.demand.uid}: chunks do not cover the load")
            if free.around is not None:
                free.around.check(b, free)
                free.take(b)
                continue
            if b.where.size and (b.starts < free.ready[b.where] - tolerance(b.finish)).any():
                raise InvariantError(f"{b.demand.uid}: a chunk starts before its processor is free")
            if len(set(b.where.tolist())) != b.where.size:
                raise InvariantError(f"{b.demand.uid}: one processor is booked twice")
            if free.discipline.one_port and b.where.size:
                sent = b.starts + b.demand.cost.theta_cm + np.diff(b.cuts) * b.demand.cost.tau
                if (b.starts < np.concatenate(([free.port], sent[:-1])) - tolerance(b.finish)).any():
                    raise InvariantError(f"{b.demand.uid}: two transfers overlap")
            free.take(b)
