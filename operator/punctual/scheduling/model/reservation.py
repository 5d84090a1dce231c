"""A reservation as it is asked for; :mod:`punctual.scheduling.admission.reservation_test` decides on it."""

from dataclasses import dataclass, replace
from math import inf, nextafter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """R(Ra, Rs, n, Re, IOratio): so many processors over [start, end), seconds on the caller's clock."""

    uid: str
    arrival: float
    start: float
    end: float
    processors: int
    """0: all that ``nodes`` have."""
    nodes: frozenset[str] | None = None
    """Of these nodes only; None: of any."""
    group: str = ""
    """What jobs name that are to run inside it: the windows of one recurrence have one in common."""
    io_ratio: float = 0.0
    """The first part of the window in which its input is sent: over one port nobody else's is, meanwhile."""

    def __post_init__(self) -> None:
        some = self.processors >= 1 or (self.processors == 0 and self.nodes is not None)
        if not (-inf < self.start < self.end < inf and some and 0.0 <= self.io_ratio <= 1.0):
            raise ValueError(f"a window, processors and a part of it are needed, not {self}")

    @property
    def sent(self) -> float:
        """When its input has been sent (Rio)."""
        return self.start + (self.end - self.start) * self.io_ratio

    @property
    def sends(self) -> bool:
        """Whether it has any input to send."""
        return self.sent > self.start

    def at(self, start: float) -> "Reservation":
        """Return the same with another start."""
        return replace(self, start=start, end=max(start + (self.end - self.start), nextafter(start, inf)))
