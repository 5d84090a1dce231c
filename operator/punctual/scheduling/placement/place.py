"""Placement of one demand: its processors, its partition, and its times.

The demand is placed on a `Timeline` by the pool's discipline (Mamat 2011, ch. 4, with inserted idle times used). Shares
are rounded to whole units, and the deadline is tested after that.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.placement.capacity import Capacity, impossible
from punctual.scheduling.placement.demand import Demand, Floats, Shortfall
from punctual.scheduling.placement.sites import Indices
from punctual.scheduling.placement.slotted import place_around, retimed_around
from punctual.scheduling.placement.timeline import Placement, Timeline, extra_fragments
from punctual.theory.cost import Cost
from punctual.theory.cut_points import cut_points
from punctual.theory.partition import equal_partition, least_processors, partition, shares_of_equals
from punctual.theory.tolerance import tolerance

FEW = 64
"""Number of processors that are tried before all are considered."""


def place(demand: Demand, timeline: Timeline) -> Placement | Shortfall:
    """Place a demand in whole units so that its rounded ends meet the due time; otherwise return why not."""
    demand, timeline = demand.anew(), timeline.as_used(demand)
    if timeline.confines(demand) or demand.own:
        return _place_confined(demand, timeline)
    if timeline.blackouts is not None and (
        demand.inside is not None or not timeline.blackouts.begins_behind(demand.due + demand.reduce)
    ):
        return place_around(demand, timeline, timeline.blackouts)
    return _place_beside(demand, timeline)


def _place_beside(demand: Demand, timeline: Timeline) -> Placement | Shortfall:
    """Place a demand that meets no blackout, on any of the places."""
    cost, units, late = demand.cost, demand.ranges.total, demand.late
    if short := impossible(demand, timeline.ready.size):
        return short
    if units == 0:
        return _place_reduce(demand, timeline.ready)
    ready = np.maximum(timeline.ready, demand.not_before)
    if ready.size > FEW and (placement := _among_few(demand, timeline, ready)):
        return placement
    order = ready.argsort(kind="stable")
    line = ready[order]
    soonest = float(line[0]) if line.size else np.inf
    if demand.least > 1:
        order, line = _first_together(demand, timeline, order, line)
    # Whole units that each can finish by the due time if it has the port to itself.
    begin = np.maximum(line, timeline.port) if timeline.discipline.one_port else line
    room = np.floor((demand.surely_late - cost.setup - begin) / (cost.tau + timeline.chi(cost, order)))
    useful = np.flatnonzero(room >= 1)
    usable = int(useful[-1]) + 1 if useful.size else 0
    capacity = Capacity(np.maximum(room[:usable], 0.0).cumsum())
    first, most = capacity.numbers(demand)
    if timeline.discipline.assign == "AN":
        numbers = _of_use(demand, timeline, order, line, first)
    else:
        numbers = _numbers(demand, timeline, begin, first, most)
    for n in numbers:
        placement = _cut(demand, timeline, order[:n], line[:n])
        if placement.finish <= late:
            return _with_reduce(placement)
    return capacity.shortfall(demand, processors=ready.size, first=soonest)


def _place_confined(demand: Demand, timeline: Timeline) -> Placement | Shortfall:
    """Place a demand that may use some of the places only: on a timeline of those alone.

    If its pods must be on one node, the node is taken on which it ends first of those on which it is in time.
    """
    free, ready = replace(demand, eligible=None, own=()), timeline.ready_for(demand)
    found: list[Placement] = []
    short: list[Shortfall] = []
    for places in timeline.sites.choices(demand.eligible):
        if demand.eligible is not None and demand.eligible.ports:
            places = _one_per_node(timeline, places, ready)  # noqa: PLW2901  fewer of them
        if demand.own:
            places = _with_its_own(demand, timeline, places, ready)  # noqa: PLW2901  fewer of them
        part = timeline.only(places)
        part.ready = ready[places]
        got = place(free, part)
        if isinstance(got, Shortfall):
            short.append(got)
            continue
        got.demand, got.where = demand, places[got.where]
        got.reducer = None if got.reducer is None else int(places[got.reducer])
        found.append(got)
    return min(found, key=lambda placement: placement.finish) if found else max(short, key=lambda s: s.fit)


def _one_per_node(timeline: Timeline, places: Indices, ready: Floats) -> Indices:
    """Return of each node the place that is free first: its pods take a host port, so a node has one of them."""
    first: dict[str, int] = {}
    for i in places[ready[places].argsort(kind="stable")].tolist():
        first.setdefault(timeline.sites.places[i].node, i)
    return np.array(sorted(first.values()), dtype=np.intp)


def _with_its_own(demand: Demand, timeline: Timeline, places: Indices, ready: Floats) -> Indices:
    """Return the places of the demand's running units, and of the others as many that are free first as it may have.

    If more units run than it may have, others follow only the last of them.
    """
    own, most = set(demand.own), demand.most or places.size
    line = places[ready[places].argsort(kind="stable")].tolist()
    there = [i for i in line if timeline.sites.places[i] in own][-most:]
    others = [i for i in line if timeline.sites.places[i] not in own]
    return np.array(sorted([*there, *others[: max(0, most - len(own))]]), dtype=np.intp)


def _among_few(demand: Demand, timeline: Timeline, ready: Floats) -> Placement | None:
    """Place as :func:`place` does, if the first processors of many are enough and all of them could be useful.

    The usual case (OPR, MN, equal, concurrent), without considering all other processors.
    """
    if timeline.speeds is not None or not timeline.discipline.plain or demand.least > FEW:
        return None
    order = first_free(ready, FEW)
    line = begun_together(ready[order], demand)
    cost, units, late = demand.cost, demand.ranges.total, demand.late
    room = np.floor((demand.surely_late - cost.setup - line) / (cost.tau + cost.chi))
    if room[-1] < 1.0:
        return None
    first = max(demand.least, demand.as_before, 1 + int(room.cumsum().searchsorted(units)))
    for n in range(first, min(line.size, demand.most or line.size) + 1):
        placement = _cut(demand, timeline, order[:n], line[:n])
        if placement.finish <= late:
            return _with_reduce(placement)
    return None


def begun_together(ready: Floats, demand: Demand) -> Floats:
    """Return when the processors of a line can begin, if none begins before the first ``least`` of them can."""
    if demand.least == 1 or ready.size < demand.least:
        return ready
    return np.asarray(np.maximum(ready, ready[: demand.least].max()))


def _first_together(
    demand: Demand, timeline: Timeline, order: NDArray[np.intp], line: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """Return a line in which the first ``least`` processors begin at one time, and when each can begin.

    That is the earliest time at which so many can each do one unit in time; processors that cannot are left out. Empty:
    there is no such time.
    """
    least, cost = demand.least, demand.cost
    one_unit = np.broadcast_to(np.asarray(cost.tau + timeline.chi(cost, order)), line.shape)
    latest = demand.surely_late - cost.setup - one_unit
    for k in range(least - 1, line.size):
        if timeline.speeds is not None and k + 1 < line.size and line[k + 1] == line[k]:
            continue  # more are ready at this time
        begin = max(line[k], timeline.port) if timeline.discipline.one_port else line[k]
        able = np.flatnonzero(latest[: k + 1] >= begin)
        if able.size >= least:
            chosen = np.concatenate((able, np.arange(k + 1, line.size)))
            return order[chosen], np.maximum(line[chosen], line[k])
        if timeline.speeds is None:
            break  # a later time is no better for equal processors
    return order[:0], line[:0]


def together_from(demand: Demand, timeline: Timeline) -> float:
    """Return from when on ``least`` processors are free at one time, each for at least one unit; inf: never."""
    ready = np.maximum(timeline.ready, demand.not_before)
    if timeline.blackouts is None:
        return float(np.sort(ready)[demand.least - 1]) if ready.size >= demand.least else np.inf
    slots = timeline.blackouts.slots(ready, demand.inside)
    needed = demand.cost.setup + demand.cost.tau + timeline.chi(demand.cost, slots.place)
    enough = (
        at
        for at in np.unique(slots.begin).tolist()
        if np.count_nonzero((slots.begin <= at) & (slots.until - at >= needed)) >= demand.least
    )
    return float(next(enough, np.inf))


def first_free(ready: Floats, count: int) -> NDArray[np.intp]:
    """Return the first ``count`` processors of a stable sort of all by ready time, in a third of its time."""
    if ready.size <= count:
        return ready.argsort(kind="stable")
    order: NDArray[np.intp] = np.flatnonzero(ready <= np.partition(ready, count - 1)[count - 1])
    first: NDArray[np.intp] = order[ready[order].argsort(kind="stable")[:count]]
    return first


def _with_reduce(placement: Placement) -> Placement:
    """Place the demand's reduce step where its last chunk ends."""
    demand = placement.demand
    if demand.reduce:
        placement.reducer = int(placement.where[int(placement.ends.argmax())])
        placement.finish = max(placement.finish, demand.running_until) + demand.reduce
    return placement


