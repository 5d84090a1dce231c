"""Follows a line with a model that it learns: explores while nothing is known, then follows, and keeps learning.

While no model is known, the chunk's cap alternates between two levels, from which its model shows after some twenty
periods. If it does not, because the noise is larger than the effect, the ratio of progress to CPU stands for a model,
and small steps of the cap from time to time (dither) give the learner another chance.

Gains are searched elsewhere, because that needs arrays: :attr:`Adaptive.untuned` is the model that waits for them.
"""

from dataclasses import dataclass, field
from typing import Final

from punctual.control.follow import SHORT, Follow, Line
from punctual.control.governor import Sample, Wish
from punctual.control.learner import ENOUGH, LEAST, Learner
from punctual.control.model import Model
from punctual.control.pi import Tuned, place_poles

LEVELS: Final = (1.0, 1.0, 0.5, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0, 0.5, 1.0, 1.0, 0.5, 1.0)
"""Parts of the largest cap while nothing is known. Successive values are independent, so that each delay shows."""
WORTH: Final = 5 * len(LEVELS)
"""Periods that must be left on the line: exploring costs up to a quarter of so many."""
STEP: Final = 0.04
"""Part of the cap by which it is moved to learn: the progress stays in its band of 5 %."""
REST: Final = 10 * len(LEVELS)
"""Periods from one dither to the next."""
WRONG: Final = 1.2
"""Factor on the cap from which on the model is not believed."""
RENEWED: Final = 100
"""Periods after which the learned model replaces the one in force, if it explains more or that one does not fit."""
IDLE: Final = 1e-3
"""Core periods in all at which a chunk has had no CPU to speak of."""
ALPHA: Final = 0.8
SLOW: Final = 0.95
"""Pole of the loop until its gains have been searched: an error loses 5 % of itself in each period."""


@dataclass(slots=True)
class Adaptive:
    """Keeps one chunk on its line, with or without a model at first. Arguments as for :class:`Follow`."""

    line: Line
    low: float
    high: float
    model: Model | None = None
    period: float = 1.0
    untuned: Model | None = None
    """Model that waits for its gains: see :meth:`adopt`."""
    noise: float = 0.05
    """Standard deviation of the progress in a period, relative to it."""
    _learner: Learner = field(default_factory=Learner)
    _follow: Follow | None = None
    _ticks: int = 0
    _adopted: int = 0
    _units: float = 0.0
    _cores: float = 0.0
    """Progress and CPU of all periods."""

    def __post_init__(self) -> None:
        """Follow at once if there is a model."""
        self._learner.noise = self.noise
        if self.model is not None:
            self._begin(self.model)

    @property
    def needed(self) -> float | None:
        """Cores that keep the chunk on its line (eq. 10); None: nothing is known yet."""
        return None if self._follow is None else self._follow.needed

    @property
    def in_force(self) -> Model:
        """The model in force; ValueError if there is none."""
        if self._follow is None:
            raise ValueError("nothing is known yet")
        return self._follow.model

    @property
    def learned(self) -> bool:
        """Whether the model in force was learned, from this chunk or before it."""
        return self._follow is not None and self._follow.model.r2 > 0.0

    @property
    def samples(self) -> int:
        """Samples taken so far."""
        return self._ticks

    @property
    def modelled(self) -> float:
        """Cores that the model alone says: the open loop; the largest cap while there is no model."""
        return self.high if self._follow is None else self._follow.modelled

    @property
    def reference(self) -> float:
        """Units per period on the line."""
        return self._follow.reference if self._follow else self.line.units / max(1.0, self.line.seconds / self.period)

    @property
    def gain(self) -> float | None:
        """Units per period that a core gives once it is settled, as measured; None: nothing is known yet."""
        return None if self._follow is None else self._follow.model.gain / self._follow.factor

    def limit(self, low: float, high: float) -> None:
        """Change the range of the cap."""
        self.low, self.high = low, high
        if self._follow is not None:
            self._follow.low, self._follow.high = low, high

    def join(self, seen: Sample) -> None:
        """Begin in the middle of a chunk: its first sample shows the progress that it makes, whatever was before."""
        self.line.advance(seen.units, seen.dt)
        self._learner.learn(seen.units * self.period / seen.dt, seen.cores)
        if self._follow is not None:
            self._follow.go_on(seen, self._learner.past)

    def adopt(self, tuned: Tuned) -> None:
        """Take another controller, and the model that waited for it, if one did."""
        assert self._follow is not None
        self._follow.adopt(self.untuned or self._follow.model, tuned)
        self.untuned = None
        self._adopted = self._ticks

    def rest(self) -> None:
        """Begin at rest again, after the chunk has stood still."""
        self._learner.interrupt()
        if self._follow is not None:
            self._follow.rest()

    def observe(self, seen: Sample) -> None:
        """Take the sample of a period. One without length says nothing but what was done."""
        if seen.dt < SHORT * self.period:
            self.line.advance(seen.units, max(0.0, seen.dt))
            return
        self._ticks += 1
        progress = seen.units * self.period / seen.dt
        self._units += progress
        self._cores += seen.cores
        self._learner.learn(progress, seen.cores)
        if self._follow is not None:
            before = self._follow.model
            self._follow.observe(seen)
            if self._follow.model is not before:
                self.untuned = self._follow.model
            self._renew()
            return
        self.line.advance(seen.units, seen.dt)
        found = self._learner.model
        if found is None and self._learner.samples >= ENOUGH and self._units > LEAST and self._cores > IDLE:
            found = Model.first_order(0.0, self._units / self._cores, r2=0.0)
        if found is not None:
            self._begin(found).go_on(seen, self._learner.past)

    def wish(self) -> Wish:
        """Return the cap for the next period."""
        if self._follow is not None:
            return self._dithered(self._follow.wish())
        worth = self.line.seconds >= WORTH * self.period
        level = LEVELS[self._ticks % len(LEVELS)] if worth else 1.0
        return Wish(max(self.low, self.high * level), "learning")

    def _begin(self, model: Model) -> Follow:
        a = model.a[0]
        tuned = Tuned(gains=place_poles(Model((a,), (1.0 - a,)), SLOW, a), alpha=ALPHA)
        self._follow = Follow(self.line, model, tuned, self.low, self.high, self.period)
        self.untuned = model
        return self._follow

    def _renew(self) -> None:
        found = self._learner.model
        self.noise = self._learner.noise
        if found is None:
            return
        assert self._follow is not None
        guessed = self._follow.model.r2 == 0.0
        better = found.r2 > self._follow.model.r2 or not self._fits
        if found is not self._follow.model and (guessed or (better and self._ticks - self._adopted >= RENEWED)):
            self.untuned = found

    @property
    def _fits(self) -> bool:
        """The cap that the chunk needs is about the one that the model says."""
        assert self._follow is not None
        return 1.0 / WRONG < self._follow.factor < WRONG

    def _dithered(self, wish: Wish) -> Wish:
        turn = self._ticks % REST
        assert self._follow is not None
        believed = self._follow.model.r2 > 0.0 and self._fits
        if believed or not self._learner.dull or turn >= len(LEVELS):
            return wish
        step = STEP if LEVELS[turn] == 1.0 else -STEP
        return Wish(min(max(wish.cap * (1.0 + step), self.low), self.high), "learning")
