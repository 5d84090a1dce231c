"""A linear model of a process: how its output follows from its inputs (Park and Humphrey, eq. 3).

    y(k) = a_1 y(k−1) + … + a_n y(k−n) + b_1 u(k−1) + … + b_m u(k−m)

For a chunk, y is its progress (units in a period) and u its CPU (cores in that period). Leading zeros in b are delay:
an input acts so many periods later. The agent uses this module, so it needs the standard library only.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A linear model; ``r2`` is the share of the output's variance that its one-step forecasts explain (1: all)."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    r2: float = 1.0

    @classmethod
    def first_order(cls, a: float, b: float, *, delay: int = 0, r2: float = 1.0) -> "Model":
        """Return y(k) = a y(k−1) + b u(k−1−delay)."""
        return cls((a,), (0.0,) * delay + (b,), r2)

    def forecast(self, outputs: Sequence[float], inputs: Sequence[float]) -> float:
        """Return y(k) from the outputs and inputs before k, newest last."""
        past_y = sum(a * y for a, y in zip(self.a, reversed(outputs), strict=False))
        return past_y + sum(b * u for b, u in zip(self.b, reversed(inputs), strict=False))

    @property
    def delay(self) -> int:
        """Periods before an input begins to act, beyond the first."""
        return next((n for n, b in enumerate(self.b) if b != 0.0), len(self.b))

    @property
    def gain(self) -> float:
        """Output at which the process settles for a constant input of 1; ValueError if it does not settle."""
        left = 1.0 - sum(self.a)
        if abs(left) < 1e-12:
            raise ValueError("an integrating process does not settle")
        return sum(self.b) / left
