"""Jobs and their records: specs, promises, chunks, and everything recorded about them.

All times are float seconds on one clock (the API server's), all units int. This module makes no decisions.
"""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from punctual import reasons
from punctual.control.response import Response
from punctual.errors import InvariantError
from punctual.scheduling.model.node_rules import ANY_NODE, NodeRules
from punctual.scheduling.model.ranges import Counts, Ranges
from punctual.scheduling.model.resources import Resources
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

Restart = Literal["Redo", "Resume"]
OnMiss = Literal["Continue", "Stop"]
OnRefusal = Literal["Stop", "Continue"]
Retention = Literal["Failed", "All", "None"]
Kind = Literal["Chunk", "Pilot", "Reduce", "Guest"]
WITHOUT_PROMISE: Final = frozenset({
    reasons.INFEASIBLE_CAPACITY, reasons.INFEASIBLE_STARTUP, reasons.SHARE_USED_UP, reasons.DEADLINE_TOO_FAR,
})  # fmt: skip
"""Reasons of a refusal with which a job may go on: it lacks a promise, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every divisible job specifies, with a deadline or as a guest. Times are seconds."""

    uid: str
    namespace: str
    name: str
    generation: int = 1
    units: int
    restart: Restart = "Redo"
    chunk_retries: int = 3
    stall_timeout: float = 60.0
    """Seconds without progress and CPU after which a chunk has failed."""
    retention: Retention = "Failed"
    suspend: bool = False
    ttl: float | None = None
    """Seconds for which the job is kept after its end, or its refusal; None: without limit."""
    refusal: tuple[str, str] | None = None
    """(reason, message) if the edge of the system found it unable to run: pod refused, profile missing, …"""


class PodSize(NamedTuple):
    """What each pod of a job takes, if another controller makes them."""

    requests: Resources
    most_cpu: float | None = None
    """Its CPU limit, cores; None: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Work):
    """A job with a deadline as specified."""

    arrival: float
    """Creation time."""
    deadline: float
    """Absolute time."""
    cost: Cost | None
    """As declared, by hand or by profile; None: to be measured by pilot chunks."""
    response: Response | None = field(default=None, compare=False)
    """How chunks of its profile have answered to CPU, on a processor of speed 1. Nothing that a user edits."""
    min_processors: int = 1
    max_processors: int | None = None
    least_chunk: int = 1
    """Units below which a chunk is not worth its set-up, unless its promise needs a smaller one."""
    image_timeout: float = 300.0
    """Seconds for which pods that cannot start for their image or configuration are the cluster's fault."""
    on_miss: OnMiss = "Continue"
    on_refusal: OnRefusal = "Stop"
    dry_run: bool = False
    reservation: str | None = None
    """The reservation that it must run inside (`Reservation.group`); None: it runs outside of all."""
    reduce_duration: float | None = None
    """Seconds planned for the reduce pod after the last chunk; None: no reduce."""
    pod_limit: float | None = None
    """Seconds after which the cluster ends one of its chunks' pods (activeDeadlineSeconds of the template) ..."""
    reduce_limit: float | None = None
    """... and the pod of its reduce step; None: it does not."""
    fetches: bool = False
    """Its chunks have an input step, which waits for a transfer turn."""
    unit_pods: bool = False
    """Each pod does one unit, so a chunk is one unit, and start-up counts for each. It has no input step or reduce."""
    pod: PodSize | None = field(default=None, compare=False)
    """What its pods take, if another controller makes them. None: each takes a processor. Nothing that a user edits."""
    rules: NodeRules = field(default=ANY_NODE, compare=False)
    """Nodes on which its pods may run. Nothing that a user edits: claims are bound while the job is there."""

    def cost_of_part(self, cost: Cost) -> Cost:
        """Return its cost as that of a processor's part of it: with a pod for each unit, a unit has the set-up."""
        return cost.in_unit_pods() if self.unit_pods else cost


