"""What agent and operator say to each other: one HTTPS exchange per node and second, JSON both ways.

Up goes a :class:`Report`, down come :class:`SetPoints`. Absolute times never cross: nodes' clocks differ, so agents
are told *seconds left*. Unknown fields are ignored, so that either side may be upgraded first.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

REPORT_PATH: Final = "/v1/report"
AUDIENCE: Final = "punctual-operator"
"""Audience of the agent's projected token; a token made for anything else is refused."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Cores = Annotated[float, Field(ge=0, le=4096, allow_inf_nan=False)]
File = Literal["progress", "end", "received"]
"""What a worker writes in PUNCTUAL_DIR."""
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


class PodReport(_Message):
    """What the agent saw of one pod since the last report."""

    uid: str = Field(max_length=63)
    done: Count | None = None
    """Units done since PUNCTUAL_BEGIN; None while the worker has written nothing that can be read."""
    end: Count | None = None
    """The end the worker said it will honour (its answer to an offer)."""
    received: Count | None = None
    """Bytes fetched by the input step."""
    over: bool = False
    """Its files are gone, so its containers have ended, and what is said of them here was read so late that an answer
    to an offer would be in it."""
    faults: dict[File, dict[Fault, Count]] = {}
    """Files that were not what they should be, by file and kind, counted since the agent started."""
    cpu_seconds: Seconds = 0.0
    """CPU used since the pod began."""
    throttled_seconds: Seconds = 0.0
    """Time spent throttled by the cap since the pod began."""
    cap: Cores | None = None
    """The cap in force (quota/period, cores); None: no cap, or no cgroup found."""
    period: Seconds | None = None
    """The CFS period in force, seconds."""
    drift: Count = 0
    """How often something else changed the cap and the agent put it back."""


class NodeReport(_Message):
    """The node as its cgroup root and /proc tell it."""

    cpu_seconds: Seconds = 0.0
    """CPU used by the whole node since it started, from its cgroup root."""
    memory_bytes: Count = 0
    pressure: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    """PSI "some" of CPU over 10 s, per cent; None where the kernel has none."""
    cgroup: Literal["v1", "v2"] = "v1"
    driver: Literal["cgroupfs", "systemd"] = "cgroupfs"
    can_write: bool = True
    """Whether caps can be written here at all."""


class Report(_Message):
    """One node's second. (instance, sequence) orders reports: an older one is dropped."""

    node: str = Field(max_length=253)
    instance: str = Field(max_length=64)
    """Random per agent process; a new one starts its sequence at 1."""
    started: Seconds = 0.0
    """Seconds since the agent process started: of two instances the younger speaks for the node."""
    sequence: Count
    epoch: Count = 0
    """The highest epoch the agent has taken set points from."""
    host: NodeReport = NodeReport()
    pods: list[PodReport] = Field(default=[], max_length=1000)


class SetPoint(_Message):
    """What one pod shall do. The cap is for the pod's first container and for the pod."""

    uid: str = Field(max_length=63)
    cap: Cores
    """CPU cap to apply, cores."""
    rest_cap: Cores
    """Cap to leave behind when the operator or the agent goes away: finishes in time on its own."""
    period: Annotated[float, Field(ge=0.001, le=1.0)] = 0.1
    """CFS period, seconds."""
    units: Count = 0
    """Units of the chunk (its length): progress beyond that is a fault."""
    units_left: float | None = None
    seconds_left: float | None = None
    """Seconds until the chunk's planned end, at the moment of the answer; negative: late."""


class SetPoints(_Message):
    """The answer to a report. Agents refuse an epoch lower than one they have seen."""

    epoch: Count
    pods: list[SetPoint] = Field(default=[], max_length=1000)
