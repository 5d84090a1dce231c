"""The published system as a baseline: Park and Humphrey, ch. 4 to 7 and the appendix, to the letter.

What the paper leaves open is chosen here, in its favour: the samples of a regression, length and size of the dither, a
loop begins at the cap of its model (9) and not at 0, caps are clamped, a job behind the end of its line gets its
largest cap, and lines end as early as ours. Lines that end at the deadlines, as printed, are missed by noise: the
scenario's `lines` has both. Gains are those of the appendix, with which the paper was measured (ch. 9), for the model
of each job; the paper's repository has one model per application.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from punctual.control.follow import Line
from punctual.control.governor import Sample, Wish
from punctual.control.model import Model
from punctual.control.pi import PI, Gains
from punctual.control.tuning import tune
from punctual.control.utilization import Remaining, choose, refusal
from punctual.sim.plants.admitted import Admitted, line_of, remaining_of
from punctual.sim.plants.identification import fit
from punctual.sim.plants.scenario import PlantJob, Scenario

ALPHA: Final = 0.85
"""The middle of the published 0.8 to 0.9."""
OVERSHOOT: Final = 0.2
LEAST_R2: Final = 0.7
SAMPLES: Final = 30
"""Periods of a regression, and from one to the next."""
DITHERED: Final = 5
"""Periods from one dither to the next."""
DITHER: Final = 0.05
"""Cores."""
SWITCHED: Final = 180.0
"""Seconds from one switch of a loop to the next: "once every few minutes"."""
SOONEST: Final = 0.1
"""Periods before the line's end from which on the reference stays: at the end, (13) divides by nothing."""
LARGEST: Final = 1.0 / 8.0
"""Part of the capacity that one switch moves at most."""


@dataclass(slots=True)
class Loop:
    """PI (15) on reference less filtered measurement (16), in cores. ``model`` None: there is none yet."""

    line: Line
    low: float
    high: float
    period: float
    model: Model | None
    random: random.Random
    opened: bool = False
    _pi: PI = field(init=False)
    _filtered: float = 0.0
    _progress: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _caps: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _ticks: int = 0
    _dither: float = 0.0
    """Cores that are added to the cap of this period."""

    def __post_init__(self) -> None:
        """Begin at the cap of the model, with nothing measured."""
        self.rest()

    @property
    def reference(self) -> float:
        """Units per period on the line (13). After the line's end the same as just before it: (13) has none there."""
        return max(0.0, self.line.units) / max(self.line.seconds / self.period, SOONEST)

    @property
    def modelled(self) -> float:
        """Cores of the model (9): the open loop."""
        wanted = self.high if self.model is None else self.reference / self.model.gain
        return min(max(wanted, self.low), self.high)

    def rest(self) -> None:
        """Begin again after the job was suspended."""
        self._filtered = self.reference
        self._pi = PI(self._gains(), output=self.modelled, low=self.low, high=self.high)
        self._progress.clear()
        self._caps.clear()

    def observe(self, seen: Sample) -> None:
        """Compare the filtered progress with the line, and learn the model anew where there are enough samples."""
        self._ticks += 1
        self._dither = self.random.choice((-DITHER, DITHER)) if self._ticks % DITHERED == 0 else 0.0
        self.line.advance(seen.units, seen.dt)
        self._progress.append(seen.units)
        self._caps.append(seen.cap)
        if self._ticks % SAMPLES == 0 and len(self._caps) == SAMPLES:
            self._learn()
        if self.model is not None:
            if self.opened or self.line.seconds <= 0.0:
                self._pi.output, self._pi.before = self.modelled, None
            else:
                self._pi.step(self.reference - self._filtered)
        self._filtered = ALPHA * self._filtered + (1.0 - ALPHA) * seen.units

    def wish(self) -> Wish:
        """Return the cap that the loop asks for, with a dither in fixed cycles."""
        if self.line.seconds <= 0.0:
            return Wish(self.high, "late")
        cap = self.modelled if self.opened else self._pi.output
        return Wish(min(max(cap + self._dither, self.low), self.high), "open" if self.opened else "line")

    def _learn(self) -> None:
        """Accept the model of the last samples by C4 to C6; a of C5 as rounded for the search of the gains."""
        try:
            # Each cap acts on the progress of its own period: input k stands before output k + 1.
            found = fit(list(self._progress), [*self._caps, 0.0][1:])
        except ValueError:
            return
        if found.r2 < LEAST_R2 or round(found.a[0], 2) >= 1.0 or found.b[0] <= 0.0:
            return
        self.model = found
        self._pi = PI(self._gains(), output=self._pi.output, low=self.low, high=self.high)

    def _gains(self) -> Gains:
        if self.model is None:
            return Gains(0.0, 0.0)
        # The filter (16) is a period later than the one of the tuner: the same loop as one more period of delay.
        found = _searched(max(0.0, round(self.model.a[0], 2)), self.model.delay + 1)
        return Gains(found.kp / self.model.gain, found.ki / self.model.gain)


