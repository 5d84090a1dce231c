"""The messages between agent and operator: one HTTPS exchange per node and second, JSON both ways.

The agent sends a :class:`Report` and receives :class:`SetPoints`. No times of day are exchanged, because the nodes'
clocks differ: agents get *seconds left*. Where slices must begin at the same moments, times are those of one clock that
is never set: the leader's (:attr:`SetPoints.sent`). An agent measures how far that is from its own.

Either side may be upgraded first. Unknown fields are ignored. An agent reports the modes that it knows, and gets no set
point of another one (:func:`encoded`). One of the release before reports none. It knows set points with a field for
each mode, as an operator of the release before sends them. :class:`SetPoint` reads those, too.
"""

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

REPORT_PATH: Final = "/v1/report"
AUDIENCE: Final = "punctual-operator"
"""Audience of the agent's projected token. The operator refuses a token for another audience."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=-1e10, le=1e10, allow_inf_nan=False)]
"""A time of the leader's monotonic clock, seconds. Only moments of one epoch can be compared."""
Cores = Annotated[float, Field(ge=0, le=4096, allow_inf_nan=False)]
Load = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Sample = Annotated[float, Field(ge=1, le=60)]
Noise = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Standard deviation of the progress in a sample, relative to it."""
JobName = Annotated[str, Field(max_length=317, pattern=r"^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*$")]
"""A job as "namespace/name"."""
File = Literal["progress", "end", "received"]
"""The files that a worker writes in PUNCTUAL_DIR."""
Fault = Literal[
    "missing",
    "empty",
    "notANumber",
    "negative",
    "beyondEnd",
    "backwards",
    "notRegular",
    "tooLarge",
    "unreadable",
]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ResponseModel(_Message):
    """How a pod's progress follows from its CPU: P(k) = a P(k−1) + b C(k−1−delay), units per sample and cores."""

    a: Annotated[float, Field(ge=0, lt=1)]
    b: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delay: Annotated[int, Field(ge=0, le=2)] = 0
    learned: bool = False
    """It was learned, from this pod or from another of its job. False: it follows from the estimated cost of a unit."""


class Followed(_Message):
    """What an agent knows of a pod that it keeps on a line."""

    needed: Cores = 0.0
    """CPU that keeps the pod on its line, cores. Only an operator of the release before asks for it."""
    saturated_seconds: Seconds = 0.0
    """How long it has needed more than it could get."""
    sample: Sample
    """Seconds for which the model counts."""
    samples: Count = 0
    """Samples taken so far. With few, the model is still the one that the operator has sent."""
    model: ResponseModel
    noise: Noise = 0.0


class PhaseReport(_Message):
    """When the kernel begins the periods of a pod that has a grid, as the agent has found it."""

    begins: Moment
    """The begin of one of its periods, on the clock of the leader with the epoch that the report names."""
    half: Seconds
    """It began at most so much earlier or later."""
    error: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | None = None
    """Seconds by which its periods begin later than the grid asks. None: its grid has no begin, or the pod is not
    steered because the clock is uncertain."""
    age: Seconds = 0.0
    """How long ago this was found or looked at."""
    moves: Count = 0
    """How often its phase was moved since the agent started."""
    failed: Count = 0
    """Moves in a row that did not bring it onto the grid."""


class MemoryShort(_Message):
    """Memory is short for a pod: it pages, or its node has hardly any left."""

    used: Count
    """Bytes that the kernel counts for the pod, or for that of its containers which is closest to its limit. 0: not
    known."""
    limit: Count | None = None
    """The limit of that memory, bytes. None: it has none."""
    cause: Literal["pod", "node"]


class PodReport(_Message):
    """The state of one pod since the last report."""

    uid: str = Field(max_length=63)
    done: Count | None = None
    """Units done since PUNCTUAL_BEGIN. None while the worker has written nothing readable. Of an application that is
    held at a rate: iterations since it started."""
    written: Seconds | None = None
    """Seconds since its progress file was last written, by the file's modification time. None: as for ``done``."""
    end: Count | None = None
    """The end that the worker said it will honour (its answer to an offer)."""
    received: Count | None = None
    """Bytes fetched by the input step."""
    over: bool = False
    """Its files are gone, so its containers have ended. The values here were read so late that they include any answer
    to an offer."""
    faults: dict[File, dict[Fault, Count]] = {}
    """Malformed files by file and kind of fault, counted since the agent started."""
    cpu_seconds: Seconds = 0.0
    """CPU used since the pod started."""
    memory_bytes: Count = 0
    """Memory in use by a guest's pod, without cache of files that were not used lately. 0: not known, or it is no
    guest."""
    cap: Cores | None = None
    """The cap in force (quota/period, cores). None: no cap, or no cgroup found."""
    period: Seconds | None = None
    """The CFS period in force, seconds."""
    drift: Count = 0
    """The number of times that another program changed the cap and the agent restored it."""
    followed: Followed | None = None
    """None: the pod has no line, it holds its cap."""
    phase: PhaseReport | None = None
    """None: the pod has no grid, or its phase was not found yet."""
    throttled: Annotated[float, Field(ge=0, le=1)] | None = None
    """Part of its periods of the last second in which a pod with a grid used up its cap. None: it has no grid, or did
    not run."""
    memory: MemoryShort | None = None
    """None: memory is not short, or the order for the pod does not ask for this."""
    job: JobName | None = None
    """The job that its set point named, if the operator's last answer did not name the pod: the API server may have
    lost it. None: the answer named it, or no set point did."""


