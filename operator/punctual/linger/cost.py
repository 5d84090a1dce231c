"""Cost and benefit of moving a guest away from a busy node (Ryu 2001, 3.3).

Speeds are the work that a guest does in a second: on a node that is used by hosts to a fraction u, speed · (1 − u). The
episode, the time for which the node stays busy, is expected to last for as long again as it has lasted: the median
remaining life of an episode is its age.
"""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Move:
    """A move that a guest could make."""

    stay: float
    """Its speed where it is, while the episode lasts."""
    go: float
    """Its speed where it would go."""
    pause: float
    """Seconds for which it does nothing."""
    lost: float = 0.0
    """Work that it would do again: what it has not saved."""
    left: float = inf
    """Work that it still has to do."""

    @property
    def cost(self) -> float:
        """Seconds that the move takes from the guest: the pause, and doing the lost work again."""
        return self.pause + (self.lost / self.go if self.lost > 0.0 else 0.0)

    @property
    def linger(self) -> float:
        """Age of the episode from which on the move pays, seconds (3.4). Infinite: staying is never slower."""
        if self.go <= self.stay:
            return inf
        return self.go / (self.go - self.stay) * self.cost

    @property
    def least(self) -> float:
        """Work left above which the move pays if the episode never ends. A guest with less is done sooner here."""
        if self.go <= self.stay:
            return inf
        return self.cost * self.go * self.stay / (self.go - self.stay)

    def pays(self, age: float) -> bool:
        """Return whether the guest should move when the episode is ``age`` seconds old."""
        return age >= self.linger and self.left > self.least

    def gain(self, rest: float) -> float:
        """Return the seconds that the guest gains if the episode lasts for ``rest`` more seconds (after 3.2)."""
        return rest * (self.go - self.stay) / self.go - self.cost
