"""TargetRate: pods of the user's own that are held at a part of their rate alone."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, ApiModel, Column, Names, SchemaRule
from punctual.kube.api.fields import (
    BALANCED,
    PERCENT,
    AskedRate,
    Count,
    IterationRate,
    ObjectName,
    Percent,
    Period,
    Seconds,
    Series,
    StatusDuration,
    StatusPercent,
    part_in_percent,
)
from punctual.kube.api.meta import EPOCH_NEVER_FALLS, Conditions, Epoch, KindModel, LabelSelector

SLICE: Final = 0.001
"""The kernel's least quota, s."""


class PeriodRange(ApiModel):
    """The periods that may be used."""

    RULES: ClassVar = (
        SchemaRule(
            "duration(self.min) <= duration(self.max)",
            "min must not be longer than max",
            lambda self: self.min <= self.max,
            field="min",
        ),
    )

    min: Period = 0.005
    """The shortest. From 1ms, the kernel's least quota, to 1s; default 5ms."""
    max: Period = 0.2
    """The longest. Not below 1ms / `rate`, or 10ms if that is `Balanced`: no slice is shorter than 1ms, the kernel's
    least quota. Default 200ms."""


class Iterations(ApiModel):
    """Where Prometheus has the iterations of the pods."""

    query: Series
    """A selector with one series for each pod: `solver_iterations_total{namespace="default"}`. Its labels `namespace`
    and `pod` name the pod; its value is the iterations that the pod has done since it started. It is a name and labels:
    functions and sums are not possible. Required."""


class TargetRateSpec(ApiModel):
    """Which pods are held, and at what rate."""

    RULES: ClassVar = (
        SchemaRule(
            "has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0 || "
            "has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0",
            "select pods by a label at least, such as {matchLabels: {app: solver}}",
            lambda self: bool(self.selector.match_labels or self.selector.match_expressions),
            field="selector",
        ),
        SchemaRule(
            # whole milliseconds are counted, rounded up: the operator checks the rest
            f"!self.rate.matches(r'{PERCENT}') || "
            "double(self.rate.substring(0, self.rate.size() - 1)) * "
            "double(duration(self.period.max).getMilliseconds() + 1) > 100.0",
            "max must be at least 1ms / rate: no slice is shorter than 1ms, the kernel's least quota",
            lambda self: self.rate == BALANCED or self.period.max * self.rate >= SLICE * (1 - 1e-9),
            field="period.max",
        ),
        SchemaRule(
            f"self.rate != '{BALANCED}' || duration(self.period.max) >= duration('10ms')",
            "max must be at least 10ms with rate Balanced: the least part is 10%, and no slice is shorter than 1ms",
            lambda self: self.rate != BALANCED or self.period.max >= 0.01 * (1 - 1e-9),
            field="period.max",
        ),
    )

    pool: ObjectName
    """Name of the Pool with the nodes on which the pods run. Required. Example: `main`."""
    selector: LabelSelector
    """The pods, by their labels, in the namespace of this object; all pods of one application:
    `{matchLabels: {app: solver}}`. Required, with one label at least. Pods of jobs are never held."""
    rate: AskedRate
    """The rate at which the application is to run, as a part of its rate alone, in per cent: `40%`. Or `Balanced`: its
    pods get a part of their CPU that follows the load of their nodes' own work, the same on all nodes. It is 90% on
    nodes without such work, a tenth less for each half task per CPU, and 10% at least. Neither progress nor `maxRate`
    is needed then. It may be changed at any time. Required, from 0.1% to 100%, or `Balanced`."""
    max_rate: IterationRate | None = None
    """The application's rate when it has all its CPU: that of its slowest pod, as iterations a second, minute or hour:
    `120/s`, `8/min`. Default: it is measured while the pods have all their CPU, for 10 seconds and 3 iterations at
    least, and kept in `status.maxRate`."""
    epsilon: Annotated[Percent, part_in_percent("0.1", "50", "3%")] = 0.03
    """How far rate and CPU may be from `rate`, in percentage points: `3%`. From 0.1% to 50%, default 3%. Not used with
    `rate: Balanced`."""
    iterations: Iterations | None = None
    """Prometheus counts the iterations, if the operator knows one (the chart's value `prometheus.url`). Default: each
    pod writes them into the file `progress` of an emptyDir volume named `punctual`."""
    period: PeriodRange = PeriodRange()
    """The periods in which a pod gets its slice of CPU. The longest that holds the rate is used: each slice costs a
    switch."""
    coscheduling: Literal["None", "Aligned"] = "None"
    """Whether all pods get their slices at the same moments. None: each pod's slices begin at moments of its own.
    Aligned: they begin together on all nodes, and a pod of the QoS class Guaranteed gets its slice before almost all
    other pods of its node, by the highest weight of CPU. This is for programs with processes that wait for each other
    by spinning, such as MPI programs by default: it can double their rate. For programs that block while they wait it
    changes nothing. Periods are then 100ms × 2^k within `period`, and no slice is longer than the Pool's `maxSlice`.
    Default None."""


