"""Results of a simulation: the object that `punctual simulate jobs --json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision on one job or reservation; ``earliest_deadline`` is relative to ``time``."""

    id: str
    time: float
    accepted: bool
    reason: str
    promised_finish: float | None = None
    earliest_deadline: float | None = None
    processors: list[int] | None = None


class Executed(NamedTuple):
    """A chunk as it was executed; ``load`` is the part of it that counts."""

    job: str
    processor: int
    send_start: float
    send_end: float
    end: float
    load: float


@dataclass(frozen=True, slots=True)
class Finished:
    """An accepted job at its end; ``finish`` is None if it did not end."""

    id: str
    finish: float | None
    met: bool


@dataclass(frozen=True, slots=True)
class Period:
    """One sample of the miss-ratio controller; ``time`` is its end."""

    time: float
    miss_ratio: float
    bound: float
    utilization: float


@dataclass(slots=True)
class Result:
    """All results. ``capacity``: processor seconds from 0 to the last event, without faulted ones."""

    decisions: list[Decision] = field(default_factory=list)
    chunks: list[Executed] = field(default_factory=list)
    jobs: list[Finished] = field(default_factory=list)
    periods: list[Period] | None = None
    seconds: list[float] = field(default_factory=list)
    """Wall-clock seconds of each decision."""
    offer_seconds: list[float] = field(default_factory=list)
    """Wall-clock seconds of each search for the earliest deadline, after a refusal."""
    booked: float = 0.0
    """Processor seconds of accepted reservations."""
    capacity: float = 0.0

    def metrics(self) -> dict[str, Any]:
        """Return ratios over decisions, accepted jobs and capacity; a ratio over nothing is 0."""
        refused = sum(not d.accepted for d in self.decisions)
        missed = sum(not job.met for job in self.jobs)
        busy = sum(chunk.end - chunk.send_start for chunk in self.chunks) + self.booked
        return {
            "reject_ratio": _ratio(refused, len(self.decisions)),
            "miss_ratio": _ratio(missed, len(self.jobs)),
            "utilization": _ratio(busy, self.capacity),
            "decision_seconds": _spread(self.seconds),
            "offer_seconds": _spread(self.offer_seconds),
        }

    def measure_utilization(self, length: float, processors: int) -> None:
        """Note in each period of that length the share of its processor seconds that was used."""
        periods = self.periods or []
        busy = [0.0] * len(periods)
        for chunk in self.chunks:
            k = int(chunk.send_start / length)
            while k < len(busy) and k * length < chunk.end:
                busy[k] += min(chunk.end, (k + 1) * length) - max(chunk.send_start, k * length)
                k += 1
        whole = processors * length
        self.periods = [replace(period, utilization=used / whole) for period, used in zip(periods, busy, strict=True)]

    def document(self) -> dict[str, Any]:
        """Return the results in the documented JSON format."""
        found: dict[str, Any] = {
            "decisions": [{k: v for k, v in _fields(d).items() if v is not None} for d in self.decisions],
            "chunks": [chunk._asdict() for chunk in self.chunks],
            "jobs": [_fields(job) for job in self.jobs],
            "metrics": self.metrics(),
        }
        if self.periods is not None:
            found["periods"] = [_fields(period) for period in self.periods]
        return found


def _fields(of: Decision | Finished | Period) -> dict[str, Any]:
    """Return a dict; `asdict` would also copy the contents, hundreds of thousands of times."""
    return {name: getattr(of, name) for name in of.__slots__}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return dict.fromkeys(("mean", "p50", "p99", "max"), 0.0)
    p50, p99 = np.percentile(seconds, (50, 99)).tolist()
    return {"mean": float(np.mean(seconds)), "p50": p50, "p99": p99, "max": max(seconds)}
