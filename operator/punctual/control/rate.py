"""Target rates: one (period, slice) for all pods of an application, so that it runs at a part of its rate alone.

Each pod gets ``slice`` seconds of CPU in each ``period``; utilization U = slice/period. Two things are asked at once:
|rate − target| ≤ ε and |U − target| ≤ ε. The rate is a fraction of the application's rate alone and is reported once an
iteration (Lin, Sundararaj and Dinda 2008). With a long period, ranks that exchange data wait for each other's slices,
and the rate falls below U. A short period pays for a switch at the start of each slice.

The loss U − rate is modelled as w·U·rate·(1 − U)·period/alone + switch/period. (1 − U)·period is the gap between two
slices, ``alone`` the seconds of an iteration alone, and w, the *waits*, the number of such gaps that an iteration
loses. w depends on how the slices of different nodes happen to overlap at a period; its distribution hardly depends on
program, target and period. So a first guess takes a low w, and one that must be right takes a high one.

`Bracketing` is the default law, `FixedPeriod` that of aligned slices, `LinearSearch` the paper's. They are pure: a
report or a change of target goes in, a `RateDecision` with the pair that is to be in force comes out.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, sqrt
from typing import Final, Literal, Protocol

QUOTA: Final = 0.001
"""The kernel's least quota, s: no slice is shorter, so no period is shorter than QUOTA / rate."""
SWITCH: Final = 0.0001
"""Assumed cost of the start of a slice, s."""
BOLD: Final = 4.5
"""Waits of a first guess: about seven of ten simulated programs have less."""
SAFE: Final = 6.4
"""Waits of a guess that must be right: about nine of ten have less."""
LEAP: Final = 5.0
"""A change of target by less ε begins with SAFE waits: an iteration that is half under the old target may be in band by
chance, and then the pair is to stay."""
LEAST: Final = 1.5
"""Least waits assumed: an iteration is not measured finer than about a gap."""
AIM: Final = 0.65
"""Utilization aimed at: so many ε above the target, as the rate is below utilization.

A rank that waits for no other, as the one on the slowest node, runs at the rate U. Its iterations end before a gap or
behind it, so they differ by one. Of ε that is (AIM + 1 − SPARE) / BOLD at most, which with AIM must be less than 1.
"""
MOST: Final = 0.9
"""Utilization is at most so many ε from the target: that far above it only once SEVERAL periods have lost too much."""
SEVERAL: Final = 3
"""Periods that lose too much before the slice is widened to MOST: a longer search finds nothing better."""
SPARE: Final = 0.2
"""Part of ε kept for the difference between iterations."""
TAKEN: Final = 0.02
"""What external load may take of a slice: half of it is added to the rate aimed at."""
NEAR: Final = 1.15
"""A loss up to so many times the allowed one is near: the period is shortened in proportion, at least to STEP of it."""
STEP: Final = 0.9
WHOLE: Final = 0.9
"""Share of an iteration from which on it tells the rate of the pair: the rest is taken to have run at the last rate."""
SURE: Final = 0.4
"""Share from which on it tells whether the pair loses too much."""
MUCH: Final = 1.5
"""Periods that differ by this factor are far apart: between nearer ones no other is tried."""
PATIENCE: Final = 2
"""Iterations out of band after which a pair that held is given up."""
FORGET: Final = 0.25
"""So much of one is forgotten with each iteration in band."""
PROBES: Final = 16
"""Periods tried for one target; then the best of them stays."""

Reason = Literal["Start", "Known", "Hold", "Wait", "Search", "Slice", "Reset", "Limited", "Unreachable"]


@dataclass(frozen=True, slots=True)
class Pair:
    """``slice`` seconds of CPU in each ``period`` seconds."""

    period: float
    slice: float

    @property
    def utilization(self) -> float:
        """The part of a CPU."""
        return self.slice / self.period


@dataclass(frozen=True, slots=True)
class Limits:
    """The periods that may be used, s; a target below QUOTA / max_period needs a longer one, and gets it."""

    min_period: float = 0.002
    max_period: float = 0.2

    def least(self, utilization: float) -> float:
        """Return the shortest period at a utilization: its slice is not below the kernel's least quota."""
        return max(self.min_period, QUOTA / utilization)

    def clamp(self, period: float, utilization: float) -> float:
        """Return the allowed period nearest to one."""
        return max(min(period, self.max_period), self.least(utilization))


