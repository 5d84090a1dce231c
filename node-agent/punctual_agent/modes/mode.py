"""What all modes have in common: the agent asks the mode of each pod what the pod is to have."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from punctual_agent.cgroup import Cap, Weight

if TYPE_CHECKING:
    from punctual.wire import SetPoint


class Moment(NamedTuple):
    """A time, and what the agent knows then of its operator."""

    now: float
    """Seconds of CLOCK_MONOTONIC."""
    answered: bool
    """The operator has answered lately."""
    begun: bool
    """The agent has run for a lease, so an operator that is there has answered."""


class Told(NamedTuple):
    """A set point, and what the agent knows of its pod."""

    point: "SetPoint"
    now: float
    before: "Mode | None"
    """The mode that the pod had."""
    there: Cap | None
    """The cap with which the pod has shown progress. None: it has shown none, or has no cap."""


class Mode:
    """The mode of one pod. Its values are frozen: whatever changes makes a new one."""

    # no ABC, which makes isinstance slow: mypy finds what a subclass lacks without it

    __slots__ = ()
    kind: ClassVar[str]
    lowest: ClassVar[bool] = False
    """Its pod has the lowest CPU priority."""
    own: ClassVar[bool] = False
    """Its pod is a user's own: what it counts begins at 0 again when its container starts again."""

    @classmethod
    @abstractmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode that a set point orders."""

    @classmethod
    @abstractmethod
    def loaded(cls, raw: Mapping[str, Any]) -> Self:
        """Return the mode that was saved. Raises KeyError, TypeError or ValueError if it makes no sense."""

    @property
    @abstractmethod
    def saved(self) -> "Mode":
        """What outlives the agent. It is saved before anything is written to the pod's cgroup."""

    @property
    @abstractmethod
    def rest(self) -> Cap | None:
        """The cap that the pod gets when the agent is gone. None: it keeps the one in force."""

    @abstractmethod
    def wanted(self, moment: Moment) -> Cap | Mapping[str, Cap] | None:
        """Return what the pod is to have: one cap, or one for each of its folders. None: it is left as it is."""

    def differs(self, there: Cap | None, moment: Moment) -> bool:
        """Return whether the pod is to have another cap than the one in force."""
        wanted = self.wanted(moment)
        return wanted is not None and wanted != there

    @property
    def weighed(self) -> bool:
        """Whether the agent reads the weight of the pod's folder, and writes it."""
        return False

    @property
    def weight(self) -> int | None:
        """The weight that the pod's folder is to have. None: it is left as it is."""
        return None

    def seen(self, _caps: Mapping[str, Cap], _weight: Weight | None = None) -> tuple[Self, int]:
        """Take a look at the pod's folders, before it is saved and before each write.

        Returns the mode after it, and the number of folders in which another program replaced a cap or a weight of
        ours.
        """
        return self, 0

    def wrote(self, _caps: Mapping[str, Cap], _weight: Weight | None = None) -> Self:
        """Take what folders have after a write."""
        return self

    def unnamed(self) -> Self:
        """Take an answer that is complete for users' own pods and does not name this one."""
        return self

    @property
    def released(self) -> bool:
        """Whether the pod needs this mode no longer."""
        return False
