"""Placement around blackouts (Mamat 2011, alg. 4: the staged partition).

A demand gets at most one chunk per slot, each with its own set-up. All chunks end by one time T or by the end of their
slot. (The paper also splits chunks at the intervals of other places; here they continue.) Over one port, a transfer
lies within one gap and sends one range; a chunk that the gap's end or a hole kept small is followed by another in the
same slot.

If several chunks must begin at one time, each time is tried at which a slot or a gap begins. The first slots of the
search are then those chunks' slots; over one port, their transfers follow each other within one gap.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.placement.blackouts import Blackouts, Places, Slots
from punctual.scheduling.placement.capacity import Capacity, impossible
from punctual.scheduling.placement.demand import Demand, Floats, Shortfall
from punctual.scheduling.placement.timeline import Placement, Timeline, extra_fragments
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance, tolerances


def place_around(demand: Demand, timeline: Timeline, blackouts: Blackouts) -> Placement | Shortfall:
    """Place a demand on the fewest processors that meet its due time, in all their slots; or return why not."""
    late = demand.late
    if none := impossible(demand, timeline.ready.size):
        return none
    slots = blackouts.slots(np.maximum(timeline.ready, demand.not_before), demand.inside)
    if not demand.ranges.total:
        return _place_reduce(demand, timeline, slots, late)
    short = None
    for some in _choices(slots, demand, timeline, blackouts, late):
        search = _Search.of(demand, timeline, blackouts, some, late)
        for placement in search.placements():
            if not demand.reduce or _with_reduce(placement, timeline, late):
                return placement
        short = short or search.shortfall()
    return short or Shortfall(demand.uid, demand.ranges.total, 0, None, timeline.ready.size, 0, demand.due)


def _with_reduce(placement: Placement, timeline: Timeline, late: float) -> bool:
    """Place the reduce step after the chunks where it is earliest, usually where the last of them ends."""
    demand, after = placement.demand, timeline.copy()
    after.occupy(placement)
    assert after.blackouts is not None
    soonest = max(float(placement.ends.max()), demand.running_until)
    slots = after.blackouts.slots(after.ready, demand.inside)
    at = np.maximum(slots.begin, soonest)
    at[at + demand.reduce > slots.until + tolerance(soonest)] = np.inf
    last = int(placement.where[int(placement.ends.argmax())])
    best = int(np.lexsort((slots.place != last, at))[0])
    if at[best] > late:
        return False
    placement.reducer, placement.finish = int(slots.place[best]), float(at[best]) + demand.reduce
    return True


def _place_reduce(demand: Demand, timeline: Timeline, slots: Slots, late: float) -> Placement | Shortfall:
    soonest = max(demand.running_until, demand.not_before)
    at = np.maximum(slots.begin, soonest)
    fits = (at + demand.reduce <= slots.until + tolerance(soonest)) & (at <= late)
    if not fits.any():
        first = float(slots.begin.min(initial=np.inf))
        return Shortfall(demand.uid, 0, 0, None, timeline.ready.size, 0, first)
    # The last of those that are free in time: idle time before it is for others.
    best = int(np.lexsort((-slots.begin, np.where(fits, at, np.inf)))[0])
    none = np.empty(0)
    nowhere, cuts = np.empty(0, dtype=np.intp), np.zeros(1, dtype=np.int64)
    finish = float(at[best]) + demand.reduce
    return Placement(demand, nowhere, cuts, none, none, finish, reducer=int(slots.place[best]))


def retimed_around(placement: Placement, timeline: Timeline, blackouts: Blackouts) -> Placement:
    """Return a placement on this timeline: times move, shares do not; each chunk stays in its slot while it fits."""
    demand, sizes = placement.demand, np.diff(placement.cuts)
    slots = blackouts.slots(np.maximum(timeline.ready, demand.not_before), demand.inside)
    lasts = sizes * (demand.cost.tau + timeline.chi(demand.cost, placement.where)) + demand.cost.setup * (
        1 + extra_fragments(demand.ranges, placement.cuts)
    )
    port, own = _Port.of(blackouts, timeline), _Port([], [], -np.inf)
    sending = demand.cost.theta_cm + sizes * demand.cost.tau
    chunks = [
        (blackouts.from_slot(slots, place, was, demand.inside), was, seconds, sent)
        for place, was, seconds, sent in zip(
            placement.where.tolist(), placement.starts.tolist(), lasts.tolist(), sending.tolist(), strict=True
        )
    ]
    first = sizes.size if timeline.together(demand) else demand.least if demand.least > 1 else 0
    least = max((_first_fit(mine, -np.inf, seconds, own) for mine, _, seconds, _ in chunks[:first]), default=-np.inf)
    found = _starts_in_slots(placement.where.tolist(), chunks, port.copy(), least)
    while demand.least > 1 and (later := _apart(found[: demand.least], sending, port)) is not None:
        found = _starts_in_slots(placement.where.tolist(), chunks, port.copy(), later)
    ends = found + lasts
    end = float((found + sending).max()) if timeline.discipline.one_port and found.size else -np.inf
    finish = float(ends.max()) if ends.size else 0.0
    new = replace(placement, starts=found, ends=ends, port=end, finish=finish, reducer=None)
    if placement.reducer is not None:
        finish = max(finish, demand.running_until)
        after = timeline.copy()
        after.occupy(new)
        assert after.blackouts is not None
        behind = after.blackouts.slots(after.ready, demand.inside)
        last = blackouts.from_slot(behind, placement.reducer, finish, demand.inside)
        start = _first_fit(last, finish, demand.reduce, _Port([], [], -np.inf))
        new = replace(new, reducer=placement.reducer, finish=start + demand.reduce)
    return new


def _starts_in_slots(
    where: list[int], chunks: list[tuple[Slots, float, float, float]], port: "_Port", least: float
) -> Floats:
    """Return when chunks begin, none before ``least``: each in its slot or a later one, and in its gap or a later one.

    ``chunks``: slots, earlier start, seconds and seconds of transfer of each.
    """
    starts: list[float] = []
    taken: dict[int, float] = {}
    for place, (mine, was, seconds, sent) in zip(where, chunks, strict=True):
        begun = max(least, taken.get(place, -np.inf), port.gap_of(was))
        starts.append(_first_fit(mine, begun, seconds, port, sent))
        taken[place] = starts[-1] + seconds
    return np.array(starts)


def _apart(begins: Floats, sending: Floats, port: "_Port") -> float | None:
    """Return the time before which the first chunks must not begin, if they do not begin together; None: they do."""
    if not port.shared:
        latest = float(begins.max())
        return latest if latest - float(begins.min()) > tolerance(latest) else None
    apart = begins[1:] - (begins + sending[: begins.size])[:-1] > tolerances(begins[1:])
    return float(begins[1:][apart][0]) if apart.any() else None


def _choices(slots: Slots, demand: Demand, timeline: Timeline, blackouts: Blackouts, late: float) -> Iterator[Slots]:
    """Yield the slots to search; if chunks must begin together, those that are free from each time on."""
    if timeline.discipline.together:
        yield from _together(slots, late)
        return
    if demand.least == 1:
        yield slots
        return
    begins = slots.begin
    if timeline.discipline.one_port:
        begins = np.maximum(np.concatenate((begins, blackouts.sent)), timeline.port)
    for at in np.unique(begins[begins < late]).tolist():
        there = slots.chosen(slots.until > at)
        yield there._replace(begin=np.maximum(there.begin, at))


def _together(slots: Slots, late: float) -> Iterator[Slots]:
    """Yield, for each time at which all processors of a job could begin, the slots that are free from then on."""
    for at in np.unique(slots.begin[slots.begin < late]).tolist():
        there = slots.chosen((slots.begin <= at) & (slots.until > at))
        yield there._replace(begin=np.full(there.begin.size, at))


@dataclass(slots=True)
class _Port:
    """The port while chunks are served in order: transfers lie in its gaps, each behind the last."""

    sends: list[float]
    sent: list[float]
    free: float
    shared: bool = False
    gap: int = 0

    @classmethod
    def of(cls, blackouts: Blackouts, timeline: Timeline) -> "_Port":
        """Return the port of a timeline; a port that is not shared has one gap without end, and is free at any time."""
        shared = timeline.discipline.one_port
        return cls(blackouts.sends, blackouts.sent, timeline.port, shared) if shared else cls([], [], -np.inf)

    def occupy(self, until: float) -> None:
        """Occupy the port with a transfer; if the port is not shared, each transfer has its own."""
        if self.shared:
            self.free = until

    def copy(self) -> "_Port":
        """Return a copy."""
        return replace(self)

    def next(self, at: float) -> tuple[float, float]:
        """Return when it is free from ``at`` on, and when that gap ends; later calls must not go back in time.

        A gap that exists only by rounding is ignored: a chunk there would pay its set-up for nothing.
        """
        at = max(at, self.free)
        while self.gap < len(self.sends) and at >= self.sends[self.gap] - tolerance(at):
            at = self.free = max(at, self.sent[self.gap])
            self.gap += 1
        return at, self.sends[self.gap] if self.gap < len(self.sends) else np.inf

    def gap_of(self, at: float) -> float:
        """Return the time from which the gap that contains ``at`` is free."""
        gap = bisect_right(self.sends, at) - 1
        return self.sent[gap] if gap >= 0 else -np.inf


def _first_fit(slots: Slots, at: float, seconds: float, port: _Port, sending: float = 0.0) -> float:
    """Return when a chunk begins in a place's first slot that it fits in, and occupy the port for it."""
    for begin, until in zip(np.maximum(at, slots.begin).tolist(), slots.until.tolist(), strict=True):
        trial = port.copy()
        start, end = trial.next(begin)
        while start + sending > end + (tolerance(end) if end < np.inf else 0.0):
            start, end = trial.next(end)
        if start + seconds <= until + tolerance(until if until < np.inf else start):
            port.free, port.gap = trial.free, trial.gap
            port.occupy(start + sending)
            return start
    raise AssertionError("the last slot of a place has no end")


