"""The output of `punctual simulate rate`: how each application was held at its targets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from punctual.control.rate import Pair, within
from punctual.sim.rates.scenario import App


@dataclass(frozen=True, slots=True)
class Sample:
    """An iteration at its end: its rate, as part of that alone, the target and the pair that were in force."""

    time: float
    app: str
    rate: float
    target: float
    period: float
    slice: float

    def in_band(self, epsilon: float) -> bool:
        """Return whether rate and utilization are both within ε of the target."""
        return all(within(value, self.target, epsilon) for value in (self.rate, self.slice / self.period))


@dataclass(slots=True)
class Held:
    """One target: the iterations under it, and the changes of the pair after the first in band."""

    samples: list[Sample] = field(default_factory=list)
    settled: int | None = None
    """Iterations until the first in band, which counts."""
    changes: int = 0
    period: float = 0.0
    """The last one in force."""


@dataclass(slots=True)
class Record:
    """All that is noted of one application."""

    app: App
    targets: list[Held] = field(default_factory=list)
    cpu: float = 0.0
    """CPU seconds of all ranks, without switching."""
    switched: float = 0.0
    """CPU seconds that switching took."""

    def aim(self, pair: Pair) -> None:
        """Note a change of target, and the pair in force from then on."""
        self.targets.append(Held(period=pair.period))

    def see(self, sample: Sample) -> None:
        """Note an iteration."""
        held = self.targets[-1]
        held.samples.append(sample)
        if held.settled is None and sample.in_band(self.app.epsilon):
            held.settled = len(held.samples)

    def change(self, pair: Pair) -> None:
        """Note a change of the pair without one of the target."""
        held = self.targets[-1]
        held.changes += held.settled is not None
        held.period = pair.period

    def document(self) -> dict[str, Any]:
        """Return the application's object."""
        settled = [sample for held in self.targets if held.settled for sample in held.samples[held.settled - 1 :]]
        inside = sum(sample.in_band(self.app.epsilon) for sample in settled)
        used = self.cpu + self.switched
        return {
            "id": self.app.id,
            "settling_iterations": [held.settled for held in self.targets],
            "in_band_fraction": inside / len(settled) if settled else 0.0,
            "mean_error": sum(abs(s.rate - s.target) for s in settled) / len(settled) if settled else None,
            "oscillations": sum(held.changes for held in self.targets),
            "periods": [held.period for held in self.targets],
            "cpu_overhead": self.switched / used if used else 0.0,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """All of a run; samples in the order of time."""

    records: Sequence[Record]
    samples: Sequence[Sample]

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "apps": [record.document() for record in self.records],
            "samples": [
                {
                    "time": s.time,
                    "app": s.app,
                    "rate": s.rate,
                    "target": s.target,
                    "period": s.period,
                    "slice": s.slice,
                }
                for s in self.samples
            ],
        }