class Hosts(_Message):
    """What a node's own work uses: ordinary pods, the system, and promised chunks. Only guests are not counted.

    The node is busy from the first second in which its own work uses a tenth of it, until its own work has used less
    for a minute.
    """

    cores: Annotated[float, Field(gt=0, le=4096)]
    """CPU of the node."""
    used: Cores = 0.0
    """CPU that its own work used in the last second, cores."""
    guests: Cores = 0.0
    """CPU that guests used in the last second, cores."""
    busy: bool = False
    age: Seconds = 0.0
    """How long the node has been busy, or has not."""
    mean: Cores = 0.0
    """Mean CPU that its own work used in this time, cores."""


class ClockReport(_Message):
    """How well the agent knows the leader's clock."""

    bound: Seconds
    """Its error is at most this."""
    drift: Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)] = 0.0
    """By how much the leader's clock is faster than the node's, millionths."""


class NodeReport(_Message):
    """What the node's guests and hosts use, what the agent can hold, and how well it knows the leader's clock."""

    can_write: bool = True
    """Whether the agent can write caps on this node."""
    guest_priority: Literal["idle", "weight"] | None = None
    """How guests get the lowest CPU priority here: the kernel's idle class for cgroups, or only the least weight. None:
    not known yet, because the kubelet has made no cgroup."""
    guest_excess: Count = 0
    """Bytes that guests must give back by leaving: hosts need them, and the kernel cannot take them from guests."""
    hosts: Hosts | None = None
    """None: the agent has just started."""
    clock: ClockReport | None = None
    """None: no exchange has told of the clock yet."""
    load: Load | None = None
    """Tasks of the node's own work that were ready in the last ten seconds, for each CPU. None: no application is held
    here, or not for ten seconds yet."""


class Report(_Message):
    """The report of one node for one second. (instance, sequence) orders reports: an older one is dropped."""

    node: str = Field(max_length=253)
    instance: str = Field(max_length=64)
    """Random per agent process. A new process starts its sequence at 1."""
    started: Seconds = 0.0
    """Seconds since the agent process started. Of two instances, the node's reports are taken from the younger one."""
    sequence: Count
    epoch: Count = 0
    """The highest epoch of the set points that the agent accepted."""
    modes: tuple[Annotated[str, Field(max_length=64)], ...] = Field(default=(), max_length=64)
    """The modes that the agent knows. Empty: it is of the release before."""
    host: NodeReport = NodeReport()
    pods: list[PodReport] = Field(default=[], max_length=1000)


class Loop(_Message):
    """A controller, as :class:`punctual.control.pi.Tuned` defines it."""

    kp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    ki: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    alpha: Annotated[float, Field(ge=0, lt=1)]
    calm: Annotated[float, Field(ge=0, le=1)]
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class HoldOrder(_Message):
    """The pod holds its cap."""

    kind: Literal["Hold"] = "Hold"


class LineOrder(_Message):
    """A line: the agent chooses the cap, so that the pod does its units in the time left."""

    kind: Literal["Line"] = "Line"
    pool: str = Field(max_length=253)
    """Caps of the pods of one pool on a node add up to no more than ``pool_cores``."""
    pool_cores: Cores
    """CPU of all processors that the pool has on this node, cores."""
    units: Count
    """Units that the pod has to do in all."""
    seconds_left: Annotated[float, Field(allow_inf_nan=False)]
    """Until the line's end, which is before the chunk's planned end. Negative: late."""
    due_seconds_left: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Until the job's chunks must have ended. Where CPU is short, chunks with more time are slowed first. None: an
    older operator, so the line's end counts."""
    floor: Cores = 0.0
    """Least cap."""
    ceiling: Cores | None = None
    """Largest cap. None: that of its set point, or more, up to ``pool_cores``, if the pod needs more."""
    sample: Sample = 1.0
    """Seconds from one look of the controller at the progress to the next."""
    model: ResponseModel
    noise: Noise = 0.05
    loop: Loop | None = None
    """None: the agent uses a slow loop that is stable for any model."""