def might_fit(demand: Demand, timeline: Timeline) -> bool:
    """Whether :func:`place` could succeed, judged by the units that each processor could finish in time.

    A demand that does not fit here does not fit when processors are ready later either.
    """
    if timeline.blackouts is not None or demand.reduce or not demand.ranges:
        return True
    timeline, cost = timeline.as_used(demand).allowed(demand), demand.cost
    begin = np.maximum(timeline.ready, demand.not_before)
    if timeline.discipline.one_port:
        begin = np.maximum(begin, timeline.port)
    chi = cost.chi if timeline.speeds is None else cost.chi * timeline.speeds
    room = np.floor((demand.surely_late - cost.setup - begin) / (cost.tau + chi))
    return float(np.maximum(room, 0.0).sum()) * (1.0 + 1e-9) >= demand.ranges.total


def _numbers(demand: Demand, timeline: Timeline, begin: Floats, first: int, most: int) -> Iterable[int]:
    """Return the numbers of processors to try, in this order; with fewer than ``first`` it cannot be in time.

    ``begin``: (N,) when each could begin, ascending.
    """
    d, cost, units = timeline.discipline, demand.cost, demand.ranges.total
    if first > most:
        return ()
    if timeline.speeds is not None or timeline.unbroken(demand):
        return range(first, most + 1)
    late = demand.surely_late
    if d.partition == "EPR":
        late += cost.per_unit  # whole units: a chunk may have up to one unit less than its equal part
    if d.together:
        seconds = d.durations(units, cost, limit=begin.size)[:most]
        if demand.least > 1:  # it may need more processors than are useful
            seconds = np.minimum.accumulate(seconds)
        ends = begin[:most] + seconds
    elif d.partition == "EPR":
        ends = _equal_ends(units, begin[:most], cost, one_port=d.one_port)
    elif d.one_port:
        least = least_processors(units, begin[:most], cost, deadline=late, least=first, one_port=True)
        return range(least, most + 1) if least else ()
    else:
        return range(first, most + 1)
    return (n for n in (np.flatnonzero(ends <= late) + 1).tolist() if n >= first)


