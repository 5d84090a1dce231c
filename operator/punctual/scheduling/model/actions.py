"""Actions that a Pool returns. Each names its object, so carrying it out twice is harmless.

The actions of one job are carried out in order: a chunk is in the written status before its pod is created, a result is
stored before the status accounts it, and the status accounts a range before its pod is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from punctual.control.cost_estimation import Fetched
from punctual.control.response import Response
from punctual.scheduling.model.job import Chunk, JobRecord
from punctual.scheduling.model.pool_spec import PoolRecord
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.resources import Resources
from punctual.verdict import Verdict


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a job's whole record; a newer one replaces an older one that has not been written yet.

    ``urgent``: a decision or a change of ownership. All other changes are progress, written later under a budget.
    """

    job: str
    record: JobRecord
    urgent: bool = True


@dataclass(frozen=True, slots=True)
class WritePool:
    """Write the pool's whole record."""

    record: PoolRecord
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class AnswerReservation:
    """Write a reservation's state; ``places``: its processors. Written again if nodes take some of them away."""

    uid: str
    answer: Verdict
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferWindow:
    """Write the earliest start, in whole seconds, with which a refused reservation would be accepted; None: none."""

    uid: str
    start: float | None


class CreateChunk(NamedTuple):
    """Create the pod of a chunk (or pilot, or reduce) that the record already holds."""

    job: str
    chunk: Chunk


class WithdrawChunk(NamedTuple):
    """Do not start this chunk of a job with the pods of a Job. `CreateRefused` tells if there will be no pod of it."""

    job: str
    chunk: Chunk


class EndPod(NamedTuple):
    """Delete the pod with this uid and no other, with a grace period of ``grace`` seconds."""

    namespace: str
    name: str
    uid: str
    grace: float = 5.0


class StopPod(NamedTuple):
    """End the containers of the pod with this uid, with its own grace period; the pod stays, to be read."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class OfferEnd:
    """Annotate the chunk's pod with an end that it may stop at."""

    namespace: str
    name: str
    uid: str
    end: int


@dataclass(frozen=True, slots=True)
class GiveTurn:
    """Annotate the chunk's pod: its input step may fetch now. ``at`` is the time of that decision."""

    namespace: str
    name: str
    uid: str
    at: float


@dataclass(frozen=True, slots=True)
class StoreResult:
    """Keep the termination message of an accounted range: for the reduce step, or to be read if there is none."""

    job: str
    begin: int
    end: int
    message: str
    for_reduce: bool = True
    """Whether the job has a reduce step; otherwise the result is kept for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedLine:
    """The line of a chunk: its agent moves the cap, so that the chunk ends at its planned end."""

    pool: str
    pool_cores: float
    """CPU of all processors that the pool has on the node, cores."""
    units: int
    """Units that the chunk owns."""
    planned: float
    """Planned seconds from its creation to its end."""
    cpu_per_unit: float
    """Estimated CPU seconds of a unit on this node."""
    due: float
    """When the job's chunks must have ended, absolute: the planned end may be much earlier."""
    response: Response | None = None
    """How the job's other chunks have answered to CPU, on this node; None: nothing is known."""
    ceiling: float | None = None
    """Largest CPU that it may get, cores; None: its own processor's, or more if it needs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSetPoint:
    """Set point for the agent of ``node`` and a pod; ``end`` is absolute, agents get the seconds left."""

    node: str
    pod: str
    """uid"""
    cap: float
    """cores"""
    period: float
    """seconds"""
    units: int
    end: float
    line: FollowedLine | None = None
    """None: the chunk holds its cap."""


class DropSetPoint(NamedTuple):
    """Remove the set point of a pod that has ended."""

    node: str
    pod: str


@dataclass(frozen=True, slots=True)
class HoldNode:
    """Put the pool's NoSchedule taint on a node, or remove it (``hold: Taint``)."""

    node: str
    held: bool


class HeldCapacity(NamedTuple):
    """Capacity of a node that placeholders keep."""

    since: float | None
    """Time since when: pods that came later may be preempted and do not count. None: all pods count."""
    placeholders: int
    """Number of placeholders, one per unoccupied processor."""
    rests: tuple[Resources, ...] = ()
    """What pods of Jobs leave of their processors: each gets a placeholder of its size."""


@dataclass(frozen=True, slots=True)
class HoldCapacity:
    """Keep the pool's capacity with placeholders, on these nodes and no others.

    Unoccupied processors are kept with ``hold: Placeholder``, rests with ``hold: None``, too.
    """

    nodes: Mapping[str, HeldCapacity]
    processor: Resources
    """What one processor has."""


class Measured(NamedTuple):
    """Time that the units of a successful chunk took on its node, from the decision to create it, seconds.

    ``fetched``: the transfer of its input, which is a part of that time; ``response``: how it answered to CPU there.
    """

    job: str
    node: str
    units: int
    seconds: float
    fetched: Fetched | None = None
    response: Response | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a job at the end of its time to live."""

    job: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Emit a Kubernetes event on the job (``job``: uid) or on the pool (None)."""

    job: str | None
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = (
    WriteStatus
    | AnswerReservation
    | OfferWindow
    | WritePool
    | CreateChunk
    | WithdrawChunk
    | EndPod
    | StopPod
    | OfferEnd
    | GiveTurn
    | StoreResult
    | SendSetPoint
    | DropSetPoint
    | HoldNode
    | HoldCapacity
    | Measured
    | DeleteJob
    | Emit
)
