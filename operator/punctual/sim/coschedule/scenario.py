"""The input of `punctual simulate coschedule`, for each of its two models. Every field may be left out."""

from math import expm1, inf
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from punctual.sim import scenario
from punctual.sim.trace import Name as Id

SHORTEST: Final = 1e-6
"""Least grain, period, slice and quantum, s."""
LONGEST: Final = 1e6
"""Maximum time, s: at 10⁶ s a float still counts tenths of nanoseconds."""
MOST_EVENTS: Final = 20_000_000
MOST_TASKS: Final = 1_000_000
"""Limits of what a scenario may make the simulator do: minutes."""

Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=SHORTEST, le=LONGEST, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=-LONGEST, le=LONGEST, allow_inf_nan=False)]
Policy = Literal["share", "bucket", "aligned", "windows", "gang"]
Time = Annotated[float, Field(ge=1e-3, le=1e6, allow_inf_nan=False)]
StationsPolicy = Literal["LIN", "IMP", "EXP", "HPDT", "DYN", "PRE"]


class App(scenario.Part):
    """An application with one rank on each of its nodes.

    A rank computes ``grain`` CPU seconds, sends, and waits for its partners: all others, or its two neighbours on a
    ring. Its next iteration begins ``latency`` seconds after the last of them has sent. It waits by spinning, which
    uses its CPU, or blocked. ``phases``: where slices begin, by rank, s; absent: drawn, or, if the policy is one of
    `TOGETHER`, ``offset`` plus or minus ``error``.
    """

    id: Id = "a"
    nodes: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, strict=False)] = (0, 1)
    grain: Positive = 0.005
    wait: Literal["spin", "block"] = "spin"
    pattern: Literal["all", "neighbours"] = "all"
    latency: Seconds = 0.00005
    policy: Policy = "share"
    period: Positive = 0.1
    slice: Positive = 0.05
    phases: Annotated[tuple[Moment, ...], Field(strict=False)] | None = None
    offset: Moment = 0.0
    error: Seconds = 0.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.slice > self.period:
            raise ValueError(f"slice: {self.slice:g} s is longer than the period, {self.period:g} s")
        if self.phases is not None and len(self.phases) != len(self.nodes):
            many = f"{len(self.phases)} {'is' if len(self.phases) == 1 else 'are'}"
            raise ValueError(f"phases: {many} given, {len(self.nodes)} are needed, one for each of nodes")
        if twice := [node for n, node in enumerate(self.nodes) if node in self.nodes[:n]]:
            raise ValueError(f"nodes: {twice[0]} is named twice, and a node has one rank of an application")
        return self

    @property
    def alone(self) -> float:
        """Seconds of an iteration with the nodes to itself."""
        return self.grain + self.latency


class Slices(scenario.Part):
    """Model `slices`: nodes with one CPU each, ``hogs`` local programs on each that always want it, applications."""

    model: Literal["slices"] = "slices"
    nodes: Annotated[int, Field(ge=1, le=1000)] = 2
    duration: Positive = 20.0
    hogs: Annotated[int, Field(ge=0, le=1000)] = 1
    quantum: Positive = 0.004
    apps: Annotated[tuple[App, ...], Field(min_length=1, strict=False)] = (App(),)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        ids = [app.id for app in self.apps]
        for n, app in enumerate(self.apps):
            if app.id in ids[:n]:
                raise ValueError(f"apps.{n}.id: {app.id!r} is the id of apps.{ids.index(app.id)} already")
            if beyond := [node for node in app.nodes if node >= self.nodes]:
                raise ValueError(f"apps.{n}.nodes: there is no {beyond[0]}, nodes are 0 to {self.nodes - 1}")
        events = sum(self.duration * len(app.nodes) * self._events(app) for app in self.apps)
        if events > MOST_EVENTS:
            raise ValueError(
                f"duration: {self.duration:g} s have up to {events:.3g} events, at most {MOST_EVENTS:g} are simulated: "
                "shorten it, or take a longer grain, period or quantum"
            )
        return self

    def _events(self, app: App) -> float:
        """Return how many events a rank has in a second, at most."""
        return 2.0 / app.alone + (1.0 / self.quantum if app.policy == "share" else 2.0 / app.period)


class Stations(scenario.Part):
    """Model `stations`: chapter 4 of Solsona 2002. Times are in its units, a tenth of a mean interarrival time.

    ``mrql``: mean number of tasks of a station, which gives the mean service time by (4.1). ``pdt``: probability that a
    task is distributed. ``maxm``: largest frequency of messages. ``mco``: how often policies PRE and DYN let a task be
    overtaken while it waits; absent: ``mrql``, as in the thesis. ``slice``: of policy EXP, for either class. ``spin``:
    of policy IMP, in mean service times. ``tasks``: distributed ones that all stations together serve, the first
    ``warm`` part of them uncounted.
    """

    model: Literal["stations"] = "stations"
    policy: StationsPolicy = "LIN"
    stations: Annotated[int, Field(ge=1, le=1000)] = 4
    mrql: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = 5.0
    pdt: Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False)] = 0.5
    maxm: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    mco: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    quantum: Time = 10.0
    mit: Time = 10.0
    slice: Time = 100.0
    spin: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 0.1
    symmetry: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.9
    tasks: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 10_000
    warm: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        turns = self.mst / self.quantum
        events = self.tasks / self.pdt * (2.0 + turns + self.mit / self.slice)
        if events > MOST_EVENTS:
            raise ValueError(
                f"tasks: {self.tasks} distributed ones have about {events:.3g} events, at most {MOST_EVENTS:g} are "
                "simulated: serve fewer, or take a longer quantum or slice"
            )
        if self.policy == "IMP":
            vain = (1.0 - self.pdt) / -expm1(-1.0 / turns)  # turns of a task in which it spins in vain, in the mean
            most = 1.0 / (self.mrql * vain) if vain else inf
            if self.spin >= most:
                raise ValueError(
                    f"spin: with {self.spin:g} stations cannot serve all tasks that come, and queues grow for ever: it "
                    f"must be less than {most:.3g}, or pdt or quantum larger"
                )
        return self

    @property
    def mst(self) -> float:
        """Mean service time, (4.1)."""
        return self.mit * self.mrql / (1.0 + self.mrql)

    @property
    def overtakings(self) -> float:
        """How often a task may be overtaken."""
        return self.mrql if self.mco is None else self.mco


class _Which(scenario.Part):
    """The field that chooses the model."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    model: Literal["slices", "stations"] = "slices"


def parse(text: str | bytes) -> Slices | Stations:
    """Read a scenario. Raises ScenarioError."""
    model = scenario.read(_Which, text).model
    return scenario.read(Slices, text) if model == "slices" else scenario.read(Stations, text)
