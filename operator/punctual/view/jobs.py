"""Jobs and pods at a moment, read from the API server's objects. This module does no I/O and draws nothing.

Unknown fields are ignored and missing ones are None, so it works with a slightly older or newer operator.
Times are seconds since 1970, as :mod:`punctual.notation.duration` reads them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from punctual import reasons
from punctual.labels import BEGIN, END, JOB_UID_LABEL, KIND_LABEL, WORK
from punctual.notation.duration import parse_duration, parse_time
from punctual.scheduling.model.job import WITHOUT_PROMISE
from punctual.view.changes import Change, Reset
from punctual.view.conditions import NOTHING, ConditionView
from punctual.view.pools import PoolSummary, pool_of
from punctual.view.rates import RateView, rate_of

Json = dict[str, Any]
State = Literal["Measuring", "Refused", "Waiting", "Running", "Late", "Suspended", "Completed", "Missed", "Failed"]
"""As ``status.state`` of a DivisibleJob."""
OVER: frozenset[State] = frozenset({"Completed", "Missed", "Failed"})
OFFERED: Final = frozenset({reasons.INFEASIBLE_CAPACITY, reasons.INFEASIBLE_STARTUP, reasons.SHARE_USED_UP})
"""Refusals that an offer follows: another deadline or load might be accepted."""
_SAYS_WHY: dict[State, str] = {"Completed": "Completed", "Missed": "Completed", "Failed": "Failed", "Late": "OnTrack"}
"""The condition that explains a state. Of all others it is Admitted."""


class LackingProcessors(NamedTuple):
    """Processors with which a refused job would have been promised its deadline: absolute times, seconds."""

    more: int
    start: float
    until: float


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A part of a job that runs, or is about to run."""

    begin: int
    end: int
    kind: str
    node: str
    pod: str
    created: float
    planned_end: float
    done: int
    attempt: int = 0
    late: bool = False
    """It was not done at its planned end, and got a later one."""
    leftover: bool = False
    """It runs on capacity that no promise holds."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A DivisibleJob. ``reason`` and ``message`` are those of the condition that explains its state."""

    uid: str
    namespace: str
    name: str
    created: float
    units: int
    done: int
    state: State
    reason: str
    message: str
    deadline: float | None
    """None: it is a guest job."""
    finish: float | None
    """The planned end in the promise."""
    processors: int | None
    start: float | None
    eta: float | None
    offered: str | None
    """The offer's earliest deadline in the form of spec.deadline of a new job."""
    offered_time: str | None
    """The same in the form of spec.deadlineTime of this job."""
    offer_load: int | None
    chunks: tuple[ChunkView, ...]
    started: float | None
    finished: float | None
    pool: str = ""
    guest: bool = False
    """It has no deadline: its chunks run on what the nodes' own work leaves."""
    suspend: bool = False
    """Its spec says that no chunk is to run."""
    conditions: Mapping[str, ConditionView] = field(default_factory=dict)
    """By type."""
    answered: bool = True
    """Whether the status answers the current spec."""
    margin: float | None = None
    """Seconds that the plan had to leave free before the deadline."""
    per_unit: float | None = None
    """Seconds of a processor per unit by the cost in force, transfer included; None: no cost is known."""
    startup: float = 0.0
    """Seconds of a chunk before its first unit by the cost in force, transfer set-up included."""
    failures: int = 0
    """Maximum number of times that a unit failed by the work's own fault."""
    pilots: int = 0
    """Number of pilot chunks that have ended."""
    reservation: str | None = None
    """The Reservation that it runs in."""
    offer_until: float | None = None
    lacking: LackingProcessors | None = None
    """The processors that its pool lacked when it was refused."""

    @property
    def end(self) -> float | None:
        """When it will be done by the operator's forecast, once finished: when it was. None: nothing is promised."""
        return self.finished or self.eta

    @property
    def slack(self) -> float | None:
        """Seconds from its end to the deadline. Below zero: late."""
        return None if self.end is None or self.deadline is None else self.deadline - self.end

    @property
    def promised(self) -> bool:
        """Whether the job is promised and waits for its first chunk."""
        return self.state == "Waiting" and self.finish is not None

    @property
    def goes_on(self) -> bool:
        """Whether it was refused, and runs on leftover capacity all the same."""
        refused = self.conditions.get("Admitted", NOTHING).status == "False" and self.reason in WITHOUT_PROMISE
        return refused and self.state in {"Waiting", "Running"}

    @property
    def has_offer(self) -> bool:
        """Whether anything would have been promised instead of what was refused."""
        return bool(self.offered or self.offer_load or self.lacking)

    @property
    def kept(self) -> bool:
        """Whether the job has finished, by its deadline if it has one."""
        return self.state == "Completed"


