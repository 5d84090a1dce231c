"""State of one job: its record, and what the pool keeps only in memory.

Every decision is in the record. A new leader starts without the rest (observed pods, reported progress, timers) and
gets it back with the next observations.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from punctual import reasons
from punctual.control.response import KEPT, Response, middle
from punctual.scheduling.chunks import unit_times
from punctual.scheduling.chunks.life import Observation
from punctual.scheduling.chunks.owner import ChunkOwner, Key
from punctual.scheduling.model.actions import SendSetPoint
from punctual.scheduling.model.job import Chunk, Job, JobRecord
from punctual.scheduling.model.resources import NOTHING, Resources
from punctual.scheduling.placement.demand import Demand
from punctual.theory.cost import Cost

State = Literal["Waiting", "Measuring", "Promised", "Leftover", "Refused", "Answered", "Suspended", "Ended"]
GIVEN_UP = frozenset({
    reasons.OVERRUN, reasons.CAPACITY_LOST, reasons.CHUNK_FAILED, reasons.POD_REFUSED, reasons.POD_FITS_NO_NODE,
    reasons.INPUT_UNAVAILABLE,
})  # fmt: skip
"""Reasons of OnTrack=False under which a job has no placement any more and continues on leftover capacity. With
NotStarted, the promise itself tells: it may stand while its pods do not start."""
SATURATED = 10.0
"""Seconds for which a chunk needs more CPU than there is before others are asked to help: less may be noise."""
UNMEASURED = 30 * 86400.0
"""Seconds for which a pilot may have its processor if nothing ends its pod and its job."""
FRESH = 5.0
"""Seconds for which an agent's report counts as current."""


class Pace(NamedTuple):
    """Seconds per unit that chunks have shown."""

    best: float
    """The least that their reports allow."""
    likely: float


@dataclass(slots=True)
class ChunkObservation(Observation):
    """What a Pool sees of a chunk."""

    first_step: tuple[float, int] | None = None
    """When units were first reported done, and how many ..."""
    last_step: tuple[float, int] | None = None
    """... and when the number last rose."""
    steps: int = 0
    """Number of reports with a new unit."""
    saturated: float = 0.0
    """Seconds for which no cap has brought it back to its line, by the last report."""
    response: Response | None = None
    """How it answers to CPU, by the last report that told."""
    reported: float | None = None
    """When its agent last reported it."""
    received: int = 0
    fetched_at: float | None = None
    """When its input was seen to be complete, if observed at that moment."""
    input_known: bool = False
    """It was seen to have read the recorded version of the input."""
    told_turn: bool = False
    """Its pod was told, or is being told, that it has the transfer turn."""
    set_point: SendSetPoint | None = None
    """The last one that was sent."""

    @property
    def began(self) -> bool:
        """Whether its pod has begun to work, be it with an init container such as the input step."""
        return self.running_since is not None or (self.pod is not None and (self.pod.preparing or self.pod.fetched))

    def report_done(self, now: float, done: int) -> None:
        """Note that more units are reported done."""
        self.done = done
        self.last_step = now, done
        self.first_step = self.first_step or self.last_step
        self.steps += 1

    @property
    def step(self) -> float:
        """Mean number of units between two reports with a new unit; 1 until there are two."""
        if self.first_step is None or self.steps < 2:
            return 1.0
        return (self.done - self.first_step[1]) / (self.steps - 1)

    def looked_at(self, now: float) -> bool:
        """Whether its agent has reported it recently. Silence is no evidence of a stall or of slowness."""
        return self.reported is not None and abs(now - self.reported) <= FRESH


@dataclass(slots=True)
class Judged:
    """What a judgement of OnTrack needs of the ones before it."""

    deadline: float | None = None
    """The deadline that it was about; None: there was none yet."""
    at: float = -math.inf
    """When a forecast was last counted."""
    against: int = 0
    """How many forecasts in a row have contradicted the condition."""


class KeptDemand(NamedTuple):
    """Demand of a job that owns no chunk."""

    made_of: tuple[object, ...]
    """Everything that the demand follows from."""
    demand: Demand | None


