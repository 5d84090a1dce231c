"""A pod that is kept on its line: each second, :mod:`punctual_agent.steering` chooses its cap."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from punctual_agent.cgroup import Cap
from punctual_agent.modes.hold import HoldMode
from punctual_agent.modes.mode import Moment, Told

DEAD = 0.01
"""Part of a cap by which it must change to be written: smaller changes are lost in the kernel's own accounting."""
EXACT = 1e-6
"""Cores by which caps may differ and be the same."""


@dataclass(frozen=True, slots=True)
class LineMode(HoldMode):
    """A line goes on until its end, also while the operator is away.

    After that, only the operator can say what the pod should have.
    """

    kind: ClassVar[str] = "Line"
    ends: float = 0.0
    """The time of the line's end."""
    steered: float | None = None
    """Cap that keeps the pod on its line, cores. None: none was chosen yet."""

    @classmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode of a set point. The cap stays until another one is chosen."""
        point, order = told.point, told.point.mode
        assert order.kind == "Line"
        steered = told.before.steered if isinstance(told.before, LineMode) else None
        if steered is None and told.there is not None:  # an agent before this one has chosen it
            steered = min(told.there.share, order.pool_cores)
        return cls(point.rest_cap, point.period, point.cap, told.now + order.seconds_left, steered)

    def at(self, cores: float) -> Self:
        """Return the mode with another cap that was chosen for it, unless that differs too little."""
        # its whole processor is written exactly, however small the step to it is
        whole = self.cores is not None and abs(cores - self.cores) < EXACT
        if whole or self.steered is None or abs(cores - self.steered) > DEAD * self.steered:
            return replace(self, steered=cores)
        return self

    def wanted(self, moment: Moment) -> Cap | None:
        """Return the cap that was chosen for it, or what it holds without a line."""
        if self.steered is not None and (moment.answered or moment.now <= self.ends):
            return Cap.of(self.steered, self.period)
        return HoldMode.wanted(self, moment)
