"""Partition of a load so that all processors with a share finish together.

The principle of divisible load theory (Mamat 2011, ch. 4: the optimal partitioning rule): as long as one processor ends
before another, moving load between them shortens the schedule. Here, processors may become ready at different times and
differ in speed; the paper's closed forms (:mod:`punctual.theory.execution_time`) are special cases.

Concurrent: every processor fetches its own input as soon as it is ready,

    a_j(T) = max(0, (T − r_j − θcm − θcp) / (τ_j + χ_j)),

One port: the head node sends to one processor at a time, in the order given,

    x_j = max(r_j, port_free),  a_j(T) = max(0, (T − x_j − θcm − θcp) / (τ_j + χ_j)),  port_free = x_j + θcm + a_j τ_j

and a processor with a_j = 0 is skipped: it has no set-up and does not use the port. T is the least with Σ a_j(T) =
load.

Shares are real numbers; :mod:`punctual.theory.cut_points` rounds them to whole units. Callers are admission (does the
load end by the deadline, and with how many processors) and dispatch. Times are absolute seconds on the caller's clock.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf, isfinite, nextafter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.theory.cost import Cost
from punctual.theory.geometric import GroupShares
from punctual.theory.tolerance import tolerance

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value
class Partition:
    """Shares of a load by processor, their starts, and the common finish.

    shares  a_j  units  load per processor, in the order given; 0 = skipped
    starts  x_j  s      when its transfer (one port) or its chunk (concurrent) begins; skipped: would begin
    finish  T    s      when all that have a share end, or the last of equal shares
    """

    shares: Floats
    starts: Floats
    finish: float


def partition(
    load: float,
    ready: ArrayLike,
    cost: Cost,
    *,
    one_port: bool = False,
    speeds: ArrayLike | None = None,
) -> Partition:
    """Partition ``load`` units over processors ready at ``ready`` (s, any clock) for the earliest common finish.

    ``speeds`` multiplies χ per processor (2 = half as fast); τ is the same for all. The order of ``ready`` is the order
    of service. With one port it decides the result: ready-time order is the optimum for equal processors and for θcm =
    0; for different speeds and θcm > 0 no simple order is (tests measure by how much). Concurrent processors do not
    interact, so any order gives the optimum. With set-up costs and one port the optimum may leave out a processor that
    would have a share.

    Exact except for rounding (Σ shares = load to 1e-11 relative); O(N) for sorted equal processors, O(N log N)
    otherwise. ValueError: load not positive, no processor, a ready time or factor not finite, a factor not positive.
    """
    at, ascending = _times(ready)
    if not 0.0 < load < inf:
        raise ValueError(f"load must be positive and finite, not {load}")
    # Times count from the first ready time: on a clock that counts since 1970, cumulative sums would lose milliseconds.
    origin = at.item(0) if ascending else at.min().item()
    gap = at - origin
    if one_port and ascending and speeds is None and _mostly_together(at):
        return _one_port_equal(load, at, cost)
    if one_port:
        per_unit = cost.tau + cost.chi * _factors(speeds, at)
        return _one_port(load, at, cost, per_unit, origin=origin, ascending=ascending)
    if speeds is not None:
        per_unit = cost.tau + cost.chi * _factors(speeds, at)
        return _concurrent(load, at, gap, 1.0 / per_unit, origin=origin + cost.setup)
    end = _common_end(load * cost.per_unit, gap if ascending else np.sort(gap))
    return Partition(_until(end, gap, cost), at.copy(), origin + cost.setup + end)


def shares_of_equals(load: float, ready: Floats, cost: Cost) -> Floats:
    """Return the shares of :func:`partition` for equal and concurrent processors, to the last bit.

    Fast, because the arguments are not checked: ``load`` must be positive, ``ready`` ascending and finite.
    """
    gap = ready - ready[0]
    return _until(_common_end(load * cost.per_unit, gap), gap, cost)


def _until(end: float, gap: Floats, cost: Cost) -> Floats:
    """Return the loads of equal processors, each from its time of ``gap`` to the common end."""
    shares = end - gap
    np.maximum(shares, 0.0, out=shares)
    shares /= cost.per_unit
    return shares


def _common_end(work: float, line: Floats) -> float:
    """Return the common end of equal processors doing ``work`` s, each from its time of ``line`` (ascending) on."""
    # need_k = k·r_k − Σ_{i<=k} r_i is the work done before the k-th joins
    total = line.cumsum()
    need = line * _counting(line.size)
    need -= total
    busy = int(need.searchsorted(work))
    return float((work + total.item(busy - 1)) / busy)


@lru_cache(maxsize=256)
def _counting(size: int) -> Floats:
    """Return 1, 2, … size."""
    numbers = np.arange(1.0, size + 1.0)
    numbers.flags.writeable = False
    return numbers


def least_processors(
    load: float, ready: ArrayLike, cost: Cost, *, deadline: float, least: int = 1, one_port: bool = False
) -> int | None:
    """Return n^min: the least n >= ``least`` for which the partition over ``ready[:n]`` ends by ``deadline``.

    ``ready`` ascends (s, the deadline's clock). None: not even all of them are enough. In ready-time order a share at a
    given finish does not depend on later processors, so one pass over the shares at the deadline finds n (4.7 "solved
    numerically", without a search): O(N). What it returns does end by the deadline, to the last bit.
    """
    at, ascending = _times(ready)
    if not ascending or not isfinite(deadline):
        raise ValueError("ready times must ascend, and the deadline must be finite")
    # The search aims slightly early, as rounding can put an exact fit on either side; partition() itself then decides.
    wanted = load * (1.0 - 1e-9)
    if one_port:
        first, usable = _fit(wanted, at, cost, deadline)
    else:
        room = (deadline - cost.setup) - at
        usable = int((room > 0.0).sum())
        first = 1 + int(room[:usable].cumsum().searchsorted(wanted * cost.per_unit))
    for n in range(max(least, first), at.size + 1):
        end = _finish(load, at[:n], cost, one_port=one_port)
        if end <= deadline:
            return n
        if n >= usable:  # the remaining processors are ready too late to help
            # but a line of all may be summed in another order than the first of them, and end a bit earlier
            exact = end <= deadline + tolerance(deadline)
            return at.size if exact and _finish(load, at, cost, one_port=one_port) <= deadline else None
    return None


def _finish(load: float, at: Floats, cost: Cost, *, one_port: bool) -> float:
    """Return when the partition ends, to the last bit as :func:`partition` returns it."""
    if one_port and _mostly_together(at):
        return at.item(0) + _solve(load, at, cost)[0]
    return partition(load, at, cost, one_port=one_port).finish


def _mostly_together(at: Floats) -> bool:
    """Whether many processors become ready at one time, so that groups are faster than a walk."""
    return 2 * int(np.count_nonzero(at[1:] != at[:-1])) < at.size


def _fit(load: float, at: Floats, cost: Cost, deadline: float) -> tuple[int, int]:
    """Return how many equal processors do ``load`` by the deadline over one port, and how many could have a share."""
    origin = at.item(0)
    group_of = GroupShares.of(cost)
    line = _serve(deadline - origin, _groups(at, origin), group_of)
    usable = sum(group.count for group in line.served)
    before, left = 0, load
    for group in line.served:
        if (total := group_of.total(group.first, group.count)) >= left:
            short = left
            n = bisect_left(range(group.count), x=True, key=lambda j: group_of.total(group.first, j + 1) >= short)
            return before + n + 1, usable
        before, left = before + group.count, left - total
    return usable + 1, usable


def equal_partition(
    load: float,
    ready: ArrayLike,
    cost: Cost,
    *,
    one_port: bool = False,
    speeds: ArrayLike | None = None,
) -> Partition:
    """Partition ``load`` into equal shares regardless of the processors: the equal partitioning rule (EPR, ch. 4).

    Common practice, kept as the baseline; arguments as for :func:`partition`. All processors get a share, and the last
    one to end determines the finish: n·θcm + σ·τ + θcp + σχ/n (4.8) if n equal ones share one port from one time on.
    """
    at, _ = _times(ready)
    if not 0.0 < load < inf:
        raise ValueError(f"load must be positive and finite, not {load}")
    share = load / at.size
    sending = cost.theta_cm + share * cost.tau
    starts = in_turn(at, np.full(at.size, sending)) if one_port else at.copy()
    ends = starts + sending + cost.theta_cp + share * cost.chi * _factors(speeds, at)
    return Partition(np.full(at.size, share), starts, ends.max().item())


def in_turn(ready: Floats, sending: Floats) -> Floats:
    """Return the starts of processors on one port in the order given: x_j = max(r_j, x_(j−1) + sending_(j−1))."""
    before = np.concatenate(([0.0], np.cumsum(sending[:-1])))
    # Without the time sent before it, a start is a running maximum of ready times.
    starts: Floats = np.maximum.accumulate(ready - before) + before
    np.maximum(starts, ready, out=starts)  # rounding must not start a processor before it is ready
    return starts


def _times(ready: ArrayLike) -> tuple[Floats, bool]:
    """Return the ready times as an array, and whether they ascend."""
    at = np.asarray(ready, dtype=np.float64)
    if at.ndim != 1 or at.size == 0:
        raise ValueError("ready must be a line of at least one time")
    ascending = bool((at[1:] >= at[:-1]).all())
    if not (isfinite(at.item(0)) and isfinite(at.item(-1)) and (ascending or np.isfinite(at).all())):
        raise ValueError("ready times must be finite")
    return at, ascending


def _factors(given: ArrayLike | None, like: Floats) -> Floats:
    if given is None:
        return np.ones_like(like)
    factors = np.asarray(given, dtype=np.float64)
    if factors.shape != like.shape or not ((factors > 0.0) & (factors < inf)).all():
        raise ValueError("speeds must be positive and finite, one per processor")
    return factors


def _concurrent(load: float, at: Floats, gap: Floats, rate: Floats, *, origin: float) -> Partition:
    """Solve Σ w_j (T − r_j)⁺ = load for T: breakpoints in order, w_j = ``rate`` in units/s."""
    order = gap.argsort(kind="stable")
    line = gap[order] - gap[order[0]]
    rates = rate[order].cumsum()
    done = (rate[order] * line).cumsum()
    busy = int((rates * line - done).searchsorted(load))
    end = gap.item(order.item(0)) + (load + done.item(busy - 1)) / rates.item(busy - 1)
    return Partition(np.maximum(end - gap, 0.0) * rate, at.copy(), origin + end)


@dataclass(slots=True)
class _Walk:
    """The shares at one finish, how fast their sum grows with it, and up to which finish that holds."""

    shares: list[float]
    starts: list[float]
    slope: float
    until: float

    @property
    def total(self) -> float:
        """All shares together."""
        return sum(self.shares)


def _walk(end: float, ready: list[float], per_unit: list[float], cost: Cost, *, after: bool = False) -> _Walk:
    """Serve the processors in order so that each ends at ``end``; with derivatives by ``end``.

    ``after``: the derivatives right after ``end`` rather than before it, if a processor joins there.
    """
    port, drift, tau = -inf, 0.0, cost.tau  # port_free and d port_free / d end
    walk = _Walk([], [], 0.0, inf)
    for r, p in zip(ready, per_unit, strict=True):
        start, moves = (port, drift) if port > r or (after and port == r) else (r, 0.0)
        if port < r and drift > 0.0:
            walk.until = min(walk.until, end + (r - port) / drift)
        due = start + cost.setup
        walk.starts.append(start)
        if end < due or (end == due and not after):
            walk.shares.append(0.0)
            if moves < 1.0:
                walk.until = min(walk.until, end + (due - end) / (1.0 - moves))
            continue
        share, grows = (end - due) / p, (1.0 - moves) / p
        walk.shares.append(share)
        walk.slope += grows
        port, drift = start + cost.theta_cm + share * tau, moves + grows * tau
    return walk


def _one_port(load: float, at: Floats, cost: Cost, per_unit: Floats, *, origin: float, ascending: bool) -> Partition:
    ready, p = (at - origin).tolist(), per_unit.tolist()
    if ascending:
        # The equation is solved again without the skipped processors: the finish must not depend on them, to the last
        # bit.
        busy, served = len(ready), -1
        while busy != served:
            served = busy

            def walk_to(end: float, n: int = served) -> _Walk:
                return _walk(end, ready[:n], p[:n], cost)

            # Over a port, nothing ends before it would without one; the fastest processor stands for all.
            first = cost.setup + _common_end(load * min(p), (at - origin)[:served])
            end, walk = _bracket(load, walk_to, first=first, high=cost.setup + load * p[0])
            busy = sum(share > 0.0 for share in walk.shares)
        walk = _walk(end, ready, p, cost)
    else:
        end, walk = _march(load, ready, p, cost)
    starts = np.maximum(np.array(walk.starts) + origin, at)  # rounding must not start a processor before it is ready
    return Partition(np.array(walk.shares), starts, origin + end)


@dataclass(slots=True)
class _Served:
    """Equal processors that become ready together, of which ``count`` are served from ``start`` on."""

    start: float
    first: float
    """Share of the first, units; each of the others gets β times the share before it, less θcm/(τ + χ)."""
    count: int


@dataclass(slots=True)
class _Line:
    """Groups of equal processors served over one port so that all end at one time."""

    served: list[_Served]
    total: float
    slope: float
    """How fast the total grows with the end."""


def _serve(end: float, groups: list[tuple[float, int]], of: GroupShares) -> _Line:
    """Serve groups (ready time, number) in order; closed forms replace a walk over each processor."""
    port, drift = -inf, 0.0  # port_free and d port_free / d end
    cost = of.cost
    setup, per_unit, theta, tau = cost.setup, cost.per_unit, cost.theta_cm, cost.tau
    line = _Line([], 0.0, 0.0)
    for ready, number in groups:
        start, moves = (port, drift) if port > ready else (ready, 0.0)
        first = (end - start - setup) / per_unit
        if first <= 0.0:
            break  # starts ascend: no later group has a share either
        count = of.served(first, number)
        total = of.total(first, count)
        grows = (1.0 - moves) / per_unit * of.powers(count)
        line.served.append(_Served(start, first, count))
        line.total += total
        line.slope += grows
        if count < number:
            break
        port, drift = start + count * theta + tau * total, moves + tau * grows
    return line


def _groups(at: Floats, origin: float) -> list[tuple[float, int]]:
    """Return (ready time after ``origin``, number) of the runs of equal times."""
    firsts = [0, *((at[1:] != at[:-1]).nonzero()[0] + 1).tolist(), at.size]
    times = at.tolist()
    return [(times[a] - origin, b - a) for a, b in pairwise(firsts)]


def _solve(load: float, at: Floats, cost: Cost) -> tuple[float, _Line]:
    """Return when equal processors end, after the first ready time, and how they are served."""
    origin = at.item(0)
    of, groups, before, served = GroupShares.of(cost), _groups(at, origin), 0, at.size
    high = cost.setup + load * cost.per_unit
    line = _Line([], 0.0, 0.0)
    end = high
    while served != before:
        # As in `_one_port`: the end must not depend on skipped processors, to the last bit.
        first = cost.setup + _common_end(load * cost.per_unit, at[:served] - origin)
        now = groups
        end, line = _bracket(load, lambda end, now=now: _serve(end, now, of), first=first, high=high)  # type: ignore[misc]
        groups = [(ready, group.count) for (ready, _), group in zip(groups, line.served, strict=False)]
        before, served = served, sum(group.count for group in line.served)
        if not served:  # the work is below a float's resolution: the first processor does it
            return high, _Line([_Served(0.0, load, 1)], load, 1.0)
    return end, line


def _one_port_equal(load: float, at: Floats, cost: Cost) -> Partition:
    """Serve equal processors in ready-time order; fast if many are ready together."""
    origin = at.item(0)
    end, line = _solve(load, at, cost)
    of = GroupShares.of(cost)
    shares, starts = np.zeros(at.size), at.copy()
    begin = 0
    for group in line.served:
        j = np.arange(group.count)
        own = slice(begin, begin + group.count)
        shares[own] = of.shares(group.first, j)
        sent = shares[own].cumsum() - shares[own]
        starts[own] = np.maximum(at[own], origin + group.start + j * cost.theta_cm + cost.tau * sent)
        begin += group.count
    np.maximum(shares, 0.0, out=shares)
    if begin < at.size and line.served:  # skipped processors would begin when the port is free
        last = line.served[-1]
        port = origin + last.start + last.count * cost.theta_cm + cost.tau * of.total(last.first, last.count)
        np.maximum(starts[begin:], port, out=starts[begin:])
    return Partition(shares, starts, origin + end)


W = TypeVar("W", _Walk, _Line)


def _bracket(load: float, walk: Callable[[float], W], *, first: float, high: float) -> tuple[float, W]:
    """Find T in ready-time order, where Σ a_j(T) never falls: bracketed Newton steps on a piecewise linear line.

    ``first``: not after T, where the search begins; at ``high`` the first processor alone does everything.
    """
    low, end, width = nextafter(first, -inf), first, inf
    while True:
        found = walk(end)
        over = found.total - load
        if abs(over) <= 1e-13 * load or nextafter(low, inf) >= high:
            return end, found
        low, high = (low, end) if over > 0.0 else (end, high)
        end = end - over / found.slope if found.slope > 0.0 else high
        if not low < end < high or high - low > width / 2.0:
            end = low + (high - low) / 2.0
        width = high - low


def _march(load: float, ready: list[float], per_unit: list[float], cost: Cost) -> tuple[float, _Walk]:
    """Find the least T in any order, piece by piece: a processor that joins can lower Σ a_j(T). O(N²)."""
    end = min(ready) + cost.setup
    while True:
        walk = _walk(end, ready, per_unit, cost, after=True)
        short = load - sum(walk.shares)
        reached = end + max(0.0, short) / walk.slope if walk.slope > 0.0 else inf
        if reached <= walk.until:
            return reached, _walk(reached, ready, per_unit, cost)
        # At least one tick: the change of the port may be below the clock's resolution at ``end``.
        end = max(walk.until, nextafter(end, inf))
