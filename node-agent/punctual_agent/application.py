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
from typing import Self

from punctual_agent.cgroup import Cap


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
class Application:
    """One pod of an application. Folders are named by their path below the pod's; the pod's own name is empty."""

    cap: Cap | None
    """The cap to hold. None: its folders get their limits back."""
    folders: Mapping[str, Folder] = field(default_factory=dict)

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

    def seen(self, caps: Mapping[str, Cap]) -> tuple[Self, int]:
        """Take a look at all folders: their caps. It comes before each write.

        Returns the application after it, and the number of folders in which another program replaced a cap of ours.
        """
        folders, replaced = {}, 0
        for name, there in caps.items():
            known, limit = self.folders.get(name), there
            if known is not None and there in (known.there, known.coming):
                limit = known.limit
            elif known is not None:
                replaced += known.there != known.limit
            folders[name] = Folder(limit, there, self._allowed(limit))
        return replace(self, folders=folders), replaced

    def wrote(self, name: str, there: Cap) -> Self:
        """Take what a folder has after a write."""
        return replace(self, folders={**self.folders, name: replace(self.folders[name], there=there)})

    def _allowed(self, limit: Cap) -> Cap:
        return self.cap if self.cap is not None and self.cap.share <= limit.share else limit
