"""Gains of a progress controller by a search over the poles of its loop (Park and Humphrey, appendix; our grid).

The loop has a first-order process G, a filter H of the measurement and a PI controller D:

    G(z) = (1 − a) z^−delay / (z − a)        H(z) = (1 − α) z / (z − α)        D(z) = K (z − zero) / (z − 1)

G is scaled to a gain of 1, so K is relative too, and one result serves each chunk with the same a and delay. K = Kp +
Ki, and the zero is Kp / (Kp + Ki). The paper searches 10 × 20 candidates one after the other (10 s); here the poles
of the whole grid are eigenvalues of one array of companion matrices.

Settling time and overshoot follow from the largest poles (eqs. 18 to 20, with the π that the print lost). The paper
takes the fastest candidate with an overshoot of at most 20 %; we allow 5 %.

A fast loop answers to noise, too. Noise that a slow process adds up looks like a disturbance for long, so no single
gain is both quick and quiet. Errors within the noise are therefore multiplied by a small factor (``calm``), with
which noise does not move the chunk's progress out of the band in which it counts as settled.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.control.model import Model
from punctual.control.pi import Gains, Tuned

ZEROS: Final = 16
STEPS: Final = np.linspace(1.0 / 24.0, 1.0, 24)
"""Candidates of the grid: zeros, and gains relative to the largest stable one."""
CALMER: Final = np.geomspace(1e-4, 1.0, 24)
"""Candidates for the gain within the noise, relative to the gain beyond it."""
CERTAIN: Final = 4.0
"""Standard deviations from which on an error is not noise."""
ALPHA: Final = 0.8
"""Weight of the past in the filter, as published. It does not slow down the answer to a new reference, which is given
without feedback."""
OVERSHOOT: Final = 0.05
BAND: Final = 0.01
"""Standard deviation that noise may give the expected progress: five of them are the 5 % within which it is settled."""
ADDED: Final = 200
"""Periods over which the effect of noise is added up."""
ALIKE: Final = 1.03
"""Factor on the shortest settling time within which the least gain is taken."""
STEP: Final = 0.05
"""Models with an ``a`` that differs by less have the same controller."""
LARGEST: Final = 0.95
NOISES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Noise is rounded up to one of these."""
Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]


class Alike(NamedTuple):
    """What chunks have in common that get the same controller: their models differ little, whatever their gains."""

    a: float
    delay: int
    noise: float


def alike(a: float, delay: int, noise: float) -> Alike:
    """Return to which others a model is alike. A search takes long, and depends on little of a model."""
    return Alike(min(round(a / STEP) * STEP, LARGEST), delay, NOISES[min(bisect_left(NOISES, noise), len(NOISES) - 1)])


def tune_alike(key: Alike) -> Tuned:
    """Return the controller for all models that are alike."""
    return tune(Model.first_order(key.a, 1.0 - key.a, delay=key.delay), noise=key.noise)


def tune(model: Model, *, noise: float = 0.0, alpha: float = ALPHA, overshoot: float = OVERSHOOT) -> Tuned:
    """Return the controller that settles fastest among those that overshoot by ``overshoot`` at most.

    ``noise``: standard deviation of a period's progress, relative to it. ``model`` is of first order; ValueError if
    it is not.
    """
    if len(model.a) != 1 or not 0.0 <= model.a[0] < 1.0:
        raise ValueError(f"a controller is tuned for a first-order model with 0 <= a < 1, not for a = {model.a}")
    a, delay = model.a[0], model.delay
    # The paper begins at the model's pole. Between it and 1 the zero slows the loop down, at it the two cancel.
    zeros = np.linspace(min(a, 0.98), 0.98, ZEROS)
    most = np.array([_largest_gain(a, delay, alpha, zero) for zero in zeros])
    zero, gain = (grid.ravel() for grid in np.broadcast_arrays(zeros[:, None], most[:, None] * STEPS))
    poles = _poles(a, delay, alpha, zero, gain)
    settling, excess = settling_time(poles), overshoot_of(poles)
    settling = np.where(excess <= overshoot, settling, np.inf)
    # Where the largest pole stays at the zero, more gain helps no more, and the loop oscillates within its limits.
    best = int(np.argmin(np.where(settling <= ALIKE * settling.min(), gain, np.inf)))
    weaker = gain[best] * CALMER
    quiet = noise_gain(a, delay, alpha, np.full_like(weaker, zero[best]), weaker) * noise <= BAND
    return Tuned(
        gains=Gains(float(gain[best] * zero[best]), float(gain[best] * (1.0 - zero[best]))),
        alpha=alpha,
        calm=float(CALMER[quiet].max(initial=CALMER[0])),
        threshold=CERTAIN * noise * _filtered(a, alpha),
        settling=float(settling[best]),
        overshoot=float(excess[best]),
    )