def _of_use(demand: Demand, timeline: Timeline, order: NDArray[np.intp], line: Floats, first: int) -> Iterable[int]:
    """Return the numbers of processors to try if all useful ones are taken (AN): n*, less those not worth a chunk.

    Without the minimum, each early end would divide the rest over all processors again, down to chunks of no size. If
    the due time needs such small chunks, the least number that is in time comes next, and n* last.
    """
    limit = min(line.size, demand.most or line.size)
    useful = timeline.discipline.most_useful(demand.ranges.total, demand.cost, limit=limit) if limit else 1
    n, late = max(demand.least, min(demand.as_before, limit), useful), demand.late
    if not first <= n <= limit:
        return

    def cut(k: int) -> Placement:
        return _cut(demand, timeline, order[:k], line[:k])

    whole = cut(n)
    if whole.finish <= late and not _worth(whole, n):
        fine = first + bisect_left(range(first, n), x=True, key=lambda k: not _worth(cut(k), k))
        if fine > first:
            yield fine - 1
        yield fine + bisect_left(range(fine, n), x=True, key=lambda k: cut(k).finish <= late)
    yield n


def _worth(placement: Placement, processors: int) -> bool:
    """Whether each of the processors has a chunk that is worth its set-up."""
    sizes = np.diff(placement.cuts)
    return sizes.size == processors and int(sizes.min()) >= placement.demand.least_chunk


def _equal_ends(units: int, begin: Floats, cost: Cost, *, one_port: bool) -> Floats:
    """Return when equal parts on the first 1, 2, … processors end: the last to begin ends last."""
    n = np.arange(1.0, begin.size + 1.0)
    sending = cost.theta_cm + units / n * cost.tau
    if not one_port:
        return begin + cost.setup + units / n * cost.per_unit
    # The last of n begins no earlier than each r_j + (n − j) sending, j <= n.
    behind = n[:, None] - n[None, :]
    starts = np.where(behind >= 0, begin[None, :] + behind * sending[:, None], -np.inf).max(axis=1)
    return np.asarray(starts + sending + cost.theta_cp + units / n * cost.chi)