class TargetRateStatus(ApiModel):
    """How it stands. The operator goes on from this after a restart; do not edit it."""

    conditions: Conditions = Field(default=[])
    """Admitted: the pods are held, because what the rate takes on each node is not more than they request there.
    OnTarget: the rate and the CPU are both within `epsilon` of the target; with `rate: Balanced`, the CPU is the part
    for the load. Aligned: the slices of all pods begin at the same moments; only with `coscheduling: Aligned`, while
    the pods are held and their rate alone is known, or not needed."""
    epoch: Epoch | None = None
    """Which leader of the operator wrote this; it rises with every change of leader and never falls."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that was last looked at."""
    target: Percent | None = None
    """The target in force: `spec.rate`, or the one before an edit that was refused; with `rate: Balanced` the part of
    its CPU that each pod gets. None: the pods are not held."""
    rate: StatusPercent | None = None
    """The rate that was last measured."""
    error: Annotated[str, Field(max_length=16)] | None = None
    """That rate less the target, in percentage points: `-0.4%`. Absent with `rate: Balanced`."""
    load: Annotated[float, Field(ge=0)] | None = None
    """With `rate: Balanced`: the load of the nodes' own work, in tasks per CPU that run or wait, smoothed over about a
    minute. Absent: no node has told yet."""
    quota: Annotated[str, Field(max_length=32)] | None = None
    """The CPU limit in force on a pod, the least of all its pods: `400m`."""
    utilization: Percent | None = None
    """The part of its CPU that each pod gets."""
    period: Seconds | None = None
    """The period in which it gets that, in seconds."""
    offset: StatusDuration | None = None
    """Where in the grid of periods, which all nodes share, its slices begin: `25ms`. Absent: they are not aligned."""
    skew: StatusDuration | None = None
    """How far the begin of a pod's slices is from the grid at most, of all its pods: `0.3ms`. Absent: they are not
    aligned, or it is not known."""
    max_rate: IterationRate | None = None
    """The rate alone: `spec.maxRate`, or as it was measured."""
    pods: Count | None = None
    """Pods that are selected and have a node."""


class TargetRate(KindModel):
    """Pods of an application, held at a part of the rate at which they run alone.

    Each pod gets the same slice of CPU in each period, so that ranks that exchange data stay together. The pods are the
    user's own: the agent lowers their CPU limit, never raises it, and puts it back when the TargetRate is deleted.
    They count their iterations in the file `progress` of an emptyDir volume named `punctual`, or in Prometheus.
    """

    RULES: ClassVar = (
        EPOCH_NEVER_FALLS,
        SchemaRule(
            "self.spec.pool == oldSelf.spec.pool",
            "the pool cannot be changed: delete the TargetRate and create another one",
            None,
            field="spec.pool",
        ),
    )
    NAMES: ClassVar = Names("TargetRate", "targetrates", "targetrate", ("tr",), "Namespaced")
    COLUMNS: ClassVar = (
        Column("Target", ".status.target", "string", 0, "the target in force"),
        Column("Actual", ".status.rate", "string", 0, "the rate that was last measured"),
        Column("Error", ".status.error", "string", 0, "how far that is from the target"),
        Column("Quota", ".status.quota", "string", 0, "CPU limit of a pod"),
        AGE,
        Column("OnTarget", '.status.conditions[?(@.type=="OnTarget")].status', "string", 1),
        Column("Aligned", '.status.conditions[?(@.type=="Aligned")].status', "string", 1),
        Column("Pods", ".status.pods", "integer", 1),
        Column("Pool", ".spec.pool", "string", 1),
        Column("Reason", '.status.conditions[?(@.type=="Admitted")].reason', "string", 1),
    )
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: TargetRate
metadata:
  name: solver
  namespace: default
spec:
  pool: main
  selector:
    matchLabels: {app: solver}
  # 40 % of the rate at which the solver runs alone, which is 8 iterations a minute.
  rate: 40%
  maxRate: 8/min
"""

    kind: Annotated[Literal["TargetRate"], WithJsonSchema({"type": "string"})] = "TargetRate"
    """TargetRate"""
    spec: TargetRateSpec
    """Which pods are held, and at what rate."""
    status: TargetRateStatus | None = None
    """How it stands."""