@dataclass(slots=True)
class JobState(ChunkOwner[Job, ChunkObservation]):
    """State of one job."""

    unseen = ChunkObservation
    asked: Job
    """The spec as last applied."""
    written: JobRecord | None = None
    told: float = -math.inf
    """When its status, with its progress, was last written."""
    overrun: float = 1.0
    """Slowdown of its units that chunks have shown at their planned ends, at least 1."""
    as_declared: bool = False
    """Plans take its units, which have a pod each, to be as fast as declared: the time that they seem to take does not
    fit."""
    least_start_up: float = math.inf
    """Shortest start-up of a pod after its first unit had ended, seconds: the image was there."""
    pace: Pace | None = None
    """The last known pace of its chunks."""
    judged: Judged = field(default_factory=Judged)
    """What the last judgement of its condition OnTrack was made from."""
    responses: dict[Key, Response] = field(default_factory=dict)
    """How its newest chunks have answered to CPU, on a processor of speed 1."""
    faults: frozenset[str] = frozenset()
    """File faults of its workers for which events were emitted."""
    squeezed: bool = False
    """A shortage has used up its margin and its headroom: it is planned as fast as can be, against the deadline."""
    last_end: float = -math.inf
    """When the last of its pods ended, among those that this leader has accounted."""
    taken_over_late: bool = False
    """It was not on track when this leader read its record."""
    imageless_since: float | None = None
    """Since when its pods have waited for an image that cannot be pulled; None: one has started since."""
    refused_until: float = 0.0
    """The API server refused one of its pods, or one did not start: none is created before this time."""
    refused_for: str = reasons.POD_REFUSED
    """The reason of that."""
    unstarted: str = ""
    """Why its pods do not start, in the cluster's words; empty: they do, as far as is known."""
    kept_demand: KeptDemand | None = None
    """Its demand while it waits."""

    @property
    def state(self) -> State:  # noqa: PLR0911  one line per state reads best
        """The job's state, derived from its record."""
        record = self.record
        if record.ended:
            return "Ended"
        if record.admitted is None:
            return "Waiting"
        status, reason, _ = record.admitted
        if status == "Unknown":
            return "Measuring"
        if reason == reasons.SUSPENDED:
            return "Suspended"
        if status == "False":
            return "Leftover" if record.goes_on else "Refused"
        if reason == reasons.DRY_RUN:
            return "Answered"
        late = record.on_track is not None and record.on_track.status == "False" and record.on_track.reason
        if late and (late in GIVEN_UP or (record.promise is not None and record.promise.given_up)):
            return "Leftover"
        return "Promised"

    @property
    def is_statistical(self) -> bool:
        """Whether it was admitted statistically."""
        return self.record.admitted is not None and self.record.admitted.reason == reasons.ADMITTED_STATISTICALLY

    @property
    def cost(self) -> Cost | None:
        """The cost in force: declared, or measured by pilots."""
        return self.job.cost or self.record.cost

    @property
    def unit_time(self) -> float | None:
        """What a unit with a pod of its own takes, start-up included; None: too few have ended, or pods do more."""
        if not self.job.unit_pods:
            return None
        promise = self.record.promise
        return unit_times.mean(self.record.pilots, promise.processors if promise else 0)

    @property
    def slowed(self) -> float:
        """Observed slowdown of its units against the cost in force, at least 1."""
        if self.cost is None or (unit := self.unit_time) is None:
            return self.overrun
        return unit_times.slowdown(unit, self.job.cost_of_part(self.cost).per_unit)

    @property
    def planned_slowdown(self) -> float:
        """The slowdown that plans count."""
        return 1.0 if self.as_declared else self.slowed

    def work(self, chunk: Chunk) -> float:
        """Return the seconds that a chunk takes at least, once it has started; 0 if that is not known.

        Pilots of one unit each do not tell start-up from work.
        """
        if self.cost is None or (self.job.unit_pods and self.job.cost is None):
            return 0.0
        return chunk.size * self.cost.chi

    def makes_way(self, chunk: Chunk) -> bool:
        """Whether a chunk leaves its processor if promised work needs it. Nothing ends the pod of a Job."""
        return (chunk.leftover or self.state == "Leftover") and not self.job.unit_pods

    def measured_by(self, now: float) -> float:
        """Return until when a pilot may run: at its deadline its job is refused, and then may go on all the same."""
        return now + UNMEASURED if self.job.on_refusal == "Continue" else self.job.deadline

    def rest(self, chunk: Chunk, share: Resources) -> Resources:
        """Return what the pod of a chunk leaves of its processor (``share``), if another controller makes it."""
        if self.job.pod is None:
            return NOTHING
        watch = self.watches.get(chunk.key)
        seen = watch.pod.requests if watch is not None and watch.pod is not None else None
        return share - (seen or self.job.pod.requests)

    @property
    def response(self) -> Response | None:
        """How its next chunk will answer to CPU on a processor of speed 1: as its last ones, or its profile's, have."""
        return middle(self.responses.values()) or self.job.response

    def note_response(self, chunk: Chunk, seen: Response, speed: float) -> None:
        """Note how a chunk answers to CPU, on a processor of a given speed factor."""
        self.watch(chunk).response = seen
        self.responses.pop(chunk.key, None)
        self.responses[chunk.key] = seen.slower(1.0 / speed)
        if len(self.responses) > KEPT:
            del self.responses[next(iter(self.responses))]

    @property
    def work_done(self) -> bool:
        """Whether every unit is completed."""
        return self.record.completed.total == self.job.units


def off(st: JobState, nodes: Collection[str]) -> JobState:
    """Return the state of the job as if its chunks on these nodes were lost."""
    if not any(c.node in nodes for c in st.record.chunks):
        return st
    return replace(st, record=st.record._replace(chunks=tuple(c for c in st.record.chunks if c.node not in nodes)))


def expected_end(chunk: Chunk, watch: ChunkObservation, *, now: float) -> float:
    """Return when a chunk is expected to end: as planned, or by its progress once that time has passed.

    Without progress, a tenth of the time it has taken so far is added, so the estimate keeps moving ahead.
    """
    if chunk.promised_end > now:
        return chunk.promised_end
    since = watch.running_since or chunk.created
    elapsed = max(now - since, 0.1)
    if watch.done > 0:
        left = max(0, chunk.size - watch.done)
        return now + max(0.5, left * elapsed / watch.done)
    return now + max(1.0, 0.1 * elapsed)


def end_is_known(chunk: Chunk, watch: ChunkObservation, *, now: float) -> bool:
    """Whether a late chunk's own progress tells when it ends: it goes on, and has units left."""
    if watch.last_step is None or watch.running_since is None or not 0 < watch.done < chunk.size:
        return False
    return now - watch.last_step[0] <= 1.0 + 2.0 * (now - watch.running_since) / watch.done


def helpless(st: JobState, chunk: Chunk, now: float) -> bool:
    """Whether a chunk with a saturated loop has asked for help and is not about to get it."""
    watch = st.watches.get(chunk.key)
    if watch is None or watch.saturated < SATURATED or not watch.looked_at(now):
        return False
    return chunk.late and chunk.offered is None and watch.offered_at is None
