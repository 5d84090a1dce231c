"""Events of a Pool. Level-triggered: each describes a state, not a change; the newest per key counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from punctual.control.response import Response
from punctual.scheduling.model.job import InputVersion, Job, JobRecord, Kind, Transfer
from punctual.scheduling.model.node_rules import HostPort, Taint
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.model.wording import SAID, last_words

PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]

OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended."""
NO_VOLUME = "NoVolume"
"""Punctual's own reason for a pod that cannot be scheduled because a claim that it names is missing or not bound."""
NOMINATED = "Nominated"
"""Waiting reason of a pod for which the scheduler is preempting other pods."""
NOT_OWN = frozenset({
    "Preempted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "OutOfcpu", "OutOfmemory",
    "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", "DeadlineExceeded",
})  # fmt: skip
"""Pod reasons that the cluster causes, not the workload.

Evicted is not one of them. If the node was short of a resource, the kubelet adds DisruptionTarget; without that
condition, the pod exceeded a limit of its own.
"""


@dataclass(frozen=True, slots=True)
class PoolApplied:
    """The current spec of the pool; ``record`` is read only by a Pool that has none yet (rebuild)."""

    spec: PoolSpec
    record: PoolRecord | None = None
    deleting: bool = False
    nodes: "tuple[NodeObserved, ...] | None" = None
    """The nodes that it would have under the spec's selectors; None: the nodes already observed."""


@dataclass(frozen=True, slots=True)
class JobApplied:
    """The current spec of a job; ``record`` is read only if the Pool does not know the job (rebuild)."""

    job: Job
    record: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class JobDeleted:
    """The job is deleted or being deleted: it owns nothing any more, and its pods are ended."""

    uid: str


class PodObserved(NamedTuple):
    """A pod of this pool as the API server shows it: a projection, never the whole object."""

    name: str
    uid: str
    namespace: str
    job: str
    """Uid of its job."""
    kind: Kind
    begin: int
    end: int
    """The end it was created with (``Chunk.origin``)."""
    attempt: int
    node: str
    """The node that it is bound to or meant for."""
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
    """It has the condition DisruptionTarget: the cluster ended it, not the workload."""
    message: str = ""
    """Termination message: the range's result, at most 4 kB; for a waiting pod, the cluster's message about
    ``reason``."""
    cut: int | None = None
    """Number of bytes to which the kubelet cuts termination messages, if this one has as many: it may have been longer.
    None: it is complete."""
    deleting: bool = False
    offered: bool = False
    """It was offered an end, by this leader or an earlier one: it may have stopped before its own end."""
    turn: bool = False
    """It has the transfer turn."""
    fetched: bool = False
    """Its input step has ended with success."""
    transfer: Transfer | None = None
    """The measurements of that step."""
    input: InputVersion | None = None
    """The version of the input that it reports to have read; None: not reported."""
    input_changed: bool = False
    """The step failed since the input is not the one that the job began with, or changed while it was read."""
    requests: Resources | None = None
    """What kube-scheduler counts for it on its node: nothing while it is bound to none. None: just a processor."""

    @property
    def own_failure(self) -> bool:
        """Whether a pod that failed did so by its own fault: neither the cluster nor a person ended it."""
        return not self.disrupted and not self.deleting and self.reason not in NOT_OWN

    @property
    def failure(self) -> str:
        """How a pod failed, in words."""
        code = f"exit code {self.exit_code}" if self.exit_code is not None else self.reason or "failed"
        text = f"pod {self.name}: {code}"
        if self.reason and self.exit_code is not None:
            text += f" ({self.reason})"
        if self.started is None and self.message:  # the message of the init step
            return f"{text}: {self.message[:SAID]}"
        words = last_words(self.message)
        return f"{text}; its log ends: {words}" if words else text


class Share(NamedTuple):
    """A number of processors of one node."""

    node: str
    processors: int


@dataclass(frozen=True, slots=True)
class ReservationApplied:
    """A reservation that was applied; a known one is not decided again."""

    reservation: Reservation
    held: tuple[Share, ...] | None = None
    """The processors that it got before, as recorded; None: it has no answer yet."""


@dataclass(frozen=True, slots=True)
class ReservationDeleted:
    """The reservation is deleted: the rest of its window is free."""

    uid: str


class PodGone(NamedTuple):
    """A pod of this pool that the API server no longer has."""

    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRefused:
    """The API server refused a chunk's pod (quota, LimitRange, …): nothing runs."""

    job: str
    kind: Kind
    begin: int
    attempt: int
    message: str
    taken: bool = False
    """Only its name is in use, by a pod that is not this attempt's, or that terminates: the next has another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObserved:
    """A node that this pool may use."""

    name: str
    ready: bool
    cpu: float
    """Allocatable cores less the requests of foreign pods."""
    memory: int
    """Allocatable bytes less the requests of foreign pods."""
    pods: int = 110
    """Allocatable pods less the foreign pods."""
    others: tuple[tuple[str, int], ...] = ()
    """(name, amount) of other allocatable resources less the requests of foreign pods (`Resources.others`)."""
    speed: float = 1.0
    """Factor of the time of a unit on this node: 2 is half as fast."""
    left_out: str | None = None
    """Reason why the node is not used: StaticCPUManager, NodesOverlap, …"""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    """Taints that keep pods off, without the pool's own. Its processors are for jobs that tolerate all of them."""
    ports: frozenset[HostPort] = frozenset()
    """Host ports that other pods hold there."""


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node that no longer exists, or no longer belongs to this pool."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The agent's readings of one pod."""

    pod: str
    """Pod uid."""
    done: int | None
    end: int | None
    """The end that the worker will honour, if it has answered."""
    cpu_seconds: float
    received: int | None = None
    """Bytes that its input step has fetched."""
    over: bool = False
    """This is the last report: its containers have ended, and an answer to an offer would be in it."""
    saturated: float = 0.0
    """Seconds for which it has needed more CPU than its agent can give it to be in time."""
    response: Response | None = None
    """How it answers to CPU, as it has shown; None: it has not yet."""
    faults: frozenset[str] = frozenset()
    """Faults of its files so far, in words for users: "progress goes backwards"."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One node's report; its sender and order have been checked."""

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
