"""What became of jobs: how many met their deadlines, and how late the others were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean


@dataclass(frozen=True, slots=True)
class Ended:
    """One admitted job. Times in seconds after it was created; ``finish`` None: it did not finish."""

    name: str
    deadline: float
    finish: float | None

    @property
    def met(self) -> bool:
        """Whether it was in time."""
        return self.finish is not None and self.finish <= self.deadline

    @property
    def lateness(self) -> float | None:
        """By which part of the time that it had it was late; None: it was in time, or did not finish."""
        return None if self.met or self.finish is None else self.finish / self.deadline - 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of all admitted jobs of a pool."""

    admitted: int
    met: int
    unfinished: int
    mean_lateness: float | None
    """Of late jobs that finished; None: there are none."""
    worst_lateness: float | None

    @property
    def ratio(self) -> float:
        """The part of the admitted jobs that met their deadlines; 0 if none was admitted."""
        return self.met / self.admitted if self.admitted else 0.0


def outcome(jobs: Sequence[Ended]) -> Outcome:
    """Add up what became of jobs."""
    late = [job.lateness for job in jobs if job.lateness is not None]
    return Outcome(
        admitted=len(jobs),
        met=sum(job.met for job in jobs),
        unfinished=sum(job.finish is None for job in jobs),
        mean_lateness=mean(late) if late else None,
        worst_lateness=max(late, default=None),
    )
