"""The input of `punctual simulate control`: the cores of a node, and its jobs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from punctual.control.utilization import Order
from punctual.sim import scenario

MOST: float = 1e9
Control = Literal["adaptive", "static", "open", "edf-cores", "none", "published"]
Number = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
More = Annotated[float, Field(ge=1e-9, le=MOST, allow_inf_nan=False)]
Part = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=253)]


class Believed(scenario.Part):
    """What the profile says of a job's process."""

    a: Part
    b: More
    delay: Annotated[int, Field(ge=0, le=2)] = 0


class Disturbance(scenario.Part):
    """The effect of CPU is multiplied by ``factor`` from ``at`` until ``until`` (seconds from 0), or for good."""

    at: Number
    factor: Number
    until: Number | None = None

    @model_validator(mode="after")
    def _span(self) -> Self:
        if self.until is not None and self.until <= self.at:
            raise ValueError("until must be later than at")
        return self


class Disk(scenario.Part):
    """What all jobs together can read and write."""

    capacity: More
    """MB per period."""


class PlantJob(scenario.Part):
    """One job: P(k) = a P(k−1) + b C(k−1−delay) · factor + noise, units per period."""

    id: Name
    arrival: Number = 0.0
    """Seconds from 0."""
    work: More
    """Units."""
    deadline: More
    """Seconds from its acceptance."""
    a: Part
    b: More
    delay: Annotated[int, Field(ge=0, le=10)] = 0
    noise: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """Standard deviation, relative to the expected progress of the period."""
    cap: Annotated[tuple[Number, Number], Field(strict=False)] = (0.0, 1.0)
    """Least and largest cap, cores."""
    model: Believed | None = None
    io: Number = 0.0
    """MB per unit."""
    disturbances: Annotated[tuple[Disturbance, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _range(self) -> Self:
        low, high = self.cap
        if not low <= high or high <= 0.0:
            raise ValueError("cap must be [least, largest] with least <= largest and largest > 0")
        return self

    @property
    def gain(self) -> float:
        """Units per period that one core gives once the progress has settled, without noise and disturbances."""
        return self.b / (1.0 - self.a)


class Scenario(scenario.Part):
    """A node and its jobs."""

    cores: More
    headroom: Part = 0.125
    period: Annotated[float, Field(ge=0.01, le=3600, allow_inf_nan=False)] = 1.0
    """Seconds."""
    slots: Annotated[int, Field(ge=1)] | None = None
    """Jobs in memory at once; None: any number."""
    resubmit: More | None = None
    """Seconds after which a refused job asks again; None: it does not."""
    lend: bool = True
    """Whether jobs ahead of their lines get CPU that no line needs, as the agent always gives it."""
    control: Control = "adaptive"
    lines: Literal["early", "deadline"] = "early"
    """Where lines end: a little before the deadlines, or exactly at them, as Park and Humphrey print it."""
    order: Order = "slack"
    """Which jobs are in memory if there are too few slots: those with the least slack, or with the highest need."""
    disk: Disk | None = None
    jobs: Annotated[tuple[PlantJob, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [job.id for job in self.jobs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"jobs: the id {twice!r} is there twice")
        if self.control == "static":
            for job in self.jobs:
                if job.model is None:
                    raise ValueError(f"jobs: {job.id!r} needs a model under control static")
        return self

    @property
    def usable(self) -> float:
        """Cores that are promised."""
        return self.cores * (1.0 - self.headroom)


def parse(text: str | bytes) -> Scenario:
    """Read a scenario. Raises ScenarioError."""
    return scenario.read(Scenario, text)
