"""Episodes: the intervals in which a node is busy with its own work (Ryu 2001, 3.1 and 3.3).

A node is busy as soon as its hosts use more than `BUSY` of it. It counts as idle again once it was quiet for a while
(the recruitment threshold). So an episode ends with quiet time.
"""

from dataclasses import dataclass, field
from typing import Final

BUSY: Final = 0.1
"""CPU use by hosts from which on a node is busy, fraction of the node."""
QUIET: Final = 60.0
"""Seconds for which a node must be quiet to count as idle again."""


@dataclass(slots=True)
class Interval:
    """The present interval of a node, busy or idle."""

    busy: bool = False
    age: float = 0.0
    """Seconds since it began."""
    used: float = 0.0
    """CPU seconds that hosts have used in it, per core."""

    @property
    def use(self) -> float:
        """Mean use by hosts in this interval; 0 before there was any time."""
        return self.used / self.age if self.age > 0.0 else 0.0

    def pass_by(self, seconds: float, use: float, *, busy: bool) -> None:
        """Take in the next ``seconds``, with the use by hosts in them. A change of ``busy`` begins a new interval."""
        if busy != self.busy:
            self.busy, self.age, self.used = busy, 0.0, 0.0
        self.age += seconds
        self.used += seconds * use


@dataclass(slots=True)
class Watch:
    """Tells busy from idle by the use of the CPU alone."""

    now: Interval = field(default_factory=Interval)
    quiet: float = QUIET
    """Seconds since hosts used more than `BUSY`."""

    def see(self, seconds: float, use: float) -> None:
        """Take in what hosts used in the last ``seconds``."""
        self.quiet = 0.0 if use >= BUSY else self.quiet + seconds
        self.now.pass_by(seconds, use, busy=self.quiet < QUIET)