@dataclass(frozen=True, slots=True)
class Iteration:
    """The report of one iteration.

    rate          of the rate alone
    utilization   slice/period that was in force, as seen on the nodes
    share         the part of the iteration's time in which the present pair was in force
    """

    rate: float
    utilization: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class RateDecision:
    """The pair that is to be in force, and one word for people on why."""

    pair: Pair
    reason: Reason


def within(value: float, target: float, epsilon: float) -> bool:
    """Return whether |value − target| ≤ ε, but for rounding."""
    return abs(value - target) <= epsilon * (1.0 + 1e-9)


class Law(Protocol):
    """A control law for one application. ``pair`` is in force until the next decision."""

    pair: Pair

    def aim(self, target: float, *, ceiling: float = 1.0) -> RateDecision:
        """Begin with a target, or with another ``ceiling``: the most utilization that its nodes have for it."""

    def report(self, seen: Iteration) -> RateDecision:
        """Process the report of an iteration."""


@dataclass(slots=True)
class LinearSearch:
    """The paper's law, to the letter (4.2): from the longest period down in equal steps, U = target throughout.

    If |e| > ε the period becomes a step shorter, at min_period again the longest; if |e| ≤ ε nothing changes. A change
    of target is treated as a report: with the last rate, and U follows in any case ("an invariant by construction").
    """

    epsilon: float
    limits: Limits = field(default_factory=Limits)
    step: float = 0.002
    pair: Pair = field(init=False)
    target: float = field(init=False, default=0.0)
    rate: float | None = field(init=False, default=None)

    def aim(self, target: float, *, ceiling: float = 1.0) -> RateDecision:  # noqa: ARG002  U is never above the target
        """Change the target."""
        first = self.target == 0.0
        self.target = target
        if first:
            return self._set(self.limits.max_period, "Start")
        return self._search()

    def report(self, seen: Iteration) -> RateDecision:
        """Process the report of an iteration."""
        self.rate = seen.rate
        return self._search()

    def _search(self) -> RateDecision:
        if self.rate is None or within(self.rate, self.target, self.epsilon):
            return self._set(self.pair.period, "Hold")
        period = self.pair.period - self.step
        if period <= self.limits.least(self.target):
            return self._set(self.limits.max_period, "Reset")
        return self._set(period, "Search")

    def _set(self, period: float, reason: Reason) -> RateDecision:
        period = self.limits.clamp(period, self.target)
        self.pair = Pair(period, period * self.target)
        return RateDecision(self.pair, reason)


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair that held a target, and the rate that it gave."""

    target: float
    pair: Pair
    rate: float


class _Patient:
    """What two laws have in common: a pair that has held gets another chance after an iteration out of band."""

    epsilon: float
    known: tuple[KnownPair, ...]
    pair: Pair
    target: float
    held: bool
    strikes: float
    given_up: bool

    def in_band(self, seen: Iteration) -> bool:
        """Return whether rate and utilization are both within ε of the target."""
        return all(within(value, self.target, self.epsilon) for value in (seen.rate, seen.utilization))

    def _hold(self, seen: Iteration) -> RateDecision:
        """Note an iteration in band."""
        if not self.held:
            others = tuple(k for k in self.known if k.target != self.target)
            self.known = (*others, KnownPair(self.target, self.pair, seen.rate))[-PROBES:]
        self.strikes = max(self.strikes - FORGET, 0.0) if self.held else 0.0
        self.held, self.given_up = True, False
        return RateDecision(self.pair, "Hold")

    def _waits(self) -> bool:
        """Note an iteration out of band; return whether the pair gets another chance."""
        self.strikes += 1
        return self.held and self.strikes < PATIENCE


@dataclass(slots=True)
class Bracketing(_Patient):
    """The default law: predicts a pair that holds, and brackets the period where the prediction was wrong.

    Utilization is up to AIM·ε above the target, and to MOST·ε once SEVERAL periods lose too much, so the loss may
    be 1.7 ε. A target begins with the pair that held it before. Without one it begins with the longest period at which
    BOLD waits lose no more than is allowed, or with the slice of a pair that held another target: the part of a slice
    that is lost to waiting depends on the slice and hardly on the target. If the iteration in which the target changed
    does not show that this is good, the period for SAFE waits takes its place before the next one.

    A period that loses too much in a whole iteration tells the waits there. A near miss takes a small step; otherwise
    the period for SAFE waits follows, or for as many as there were. A shorter period that loses no less, because of the
    switches, ends this: then the widest gaps between tried periods are halved. The first pair in band stays.
    """

    epsilon: float
    alone: float
    """Seconds of an iteration alone."""
    limits: Limits = field(default_factory=Limits)
    known: tuple[KnownPair, ...] = ()
    """What held, oldest first, one for each target: all that a restarted controller needs."""
    pair: Pair = field(init=False)
    target: float = field(init=False, default=0.0)
    ceiling: float = field(init=False, default=1.0)
    held: bool = field(init=False, default=False)
    """The pair has been in band for a whole iteration."""
    strikes: float = field(init=False, default=0.0)
    """Iterations out of band since, less FORGET for each one in band."""
    tried: dict[float, float] = field(init=False, default_factory=dict)
    """Losses by period, for the present target."""
    given_up: bool = field(init=False, default=False)
    bold: bool = field(init=False, default=False)
    """The period is a guess for BOLD waits, and no iteration has told of it yet."""
    rate: float | None = field(init=False, default=None)
    """Of the last iteration under one pair."""

    def aim(self, target: float, *, ceiling: float = 1.0) -> RateDecision:
        """Change the target, or the ceiling."""
        if target == self.target and self.pair.utilization <= ceiling:
            self.ceiling = ceiling
            return RateDecision(self.pair, "Hold")
        self.target, self.ceiling = target, ceiling
        self.held, self.strikes, self.given_up = False, 0.0, False
        self.bold = False
        self.tried.clear()
        again = next((k.pair for k in self.known if k.target == target and k.pair.utilization <= ceiling), None)
        if again is not None and again.period <= self.limits.max_period:
            return self._set(again.period, again.utilization, "Known")
        self.bold = self.rate is None or abs(target - self.rate) > LEAP * self.epsilon
        return self._try(max(self._longest(BOLD if self.bold else SAFE), self._same_slice(self.goal)), "Start")

    @property
    def goal(self) -> float:
        """Utilization aimed at."""
        return min(self.target + AIM * self.epsilon, self.ceiling, 1.0)

    def report(self, seen: Iteration) -> RateDecision:
        """Process the report of an iteration."""
        if abs(seen.utilization - self.pair.utilization) > self.epsilon:
            return RateDecision(self.pair, "Limited")  # the pair is not what the nodes give: nothing to learn
        mixed = seen.share < 1.0 - 1e-9
        if not 0.0 < seen.rate < inf or (mixed and self.in_band(seen)):
            return RateDecision(self.pair, "Wait")
        seen = self._unmixed(seen) if mixed else seen
        if seen.share < WHOLE:
            return self._look_ahead(seen)
        self.rate, self.bold = seen.rate, False
        return self._hold(seen) if self.in_band(seen) else self._leave(seen)

    def _leave(self, seen: Iteration) -> RateDecision:
        """Change the pair after an iteration out of band; one that held is given another chance."""
        if self._waits():
            return RateDecision(self.pair, "Wait")
        if self.held:  # something has changed: what was tried before tells nothing of it
            self.known = tuple(k for k in self.known if k.target != self.target)
            self.tried.clear()
        self.held, self.strikes = False, 0.0
        return self._slow_down(seen) if seen.rate > self.target else self._shorten(seen)

    def _unmixed(self, seen: Iteration) -> Iteration:
        """Return an iteration with the rate under the present pair alone: before it, the last rate is assumed."""
        if self.rate is None or seen.share <= 0.0:
            return seen
        return replace(seen, rate=(seen.rate - self.rate * (1.0 - seen.share)) / seen.share)

    def _look_ahead(self, seen: Iteration) -> RateDecision:
        """Judge a bold period by an iteration that was only in part under the pair: it stays if it surely loses little.

        All losses of an iteration may lie in that part, so the loss seen is at least that of a whole one.
        """
        good = seen.share >= SURE and self.rate is not None and seen.utilization - seen.rate <= self._allowed
        safe = max(self._longest(SAFE), self._same_slice(self.goal))
        if not self.bold or good or safe >= self.pair.period:
            return RateDecision(self.pair, "Wait")
        self.bold = False
        return self._try(safe, "Search")

    def _slow_down(self, seen: Iteration) -> RateDecision:
        """Take from the slice what the application is too fast by."""
        least = max(self.target - MOST * self.epsilon, self.target / 2)
        if self.pair.utilization <= least + 1e-9:  # it runs where the CPU is not what it waits for, as for its disk
            return RateDecision(self.pair, "Unreachable")
        return self._set(self.pair.period, max(least, self.pair.utilization - (seen.rate - self.target)), "Slice")

    def _shorten(self, seen: Iteration) -> RateDecision:
        """Try another period after one that lost too much, or a larger slice if that is enough."""
        loss, period = seen.utilization - seen.rate, self.pair.period
        top = self.goal if len(self.tried) < SEVERAL else min(self.target + MOST * self.epsilon, self.ceiling, 1.0)
        if top - seen.utilization > SPARE * self.epsilon and loss <= top - self.target + (1.0 - SPARE) * self.epsilon:
            return self._set(period, top, "Slice")
        self.tried[period] = min(loss, self.tried.get(period, inf))
        following = None if self.given_up or len(self.tried) >= PROBES else self._following(seen, loss, period)
        if following is None:
            self.given_up = True
            return self._try(min(self.tried, key=lambda p: (round(self.tried[p], 3), -p)), "Unreachable")
        return self._try(following, "Search")

    def _following(self, seen: Iteration, loss: float, period: float) -> float | None:
        """Return the period to try after one that lost ``loss``; None: there is none left.

        A shorter one, unless periods have shown to lose no less when they are shorter: then one in between.
        """
        useless = [p for p in self.tried if any(q >= MUCH * p and self.tried[q] <= self.tried[p] for q in self.tried)]
        low = max([self.limits.least(self.goal), *useless])
        waits = (loss - SWITCH / period) / self._gap(seen.utilization, seen.rate, period)
        near = loss <= NEAR * self._allowed
        step = period * min(STEP, self._allowed / loss)
        following = max(step if near else self._longest(max(SAFE, waits)), self.limits.least(self.goal))
        if following < STEP * period * (1.0 + 1e-9) and following >= low and self._is_new(following):
            return following
        marks = sorted({low, *(p for p in self.tried if p >= low), max(self.limits.max_period, low)})
        ratio, one, other = max(((other / one, one, other) for one, other in pairwise(marks)), default=(1.0, low, low))
        following = sqrt(one * other)
        return following if ratio > MUCH and self._is_new(following) else None

    def _is_new(self, period: float) -> bool:
        return all(abs(period / p - 1.0) > 0.02 for p in self.tried)

    @property
    def _allowed(self) -> float:
        """The largest loss with which the rate is in band at the goal."""
        return self.goal - self.target + (1.0 - SPARE) * self.epsilon

    def _gap(self, utilization: float, rate: float, period: float) -> float:
        """Return what one wait costs, as part of the rate alone."""
        return max(utilization * rate * (1.0 - utilization) * period / self.alone, 1e-12)

    def _longest(self, waits: float) -> float:
        """Return the longest period at which so many waits lose no more than is allowed.

        The loss is a·period + SWITCH/period. If it is always too large, the period where it is least.
        """
        goal, allowed = self.goal, self._allowed
        a = max(waits, LEAST) * self._gap(goal, goal - allowed, 1.0)
        root = allowed * allowed - 4.0 * a * SWITCH
        period = (allowed + sqrt(root)) / (2.0 * a) if root > 0.0 else sqrt(SWITCH / a)
        return self.limits.clamp(period, goal)

    def _same_slice(self, goal: float) -> float:
        """Return the longest period with the slice of a pair that held another target; 0: none would hold this one."""
        found = 0.0
        for k in self.known:
            period = k.pair.slice / goal
            if goal * (1.0 - k.rate / k.pair.utilization) <= self._allowed and period <= self.limits.max_period:
                found = max(found, period)
        return found

    def _try(self, period: float, reason: Reason) -> RateDecision:
        """Use a period, with the goal, or less if even SAFE waits lose less there: the rate is to be in mid band."""
        loss = SAFE * self._gap(self.goal, self.target, period) + SWITCH / period
        return self._set(period, min(self.goal, self.target * (1.0 + TAKEN / 2) + loss / 2), reason)

    def _set(self, period: float, utilization: float, reason: Reason) -> RateDecision:
        period = self.limits.clamp(period, min(self.target, utilization))
        self.pair = Pair(period, period * utilization)
        return RateDecision(self.pair, reason)


@dataclass(slots=True)
class FixedPeriod(_Patient):
    """The law for aligned slices: the period is given, because slots are, and only the slice moves.

    Aligned slices lose little to waiting, whatever the period. So the rate follows utilization, and the error of a
    whole iteration out of band is added to it. It stays within MOST·ε of the target, and below the ceiling. The first
    slice in band stays.
    """

    epsilon: float
    period: float
    known: tuple[KnownPair, ...] = ()
    """What held, oldest first, one for each target."""
    pair: Pair = field(init=False)
    target: float = field(init=False, default=0.0)
    ceiling: float = field(init=False, default=1.0)
    held: bool = field(init=False, default=False)
    """The pair has been in band for a whole iteration."""
    strikes: float = field(init=False, default=0.0)
    """Iterations out of band since, less FORGET for each one in band."""
    given_up: bool = field(init=False, default=False)
    """The largest slice was too short for a whole iteration."""

    def aim(self, target: float, *, ceiling: float = 1.0) -> RateDecision:
        """Change the target, or the ceiling."""
        again = target == self.target
        self.target, self.ceiling = target, ceiling
        if again and within(self.pair.utilization, self._clamp(self.pair.utilization), 1e-9):
            return RateDecision(self.pair, "Hold")
        self.held, self.strikes, self.given_up = False, 0.0, False
        found = next((k.pair.utilization for k in self.known if k.target == target), None)
        if found is not None and within(found, self._clamp(found), 1e-9):
            return self._set(found, "Known")
        return self._set(target * (1.0 + TAKEN / 2), "Start")

    def report(self, seen: Iteration) -> RateDecision:
        """Process the report of an iteration."""
        if abs(seen.utilization - self.pair.utilization) > self.epsilon:
            return RateDecision(self.pair, "Limited")  # the pair is not what the nodes give: nothing to learn
        if not 0.0 < seen.rate < inf or seen.share < 1.0 - 1e-9:
            return RateDecision(self.pair, "Wait")
        if self.in_band(seen):
            return self._hold(seen)
        if self._waits():
            return RateDecision(self.pair, "Wait")
        self.held, self.strikes = False, 0.0
        before = self.pair.utilization
        wanted = self._clamp(before + self.target - seen.rate)
        stuck = within(wanted, before, 1e-9)
        self.given_up = stuck and seen.rate < self.target
        return RateDecision(self.pair, "Unreachable") if stuck else self._set(wanted, "Slice")

    def _clamp(self, utilization: float) -> float:
        """Return the allowed utilization nearest to one."""
        least = max(self.target - MOST * self.epsilon, self.target / 2)
        return min(max(utilization, least), self.target + MOST * self.epsilon, self.ceiling, 1.0)

    def _set(self, utilization: float, reason: Reason) -> RateDecision:
        self.pair = Pair(self.period, self.period * self._clamp(utilization))
        return RateDecision(self.pair, reason)


@dataclass(frozen=True, slots=True)
class RateDemand:
    """An application that asks for a rate. ``cpus``: by node, what it would use there alone, in cores."""

    name: str
    rate: float
    epsilon: float
    cpus: dict[str, float]


@dataclass(frozen=True, slots=True)
class Admitted:
    """All rates fit. ``ceilings``: by application, the most utilization that each of its nodes has for it."""

    ceilings: dict[str, float]


@dataclass(frozen=True, slots=True)
class Overcommitted:
    """The rates do not fit on a node; cores."""

    node: str
    asked: float
    has: float
    parts: dict[str, float]
    """By application, what it asks for there."""

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {cores:.6g}" for name, cores in self.parts.items())
        return (
            f"node {self.node} is asked for {self.asked:.6g} CPU ({parts}) and has {self.has:.6g}: lower the rates by "
            f"{self.asked - self.has:.3g} CPU in all, or use other nodes"
        )


def admit(demands: list[RateDemand], capacity: dict[str, float]) -> Admitted | Overcommitted:
    """Test whether Σ rate · CPU fits on each node (EDF: Σ U ≤ 1), and give what is left to each in equal parts.

    The first node that does not suffice, in the order of ``capacity``, is named.
    """
    spare: dict[str, float] = {}
    for node, has in capacity.items():
        parts = {d.name: d.rate * d.cpus[node] for d in demands if node in d.cpus}
        asked = sum(parts.values())
        if asked > has * (1.0 + 1e-9):
            return Overcommitted(node, asked, has, parts)
        cores = sum(d.cpus[node] for d in demands if node in d.cpus)
        spare[node] = max(has - asked, 0.0) / cores if cores else 0.0
    return Admitted({d.name: d.rate + min([d.epsilon, *(spare[node] for node in d.cpus)]) for d in demands})
