"""A pod that holds its cap while the operator answers, and its rest cap otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from punctual_agent.cgroup import Cap
from punctual_agent.modes.mode import Mode, Moment, Told


@dataclass(frozen=True, slots=True)
class HoldMode(Mode):
    """Caps in cores, and a CFS period in seconds."""

    kind: ClassVar[str] = "Hold"
    rest_cores: float
    """With this cap, a chunk finishes in time without control."""
    period: float
    cores: float | None = None
    """Cap of the last set point. None: no set point has come since the agent started."""

    @classmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode of a set point."""
        return cls(told.point.rest_cap, told.point.period, told.point.cap)

    @classmethod
    def loaded(cls, raw: Mapping[str, Any]) -> Self:
        """Return a mode that was saved."""
        return cls(float(raw["rest_cores"]), float(raw["period"]))

    @property
    def saved(self) -> Mode:
        """Its rest cap: an agent that starts again may be obeying an old leader otherwise."""
        return HoldMode(self.rest_cores, self.period)

    @property
    def rest(self) -> Cap | None:
        """Its rest cap."""
        return Cap.of(self.rest_cores, self.period)

    def wanted(self, moment: Moment) -> Cap | None:
        """Return its cap, or its rest cap."""
        if self.cores is None:
            return self.rest if moment.begun else None  # the rest cap would be a bump for a pod on a line
        return Cap.of(self.cores, self.period) if moment.answered else self.rest
