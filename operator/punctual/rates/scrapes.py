"""What Prometheus has said of an application's pods: their counts, and what is wrong with its answers."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from punctual.rates.model import PodsCounted, ScrapedCount

UNCOUNTED: Final = 30.0
"""So long Prometheus may fail, or may not have scraped a new pod yet, before this is said."""


@dataclass(slots=True)
class Scrapes:
    """The answers to one query."""

    counts: dict[str, ScrapedCount] = field(default_factory=dict)
    """The last ones, by pod."""
    _flaw: str = ""
    """What was wrong with its last answer."""
    _sound: float | None = None
    """The last time when nothing was wrong, or when it was asked first."""

    def select(self, pods: Container[str]) -> None:
        """Take in which pods there are."""
        self.counts = {pod: count for pod, count in self.counts.items() if pod in pods}

    def observe(self, event: PodsCounted, pods: Container[str]) -> None:
        """Take in an answer."""
        for count in event.counts:
            before = self.counts.get(count.pod)
            # of two replicas of Prometheus, one may be behind
            if count.pod in pods and (before is None or count.at > before.at):
                self.counts[count.pod] = count
        self._flaw = event.flaw
        if not event.flaw or self._sound is None:
            self._sound = event.at

    def flaw(self, now: float) -> str:
        """Return what has been wrong for long; empty: nothing."""
        return self._flaw if self._sound is not None and now - self._sound > UNCOUNTED else ""
