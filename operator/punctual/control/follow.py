"""Keeps a chunk on its line: units left over seconds left is the progress it must make (Park and Humphrey, eq. 13).

Two parts add up, so that neither noise nor delay slows down the answer to a new line:

- **Forward.** The model tells the cap with which the next progress that can still be changed is the reference one. So a
  chunk reaches its line in the fewest periods that cap and delay allow.
- **Back.** A PI controller compares the progress that the model expects from the caps that were in force with the
filtered
  measured progress. Its output is the logarithm of a factor on the cap: a node that is half as fast needs twice the
  cap, whatever the line is.

The model runs on the CPU that the chunk really had. A cap that is saturated, or that another chunk has taken, therefore
makes no error, and nothing winds up. A new model or a restart begins at the cap in force.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from punctual.control.governor import Sample, Wish
from punctual.control.model import Model
from punctual.control.pi import PI, Tuned

FROZEN: Final = 10.0
"""Periods before the line's end from which on the reference stays: dividing by less time, noise would be all of it."""
BOUND: Final = 0.95
"""Part of its cap that a chunk uses if the cap is what limits it."""
SHORT: Final = 1e-3
"""Part of the nominal length below which a period says nothing but what was done in it."""
SILENT: Final = 0.1
"""Part of the expected progress below which a chunk that begins has made none."""
LONGEST: Final = 2
"""Largest delay that the first periods can show, in periods."""
FARTHEST: Final = math.log(8.0)
"""Largest logarithm of the factor on the cap."""


@dataclass(slots=True)
class Line:
    """What is left of a chunk, and the time for it."""

    units: float
    seconds: float
    """Until the planned end; negative: late."""

    def advance(self, units: float, seconds: float) -> None:
        """Take off what was done in some time."""
        self.units -= units
        self.seconds -= seconds


@dataclass(slots=True)
class Follow:
    """Keeps one chunk on its line.

    ``model`` counts in units per period and cores. ``tuned``: of :func:`punctual.control.tuning.tune`.
    """

    line: Line
    model: Model
    tuned: Tuned
    low: float
    """Cores that it may always have."""
    high: float
    period: float = 1.0
    """Seconds for which the model counts."""
    reference: float = 0.0
    """Units per period on the line, as of the last tick."""
    _loop: PI = field(init=False)
    _expected: float = 0.0
    """Progress that the model expects of the last period."""
    _error: float = 0.0
    """Filtered."""
    _begun: bool = False
    """There was progress since it began at rest."""
    _inputs: deque[float] = field(init=False)
    """What the model was given in the last periods: CPU without the factor, newest last."""

    def __post_init__(self) -> None:
        """Begin with the model as it is."""
        self._loop = PI(self.tuned.gains, output=0.0, low=-FARTHEST, high=FARTHEST)
        self._inputs = deque([0.0] * (self.model.delay + 1), maxlen=self.model.delay + 1)

    @property
    def factor(self) -> float:
        """Cap that the chunk needs, relative to what the model says."""
        return math.exp(self._loop.output)

    @property
    def modelled(self) -> float:
        """Cores that the model alone says (eq. 10): the chunk's open loop."""
        return self.reference / self.model.gain

    @property
    def needed(self) -> float:
        """Cores that keep it on its line once it is settled (eq. 10), as its progress shows them; without any limit."""
        return self.factor * self.reference / self.model.gain

    def adopt(self, model: Model, tuned: Tuned) -> None:
        """Take another model without a jump: the factor becomes 1 where the new model contains it."""
        shift = math.log(max(1e-9, self.model.gain / self.factor) / model.gain)
        self.model, self.tuned = model, tuned
        scale = self.factor
        self._loop = PI(tuned.gains, output=min(max(-shift, -FARTHEST), FARTHEST), low=-FARTHEST, high=FARTHEST)
        given = [one * scale / self.factor for one in self._inputs]
        self._inputs = deque([given[0]] * (model.delay + 1), maxlen=model.delay + 1)
        self._inputs.extend(given)
        self._error = 0.0

    def rest(self) -> None:
        """Begin at rest again, after the chunk has stood still."""
        self._expected = self._error = 0.0
        self._begun = False
        self._inputs.extend([0.0] * len(self._inputs))

    def go_on(self, seen: Sample, past: Sequence[float]) -> None:
        """Begin in the middle: the chunk makes the progress that a sample shows.

        ``past``: the CPU that it had in the last periods, newest last; before these, the oldest.
        """
        self._expected = seen.units * self.period / seen.dt
        self._begun = True
        self._inputs.extend([past[0]] * len(self._inputs))
        self._inputs.extend(past)

    def observe(self, seen: Sample) -> None:
        """Take the sample of a period."""
        self.line.advance(seen.units, max(0.0, seen.dt))
        if seen.dt < SHORT * self.period:
            return
        periods = seen.dt / self.period
        self._compare(seen.units / periods, seen.cap if seen.cores >= BOUND * seen.cap else seen.cores, periods)

    def wish(self) -> Wish:
        """Return the cap that brings the progress to the line as soon as it can act."""
        left = self.line.seconds / self.period
        if left >= FROZEN or self.reference == 0.0:
            self.reference = max(0.0, self.line.units) / max(left, 1.0)
        elif left <= 0.0:
            return Wish(self.high, "late")
        return self._forward()

    def _compare(self, progress: float, cores: float, periods: float) -> None:
        """Move the factor by the difference between expected and measured progress."""
        factor = self.factor
        self._inputs.append(cores / factor)
        (a,), b = self.model.a, self.model.b[-1]
        if not self._begun and progress < SILENT * b * self._inputs[0] and self.model.delay < LONGEST:
            self._delay()
        self._begun = self._begun or progress > 0.0
        kept = a**periods
        self._expected = kept * self._expected + (1.0 - kept) * self.model.gain * self._inputs[0]
        scale = max(self._expected, self.model.gain * self._inputs[-1])
        if scale > 0.0:
            # Progress that jumps is believed to be twice the expected one, no more: the filter would keep it for long.
            error = min(max((self._expected - progress) / scale, -1.0), 1.0)
            self._error = self.tuned.alpha * self._error + (1.0 - self.tuned.alpha) * error
            self._loop.step(self.tuned.weigh(self._error), periods)

    def _delay(self) -> None:
        """Count one period of delay more: a chunk at rest has got CPU, and there is no progress yet."""
        self.model = replace(self.model, b=(0.0, *self.model.b))
        self._inputs = deque([0.0, *self._inputs], maxlen=self.model.delay + 1)

    def _forward(self) -> Wish:
        (a,), b = self.model.a, self.model.b[-1]
        coming = self._expected
        for given in list(self._inputs)[1:]:
            coming = a * coming + b * given
        wanted = self.factor * (self.reference - a * coming) / b
        cap = min(max(wanted, self.low), self.high)
        return Wish(cap, "saturated" if self.needed > self.high else "line")
