"""System identification: fits a linear model of a process by least squares.

    y(k) = a_1 y(k−1) + … + a_n y(k−n) + b_1 u(k−1) + … + b_m u(k−m)

y and u count from an operating point (the miss ratio from its set point, the bound from its current value). The model
of the miss ratio (Mamat 2011, ch. 7) is found this way, from samples taken at equal intervals while the input moved. A
constant input contains no information, and the fit refuses it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.control.model import Model


def fit(outputs: ArrayLike, inputs: ArrayLike, *, na: int = 1, nb: int = 1) -> Model:
    """Fit a model of ``na`` outputs and ``nb`` inputs to samples, (K,) each; input k is set before output k + 1.

    ValueError: too few samples for the number of coefficients, samples that are not finite, or an input that did not
    move enough to separate its effect from the outputs' own.
    """
    y, u = np.asarray(outputs, dtype=np.float64), np.asarray(inputs, dtype=np.float64)
    if y.ndim != 1 or y.shape != u.shape or not (np.isfinite(y).all() and np.isfinite(u).all()):
        raise ValueError("outputs and inputs must be two sequences of finite numbers of the same length")
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
            "the samples do not separate the coefficients: the input must move independently of the output"
        )
    rest = wanted - table @ found
    spread = float(((wanted - wanted.mean()) ** 2).sum())
    r2 = 1.0 - float((rest**2).sum()) / spread if spread > 0 else 1.0
    return Model(tuple(found[:na].tolist()), tuple(found[na:].tolist()), r2)


def _lags(y: NDArray[np.float64], u: NDArray[np.float64], first: int, na: int, nb: int) -> NDArray[np.float64]:
    """Return the values before each output from ``first`` on, one row each."""
    end = y.size
    columns = [y[first - j : end - j] for j in range(1, na + 1)] + [u[first - j : end - j] for j in range(1, nb + 1)]
    return np.stack(columns, axis=1)