@dataclass(frozen=True, slots=True)
class PodView:
    """The pod of a chunk, and how it ended."""

    uid: str
    name: str
    job: str
    kind: str
    begin: int
    end: int
    node: str
    phase: str
    created: float
    started: float | None
    finished: float | None
    message: str
    waiting: str = ""
    """Why a container has not started, such as ``ImagePullBackOff: Back-off pulling image …``, or why it has no node;
    empty: it has started."""


def job_of(body: Mapping[str, Any]) -> JobView:
    """Read a DivisibleJob."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    said = {
        c["type"]: ConditionView(
            c.get("status", "Unknown"), c.get("reason", ""), c.get("message", ""), moment(c.get("lastTransitionTime"))
        )
        for c in status.get("conditions") or ()
    }
    created = parse_time(meta["creationTimestamp"])
    promise, offer, units = status.get("promise") or {}, status.get("offer") or {}, status.get("units") or {}
    deadline = moment((status.get("applied") or {}).get("deadlineTime")) or moment(promise.get("deadline"))
    if deadline is None:
        deadline = moment(spec.get("deadlineTime")) or (
            created + parse_duration(spec["deadline"]) if spec.get("deadline") else None
        )
    chunks = tuple(_chunk(c) for c in status.get("chunks") or ())
    state: State = status.get("state") or "Waiting"
    finished = moment(status.get("finishTime")) if state in OVER else None  # of a refused job: when it was answered
    word = said.get(_SAYS_WHY.get(state, "Admitted"), NOTHING)
    cost = status.get("cost") or {}
    per_unit = cost.get("perUnit")
    return JobView(
        uid=meta["uid"],
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        created=created,
        units=spec["units"],
        done=units.get("done") or 0,
        state=state,
        reason=word.reason,
        message=word.message,
        deadline=deadline,
        finish=moment(promise.get("finish")),
        processors=promise.get("processors"),
        start=moment(promise.get("start")),
        eta=moment(status.get("eta")),
        offered=offer.get("earliestDeadline"),
        offered_time=offer.get("earliestDeadlineTime"),
        offer_load=offer.get("largestLoad"),
        chunks=chunks,
        started=moment(status.get("startTime")),
        finished=finished,
        pool=spec.get("pool", ""),
        guest=spec.get("class") == "Guest",
        suspend=bool(spec.get("suspend")),
        conditions=said,
        answered=(status.get("observedGeneration") or 0) >= (meta.get("generation") or 0),
        margin=parse_duration(promise["margin"]) if promise.get("margin") else None,
        per_unit=None if per_unit is None else per_unit + (cost.get("transferPerUnit") or 0.0),
        startup=(cost.get("startup") or 0.0) + (cost.get("transferSetup") or 0.0),
        failures=max((count["count"] for count in status.get("failed") or ()), default=0),
        pilots=len(status.get("pilots") or ()),
        reservation=spec.get("reservation"),
        offer_until=moment(offer.get("validUntilTime")),
        lacking=_lacking(offer.get("processors")),
    )


def _lacking(found: Mapping[str, Any] | None) -> LackingProcessors | None:
    if not found:
        return None
    return LackingProcessors(found["more"], parse_time(found["from"]), parse_time(found["until"]))


def _chunk(chunk: Mapping[str, Any]) -> ChunkView:
    return ChunkView(
        chunk["begin"],
        chunk["end"],
        chunk.get("kind") or "Chunk",
        chunk["node"],
        chunk.get("pod") or "",
        parse_time(chunk["createdTime"]),
        parse_time(chunk["promisedEnd"]),
        chunk.get("done") or 0,
        chunk.get("attempt") or 0,
        bool(chunk.get("late")),
        bool(chunk.get("leftover")),
    )


def pod_of(body: Mapping[str, Any]) -> PodView | None:
    """Read a chunk's pod; None where it is none."""
    meta, status = body["metadata"], body.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    if JOB_UID_LABEL not in labels or BEGIN not in notes:
        return None
    steps = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits: Json = next((w for step in steps if (w := (step.get("state") or {}).get("waiting"))), {})
    found = status.get("containerStatuses") or []
    # a webhook may have put containers before the work's; pods of an earlier version do not name it
    work = next((step for step in found if step.get("name") == notes.get(WORK)), found[0] if found else {})
    running, ended = ((work.get("state") or {}).get(key) or {} for key in ("running", "terminated"))
    return PodView(
        uid=meta["uid"],
        name=meta["name"],
        job=labels[JOB_UID_LABEL],
        kind=labels.get(KIND_LABEL) or "Chunk",
        begin=int(notes[BEGIN]),
        end=int(notes.get(END) or notes[BEGIN]),
        node=(body.get("spec") or {}).get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        created=parse_time(meta["creationTimestamp"]),
        started=moment(running.get("startedAt") or ended.get("startedAt")),
        finished=moment(ended.get("finishedAt")),
        message=ended.get("message") or "",
        waiting=": ".join(word for word in (waits.get("reason"), waits.get("message")) if word) or _unplaced(body),
    )


