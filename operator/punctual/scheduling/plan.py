"""Who computes what, where and when: the bookings of all promised jobs.

A plan is made by placing one demand after the other, in EDF order, upon the times at which processors become ready;
each takes the least processors that meet its due time (OPR-MN with inserted idle time used; Mamat 2011, ch. 4), cut so
that they end together, rounded to whole units and tested again after rounding. Admission asks for a plan with one more
demand; the Pool keeps a new plan only if it keeps every promise.

A plan stays valid as time goes on while processors do as booked; ``retimed`` tells what it has become where not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError
from punctual.scheduling.processors import Place
from punctual.scheduling.ranges import Range, Ranges
from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import partition

Floats = NDArray[np.float64]
EPSILON = 1e-6
"""Seconds: two sums of the same times may differ by so much on a clock that counts from 1970."""


class Order(NamedTuple):
    """Earliest deadline first; ties by arrival, then uid: never by chance."""

    deadline: float
    arrival: float
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What of a job is still to be placed."""

    order: Order
    ranges: Ranges
    """Units that no chunk owns."""
    cost: Cost
    """With headroom."""
    due: float
    """Chunks must end by then: the deadline less margin and reduce."""
    least: int = 1
    most: int | None = None
    not_before: float = 0.0
    """No chunk may start earlier: processors.max is used up by running ones until then, or its pods are refused."""
    running_until: float = 0.0
    """Latest expected end of its running chunks: the reduce step waits for it."""
    reduce: float = 0.0
    """Seconds of the reduce step, set-up included; 0: none."""

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.order.uid

    @property
    def work(self) -> float:
        """Processor seconds it takes at least."""
        return self.ranges.total * self.cost.per_unit

    def begun(self, owned: Ranges, chunks: int, until: float) -> "Demand":
        """Return what is still to be placed when so many chunks own these units, ``until`` the last of them ends."""
        most, not_before = self.most, self.not_before
        if most is not None and most > chunks:
            most -= chunks
        elif most is not None:
            not_before = max(not_before, until)
        left = self.ranges - owned
        return replace(self, ranges=left, least=1, most=most, not_before=not_before, running_until=until)


@dataclass(slots=True, eq=False)
class Booking:
    """The processors one demand has got. Arrays are aligned: one entry per processor that has a share."""

    demand: Demand
    where: NDArray[np.intp]
    """Indices into the plan's places."""
    cuts: NDArray[np.int64]
    """Cut points over the demand's ranges read as one line; one more than processors."""
    starts: Floats
    ends: Floats
    finish: float
    """Last end, reduce included."""
    reducer: int | None = None
    """Index of the place that the reduce step is booked on."""

    def pieces(self) -> list[list[Range]]:
        """Return what each processor computes: one range, more where the demand has holes."""
        return self.demand.ranges.slices(self.cuts.tolist())

    def created(self, chunks: Mapping[int, Range]) -> "Booking | None":
        """Return what is left of the booking when these chunks, each the next of its processor, have been created.

        ``chunks``: by position in ``where``.
        """
        sizes = np.diff(self.cuts)
        starts = self.starts.copy()
        for position, chunk in chunks.items():
            sizes[position] -= chunk.size
            starts[position] += self.demand.cost.seconds(chunk.size)
        keep = sizes > 0
        if not keep.any() and self.reducer is None:
            return None
        until = max(self.demand.running_until, float(self.ends[list(chunks)].max()))
        return Booking(
            self.demand.begun(Ranges.of(*chunks.values()), len(chunks), until),
            self.where[keep],
            np.concatenate(([0], np.cumsum(sizes[keep]))),
            starts[keep],
            self.ends[keep],
            self.finish,
            self.reducer,
        )

    @property
    def start(self) -> float:
        """When its first chunk starts."""
        return float(self.starts.min()) if self.starts.size else self.finish - self.demand.reduce

    @property
    def processors(self) -> int:
        """How many processors it has."""
        return max(1, self.where.size)

    def occupy(self, ready: Floats) -> None:
        """Move the ready times of its processors behind it."""
        ready[self.where] = self.ends
        if self.reducer is not None:
            ready[self.reducer] = self.finish


class Shortfall(NamedTuple):
    """Why a demand could not be placed: the arithmetic of a rejection."""

    uid: str
    units: int
    fit: int
    """Units that all processors together finish by the due time."""
    needed: int | None
    """Processors that would do if all were free now; None: no number would."""
    processors: int
    usable: int
    """Processors that become ready early enough to finish at least one unit."""
    first_ready: float
    placements: int = 1
    """Placements it took to find out."""


