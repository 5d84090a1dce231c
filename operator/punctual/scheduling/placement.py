"""One demand placed: which processors it gets, cut how, from when to when.

Placed upon a `Ground`, the times from which processors and the port are free, by the pool's discipline (Mamat 2011,
ch. 4, with inserted idle times used). Shares are cut to whole units, and the deadline is tested after that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.discipline import Discipline, Order
from punctual.scheduling.ranges import Range, Ranges
from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import equal_partition, in_turn, least_processors, partition, shares_of_equals

if TYPE_CHECKING:
    from punctual.scheduling.around import Around

Floats = NDArray[np.float64]
FEW = 64
"""Processors among which one looks before one looks among all."""


def tolerance(at: float) -> float:
    """Return by how many seconds two sums of the same times may differ: 1.6 ms on a clock that counts from 1970.

    What one unit's rounding comes to where a load on thousands of processors is cut into as many as a float counts.
    """
    return max(1.0, abs(at)) * 2.0**-40


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
    kept_back: float = 0.0
    """Seconds between that and the deadline."""
    least: int = 1
    most: int | None = None
    not_before: float = 0.0
    """No chunk may start earlier: processors.max is used up by running ones until then, or its pods are refused."""
    full_until: float = 0.0
    """Until then processors.max is used up by its running chunks: only where they are booked may others follow them."""
    running_until: float = 0.0
    """Latest expected end of its running chunks: the reduce step waits for it."""
    reduce: float = 0.0
    """Seconds of the reduce step, set-up included; 0: none."""
    inside: int | None = None
    """Number of the reservation inside of which it is to be; None: it is to be outside of all."""
    work: float = field(init=False, compare=False)
    """Processor seconds it takes at least; all that wait are asked for it at every question."""

    def __post_init__(self) -> None:
        """Count its work."""
        object.__setattr__(self, "work", self.ranges.total * self.cost.per_unit)

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.order.uid

    def begun(self, owned: Ranges, chunks: int, until: float) -> "Demand":
        """Return what is still to be placed when so many chunks own these units, ``until`` the last of them ends."""
        most, full_until = self.most, self.full_until
        if most is not None and most > chunks:
            most -= chunks
        elif most is not None:
            full_until = max(full_until, until)
        left = self.ranges - owned
        return replace(self, ranges=left, least=1, most=most, full_until=full_until, running_until=until)

    def anew(self) -> "Demand":
        """Return what is to be placed on whatever processors."""
        if self.full_until <= self.not_before:
            return self
        return replace(self, not_before=self.full_until, full_until=0.0)


@dataclass(slots=True, eq=False)
class Ground:
    """From when on processors are free, by place, and what they share."""

    ready: Floats
    discipline: Discipline = field(default_factory=Discipline)
    port: float = -np.inf
    """From when on the port is free (OnePort)."""
    speeds: Floats | None = None
    """By place, what multiplies χ: 2 is half as fast; None: all are equal."""
    around: "Around | None" = None
    """What is booked ahead; None: nothing is."""

    def at(self, now: float) -> "Ground":
        """Return it as a demand placed at ``now`` meets it: nothing is free in the past."""
        return replace(self, ready=np.maximum(self.ready, now))

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline: due time and place in the order move."""
        order = self.discipline.order_of(
            demand.uid,
            arrival=demand.order.arrival,
            deadline=deadline,
            load=demand.ranges.total,
            cost=demand.cost,
            processors=self.ready.size,
        )
        return replace(demand, order=order, due=deadline - demand.kept_back)

    def copy(self) -> "Ground":
        """Return one whose ready times can be moved."""
        return replace(self, ready=self.ready.copy(), around=self.around and self.around.copy())

    def take(self, booking: "Booking") -> None:
        """Move the times of the processors of a booking behind it."""
        if self.around is not None:
            self.port = self.around.take(booking, self.ready, self.port)
            return
        self.ready[booking.where] = booking.ends
        if booking.reducer is not None:
            self.ready[booking.reducer] = booking.finish
        self.port = max(self.port, booking.port)

    def chi(self, cost: Cost, where: NDArray[np.intp]) -> Floats | float:
        """Return χ at these places."""
        return cost.chi if self.speeds is None else cost.chi * self.speeds[where]

    def walk(self, where: NDArray[np.intp], sizes: NDArray[np.int64], ready: Floats, cost: Cost) -> "Walk":
        """Let chunks of these sizes, none empty, begin at places in order, each once it is ready and has the port."""
        sending: Floats = np.asarray(cost.theta_cm + sizes * cost.tau)
        if self.discipline.together:
            ready = np.full(ready.size, ready.max(initial=-np.inf))
        starts, port = ready, -np.inf
        if self.discipline.one_port and ready.size:
            starts = in_turn(np.maximum(ready, self.port), sending)
            port = float((starts + sending).max())
        return Walk(starts, starts + sending + cost.theta_cp + sizes * self.chi(cost, where), port)