@cache
def _searched(a: float, delay: int) -> Gains:
    """Return the gains of the appendix's search for a process with a gain of 1."""
    return tune(Model.first_order(a, 1.0 - a, delay=delay), alpha=ALPHA, overshoot=OVERSHOOT).gains


@dataclass(slots=True)
class Published:
    """Admission C1, memory by C2 and C3, a loop per job, loop switching."""

    scenario: Scenario
    seed: int = 0
    _now: float = 0.0
    _switched: float = -SWITCHED

    def admit(self, now: float, job: PlantJob, there: Sequence[Admitted]) -> Admitted | None:
        """Accept a job if the bound allows (C1)."""
        line, period = line_of(job, self.scenario), self.scenario.period
        believed = None if job.model is None else Model.first_order(job.model.a, job.model.b, delay=job.model.delay)
        loop = Loop(line, *job.cap, period, believed, random.Random(f"{self.seed}/dither/{job.id}"))  # noqa: S311
        made = Admitted(job, now, line, period, loop)
        asked, rest = replace(self._remaining(made), seconds=job.deadline), [self._remaining(one) for one in there]
        if refusal(asked, rest, cores=self.scenario.cores, headroom=self.scenario.headroom):
            return None
        return made

    def share(self, there: Sequence[Admitted]) -> dict[str, float]:
        """Return what the loops in memory ask for; a run scales what is too much."""
        left = [self._remaining(one) for one in there]
        chosen = choose(left, [one.running for one in there], self.scenario.slots, order="need")
        self._now += self.scenario.period
        for at in chosen:
            if not there[at].running:
                loop_of(there[at]).rest()
        self._switch([(left[at].fraction, there[at].job.io > 0.0, loop_of(there[at])) for at in chosen])
        return {there[at].job.id: loop_of(there[at]).wish().cap for at in chosen}

    def observe(self, one: Admitted, seen: Sample) -> None:
        """Have the loop follow."""
        if one.running:
            loop_of(one).observe(seen)
        else:
            one.line.advance(0.0, seen.dt)

    def _switch(self, loops: Sequence[tuple[float, bool, Loop]]) -> None:
        """Open a loop if the caps add up to more than the bound; close one if there is room (ch. 7.2)."""
        if self._now - self._switched < SWITCHED:
            return
        most = LARGEST * self.scenario.cores
        by_priority = sorted(loops, key=lambda one: (not one[1], one[0]))
        asked = sum(loop.wish().cap for _, _, loop in loops)
        if asked > self.scenario.usable:
            # The lowest priority goes first, and those that wait for a disk before all others.
            closed = [loop for _, _, loop in by_priority if not loop.opened and loop.model is not None]
            for loop in closed:
                if 0.0 < loop.wish().cap - loop.modelled <= most:
                    loop.opened, self._switched = True, self._now
                    return
        else:
            for loop in (loop for _, _, loop in reversed(by_priority) if loop.opened):
                loop.opened, self._switched = False, self._now
                return

    def _remaining(self, one: Admitted) -> Remaining:
        model = loop_of(one).model
        return remaining_of(one, one.measured if model is None else model.gain, self.scenario)


def loop_of(one: Admitted) -> Loop:
    """Return a job's loop."""
    assert isinstance(one.governor, Loop)
    return one.governor