class GridOrder(_Message):
    """When the periods of a pod are to begin: at ``begins`` and any number of periods before and after it."""

    begins: Moment | None = None
    """None: the agent only finds out when they begin. A new leader goes on with the grid that it finds."""
    slice: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    """The slice of each period, seconds. A clock that is uncertain by more than a tenth of it steers nothing."""


class ApplicationOrder(_Message):
    """The pod is a user's own, held at a rate.

    Its cap is never above the limit that it had, and stays in force while the operator or the agent is gone. The pod
    gets its limit back when no set point names it (:attr:`SetPoints.applications_complete`).
    """

    kind: Literal["Application"] = "Application"
    grid: GridOrder | None = None
    """None: its slices may begin at any moments."""
    watch_memory: bool = False
    """The agent reports when memory is short for the pod: others wait for it. It reads more files then."""


class GuestOrder(_Message):
    """A guest: the agent chooses its cap, from its rest cap up to what the node's own work leaves.

    It has the lowest CPU priority for as long as it lives. This goes on while the operator is away. While the agent is
    gone, the pod has its rest cap.
    """

    kind: Literal["Guest"] = "Guest"
    weight: Annotated[int, Field(ge=1, le=10_000)] = 100
    """How much of that is for it, relative to other guests."""
    paused: bool = False
    """It has its rest cap and nothing more."""


Order = HoldOrder | LineOrder | ApplicationOrder | GuestOrder
"""What an agent does with a pod: one for each mode that agents have (:mod:`punctual_agent.modes`)."""

_UNTAGGED: Final = {"application": "Application", "guest": "Guest", "follow": "Line"}
"""In the release before, a set point has a field for each mode but Hold."""


class SetPoint(_Message):
    """The orders for one pod. The cap is for the pod's first container and for the pod."""

    uid: str = Field(max_length=63)
    cap: Cores
    """CPU cap to apply, cores. In some modes the agent moves it."""
    rest_cap: Cores
    """The cap to leave when the operator or the agent is gone. With it the chunk finishes in time without control."""
    period: Annotated[float, Field(ge=0.001, le=1.0)] = 0.1
    """CFS period, seconds."""
    units: Count = 0
    """Units of the chunk. Progress beyond this number is a fault."""
    job: JobName | None = None
    """The job that the pod was promised to. None: it is not known."""
    mode: Order = Field(discriminator="kind")

    @model_validator(mode="before")
    @classmethod
    def _tag(cls, raw: Any) -> Any:
        """Read a set point of an operator of the release before."""
        if not isinstance(raw, Mapping) or "mode" in raw:
            return raw
        for field, kind in _UNTAGGED.items():
            order = {} if raw.get(field) is True else raw.get(field)
            if isinstance(order, Mapping):
                return {**raw, "mode": {**order, "kind": kind}}
        return {**raw, "mode": {"kind": "Hold"}}


class SetPoints(_Message):
    """The answer to a report. Agents refuse an epoch lower than the highest they have seen."""

    epoch: Count
    sent: Moment | None = None
    """When this was sent, on the leader's monotonic clock. None: an operator of the release before."""
    held: Seconds = 0.0
    """How long the leader had the report before it sent this."""
    pods: list[SetPoint] = Field(default=[], max_length=1000)
    applications_complete: bool = False
    """Every application that is held at a rate on this node is in ``pods``: the agent releases all others. False while
    a new leader has not read them all."""


def encoded(answer: SetPoints, modes: Collection[str]) -> str:
    """Return an answer as JSON for an agent that knows these modes (:attr:`Report.modes`).

    Pods in other modes are left out. They keep what they have, because the answer is then not complete.
    """
    known = modes or ("Hold", *_UNTAGGED.values())
    pods = [point for point in answer.pods if point.mode.kind in known]
    if len(pods) < len(answer.pods):
        answer = answer.model_copy(update={"pods": pods, "applications_complete": False})
    if modes:
        return answer.model_dump_json(exclude_none=True)
    raw = answer.model_dump(mode="json", exclude_none=True)
    for point in raw["pods"]:
        order = point.pop("mode")
        for field, kind in _UNTAGGED.items():
            if order["kind"] == kind:
                point[field] = True if kind == "Application" else order
    return json.dumps(raw)
