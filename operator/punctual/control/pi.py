"""Proportional-integral (PI) controller with anti-windup.

In steps, u(k) = u(k−1) + Kp (e(k) − e(k−1)) + Ki e(k). The output itself carries the integral, so clamping it is
sufficient anti-windup, and a controller that begins at the output in force takes over without a jump.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gains:
    """Kp and Ki, output per error; their sign is that of the process."""

    kp: float
    ki: float


@dataclass(slots=True)
class PI:
    """One loop. ``output`` is in force until the next `step`, always within [``low``, ``high``]."""

    gains: Gains
    output: float
    low: float
    high: float
    before: float | None = None
    """The error of the previous period; None: there was none."""

    def __post_init__(self) -> None:
        if not self.low <= self.output <= self.high:
            raise ValueError(f"the output must be in [{self.low}, {self.high}], not {self.output}")

    def step(self, error: float) -> float:
        """Process the error of one period (set point less measured); return the output for the next."""
        before = error if self.before is None else self.before
        wanted = self.output + self.gains.kp * (error - before) + self.gains.ki * error
        self.before = error
        self.output = min(max(wanted, self.low), self.high)
        return self.output
