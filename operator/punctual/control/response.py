"""How a program answers to CPU: what one chunk has shown, in seconds, so that it serves other chunks.

A :class:`Model` counts in samples, and their length differs from chunk to chunk. In seconds, a first-order process has
a time constant: t seconds after a step of its CPU, the progress has made 1 − e^(−t/lag) of its way, so that
a = e^(−sample/lag).
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from punctual.control.learner import DELAYS, LARGEST_A
from punctual.control.model import Model

FAR: Final = 100.0
"""Factor between the CPU of a unit and its expected value beyond which a response is not believed."""
LONGEST_LAG: Final = 6000.0
"""Seconds: a = 0.99 with samples of a minute."""
LONGEST_DELAY: Final = 120.0
"""Seconds: two samples of a minute."""
LARGEST_NOISE: Final = 10.0
KEPT: Final = 9
"""Newest responses that count: the median of so many follows a change after five."""


@dataclass(frozen=True, slots=True)
class Response:
    """How a program's progress answers to its CPU."""

    cpu_per_unit: float
    """CPU seconds of a unit, once the progress has settled."""
    lag: float
    """Time constant, seconds; 0: it answers at once."""
    delay: float
    """Seconds until a change of its CPU begins to show."""
    noise: float
    """Standard deviation of the progress of a second, relative to it. That of n seconds is 1/√n of it."""

    @classmethod
    def of(cls, model: Model, noise: float, sample: float) -> "Response":
        """Return what a first-order model tells; ``noise`` and model are those of samples of so many seconds."""
        (a,), b = model.a, model.b[-1]
        return cls(
            cpu_per_unit=sample * (1.0 - a) / b,
            lag=-sample / math.log(a) if a > 0.0 else 0.0,
            delay=model.delay * sample,
            noise=noise * math.sqrt(sample),
        )

    def model(self, sample: float) -> Model:
        """Return the model that counts in samples of so many seconds; its ``a`` and delay are at most a learner's."""
        a = min(math.exp(-sample / self.lag), LARGEST_A) if self.lag > 0.0 else 0.0
        delay = min(round(self.delay / sample), DELAYS - 1)
        return Model.first_order(a, (1.0 - a) * sample / self.cpu_per_unit, delay=delay)

    def noise_in(self, sample: float) -> float:
        """Return the noise of samples of so many seconds."""
        return self.noise / math.sqrt(sample)

    def slower(self, factor: float) -> "Response":
        """Return the response on a processor on which a unit takes so many times the CPU."""
        return replace(self, cpu_per_unit=self.cpu_per_unit * factor)

    def believable(self, cpu_per_unit: float) -> bool:
        """Whether it can be true of a program that is expected to take so many CPU seconds per unit.

        It comes from agents and, in the end, from what workers write; comparisons with nan are false.
        """
        return (
            cpu_per_unit / FAR <= self.cpu_per_unit <= cpu_per_unit * FAR
            and 0.0 <= self.lag <= LONGEST_LAG
            and 0.0 <= self.delay <= LONGEST_DELAY
            and 0.0 <= self.noise <= LARGEST_NOISE
        )


def middle(seen: Collection[Response]) -> Response | None:
    """Return the median of each part of the responses of several chunks; None: there are none."""
    if not seen:
        return None
    return Response(
        median(one.cpu_per_unit for one in seen),
        median(one.lag for one in seen),
        median(one.delay for one in seen),
        median(one.noise for one in seen),
    )