class Walk(NamedTuple):
    """When chunks start and end, and from when on the port is free."""

    starts: Floats
    ends: Floats
    port: float


@dataclass(slots=True, eq=False)
class Booking:
    """The processors one demand has got. Arrays are aligned: one entry per chunk, a chunk per processor."""

    demand: Demand
    where: NDArray[np.intp]
    """Indices into the plan's places, in the order in which they are served; around windows one may come again."""
    cuts: NDArray[np.int64]
    """Cut points over the demand's ranges read as one line; one more than processors."""
    starts: Floats
    ends: Floats
    finish: float
    """Last end, reduce included."""
    reducer: int | None = None
    """Index of the place that the reduce step is booked on."""
    port: float = -np.inf
    """When its last transfer ends (OnePort)."""

    def pieces(self) -> list[list[Range]]:
        """Return what each processor computes: one range, more where the demand has holes."""
        return self.demand.ranges.slices(self.cuts.tolist())

    def begins(self) -> list[float]:
        """Return when its chunks start, and its reduce step."""
        return [*self.starts.tolist(), *([] if self.reducer is None else [self.finish - self.demand.reduce])]

    def created(self, chunks: Mapping[int, Range], ends: Iterable[float]) -> "Booking | None":
        """Return what is left of the booking when these chunks, each the next of its processor, have been created.

        ``chunks``: by position in ``where``; ``ends``: when they end.
        """
        sizes = np.diff(self.cuts)
        starts = self.starts.copy()
        for (position, chunk), end in zip(chunks.items(), ends, strict=True):
            sizes[position] -= chunk.size
            starts[position] = end
        keep = sizes > 0
        if not keep.any() and self.reducer is None:
            return None
        until = max(self.demand.running_until, float(self.ends[list(chunks)].max()))
        return Booking(
            self.demand.begun(Ranges.of(*chunks.values()), len(chunks), until),
            self.where[keep],
            np.concatenate(([0], np.cumsum(sizes[keep]))),
            starts[keep],
            np.maximum(self.ends[keep], starts[keep]),
            self.finish,
            self.reducer,
            self.port,
        )

    def retimed(self, ground: Ground) -> "Booking":
        """Return it on another ground: times move, shares do not."""
        if ground.around is not None:
            return ground.around.retimed(self, ground)
        demand, sizes = self.demand, np.diff(self.cuts)
        walk = ground.walk(self.where, sizes, np.maximum(ground.ready[self.where], demand.not_before), demand.cost)
        ends = walk.ends + demand.cost.setup * extra_fragments(demand.ranges, self.cuts)
        finish = float(ends.max()) if ends.size else 0.0
        if self.reducer is not None:
            finish = max(finish, demand.running_until, float(ground.ready[self.reducer])) + demand.reduce
        return replace(self, starts=walk.starts, ends=ends, port=walk.port, finish=finish)

    @property
    def start(self) -> float:
        """When its first chunk starts."""
        return float(self.starts.min()) if self.starts.size else self.finish - self.demand.reduce

    @property
    def processors(self) -> int:
        """How many processors it has; around windows one may have several chunks."""
        return max(1, len(set(self.where.tolist())))


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


