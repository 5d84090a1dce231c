"""The phase of a cgroup's CFS period timer: `PhaseControl` finds when its periods begin, and moves them onto a grid.

The kernel refills a capped cgroup's quota each time that its period timer fires. It starts each timer at a random time
(Linux 6.4: "Add a random offset so that timers interleave"), and then the timer keeps its phase, also while the cgroup
is idle. Two files are enough to find and to move it. ``nr_periods`` of cpu.stat rises when the timer fires. The timer
takes the length of its next period from the file when it fires, so a period of P + d for one turn moves all later
firings by d. Quota and period change together, so the share of the CPU does not.

All is pure: `PhaseControl.step` is told the time and returns what is to be done, and readings come in as values. Times
are those of CLOCK_MONOTONIC, which is also the timer's clock: there is no drift between them. The agent uses this
module, so it needs the standard library only.
"""

from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Final, NamedTuple

LEAST_QUOTA: Final = 0.001
"""The kernel's least quota, and its least period, s."""
LONGEST: Final = 1.0
"""The kernel's longest period, s."""
TOLERANCE: Final = 0.0005
"""A phase is on its grid if it is off by no more than this or the bound of the clock, s."""
FINE: Final = 0.0001
"""A search ends once it knows the phase to this, s ..."""
TURNS: Final = 12
"""... or after so many periods: where the readings are late, it cannot know better."""
READS: Final = 10
"""Readings of one period of a search: each period makes the interval so much narrower."""
MARGIN: Final = 0.0002
"""Seconds by which a search and a look read beyond the interval that is known: the timer may fire a little late."""
STANDSTILL: Final = 3
"""Periods without a firing after which the timer is idle. One that fires in each second period only is not: the kernel
doubles a period that is too short for it."""
LOOK: Final = 10.0
"""Seconds from one look to the next ..."""
AGAIN: Final = 1.0
"""... and to the one that confirms a bad look."""
BAD: Final = 2
"""Bad looks in a row before a move."""
PAUSE: Final = 5.0
"""Seconds between two moves at least ..."""
FAILURES: Final = 3
"""... of which so many in a row may fail ..."""
OFF: Final = 600.0
"""... before so long a pause, s."""
LATE: Final = 0.9
"""Part of a period behind which a write comes too late: it might not be in force when the timer fires."""


