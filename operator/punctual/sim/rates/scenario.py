"""The input of `punctual simulate rate`: nodes, applications with their targets, external load."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from punctual.control.rate import Admitted, Overcommitted, RateDemand, admit
from punctual.sim import scenario
from punctual.sim.trace import Name as Id

EXCHANGES = 10
"""Exchanges of an iteration."""
TAKEN = 0.02
"""Part of the CPU inside slots that a unit of external load takes."""
MOST_EXCHANGES, MOST_SLOTS = 20_000_000, 500_000_000
"""Limits of what a scenario may make the simulator do: minutes of exchanges; slots where applications share nodes, if
all periods were the shortest, which they hardly are."""
SHORTEST = 1e-6
"""Shortest period and iteration, s."""
LONGEST = 1e9
"""Longest time, s: at 10⁹ s a float still counts tenths of microseconds."""

Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Period = Annotated[float, Field(ge=SHORTEST, le=1e3, allow_inf_nan=False)]
Part = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Target(scenario.Part):
    """A rate, as fraction of the rate alone, from ``at`` on."""

    at: Seconds
    rate: Annotated[float, Field(ge=1e-3, le=1, allow_inf_nan=False)]


def _in_order(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    for n, (one, other) in enumerate(pairwise(targets)):
        if other.at <= one.at:
            raise ValueError(f"target {n + 1} is at {other.at:g} s, after that at {one.at:g} s: order them by `at`")
    return targets


Targets = Annotated[tuple[Target, ...], Field(min_length=1, strict=False), AfterValidator(_in_order)]
Speed = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]


class App(scenario.Part):
    """An application: rank r runs on node r, from its first target on.

    ``compute``, ``communicate``: CPU seconds of each rank in an iteration, at speed 1. ``io``: seconds that each rank
    then waits for its disk. ``noise``: standard deviation of the work of an exchange, relative to it. ``phases``: where
    a slot begins in its period, by rank; absent: drawn.
    """

    id: Id
    compute: Seconds
    communicate: Seconds
    ranks: Annotated[int, Field(ge=1, le=1000)]
    pattern: Literal["all-to-all", "neighbour", "none"] = "all-to-all"
    targets: Targets
    epsilon: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.01
    speeds: Annotated[tuple[Speed, ...], Field(strict=False)] | None = None
    io: Seconds = 0.0
    noise: Annotated[float, Field(ge=0, le=0.3, allow_inf_nan=False)] = 0.0
    phases: Annotated[tuple[Part, ...], Field(strict=False)] | None = None
    law: Literal["bracketing", "linear"] = "bracketing"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.compute + self.communicate < SHORTEST:
            raise ValueError(f"compute + communicate must be {SHORTEST:g} s or more, an iteration needs some work")
        for name, given in (("speeds", self.speeds), ("phases", self.phases)):
            if given is not None and len(given) != self.ranks:
                raise ValueError(f"{name}: {len(given)} are given, {self.ranks} are needed, one for each rank")
        return self

    @property
    def factors(self) -> tuple[float, ...]:
        """Speeds of all ranks."""
        return self.speeds or (1.0,) * self.ranks

    @property
    def alone(self) -> float:
        """Seconds of an iteration with the nodes to itself, without load: that of the slowest rank."""
        return (self.compute + self.communicate) / min(self.factors) + self.io


class Load(scenario.Part):
    """External load on a node in [``from``, ``until``): so many programs that want to run."""

    node: Annotated[int, Field(ge=0)]
    begin: Annotated[Seconds, Field(alias="from")]
    until: Seconds
    amount: Annotated[float, Field(ge=0, le=40, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _span(self) -> Self:
        if self.until <= self.begin:
            raise ValueError("until must be later than from")
        return self


class Scenario(scenario.Part):
    """All of it."""

    nodes: Annotated[int, Field(ge=1, le=1000)]
    min_period: Period
    max_period: Period
    apps: Annotated[tuple[App, ...], Field(min_length=1, strict=False)]
    load: Annotated[tuple[Load, ...], Field(strict=False)] = ()
    duration: Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
    switch_cost: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0001

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_period < self.min_period:
            raise ValueError(f"max_period: {self.max_period:g} is below min_period, {self.min_period:g}")
        ids = [app.id for app in self.apps]
        for n, app in enumerate(self.apps):
            at = f"apps.{n}"
            if app.id in ids[:n]:
                raise ValueError(f"{at}.id: {app.id!r} is the id of apps.{ids.index(app.id)} already")
            if app.ranks > self.nodes:
                raise ValueError(f"{at}.ranks: {app.ranks} ranks need as many nodes, there are {self.nodes}")
            if app.targets[-1].at >= self.duration:
                raise ValueError(f"{at}.targets: {app.targets[-1].at:g} s is not before the end, {self.duration:g} s")
        for n, load in enumerate(self.load):
            if load.node >= self.nodes:
                raise ValueError(f"load.{n}.node: there is no {load.node}, nodes are 0 to {self.nodes - 1}")
        self._check_size()
        for time in sorted({target.at for app in self.apps for target in app.targets}):
            if isinstance(answer := self.admission(time), Overcommitted):
                raise ValueError(f"apps: from {time:g} s on {answer}")  # noqa: TRY004  of the value, not of its type
        return self

    def _check_size(self) -> None:
        iterations = sum(self.duration / app.alone * app.ranks * EXCHANGES for app in self.apps)
        slots = sum(self.duration / self.min_period * app.ranks for app in self.apps) if len(self.apps) > 1 else 0.0
        if iterations > MOST_EXCHANGES:
            raise ValueError(
                f"duration: {self.duration:g} s have up to {iterations:.3g} exchanges of ranks, at most "
                f"{MOST_EXCHANGES:g} are simulated: shorten it, or take longer iterations"
            )
        if slots > MOST_SLOTS:
            raise ValueError(
                f"duration: {self.duration:g} s have up to {slots:.3g} slots, at most {MOST_SLOTS:g} are simulated: "
                "shorten it, or take a longer min_period"
            )

    def admission(self, at: float) -> Admitted | Overcommitted:
        """Test the targets in force at a time."""
        demands = [
            RateDemand(app.id, rate, app.epsilon, dict.fromkeys(map(str, range(app.ranks)), 1.0))
            for app in self.apps
            if (rate := rate_at(app, at)) is not None
        ]
        return admit(demands, dict.fromkeys(map(str, range(self.nodes)), 1.0))


def rate_at(app: App, at: float) -> float | None:
    """Return the target in force; None: the application has not begun."""
    return next((target.rate for target in reversed(app.targets) if target.at <= at), None)


def parse(text: str | bytes) -> Scenario:
    """Read a scenario. Raises ScenarioError."""
    return scenario.read(Scenario, text)