def place(demand: Demand, ground: Ground) -> Booking | Shortfall:
    """Book processors so that the demand's due time is met, whole units, ends tested after rounding; or say why not."""
    demand = demand.anew()
    if ground.around is not None and (
        demand.inside is not None or not ground.around.begins_behind(demand.due + demand.reduce)
    ):
        return ground.around.place_demand(demand, ground)
    cost, due = demand.cost, demand.due
    units, late = demand.ranges.total, due + tolerance(demand.due)
    if demand.reduce and demand.running_until > late:
        return Shortfall(demand.uid, units, 0, None, ground.ready.size, 0, demand.running_until)
    if units == 0:
        return _place_reduce(demand, ground.ready)
    ready = np.maximum(ground.ready, demand.not_before)
    order = ready.argsort(kind="stable")
    line = ready[order]
    if line.size > FEW and (booking := _among_few(demand, ground, order[:FEW], line[:FEW])):
        return booking
    # whole units each can finish by the due time, were the port its own
    begin = np.maximum(line, ground.port) if ground.discipline.one_port else line
    room = np.floor((late - cost.setup - begin) / (cost.tau + ground.chi(cost, order)))
    useful = np.flatnonzero(room >= 1)
    usable = int(useful[-1]) + 1 if useful.size else 0
    total = np.maximum(room[:usable], 0.0).cumsum()
    first = max(demand.least, 1 + int(total.searchsorted(units)))
    most = min(usable, demand.most or usable)
    for n in _numbers(demand, ground, begin, first, most):
        booking = _cut(demand, ground, order[:n], line[:n])
        if booking.finish <= late:
            return _with_reduce(booking)
    window = due - cost.setup - float(line[0]) if line.size else 0.0
    alone = int(window / cost.per_unit * (1 + 1e-12)) if window > 0 else 0
    return Shortfall(
        uid=demand.uid,
        units=units,
        fit=int(total[most - 1]) if most > 0 else 0,
        needed=max(demand.least, -(-units // alone)) if alone else None,
        processors=ready.size,
        usable=usable,
        first_ready=float(line[0]) if line.size else due,
    )


def _among_few(demand: Demand, ground: Ground, order: NDArray[np.intp], line: Floats) -> Booking | None:
    """Book as :func:`place` does, if the first processors of many are enough, and all of them could be of use.

    The usual case (OPR, MN, equal, concurrent) without a look at all the others.
    """
    if ground.speeds is not None or not ground.discipline.plain:
        return None
    cost, units, late = demand.cost, demand.ranges.total, demand.due + tolerance(demand.due)
    room = np.floor((late - cost.setup - line) / (cost.tau + cost.chi))
    if room[-1] < 1.0:
        return None
    first = max(demand.least, 1 + int(room.cumsum().searchsorted(units)))
    for n in range(first, min(line.size, demand.most or line.size) + 1):
        booking = _cut(demand, ground, order[:n], line[:n])
        if booking.finish <= late:
            return _with_reduce(booking)
    return None


def _with_reduce(booking: Booking) -> Booking:
    """Book its reduce step too, where its last chunk ends."""
    demand = booking.demand
    if demand.reduce:
        booking.reducer = int(booking.where[int(booking.ends.argmax())])
        booking.finish = max(booking.finish, demand.running_until) + demand.reduce
    return booking


def might_fit(demand: Demand, ground: Ground) -> bool:
    """Whether :func:`place` could find room, as far as the units tell that each processor could finish in time.

    What cannot fit here cannot fit either once processors are ready later.
    """
    if ground.around is not None or demand.reduce or not demand.ranges:
        return True
    cost = demand.cost
    begin = np.maximum(ground.ready, demand.not_before)
    if ground.discipline.one_port:
        begin = np.maximum(begin, ground.port)
    chi = cost.chi if ground.speeds is None else cost.chi * ground.speeds
    room = np.floor((demand.due + tolerance(demand.due) - cost.setup - begin) / (cost.tau + chi))
    return float(np.maximum(room, 0.0).sum()) * (1.0 + 1e-9) >= demand.ranges.total


def _numbers(demand: Demand, ground: Ground, begin: Floats, first: int, most: int) -> Iterable[int]:
    """Return how many processors to try, in this order; with fewer than ``first`` it cannot be in time.

    ``begin``: (N,) when each could begin, ascending.
    """
    d, cost, units = ground.discipline, demand.cost, demand.ranges.total
    if d.assign == "AN":
        limit = min(begin.size, demand.most or begin.size)
        n = max(demand.least, d.most_useful(units, cost, limit=limit)) if limit else 1
        return (n,) if first <= n <= limit else ()
    if first > most:
        return ()
    if ground.speeds is not None:
        return range(first, most + 1)
    late = demand.due + tolerance(demand.due)
    if d.together:
        ends = begin[:most] + d.durations(units, cost, limit=begin.size)[:most]
    elif d.partition == "EPR":
        ends = _equal_ends(units, begin[:most], cost, one_port=d.one_port)
    elif d.one_port:
        least = least_processors(units, begin[:most], cost, deadline=late, least=first, one_port=True)
        return range(least, most + 1) if least else ()
    else:
        return range(first, most + 1)
    return (n for n in (np.flatnonzero(ends <= late) + 1).tolist() if n >= first)


def _equal_ends(units: int, begin: Floats, cost: Cost, *, one_port: bool) -> Floats:
    """Return when equal parts on the first 1, 2, … processors end: the last to begin ends last."""
    n = np.arange(1.0, begin.size + 1.0)
    sending = cost.theta_cm + units / n * cost.tau
    if not one_port:
        return begin + cost.setup + units / n * cost.per_unit
    # the last of n begins at the latest of r_j + (n − j) sending, j <= n
    behind = n[:, None] - n[None, :]
    starts = np.where(behind >= 0, begin[None, :] + behind * sending[:, None], -np.inf).max(axis=1)
    return np.asarray(starts + sending + cost.theta_cp + units / n * cost.chi)


def _cut(demand: Demand, ground: Ground, where: NDArray[np.intp], line: Floats) -> Booking:
    """Cut the demand over these places, ready at ``line``, and book those that get a unit at least."""
    d, cost, units = ground.discipline, demand.cost, demand.ranges.total
    begin = np.full(line.size, line[-1]) if d.together else line
    if d.one_port:
        begin = np.maximum(begin, ground.port)
    speeds = None if ground.speeds is None else ground.speeds[where]
    if d.plain and speeds is None:
        shares = shares_of_equals(units, begin, cost)
    else:
        divide = partition if d.partition == "OPR" else equal_partition
        shares = divide(units, begin, cost, one_port=d.one_port, speeds=speeds).shares
    cuts = cut_points(shares, units)
    sizes = cuts[1:] - cuts[:-1]
    if np.count_nonzero(sizes) == sizes.size:
        where, begin = where.copy(), begin.copy()  # or the booking would hold on to all processors' times
    else:
        kept = sizes.nonzero()[0]
        where, sizes, begin = where[kept], sizes[kept], begin[kept]
        cuts = np.concatenate(([0], sizes.cumsum()))
    walk = ground.walk(where, sizes, begin, cost)
    ends = walk.ends
    if len(demand.ranges.parts) > 1:
        ends = ends + cost.setup * extra_fragments(demand.ranges, cuts)
    finish = float(ends.max())
    if finish - float(ends.min()) <= tolerance(finish):
        ends = np.full(ends.size, finish)  # they are meant to be one: the next demand meets fewer different times
    return Booking(demand, where, cuts, walk.starts, ends, finish, port=walk.port)


def _place_reduce(demand: Demand, ready: Floats) -> Booking | Shortfall:
    if not ready.size:
        return Shortfall(demand.uid, 0, 0, None, 0, 0, demand.due)
    soonest = max(demand.running_until, demand.not_before)
    in_time = ready <= soonest
    # the last to be free, as a rule where its own last chunk ends: what is idle until then is for others
    at = int(np.where(in_time, ready, -np.inf).argmax() if in_time.any() else ready.argmin())
    start = max(float(ready[at]), soonest)
    if start > demand.due + tolerance(demand.due):
        return Shortfall(demand.uid, 0, 0, None, ready.size, 0, start)
    empty = np.empty(0)
    nowhere = np.empty(0, dtype=np.intp)
    cuts = np.zeros(1, dtype=np.int64)
    return Booking(demand, nowhere, cuts, empty, empty, start + demand.reduce, reducer=at)


def extra_fragments(ranges: Ranges, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, per slice, the holes inside it: each is one more chunk, set up anew."""
    holes = np.cumsum([r.size for r in ranges.parts])[:-1]
    # a hole strictly between two cut points splits that slice
    return np.searchsorted(holes, cuts[1:], side="left") - np.searchsorted(holes, cuts[:-1], side="right")
