"""Sums over powers of β = 1 − rest that stay exact where ``rest`` goes to 0 (nothing is sent, β = 1)."""

from math import expm1, log1p


def partial_sum(n: int, rest: float) -> float:
    """Return Σ_{i<n} β^i = (1 − β^n)/(1 − β); n where ``rest`` is 0."""
    if rest == 0.0:
        return float(n)
    return -expm1(n * log1p(-rest)) / rest


def double_sum(n: int, rest: float) -> float:
    """Return Σ_{k<n} Σ_{i<k} β^i = (n − (1 − β^n)/(1 − β))/(1 − β), which cancels where ``rest`` is small."""
    if n * rest > 1e-3:
        return (n - partial_sum(n, rest)) / rest
    # the binomial series Σ_i C(n, i + 2)(−rest)^i: four terms are exact to 1e-14 here
    total, term = 0.0, n * (n - 1) / 2.0
    for i in range(4):
        total += term
        term *= -rest * (n - 2 - i) / (i + 3)
    return total
