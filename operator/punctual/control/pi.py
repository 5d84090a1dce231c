"""Proportional-integral (PI) controller with anti-windup.

In steps, u(k) = u(k−1) + Kp (e(k) − e(k−1)) + Ki e(k) (Park and Humphrey, eq. 15). The output itself carries the
integral, so clamping it is sufficient anti-windup, and a controller that begins at the output in force takes over
without a jump.
"""

import math
from dataclasses import dataclass

from punctual.control.model import Model


@dataclass(frozen=True, slots=True)
class Gains:
    """Kp and Ki, output per error; their sign is that of the process."""

    kp: float
    ki: float


def place_poles(model: Model, first: float, second: float) -> Gains:
    """Return the gains that give a first-order process under PI the poles ``first`` and ``second``.

    The loop of y(k) = a y(k−1) + b u(k−1) has z² + (b (Kp + Ki) − 1 − a) z + a − b Kp. Real poles in [0, 1) settle
    without oscillation, the faster the closer they are to 0. ValueError: another order, no effect of the input, an
    unstable pole.
    """
    if len(model.a) != 1 or len(model.b) != 1:
        raise ValueError("poles are placed for a first-order model: one a and one b")
    (a,), (b,) = model.a, model.b
    if b == 0.0:
        raise ValueError("the input has no effect: b is 0")
    for pole in (first, second):
        if not 0.0 <= pole < 1.0:
            raise ValueError(f"a pole must be in [0, 1), not {pole}")
    kp = (a - first * second) / b
    return Gains(kp, (1.0 - first) * (1.0 - second) / b)


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

    def step(self, error: float, dt: float = 1.0) -> float:
        """Process the error of one period (set point less measured); return the output for the next.

        ``dt``: length of that period as a multiple of the nominal one, for which the gains were chosen.
        """
        before = error if self.before is None else self.before
        wanted = self.output + self.gains.kp * (error - before) + self.gains.ki * dt * error
        self.before = error
        self.output = min(max(wanted, self.low), self.high)
        return self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A controller of a chunk's progress: gains (cap per progress, both relative), filter, what the poles promise."""

    gains: Gains
    alpha: float
    """Weight of the past in the filter of the measurement."""
    calm: float = 1.0
    """Factor on errors within the noise."""
    threshold: float = 0.0
    """Filtered error, relative to the progress, beyond which it is not noise."""
    settling: float = math.inf
    """Periods until an error of 1 is below 1 % (eq. 18)."""
    overshoot: float = 0.0
    """Relative to the step (eqs. 19, 20)."""

    def weigh(self, error: float) -> float:
        """Return an error with the part of it that may be noise made small."""
        beyond = max(abs(error) - self.threshold, 0.0)
        return self.calm * error + (1.0 - self.calm) * math.copysign(beyond, error)