class _Piece(NamedTuple):
    """A chunk in a slot."""

    slot: int
    size: int
    start: float


@dataclass(slots=True)
class _Search:
    """Search for one demand's placement in given slots: those that can hold a unit, in order of begin."""

    demand: Demand
    timeline: Timeline
    blackouts: Blackouts
    late: float
    slots: Slots
    per_unit: Floats
    """By slot, τ + χ."""
    room: NDArray[np.int64]
    """By slot, whole units that end by its end or the due time, with the port to itself."""
    rank: Places
    """By slot, the rank of its processor in the order in which the processors can begin."""
    capacity: Capacity
    begins: list[float]
    """The same numbers as lists, for walks: begin, end, τ + χ and rank by slot."""
    untils: list[float]
    rates: list[float]
    ranks: list[int]
    holes: list[int]
    """Offsets between the demand's ranges: a chunk across one of them is set up once more."""
    first: int = 0
    """Number of slots, the first ones, in which a chunk must begin at one time; 0: chunks begin at any time."""

    @classmethod
    def of(cls, demand: Demand, timeline: Timeline, blackouts: Blackouts, slots: Slots, late: float) -> "_Search":
        """Compute the capacity of the slots."""
        cost, begin = demand.cost, slots.begin
        if timeline.discipline.one_port:
            begin = np.maximum(begin, timeline.port)
        per_unit = np.broadcast_to(np.asarray(cost.tau + timeline.chi(cost, slots.place)), begin.shape)
        until = np.minimum(late, slots.until + tolerances(slots.until))
        room = np.floor((until - cost.setup - begin) / per_unit)
        first = demand.least if demand.least > 1 else 0
        # Of those that begin together, the ones with most time come first.
        order = np.lexsort((-room, begin)) if first else begin.argsort(kind="stable")
        wide = slots.until - begin > tolerances(slots.until)  # ignores slots that exist only by rounding
        order = order[(room[order] >= 1) & wide[order]]
        if first and (order.size < first or begin[order[first - 1]] > begin[order[0]]):
            order = order[:0]  # too few can begin together
        slots, room = (
            slots._replace(begin=begin, until=until).chosen(order),
            np.minimum(room[order], demand.ranges.total),
        )
        _, firsts, inverse = np.unique(slots.place, return_index=True, return_inverse=True)
        rank = firsts.argsort().argsort()[inverse]
        total = np.zeros(firsts.size, dtype=np.int64)
        np.add.at(total, rank, room.astype(np.int64))
        parts = demand.ranges.parts
        holes = np.cumsum([r.size for r in parts])[:-1].tolist() if len(parts) > 1 else []
        lists = slots.begin.tolist(), slots.until.tolist(), per_unit[order].tolist(), rank.tolist()
        whole = room.astype(np.int64)
        capacity = Capacity(total.cumsum())
        return cls(
            demand, timeline, blackouts, late, slots, per_unit[order], whole, rank, capacity, *lists, holes, first
        )

    def placements(self) -> Iterator[Placement]:
        """Return placements that meet the due time, the one on the fewest processors first."""
        d, demand = self.timeline.discipline, self.demand
        first, most = self.capacity.numbers(demand)
        cut = self._equal
        if d.partition == "OPR" or self.timeline.unbroken(demand):
            cut = self._walk_to_common_end if self.holes or d.one_port else self._common_end
            if self.holes or d.one_port:
                first = self._least(first, most)
        if d.assign == "AN":
            useful = d.most_useful(demand.ranges.total, demand.cost, limit=min(most, self.timeline.ready.size) or 1)
            # As many of the useful processors as have chunks that are worth their set-up, otherwise the fewest.
            numbers = range(first + 1, min(useful, most) + 1)
            fine = bisect_left(numbers, x=True, key=lambda n: any(p.size < demand.least_chunk for p in cut(n)))
            first += fine
        for n in range(first, most + 1):
            if (pieces := cut(n)) and self._begin_together(pieces):
                yield self._booked(pieces)

    def _begin_together(self, pieces: list[_Piece]) -> bool:
        """Whether the first chunks begin as they must: at one time, or one transfer after the other."""
        cost, begin = self.demand.cost, self.slots.begin[0]
        for piece in pieces[: self.first]:
            if piece.start > begin + tolerance(begin):
                return False
            if self.timeline.discipline.one_port:
                begin = piece.start + cost.theta_cm + piece.size * cost.tau
        return len({int(self.slots.place[p.slot]) for p in pieces[: self.first]}) == self.first

    def _least(self, first: int, most: int) -> int:
        """Return the least number of processors, ``first`` or more, with which a walk finishes everything in time."""
        if first > most:
            return first
        found, left = self._walk(most, self.late)
        if left:
            return most + 1
        enough = max(first, 1 + max(self.ranks[piece.slot] for piece in found))
        return bisect_left(range(enough), x=True, lo=first, key=lambda n: not self._walk(n, self.late)[1])

    def _walk_to_common_end(self, n: int) -> list[_Piece]:
        """Partition for n processors by walks so that all end at one time, or with their slots; empty: none.

        The search uses the secant through the last two ends that left units, kept in a bracket. With whole units, the
        least end is usually one at which a chunk ends: so the end of the result is also tried slightly earlier.
        """
        best, left = self._walk(n, self.late)
        if left:
            return []
        low, high = self.begins[0] + self.demand.cost.setup, max(self._ends(best))
        before, short = (low, self.demand.ranges.total), np.inf
        turn, hair = 0, False
        while high - low > 2.0 * tolerance(high):
            turn += 1
            guess = high - 1.5 * tolerance(high) if hair else low + short + tolerance(low)
            if turn % 4 == 0 or not low < guess < high:
                guess = low + (high - low) / 2.0
            found, left = self._walk(n, guess)
            if left:
                rate = (before[1] - left) / (guess - before[0])
                low, before, short, hair = guess, (guess, left), left / rate if rate > 0.0 else np.inf, False
            else:
                best, high, hair = found, min(guess, max(self._ends(found))), not hair
        return best

    def _common_end(self, n: int) -> list[_Piece]:
        """Partition without a shared port: the capacity of slots by T is piecewise linear in T. O(slots log slots)."""
        chosen = np.flatnonzero(self.rank < n)
        units, room, per_unit = self.demand.ranges.total, self.room[chosen], self.per_unit[chosen]
        origin = float(self.slots.begin[chosen[0]]) + self.demand.cost.setup
        begin = self.slots.begin[chosen] + self.demand.cost.setup - origin
        if self.first:  # each of the first has one unit before the rest is divided
            units -= self.first
            room[: self.first] -= 1
            begin[: self.first] += per_unit[: self.first]
        full = begin + room * per_unit
        times = np.concatenate((begin, full))
        order = times.argsort(kind="stable")
        times, rates = times[order], np.concatenate((1.0 / per_unit, -1.0 / per_unit))[order].cumsum()
        done = np.concatenate(([0.0], (rates[:-1] * np.diff(times)).cumsum()))
        at = max(1, min(int(done.searchsorted(units)), done.size - 1))
        end = times[at - 1] + (units - done[at - 1]) / rates[at - 1] if rates[at - 1] > 0 else times[at]
        shares = (np.clip(end - begin, 0.0, full - begin)) / per_unit
        sizes = _whole(np.minimum(shares, room), room, units, begin, per_unit)
        sizes[: self.first] += 1
        return [
            _Piece(slot, size, float(self.slots.begin[slot]))
            for slot, size in zip(chosen.tolist(), sizes.tolist(), strict=True)
            if size
        ]

    def _walk(self, n: int, end: float) -> tuple[list[_Piece], int]:
        """Serve slots of n processors in order of begin, each until ``end``; return the chunks and the units left.

        A slot with a chunk that was kept small by the end of the port's gap, or by a hole that no transfer may span, is
        served again when the chunk has ended.
        """
        cost, port, left = self.demand.cost, _Port.of(self.blackouts, self.timeline), self.demand.ranges.total
        line = [(begin, i) for i, begin in enumerate(self.begins) if self.ranks[i] < n]  # ascending: a heap
        found: list[_Piece] = []
        while line and left:
            begin, i = heapq.heappop(line)
            expected = max(begin, port.free)
            start, limit = port.next(begin)
            fits = self._most(self.demand.ranges.total - left, min(end, self.untils[i]) - start, i)
            if (wanting := self.first - len(found)) > 0:  # it must begin together with so many, itself included
                fits = min(fits, left - wanting + 1)
                if fits < 1 or start > expected + tolerance(start) or not _sendable(cost, limit - start, 1):
                    return [], self.demand.ranges.total
            if fits < 1 or self.untils[i] - start <= 2.0 * tolerance(start):  # exists in its slot only by rounding
                continue
            sendable = min(_sendable(cost, limit - start, fits), self._unbroken(self.demand.ranges.total - left))
            size = min(sendable, left)
            if size < 1:
                heapq.heappush(line, (limit, i))
                continue
            piece = _Piece(i, size, start)
            found.append(piece)
            port.occupy(start + cost.theta_cm + size * cost.tau)
            if sendable < fits:
                heapq.heappush(line, (self._end(piece, self.demand.ranges.total - left), i))
            left -= size
        return found, left

    def _unbroken(self, offset: int) -> int:
        """Return the most units from ``offset`` on that one chunk may have."""
        total = self.demand.ranges.total
        if not self.timeline.unbroken(self.demand):
            return total
        hole = bisect_right(self.holes, offset)
        return (self.holes[hole] if hole < len(self.holes) else total) - offset

    def _equal(self, n: int) -> list[_Piece]:
        """Partition into n equal parts, one per processor, each in the first slot that it fits in; empty: none."""
        units, cost, port = self.demand.ranges.total, self.demand.cost, _Port.of(self.blackouts, self.timeline)
        n = min(n, units)
        cuts = [(units * k + n // 2) // n for k in range(n + 1)]
        line = [(begin, i) for i, begin in enumerate(self.begins)]
        found: list[_Piece] = []
        used: set[int] = set()
        while line and len(found) < n:
            begin, i = heapq.heappop(line)
            offset = cuts[len(found)]
            size = cuts[len(found) + 1] - offset
            if int(self.slots.place[i]) in used or self.room[i] < size:
                continue
            start, limit = port.next(begin)
            if self._most(offset, self.untils[i] - start, i) < size:
                continue
            if _sendable(cost, limit - start, size) < size:
                heapq.heappush(line, (limit, i))
                continue
            found.append(_Piece(i, size, start))
            used.add(int(self.slots.place[i]))
            port.occupy(start + cost.theta_cm + size * cost.tau)
        return found if len(found) == n else []

    def _most(self, offset: int, seconds: float, slot: int) -> int:
        """Return the most units from ``offset`` on that a chunk does in so many seconds, its set-ups included."""
        setup, per_unit = self.demand.cost.setup, self.rates[slot]
        if not self.holes:
            return min(int(max(0.0, seconds - setup) / per_unit), self.demand.ranges.total)
        hole, best, k = bisect_right(self.holes, offset), 0, 1
        while (spare := seconds - setup * k) > 0.0:
            fits = min(int(spare / per_unit), self.demand.ranges.total)
            here = self.holes[hole] - offset if hole < len(self.holes) else fits
            best = max(best, min(fits, here))
            if fits <= here:
                break
            hole, k = hole + 1, k + 1
        return best

    def _end(self, piece: _Piece, offset: int) -> float:
        cost = self.demand.cost
        over = bisect_left(self.holes, offset + piece.size) - bisect_right(self.holes, offset)
        return piece.start + cost.setup * (1 + over) + piece.size * self.rates[piece.slot]

    def _ends(self, pieces: Iterable[_Piece]) -> list[float]:
        ends, offset = [], 0
        for piece in pieces:
            ends.append(self._end(piece, offset))
            offset += piece.size
        return ends

    def _booked(self, pieces: list[_Piece]) -> Placement:
        cost = self.demand.cost
        starts, ends = np.array([p.start for p in pieces]), np.array(self._ends(pieces))
        sizes = np.array([p.size for p in pieces], dtype=np.int64)
        finish = float(ends.max())
        ends[finish - ends <= tolerance(finish)] = finish  # meant to be equal; gives the next fewer distinct times
        port = (
            float((starts + cost.theta_cm + sizes * cost.tau).max()) if self.timeline.discipline.one_port else -np.inf
        )
        where = self.slots.place[[p.slot for p in pieces]]
        return Placement(self.demand, where, np.concatenate(([0], sizes.cumsum())), starts, ends, finish, port=port)

    def shortfall(self) -> Shortfall:
        """Return the arithmetic of a refusal."""
        begins = self.slots.begin if self.capacity.usable else self.timeline.ready
        first = float(begins.min(initial=np.inf))
        return self.capacity.shortfall(self.demand, processors=self.timeline.ready.size, first=first)


def _sendable(cost: Cost, seconds: float, wanted: int) -> int:
    """Return how many of the wanted units one transfer sends in so many seconds."""
    left = seconds - cost.theta_cm
    if left < 0.0:
        return 0
    return wanted if left >= wanted * cost.tau else int(left / cost.tau)


def _whole(shares: Floats, room: NDArray[np.int64], units: int, begin: Floats, per_unit: Floats) -> NDArray[np.int64]:
    """Return whole units near the shares, within capacity: lost units go to the slots that end them first."""
    sizes = np.minimum(np.floor(shares).astype(np.int64), room)
    while left := units - int(sizes.sum()):
        able = np.flatnonzero(sizes < room) if left > 0 else np.flatnonzero(sizes)
        if each := abs(left) // able.size:  # many tiny units: the floats missed some
            sizes[able] += np.clip(np.sign(left) * each, -sizes[able], room[able] - sizes[able])
        elif left < 0:
            sizes[able[-1]] -= 1
        else:
            line = list(zip((begin[able] + (sizes[able] + 1) * per_unit[able]).tolist(), able.tolist(), strict=True))
            heapq.heapify(line)
            for _ in range(left):
                end, i = line[0]
                sizes[i] += 1
                if sizes[i] < room[i]:
                    heapq.heapreplace(line, (end + float(per_unit[i]), i))
                else:
                    heapq.heappop(line)
    return sizes
