"""A job's status: the record from which a new leader rebuilds everything, and what a user wants to know.

Written before it is acted upon: a chunk stands here before its pod exists, until it is accounted. Bounded lists keep
the object below what etcd takes.
"""

from typing import Annotated, Literal

from pydantic import Field

from punctual.fetch import LONGEST
from punctual.kube.api.base import ApiModel
from punctual.kube.api.fields import MAX_RANGES, Bytes, Count, Position, Seconds, StatusDuration, Time, Units
from punctual.kube.api.meta import Conditions, Epoch

State = Literal["Measuring", "Refused", "Waiting", "Running", "Late", "Suspended", "Completed", "Missed", "Failed"]

NodeName = Annotated[str, Field(max_length=253)]


class PromiseStatus(ApiModel):
    """What was promised. The promise is the deadline; the rest is the plan, which may move as long as it is kept."""

    deadline: Time
    """By when the job will be done: the promise."""
    finish: Time
    """When it is planned to be done."""
    margin: StatusDuration
    """How long before the deadline the plan had to end: the pool's margin and what start-ups take beyond `startup`."""
    processors: Annotated[int, Field(ge=1)]
    """How many processors the plan uses."""
    start: Time
    """When its first chunk is planned to start."""
    given_up: bool | None = None
    """true: it cannot be kept any more, and the job goes on with leftover capacity; OnTrack says why."""


class ProcessorsOffer(ApiModel):
    """The fewest further processors with which the deadline asked for would have been promised."""

    more: Annotated[int, Field(ge=1)]
    """How many more processors of the pool's size, empty from the answer on, would have been enough: with one fewer the
    job would be refused. They are counted on a node that takes all pods and is as fast as the fastest."""
    begin: Annotated[Time, Field(alias="from")]
    """When the plan with them uses the first of them."""
    until: Time
    """When that plan has done with the last of them, other jobs that it moves there included."""


class OfferStatus(ApiModel):
    """What could have been promised instead."""

    earliest_deadline: StatusDuration | None = None
    """The earliest deadline that would be promised to another job like this one, counted from its creation: `45m`.
    Absent: no deadline would be."""
    earliest_deadline_time: Time | None = None
    """The same as a moment, for an edit of this job: put it into `spec.deadlineTime`, and remove `spec.deadline`. It
    includes the time until `validUntilTime`, in which the edit can be made."""
    valid_until_time: Time
    """Until when the offer stands, if no other job is admitted meanwhile."""
    largest_load: Units
    """How many units would have fit the deadline asked for; 0: none."""
    processors: ProcessorsOffer | None = None
    """How many more processors the pool would have needed for the deadline asked for. Absent: no number helps (the
    start-up alone takes longer, or `processors.max` is too low), more than 64 and than the pool has would be needed, or
    no deadline was the reason for the refusal."""


class CostInForce(ApiModel):
    """The cost that planning uses, declared or measured, in seconds."""

    per_unit: Annotated[float, Field(gt=0)]
    """Seconds of a whole processor per unit. χ in the papers."""
    transfer_per_unit: Seconds = 0.0
    """Seconds of transfer per unit. τ in the papers."""
    transfer_setup: Seconds = 0.0
    """Seconds to open a transfer. θcm in the papers."""
    startup: Seconds = 0.0
    """Seconds before the first unit of a chunk. θcp in the papers."""


class UnitCounts(ApiModel):
    """Units by where they are."""

    done: Units = 0
    """Done, what running chunks have reported included."""
    running: Units = 0
    """In chunks that run now."""
    total: Units = 0
    """All of the job."""


class UnitRange(ApiModel):
    """Units [begin, end): begin is the first, end is one past the last."""

    begin: Position
    """First unit."""
    end: Position
    """One past the last unit."""


class CountedRange(UnitRange):
    """Units that have the same count."""

    count: Count
    """How often."""


class ChunkRecord(UnitRange):
    """Units that one attempt owns: recorded before its pod exists, until it is accounted."""

    origin: Position | None = None
    """The end that its pod was created with, where it has agreed to a cut since; absent: `end`."""
    node: NodeName
    """The node it runs on."""
    attempt: Count
    """Which attempt at these units this is, from 0; with `kind` and `begin` it names the chunk and its pod."""
    kind: Literal["Chunk", "Pilot", "Reduce", "Guest"] = "Chunk"
    """Chunk: a part of the work. Pilot: a part that measures the cost. Reduce: the pod after the last chunk, as
    one unit behind the last. Guest: a part of a job of class Guest."""
    pod: Annotated[str, Field(max_length=253)] | None = None
    """Name of its pod. Absent where a Job's controller names it (`spec.jobRef`): the pod carries the chunk's labels."""
    created_time: Time
    """When it was decided."""
    promised_end: Time
    """When it is planned to end."""
    offered_end: Position | None = None
    """The end that it was offered and has not answered yet."""
    leftover: bool | None = None
    """true: runs on capacity that no promise holds, and ends when a promise needs it."""
    late: bool | None = None
    """true: was not done at its planned end; idle processors may take a part of its rest."""
    done: Units | None = None
    """Units that it has reported; absent: none yet."""
    input_time: Time | None = None
    """When its input is planned to be there, where inputs share a port; they come in this order."""
    turn_time: Time | None = None
    """When it was given its turn to fetch its input; absent: not yet, or there is none."""
    received: Bytes | None = None
    """Bytes of its input that have come; absent: none yet."""