class Grid(NamedTuple):
    """When the periods of a cgroup are to begin: at ``begins`` and whole periods before and after it.

    ``begins`` None: its phase is found, and not moved. ``cores``: quota/period, which a move must keep.
    """

    begins: float | None
    period: float
    cores: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of ``nr_periods``, and the time immediately before and after it."""

    before: float
    after: float
    count: int


class Phase(NamedTuple):
    """The timer fires at ``at`` ± ``half`` and whole periods later; it was last seen to do so at ``seen``."""

    at: float
    half: float
    seen: float

    def firing(self, period: float, after: float) -> float:
        """Return the first time after ``after`` at which the timer fires."""
        return self.at + (floor((after - self.at) / period) + 1) * period


@dataclass(frozen=True, slots=True)
class Read:
    """Read ``nr_periods`` at once, and step again with the reading."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the cap with this period at once, with its share of the CPU unchanged, and step again."""

    period: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Step again at ``until``. An earlier step does no harm."""

    until: float


Step = Read | Write | Wait


def wrap(difference: float, period: float) -> float:
    """Return a difference of phases as a number in (−period/2, period/2]."""
    return difference - ceil(difference / period - 0.5) * period


def change(error: float, period: float, cores: float) -> float | None:
    """Return by how much one period must be longer to take away a phase error; None: the kernel allows no such period.

    The shorter way around, unless its period or its quota is not in the kernel's limits.
    """
    d = wrap(-error, period)
    least = LEAST_QUOTA * max(1.0, 1.0 / cores)
    ways = [way for way in (d, d - period, d + period) if least <= period + way <= LONGEST]
    return min(ways, key=abs, default=None)


@dataclass(slots=True)
class Search:
    """Finds the phase: reads evenly over a period, then over the interval in which the timer fired, and so on."""

    period: float
    low: float
    high: float
    known: bool
    """The timer fires between ``low`` and ``high`` and whole periods later. False: that is where it looks."""
    next: float
    """When the next reading is due."""
    lead: float = MARGIN
    """By how much a turn, which is the readings of one period, begins before ``low``: its readings come late."""
    last: Reading | None = None
    opening: bool = True
    """The next reading is the first of its turn."""
    seen: float | None = None
    """When the timer was seen to fire."""
    turns: int = 0
    still: int = 0
    """Turns in a row without a firing."""

    @classmethod
    def begin(cls, now: float, period: float, phase: Phase | None) -> "Search":
        """Return a search, which goes on from what is known."""
        if phase is None:
            return cls(period, now + MARGIN, now + MARGIN + period, known=False, next=now)
        low = phase.firing(period, now + phase.half + MARGIN) - phase.half
        return cls(period, low, low + 2 * phase.half, known=True, next=low - MARGIN)

    @property
    def stands(self) -> bool:
        """The timer is idle."""
        return self.still >= STANDSTILL

    @property
    def ended(self) -> bool:
        """The phase is known as well as it can be, or the timer is idle."""
        fine = self.known and self.seen is not None and self.high - self.low <= 2 * FINE
        return fine or self.stands or self.turns >= TURNS

    @property
    def phase(self) -> Phase | None:
        """What was found. None: the timer is idle, or no reading came in time."""
        if self.stands or self.seen is None or not self.known:
            return None
        return Phase((self.low + self.high) / 2, (self.high - self.low) / 2, self.seen)

    def step(self, now: float) -> Step:
        """Return what to do."""
        return Read() if now >= self.next else Wait(self.next)

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        last, self.last = self.last, reading
        opening, self.opening = self.opening, False
        self.lead = min(max(self.lead, reading.after - self.next + MARGIN), self.period / 4)
        fired = last is not None and reading.count > last.count
        if opening and fired and self.still:  # elsewhere, between two turns
            self._anew(reading)
        elif opening and reading.after > self.low:  # it may have fired already
            self._turn(reading)
        elif fired and not opening and last is not None:
            self._narrow(last, reading)
        elif reading.before >= self.high + MARGIN:
            self.still += 1
            self._turn(reading)
            if not self.known:
                self._anew(reading)
        else:
            spacing = (self.high - self.low + 2 * MARGIN) / READS
            passed = floor((reading.after - self.next) / spacing)
            self.next = min(self.next + (passed + 1) * spacing, self.high + MARGIN)

    def _narrow(self, last: Reading, reading: Reading) -> None:
        """Note that the timer has fired between two readings."""
        low, high = last.before, reading.after
        self.still = 0
        if reading.count - last.count == 1 and high - low < self.period:
            if self.known and max(low, self.low) < min(high, self.high):
                low, high = max(low, self.low), min(high, self.high)
            self.low, self.high, self.known, self.seen = low, high, True, high
        self._turn(reading)

    def _turn(self, reading: Reading) -> None:
        """Go on with the next period that begins late enough."""
        turns = max(ceil((reading.after + self.lead - self.low) / self.period), 0)
        self.low, self.high = self.low + turns * self.period, self.high + turns * self.period
        self.turns, self.opening, self.next = self.turns + 1, True, self.low - self.lead

    def _anew(self, reading: Reading) -> None:
        """Look over a whole period from a reading on."""
        self.low, self.high, self.known = reading.after, reading.after + self.period, False
        self.opening, self.next = False, reading.after


@dataclass(slots=True)
class Look:
    """Looks whether the timer still fires when it should: once between two readings ``margin`` before and after it.

    A third reading, shortly before the timer should fire again, tells a timer that fires at another time from an idle
    one.
    """

    period: float
    firing: float
    half: float
    margin: float
    readings: list[Reading] = field(default_factory=list)
    seen: bool = False
    elsewhere: bool = False
    idle: bool = False
    late: bool = False
    """A reading came so late that the look tells nothing."""

    @property
    def ended(self) -> bool:
        """It has shown what it can."""
        return self.seen or self.elsewhere or self.idle or self.late

    def step(self, now: float) -> Step:
        """Return what to do."""
        ends = (self.firing - self.margin, self.firing + self.margin, self.firing + self.period - self.margin)
        at = ends[len(self.readings)]
        return Read() if now >= at else Wait(at)

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        self.readings.append(reading)
        count = len(self.readings)
        latest = (-self.half, self.period / 4, self.period - self.half)[count - 1]
        risen = 0 if count == 1 else reading.count - self.readings[-2].count
        if reading.after > self.firing + latest:
            self.late = True
        elif count == 2:
            self.seen, self.late = risen == 1, risen > 1
        elif count == 3:
            self.elsewhere, self.idle = risen > 0, risen == 0


@dataclass(slots=True)
class Move:
    """Moves the phase: P + d is written half a period after a firing, and P half a period after the next one.

    Readings show that the timer fires once from one to the next. If it does not, nothing is learned of the kernel.
    """

    period: float
    d: float
    firing: float
    """When the period begins in which P + d is written."""
    readings: list[Reading] = field(default_factory=list)
    writing: bool = False
    """P + d is to be in force."""
    sure: bool = True
    """The timer ran, and the writes came in time."""

    @property
    def ended(self) -> bool:
        """P is to be in force again, or still."""
        return len(self.readings) > 1 and not self.writing

    def step(self, now: float) -> Step:
        """Return what to do."""
        at = self._at(len(self.readings))
        return Read() if now >= at else Wait(at)

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        self.readings.append(reading)
        count = len(self.readings)
        if count > 1:
            once = reading.count - self.readings[-2].count == 1
            length = self.period if count == 2 else self.period + self.d
            self.sure = self.sure and once and reading.after < self._at(count - 1) + (LATE - 0.5) * length
            self.writing = count == 2 and self.sure

    def _at(self, number: int) -> float:
        """Return when a reading is due."""
        return self.firing + (number - 0.5) * self.period + (self.d / 2 if number == 2 else 0.0)


@dataclass(slots=True)
class PhaseControl:
    """The phase of one cgroup.

    After `aim`, and whenever an earlier `step` asked for it, the agent steps on. Until `phase` is known, it searches.
    Then it looks each LOOK seconds. A look is bad if the timer does not fire when it should, or if that is off the grid
    by more than the tolerance. Two bad looks in a row lead to a move, after which it searches again. The pair with the
    period `period` is in force: P + d during a move. If the agent dies then, the cgroup keeps its share, and the next
    agent writes P and searches.
    """

    grid: Grid
    tolerance: float = TOLERANCE
    phase: Phase | None = field(init=False, default=None)
    """None: not known, as during a search or a move."""
    moves: int = field(init=False, default=0)
    failed: int = field(init=False, default=0)
    """Moves in a row after which the phase was not where it should be. FAILURES: no move for OFF seconds.

    A new grid or pair starts anew. PAUSE holds all the same."""
    asked: float | None = field(init=False, default=None)
    """The last ``begins`` of a grid that had one."""
    period: float = field(init=False)
    """The period that is to be in force."""
    stage: Search | Look | Move | None = field(init=False, default=None)
    """None: it waits for the next look or search."""
    bad: int = field(init=False, default=0)
    since: float = field(init=False, default=-inf)
    """End of the last stage."""
    not_before: float = field(init=False, default=-inf)
    """No move begins earlier: PAUSE ..."""
    rests: float = field(init=False, default=-inf)
    """... and OFF."""
    expected: Phase | None = field(init=False, default=None)
    """Where the last move should have led."""
    late: bool = field(init=False, default=False)
    """The readings of the last look came too late."""
    count: int = field(init=False, default=0)
    """The last reading."""

    def __post_init__(self) -> None:
        self.period = self.grid.period
        self.asked = self.grid.begins

    @property
    def error(self) -> float | None:
        """Seconds by which the periods begin later than the grid asks. None: not known, or nothing is asked."""
        if self.phase is None or self.grid.begins is None:
            return None
        return wrap(self.phase.at - self.grid.begins, self.grid.period)

    @property
    def on_grid(self) -> bool:
        """Whether it is on the grid as far as is known. What is known to FINE is then surely within the tolerance."""
        if self.error is None or self.phase is None:
            return True
        return abs(self.error) <= max(self.tolerance - FINE, self.phase.half)

    @property
    def searching(self) -> bool:
        """Whether a search is under way: it costs some forty readings within a few periods."""
        return isinstance(self.stage, Search)

    def aim(self, grid: Grid, bound: float = 0.0) -> None:
        """Change the grid, as often as its place on this clock becomes better known. ``bound``: error of the clock."""
        tolerance = max(TOLERANCE, bound)
        if grid.period != self.grid.period:
            self.forget()
        if (grid.period, grid.cores) != (self.grid.period, self.grid.cores) or self._elsewhere(grid, tolerance):
            self.failed, self.rests = 0, -inf
        was_on = self.on_grid
        self.grid, self.tolerance = grid, tolerance
        self.asked = self.asked if grid.begins is None else grid.begins
        if was_on and not self.on_grid:
            self.since = -inf

    def forget(self) -> None:
        """Search again: the pair was changed, here or by another program, or the cgroup is new."""
        self.stage, self.phase, self.expected, self.since = None, None, None, -inf

    def unwritten(self) -> None:
        """Take in that the last write was not done: the right to write is another's, or another pair is in force."""
        if self.period != self.grid.period:
            self.moves, self.period = self.moves - 1, self.grid.period
        self.forget()

    def step(self, now: float, reading: Reading | None = None) -> Step:
        """Return what to do. ``reading``: what the last step asked for. A write counts as done, unless `unwritten`."""
        if reading is not None:
            self._take(now, reading)
        if isinstance(self.stage, Move) and self.stage.writing:
            if self.period == self.grid.period:
                return self._write(now, self.stage)
        elif self.period != self.grid.period:
            self.period = self.grid.period
            return Write(self.period)
        if self.stage is None:
            if now < self._due:
                return Wait(self._due)
            self.stage = self._next(now)
        return self.stage.step(now)

    def _elsewhere(self, grid: Grid, tolerance: float) -> bool:
        """Return whether a grid is another one, and not the same one on a clock that is better known now."""
        if grid.begins is None or self.asked is None:
            return False
        return abs(wrap(grid.begins - self.asked, grid.period)) > self.tolerance + tolerance

    @property
    def _may_move(self) -> float:
        return max(self.not_before, self.rests)

    @property
    def _due(self) -> float:
        """When the next stage begins."""
        if not self.bad:
            return self.since + LOOK
        soon = self.since + (AGAIN if self.bad < BAD else 0.0)
        return soon if self.phase is None else min(max(soon, self._may_move), self.since + LOOK)

    def _next(self, now: float) -> Search | Look | Move:
        """Return the stage that begins."""
        period, phase = self.grid.period, self.phase
        if phase is not None and self.bad >= BAD and not self.on_grid and now >= self._may_move:
            d = change(self.error or 0.0, period, self.grid.cores)
            if d is not None:
                return Move(period, d, phase.firing(period, now + period / 2))
            self.failed, self.rests = FAILURES, now + OFF
        if phase is None or phase.half > FINE or self.late:
            self.late = False
            return Search.begin(now, period, phase)
        margin = min(max(self.tolerance, phase.half + MARGIN), period / 8)
        return Look(period, phase.firing(period, now + margin), phase.half, margin)

    def _write(self, now: float, move: Move) -> Write:
        """Put P + d in force."""
        if self.phase is not None:
            self.expected = self.phase._replace(at=self.phase.at + move.d)
        self.phase, self.bad, self.moves, self.not_before = None, 0, self.moves + 1, now + PAUSE
        self.period = move.period + move.d
        return Write(self.period)

    def _take(self, now: float, reading: Reading) -> None:
        """Process a reading."""
        if reading.count < self.count:  # another cgroup: its timer has another phase
            self.forget()
        self.count = reading.count
        stage = self.stage
        if stage is None:
            return
        stage.take(reading)
        if not stage.ended:
            return
        self.stage, self.since = None, now
        match stage:
            case Search():
                self._searched(now, stage)
            case Look():
                self._looked(stage)
            case Move():
                self._moved(stage)

    def _searched(self, now: float, search: Search) -> None:
        expected, self.expected = self.expected, None
        if search.phase is None:
            if search.stands:
                self.bad = 0
            return
        self.phase = search.phase
        if expected is not None:
            off = abs(wrap(self.phase.at - expected.at, self.grid.period))
            self.failed = self.failed + 1 if off > TOLERANCE + expected.half + self.phase.half else 0
            if self.failed >= FAILURES:
                self.rests = now + OFF
        self._judge()

    def _looked(self, look: Look) -> None:
        if look.seen and self.phase is not None:
            self.phase = self.phase._replace(seen=look.firing)
            self._judge()
        elif look.elsewhere:
            self.bad += 1
            if self.bad >= BAD:
                self.phase = None
        elif look.idle:
            self.bad = 0
        else:  # a search comes to terms with late readings
            self.late, self.since = True, -inf

    def _moved(self, move: Move) -> None:
        """End a move: what it led to is not known before a search."""
        if self.phase is not None:  # nothing was written: the timer is idle, or the reading came too late
            self.bad = 1
            return
        self.since = -inf
        if not move.sure:
            self.expected = None

    def _judge(self) -> None:
        """Count bad looks."""
        self.bad = 0 if self.on_grid else self.bad + 1
