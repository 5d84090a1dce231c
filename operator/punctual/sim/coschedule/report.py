"""The output of `punctual simulate coschedule`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AppReport:
    """What an application has done. ``rate``: of its rate alone, by its slowest rank."""

    id: str
    rate: float
    iterations: int
    cpu: float
    """Part of a CPU that a rank has used, in the mean."""
    spun: float
    """Part of that in which ranks only waited."""
    overlap: float
    """Part of the time in which all ranks could run."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node. ``local``: the part of its CPU that is left to the hogs."""

    node: int
    local: float


@dataclass(frozen=True, slots=True)
class SlicesReport:
    """All of a run of the model `slices`."""

    apps: Sequence[AppReport]
    nodes: Sequence[NodeReport]

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {"apps": [asdict(app) for app in self.apps], "nodes": [asdict(node) for node in self.nodes]}