class PilotSampleStatus(ApiModel):
    """What one pilot chunk measured."""

    units: Units
    """Units it did."""
    seconds: Seconds
    """Seconds from its pod's creation to its end."""


class InputSeen(ApiModel):
    """Which version of the input the job works on, and what fetching took for all chunks that are accounted."""

    size: Bytes | None = None
    """Bytes of the whole input, as the first chunk has read it. A chunk that reads another version does not count, and
    the job fails (reason InputChanged). Absent: no chunk has read it yet."""
    validator: Annotated[str, Field(max_length=LONGEST)] | None = None
    """What tells that version from others of the same size: the server's ETag, with a weak one also Last-Modified,
    without one Last-Modified alone; of a file in a volume when it was changed last (seconds since 1970); a digest where
    that is long. Empty: the server says nothing of the kind, and only the size is compared. Absent: as `size`."""

    transfers: Count
    """How many there were."""
    units: Units
    """Units of input that they fetched."""
    bytes: Bytes
    """Bytes that they brought."""
    opening: Seconds
    """Seconds until the first byte came, in all; where a chunk waited for its turn, those of handing it on too."""
    sending: Seconds
    """Seconds from the first byte to the last, in all."""
    transfer_per_unit: Seconds
    """Measured seconds per unit: the right value of `spec.cost.transferPerUnit`."""
    transfer_setup: Seconds
    """Measured seconds per transfer: the right value of `spec.cost.transferSetup`."""


class AppliedSpec(ApiModel):
    """The parts of the spec that may be edited, as they are in force."""

    deadline_time: Time | None = None
    """The deadline as a moment, `spec.deadline` or `spec.deadlineTime`; the one before, where an edit was refused.
    Absent: the job is of class Guest."""
    suspend: bool = False
    """Whether the job is suspended."""


RangeList = Annotated[list[UnitRange], Field(max_length=MAX_RANGES)]
CountList = Annotated[list[CountedRange], Field(max_length=MAX_RANGES)]


class DivisibleJobStatus(ApiModel):
    """The answer, and how far the job is. The operator plans from this after a restart; do not edit it."""

    state: State | None = None
    """The job's state in one word. Waiting: it has no answer yet, or its first chunk has not begun, or it was only a
    question (`spec.dryRun`) and would be promised. Measuring: pilot chunks measure its cost before it is answered.
    Refused: nothing is promised, see `offer`; an edit asks again. Running: chunks have begun, and the forecast is
    before the deadline, or nothing is promised (`onRefusal`). Late: it has not ended, and its forecast is after the
    deadline or its promise was given up; it goes on. Suspended: `spec.suspend` is true. Completed: all is done, by the
    deadline. Missed: all is done, after the deadline. Failed: it has ended without being done."""
    reason: Annotated[str, Field(max_length=1024)] | None = None
    """Why, in one word: the reason of the condition that explains the state. For Late it is that of OnTrack, for
    Completed, Missed and Failed that of the condition with which it ended, else that of Admitted."""
    conditions: Conditions = Field(default=[])
    """Admitted: the deadline is promised (True), refused (False, see `offer`), or not yet known (Unknown). OnTrack:
    it will be kept. Completed: all is done. Failed: it has ended without being done. SpecApplied: the spec is in
    force; a refused edit is not."""
    epoch: Epoch | None = None
    """Which leader of the operator wrote this; it rises with every change of leader and never falls."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that was last decided about."""
    promise: PromiseStatus | None = None
    """What is promised; absent: nothing."""
    offer: OfferStatus | None = None
    """What could be promised instead of what was refused."""
    cost: CostInForce | None = None
    """The cost that planning uses, declared or measured, in seconds."""
    units: UnitCounts | None = None
    """Units by where they are."""
    progress: Annotated[str, Field(max_length=16)] | None = None
    """Units done of all, in per cent: `42%`."""
    eta: Time | None = None
    """When it will be done, by the plan and the speed seen so far, rounded up to seconds: a forecast. After the
    deadline exactly while the forecast says that the job will be late. Absent: nothing is to run, or it has
    ended."""
    slack: StatusDuration | None = None
    """Time between `eta` and the deadline, rounded down to seconds; below zero: late."""
    completed: RangeList = Field(default=[])
    """Units done and accounted, merged."""
    failed: CountList = Field(default=[])
    """How often the work failed by its own doing, by units."""
    tried: CountList = Field(default=[])
    """How many attempts were made so far, by units that are not completed."""
    chunks: Annotated[list[ChunkRecord], Field(max_length=MAX_RANGES)] = Field(default=[])
    """Chunks that are under way, recorded before their pods exist."""
    pilots: Annotated[list[PilotSampleStatus], Field(max_length=64)] = Field(default=[])
    """What pilot chunks measured; for a Job, the longest of its ended units, then all others."""
    input: InputSeen | None = None
    """Which version of the input the job works on, and what fetching has taken so far; absent: nothing was fetched."""
    results: Annotated[str, Field(max_length=253)] | None = None
    """Name of the ConfigMap with the results of chunks (their termination messages), in the order of their ranges; it
    is deleted with the job. Absent: there are none, or `spec.reduce` reads them."""
    start_time: Time | None = None
    """When the first chunk was created."""
    finish_time: Time | None = None
    """When it came to its end, well or not: when its last pod did, where that was seen later. Of a refused job: when it
    was refused; an edit asks again and takes this back."""
    applied: AppliedSpec | None = None
    """The parts of the spec that may be edited, as they are in force."""
