"""Numbers over the last minutes, and a line of blocks that draws them. This module reads no clock."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SPAN: Final = 180.0
"""Seconds that are kept."""
BLOCKS: Final = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class ValueHistory:
    """Values by key and time. Only changes are kept: a value stands until the next one."""

    _changes: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)

    def note(self, key: str, now: float, value: float) -> None:
        """Note a value."""
        kept = self._changes.setdefault(key, deque())
        if not kept or kept[-1][1] != value:
            kept.append((now, value))
        while len(kept) > 1 and kept[1][0] <= now - SPAN:
            kept.popleft()

    def forget(self, keys: set[str]) -> None:
        """Keep only these keys."""
        self._changes = {key: kept for key, kept in self._changes.items() if key in keys}

    def values(self, key: str, now: float, count: int) -> list[float | None]:
        """Return the values at ``count`` times, the last one now; None: before the first one was noted."""
        kept = self._changes.get(key, deque())
        times = [now - SPAN * (count - 1 - i) / count for i in range(count)]
        return [next((value for at, value in reversed(kept) if at <= time), None) for time in times]


def spark(values: Sequence[float | None], most: float) -> str:
    """Draw values as blocks, ``most`` as a full one; a blank where there is none.

    >>> spark([None, 0.0, 2.0, 4.0], 4.0)
    ' ▁▅█'
    """
    top = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(top * min(1.0, value / most)) if most > 0 else 0] for value in values
    )
