"""What a Pool wants done. Each names what it is about, so doing it twice is harmless.

Within one job actions are carried out in order: a chunk is in the written status before its pod is created, a result
is stored before the status accounts it, the status accounts a range before its pod is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from punctual.control.cost_estimation import Fetched
from punctual.scheduling.model.job import Chunk, JobRecord, Verdict
from punctual.scheduling.model.pool_spec import PoolRecord
from punctual.scheduling.model.processors import Place


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a job's whole record; a newer one replaces an older one that has not been written yet.

    ``urgent``: a decision or a change of ownership; the rest is progress, written behind under a budget.
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
    """Say how a reservation stands; ``places``: what it has got. Said again where nodes take a part of it away."""

    uid: str
    answer: Verdict
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferWindow:
    """Say when a reservation that was refused would be accepted at the earliest, in whole seconds; None: never."""

    uid: str
    start: float | None


class CreateChunk(NamedTuple):
    """Create the pod of a chunk (or pilot, or reduce) that the record already holds."""

    job: str
    chunk: Chunk


class EndPod(NamedTuple):
    """Delete a pod, this uid and no other, giving it ``grace`` seconds."""

    namespace: str
    name: str
    uid: str
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class OfferEnd:
    """Annotate the chunk's pod with an end it may stop at."""

    namespace: str
    name: str
    uid: str
    end: int


@dataclass(frozen=True, slots=True)
class GiveTurn:
    """Annotate the chunk's pod: its input step may fetch now. ``at`` is when that was decided."""

    namespace: str
    name: str
    uid: str
    at: float


@dataclass(frozen=True, slots=True)
class StoreResult:
    """Keep the termination message of an accounted range for the reduce step."""

    job: str
    begin: int
    end: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoint:
    """What the agent of ``node`` shall hold for a pod from now on; ``end`` is absolute, agents get seconds left."""

    node: str
    pod: str
    """uid"""
    cap: float
    """cores"""
    period: float
    """seconds"""
    units: int
    end: float


class DropSetPoint(NamedTuple):
    """The pod has ended: the agent need not care any more."""

    node: str
    pod: str


@dataclass(frozen=True, slots=True)
class HoldNode:
    """Put the pool's NoSchedule taint on a node, or take it off (``hold: Taint``)."""

    node: str
    held: bool


class HeldCapacity(NamedTuple):
    """Room of a node that placeholders keep."""

    since: float
    """From when on: who came later may be told to go, and does not count."""
    placeholders: int
    """Of one processor each: as many as nobody sits on."""


@dataclass(frozen=True, slots=True)
class HoldCapacity:
    """Keep the pool's room with placeholders, on these nodes and no others (``hold: Placeholder``)."""

    nodes: Mapping[str, HeldCapacity]
    cpu: float
    """Cores of a processor."""
    memory: int
    """Bytes of a processor."""


class Measured(NamedTuple):
    """A chunk has ended well: what its units took on that node, from the decision to create it, s.

    ``fetched``: the transfer of its input, which is a part of it.
    """

    job: str
    node: str
    units: int
    seconds: float
    fetched: Fetched | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Its time to live after the end is over."""

    job: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the user: an event on the job (``job``: uid) or on the pool (None)."""

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
    | EndPod
    | OfferEnd
    | GiveTurn
    | StoreResult
    | SetPoint
    | DropSetPoint
    | HoldNode
    | HoldCapacity
    | Measured
    | DeleteJob
    | Emit
)
