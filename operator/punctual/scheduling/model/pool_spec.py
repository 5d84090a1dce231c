"""Spec and record of a pool."""

import math
from dataclasses import dataclass, field
from typing import Literal

from punctual.control.miss_ratio import MissCount
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.resources import Resources
from punctual.verdict import Verdict

Admission = Literal["Exact", "Fast", "Hybrid", "Utilization"]
Hold = Literal["None", "Taint", "Placeholder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """How namespaces share a pool. A share is a part of the pool's capacity, in (0, 1]."""

    max_share: float = 1.0
    """Share of each namespace without one of its own."""
    own: tuple[tuple[str, float], ...] = ()
    """Namespaces with a share of their own."""
    horizon: float = math.inf
    """Seconds from now within which a promised deadline must lie."""

    def share_of(self, namespace: str) -> float:
        """Return the share of a namespace."""
        for name, share in self.own:
            if name == namespace:
                return share
        return self.max_share

    @property
    def limits_shares(self) -> bool:
        """Whether any namespace has less than all of the pool."""
        return self.max_share < 1.0 or any(share < 1.0 for _, share in self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Processors and the discipline that assigns them. CPU in cores, memory in bytes, times in seconds."""

    name: str
    generation: int = 1
    cpu: float
    """CPU of one processor."""
    memory: int = 0
    others: tuple[tuple[str, int], ...] = ()
    """Extended resources of one processor (`Resources.others`)."""
    period: float = 0.1
    """CFS period of its quota."""
    feedback: bool = False
    """Chunks are kept on their lines by moving their caps. False: each holds the cap of its processor."""
    hold: Hold = "None"
    headroom: float = 0.125
    """r: planning takes chi/(1-r); a running chunk may use the whole processor."""
    margin: float = 2.0
    """Reserve before each deadline that planning keeps for the reaction of the control plane."""
    discipline: Discipline = field(default_factory=Discipline)
    admission: Admission = "Exact"
    threshold: int = 300
    """Hybrid: number of waiting jobs from which the fast test decides."""
    pods_per_processor: int = 2
    """Utilization: pods that a node may have at a time, per processor."""
    bound: float | None = None
    """Utilization bound: jobs are admitted by it, without a guarantee."""
    miss_set_point: float | None = None
    """Share of accepted jobs that may miss: a controller moves the bound to hold it."""
    sample_period: float = 300.0
    """Sample period of that controller, seconds."""
    tenancy: Tenancy = Tenancy()
    selectors: str = ""
    """Selectors of nodes and jobs, in the edge's format: the core does not read them, but an edit of them is in force,
    or refused, with the rest of the spec."""

    @property
    def fluid(self) -> bool:
        """Whether pods share processors: each job has one pod, and its CPU cap keeps it on its line."""
        return self.admission == "Utilization"

    @property
    def parts(self) -> int:
        """Into how many parts pods divide a processor."""
        return self.pods_per_processor if self.fluid else 1

    @property
    def processor(self) -> Resources:
        """What one processor has."""
        return Resources(self.cpu, self.memory, self.others)

    @property
    def share(self) -> Resources:
        """What one pod may request: a processor, or an equal part of its CPU where pods share processors.

        CPU has Kubernetes' resolution of a thousandth of a core.
        """
        return Resources(max(1, math.floor(1000 * self.cpu / self.parts + 1e-9)) / 1000, self.memory, self.others)

    @property
    def loose(self) -> bool:
        """Whether promises are statistical."""
        return self.bound is not None or self.miss_set_point is not None


UNREAD = PoolSpec(name="", cpu=1e9)
"""Spec of a pool before its own is read: no node has such a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcessors:
    """One node in the pool's status."""

    name: str
    processors: int
    pods: int | None = None
    """Pods that it may have at a time; None: one per processor."""
    speed: float = 1.0
    """Factor of the time of a unit on this node."""
    reason: str | None = None
    """Why it is left out, if it is."""
    held_since: float | None = None
    """Time since when placeholders keep its capacity, if they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """Everything recorded about a pool."""

    epoch: int = 0
    observed_generation: int = 0
    ready: Verdict | None = None
    spec_applied: Verdict | None = None
    applied: PoolSpec | None = None
    """The spec in force: not the newest one if an edit was refused."""
    processors: int = 0
    free: int = 0
    scarcest: str = ""
    """Resource of which the nodes have the fewest processors, by Kubernetes' name, or "pods"; empty: no node is usable.
    """
    queue: int = 0
    """Jobs waiting for their first chunk or for a decision."""
    nodes: tuple[NodeProcessors, ...] = ()
    miss: MissCount | None = None
    """None: its promises are guaranteed."""
    startups: tuple[float, ...] = ()
    """The last start-up times observed, seconds from a pod's creation to its running; the margin is computed from
    them."""
