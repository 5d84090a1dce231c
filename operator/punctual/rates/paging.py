"""For how long the pods of an aligned application stay at the floor because one of them was short of memory.

Its processes wait for the one that pages. So all pods go down together, which leaves the node's memory and disk to
others, and come back together (Giné et al., cooperating coscheduling). They come back whether or not memory is short
then: at the floor, a pod does not show what it needs. If it pages again soon, they go down for longer.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from punctual.rates.model import Member, MemorySeen

FIRST: Final = 10.0
"""Seconds at the floor, the first time ..."""
LONGER: Final = 2.0
"""... so many times as long each time that memory is short again ..."""
MOST: Final = 60.0
"""... and at most, s."""
AGAIN: Final = 60.0
"""Memory is short again if that is within so many seconds after the pods came back."""
TRIAL: Final = 5.0
"""Seconds for which pods that came back run in any case. Until then, reports may tell of the floor."""


@dataclass(slots=True)
class BackOff:
    """When the pods of one application are at the floor."""

    until: float | None = None
    """They are at the floor until then. None: they are not."""
    pod: str = ""
    """The pod (uid) that was short of memory last."""
    why: str = ""
    """What was short, and what to do."""
    _pause: float = 0.0
    """How long they stayed last."""
    _back: float = -inf
    """When they came back."""

    @property
    def at_floor(self) -> bool:
        """Whether the pods have the least CPU."""
        return self.until is not None

    def report(self, at: float, member: Member, seen: MemorySeen) -> bool:
        """Take in that a pod is short of memory. Returns whether all pods are to go down now."""
        since = at - self._back
        if self.at_floor or since < TRIAL:
            return False
        self._pause = min(self._pause * LONGER, MOST) if self._pause and since <= AGAIN else FIRST
        self.until, self.pod, self.why = at + self._pause, member.pod, _text(member, seen, self._pause)
        return True

    def is_over(self, now: float) -> bool:
        """Return whether the pods are at the floor and have been there for long enough."""
        return self.until is not None and now >= self.until

    def come_back(self, now: float) -> None:
        """Take in that the pods come back."""
        self.until, self._back = None, now


def _text(member: Member, seen: MemorySeen, pause: float) -> str:
    used = f"uses {_size(seen.used)}" if seen.used else "runs"
    if seen.cause == "node":
        what = f"node {member.node} is short of memory, and pod {member.name} {used} there"
        advice = "move other pods off the node, or give the pods nodes with more memory"
    else:
        limit = f" of {_size(seen.limit)}" if seen.used and seen.limit is not None else ""
        what = f"pod {member.name} on node {member.node} pages: it {used}{limit}"
        advice = "raise its memory limit, or give its program less data"
    return f"{what}; the others would wait for it, so all pods have the least CPU for {pause:.0f} s: {advice}"


def _size(count: int) -> str:
    """Return bytes for people: three digits, in the largest binary unit that is not above them."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 999.5:
            break
        size, unit = size / 1024, larger
    return f"{size:.3g} {unit}"
