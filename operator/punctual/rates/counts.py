"""What pods' reports say: how many iterations each has done since when, and whether its cap is in force."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.rates.model import Member, ReportedPod

IN_FORCE: Final = 15.0
"""Seconds after which a pair is in force unless something is wrong. A pod without a report for as long is silent."""
SAME: Final = 0.01
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

    pod: str
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
    anew: bool = False
    """The window began while the pod was at the floor, and counts for nothing."""

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

    def begin_in_force(self) -> None:
        """Begin the window anew if it began before the pod had the present pair."""
        if self.begin is None or self.in_force is None:
            return
        if self.begin.at < self.in_force:
            self.next_window()
        else:
            self.anew = False

    def resume(self, now: float) -> None:
        """Take in that the pod was at the floor until now: what it did there, and that it stood still, says nothing."""
        self.in_force, self.anew = None, True
        if self.last is not None:
            self.since = now

    def forget(self) -> None:
        """Forget what it has done: it will be counted by another source."""
        self.begin = self.last = None
        self.since, self.fell = self.heard, False

    @property
    def silent(self) -> float:
        """Seconds for which it had made no progress at its last report."""
        return self.heard - (self.since if self.last is None else max(self.last.at, self.since))


@dataclass(slots=True)
class Counts:
    """The counts of an application's pods."""

    pods: dict[str, PodCounts] = field(default_factory=dict)
    """Those that were reported."""
    _running: frozenset[str] = frozenset()

    def select(self, members: Iterable[Member]) -> None:
        """Take in which pods there are."""
        running = {m.pod: m.running for m in members}
        self.pods = {pod: counts for pod, counts in self.pods.items() if pod in running}
        self._running = frozenset(pod for pod, runs in running.items() if runs)

    def observe(self, at: float, seen: ReportedPod, *, cap: float, period: float | None) -> None:
        """Take in a pod's line of a report, as `PodCounts.observe`."""
        self.pods.setdefault(seen.pod, PodCounts(seen.pod, at)).observe(at, seen, cap=cap, period=period)

    def change(self) -> None:
        """Take in that another pair is to be in force."""
        for counts in self.pods.values():
            counts.in_force = None

    def resume(self, now: float) -> None:
        """Take in that all pods were at the floor until now."""
        for counts in self.pods.values():
            counts.resume(now)

    def forget(self) -> None:
        """Forget what pods have done: they will be counted by another source."""
        for counts in self.pods.values():
            counts.forget()

    @property
    def reporting(self) -> list[PodCounts]:
        """The counts of the pods that run and have ever made progress."""
        found = ((pod, counts) for pod, counts in self.pods.items() if counts.last is not None)
        return [counts for pod, counts in found if pod in self._running]

    def begin_in_force(self, *, only_anew: bool) -> None:
        """Let no window begin before its pod had the present pair; or none of those that begin anew."""
        for counts in self.reporting:
            if counts.anew or not only_anew:
                counts.begin_in_force()

    def closed(
        self, now: float, seconds: float, iterations: int, patience: float, *, new: Collection[str] = ()
    ) -> Window | None:
        """Return the slowest pod's window, and begin the next one; None: it goes on.

        It waits neither for a pod that is stalled nor for one of a node without reports, and beside others not for one
        that is ``new``: not on the grid yet.
        """
        heard = [counts for counts in self.reporting if now - counts.heard <= IN_FORCE]
        going = [counts for counts in heard if counts.silent <= patience]
        reporting = [counts for counts in going if counts.pod not in new] or going
        if any(counts.anew for counts in reporting):
            return None
        windows = [counts.window() for counts in reporting]
        ended = [w for w in windows if w is not None and w.seconds >= seconds and w.iterations >= iterations]
        if not ended or len(ended) < len(windows):
            return None
        for counts in going:
            counts.next_window()
        slowest = min(ended, key=lambda window: window.rate)
        return slowest._replace(share=min(window.share for window in ended))


def _same(seen: float | None, asked: float) -> bool:
    return seen is not None and abs(seen - asked) <= SAME * asked
