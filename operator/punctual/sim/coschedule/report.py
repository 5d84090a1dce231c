"""The output of `punctual simulate coschedule`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


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


@dataclass(frozen=True, slots=True)
class StationsReport:
    """A run of the model `stations`, without its warm-up. None: there was no such task.

    The served tasks include those of the warm-up.
    """

    system_code: float | None
    """SystemCoDe, (2.9): time that distributed tasks with messages ran, over the time for which they were ready."""
    dret: float | None
    dwait: float | None
    lret: float | None
    lwait: float | None
    """Mean times of distributed and of local tasks, from arrival to end, and ready without running."""
    task_d: float | None
    """TaskD of local tasks, (2.4), in the mean: for how long tasks ran that had overtaken one."""
    queue: float | None
    """Mean number of tasks of a station."""
    distributed: int
    local: int

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        means = asdict(self)
        served = {name: means.pop(name) for name in ("distributed", "local")}
        return {**means, "served": served}


class Letter(NamedTuple):
    """One letter of table 4.1 (:mod:`punctual.sim.coschedule.table`), and the published one."""

    parameter: str
    policy: str
    change: float
    """Of SystemCoDe, or of its lead over LIN, when the parameter grows."""
    letter: str
    published: str

    @property
    def equal(self) -> bool:
        """Return whether the letter is as published."""
        return self.letter == self.published


@dataclass(frozen=True, slots=True)
class TableReport:
    """Table 4.1, row by row."""

    letters: Sequence[Letter]

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        equal = sum(letter.equal for letter in self.letters)
        return {"table": [letter._asdict() for letter in self.letters], "equal": equal, "letters": len(self.letters)}


Report = SlicesReport | StationsReport | TableReport
