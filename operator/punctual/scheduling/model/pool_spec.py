"""The pool as asked for, and what is written down about it."""

from dataclasses import dataclass, field
from typing import Literal

from punctual.control.miss_ratio import MissCount
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import Verdict

Admission = Literal["Exact", "Fast", "Hybrid"]
Hold = Literal["None", "Taint", "Placeholder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Processors and the discipline that fills them. CPU in cores, memory in bytes, times in seconds."""

    name: str
    generation: int = 1
    cpu: float
    """CPU of one processor."""
    memory: int = 0
    period: float = 0.1
    """CFS period of its quota."""
    hold: Hold = "None"
    headroom: float = 0.125
    """r: planning takes chi/(1-r); a running chunk may use the whole processor."""
    margin: float = 2.0
    """Planning aims so much before the deadline: the control plane's reaction."""
    discipline: Discipline = field(default_factory=Discipline)
    admission: Admission = "Exact"
    threshold: int = 300
    """Hybrid: jobs waiting from which on the fast test decides."""
    bound: float | None = None
    """Of utilization: jobs are let in by it, and none is promised for certain."""
    miss_set_point: float | None = None
    """The part of accepted jobs that may miss: a controller moves the bound so that no more do."""
    sample_period: float = 300.0
    """Of that controller, s."""
    selectors: str = ""
    """Whose nodes and whose jobs, in the words of the edge: nobody looks into it here, but it is in force, or refused,
    with the rest."""

    @property
    def loose(self) -> bool:
        """Whether promises are statistical."""
        return self.bound is not None or self.miss_set_point is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcessors:
    """One node in the pool's status."""

    name: str
    processors: int
    speed: float = 1.0
    """What multiplies the time of a unit there."""
    reason: str | None = None
    """Why it is left out, if it is."""
    held_since: float | None = None
    """Since when placeholders keep its room, if they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """All that is written down about a pool."""

    epoch: int = 0
    observed_generation: int = 0
    ready: Verdict | None = None
    spec_applied: Verdict | None = None
    applied: PoolSpec | None = None
    """The spec in force: not the newest one where an edit was refused."""
    processors: int = 0
    free: int = 0
    queue: int = 0
    """Jobs waiting for their first chunk or for an answer."""
    nodes: tuple[NodeProcessors, ...] = ()
    miss: MissCount | None = None
    """None: what it promises is certain."""
    startups: tuple[float, ...] = ()
    """The last start-up times seen, seconds from a pod's creation to its running: they make the margin."""