class Promise(NamedTuple):
    """The promised deadline. ``finish`` is a forecast and may change while it stays before the deadline."""

    deadline: float
    finish: float
    margin: float
    """Reserve before the deadline, seconds, that planning left free."""
    processors: int
    start: float
    given_up: bool = False
    """It cannot be kept any more: the job continues on leftover capacity."""


class FurtherProcessors(NamedTuple):
    """The fewest further processors, empty and of the pool's size, with which a refused deadline would be promised."""

    more: int
    start: float
    """When the plan uses the first of them: absolute, whole seconds."""
    until: float
    """When it has done with the last: absolute, whole seconds."""


class Offer(NamedTuple):
    """Nearest acceptable alternative to a refused request."""

    earliest_deadline: float | None
    """Seconds after a new submission, whole, submission allowance included; None: no deadline is acceptable."""
    valid_until: float
    largest_load: int
    """Units that would fit the requested deadline."""
    processors: FurtherProcessors | None = None
    """What the pool lacks for the requested deadline; None: no number of processors that was tried is enough."""

    @property
    def earliest_time(self) -> float | None:
        """The earliest deadline as an absolute time, whole seconds.

        It counts from when the offer ends: an edit until then has no less time than was tested.
        """
        return None if self.earliest_deadline is None else math.ceil(self.valid_until + self.earliest_deadline)


class PilotSample(NamedTuple):
    """Result of a pilot, or of units with a pod each: units, and seconds from the pods' creation to their ends."""

    units: int
    seconds: float


class InputVersion(NamedTuple):
    """Version of a job's input: results of chunks that read different versions cannot be combined."""

    size: int
    """Bytes of the whole input."""
    validator: str
    """Distinguishes versions of the same size, as the input step reports it; empty: there is none."""

    def __str__(self) -> str:
        """Return a text for messages."""
        return f"{self.size} bytes, " + (f"validator {self.validator}" if self.validator else "no validator")


class Transfer(NamedTuple):
    """Measurements of one chunk's input step."""

    size: int
    """Bytes received."""
    opening: float
    """Seconds from its transfer turn until the first byte came."""
    seconds: float
    """Seconds from its transfer turn until the last byte had come."""
    waited: float = 0.0
    """Seconds that it had waited for its transfer turn."""


class Transfers(NamedTuple):
    """Totals of the transfers of accounted chunks."""

    times: int = 0
    units: int = 0
    size: int = 0
    """Bytes."""
    opening: float = 0.0
    """Total seconds until the first byte came."""
    sending: float = 0.0
    """Total seconds from the first byte on."""

    def add(self, units: int, size: int, *, opening: float, sending: float) -> "Transfers":
        """Return the totals with one more transfer."""
        return Transfers(
            self.times + 1, self.units + units, self.size + size, self.opening + opening, self.sending + sending
        )

    @property
    def tau(self) -> float:
        """Measured τ, seconds per unit."""
        return self.sending / self.units if self.units else 0.0

    @property
    def theta_cm(self) -> float:
        """Measured θcm, seconds per transfer."""
        return self.opening / self.times if self.times else 0.0


class Chunk(NamedTuple):
    """Units owned by one attempt: recorded before its pod exists, until accounted.

    It is a tuple, like the record: both are copied whenever a chunk begins, is reported or ends, and copies are cheap.
    """

    begin: int
    end: int
    """The end it owns; lower than ``origin`` once it has agreed to an earlier end."""
    origin: int
    """The end its pod was created with."""
    node: str
    attempt: int
    created: float
    """Time of the decision to create it."""
    promised_end: float
    """Planned end (forecast for a leftover chunk)."""
    kind: Kind = "Chunk"
    sent: float | None = None
    """When its input was planned to be complete; None: it shares no port."""
    turn: float | None = None
    """When it got its transfer turn; None: it has none, or no input to fetch."""
    offered: int | None = None
    """End offered to it and not yet answered."""
    leftover: bool = False
    """It runs on leftover capacity: it must leave when the processor is needed."""
    late: bool = False
    """It was not done at its planned end and got a later one, or its agent can no longer keep it on its line: idle
    processors may take a part of its rest."""
    done: int = 0
    """Units it has reported (for people; no decision uses it)."""
    received: int = 0
    """Bytes of its input that it has reported (for people)."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Identity within the job: kind, begin and attempt (an earlier end changes none of them)."""
        return (self.kind, self.begin, self.attempt)

    @property
    def size(self) -> int:
        """Units owned."""
        return self.end - self.begin

    @property
    def what(self) -> str:
        """What it does, in words."""
        return "reduce" if self.kind == "Reduce" else f"units {self.begin}-{self.end}"


