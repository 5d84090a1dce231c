"""Execution time of a load on n equal processors that start together, and the number of processors it needs.

The closed forms of Mamat 2011, ch. 4, for one port: special cases of :mod:`punctual.theory.partition`, and faster. OPR,
the optimal partitioning rule, ends all processors together; EPR, the equal partitioning rule, is the common practice,
kept as the baseline. Callers are schedules that count processors as the paper does, the orders that weigh jobs, and
workload generators. ``load`` σ is in units, ``n`` counts processors, all times are durations in seconds; ``window`` is
the paper's A + D − s, the time from a start to the deadline.
"""

from bisect import bisect_left
from collections.abc import Callable
from math import ceil, log1p, sqrt

from punctual.theory.cost import Cost
from punctual.theory.geometric import double_sum, partial_sum


def execution_time(load: float, n: int, cost: Cost) -> float:
    """Return E(σ, n) = θcm + θcp + σ(τ + χ)B(n) under OPR (4.6), in s.

    Above :func:`n_star` the formula continues with negative shares: workload generators use that number, schedules do
    not.
    """
    return cost.setup + cost.per_unit * _first_share(load, n, cost)


def execution_time_equal(load: float, n: int, cost: Cost) -> float:
    """Return E(σ, n) = nθcm + στ + θcp + σχ/n under EPR (4.8), in s."""
    return n * cost.theta_cm + load * cost.tau + cost.theta_cp + load * cost.chi / n


def n_star(load: float, cost: Cost, *, limit: int) -> int:
    """Return min(``limit``, n*): the number of processors with which OPR ends soonest (4.4); ``limit`` if θcm = 0.

    The n-th has a share, and shortens E, exactly if σ exceeds what keeps n − 1 busy until it would start: θcm/(τ + χ) ·
    Σ_{i=1}^{n−1} Σ_{m=1}^{i} β^−m.
    """
    if cost.theta_cm == 0.0:
        return limit
    grow, share, held = 1.0, 0.0, 0.0
    for n in range(1, limit):
        grow /= cost.beta
        share += grow * cost.theta_cm / cost.per_unit
        held += share
        if load <= held:
            return n
    return limit


def n_star_equal(load: float, cost: Cost, *, limit: int) -> int:
    """Return min(``limit``, n*) under EPR: the number of processors with which it ends soonest, near √(σχ/θcm).

    By (4.8) the chunk that ends last gets shorter by σχ/(n(n + 1)) from n to n + 1 processors, and one more transfer is
    set up before it: n* is the least n with n(n + 1) θcm >= σχ. Without θcm, more processors are always better.
    """
    work = load * cost.chi
    if work > limit * (limit - 1) * cost.theta_cm:
        return limit
    return max(1, ceil((sqrt(1.0 + 4.0 * work / cost.theta_cm) - 1.0) / 2.0))


def n_min(load: float, cost: Cost, *, window: float, limit: int) -> int | None:
    """Return n^min under OPR: the least n <= ``limit`` with E(σ, n) <= ``window`` (4.7); None: there is none.

    Without θcm, n^min = ⌈ln(1 − στ/(window − θcp)) / ln β⌉, or ⌈σχ/(window − θcp)⌉ for τ = 0 (β = 1). Otherwise n^min
    is found by a search up to n*, where E still falls.
    """
    if cost.theta_cm == 0.0:
        net = window - cost.theta_cp
        if net <= load * cost.tau:
            return None  # the port alone takes longer
        exact = (
            load * cost.chi / net
            if cost.tau == 0.0
            else log1p(-load * cost.tau / net) / log1p(-cost.tau / cost.per_unit)
        )
        return _settle(exact, limit, lambda n: execution_time(load, n, cost) <= window)
    most = n_star(load, cost, limit=limit)
    n = 1 + bisect_left(range(1, most + 1), x=True, key=lambda n: execution_time(load, n, cost) <= window)
    return n if n <= most else None


def n_min_equal(load: float, cost: Cost, *, window: float, limit: int) -> int | None:
    """Return n^min under EPR: the least integer n <= ``limit`` with θcm n² − ωn + σχ <= 0 (4.10); None: there is none.

    ω = window − στ − θcp. The paper distinguishes no real root, one, and two, of which the lower is rounded up. If no
    integer lies between the two roots (1.2 and 1.8), the paper still returns a number; this function returns None.
    """
    omega = window - load * cost.tau - cost.theta_cp
    if omega <= 0.0:
        return None
    # If the radicand is negative there is no root: 0 gives the lowest point of the parabola, and that fails the test.
    root = sqrt(max(0.0, omega * omega - 4.0 * cost.theta_cm * load * cost.chi))
    # (ω − root) / 2θcm, in the form that stays exact as θcm goes to 0
    exact = 2.0 * load * cost.chi / (omega + root)
    return _settle(exact, limit, lambda n: execution_time_equal(load, n, cost) <= window)


def workload_derivative(load: float, n: int, cost: Cost) -> float:
    """Return δw = w(n + 1) − w(n) with w(n) = n E(σ, n) (4.1): what one more processor than needed costs, in s.

    MWF, maximum workload derivative first, orders jobs by it at their n^min.
    """
    return (n + 1) * execution_time(load, n + 1, cost) - n * execution_time(load, n, cost)


def _settle(exact: float, limit: int, fits: Callable[[int], bool]) -> int | None:
    """Round a real n^min up; close to an integer, where rounding errors matter, the test itself decides."""
    if exact > limit + 1:
        return None
    up = ceil(exact)
    return next((n for n in range(max(1, up - 1), min(limit, up + 1) + 1) if fits(n)), None)


def _first_share(load: float, n: int, cost: Cost) -> float:
    """Return σα_1 = σB(n), in units, as a quotient of positive sums.

    As printed, B(n) subtracts nφ/(1 − β^n) and φ/(1 − β), which both grow without bounds as τ goes to 0.
    """
    rest = cost.tau / cost.per_unit
    return (load + double_sum(n, rest) * cost.theta_cm / cost.per_unit) / partial_sum(n, rest)
