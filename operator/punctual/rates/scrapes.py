"""What Prometheus says of the iterations of an application's pods."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from punctual.rates.model import PodsCounted, ReportedPod, ScrapedCount

UNCOUNTED: Final = 30.0
"""So long Prometheus may fail, or may not have scraped a new pod yet, before this is said."""


@dataclass(slots=True)
class Scrapes:
    """The last counts of an application's pods. ``query``: the one that is asked now."""

    query: str | None = None
    _counts: dict[str, ScrapedCount] = field(default_factory=dict)
    _flaw: str = ""
    """What was wrong with its last answer."""
    _sound: float | None = None
    """The last time when nothing was wrong, or when it was asked first."""

    def observe(self, event: PodsCounted, pods: Container[str]) -> None:
        """Take in an answer. ``pods``: those of the application."""
        if event.query != self.query:
            return  # the query was edited meanwhile
        for count in event.counts:
            before = self._counts.get(count.pod)
            # of two replicas of Prometheus, one may be behind
            if count.pod in pods and (before is None or count.at > before.at):
                self._counts[count.pod] = count
        self._flaw = event.flaw
        if not event.flaw or self._sound is None:
            self._sound = event.at

    def keep(self, pods: Container[str]) -> None:
        """Forget the counts of all other pods."""
        self._counts = {pod: count for pod, count in self._counts.items() if pod in pods}

    def counted(self, at: float, seen: ReportedPod) -> ReportedPod:
        """Return a pod's line of a report with its last count, instead of what its agent has read."""
        count = self._counts.get(seen.pod)
        return seen._replace(done=count and count.done, written=count and at - count.at)

    def failing(self, now: float) -> str:
        """Return what has been wrong for too long. Empty: nothing."""
        return self._flaw if self._sound is not None and now - self._sound > UNCOUNTED else ""
