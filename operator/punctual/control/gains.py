"""Gains of a PI controller that place the poles of its loop."""

from punctual.control.model import Model
from punctual.control.pi import Gains


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
