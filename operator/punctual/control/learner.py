"""Learns the model of a chunk while it runs: recursive least squares with forgetting (Park and Humphrey, ch. 7.1).

    P(k) = a P(k−1) + b C(k−1−delay)

P is progress in a period, C the CPU that the chunk had in a period, in cores. One filter runs per possible delay, and
the one with the least squared residuals counts. A model is accepted only if it explains the recent past (R², C4 of
the paper), is stable (a < 1, C5), and more CPU gives more progress (b > 0, C6).

If a node is suddenly half as fast, the fall of the progress looks like that of a very slow process. So the learner
starts over when a sample is no noise; its model stands until it has found another.

A chunk at a constant cap tells nothing: forgetting would then divide noise by nothing. So the filter forgets only while
its inputs move, and :attr:`Learner.dull` asks for a small step of the cap (dither).
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from punctual.control.model import Model

DELAYS: Final = 3
"""Delays that are tried: 0, 1 and 2 periods."""
ENOUGH: Final = 17
"""Samples before a model may be accepted. The first sample needs three periods, so a model is there after twenty."""
LEAST_R2: Final = 0.7
"""R² that an accepted model has (C4)."""
WEAKEST: Final = 1e-6
"""Least effect of a core, relative to the progress, that is one."""
LARGEST_A: Final = 0.99
LEAST: Final = 1e-12
"""Units in a period below which there is no progress."""
JUMP: Final = 4.0
"""Standard deviations from which on a sample is not noise, but another process."""
EXACT: Final = 0.01
"""Least standard deviation, relative to the progress: no process is exactly linear."""
FORGETTING: Final = 0.98
"""Weight of a sample relative to the next one: some 50 periods count."""
VAGUE: Final = 1e4
"""Variance of a coefficient at the start, relative to the scale of its input: nothing is known."""


@dataclass(slots=True)
class _Filter:
    """Least squares for y = a·y1 + b·u, in units in which y and u are about 1."""

    a: float = 0.0
    b: float = 0.0
    aa: float = VAGUE
    ab: float = 0.0
    bb: float = VAGUE
    residual: float = 0.0
    """Weighted mean of squared residuals."""

    def surprise(self, y1: float, u: float, y: float) -> float:
        """Return how far a sample is from its forecast, relative to how well such a sample can be forecast."""
        spread = y1 * y1 * self.aa + 2.0 * y1 * u * self.ab + u * u * self.bb
        return abs(y - self.a * y1 - self.b * u) / math.sqrt(1.0 + max(spread, 0.0))  # rounding may make it negative

    def observe(self, y1: float, u: float, y: float, keep: float) -> None:
        """Take one sample; ``keep``: weight of all earlier ones."""
        error = y - self.a * y1 - self.b * u
        ga, gb = self.aa * y1 + self.ab * u, self.ab * y1 + self.bb * u
        weight = keep + y1 * ga + u * gb
        self.a += ga / weight * error
        self.b += gb / weight * error
        # The residual after the update (of the model that is judged) is the one before it times keep / weight.
        self.residual += (1.0 - FORGETTING) * (error * error * keep / weight - self.residual)
        self.aa = min(VAGUE, (self.aa - ga * ga / weight) / keep)
        self.ab = (self.ab - ga * gb / weight) / keep
        self.bb = min(VAGUE, (self.bb - gb * gb / weight) / keep)


@dataclass(slots=True)
class Learner:
    """Takes one sample per period; ``model`` is the last accepted model."""

    model: Model | None = None
    samples: int = 0
    noise: float = 0.05
    """Standard deviation of a period's progress around its best forecast, relative to it; assumed at first."""
    _filters: tuple[_Filter, ...] = field(default_factory=lambda: tuple(_Filter() for _ in range(DELAYS)))
    past: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS))
    """CPU in the last periods, cores, newest last."""
    _before: float | None = None
    _scale: float = 0.0
    """Progress that counts as 1."""
    _mean: float = 0.0
    _variance: float = 0.0
    """Of the outputs, with the same weights as the residuals."""
    _input: float = 0.0
    _moved: float = 0.0
    """Weighted mean and variance of the inputs."""

    def learn(self, progress: float, cores: float) -> None:
        """Take the progress of a period (units) and the CPU that the chunk had in it (cores)."""
        before, self._before = self._before, progress
        self.past.append(cores)
        if before is None or len(self.past) < DELAYS:
            return
        if self.samples >= ENOUGH and self._surprised(before / self._scale, progress / self._scale):
            self._start_over()
            return
        if self._scale == 0.0:
            if max(progress, before) < LEAST:
                return
            self._scale = max(progress, before)
            self._mean, self._input = progress / self._scale, cores
        y1, y = before / self._scale, progress / self._scale
        part = 1.0 - FORGETTING
        away = y - self._mean
        self._mean += part * away
        self._variance += part * (away * away * (1.0 - part) - self._variance)
        away = cores - self._input
        self._input += part * away
        self._moved += part * (away * away * (1.0 - part) - self._moved)
        keep = 1.0 if self.dull else FORGETTING
        for delay, one in enumerate(self._filters):
            one.observe(y1, self.past[-1 - delay], y, keep)
        self.samples += 1
        self._judge()

    def interrupt(self) -> None:
        """Forget the last sample, because the next one does not follow from it: the chunk has stood still."""
        self._before = None
        self.past.clear()

    @property
    def dull(self) -> bool:
        """The cap has hardly moved lately (by less than 2 % of its mean): nothing can be learned."""
        return self._moved < (0.02 * self._input) ** 2

    def _surprised(self, y1: float, y: float) -> bool:
        """Whether progress is farther from its forecast than noise is."""
        at = min(range(DELAYS), key=lambda delay: self._filters[delay].residual)
        usual = max(self._filters[at].residual / self._seen, (EXACT * self._mean) ** 2)
        return self._filters[at].surprise(y1, self.past[-1 - at], y) > JUMP * math.sqrt(usual)

    def _start_over(self) -> None:
        """Forget all samples: a model that explains both processes, before and after a change, is true of none."""
        self.samples = 0
        self._filters = tuple(_Filter() for _ in range(DELAYS))
        self._scale = self._variance = self._moved = 0.0

    @property
    def _seen(self) -> float:
        """The weights of all samples so far."""
        return 1.0 - FORGETTING**self.samples

    def _judge(self) -> None:
        """Accept the best filter's model if it is believable. Its noise counts even where there is nothing to learn."""
        if self.samples < ENOUGH:
            return
        best = min(self._filters, key=lambda one: one.residual)
        self.noise = math.sqrt(max(best.residual, 0.0) / self._seen) / max(self._mean, 1e-9)
        if self.dull:
            return
        r2 = 1.0 - best.residual / self._variance if self._variance > 0.0 else 0.0
        if r2 >= LEAST_R2 and -0.3 < best.a < LARGEST_A and WEAKEST < best.b < 1.0 / WEAKEST:
            self.model = Model.first_order(
                max(best.a, 0.0), best.b * self._scale, delay=self._filters.index(best), r2=r2
            )
