"""An application that is held at a rate: the cap of its pod, and the limits that its cgroup folders have without it.

The pods of an application are a user's own, and so are their limits. The agent only lowers them for a while, and gives
them back. A folder's limit is what another program wrote there last. The agent remembers it when it first sees the
folder, before it writes anything. From then on, every value that is not the agent's own is a new limit: a kubelet that
resizes a container, or a person, has changed what the folder may have. A limit below the cap is obeyed, and the cap
is restored below a limit above it.

The danger: an agent that took its own value for a limit would never widen it again. So the values that count as the
agent's own are those that it wrote last and those that it may write before it saves again. All are saved before the
write, so this holds however the agent ends. If what was saved is lost, nothing tells the agent's last value from a
limit. Then it is taken for one: the pod keeps its last cap at most, until it is resized or starts anew.

A pod that has a grid is **aligned**: the kernel is to begin its slices at given moments. Each capped folder has a timer
of its own, so on v2 the pod's folder alone is capped, and its containers have their limits. On v1, where that folder is
never narrowed, its containers are capped. Its weight is the highest, so that its cap ends its slices and not its
neighbours. A weight is remembered, restored and given back as a limit is; one that was lost is the usual one. To move
its slices, :mod:`punctual_agent.phases` writes a pair of the same share for a moment, which counts as the agent's own.

Values only, standard library only: :mod:`punctual_agent.actuator` reads and writes.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

from punctual_agent.cgroup import Cap, Weight
from punctual_agent.modes.mode import Mode, Moment, Told

POD = ""
"""The name of a pod's own folder."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One cgroup folder of an application."""

    limit: Cap
    """What it has without this agent."""
    there: Cap
    """What it had at the last look or after the last write."""
    coming: tuple[Cap, ...]
    """What the agent may write next: it may have been written already when the agent ended. The first is what the
    folder is to have."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The weight of an application's pod."""

    before: int
    """What it has without this agent."""
    there: int
    """What it had at the last look or after the last write."""
    highest: int


class Move(NamedTuple):
    """The pair that moves the slices of a folder, for a moment, and the one that it then has again."""

    pair: Cap
    after: Cap


