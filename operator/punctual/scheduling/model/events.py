"""Events of a Pool. Level-triggered: each describes a state, not a change; the newest per key counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from punctual import reasons
from punctual.control.response import Response
from punctual.scheduling.model import pod_reasons
from punctual.scheduling.model.job import InputVersion, Job, JobRecord, Kind, Transfer
from punctual.scheduling.model.node_rules import HostPort, Taint
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.model.wording import SAID, last_words, span

PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended."""
Outcome = Literal["Succeeded", "Failed"]
"""How work has ended."""
OUT_OF_MEMORY = "OOMKilled"
"""Reason of a container in which the kernel has killed a process for lack of memory, whatever its exit code."""
NO_UTF8 = "\ufffd"
"""What the API server shows for each byte of a message that is not UTF-8."""


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


@dataclass(frozen=True, slots=True)
class UnitsCounted:
    """What the controller of a Job counts of a job with the Job's pods, whatever was seen of these."""

    uid: str
    done: Ranges
    """Units of which a pod has succeeded."""
    failed: str = ""
    """Why the Job has failed. Empty: it has not."""


class ResultFault(NamedTuple):
    """Why a message is not the result that the work has left: a reason, and words that go on after its name."""

    reason: str
    text: str


class Helper(NamedTuple):
    """A container beside the work's, as it is when the work has ended."""

    name: str
    exit_code: int | None = None
    """None: it has not ended."""
    reason: str = ""


