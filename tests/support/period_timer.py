"""A kernel's CFS period timer, and an agent's thread that reads and writes it, on one virtual clock."""

from dataclasses import dataclass, field
from random import Random

from punctual.control.phase import Grid, PhaseControl, Read, Reading, Wait, Write, wrap


@dataclass
class PeriodTimer:
    """The timer of one cgroup: it fires at ``expiry``, and takes its next period from the file when it does.

    ``asleep``: when the program does not run. A timer that saw nothing run in a period stops, and goes on with its
    phase when the program or a write of the cap needs it. ``stuck``: the kernel's timer does not follow the file.
    """

    expiry: float
    period: float
    asleep: list[tuple[float, float]] = field(default_factory=list)
    stuck: bool = False
    count: int = 0
    now: float = 0.0
    active: bool = True
    used: bool = True
    """Quota was given out since it fired last."""

    def run(self, until: float) -> int:
        """Let time pass; return nr_periods."""
        while True:
            wakes = self._wakes()
            if self.active and self.expiry <= min(wakes, until):
                self.now = self.expiry
                self.count += 1
                self.used, idle = self._awake(self.now), not self.used
                self.active = not idle
                self.expiry += self._kept if self.stuck else self.period
            elif wakes <= until:
                self.now, self.used = wakes, True
                self._start()
            else:
                self.now = until
                self.used = self.used or self._awake(until)
                return self.count

    def write(self, period: float) -> None:
        """Write the cap with a period: it is refilled, and its timer runs."""
        self.period = period
        self._start()

    def error(self, grid: Grid) -> float:
        """Return by how much it fires later than a grid asks."""
        return wrap(self.expiry - grid.begins, grid.period)

    def __post_init__(self) -> None:
        self._kept = self.period

    def _start(self) -> None:
        if not self.active:
            self.active = True
            while self.expiry <= self.now:
                self.expiry += self.period

    def _awake(self, at: float) -> bool:
        return not any(begin < at <= end for begin, end in self.asleep)

    def _wakes(self) -> float:
        return min((end for _, end in self.asleep if end > self.now), default=float("inf"))


@dataclass
class Agent:
    """The thread: wakes up to ``late`` seconds late, and a read takes up to ``slow``. ``writes``: (when, period)."""

    timer: PeriodTimer
    control: PhaseControl
    late: float = 0.0002
    slow: float = 0.00005
    seed: int = 0
    now: float = 0.0
    writes: list[tuple[float, float]] = field(default_factory=list)
    refuses: bool = False
    """It has no right to write."""
    refused: list[float] = field(default_factory=list)
    reads: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def run(self, until: float) -> None:
        """Do what the control asks for until a time."""
        reading = None
        while True:
            bad = self.control.bad
            match self.control.step(self.now, reading):
                case Wait(until=then) if then >= until:
                    self.timer.run(until)
                    self.now = until
                    return
                case Wait(until=then):
                    assert then > self.now
                    self.now = then + self.random.random() * self.late
                    reading = None
                case Read():
                    reading = self._read()
                case Write() if self.refuses:
                    self.refused.append(self.now)
                    self.control.unwritten()
                    self.now += 0.05
                    reading = None
                case Write(period=period):
                    assert period == self.control.grid.period or bad >= 2, "a move needs two bad looks"
                    self.now += self.random.random() * self.slow
                    self.timer.run(self.now)
                    self.timer.write(period)
                    self.writes.append((self.now, period))
                    reading = None

    def _read(self) -> Reading:
        begin = self.now
        at = begin + self.random.random() * self.slow
        self.now = at + self.random.random() * self.slow
        self.reads += 1
        return Reading(begin, self.now, self.timer.run(at))

    @property
    def moves(self) -> list[float]:
        """When it wrote another period than the grid's."""
        return [at for at, period in self.writes if period != self.control.grid.period]

    @property
    def error(self) -> float:
        """By how much the timer fires later than the grid asks."""
        return self.timer.error(self.control.grid)
