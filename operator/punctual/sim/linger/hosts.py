"""The nodes' own work, two seconds by two seconds: use of the CPU, and whether the node counts as idle.

The traces of the paper (Berkeley, 132 machines) are not published. Its text gives their marginals (3.1): idle in 54 %
of the time; use below 10 % in 82 % of the time and in 76 % of the busy time, 10 to 80 % in 13 %, above 80 % in 7 %; the
median of what is left of an episode is its age. `Ryu` draws series like that. Their share of idle time is calibrated:
with `IDLE`, the paper's own policies come out as published.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from punctual.linger.episode import BUSY, QUIET, Interval, Watch
from punctual.sim.linger.bursts import WINDOW, Floats

IDLE: Final = 0.585
"""Share of idle time, calibrated."""
SHORTEST: Final = QUIET
LONGEST: Final = 14_400.0
"""Least and greatest length of an episode, s; between them Pareto with exponent 1: the median rest is the age. Each
ends with a quiet minute (the recruitment threshold)."""
CALM: Final = 60.0
"""Seconds for which a use stays the same, in the mean."""
LEVELS: Final = {
    False: ((0.87, 0.00, 0.06), (0.13, 0.10, 0.40)),
    True: ((0.70, 0.00, 0.08), (0.11, 0.10, 0.80), (0.19, 0.80, 1.00)),
}
"""For idle and busy time: probability of a range of use, and its bounds; within them uniform. With the quiet minutes,
the use is below 10 % in 76 % of busy time."""
BISECTIONS: Final = 20
DIGITS: Final = 6
"""Of a window's CPU seconds: sums of many are off by less."""


class Series(NamedTuple):
    """Use of the CPU by hosts (fraction), and whether they make the node busy: both of shape (nodes, windows)."""

    use: Floats
    busy: npt.NDArray[np.bool_]

    def tell(self, intervals: Iterable[Interval], window: int) -> None:
        """Tell each node's interval what its hosts do in a window."""
        uses, busy = self.use[:, window].tolist(), self.busy[:, window].tolist()
        for interval, use, occupied in zip(intervals, uses, busy, strict=True):
            interval.pass_by(WINDOW, use, busy=occupied)


@dataclass(frozen=True, slots=True)
class Ryu:
    """The paper's hosts. ``idle``: share of idle time on all nodes together; the drawn intervals are scaled to it."""

    idle: float = IDLE

    def draw(self, nodes: int, windows: int, rng: np.random.Generator) -> Series:
        """Draw series; each begins somewhere in its course."""
        drawn = [self._intervals(windows, rng) for _ in range(nodes)]
        low, high = 0.0, 10.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            share = float(np.mean([_lay(one, middle, windows) for one in drawn]))
            low, high = (low, middle) if share < 1.0 - self.idle else (middle, high)
        busy = np.array([_lay(one, high, windows) for one in drawn])
        return Series(np.array([_uses(row, rng) for row in busy]), busy)

    def _intervals(self, windows: int, rng: np.random.Generator) -> list[tuple[bool, float]]:
        """Draw whether a node is busy, and for how long, s; more than enough for the windows."""
        busy_mean = SHORTEST * np.log(LONGEST / SHORTEST) / (1.0 - SHORTEST / LONGEST)
        idle_mean = busy_mean * self.idle / (1.0 - self.idle)
        now = bool(rng.random() >= self.idle)
        found: list[tuple[bool, float]] = []
        total = 0.0
        while total < 4.0 * windows * WINDOW:
            length = _episode(rng, whole=bool(found)) if now else float(rng.exponential(idle_mean))
            found.append((now, length))
            total += length
            now = not now
        return found


def _episode(rng: np.random.Generator, *, whole: bool) -> float:
    """Return the length of an episode, s, or what is left of the one that an instant falls into."""
    if whole:
        return float(SHORTEST / (1.0 - rng.random() * (1.0 - SHORTEST / LONGEST)))
    # An instant falls into an episode with a probability in proportion to its length: 1/x² becomes 1/x.
    return float(SHORTEST * (LONGEST / SHORTEST) ** rng.random() * rng.random())


def _lay(intervals: Sequence[tuple[bool, float]], factor: float, windows: int) -> npt.NDArray[np.bool_]:
    """Return by window whether a node is busy, with all idle intervals ``factor`` times as long."""
    ends = np.cumsum([length if busy else length * factor for busy, length in intervals])
    at = np.searchsorted(ends, (np.arange(windows) + 0.5) * WINDOW)
    return np.array([busy for busy, _ in intervals])[np.minimum(at, len(intervals) - 1)]


def _uses(busy: npt.NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """Draw the use of a node by window: levels that change about every `CALM` seconds, and with each interval."""
    use = np.empty(len(busy))
    borders = [0, *(np.flatnonzero(np.diff(busy)) + 1).tolist(), len(busy)]
    for begin, end in pairwise(borders):
        levels = LEVELS[bool(busy[begin])]
        at = begin
        while at < end:
            upto = min(end, at + max(1, round(float(rng.exponential(CALM)) / WINDOW)))
            _, low, high = levels[int(rng.choice(len(levels), p=[level[0] for level in levels]))]
            use[at:upto] = rng.uniform(low, high)
            at = upto
        if busy[begin] and end < len(busy):  # the recruitment threshold: quiet already
            quiet = slice(max(begin, end - round(SHORTEST / WINDOW)), end)
            use[quiet] = np.minimum(use[quiet], rng.uniform(*levels[0][1:]))
    return use


@dataclass(frozen=True, slots=True)
class Constant:
    """Hosts that always use the same; busy from `BUSY` on."""

    use: float

    def draw(self, nodes: int, windows: int, rng: np.random.Generator) -> Series:  # noqa: ARG002  nothing is random
        """Return the series."""
        return Series(np.full((nodes, windows), self.use), np.full((nodes, windows), self.use >= BUSY))


@dataclass(frozen=True, slots=True)
class Trace:
    """Hosts as in a trace. Whether a node is busy is told by its CPU alone."""

    changes: Sequence[Sequence[tuple[float, float]]]
    """By node: from a time on (s, ascending), hosts use a fraction of the CPU; 0 before."""

    def draw(self, nodes: int, windows: int, rng: np.random.Generator) -> Series:  # noqa: ARG002  nothing is random
        """Return the series, with the mean use of each window. Nodes that the trace does not name are always idle."""
        use, busy = np.zeros((nodes, windows)), np.zeros((nodes, windows), dtype=bool)
        borders: Floats = WINDOW * np.arange(windows + 1.0)
        for node, changes in enumerate(self.changes[:nodes]):
            use[node] = np.diff(_used(changes, borders)).round(DIGITS) / WINDOW
            watch = Watch(quiet=QUIET)
            for at in range(windows):
                watch.see(WINDOW, float(use[node, at]))
                busy[node, at] = watch.now.busy
        return Series(use, busy)


def _used(changes: Sequence[tuple[float, float]], at: Floats) -> Floats:
    """Return the CPU seconds that hosts have used until each of the times ``at`` (ascending)."""
    times, uses = np.array([(0.0, 0.0), *changes, (at[-1], 0.0)]).T
    times[-1] = times.max()
    used: Floats = np.interp(at, times, np.concatenate([[0.0], np.cumsum(uses[:-1] * np.diff(times))]))
    return used


Hosts = Ryu | Constant | Trace