class Remark(NamedTuple):
    """Something that users should know about a pod after the end of its work. ``key``: once per job is enough."""

    reason: str
    key: str
    text: str
    warning: bool


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
    """When the work's container began to run."""
    finished: float | None = None
    """When the work's container ended; that of the init container that failed, if one has."""
    exit_code: int | None = None
    """Exit status of the container that ``finished`` is about."""
    container: str = ""
    """The name of that container."""
    reason: str = ""
    """Why it ended or waits, as `pod_reasons` lists it: the pod's own reason, otherwise that of its container."""
    disrupted: bool = False
    """It has the condition DisruptionTarget: the cluster ended it, not the workload."""
    message: str = ""
    """Termination message: the range's result, at most 4 kB; for a waiting pod, the cluster's message about
    ``reason``."""
    said: str = ""
    """The cluster's message about the pod's own reason, such as the limit for which it was evicted."""
    ended: Outcome | None = None
    """How the work's container has ended, though the pod goes on or ends in another way; None: as the pod."""
    helpers: tuple[Helper, ...] = ()
    """Once the work has ended: the containers beside it that have not ended, or not well."""
    preparing: bool = False
    """One of its init containers has begun."""
    grace: float = 30.0
    """Seconds that its containers have to end when it is deleted."""
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
    input_unavailable: bool = False
    """The step failed since the input's server sent nothing for stallTimeout: it is busy, or not up."""
    requests: Resources | None = None
    """What kube-scheduler counts for it on its node: nothing while it is bound to none. None: just a processor."""

    @property
    def outcome(self) -> Outcome | None:
        """How the work has ended: by its own container's exit, whatever others of the pod do. None: it has not."""
        if self.ended is not None:
            return self.ended
        return cast(Outcome, self.phase) if self.over else None

    @property
    def over(self) -> bool:
        """Whether the pod has ended: it holds no capacity any more."""
        return self.phase in OVER

    @property
    def runs(self) -> bool:
        """Whether the work's container runs. A pod is Pending as long as any of its containers waits."""
        began = self.phase == "Running" or (self.phase == "Pending" and self.started is not None)
        return began and self.outcome is None

    @property
    def waits(self) -> bool:
        """Whether the work's container has not begun to run."""
        return self.phase == "Pending" and self.started is None and self.outcome is None

    @property
    def unstarted(self) -> str:
        """Why it has not started, in the cluster's words."""
        words = f"{self.reason}: {self.message[:SAID]}" if self.message else self.reason or "no reason is given"
        return f"pod {self.name} has not started: {words}"

    @property
    def detained(self) -> bool:
        """Whether only helpers keep the pod, after the end of the work, from coming to its own end."""
        return not self.over and self.outcome is not None and bool(self._running_helpers)

    @property
    def held_by(self) -> tuple[str, ...]:
        """The containers that keep a pod from its end after its work, where the whole pod counts: nothing ends them."""
        return self._running_helpers if self.outcome is None else ()

    @property
    def _running_helpers(self) -> tuple[str, ...]:
        """Names of the containers that still run beside work that has ended."""
        return tuple(helper.name for helper in self.helpers if helper.exit_code is None)

    @property
    def own_failure(self) -> bool:
        """Whether a pod that failed did so by its own fault: neither the cluster nor a person ended it."""
        if self.disrupted or self.deleting or self.input_unavailable:
            return False
        return pod_reasons.is_own(self.reason, self.exit_code)

    @property
    def result_fault(self) -> ResultFault | None:
        """Why its message is not the result that its work has left; None: it is."""
        # a cut within a character leaves up to three bytes of it at either end
        whole = self.message if self.cut is None else self.message[3:-3]
        if NO_UTF8 in whole:
            return ResultFault(reasons.RESULT_NOT_TEXT, "is not UTF-8: encode it, say as base64")
        if self.cut is None:
            return None
        text = (
            f"is cut: the kubelet passes on {self.cut} bytes of each container's message, so a result may have at most "
            f"{self.cut - 1} (PUNCTUAL_RESULT_LIMIT); store it elsewhere under a name made of its range and use the "
            "name as the result"
        )
        return ResultFault(reasons.RESULT_CUT, text)

    @property
    def failure(self) -> str:
        """How a pod failed, in words."""
        code = f"exit code {self.exit_code}" if self.exit_code is not None else self.reason or "failed"
        text = f"pod {self.name}, container {self.container}: {code}" if self.container else f"pod {self.name}: {code}"
        if self.reason and self.exit_code is not None:
            text += f" ({self.reason})"
        if self.said:
            text += f": {self.said[:SAID].rstrip('. ')}"
        row = pod_reasons.row_of(self.reason)
        if row is not None and row.do and self.own_failure:
            text += f": {row.do}"
        if self.started is None and self.message:  # the message of the init step
            return f"{text}: {self.message[:SAID]}"
        words = last_words(self.message)
        return f"{text}; its log ends: {words}" if words else text

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What users should know of the pod of work that has succeeded, or ended in a pod that goes on."""
        told, names = [], ", ".join(self._running_helpers)
        if self.held_by:
            text = (
                f"pod {self.name}: the work has ended, and other containers still run ({names}): the pod keeps its "
                "processor until they end, because its Job counts it then. Let them end with the work, or make them "
                "init containers with restartPolicy Always"
            )
            return (Remark(reasons.HELPER_RUNS, f"{reasons.HELPER_RUNS} {names}", text, warning=True),)
        if self.detained:
            text = (
                f"pod {self.name}: the work has ended, and other containers still run ({names}): they are ended, with "
                f"a grace period of {span(self.grace)}. A container beside the work should end with it, or be an init "
                "container with restartPolicy Always"
            )
            told.append(Remark(reasons.HELPER_ENDED, f"{reasons.HELPER_ENDED} {names}", text, warning=False))
        for container in (Helper(self.container, self.exit_code, self.reason), *self.helpers):
            if container.exit_code is None or (not container.exit_code and container.reason != OUT_OF_MEMORY):
                continue
            row = pod_reasons.row_of(container.reason)
            advice = f": {row.do}" if row is not None and row.do else ""
            why = f" ({container.reason})" if container.reason else ""
            text = (
                f"pod {self.name}: container {container.name} ended with exit code {container.exit_code}{why}{advice}. "
                "The work has ended with exit code 0, so its units count"
            )
            told.append(Remark(reasons.HELPER_FAILED, f"{reasons.HELPER_FAILED} {container.name}", text, warning=True))
        return tuple(told)


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
    instead: int | None = None
    """A unit with a pod at the gate: the Job's controller creates none for the chunk's unit as long as those wait."""


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

    @property
    def left(self) -> Resources:
        """What foreign pods leave of the node."""
        return Resources(self.cpu, self.memory, self.others)


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
    | UnitsCounted
    | ReservationApplied
    | ReservationDeleted
    | PodObserved
    | PodGone
    | CreateRefused
    | NodeObserved
    | NodeGone
    | Reported
)
