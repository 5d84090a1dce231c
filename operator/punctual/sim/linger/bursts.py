"""Run and idle bursts of a node's own work (Ryu 2001, 4.2 and appendix A).

Within two seconds of a given use, run bursts and idle bursts alternate. Both lengths are two-stage hyper-exponential,
with means and variances by use (table 9), by the method of moments with balanced means. A guest gets the idle bursts.
Each run burst preempts it: the host loses ``switch`` seconds by that, and the guest as much of the idle burst.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from punctual.linger.parallel import BurstLoad

Floats = npt.NDArray[np.float64]

WINDOW: Final = 2.0
"""Seconds for which a use holds."""

# use, %; mean and variance of run bursts, s and s²; the same of idle bursts (table 9)
_TABLE: Final = np.array(
    [
        [0, 0.000427, 0.000001, 0.030033, 0.000902],
        [5, 0.000974, 0.000019, 0.022065, 0.000493],
        [10, 0.002147, 0.000107, 0.018916, 0.000439],
        [15, 0.004016, 0.000318, 0.021012, 0.000458],
        [20, 0.004009, 0.000348, 0.016168, 0.000342],
        [25, 0.004402, 0.000301, 0.012858, 0.000243],
        [30, 0.005140, 0.000512, 0.011972, 0.000223],
        [35, 0.005624, 0.000438, 0.010481, 0.000168],
        [40, 0.006774, 0.000674, 0.010091, 0.000150],
        [45, 0.007988, 0.000725, 0.009778, 0.000130],
        [50, 0.009149, 0.000996, 0.009279, 0.000110],
        [55, 0.010833, 0.001521, 0.008963, 0.000114],
        [60, 0.019013, 0.003264, 0.012757, 0.000163],
        [65, 0.017979, 0.002477, 0.009690, 0.000101],
        [70, 0.021870, 0.007030, 0.009414, 0.000108],
        [75, 0.026148, 0.010449, 0.008940, 0.000080],
        [80, 0.031944, 0.006470, 0.007320, 0.000055],
        [85, 0.044013, 0.024730, 0.008147, 0.000069],
        [90, 0.066808, 0.038747, 0.007450, 0.000056],
        [95, 0.105832, 0.083109, 0.005590, 0.000032],
        [100, 0.652647, 0.556488, 0.005968, 0.000036],
    ]
)


def load(use: float) -> BurstLoad:
    """Return the bursts of a node's own work by its use, a fraction."""
    return BurstLoad(*(float(moment) for moment in _moments(np.array(use))))


def _moments(use: Floats) -> list[Floats]:
    """Return means and variances for uses (fractions), interpolated between the levels of the table."""
    return [np.interp(100.0 * use, _TABLE[:, 0], column) for column in _TABLE.T[1:]]


def _draw(rng: np.random.Generator, mean: Floats, variance: Floats, many: int) -> Floats:
    """Draw ``many`` burst lengths for each node: shape (nodes, many)."""
    spread = np.maximum(variance / mean**2, 1.0)  # fewer than an exponential's cannot be had from two stages
    first = (1.0 + np.sqrt((spread - 1.0) / (spread + 1.0))) / 2.0
    stage = np.where(rng.random((len(mean), many)) < first[:, None], first[:, None], 1.0 - first[:, None])
    drawn: Floats = rng.exponential(1.0, stage.shape) * mean[:, None] / (2.0 * stage)
    return drawn


class Bursts:
    """The bursts of some nodes. A burst that crosses the end of a window goes on in the next one."""

    def __init__(self, nodes: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._running = np.zeros(nodes, dtype=bool)
        self._rest = np.zeros(nodes)
        """The burst that crosses the window's end: its kind, and what is left of it, s."""

    def window(self, use: Floats, switch: float, seconds: float = WINDOW) -> tuple[Floats, Floats, Floats]:
        """Return, for the next ``seconds``, by node: seconds that hosts run, CPU seconds for a guest, preemptions.

        Hosts that use nothing have no bursts: the level of 0 % in the table is of nodes that use a little.
        """
        run_mean, run_variance, idle_mean, idle_variance = _moments(use)
        many = max(4, int(1.5 * seconds / float(np.min(run_mean + idle_mean))) + 16)
        runs = _draw(self._rng, run_mean, run_variance, many)
        idles = _draw(self._rng, idle_mean, idle_variance, many)
        # the bursts of a node, in turns, behind the one that goes on
        begins_idle = self._running[:, None]
        lengths = np.empty((len(use), 2 * many + 1))
        lengths[:, 0] = self._rest
        lengths[:, 1::2] = np.where(begins_idle, idles, runs)
        lengths[:, 2::2] = np.where(begins_idle, runs, idles)
        kinds = np.zeros(lengths.shape, dtype=bool)  # True: hosts run
        kinds[:, 0::2] = self._running[:, None]
        kinds[:, 1::2] = ~self._running[:, None]
        ends = np.minimum(np.cumsum(lengths, axis=1), seconds)
        ends[:, -1] = seconds  # so many bursts are hardly ever too few; the last one is then a little longer
        inside = np.diff(ends, axis=1, prepend=0.0)
        last = np.argmax(ends >= seconds, axis=1)
        rows = np.arange(len(use))
        uses = use > 0.0
        self._running = kinds[rows, last] & uses
        self._rest = np.maximum(np.cumsum(lengths, axis=1)[rows, last] - seconds, 0.0) * uses
        there = inside > 0.0
        begun = kinds & there
        begun[:, 0] = False  # it began in an earlier window
        # The switch takes from the idle burst that ends with it; shorter bursts are of no use to the guest.
        gained = np.where(~kinds & there, np.maximum(inside - switch, 0.0), 0.0)
        ran = np.where(kinds, inside, 0.0).sum(axis=1) * uses
        return ran, np.where(uses, gained.sum(axis=1), seconds), begun.sum(axis=1).astype(float) * uses
