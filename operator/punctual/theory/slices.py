"""Slices of CPU for applications on shared nodes: their length by load, their supply, and what unaligned ones cost.

Every node gives an application a slice of each period (PS and IP in Solsona 2002), and the rest of it (LS) to local
work. The ranks of an application wait for each other, so an application gets on while *all* of its slices are open. Two
kinds of slices differ in this:

- A *window* is open at fixed times, used or not (freezer, signals, the thesis' DTS).
- A *bucket* is a budget that only running uses, and that each period fills again: the kernel's CPU quota. A rank that
  waits blocked keeps its budget until its partners run, so buckets need no alignment. A rank that waits by spinning
  uses its budget up, so its bucket is a window.

Numbers (2.x) are the thesis' equations; formulas without one are derived, and compared with the simulator. Times are
seconds on any clock, loads are tasks in a ready queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor

MEMORY = 60.0
"""Seconds over which a node's load index remembers: LI · N of (2.1)."""
STEP = 0.5
"""Load that changes the local slice by a tenth of the period, table 2.1."""
_TINY = 1e-9
"""Part of a slice that is not counted: work that fills slices exactly needs no further one by rounding."""


def load_index(last: float, mean: float, elapsed: float) -> float:
    """Return a node's load index Q after ``elapsed`` seconds with a ready queue of ``mean`` tasks, (2.1).

    Q = Q·e^(−P) + q·(1 − e^(−P)). The thesis means a memory of one minute, which P = elapsed/60 s gives. The printed
    P = 1/(LI·N), with an update each LI = 10 s, would remember ten minutes.
    """
    kept = exp(-elapsed / MEMORY)
    return last * kept + mean * (1.0 - kept)


def power_weights(seconds: Sequence[float]) -> list[float]:
    """Return the power weights W of nodes on which a serial program takes so many seconds alone, (2.3).

    The fastest node has 1. ValueError: there is none, or a time is not positive.
    """
    if not seconds or min(seconds) <= 0.0:
        raise ValueError(f"times must be positive, not {list(seconds)}")
    return [min(seconds) / each for each in seconds]


def relative_load(indices: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the relative load average RLA of nodes, (2.2): the mean of Q/W. Without ``weights``, nodes are equal."""
    if not indices:
        raise ValueError("there is no node")
    each = indices if weights is None else [q / w for q, w in zip(indices, weights, strict=True)]
    return sum(each) / len(each)


def parallel_part(load: float) -> float:
    """Return PS/IP for a load, table 2.1: 0.9 up to a load of 0.5, a tenth less for each half more, at least 0.1."""
    return 1.0 - min(max(ceil(load / STEP), 1), 9) / 10.0


@dataclass(frozen=True, slots=True)
class Slices:
    """A slice of each period, s: 0 < ``length`` <= ``period``."""

    length: float
    period: float

    @property
    def share(self) -> float:
        """The part U of the CPU."""
        return self.length / self.period

    @property
    def gap(self) -> float:
        """Seconds from the end of a slice to the next one."""
        return self.period - self.length

    def supply(self, seconds: float) -> float:
        """Return S(t), the CPU seconds of the first ``seconds`` from the begin of a slice; 0 before."""
        if seconds <= 0.0:
            return 0.0
        whole = floor(seconds / self.period)
        return whole * self.length + min(seconds - whole * self.period, self.length)

    def least_supply(self, seconds: float) -> float:
        """Return the CPU seconds of any ``seconds``: the worst begin is the end of a slice, S(t − gap)."""
        return self.supply(seconds - self.gap)

    def stretch(self, work: float) -> float:
        """Return in how many seconds from the begin of a slice ``work`` CPU seconds are done: the inverse of S.

        Each slice that is full, but the last one, adds a gap.
        """
        full = max(ceil(work / self.length - _TINY) - 1, 0)
        return work + full * self.gap

    def finish(self, start: float, work: float, phase: float) -> float:
        """Return when ``work`` CPU seconds are done from ``start`` on, if slices begin at ``phase`` + k · period."""
        since = (start - phase) % self.period
        return start - since + self.stretch(min(since, self.length) + work)


def all_open(share: float, nodes: int) -> float:
    """Return the mean part of the time in which windows of random phases are open on all nodes: Uⁿ.

    Aligned windows have U. Not for buckets of ranks that block: they lose nothing.
    """
    return share**nodes


def blocking_rate(slices: Slices, grain: float, latency: float = 0.0) -> float:
    """Return the rate of ranks that wait blocked, with buckets of any phases, as a part of the rate alone.

    The budget is used for computing only, and what messages take comes for free: U · (grain + latency)/grain, at most
    1. ``grain``: CPU seconds from one message to the next.
    """
    return min(1.0, slices.share * (grain + latency) / grain)


def spinning_rate_of_two(slices: Slices, grain: float, apart: float) -> float:
    """Return about the rate of two ranks that wait by spinning, as a part of the rate alone.

    max(U − δ/P + g/P, 2g/P), at most U, for a share U of up to a half; beyond it slices also meet at their other ends.
    ``apart``: δ, seconds between the begins of their slices; ``grain``: g, at most a slice. The ranks get on while both
    slices are open. In each period a rank also does its part of an iteration on its own: of two iterations, if slices
    do not meet at all. How many grains just fit decides the rest, so the rate is within g/P of :func:`spinning_rate`.
    """
    period = slices.period
    apart %= period
    shared = max(slices.length - apart, 0.0) + max(slices.length - period + apart, 0.0)
    return min(slices.share, max(shared + grain, 2.0 * grain) / period)


def spinning_rate(
    slices: Slices, grain: float, phases: Sequence[float], latency: float = 0.0, *, periods: int = 100
) -> float:
    """Return the rate of ranks that all wait for each other by spinning, as a part of the rate alone.

    phases   where the slices of each rank begin, s
    grain    CPU seconds from one message to the next
    latency  seconds from the last message of an iteration to the next iteration

    Exact but for one iteration in so many ``periods``: an iteration ends when the slowest rank has done its grain, and
    all begin the next one then. The begin does not count, as the first iterations depend on it.
    """
    begin = slices.period
    end = begin + periods * slices.period
    at, iterations = 0.0, 0
    while at < end:
        at = max(slices.finish(at, grain, phase) for phase in phases) + latency
        iterations += begin <= at < end
    return iterations * (grain + latency) / (end - begin)
