"""The memory of guests: each tick the mark on each guest's pod, and what guests must give back by leaving.

The mark of all guests comes from :mod:`punctual.linger.memory_mark`. It is divided by weight. Whatever is left, a guest
has what it holds and a little more: pressing it below would free nothing, and it would stand still. So a guest that
fills memory slows down at its mark, and grows slowly beyond, until there is an excess and one guest leaves.

While the agent is gone, marks stay as they are: guests have the least CPU then, and hosts have the margin.
"""

from collections.abc import Mapping
from typing import Final

from punctual.linger.guest_cap import GuestClaim, share
from punctual.linger.memory_mark import MemoryMark
from punctual_agent.actuator import Held
from punctual_agent.cgroup import CgroupError, Hierarchy, VanishedError
from punctual_agent.memory import Kind, Marks, Memory, memory_of, node_memory

UNIT: Final = 1 << 20
"""Bytes of which marks are multiples: pages of all sizes fit."""
ROOM: Final = 16 * UNIT
"""Bytes that a guest has beyond what it holds: for the files of its program, and to grow a little."""
NOISE: Final = 0.02
"""Part of a mark by which it must change to be written. A mark may be too high by so much: the margin has room."""


class GuestMemory:
    """The memory of a node's guests. Pods are named by their folders."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._marks = Marks(hierarchy)
        self._rule = MemoryMark()
        self._at: float | None = None
        self._memory: dict[str, Memory] = {}
        self._written: dict[str, int] = {}
        """The last marks that were written."""
        self._asked: set[str] = set()
        """Pods to which a mark is being written."""

    @property
    def kind(self) -> Kind | None:
        """How guests' memory is marked here."""
        return self._marks.kind

    @property
    def excess(self) -> int:
        """Bytes that guests must give back by leaving."""
        return self._rule.excess

    @property
    def mark(self) -> float:
        """The mark of all guests together, bytes. 0: there are no guests, or the kernel does not count memory."""
        return self._rule.mark or 0.0

    def used(self, folder: str) -> int:
        """Return the memory in use by a guest's pod, bytes. 0: it is not known."""
        return self._memory[folder].used if folder in self._memory else 0

    def look(self, now: float, guests: Mapping[str, Held], weights: Mapping[str, int], *, may_write: bool) -> None:
        """Read the memory of the node and of all guests that were just found, and bring their pods to their marks.

        Writes and drift are counted in what is held. ``weights``: 0 for a guest that is paused.
        """
        self._memory = {folder: memory for folder in guests if (memory := self._read(folder)) is not None}
        self._written = {folder: mark for folder, mark in self._written.items() if folder in self._memory}
        self._collect(guests, may_write=may_write)
        node = node_memory(self._hierarchy) if self._memory else None
        if node is None:
            self._rule, self._at = MemoryMark(), None
            return
        held = sum(memory.held for memory in self._memory.values())
        mark = self._rule.see(now - self._at if self._at is not None else 0.0, node.total, node.available, held)
        self._at = now
        if not may_write or self.kind is None:
            return
        floors = {folder: memory.held + ROOM for folder, memory in self._memory.items()}
        parts = share(mark, {folder: GuestClaim(weights[folder], floor) for folder, floor in floors.items()})
        for folder, part in parts.items():
            self._bring(folder, int(part) // UNIT * UNIT, guests[folder])

    def release(self, folder: str) -> None:
        """Remove the mark of a pod that is no guest any more."""
        self._written.pop(folder, None)
        if folder:
            self._marks.remove(folder)

    def _read(self, folder: str) -> Memory | None:
        try:
            return memory_of(self._hierarchy, folder)
        except CgroupError:  # that a pod has vanished shows at its CPU files
            return None

    def _bring(self, folder: str, mark: int, held: Held) -> None:
        """Have a mark written, if it differs from what is there."""
        if folder in self._asked:
            return
        try:
            there = self._marks.mark_of(folder)
        except VanishedError:
            return
        except CgroupError as error:
            held.writes[error.kind] += 1
            held.trouble = str(error)
            return
        written = self._written.setdefault(folder, there)
        held.drift += there != written
        if there != written or abs(mark - there) > NOISE * there:
            self._marks.ask(folder, mark)
            self._asked.add(folder)

    def _collect(self, guests: Mapping[str, Held], *, may_write: bool) -> None:
        """Take in which marks have been written."""
        for folder, mark, error in self._marks.done():
            self._asked.discard(folder)
            held = guests.get(folder)
            if held is None:
                if error is None and may_write:  # it ceased to be a guest meanwhile
                    self.release(folder)
            elif error is None:
                held.writes["written"] += 1
                self._written[folder] = mark
            else:
                held.writes[error.kind] += 1
                if not isinstance(error, VanishedError):  # a pod that ended is not an error
                    held.trouble = str(error)
