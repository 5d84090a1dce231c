"""The values of :class:`punctual.rates.control.RateControl`: what is asked, what happens, what is to be done.

Events describe states, not changes: of two with one key (`key_of`) only the newer matters. Times are seconds of any
clock that is never set; rates are iterations a second or, where named so, parts of the rate alone.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, NamedTuple

from punctual.control.rate import Limits
from punctual.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRate:
    """What is asked. ``target`` and ``epsilon`` are parts of the rate alone; ``created`` orders by age."""

    uid: str
    name: str
    """Namespace and name, for messages."""
    created: float
    target: float
    epsilon: float = 0.03
    limits: Limits = Limits()  # noqa: RUF009  a value that cannot be changed
    max_rate: float | None = None
    """Iterations a second of the application alone. None: it is measured."""
    balanced: bool = False
    """Its slices follow the load of its nodes' own work: ``target`` is the part for that."""
    query: str | None = None
    """What Prometheus is asked for the pods' iterations. None: the agents read them from files."""
    aligned: bool = False
    """All its pods are to get their slices at the same moments."""
    max_slice: float = 0.05
    """The longest slice that its pool allows for aligned applications, s."""
    refusal: tuple[str, str] | None = None
    """(reason, message) why no node may be asked: the pool is not there, or takes nothing from the namespace."""

    @property
    def age(self) -> tuple[float, str]:
        """The oldest comes first; of two created in the same second, the first by name."""
        return self.created, self.name

    @property
    def exact(self) -> int:
        """The iterations from which on a measured rate is exact enough."""
        return 1 if self.query is None else ceil(2.0 / self.epsilon)


class Record(NamedTuple):
    """What an earlier leader has left in the status: enough to go on with the same pair."""

    target: float | None = None
    """The target in force. None: none was."""
    max_rate: float | None = None
    utilization: float | None = None
    period: float | None = None
    rate: float | None = None
    on_target: bool = False
    offset: float | None = None
    """Where in the cluster's grid its slices begin, s. None: it was not aligned."""


UNRECORDED: Final = Record()
_TINY: Final = 1e-9
"""Part of a core that is not counted."""


class Place(NamedTuple):
    """Where in the cluster's grid an aligned application has its slices: ``offset`` and ``period``, s."""

    period: float
    offset: float


class Member(NamedTuple):
    """A pod that a TargetRate selects. ``cpu``: cores that it uses alone; ``request``: what it requests, cores."""

    pod: str
    name: str
    node: str
    cpu: float
    request: float
    running: bool = True
    in_pool: bool = True
    """Its node belongs to the TargetRate's pool."""
    cores: float | None = None
    """The CPUs of its node, which its slices share with those of other applications. None: they are not known."""

    @property
    def cpus(self) -> int:
        """The CPUs on which it runs in a slice: as many as it takes to use all its CPU."""
        return max(ceil(self.cpu - _TINY), 1)


def longest_run(members: Iterable[Member]) -> float:
    """Return the part of a period for which a pod with all its CPU runs: the most of all pods.

    A quota is used up by threads that run at once. So one thread with half a CPU runs for half of each period.
    """
    return max((member.cpu / member.cpus for member in members), default=1.0)


class PhaseSeen(NamedTuple):
    """When a pod's periods begin, as its agent has found it: :class:`punctual.wire.PhaseReport`."""

    begins: float
    half: float
    error: float | None
    age: float
    moves: int
    failed: int


class MemorySeen(NamedTuple):
    """That memory is short for a pod: :class:`punctual.wire.MemoryShort`. Bytes."""

    used: int
    limit: int | None
    cause: Literal["pod", "node"]


class ReportedPod(NamedTuple):
    """A pod's line of a node's report."""

    pod: str
    done: int | None
    """Iterations since it started. None: it has written no readable number."""
    written: float | None
    """Seconds since it wrote that."""
    cap: float | None
    """The cap in force, cores. None: none is."""
    period: float | None
    phase: PhaseSeen | None = None
    """None: it was not found, or was found under another leader's clock."""
    throttled: float | None = None
    """Part of its last periods in which it used up its cap."""
    memory: MemorySeen | None = None
    """None: memory is not short, as far as is known."""


class ScrapedCount(NamedTuple):
    """The iterations of a pod as Prometheus has them, and when it scraped them."""

    pod: str
    done: int
    at: float


# events


@dataclass(frozen=True, slots=True)
class RateApplied:
    """A TargetRate as it is now. ``record``: what an earlier leader has left; it counts when the rate is new here."""

    rate: TargetRate
    record: Record = UNRECORDED


@dataclass(frozen=True, slots=True)
class RateDeleted:
    """A TargetRate (uid) is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """All pods that a TargetRate (uid) selects and that have a node."""

    uid: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class PodsReported:
    """A node's report, which came at ``at``."""

    node: str
    at: float
    pods: tuple[ReportedPod, ...]
    clock: float | None = None
    """By how much the node's agent may be wrong about the clock of ``at``, s. None: it does not know it."""
    load: float | None = None
    """Ready tasks of the node's own work, for each CPU. None: they are not known."""


@dataclass(frozen=True, slots=True)
class PodsCounted:
    """What Prometheus answered to the query of a TargetRate (uid) at ``at``."""

    uid: str
    query: str
    at: float
    counts: tuple[ScrapedCount, ...] = ()
    flaw: str = ""
    """Why a running pod has no count, and what to do. Empty: all have one."""


Event = RateApplied | RateDeleted | MembersSeen | PodsReported | PodsCounted


def key_of(event: Event) -> Hashable:
    """Return the key of an event; of two events with one key, only the newer matters."""
    match event:
        case RateApplied():
            return ("rate", event.rate.uid)
        case RateDeleted():
            return ("rate", event.uid)
        case MembersSeen():
            return ("members", event.uid)
        case PodsReported():
            return ("report", event.node)
        case PodsCounted():
            return ("counts", event.uid)


# actions


@dataclass(frozen=True, slots=True)
class Grid:
    """When a pod's slices, s, are to begin: at ``begins``, a time of the events' clock, and whole periods from it.

    ``begins`` None: the agent only finds out when its periods begin.
    """

    begins: float | None
    slice: float


@dataclass(frozen=True, slots=True)
class HoldPod:
    """Hold a pod at a cap, cores, with a CFS period, s, and on a grid if it has one."""

    pod: str
    node: str
    cap: float
    period: float
    grid: Grid | None = None
    watch_memory: bool = False
    """Its agent is to report whether its memory is short."""


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Take the hand off a pod."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStatus:
    """How a TargetRate stands."""

    admitted: Verdict
    on_target: Verdict | None = None
    target: float | None = None
    """In force, a part of the rate alone. None: its pods are not held."""
    rate: float | None = None
    """The last one measured, a part of the rate alone."""
    utilization: float | None = None
    period: float | None = None
    cap: float | None = None
    """The least of its pods', cores."""
    max_rate: float | None = None
    pods: int = 0
    aligned: Verdict | None = None
    """None: it is not asked to be aligned, or not held."""
    offset: float | None = None
    """Where in the cluster's grid its slices begin, s."""
    skew: float | None = None
    """The largest phase error of its pods, s."""
    load: float | None = None
    """Of its nodes' own work, tasks per CPU. None: it is not balanced with that, or no node has told."""


@dataclass(frozen=True, slots=True)
class WriteRate:
    """Write the status of a TargetRate (uid). ``urgent``: more than numbers has changed."""

    uid: str
    status: RateStatus
    urgent: bool


Action = HoldPod | ReleasePod | WriteRate
