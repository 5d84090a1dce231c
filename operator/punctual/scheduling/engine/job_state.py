"""How one job stands: what is written down about it, and what the Pool remembers only while it lives.

Everything decided is in the record; the rest (pods seen, progress reported, timers) is forgotten on purpose by a new
leader and comes back with the next observations.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from punctual import reasons
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, Job, JobRecord
from punctual.theory.cost import Cost

State = Literal["Waiting", "Measuring", "Promised", "Leftover", "Refused", "Answered", "Suspended", "Ended"]
GIVEN_UP = frozenset({reasons.OVERRUN, reasons.CAPACITY_LOST, reasons.CHUNK_FAILED, reasons.POD_REFUSED})
"""Reasons of OnTrack=False that mean: no processor is booked for it any more, it goes on with what is left over."""
Key = tuple[str, int, int]
FRESH = 5.0
"""Seconds within which an agent's report counts as looking."""


@dataclass(slots=True)
class ChunkObservation:
    """What was seen of one chunk."""

    pod: PodObserved | None = None
    running_since: float | None = None
    done: int = 0
    cpu: float = 0.0
    moved: float = 0.0
    """When it last made progress or used CPU."""
    reported: float | None = None
    """When its agent last spoke of it."""
    offered_at: float | None = None
    ended_at: float | None = None
    """When its pod was seen to have succeeded while an offer was open; -inf: and its last word is no answer."""
    received: int = 0
    fetched_at: float | None = None
    """When its input was seen to be there, as it happened."""
    input_known: bool = False
    """It was seen to have read the version of the input that stands on record."""
    told_turn: bool = False
    """Its pod was told that its turn has come, or is."""
    late: bool = False
    set_point: tuple[float, float, str] | None = None
    """(cap, end, pod uid) last sent."""

    def looked_at(self, now: float) -> bool:
        """Whether its agent spoke of it just now: silence is no evidence, of standing still or of being slow."""
        return self.reported is not None and abs(now - self.reported) <= FRESH


@dataclass(slots=True)
class JobState:
    """One job."""

    job: Job
    """In force: a refused edit is not in it."""
    asked: Job
    """As last applied."""
    record: JobRecord = field(default_factory=JobRecord)
    written: JobRecord | None = None
    watches: dict[Key, ChunkObservation] = field(default_factory=dict)
    told: float = -math.inf
    """When its status was last handed out, its progress with it."""
    slowed: float = 1.0
    """How much slower than declared its units were seen to be, at least 1."""
    faults: frozenset[str] = frozenset()
    """What its events already say about its workers' files."""
    squeezed: bool = False
    """Trouble has used up its margin: planned against the deadline itself."""
    last_end: float = -math.inf
    """When the last of its pods ended, of those that this leader has accounted."""
    refused_until: float = 0.0
    """The API server did not let a pod of it in: none is created before that time."""

    @property
    def state(self) -> State:  # noqa: PLR0911  one line per state reads best
        """Where it stands, read off the record."""
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
            return "Refused"
        if reason == reasons.DRY_RUN:
            return "Answered"
        if record.on_track and record.on_track.status == "False" and record.on_track.reason in GIVEN_UP:
            return "Leftover"
        return "Promised"

    @property
    def loose(self) -> bool:
        """Whether it was let in statistically."""
        return self.record.admitted is not None and self.record.admitted.reason == reasons.ADMITTED_STATISTICALLY

    @property
    def cost(self) -> Cost | None:
        """The cost in force: declared, or measured by pilots."""
        return self.job.cost or self.record.cost

    def watch(self, chunk: Chunk) -> ChunkObservation:
        """Return what was seen of a chunk, empty at first."""
        key = chunk.key
        seen = self.watches.get(key)
        if seen is None:
            seen = self.watches[key] = ChunkObservation()
        return seen

    def chunk(self, kind: str, begin: int, attempt: int) -> Chunk | None:
        """Return the owned chunk of that identity."""
        for c in self.record.chunks:
            if c.begin == begin and c.attempt == attempt and c.kind == kind:
                return c
        return None

    @property
    def work_done(self) -> bool:
        """Whether every unit is completed."""
        return self.record.completed.total == self.job.units


def expected_end(chunk: Chunk, watch: ChunkObservation, *, now: float) -> float:
    """Tell when a chunk will end: as planned, and from its progress once that time has passed.

    Without progress to go by, a tenth of the time it has taken so far is added: the estimate keeps moving ahead.
    """
    if chunk.promised_end > now:
        return chunk.promised_end
    since = watch.running_since or chunk.created
    elapsed = max(now - since, 0.1)
    if watch.done > 0:
        left = max(0, chunk.size - watch.done)
        return now + max(0.5, left * elapsed / watch.done)
    return now + max(1.0, 0.1 * elapsed)
