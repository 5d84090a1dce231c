"""What a process does with its input, learned from what it did: a linear model by least squares.

    y(k) = a_1 y(k−1) + … + a_n y(k−n) + b_1 u(k−1) + … + b_m u(k−m)

y and u count from an operating point (the miss ratio from its set point, the bound from where it stands). The model of
the miss ratio (Mamat 2011, ch. 7) and those of loops on chunks are found so, from samples taken at equal times while
the input moved: an input that stood still says nothing, and the fit refuses it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Model:
    """A linear model; ``r2`` tells how much of the output's variance its one-step forecasts explain (1: all)."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    r2: float = 1.0

    def forecast(self, outputs: ArrayLike, inputs: ArrayLike) -> float:
        """Return y(k) from the outputs and inputs before k, newest last."""
        y, u = np.asarray(outputs, dtype=np.float64), np.asarray(inputs, dtype=np.float64)
        past_y, past_u = y[::-1][: len(self.a)], u[::-1][: len(self.b)]
        return float(past_y @ np.array(self.a) + past_u @ np.array(self.b))

    @property
    def gain(self) -> float:
        """Where the output settles for an input that stays 1; ValueError where it never does."""
        left = 1.0 - sum(self.a)
        if abs(left) < 1e-12:
            raise ValueError("an integrating process settles nowhere")
        return sum(self.b) / left


def fit(outputs: ArrayLike, inputs: ArrayLike, *, na: int = 1, nb: int = 1) -> Model:
    """Fit a model of ``na`` outputs and ``nb`` inputs to samples, (K,) each, input k set before output k + 1 was seen.

    ValueError: too few samples for that many numbers, samples that are not finite, or an input that did not move enough
    to tell its effect from the outputs' own.
    """
    y, u = np.asarray(outputs, dtype=np.float64), np.asarray(inputs, dtype=np.float64)
    if y.ndim != 1 or y.shape != u.shape or not (np.isfinite(y).all() and np.isfinite(u).all()):
        raise ValueError("outputs and inputs must be two lines of as many finite numbers")
    if na < 0 or nb < 1:
        raise ValueError(f"a model has inputs: nb must be at least 1 and na not negative, not {nb} and {na}")
    first = max(na, nb)
    if y.size - first < na + nb + 1:
        raise ValueError(f"{y.size} samples are too few for {na + nb} numbers")
    table = _lags(y, u, first, na, nb)
    wanted = y[first:]
    found, _, rank, _ = np.linalg.lstsq(table, wanted, rcond=1e-9)
    if rank < na + nb:
        raise ValueError(
            "the samples do not tell the numbers apart: the input must move, and not with the output alone"
        )
    rest = wanted - table @ found
    spread = float(((wanted - wanted.mean()) ** 2).sum())
    r2 = 1.0 - float((rest**2).sum()) / spread if spread > 0 else 1.0
    return Model(tuple(found[:na].tolist()), tuple(found[na:].tolist()), r2)


def _lags(y: NDArray[np.float64], u: NDArray[np.float64], first: int, na: int, nb: int) -> NDArray[np.float64]:
    """Return what stands before each output from ``first`` on, one row each."""
    end = y.size
    columns = [y[first - j : end - j] for j in range(1, na + 1)] + [u[first - j : end - j] for j in range(1, nb + 1)]
    return np.stack(columns, axis=1)
