"""A pod that may only use what the node's own work leaves: :mod:`punctual_agent.node_guests` divides it.

It goes on while the operator is away. While the agent is gone, the pod has its floor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from punctual_agent.cgroup import Cap
from punctual_agent.modes.mode import Mode, Moment, Told


@dataclass(frozen=True, slots=True)
class GuestMode(Mode):
    """Caps in cores, and a CFS period in seconds."""

    kind: ClassVar[str] = "Guest"
    lowest: ClassVar[bool] = True
    floor: float
    period: float
    weight: int
    """Among guests. 0: it is paused."""
    cores: float = 0.0
    """Its part of what hosts leave."""

    @classmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode of a set point. It keeps the part that it has."""
        point, order = told.point, told.point.mode
        assert order.kind == "Guest"
        cores = told.before.cores if isinstance(told.before, GuestMode) else 0.0
        return cls(point.rest_cap, point.period, 0 if order.paused else order.weight, cores)

    @classmethod
    def loaded(cls, raw: Mapping[str, Any]) -> Self:
        """Return a mode that was saved."""
        return cls(float(raw["floor"]), float(raw["period"]), int(raw["weight"]))

    @property
    def saved(self) -> Mode:
        """All but its part, which is measured again."""
        return GuestMode(self.floor, self.period, self.weight)

    @property
    def rest(self) -> Cap | None:
        """Its floor."""
        return Cap.of(self.floor, self.period)

    def at(self, cores: float) -> Self:
        """Return the mode with another part."""
        return self if cores == self.cores else replace(self, cores=cores)

    def wanted(self, _moment: Moment) -> Cap | None:
        """Return its part, or its floor if that is more."""
        return Cap.of(max(self.floor, self.cores), self.period)