def _unplaced(body: Mapping[str, Any]) -> str:
    """Return why a pod has no node, in the scheduler's words; empty: it has one, or nothing is known."""
    spec, conditions = body.get("spec") or {}, (body.get("status") or {}).get("conditions") or ()
    said: Json = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    if said.get("status") == "False":
        return f"{said.get('reason', '')}: {said.get('message', '')}"
    name = spec.get("schedulerName", "")
    if said or spec.get("nodeName") or name in {"", "default-scheduler"}:
        return ""
    return f"no scheduler named {name} has looked at it"


def moment(text: str | None) -> float | None:
    """Return a time in seconds; None: none is given."""
    return parse_time(text) if text else None


@dataclass(slots=True)
class Board:
    """Jobs and pods as they were last seen. Deleted pods stay, for a timeline."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    first_finish: dict[str, float] = field(default_factory=dict)
    """The finish that was forecast when a job was promised, by its uid."""
    planned: dict[str, ChunkView] = field(default_factory=dict)
    """The chunk as it was last recorded, by its pod's name."""
    pools: dict[str, PoolSummary] = field(default_factory=dict)
    """By name."""
    rates: dict[str, RateView] = field(default_factory=dict)
    """By uid."""

    def apply(self, news: Iterable[Change | Reset]) -> None:
        """Apply changes."""
        for item in news:
            if isinstance(item, Reset):
                if item.kind == "DivisibleJob":
                    self.jobs.clear()
                elif item.kind == "Pool":
                    self.pools.clear()
                elif item.kind == "TargetRate":
                    self.rates.clear()
            else:
                self._change(item)

    def _change(self, change: Change) -> None:
        gone = change.what == "DELETED"
        match change.kind:
            case "DivisibleJob":
                job = job_of(change.body)
                if gone:
                    self.jobs.pop(job.uid, None)
                    return
                self.jobs[job.uid] = job
                if job.finish is not None:
                    self.first_finish.setdefault(job.uid, job.finish)
                self.planned.update((chunk.pod, chunk) for chunk in job.chunks)
            case "Pool" if gone:
                self.pools.pop(change.body["metadata"]["name"], None)
            case "Pool":
                pool = pool_of(change.body)
                self.pools[pool.name] = pool
            case "TargetRate" if gone:
                self.rates.pop(change.body["metadata"]["uid"], None)
            case "TargetRate":
                rate = rate_of(change.body)
                self.rates[rate.uid] = rate
            case "Pod":
                if pod := pod_of(change.body):
                    self.pods[pod.uid] = pod

    def in_order(self, names: Iterable[str] = ()) -> list[JobView]:
        """Return the jobs in the order of creation; ``names``: only these."""
        wanted = set(names)
        found = [job for job in self.jobs.values() if not wanted or job.name in wanted]
        return sorted(found, key=lambda job: (job.created, job.start or job.created, job.name))
