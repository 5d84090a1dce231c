"""What can happen to a Pool. Level-triggered: each says how things are, not what changed; newest per key wins."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from punctual.scheduling.model.job import InputVersion, Job, JobRecord, Kind, Transfer
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.reservation import Reservation

PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


@dataclass(frozen=True, slots=True)
class PoolApplied:
    """The pool as its spec says now; ``record`` is read only by a Pool that has none yet (rebuild)."""

    spec: PoolSpec
    record: PoolRecord | None = None
    deleting: bool = False
    nodes: "tuple[NodeObserved, ...] | None" = None
    """The nodes that it would have under the spec's selectors; None: those it was told of."""


@dataclass(frozen=True, slots=True)
class JobApplied:
    """A job as its spec says now; ``record`` is read only where the Pool does not know the job (rebuild)."""

    job: Job
    record: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class JobDeleted:
    """The job is going or gone: it owns nothing any more; its pods are ended."""

    uid: str


class PodObserved(NamedTuple):
    """A pod of ours as the API server shows it: a projection, never the body."""

    name: str
    uid: str
    namespace: str
    job: str
    """uid of its job."""
    kind: Kind
    begin: int
    end: int
    """The end it was created with (``Chunk.origin``)."""
    attempt: int
    node: str
    """Node it is bound or meant for."""
    phase: PodPhase
    created: float
    started: float | None = None
    """When its first container began to run."""
    finished: float | None = None
    """When its first container ended."""
    exit_code: int | None = None
    reason: str = ""
    """Pod or waiting reason: Evicted, Preempted, NodeLost, ImagePullBackOff, Unschedulable, Nominated, …"""
    disrupted: bool = False
    """A DisruptionTarget condition stands: ended by the cluster, not by its own doing."""
    message: str = ""
    """Termination message: the range's result, at most 4 kB; of one that waits what the cluster says of ``reason``."""
    cut: int | None = None
    """The bytes of a termination message that the kubelet passes on, where this one has as many: it may have been
    longer. None: it is whole."""
    deleting: bool = False
    offered: bool = False
    """It was offered an end, whether we know of it or another leader did so: it may have stopped before its own."""
    turn: bool = False
    """It was given its turn to fetch its input."""
    fetched: bool = False
    """Its input step has ended well."""
    transfer: Transfer | None = None
    """What that step measured."""
    input: InputVersion | None = None
    """The version of the input that it says that it has read; None: it does not say."""
    input_changed: bool = False
    """The step has ended since the input is not the one that the job began with, or changed while it was read."""


class Share(NamedTuple):
    """So many processors of one node."""

    node: str
    processors: int


@dataclass(frozen=True, slots=True)
class ReservationApplied:
    """Processors asked for ahead, over a window; one that is known already is not asked about again."""

    reservation: Reservation
    held: tuple[Share, ...] | None = None
    """What it was given before, as written down; None: it has no answer yet."""


@dataclass(frozen=True, slots=True)
class ReservationDeleted:
    """The reservation is gone: what is left of its window is free."""

    uid: str


class PodGone(NamedTuple):
    """A pod of ours that the API server no longer has."""

    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRefused:
    """The API server would not have a chunk's pod (quota, LimitRange, …): nothing runs."""

    job: str
    kind: Kind
    begin: int
    attempt: int
    message: str
    taken: bool = False
    """Only its name is taken, by a pod that is another or going: the next attempt has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObserved:
    """A node that is this pool's to use."""

    name: str
    ready: bool
    cpu: float
    """Allocatable cores less the requests of pods that are not ours."""
    memory: int
    """Allocatable bytes less the requests of pods that are not ours."""
    pods: int = 110
    """Allocatable pods less those that are not ours."""
    speed: float = 1.0
    """What multiplies the time of a unit here: 2 is half as fast."""
    left_out: str | None = None
    """A reason not to use it: StaticCPUManager, NodesOverlap, …"""


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node that is no longer there, or no longer this pool's."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the agent read of one pod."""

    pod: str
    """uid"""
    done: int | None
    end: int | None
    """The end the worker will honour, if it has answered."""
    cpu_seconds: float
    received: int | None = None
    """Bytes that its input step has fetched."""
    over: bool = False
    """What was read is its last word: its containers have ended, and an answer to an offer would be in it."""
    faults: frozenset[str] = frozenset()
    """What was wrong with its files so far, as a user shall read it: "progress goes backwards"."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One node's report, already checked for its sender and order."""

    node: str
    pods: tuple[Progress, ...]


Event = (
    PoolApplied
    | JobApplied
    | JobDeleted
    | ReservationApplied
    | ReservationDeleted
    | PodObserved
    | PodGone
    | CreateRefused
    | NodeObserved
    | NodeGone
    | Reported
)