def settling_time(poles: Complexes) -> Floats:
    """Return the periods until an error is below 1 %: log(100) / −log|p| of the largest pole p (eq. 18); inf: never.

    ``poles``: (…, n).
    """
    largest = np.abs(poles).max(axis=-1)
    with np.errstate(divide="ignore"):
        return np.where(largest < 1.0, np.log(100.0) / -np.log(np.maximum(largest, 1e-12)), np.inf)


def overshoot_of(poles: Complexes) -> Floats:
    """Return the overshoot by the largest pole: 0 if it is real and positive, |p| if negative, r^(π/|θ|) if complex."""
    at = np.abs(poles).argmax(axis=-1)
    largest = np.take_along_axis(poles, at[..., None], axis=-1)[..., 0]
    radius, angle = np.abs(largest), np.abs(np.angle(largest))
    with np.errstate(divide="ignore"):
        return np.where(angle < 1e-6, 0.0, np.minimum(radius, 1.0) ** (np.pi / np.maximum(angle, 1e-6)))


def noise_gain(a: float, delay: int, alpha: float, zero: Floats, gain: Floats) -> Floats:
    """Return how much noise the loop brings into the expected progress: standard deviation per one of noise.

    The noise of a period goes on as the process does: ν(k) = a ν(k−1) + n(k). The sum of squares of the response to one
    n is the variance. inf: it grows.
    """
    expected, seen = np.zeros_like(gain), np.zeros_like(gain)
    cap, before = np.zeros_like(gain), np.zeros_like(gain)
    waiting = [np.zeros_like(gain) for _ in range(delay)]
    total, noise = np.zeros_like(gain), 1.0
    for _ in range(ADDED):
        waiting.append(cap)
        expected = a * expected + (1.0 - a) * waiting.pop(0)
        seen = alpha * seen + (1.0 - alpha) * (expected + noise)
        error = -seen
        cap = np.clip(cap + gain * error - gain * zero * before, -1e6, 1e6)
        before = error
        noise *= a
        total += expected**2
    return np.sqrt(total)


def _filtered(a: float, alpha: float) -> float:
    """Return the standard deviation of the filtered noise ν(k) = a ν(k−1) + n(k), relative to that of n."""
    # the sum of squares of the impulse response of (1 − α) z² / ((z − a)(z − α)), a variance of two poles
    power = (1.0 + a * alpha) / ((1.0 - a * alpha) * (1.0 - a * a) * (1.0 - alpha * alpha))
    return float((1.0 - alpha) * power**0.5)


def _largest_gain(a: float, delay: int, alpha: float, zero: float) -> float:
    """Return the largest gain of a stable loop, by bisection until the largest pole is in (0.95, 1)."""
    low, high = 0.0, 2.0 / (1.0 - a)
    while np.abs(_poles(a, delay, alpha, np.array([zero]), np.array([high]))).max() < 1.0:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = (low + high) / 2.0
        largest = np.abs(_poles(a, delay, alpha, np.array([zero]), np.array([middle]))).max()
        if largest >= 1.0:
            high = middle
        elif largest > 0.95 and high - low < 0.05 * high:
            return middle
        else:
            low = middle
    return low


def _poles(a: float, delay: int, alpha: float, zero: Floats, gain: Floats) -> Complexes:
    """Return the poles of the closed loop (eq. 17), (N, 3 + delay).

    They are the roots of (z − a)(z − α)(z − 1) z^delay + K (1 − a)(1 − α) z (z − zero).
    """
    open_loop = np.polymul(np.polymul([1.0, -a], [1.0, -alpha]), [1.0, -1.0])
    order = 3 + delay
    coefficients = np.zeros((gain.size, order + 1))
    coefficients[:, : open_loop.size] = open_loop
    factor = gain * (1.0 - a) * (1.0 - alpha)
    coefficients[:, order - 2] += factor
    coefficients[:, order - 1] -= factor * zero
    companion = np.zeros((gain.size, order, order))
    companion[:, 0, :] = -coefficients[:, 1:]
    companion[:, np.arange(1, order), np.arange(order - 1)] = 1.0
    return np.asarray(np.linalg.eigvals(companion), dtype=np.complex128)
