"""A proportional-integral controller that does not wind up, and gains that put its poles where they are wanted.

In steps, u(k) = u(k−1) + Kp (e(k) − e(k−1)) + Ki e(k): the output itself carries the integral, so clamping it is all
that anti-windup takes, and a controller that begins at the output in force takes over without a jump.
"""

from dataclasses import dataclass

from punctual.control.identification import Model


@dataclass(frozen=True, slots=True)
class Gains:
    """Kp and Ki, output per error; their sign is that of the process."""

    kp: float
    ki: float


def place_poles(model: Model, first: float, second: float) -> Gains:
    """Return the gains that give a first-order process under PI the poles ``first`` and ``second``.

    The loop of y(k) = a y(k−1) + b u(k−1) has z² + (b (Kp + Ki) − 1 − a) z + a − b Kp. Real poles in [0, 1) settle
    without swinging, the sooner the closer to 0. ValueError: another order, no effect of the input, an unstable pole.
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
    """The error of the period before; None: there was none."""

    def __post_init__(self) -> None:
        if not self.low <= self.output <= self.high:
            raise ValueError(f"the output must be in [{self.low}, {self.high}], not {self.output}")

    def step(self, error: float) -> float:
        """Take the error of one period (set point less measured), return the output for the next."""
        before = error if self.before is None else self.before
        wanted = self.output + self.gains.kp * (error - before) + self.gains.ki * error
        self.before = error
        self.output = min(max(wanted, self.low), self.high)
        return self.output
