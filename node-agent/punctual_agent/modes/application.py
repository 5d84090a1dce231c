"""An application that is held at a rate: the cap of its pod, and the limits that its cgroup folders have without it.

The pods of an application are a user's own, and so are their limits. The agent only lowers them for a while, and gives
them back. A folder's limit is what another program wrote there last. The agent remembers it when it first sees the
folder, before it writes anything. From then on, every value that is not the agent's own is a new limit: a kubelet that
resizes a container, or a person, has changed what the folder may have. A limit below the cap is obeyed, and the cap
is restored below a limit above it.

The danger: an agent that took its own value for a limit would never widen it again. So each folder has two values that
count as the agent's own: the one that it wrote last, and the one that it is about to write. Both are saved before the
write, so this holds however the agent ends. If what was saved is lost, nothing tells the agent's last value from a
limit. Then it is taken for one: the pod keeps its last cap at most, until it is resized or starts anew.

Values only, standard library only: :mod:`punctual_agent.actuator` reads and writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from punctual_agent.cgroup import Cap
from punctual_agent.modes.mode import Mode, Moment, Told


@dataclass(frozen=True, slots=True)
class Folder:
    """One cgroup folder of an application."""

    limit: Cap
    """What it has without this agent."""
    there: Cap
    """What it had at the last look or after the last write."""
    coming: Cap
    """What the agent writes next: it may have been written already when the agent ended."""


@dataclass(frozen=True, slots=True)
class ApplicationMode(Mode):
    """One pod of an application. Folders are named by their path below the pod's; the pod's own name is empty."""

    kind: ClassVar[str] = "Application"
    own: ClassVar[bool] = True
    cap: Cap | None
    """The cap to hold. None: its folders get their limits back."""
    folders: Mapping[str, Folder] = field(default_factory=dict)

    @classmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode of a set point. It goes on with the limits that it knows."""
        before = told.before if isinstance(told.before, cls) else cls(None)
        return before.told(Cap.of(told.point.cap, told.point.period))

    @classmethod
    def loaded(cls, raw: Mapping[str, Any]) -> Self:
        """Return a mode that was saved."""
        folders = {
            str(name): Folder(_cap(one["limit"]), _cap(one["there"]), _cap(one["coming"]))
            for name, one in raw["folders"].items()
        }
        return cls(None if raw["cap"] is None else _cap(raw["cap"]), folders)

    @property
    def saved(self) -> Mode:
        """All of it."""
        return self

    @property
    def rest(self) -> Cap | None:
        """None: the pod keeps its last cap while the operator or the agent is away."""
        return None

    def wanted(self, _moment: Moment) -> Mapping[str, Cap]:
        """Return the cap of each folder, as it was saved."""
        return {name: one.coming for name, one in self.folders.items()}

    def differs(self, _there: Cap | None, _moment: Moment) -> bool:
        """Return whether a folder is to have another cap than at the last look."""
        return not self.folders or not self.settled

    @property
    def settled(self) -> bool:
        """Whether each folder has what it is to have."""
        return all(one.there == self._allowed(one.limit) for one in self.folders.values())

    @property
    def released(self) -> bool:
        """Whether each folder has its limit back."""
        return self.cap is None and self.settled

    def told(self, cap: Cap | None) -> Self:
        """Return the application with another cap to hold."""
        return replace(self, cap=cap)

    def unnamed(self) -> Self:
        """Let its folders have their limits back."""
        return self.told(None)

    def seen(self, caps: Mapping[str, Cap]) -> tuple[Self, int]:
        """Take a look at all folders: their caps."""
        folders, replaced = {}, 0
        for name, there in caps.items():
            known, limit = self.folders.get(name), there
            if known is not None and there in (known.there, known.coming):
                limit = known.limit
            elif known is not None:
                replaced += known.there != known.limit
            folders[name] = Folder(limit, there, self._allowed(limit))
        return replace(self, folders=folders), replaced

    def wrote(self, caps: Mapping[str, Cap]) -> Self:
        """Take what folders have after a write."""
        written = {name: replace(self.folders[name], there=there) for name, there in caps.items()}
        return replace(self, folders={**self.folders, **written})

    def _allowed(self, limit: Cap) -> Cap:
        return self.cap if self.cap is not None and self.cap.share <= limit.share else limit


def _cap(raw: Mapping[str, Any]) -> Cap:
    return Cap(None if raw["quota"] is None else int(raw["quota"]), int(raw["period"]))