@dataclass(frozen=True, slots=True)
class ApplicationMode(Mode):
    """One pod of an application. Folders are named by their path below the pod's; the pod's own name is empty."""

    kind: ClassVar[str] = "Application"
    own: ClassVar[bool] = True
    cap: Cap | None
    """The cap to hold. None: its folders get their limits back."""
    folders: Mapping[str, Folder] = field(default_factory=dict)
    aligned: bool = False
    raised: Raised | None = None
    """None: its weight is its own."""
    moves: Mapping[str, Move] = field(default_factory=dict)
    """By folder, the moves of its slices that may be under way."""

    @classmethod
    def ordered(cls, told: Told) -> Self:
        """Return the mode of a set point. It goes on with the limits that it knows."""
        before = told.before if isinstance(told.before, cls) else cls(None)
        order = told.point.mode
        assert order.kind == "Application"
        return before.told(Cap.of(told.point.cap, told.point.period), aligned=order.grid is not None)

    @classmethod
    def loaded(cls, raw: Mapping[str, Any]) -> Self:
        """Return a mode that was saved."""
        folders = {
            str(name): Folder(_cap(one["limit"]), _cap(one["there"]), tuple(_cap(pair) for pair in one["coming"]))
            for name, one in raw["folders"].items()
        }
        raised = None if raw["raised"] is None else Raised(**{name: int(n) for name, n in raw["raised"].items()})
        return cls(None if raw["cap"] is None else _cap(raw["cap"]), folders, bool(raw["aligned"]), raised)

    @property
    def saved(self) -> Mode:
        """All but its moves: an agent that starts again goes on with none of them."""
        return replace(self, moves={})

    @property
    def rest(self) -> Cap | None:
        """None: the pod keeps its last cap while the operator or the agent is away."""
        return None

    def wanted(self, _moment: Moment) -> Mapping[str, Cap]:
        """Return the cap of each folder, as it was saved."""
        return {name: one.coming[0] for name, one in self.folders.items()}

    @property
    def weight(self) -> int | None:
        """The weight that its pod is to have. None: its own."""
        if self.raised is None:
            return None
        return self.raised.highest if self.aligned else self.raised.before

    @property
    def weighed(self) -> bool:
        """Whether its weight is, or was, the agent's."""
        return self.aligned or self.raised is not None

    def differs(self, _there: Cap | None, _moment: Moment) -> bool:
        """Return whether a folder is to have another cap, or the pod another weight, than at the last look."""
        return not self.folders or not self.settled

    @property
    def settled(self) -> bool:
        """Whether each folder, and the pod's weight, is what it is to be."""
        if self.aligned != (self.raised is not None) or (self.raised is not None and self.raised.there != self.weight):
            return False
        return all(one.there == self._allowed(name, one.limit, self.folders) for name, one in self.folders.items())

    @property
    def released(self) -> bool:
        """Whether each folder has its limit back, and the pod its weight."""
        return self.cap is None and self.settled

    def told(self, cap: Cap | None, *, aligned: bool = False) -> Self:
        """Return the application with another cap to hold."""
        return replace(self, cap=cap, aligned=aligned)

    def unnamed(self) -> Self:
        """Let its folders have their limits back."""
        return self.told(None)

    def moving(self, moves: Mapping[str, Move]) -> Self:
        """Return the application while these moves of its slices may be under way."""
        return self if moves == self.moves else replace(self, moves=moves)

    def interrupted(self, pairs: Mapping[str, Any]) -> Self:
        """Return the application after an agent ended that may have written these pairs, as they were saved."""
        folders = dict(self.folders)
        for name in pairs.keys() & folders.keys():
            one = folders[name]
            folders[name] = replace(one, coming=(*one.coming, *(_cap(pair) for pair in pairs[name])))
        return replace(self, folders=folders)

    def seen(self, caps: Mapping[str, Cap], weight: Weight | None = None) -> tuple[Self, int]:
        """Take a look at all folders: their caps, and the pod's weight."""
        raised, replaced = self._weighed(weight)
        folders = {}
        for name, there in caps.items():
            known, limit = self.folders.get(name), there
            moving = self.moves.get(name, ())
            steps = [Cap(None, pair.period) for pair in moving]  # v1 takes a pair in steps
            if known is not None and there in (known.there, *known.coming, *moving, *steps):
                limit = known.limit
            elif known is not None:
                replaced += known.there != known.limit
            folders[name] = Folder(limit, there, self._coming(name, limit, there, caps))
        return replace(self, folders=folders, raised=raised), replaced

    def wrote(self, caps: Mapping[str, Cap], weight: Weight | None = None) -> Self:
        """Take what folders, and the pod's weight, are after a write."""
        written = {name: replace(self.folders[name], there=there) for name, there in caps.items()}
        raised = self.raised
        if raised is not None and weight is not None:
            given_back = not self.aligned and weight.value == raised.before
            raised = None if given_back else replace(raised, there=weight.value)
        return replace(self, folders={**self.folders, **written}, raised=raised)

    def holds(self, name: str) -> bool:
        """Return whether a folder is to have the cap, so that its slices are the application's."""
        one = self.folders.get(name)
        return one is not None and self._allowed(name, one.limit, self.folders) == self.cap

    def steady(self, cap: Cap) -> Cap:
        """Return the cap that a folder has but for a move."""
        return next((move.after for move in self.moves.values() if move.pair == cap), cap)

    def _weighed(self, weight: Weight | None) -> tuple[Raised | None, int]:
        known = self.raised
        if weight is None or not self.weighed:
            return known, 0
        if weight.value != weight.highest:
            replaced = self.aligned and known is not None and known.there == known.highest
            return Raised(weight.value, weight.value, weight.highest), int(replaced)
        before = known.before if known is not None else weight.usual
        return Raised(before, weight.value, weight.highest), 0

    def _allowed(self, name: str, limit: Cap, names: Container[str]) -> Cap:
        """Return what a folder is to have but for a move."""
        if self.cap is None or self.cap.share > limit.share or (self.aligned and name != POD and POD in names):
            return limit
        return self.cap

    def _coming(self, name: str, limit: Cap, there: Cap, names: Container[str]) -> tuple[Cap, ...]:
        """Return what a folder may have next. A move that has begun goes on if it still ends in the cap."""
        allowed, move = self._allowed(name, limit, names), self.moves.get(name)
        if move is None:
            return (allowed,)
        goes_on = self.aligned and there == move.pair and move.after == allowed
        return (move.pair, allowed, move.after) if goes_on else (allowed, *move)


def _cap(raw: Mapping[str, Any]) -> Cap:
    return Cap(None if raw["quota"] is None else int(raw["quota"]), int(raw["period"]))
