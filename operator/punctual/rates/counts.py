"""What a pod's reports say: how many iterations it has done since when, and whether its cap is in force."""

from dataclasses import dataclass, field
from typing import NamedTuple

from punctual.rates.model import ReportedPod

SAME = 0.01
"""Relative difference up to which a cap or period is the one asked for: the kernel counts in whole microseconds."""


class Mark(NamedTuple):
    """A count, and when it was written."""

    at: float
    done: int


class Window(NamedTuple):
    """What a pod did in some time: iterations, seconds, and the part of them under the present pair."""

    iterations: int
    seconds: float
    share: float

    @property
    def rate(self) -> float:
        """Iterations a second."""
        return self.iterations / self.seconds


@dataclass(slots=True)
class PodCounts:
    """The counts of one pod. ``since``: its first report; it may have been silent from then on."""

    since: float
    heard: float = field(init=False)
    """Its last report."""
    begin: Mark | None = None
    """Where the present window begins."""
    last: Mark | None = None
    cap: float | None = None
    period: float | None = None
    in_force: float | None = None
    """The first report with the present pair. None: there was none yet."""
    fell: bool = False
    """The count went back in this window: its container was restarted."""

    def __post_init__(self) -> None:
        self.heard = self.since

    def observe(self, at: float, seen: ReportedPod, *, cap: float, period: float | None) -> None:
        """Take in a report; ``cap`` and ``period`` are those asked for; None: any period will do."""
        self.heard, self.cap, self.period = at, seen.cap, seen.period
        if not (_same(seen.cap, cap) and (period is None or _same(seen.period, period))):
            self.in_force = None
        elif self.in_force is None:
            self.in_force = at
        if seen.done is None:
            return
        if self.last is None or seen.done < self.last.done:
            self.fell = self.last is not None
            self.begin = self.last = Mark(at - (seen.written or 0.0), seen.done)
        elif seen.done > self.last.done:
            # a file that is older than the last one seen lies
            self.last = Mark(max(at - (seen.written or 0.0), self.last.at), seen.done)

    def window(self) -> Window | None:
        """Return what it has done since the window's begin. None: nothing yet."""
        if self.begin is None or self.last is None or self.last.at <= self.begin.at:
            return None
        seconds = self.last.at - self.begin.at
        under = 0.0 if self.in_force is None else self.last.at - self.in_force
        return Window(self.last.done - self.begin.done, seconds, min(max(under / seconds, 0.0), 1.0))

    def next_window(self) -> None:
        """Begin a window where the last one ended."""
        self.begin, self.fell = self.last, False

    def forget(self) -> None:
        """Forget what it has done: it will be counted by another source."""
        self.begin = self.last = None
        self.since, self.fell = self.heard, False

    @property
    def silent(self) -> float:
        """Seconds for which it had made no progress at its last report."""
        return self.heard - (self.since if self.last is None else max(self.last.at, self.since))


def _same(seen: float | None, asked: float) -> bool:
    return seen is not None and abs(seen - asked) <= SAME * asked
