"""A governor steers one pod: each period it takes what was measured and says which cap it wishes.

Governors know no file and no clock; the agent and the simulator drive the same objects. They need the standard library
only.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Sample(NamedTuple):
    """What happened in a period."""

    dt: float
    """Seconds."""
    units: float
    """Units done."""
    cores: float
    """CPU used, as a mean over the time: cores."""
    cap: float
    """CPU cap that was in force, cores."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The CPU that a pod needs now."""

    cap: float
    """Cores."""
    reason: str
    """One word for people."""


class Governor(Protocol):
    """Steers one pod."""

    def observe(self, seen: Sample) -> None:
        """Take the sample of a period."""

    def wish(self) -> Wish:
        """Return the cap wished for the next period."""


@dataclass(slots=True)
class Hold:
    """Wishes the cap that it was told: every pod's safe state."""

    cap: float

    def observe(self, seen: Sample) -> None:
        """Ignore what happens."""

    def wish(self) -> Wish:
        """Return the cap."""
        return Wish(self.cap, "told")
