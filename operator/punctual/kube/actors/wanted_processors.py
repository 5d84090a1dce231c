"""Wanted processors: how many more a pool's refused jobs would have needed in the last minutes."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

WINDOW: Final = 600.0
"""Seconds for which a refusal counts."""


@dataclass(slots=True)
class WantedProcessors:
    """Keeps the numbers of recent refusals by pool."""

    _found: dict[str, deque[tuple[float, int]]] = field(default_factory=lambda: defaultdict(deque))
    """(time, number) of those that no later one exceeds: times ascend and numbers descend."""

    def add(self, pool: str, now: float, more: int) -> None:
        """Note that a refused job would have needed ``more`` processors."""
        found = self._found[pool]
        while found and found[-1][1] <= more:
            found.pop()
        found.append((now, more))

    def most(self, pool: str, now: float) -> int:
        """Return the largest number of the last ``WINDOW`` seconds; 0: none."""
        found = self._found.get(pool)
        while found and found[0][0] < now - WINDOW:
            found.popleft()
        return found[0][1] if found else 0
