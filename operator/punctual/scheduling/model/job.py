"""What was asked and what was answered: the job, its promise, its chunks, and the record that holds them.

All times are float seconds on one clock (the API server's), all units int. Nothing here decides.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from punctual.errors import InvariantError
from punctual.scheduling.model.ranges import Counts, Ranges
from punctual.theory.cost import Cost

Restart = Literal["Redo", "Resume"]
OnMiss = Literal["Continue", "Stop"]
Kind = Literal["Chunk", "Pilot", "Reduce"]
Status = Literal["True", "False", "Unknown"]


class Verdict(NamedTuple):
    """A condition's content: status, reason (a word of ``punctual.reasons``), message."""

    status: Status
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A divisible job as asked for."""

    uid: str
    namespace: str
    name: str
    generation: int = 1
    arrival: float
    """When it was created."""
    units: int
    deadline: float
    """Absolute."""
    cost: Cost | None
    """As declared, by hand or by profile; None: to be measured by pilot chunks."""
    min_processors: int = 1
    max_processors: int | None = None
    least_chunk: int = 1
    """Units below which a chunk is not worth its set-up, where its promise does not need one so small."""
    restart: Restart = "Redo"
    chunk_retries: int = 3
    stall_timeout: float = 60.0
    on_miss: OnMiss = "Continue"
    dry_run: bool = False
    suspend: bool = False
    reservation: str | None = None
    """What it is to run inside of (`Reservation.group`); None: outside of all."""
    reduce_duration: float | None = None
    """Seconds planned for the reduce pod after the last chunk; None: no reduce."""
    fetches: bool = False
    """Its chunks have an input step, which waits for its turn."""
    ttl: float | None = None
    """Seconds to keep the job after its end; None: for ever."""
    refusal: tuple[str, str] | None = None
    """(reason, message) where the edge already knows that it cannot run: pod refused, profile missing, …"""


class Promise(NamedTuple):
    """What was promised: the deadline. ``finish`` is a forecast and may move while it stays before it."""

    deadline: float
    finish: float
    margin: float
    """Seconds before the deadline that planning left free."""
    processors: int
    start: float


class Offer(NamedTuple):
    """What could have been promised instead."""

    earliest_deadline: float | None
    """Seconds after a new submission, whole, submission allowance included; None: no deadline would do."""
    valid_until: float
    largest_load: int
    """Units that would fit the deadline that was asked for."""


class PilotSample(NamedTuple):
    """One pilot: so many units took so many seconds from the pod's creation to its end."""

    units: int
    seconds: float


class InputVersion(NamedTuple):
    """Which version of its input a job works on: chunks that have read different ones make no whole."""

    size: int
    """Bytes of the whole input."""
    validator: str
    """What tells it from another one of the same size, as the input step says it; empty: nothing does."""

    def __str__(self) -> str:
        """Say it for a message."""
        return f"{self.size} bytes, " + (f"validator {self.validator}" if self.validator else "no validator")


class Transfer(NamedTuple):
    """What the input step of one chunk measured."""

    size: int
    """Bytes that came."""
    opening: float
    """Seconds from its turn until the first of them came."""
    seconds: float
    """Seconds from its turn until the last of them had come."""
    waited: float = 0.0
    """Seconds that it had waited for its turn."""


class Transfers(NamedTuple):
    """What the transfers of accounted chunks took, in all."""

    times: int = 0
    units: int = 0
    size: int = 0
    """Bytes."""
    opening: float = 0.0
    """Seconds until the first byte came, over all of them."""
    sending: float = 0.0
    """Seconds from the first byte on, over all of them."""

    def add(self, units: int, size: int, *, opening: float, sending: float) -> "Transfers":
        """Return the sums with one more transfer."""
        return Transfers(
            self.times + 1, self.units + units, self.size + size, self.opening + opening, self.sending + sending
        )

    @property
    def tau(self) -> float:
        """τ as measured, seconds per unit."""
        return self.sending / self.units if self.units else 0.0

    @property
    def theta_cm(self) -> float:
        """θcm as measured, seconds per transfer."""
        return self.opening / self.times if self.times else 0.0


class Chunk(NamedTuple):
    """Units owned by one attempt: recorded before its pod exists, until accounted.

    A tuple, as the record is: both are copied whenever a chunk begins, is told of or ends, and that is cheap.
    """

    begin: int
    end: int
    """The end it owns; lower than ``origin`` once it has agreed to a cut."""
    origin: int
    """The end its pod was created with."""
    node: str
    attempt: int
    created: float
    """When it was decided."""
    promised_end: float
    """Planned end (forecast for a leftover chunk)."""
    kind: Kind = "Chunk"
    sent: float | None = None
    """When its input was planned to be there; None: it shares no port."""
    turn: float | None = None
    """When it was given its turn to fetch its input; None: it was not, or has none to fetch."""
    offered: int | None = None
    """End offered to it and not yet answered."""
    leftover: bool = False
    """Runs on capacity that nobody was promised: must go when the room is needed."""
    done: int = 0
    """Units it has reported (for people; nothing is decided on it)."""
    received: int = 0
    """Bytes of its input that it has reported (for people)."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Identity within the job: kind, begin and attempt (a cut changes none of them)."""
        return (self.kind, self.begin, self.attempt)

    @property
    def size(self) -> int:
        """Units owned."""
        return self.end - self.begin


class JobRecord(NamedTuple):
    """All that is written down about a job: a new leader rebuilds the Pool from these alone."""

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
    """Own failures of the work per unit."""
    tried: Counts = Counts()
    """Attempts made so far per unit that is not completed."""
    chunks: tuple[Chunk, ...] = ()
    pilots: tuple[PilotSample, ...] = ()
    transfers: Transfers | None = None
    input: InputVersion | None = None
    """The version of the input that the first chunk has read; every other chunk must have read the same."""
    started: float | None = None
    finished: float | None = None
    done: int = 0
    """Units completed, plus units that running chunks have reported (for people; nothing is decided on it)."""
    running: int = 0
    eta: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, well or not."""
        return self.finished is not None

    def check(self, units: int) -> None:
        """Raise InvariantError unless ranges are sound, no unit is owned twice and no pilot took less than no time."""
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
        """Return the chunks but that one."""
        for i, c in enumerate(self.chunks):
            if c.begin == chunk.begin and c.attempt == chunk.attempt and c.kind == chunk.kind:
                return self.chunks[:i] + self.chunks[i + 1 :]
        return self.chunks

    def without(self, chunk: Chunk) -> "JobRecord":
        """Return the record without that chunk."""
        return self._replace(chunks=self.others(chunk))

    def changed(self, chunk: Chunk) -> "JobRecord":
        """Return the record with that chunk in the place of its earlier self. Raises InvariantError if it has none."""
        if all(c.key != chunk.key for c in self.chunks):
            raise InvariantError(f"chunk {chunk.key} is not owned")
        return self._replace(chunks=tuple(chunk if c.key == chunk.key else c for c in self.chunks))
