"""The values of :class:`punctual.guests.control.GuestControl`: what is asked, what happens, what is to be done.

A guest job has the record, chunks and ledger of any divisible job (:mod:`punctual.scheduling.model`), but no promise:
`Chunk.promised_end` is a forecast. Events describe states, not changes: of two with one key (`key_of`) only the newer
matters, but for the lines of reports (`merged`). Times are seconds on one clock, the API server's; ages and intervals
come from nodes as seconds that have passed.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from punctual.linger.cost import Move
from punctual.linger.policy import Decision, Policy
from punctual.scheduling.model.actions import (
    CreateChunk,
    DeleteJob,
    DropSetPoint,
    Emit,
    EndPod,
    OfferEnd,
    StopPod,
    StoreResult,
    WriteStatus,
)
from punctual.scheduling.model.events import CreateRefused, PodGone, PodObserved
from punctual.scheduling.model.job import JobRecord, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest(Work):
    """A guest job as specified. Its chunks leave while it is suspended or refused."""

    cpu_per_unit: float
    """CPU seconds of a unit, estimated, more than 0. It counts until chunks have shown what a unit takes."""
    most: int | None = None
    """Most chunks at once; None: as many as there are places."""
    policy: Policy = "LingerLonger"
    weight: float = 1.0
    """Its share of the CPU that guests get, against the weights of others; more than 0."""
    cores: float = 1.0
    """CPU that a chunk can use."""
    memory: int = 0
    """Bytes that a chunk needs."""
    most_lost: float = 60.0
    """CPU seconds that the end of one pod may cost, at most. A single unit may cost more."""
    start_timeout: float = 300.0
    """Seconds in which a pod must run."""
    preview: bool = False
    """Its chunks run, and moves are decided and reported, but no chunk moves."""


class GuestNode(NamedTuple):
    """A node of the pool. ``cores``, ``memory`` (bytes): what chunks of guests may take together."""

    name: str
    cores: float
    memory: int
    schedulable: bool = True
    """False: no chunk may start here, and those that run hand back what they have not begun."""
    speed: float = 1.0
    """Factor of the time of a unit on this node: 2 is half as fast."""


class ChunkSeen(NamedTuple):
    """A chunk's line of a node's report."""

    pod: str
    """uid"""
    done: int | None
    end: int | None
    """The end that the worker will honour, if it has answered an offer."""
    cpu_seconds: float
    memory: int = 0
    """Bytes in use."""
    over: bool = False
    """Its containers have ended: an answer to an offer would be in this line."""


class HostSeen(NamedTuple):
    """The hosts of a node, as its agent sees them; all uses are fractions of the node's CPU."""

    use: float
    """Now."""
    busy: bool = False
    age: float = 0.0
    """Seconds since the present interval, busy or idle, began."""
    mean: float = 0.0
    """Mean use in that interval."""


# events


@dataclass(frozen=True, slots=True)
class GuestApplied:
    """A guest job as it is now. ``record`` is read only if the job is not known yet; its pods come before it."""

    guest: Guest
    record: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class GuestDeleted:
    """A guest job (uid) is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """All nodes of the pool. What runs on other nodes is lost."""

    nodes: tuple[GuestNode, ...]


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A node's report. ``excess``: bytes that guests must give back at once, as their agent cannot press them out.

    ``host`` is None where the agent cannot hold guests down, or does not know its hosts yet: no chunk starts there.
    """

    node: str
    host: HostSeen | None
    chunks: tuple[ChunkSeen, ...] = ()
    excess: int = 0


Event = GuestApplied | GuestDeleted | NodesSeen | NodeReported | PodObserved | PodGone | CreateRefused


def key_of(event: Event) -> Hashable:  # noqa: PLR0911  one line for each kind
    """Return the key of an event; of two events with one key, only the newer matters."""
    match event:
        case GuestApplied():
            return ("guest", event.guest.uid)
        case GuestDeleted():
            return ("guest", event.uid)
        case NodesSeen():
            return ("nodes",)
        case NodeReported():
            return ("report", event.node)
        case PodObserved():
            return ("pod", event.uid)
        case PodGone():
            return ("gone", event.namespace, event.name, event.uid)
        case CreateRefused():
            return ("refused", event.job, event.begin, event.attempt)


def merged(older: Event, newer: Event) -> Event:
    """Merge two events of one key: the newer one, and for reports the newest line of each pod."""
    if isinstance(older, NodeReported) and isinstance(newer, NodeReported):
        lines = {seen.pod: seen for seen in (*older.chunks, *newer.chunks)}
        return NodeReported(newer.node, newer.host, tuple(lines.values()), newer.excess)
    return newer


# actions

Cause = Literal["Policy", "NodeFreed", "Unschedulable", "Suspended", "AtRisk"]
"""Why it was decided about a chunk: its policy; memory of its node; a node that takes no chunks; `Guest.suspend` or
`Guest.refusal`; it has used more CPU since its last saved unit than `Guest.most_lost`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision about a running chunk, with its arithmetic; told when its step or cause changes."""

    job: str
    pod: str
    """uid"""
    node: str
    policy: Policy
    cause: Cause
    decision: Decision
    """Step, age of the episode, and age from which on a move pays."""
    host_use: float
    """Mean use by hosts on its node in the episode (h)."""
    goal: str | None = None
    """The node for its rest; None: there is none, or any."""
    goal_use: float | None = None
    """Mean use by hosts there (l)."""
    move: Move | None = None
    """Speeds here and there, cost and work left; None: no move was weighed."""
    left: float = 0.0
    """Seconds of work that it could hand back."""
    loss: float = 0.0
    """CPU seconds that are lost if its pod is killed now."""
    deaf: bool = False
    """Chunks of its job have not answered offers."""
    acted: bool = True
    """False: the job is in preview."""


class LendTo(NamedTuple):
    """Let a guest's pod have what its node's own work leaves, at the lowest priority. `DropSetPoint` ends it."""

    node: str
    pod: str
    """uid"""
    units: int
    """Units of its chunk."""
    weight: float
    """Against other guests."""
    paused: bool = False
    """It has nothing but the least cap."""


Action = (
    WriteStatus
    | CreateChunk
    | OfferEnd
    | EndPod
    | StopPod
    | StoreResult
    | LendTo
    | DropSetPoint
    | Decided
    | Emit
    | DeleteJob
)
"""Those of one step are in order: results, statuses, then what the statuses say."""
