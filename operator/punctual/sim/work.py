"""Work of one chunk: units that a processor computes, at a rate that may change while it runs.

The only model of computation: the simulator's cluster and the tests' world both use it.
"""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Work:
    """A number of units, computed from ``begins`` (s) on."""

    size: int
    """Units."""
    chi: float
    """Seconds per unit at rate 1."""
    begins: float
    """When the first unit begins: after transfer and start-up."""
    rate: float = 1.0
    """Speed relative to a whole processor at its nominal speed; 0: the work stands still."""
    _computed: float = 0.0
    """Units computed when the rate last changed."""
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no unit computed."""
        self._since = self.begins

    def done(self, now: float) -> int:
        """Return the whole units that are computed by ``now``."""
        return max(0, min(self.size, int(self._computed + (now - self._since) * self.rate / self.chi + 1e-9)))

    @property
    def ends(self) -> float:
        """Return when the last unit will be computed at this rate."""
        if self.rate == 0.0:
            return math.inf if self._computed < self.size else self._since
        return self._since + (self.size - self._computed) * self.chi / self.rate

    def set_rate(self, now: float, rate: float) -> None:
        """Change the rate from ``now`` on."""
        if now > self._since:
            self._computed = min(self.size, self._computed + (now - self._since) * self.rate / self.chi)
            self._since = now
        self.rate = rate

    def shift(self, seconds: float) -> None:
        """Move all times, because the clock was set."""
        self.begins += seconds
        self._since += seconds
