"""The memory of a node's guests: what the node's own work (its hosts) leaves, and when guests must leave for it.

Ryu (2001, 5.2) has two marks on the memory of all guests of a node: above the high mark guests lose their pages first,
below the low mark hosts lose theirs first. Here guests are never protected from hosts: the low mark is 0, and the high
mark is what hosts leave, less a margin. So hosts that grow find free memory, and the kernel takes cache of files from
guests first. The mark falls at once, and rises slowly after a pause: a host that grows and shrinks each second keeps it
low, and nothing is written.

Without swap the kernel can take back cache of files only. The rest is *held*. If hosts have grown so much that most of
the margin is gone for seconds, guests must leave: what they have to give back is the *excess*.

Pressure (PSI) says nothing here. A guest that waits at its mark counts in the node's pressure as a host does, so a mark
that falls under pressure would hold itself down.
"""

from dataclasses import dataclass
from typing import Final

MARGIN: Final = 0.1
"""Part of the node's memory that guests leave free beside what hosts use. Hosts may need a second's growth of it."""
TIGHT: Final = 0.05
"""Part of the node's memory. If less is available, guests must leave."""
PATIENCE: Final = 3.0
"""Seconds for which memory must have been tight: pages that the kernel is taking back come free meanwhile."""
HOLD: Final = 10.0
"""Seconds for which hosts must have left more before the mark rises."""
RISE: Final = 0.02
"""Part of the node's memory by which the mark rises in a second."""
STEP: Final = 0.01
"""Part of the node's memory below which a change of the mark is noise."""


@dataclass(slots=True)
class MemoryMark:
    """The mark on the memory of all guests of a node together, bytes."""

    mark: float | None = None
    """None: nothing was seen yet."""
    excess: int = 0
    """Bytes that guests must give back by leaving."""
    _more: float = 0.0
    """Seconds for which hosts have left more than the mark."""
    _tight: float = 0.0
    """Seconds for which memory has been tight."""

    def see(self, seconds: float, total: int, available: int, held: int) -> float:
        """Take in the node's memory after another ``seconds``. Returns the mark.

        total, available    of the node; available is what programs can get without swapping, as the kernel estimates it
        held                by all guests
        """
        left = max(0.0, available + held - MARGIN * total)
        step = STEP * total
        self._more = self._more + seconds if self.mark is not None and left > self.mark + step else 0.0
        if self.mark is None or left < self.mark - step:
            self.mark = left
        elif self._more >= HOLD:
            self.mark = min(left, self.mark + RISE * total * seconds)
        self._tight = self._tight + seconds if available < TIGHT * total else 0.0
        self.excess = round(min(held, MARGIN * total - available)) if self._tight >= PATIENCE else 0
        return self.mark