def place(demand: Demand, ready: Floats) -> Booking | Shortfall:
    """Book the least processors that meet the demand's due time, whole units, ends tested after rounding.

    ``ready``: (N,) absolute ready times by place. O(N log N).
    """
    cost, due = demand.cost, demand.due
    units = demand.ranges.total
    if demand.reduce and demand.running_until > due + EPSILON:
        return Shortfall(demand.uid, units, 0, None, ready.size, 0, demand.running_until)
    if units == 0:
        return _place_reduce(demand, ready)
    ready = np.maximum(ready, demand.not_before)
    order = ready.argsort(kind="stable")
    line = ready[order]
    # whole units each can finish by the due time
    room = np.floor((due - cost.setup - line) / cost.per_unit + EPSILON)
    usable = int((room >= 1).sum())
    total = room[:usable].cumsum()
    most = min(usable, demand.most or usable)
    n = max(demand.least, 1 + int(total.searchsorted(units)))
    while n <= most:
        split = partition(units, line[:n], cost)
        cuts = cut_points(split.shares, units)
        sizes = np.diff(cuts)
        starts = line[:n]
        ends = starts + cost.setup + sizes * cost.per_unit
        if len(demand.ranges.parts) > 1:
            ends = ends + cost.setup * _extra_fragments(demand.ranges, cuts)
        used = sizes > 0
        if float(ends[used].max()) <= due + EPSILON:
            kept = np.flatnonzero(used)
            finish = float(ends[kept].max())
            booking = Booking(
                demand, order[kept], np.concatenate(([0], np.cumsum(sizes[kept]))), starts[kept], ends[kept], finish
            )
            if demand.reduce:
                booking.reducer = int(booking.where[int(booking.ends.argmax())])
                booking.finish = max(finish, demand.running_until) + demand.reduce
            return booking
        n += 1
    window = due - cost.setup - float(line[0]) if line.size else 0.0
    alone = int(window / cost.per_unit + EPSILON) if window > 0 else 0
    return Shortfall(
        uid=demand.uid,
        units=units,
        fit=int(total[most - 1]) if most > 0 else 0,
        needed=max(demand.least, -(-units // alone)) if alone else None,
        processors=ready.size,
        usable=usable,
        first_ready=float(line[0]) if line.size else due,
    )


def _place_reduce(demand: Demand, ready: Floats) -> Booking | Shortfall:
    if not ready.size:
        return Shortfall(demand.uid, 0, 0, None, 0, 0, demand.due)
    soonest = max(demand.running_until, demand.not_before)
    in_time = ready <= soonest
    # the last to be free, as a rule where its own last chunk ends: what is idle until then is for others
    at = int(np.where(in_time, ready, -np.inf).argmax() if in_time.any() else ready.argmin())
    start = max(float(ready[at]), soonest)
    if start > demand.due + EPSILON:
        return Shortfall(demand.uid, 0, 0, None, ready.size, 0, start)
    empty = np.empty(0)
    nowhere = np.empty(0, dtype=np.intp)
    cuts = np.zeros(1, dtype=np.int64)
    return Booking(demand, nowhere, cuts, empty, empty, start + demand.reduce, reducer=at)


def _extra_fragments(ranges: Ranges, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, per slice, the holes inside it: each is one more chunk, set up anew."""
    holes = np.cumsum([r.size for r in ranges.parts])[:-1]
    # a hole strictly between two cut points splits that slice
    return np.searchsorted(holes, cuts[1:], side="left") - np.searchsorted(holes, cuts[:-1], side="right")


@dataclass(frozen=True, slots=True)
class Plan:
    """Bookings over places that become ready at ``ready``; on each place they follow each other in the order given."""

    places: tuple[Place, ...] = ()
    ready: Floats = field(default_factory=lambda: np.empty(0))
    bookings: tuple[Booking, ...] = ()
    after: Floats = field(default_factory=lambda: np.empty(0))
    """Ready times behind the last booking."""

    @classmethod
    def of(
        cls, places: Sequence[Place], ready: Floats, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands in EDF order; a demand that cannot be placed in time is left out and told.

        ``stop`` at the first of those: the plan is of no use then.
        """
        return cls.in_turn(places, ready, sorted(demands, key=lambda d: d.order), stop=stop)

    @classmethod
    def in_turn(
        cls, places: Sequence[Place], ready: Floats, demands: Iterable[Demand], *, stop: bool = False
    ) -> "tuple[Plan, tuple[Shortfall, ...]]":
        """Place all demands in the order given, else like :meth:`of`."""
        after = ready.copy()
        bookings: list[Booking] = []
        missed: list[Shortfall] = []
        for demand in demands:
            got = place(demand, after)
            if isinstance(got, Shortfall):
                missed.append(got)
                if stop:
                    break
                continue
            got.occupy(after)
            bookings.append(got)
        return cls(tuple(places), ready, tuple(bookings), after), tuple(missed)

    def at(self, now: float) -> "Plan":
        """Return the plan as a demand placed at ``now`` meets it: no processor is ready in the past."""
        return replace(self, ready=np.maximum(self.ready, now), after=np.maximum(self.after, now))

    def held(self, until: Floats) -> "Plan":
        """Return the plan where processors that nobody has booked are not ready before these times."""
        free = np.ones(len(self.places), dtype=bool)
        for b in self.bookings:
            free[b.where] = False
            if b.reducer is not None:
                free[b.reducer] = False
        ready = np.where(free, np.maximum(self.ready, until), self.ready)
        return replace(self, ready=ready, after=np.where(free, ready, self.after))

    def insert(self, demand: Demand) -> "Plan | Shortfall":
        """Return a plan with one more demand that keeps every booking in time, or what stands in its way.

        Behind all bookings first: if it is in time there, nothing else moves, O(N). Else the whole queue is placed
        anew in EDF order, O(W N): that is the test, and what it refuses is refused. Load that no order could finish is
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
        behind.occupy(after)
        return Plan(self.places, self.ready, (*self.bookings, behind), after)

    def insert_all(self, demands: Iterable[Demand]) -> "Plan | Shortfall":
        """Return a plan with more demands, the whole queue placed anew, or the first that is missed then."""
        plan, missed = Plan.of(self.places, self.ready, (*(b.demand for b in self.bookings), *demands), stop=True)
        return missed[0] if missed else plan

    def overloaded(self, demand: Demand) -> bool:
        """Whether more work is due by the demand's due time than all processors could do until then."""
        due = demand.due
        work = sum(b.demand.work for b in self.bookings if b.demand.due <= due) + demand.work
        return work > float(np.maximum(due - self.ready, 0.0).sum()) + EPSILON

    def upon(self, places: Sequence[Place], ready: Floats) -> "Plan | None":
        """Return the same bookings where other places are there to book; None where a booked one is not."""
        at = {place: i for i, place in enumerate(places)}
        index = np.array([at.get(place, -1) for place in self.places], dtype=np.intp)
        bookings = tuple(
            replace(b, where=index[b.where], reducer=None if b.reducer is None else int(index[b.reducer]))
            for b in self.bookings
        )
        if any((b.where < 0).any() or b.reducer == -1 for b in bookings):
            return None
        return Plan(tuple(places), ready, bookings, ready).retimed(ready)

    def retimed(self, ready: Floats) -> "Plan":
        """Return the same bookings where processors are ready at other times: ends move, shares do not."""
        after = ready.copy()
        bookings = []
        for b in self.bookings:
            starts = np.maximum(after[b.where], b.demand.not_before)
            new = replace(b, starts=starts, ends=starts + (b.ends - b.starts))
            finish = float(new.ends.max()) if new.ends.size else 0.0
            if new.reducer is not None:
                finish = max(finish, b.demand.running_until, float(after[new.reducer])) + b.demand.reduce
            new.finish = finish
            new.occupy(after)
            bookings.append(new)
        return Plan(self.places, ready, tuple(bookings), after)

    def created(self, booking: Booking, chunks: Mapping[int, Range], ends: Sequence[float]) -> "Plan":
        """Return the plan when chunks of a booking have been created: their processors are busy until ``ends``."""
        left = booking.created(chunks)
        ready = self.ready.copy()
        ready[booking.where[list(chunks)]] = ends
        bookings = tuple(left if b is booking else b for b in self.bookings)
        return replace(self, ready=ready, bookings=tuple(b for b in bookings if b is not None))

    def booking_of(self, uid: str) -> Booking:
        """Return a job's booking; KeyError where it has none."""
        for booking in reversed(self.bookings):  # the newest is asked for most
            if booking.demand.order.uid == uid:
                return booking
        raise KeyError(uid)

    def without(self, uid: str) -> "Plan":
        """Return the plan without a job's booking; the others stay where they are."""
        return replace(self, bookings=tuple(b for b in self.bookings if b.demand.uid != uid))

    def keeps_all(self) -> bool:
        """Whether every booking ends by its due time."""
        return all(b.finish - b.demand.reduce <= b.demand.due + EPSILON for b in self.bookings)

    def check(self) -> None:
        """Raise InvariantError where chunks on one processor overlap, a demand is not covered or ends too late."""
        free = self.ready.copy()
        for b in self.bookings:
            if b.where.size and (b.starts < free[b.where] - EPSILON).any():
                raise InvariantError(f"{b.demand.uid}: a chunk starts before its processor is free")
            if len(set(b.where.tolist())) != b.where.size:
                raise InvariantError(f"{b.demand.uid}: one processor is booked twice")
            if int(b.cuts[-1]) != b.demand.ranges.total or (np.diff(b.cuts) <= 0).any():
                raise InvariantError(f"{b.demand.uid}: chunks do not cover the load")
            b.occupy(free)
