"""Reservation as specified; :mod:`punctual.scheduling.admission.reservation_test` decides on it."""

from dataclasses import dataclass, replace
from math import inf, nextafter


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """R(Ra, Rs, n, Re, IOratio): a number of processors over [start, end), seconds on the caller's clock."""

    uid: str
    namespace: str = ""
    arrival: float
    start: float
    end: float
    processors: int
    """0: all that ``nodes`` have."""
    nodes: frozenset[str] | None = None
    """The only nodes allowed; None: any node."""
    group: str = ""
    """Name for jobs that run inside it: the windows of one recurrence share it."""
    io_ratio: float = 0.0
    """First part of the window in which its input is sent: it then has the port to itself."""

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
        """Return the same reservation with another start."""
        return replace(self, start=start, end=max(start + (self.end - self.start), nextafter(start, inf)))