def _cut(demand: Demand, timeline: Timeline, where: NDArray[np.intp], line: Floats) -> Placement:
    """Partition the demand over these places, ready at ``line``, and keep those that get at least one unit.

    The first ``least`` get one in any case.
    """
    d, cost, units = timeline.discipline, demand.cost, demand.ranges.total
    begin = np.full(line.size, line[-1]) if d.together else line
    if d.one_port:
        begin = np.maximum(begin, timeline.port)
    speeds = None if timeline.speeds is None else timeline.speeds[where]
    if d.plain and speeds is None:
        shares = shares_of_equals(units, begin, cost)
    else:
        divide = partition if d.partition == "OPR" else equal_partition
        shares = divide(units, begin, cost, one_port=d.one_port, speeds=speeds).shares
    cuts = cut_points(shares, units)
    sizes = cuts[1:] - cuts[:-1]
    if demand.least > 1 and not sizes[: demand.least].all():
        sizes = _a_unit_each(sizes, demand.least)
        cuts = np.concatenate(([0], sizes.cumsum()))
    if np.count_nonzero(sizes) == sizes.size:
        where, begin = where.copy(), begin.copy()  # a slice would keep all processors' times in memory
    else:
        kept = sizes.nonzero()[0]
        where, sizes, begin = where[kept], sizes[kept], begin[kept]
        cuts = np.concatenate(([0], sizes.cumsum()))
    if timeline.unbroken(demand):
        where, sizes, begin = timeline.at_holes(demand, where, sizes, begin)
        cuts = np.concatenate(([0], sizes.cumsum()))
    walk = timeline.walk(where, sizes, begin, cost)
    ends = walk.ends
    if len(demand.ranges.parts) > 1:
        ends = ends + cost.setup * extra_fragments(demand.ranges, cuts)
    finish = float(ends.max())
    if finish - float(ends.min()) <= tolerance(finish):
        ends = np.full(ends.size, finish)  # meant to be equal; gives the next demand fewer distinct times
    return Placement(demand, where, cuts, walk.starts, ends, finish, port=walk.port)


def _a_unit_each(sizes: NDArray[np.int64], first: int) -> NDArray[np.int64]:
    """Return the sizes with at least one unit for each of the first chunks, taken from the largest."""
    sizes = sizes.copy()
    spare = sizes.copy()
    spare[:first] -= 1
    for empty in np.flatnonzero(spare < 0).tolist():
        largest = int(spare.argmax())
        sizes[largest] -= 1
        spare[largest] -= 1
        sizes[empty] = 1
        spare[empty] = 0
    return sizes


def _place_reduce(demand: Demand, ready: Floats) -> Placement | Shortfall:
    if not ready.size:
        return Shortfall(demand.uid, 0, 0, None, 0, 0, demand.due)
    soonest = max(demand.running_until, demand.not_before)
    in_time = ready <= soonest
    # The last place to become free, usually where the job's own last chunk ends: idle time before it is for others.
    at = int(np.where(in_time, ready, -np.inf).argmax() if in_time.any() else ready.argmin())
    start = max(float(ready[at]), soonest)
    if start > demand.late:
        return Shortfall(demand.uid, 0, 0, None, ready.size, 0, start)
    empty = np.empty(0)
    nowhere = np.empty(0, dtype=np.intp)
    cuts = np.zeros(1, dtype=np.int64)
    return Placement(demand, nowhere, cuts, empty, empty, start + demand.reduce, reducer=at)


def retimed(placement: Placement, timeline: Timeline) -> Placement:
    """Return a placement on another timeline: times move, shares do not."""
    demand, sizes = placement.demand, np.diff(placement.cuts)
    timeline = timeline.as_used(demand)
    free = timeline.ready_for(demand)
    if (blackouts := timeline.blackouts) is not None:
        return retimed_around(
            placement, timeline if free is timeline.ready else replace(timeline, ready=free), blackouts
        )
    ready = begun_together(np.maximum(free[placement.where], demand.not_before), demand)
    if timeline.together(demand):
        ready = np.full(ready.size, ready.max(initial=-np.inf))
    walk = timeline.walk(placement.where, sizes, ready, demand.cost)
    ends = walk.ends + demand.cost.setup * extra_fragments(demand.ranges, placement.cuts)
    finish = float(ends.max()) if ends.size else 0.0
    if placement.reducer is not None:
        finish = max(finish, demand.running_until, float(free[placement.reducer])) + demand.reduce
    return replace(placement, starts=walk.starts, ends=ends, port=walk.port, finish=finish)