class JobRecord(NamedTuple):
    """Everything recorded about a job: a new leader rebuilds the Pool from these records alone."""

    epoch: int = 0
    observed_generation: int = 0
    admitted: Verdict | None = None
    on_track: Verdict | None = None
    completed_condition: Verdict | None = None
    failed_condition: Verdict | None = None
    spec_applied: Verdict | None = None
    promise: Promise | None = None
    offer: Offer | None = None
    cost: Cost | None = None
    """The cost in force: declared or measured."""
    completed: Ranges = Ranges()
    failed: Counts = Counts()
    """Failures per unit that the workload caused."""
    tried: Counts = Counts()
    """Attempts so far per unit that is not completed."""
    chunks: tuple[Chunk, ...] = ()
    pilots: tuple[PilotSample, ...] = ()
    """What pilots have taken; and all other units, if each has a pod (:mod:`punctual.scheduling.chunks.unit_times`)."""
    transfers: Transfers | None = None
    input: InputVersion | None = None
    """The version of the input that the first chunk read; every other chunk must have read the same."""
    results: bool = False
    """A chunk has left a result that is kept to be read, because no reduce step reads it."""
    started: float | None = None
    finished: float | None = None
    refused: float | None = None
    """When it was refused. It stands while a refused job is asked again without an edit, until another answer comes."""
    goes_on: bool = False
    """It was refused, and runs on leftover capacity without a promise (`onRefusal: Continue`)."""
    done: int = 0
    """Units completed, plus units that running chunks have reported (for people; no decision uses it)."""
    running: int = 0
    eta: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the job has ended, with or without success."""
        return self.finished is not None

    @property
    def over(self) -> float | None:
        """When it ended or was refused: from then on its time to live counts."""
        return self.refused if self.finished is None else self.finished

    def check(self, units: int) -> None:
        """Raise InvariantError unless ranges are valid, no unit is owned twice and no pilot took a negative time."""
        self.completed.check()
        self.failed.check()
        self.tried.check()
        work = [c for c in self.chunks if c.kind != "Reduce"]
        owned = Ranges.of(*((c.begin, c.end) for c in work))
        if owned.total != sum(c.size for c in work):
            raise InvariantError(f"two chunks own the same unit: {work}")
        if (owned & self.completed).total:
            raise InvariantError(f"a chunk owns completed units: {owned & self.completed}")
        for r in (owned | self.completed).parts:
            if r.end > units:
                raise InvariantError(f"{r} goes beyond {units} units")
        if len({c.key for c in self.chunks}) != len(self.chunks):
            raise InvariantError("two chunks have one identity")
        if any(sample.seconds < 0 for sample in self.pilots):
            raise InvariantError(f"a pilot ended before it began: {self.pilots}")

    def others(self, chunk: Chunk) -> tuple[Chunk, ...]:
        """Return all chunks except this one."""
        for i, c in enumerate(self.chunks):
            if c.begin == chunk.begin and c.attempt == chunk.attempt and c.kind == chunk.kind:
                return self.chunks[:i] + self.chunks[i + 1 :]
        return self.chunks

    def without(self, chunk: Chunk) -> "JobRecord":
        """Return the record without this chunk."""
        return self._replace(chunks=self.others(chunk))

    def changed(self, chunk: Chunk) -> "JobRecord":
        """Return the record with this chunk in place of its earlier version. Raises InvariantError if it has none."""
        if all(c.key != chunk.key for c in self.chunks):
            raise InvariantError(f"chunk {chunk.key} is not owned")
        return self._replace(chunks=tuple(chunk if c.key == chunk.key else c for c in self.chunks))
