"""Utilization: the CPU that jobs need to stay on their lines, and the bound up to which it is promised.

Park and Humphrey, ch. 4 and 5 (C1 to C3, eqs. 9 to 14). The bound is 1 − r of the cores; r is headroom for
disturbances.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from punctual.theory.tolerance import tolerance

SWAP: Final = 0.02
"""Part of a job's remaining time by which another one must be more urgent to take its place in memory."""

Order = Literal["slack", "need"]


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of one job."""

    units: float
    seconds: float
    """Until the planned end; negative: late."""
    gain: float | None
    """Units that one core gives in a second once it is settled; None: unknown."""
    cap: float = 1.0
    """Largest CPU that it can use, cores."""

    @property
    def needed(self) -> float:
        """Cores that keep it on its line (eqs. 9 and 13). Unknown and late jobs need their largest cap."""
        return min(self.cap, self.fraction * self.cap)

    @property
    def fraction(self) -> float:
        """Part of its largest cap that it needs; above 1: its time does not suffice."""
        if self.gain is None:
            return 1.0
        if self.units <= 0.0:
            return 0.0
        if self.seconds <= 0.0:
            return float("inf")
        return self.units / self.seconds / (self.gain * self.cap)

    @property
    def slack(self) -> float:
        """Seconds that are left over if it gets its largest cap from now on."""
        return self.seconds - (0.0 if self.gain is None else max(0.0, self.units) / (self.gain * self.cap))


@dataclass(frozen=True, slots=True)
class Full:
    """Refusal: the job needs more than is left of the bound."""

    needed: float
    """Cores that the job needs."""
    left: float
    """Cores that are left within the bound."""


def refusal(job: Remaining, admitted: Iterable[Remaining], *, cores: float, headroom: float) -> Full | None:
    """Return why a job cannot be promised; None: it can (C1).

    ``headroom``: part of the cores that is not promised.
    """
    left = cores * (1.0 - headroom) - sum(one.needed for one in admitted)
    if job.fraction > 1.0 + tolerance(1.0):
        return Full(job.fraction * job.cap, min(job.cap, left))
    return None if job.needed <= left + tolerance(cores) else Full(job.needed, left)


def choose(
    jobs: Sequence[Remaining], running: Sequence[bool], slots: int | None, *, order: Order = "slack"
) -> list[int]:
    """Return the indices of the jobs that are in memory: those with the least slack, at most ``slots`` of them.

    The paper's order (``need``: the highest need first, C2) lets jobs with much left wait until their need is high as
    well. By slack, a running job keeps its place unless another one is more urgent by `SWAP` of the time left: a swap
    costs its warm-up.
    """
    if slots is None or len(jobs) <= slots:
        return list(range(len(jobs)))

    def rank(at: int) -> float:
        job = jobs[at]
        if order == "need":
            return -job.fraction * job.cap
        return job.slack - (SWAP * max(job.seconds, 0.0) if running[at] else 0.0)

    return sorted(sorted(range(len(jobs)), key=rank)[:slots])
