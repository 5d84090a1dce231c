"""Sums over powers of β = 1 − rest that stay exact as ``rest`` goes to 0 (no transfers, β = 1)."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, expm1, log, log1p

import numpy as np
from numpy.typing import NDArray

from punctual.theory.cost import Cost


def partial_sum(n: int, rest: float) -> float:
    """Return Σ_{i<n} β^i = (1 − β^n)/(1 − β); n if ``rest`` is 0."""
    if rest == 0.0:
        return float(n)
    if rest == 1.0:  # β is too small for a float
        return float(min(n, 1))
    return -expm1(n * log1p(-rest)) / rest


def double_sum(n: int, rest: float) -> float:
    """Return Σ_{k<n} Σ_{i<k} β^i = (n − (1 − β^n)/(1 − β))/(1 − β), without cancellation for small ``rest``."""
    if n * rest > 1e-3:
        return (n - partial_sum(n, rest)) / rest
    # the binomial series Σ_i C(n, i + 2)(−rest)^i: four terms are exact to 1e-14 here
    total, term = 0.0, n * (n - 1) / 2.0
    for i in range(4):
        total += term
        term *= -rest * (n - 2 - i) / (i + 3)
    return total


@dataclass(frozen=True, slots=True)
class GroupShares:
    """Shares of equal processors that are ready together, served over one port, and end at one time.

    The first gets ``first`` units; each of the others β times the share before it, less θcm/(τ + χ).
    """

    cost: Cost
    rest: float
    """1 − β."""
    log: float
    """ln β."""
    step: float
    """θcm/(τ + χ)."""

    @classmethod
    def of(cls, cost: Cost) -> "GroupShares":
        """Return the shares for a cost."""
        return _of(cost)

    def powers(self, count: int) -> float:
        """Return Σ_{i<count} β^i."""
        return -expm1(count * self.log) / self.rest if self.rest else float(count)

    def total(self, first: float, count: int) -> float:
        """Return the sum of the first ``count`` shares."""
        total = first * self.powers(count)
        return total - self.step * double_sum(count, self.rest) if self.step else total

    def shares(self, first: float, j: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the j-th shares (from 0)."""
        gone: NDArray[np.float64] = -np.expm1(j * self.log)  # 1 − β^j
        found: NDArray[np.float64] = first * (1.0 - gone) - self.step * (gone / self.rest if self.rest else j)
        return found

    def served(self, first: float, number: int) -> int:
        """Return how many of ``number`` processors have a share."""
        if not self.step or self._share(first, number - 1) > 0.0:
            return number
        # β^j (first + c) = c with c = step/(1 − β)
        exact = log1p(first * self.rest / self.step) / -self.log if self.rest else first / self.step
        count = min(number, max(1, ceil(exact)))
        while count > 1 and self._share(first, count - 1) <= 0.0:
            count -= 1
        while count < number and self._share(first, count) > 0.0:
            count += 1
        return count

    def _share(self, first: float, j: int) -> float:
        gone = -expm1(j * self.log)
        return first * (1.0 - gone) - self.step * (gone / self.rest if self.rest else j)


@lru_cache(maxsize=1024)
def _of(cost: Cost) -> GroupShares:
    rest = cost.tau / cost.per_unit
    # Both are ln β. The first is accurate if β is close to 1, the second if β is close to 0.
    ln = log1p(-rest) if rest < 0.5 else log(cost.beta)
    return GroupShares(cost, rest, ln, cost.theta_cm / cost.per_unit)
