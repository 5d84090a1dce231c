"""Pool: processors and the discipline that fills them."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, PRESERVE_UNKNOWN, ApiModel, Column, Names, SchemaRule
from punctual.kube.api.fields import (
    Count,
    Cpu,
    Days,
    Duration,
    ExtendedResources,
    Memory,
    NamespaceName,
    Percent,
    Period,
    SamplePeriod,
    Seconds,
    SliceLength,
    StatusPercent,
    Time,
    between_percent,
    measured_percent,
)
from punctual.kube.api.meta import EPOCH_NEVER_FALLS, Conditions, Epoch, KindModel, LabelSelector
from punctual.linger.policy import Policy
from punctual.notation import duration

_CORES: Final = "(type(self.cpu) == int ? double(self.cpu) : quantity(self.cpu).asApproximateFloat())"


class Processor(ApiModel):
    """One processor: what one chunk gets. A node has as many as fit into what other pods leave of it."""

    RULES: ClassVar = (
        SchemaRule(
            # where either is wrong by itself their own rules speak
            f"(type(self.cpu) != int && !isQuantity(self.cpu)) || {_CORES} < 0.01 || "
            f"!self.period.matches(r'{duration.PATTERN}') || self.period.matches(r'{duration.TOO_LONG}') || "
            f"duration(self.period) < duration('1ms') || "
            f"{_CORES} * double(duration(self.period).getMilliseconds()) >= 1.0",
            "cpu times period must be 1ms or more, the smallest quota the kernel takes: "
            "take a longer period or more CPU",
            lambda self: self.cpu * self.period >= 0.001,
            field="period",
        ),
    )

    cpu: Cpu
    """CPU of one processor, in cores: `"1"`, `500m`, `100m`. A chunk's pod requests this much, and its first
    container may use no more. Required; from 10m to 4096, no finer than 1m."""
    memory: Memory = 2 * 2**30
    """Memory of one processor: `2Gi`, `512Mi`. A chunk's pod requests this much, so a node has no more processors
    than its free memory holds. Default 2Gi."""
    resources: ExtendedResources | None = None
    """Extended resources of one processor, such as devices: `{nvidia.com/gpu: 1}`. A node has as many processors as the
    scarcest of its resources allows, and without one of these it has none. A chunk's pod requests this much; a template
    that names another amount is refused with PodTooLarge. Whole numbers from 1, at most 16 names with their domain.
    Where jobs share processors, each pod has all of it, as of memory. Default: none."""
    period: Period = 0.1
    """Over how long the kernel measures that CPU (the CFS period): within each period a chunk may use cpu × period of
    CPU time, then it waits for the next. Shorter is smoother and costs a little more. From 1ms to 1s, default
    100ms."""


class MissRatioSpec(ApiModel):
    """How many of those let in may miss their deadlines: costs are taken for estimates that may be wrong."""

    target: Annotated[Percent, between_percent(1, 50, "5%")] = 0.05
    """How many of the admitted jobs may be late, in per cent: `"5%"`. 0 would admit no job. From 1% to 50%, default
    5%."""
    period: SamplePeriod = 300.0
    """How often the bound is moved, by what became of jobs since; while fewer than ten have come to an end it waits.
    Take some times what a job takes. From 10s to 24h, default 5m."""


class Utilization(ApiModel):
    """How jobs share processors."""

    pods_per_processor: Annotated[int, Field(ge=1, le=16)] = 2
    """How many pods a node may have at a time, per processor: `4`. Each has the processor's memory, so a node also has
    no more pods than its free memory holds; each requests this part of the processor's CPU. From 1 to 16, default
    2."""


class PoolGuests(ApiModel):
    """What jobs of class Guest do on a node of the pool when the node's own work comes back."""

    policy: Policy = "LingerLonger"
    """LingerLonger: a chunk goes on at the lowest priority, and moves to a less busy node when that pays.
    LingerForever: it goes on, and never moves. ImmediateEviction: it leaves at once. PauseAndMigrate: it pauses, and
    leaves after ten minutes. A chunk that leaves hands back what it has not begun. Default LingerLonger."""
    preview: bool = False
    """true: the policy's decisions are told in events and metrics, but no chunk pauses or leaves. Default false."""


class PoolReservations(ApiModel):
    """From which namespaces reservations are taken, and how far ahead."""

    namespace_selector: LabelSelector | None = None
    """From which namespaces reservations are taken, by the namespaces' labels, of those that the pool's own
    `namespaceSelector` takes jobs from; reservations from others are refused with reason NotAllowed. Default: from all
    of those. Example: `{matchLabels: {punctual.dev/reserves: "true"}}`."""
    horizon: Days = 28
    """How far ahead processors are booked: a window is taken if it ends within so many days or weeks from now, such as
    `7d` or `4w`. One that ends later is refused with reason TooFarAhead, and asked about when it comes within. Default
    4w."""


class PoolSelectors(ApiModel):
    """Which nodes, jobs and reservations the pool takes."""

    node_selector: LabelSelector
    """Which nodes are the pool's, by their labels; `{}` means all. A node that two pools select belongs to the older
    one (condition NodesOverlap). Required. Example: `{matchLabels: {punctual.dev/pool: main}}`."""
    namespace_selector: LabelSelector | None = None
    """From which namespaces jobs are taken, by the namespaces' labels; jobs from others are refused with reason
    NotAllowed. Default: from all. Example: `{matchLabels: {team: vision}}`."""
    reservations: PoolReservations | None = None
    """Namespaces from which the pool takes reservations, and how far ahead: `{namespaceSelector: {matchLabels:
    {team: vision}}, horizon: 7d}`. An edit changes nothing about windows that are booked already. Default: from all
    namespaces that `namespaceSelector` takes jobs from, 28 days ahead."""


_NOT_SHARED: Final[tuple[tuple[str, str, Callable[[Any], bool], str], ...]] = (
    ("missRatio", "!has(self.missRatio)", lambda pool: pool.miss_ratio is None,
     "takes costs as they are: remove missRatio"),
    ("network", "self.network == 'Concurrent'", lambda pool: pool.network == "Concurrent",
     "has no order of transfers: network must be Concurrent"),
    ("partition", "self.partition == 'Optimal'", lambda pool: pool.partition == "Optimal",
     "gives a job one pod: partition must be Optimal"),
    ("assign", "self.assign == 'Fewest'", lambda pool: pool.assign == "Fewest",
     "gives a job one pod: assign must be Fewest"),
    ("hold", "self.hold != 'Placeholder'", lambda pool: pool.hold != "Placeholder",
     "has no unused processors that a placeholder could keep: hold must be None or Taint"),
    ("reservations", "!has(self.reservations)", lambda pool: pool.reservations is None,
     "takes no reservations: remove reservations"),
)  # fmt: skip
"""What makes no sense where jobs share processors: field, CEL, the same in Python, and why."""


def _refused(field: str, cel: str, holds: Callable[[Any], bool], why: str) -> SchemaRule:
    return SchemaRule(
        f"self.admission != 'Utilization' || {cel}",
        f"admission Utilization {why}",
        lambda pool: pool.admission != "Utilization" or holds(pool),
        field=field,
    )


SHARE: Final = between_percent(1, 100, "50%")


class NamespaceShare(ApiModel):
    """The share of one namespace."""

    namespace: NamespaceName
    """The namespace. Required in `namespaceShares`."""
    max_share: Annotated[Percent, SHARE]
    """How much of the pool's capacity may be promised to it, in per cent: `"50%"`. From 1% to 100%. Required in
    `namespaceShares`."""


class NodeClass(ApiModel):
    """What a unit takes on the nodes of one class."""

    name: Annotated[str, Field(max_length=63)]
    """Value of the nodes' label `node.kubernetes.io/instance-type`; empty: they have none. Required in `classes`."""
    unit_time: Annotated[StatusPercent, measured_percent(100, 10_000, "150%")]
    """How long a unit takes there, in per cent of what it takes on the pool's quickest nodes: `"150%"`. From 100% to
    10000%. Required in `classes`."""


class NodeSpeeds(ApiModel):
    """How the classes of the pool's nodes compare."""

    limit: Annotated[StatusPercent, measured_percent(100, 10_000, "200%")] = 2.0
    """How much longer than on the quickest class a unit may be taken to last by what profiles have measured: `"200%"`.
    What they find beyond that is shown in `status.nodeClasses`, and counts only if `classes` says so. `"100%"`: nothing
    is learned of the nodes' speeds. From 100% to 10000%, default 200%."""
    classes: (
        Annotated[
            list[NodeClass],
            Field(max_length=64),
            SchemaRule(
                "self.all(c, self.exists_one(other, other.name == c.name))",
                "name each class once",
                lambda classes: len({c.name for c in classes}) == len(classes),
            ),
        ]
        | None
    ) = None
    """Classes of nodes with what a unit takes there: `[{name: m5.large, unitTime: "150%"}]`. It wins over what profiles
    measure. Default: none."""


class PoolSpec(PoolSelectors):
    """What the pool shall be."""

    RULES: ClassVar = (
        SchemaRule(
            "self.admission == 'Exact' || self.order == 'EDF'",
            "admission Fast, Hybrid and Utilization need order EDF",
            lambda self: self.admission == "Exact" or self.order == "EDF",
            field="admission",
        ),
        SchemaRule(
            "!has(self.missRatio) || self.order == 'EDF'",
            "missRatio needs order EDF",
            lambda self: self.miss_ratio is None or self.order == "EDF",
            field="missRatio",
        ),
        SchemaRule(
            "!has(self.utilization) || self.admission == 'Utilization'",
            "utilization needs admission Utilization",
            lambda self: self.utilization is None or self.admission == "Utilization",
            field="utilization",
        ),
        *(_refused(*field) for field in _NOT_SHARED),
    )

    processor: Processor
    """What one processor is. All processors of a pool are alike. Required."""
    hold: Literal["None", "Taint", "Placeholder"] = "None"
    """How other pods are kept from taking the pool's room. None: they are not; processors are what they leave, and a
    promise may suffer when they come. Taint: the nodes are the pool's alone (taint `punctual.dev/pool`, NoSchedule);
    pods that are there already stay. Placeholder: pods that sleep keep the room of each unused processor, and
    make way for its chunks; pods of a higher priority still take it. Default None."""
    progress_control: Literal["Feedback", "None"] = "Feedback"
    """How the CPU of running chunks is set. Feedback: each node's agent measures how fast a chunk gets on and moves its
    CPU limit, so that the chunk ends at its planned end: a chunk that falls behind gets what chunks on the same node
    that are ahead do not need. None: each chunk may use one processor. Default Feedback."""
    headroom: Annotated[Percent, between_percent(0, 90, "12.5%")] = 0.125
    """The part r of each processor that plans leave free, in per cent: `"12.5%"`. A unit is planned with the cost
    perUnit / (1 - r), and a chunk that falls behind can use the free part to catch up. From 0% to 90%, default
    12.5%."""
    margin: Duration = 6.0
    """Plans end this long before the deadline, because the control plane takes time to react. 6s are enough to end a
    pod that does not end as planned, and to run in time the job that waits for its processor. With less, such a pod can
    cost that job its promise. What start-ups were seen to take beyond a job's `cost.startup` is added, at least 2s with
    `hold: Placeholder`. Default 6s."""
    order: Literal["EDF", "FIFO", "MWF"] = "EDF"
    """In which order waiting jobs are planned. EDF: the earliest deadline first. FIFO: the first that came first. MWF:
    first the job for which one processor more than needed would add most to its total work (maximum workload
    derivative). Default EDF."""
    partition: Literal["Optimal", "Equal"] = "Optimal"
    """How a job is cut into chunks. Optimal: all its processors finish at the same time, each from the moment it is
    free (OPR in the papers). Equal: equal parts (EPR). Default Optimal."""
    assign: Literal["Fewest", "All"] = "Fewest"
    """How many processors a job gets. Fewest: the least number that meets its deadline (MN in the papers). All: each
    processor that makes it end earlier, up to its `processors.max` (AN). Default Fewest."""
    admission: Literal["Exact", "Fast", "Hybrid", "Utilization"] = "Exact"
    """How a promise is tested. Exact: the whole queue is planned again with the new job in it, and the job is
    promised its deadline only if every promise is still kept. Fast: by what its neighbours in the order of deadlines
    leave, in some microseconds however many wait; processors then take what is due first as they become free. Hybrid:
    Exact while few wait, Fast from 300 waiting jobs on. What Fast cannot judge (a reduce step, `processors`) is judged
    by Exact. All but Exact need `order: EDF`. Utilization: each job has one pod, and pods share processors; a job
    is promised its deadline if the CPU that all jobs need to stay on their lines fits the nodes, and the agents keep
    them there (`progressControl` does not matter). It needs a cost or a profile; a reduce step, `processors.min` above
    1 and reservations are refused. Default Exact."""
    utilization: Utilization | None = None
    """For `admission: Utilization`: `{podsPerProcessor: 4}`. Default: two pods per processor."""
    miss_ratio: MissRatioSpec | None = None
    """For jobs with uncertain costs: `{target: "5%", period: 5m}`. Jobs are let in as long as no job's need
    of the pool, its time on all processors over the time it has left, is above a bound, and the bound is moved so that
    no more than `target` of them are late. That is no promise: reason AdmittedStatistically, with accounts of its
    own. Processors take what is due first as they become free, so `partition`, `assign` and `admission` do not matter;
    a reduce step, `processors.min` above 1 and reservations are refused. Needs `order: EDF`. Default: none, promises
    are certain."""
    max_share: Annotated[Percent, SHARE] = 1.0
    """How much of the pool's capacity may be promised to each namespace, in per cent: `"50%"`. For each deadline, the
    promised work of the namespace that is due by then takes at most this share of the capacity until then; reservations
    take theirs while they last. A job beyond it is refused with reason ShareUsedUp, and with `onRefusal: Continue` it
    runs on what no promise needs. An edit changes nothing about promises that are made. From 1% to 100%, default
    100%."""
    namespace_shares: (
        Annotated[
            list[NamespaceShare],
            Field(max_length=64),
            SchemaRule(
                "self.all(s, self.exists_one(other, other.__namespace__ == s.__namespace__))",  # a reserved word of CEL
                "name each namespace once",
                lambda shares: len({s.namespace for s in shares}) == len(shares),
            ),
        ]
        | None
    ) = None
    """Namespaces with a share of their own instead of `maxShare`: `[{namespace: vision, maxShare: "60%"}]`. Shares may
    add up to more than 100%; then a job within its share may still be refused for lack of capacity. At most 64.
    Default: none."""
    promise_horizon: Days = 28
    """How far ahead a promised deadline may lie: whole days or weeks, such as `7d` or `4w`. A job with a later one is
    refused with reason DeadlineTooFar. For windows of reservations, `reservations.horizon` says it. Default 4w."""
    network: Literal["Concurrent", "OnePort"] = "Concurrent"
    """How chunks get their input. Concurrent: each for itself, all at the same time. OnePort: one after the other, each
    at the full speed of the source, in the order of the plan; jobs declare how long that takes as `transferPerUnit`
    and `transferSetup` of their cost, and what is to be fetched as `input`. Default Concurrent."""

    speeds: NodeSpeeds = NodeSpeeds()
    """How the classes of its nodes compare: `{classes: [{name: m5.large, unitTime: "150%"}]}`. Profiles measure it,
    with one vote for each namespace. Default: as they find, up to 200%."""
    guests: PoolGuests = PoolGuests()
    """How the pool treats jobs of class Guest: `{policy: ImmediateEviction}`. Default `{policy: LingerLonger}`."""
    max_slice: SliceLength = 0.05
    """The longest slice of a TargetRate with `coscheduling: Aligned` on the pool's nodes: `20ms`. Where slices take all
    CPUs of a node, its other work waits for so long, and longer where slices of several TargetRates follow each other.
    After an edit, each aligned TargetRate gets a shorter period. One without an allowed period keeps its slice, with
    reason EditRefused; a new one is refused with reason SliceTooLong. From 1ms to 1s, default 50ms."""


class PoolNode(ApiModel):
    """One node of the pool."""

    name: Annotated[str, Field(max_length=253)]
    """The node's name."""
    processors: Count
    """How many processors it has now, those in use included."""
    pods: Count | None = None
    """How many pods it may have at a time, where jobs share processors; absent: one per processor."""
    speed: Annotated[float, Field(gt=0)] | None = None
    """How many times as long a unit takes here as on the pool's quickest nodes, learned by profiles from chunks on
    nodes of each class (their label `node.kubernetes.io/instance-type`); absent: as long."""
    reason: Annotated[str, Field(max_length=128)] | None = None
    """Why it is left out, such as StaticCPUManager or NodesOverlap; absent where it is used."""
    held_time: Time | None = None
    """Since when placeholders keep its room (`spec.hold: Placeholder`): pods that came later, and are of no higher
    priority than placeholders, do not count."""


class MeasuredClass(ApiModel):
    """How long a unit takes on the nodes of one class, relative to the pool's quickest nodes."""

    name: Annotated[str, Field(max_length=63)]
    """Value of the nodes' label `node.kubernetes.io/instance-type`; empty: they have none."""
    unit_time: StatusPercent
    """What plans take: by what profiles have measured or `spec.speeds` says. Differences of less than a tenth do not
    count."""
    measured: StatusPercent | None = None
    """The median of what the namespaces' profiles have found, without the limit; absent: none has compared this class
    with another."""
    namespaces: Annotated[list[Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None = None
    """Namespaces with profiles that have measured it, no more than the first 64; absent like `measured`."""


class Startup(ApiModel):
    """How long chunks take to start, as seen in this pool: from the pod's creation to its first container running."""

    p50: Seconds | None = None
    """Half of them started within so many seconds."""
    p95: Seconds | None = None
    """95 of 100 started within so many seconds: what margins are made of, see `spec.margin`."""
    samples: Annotated[list[Seconds], Field(max_length=256)] = Field(default=[])
    """The newest start-up times, in seconds, oldest first."""


class MissCountStatus(ApiModel):
    """How statistical promises have gone."""

    bound: Annotated[float, Field(gt=0)]
    """The highest need of the pool at which jobs are let in: 1 is all of it until their deadline."""
    ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Which part was late, when the bound was last moved; absent: it has not been moved yet."""
    due: Count = 0
    """How many have come to an end, or to their deadline, since then."""
    missed: Count = 0
    """How many of those were late."""
    until: Time | None = None
    """Up to when they are counted; absent: none is."""


class PoolStatus(ApiModel):
    """What the operator says about the pool. It plans from this after a restart; do not edit it."""

    conditions: Conditions = Field(default=[])
    """Ready: it has processors and plans. SpecApplied: the spec is in force; an edit that would break promises is not
    (reason EditRefused). NodesOverlap: it selects nodes that belong to an older pool."""
    epoch: Epoch | None = None
    """Which leader of the operator wrote this; it rises with every change of leader and never falls."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that was last looked at."""
    processors: Count | None = None
    """Processors of all its nodes now."""
    free: Count | None = None
    """Processors that run nothing now."""
    scarcest: Annotated[str, Field(max_length=253)] | None = None
    """The resource of which its nodes have the fewest processors: `cpu`, `memory`, `pods`, or one of
    `spec.processor.resources`. More of it gives more processors. Absent: it has no node to use."""
    queue: Count | None = None
    """Jobs that wait for their answer or their first chunk."""
    nodes: Annotated[list[PoolNode], Field(max_length=1000)] = Field(default=[])
    """Its nodes, by name; no more than the first 1000."""
    node_classes: Annotated[list[MeasuredClass], Field(max_length=64)] = Field(default=[])
    """How the classes of its nodes compare, and which namespaces have measured it; no more than the first 64."""
    miss_ratio: MissCountStatus | None = None
    """How statistical promises have gone; absent without `spec.missRatio`."""
    startup: Startup | None = None
    """Start-up times seen."""
    applied: (
        Annotated[PoolSpec, WithJsonSchema({"type": "object", PRESERVE_UNKNOWN: True, "x-type": "PoolSpec"})] | None
    ) = None
    """The spec in force: the one before, where an edit was refused."""
    applied_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec in force; below `observedGeneration` where an edit was refused."""


class Pool(KindModel):
    """Processors and the discipline that fills them.

    Some nodes of the cluster are cut into equal processors, on which Punctual plans the jobs that ask for this pool,
    and promises them their deadlines.
    """

    RULES: ClassVar = (EPOCH_NEVER_FALLS,)
    NAMES: ClassVar = Names("Pool", "pools", "pool", (), "Cluster")
    COLUMNS: ClassVar = (
        Column("Processors", ".status.processors", "integer", 0, "processors of all its nodes"),
        Column("Free", ".status.free", "integer", 0, "processors that run nothing now"),
        Column("Queue", ".status.queue", "integer", 0, "jobs that wait for an answer or their first chunk"),
        Column("Bound", ".status.missRatio.bound", "number", 0, "utilization up to which jobs are let in"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        AGE,
        Column("CPU", ".spec.processor.cpu", "string", 1, "CPU of one processor"),
        Column("Scarcest", ".status.scarcest", "string", 1, "resource of which the nodes have the fewest processors"),
        Column("Hold", ".spec.hold", "string", 1),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "string", 1),
    )
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: Pool
metadata:
  name: main
spec:
  nodeSelector:
    matchLabels: {punctual.dev/pool: main}
  processor: {cpu: 500m, memory: 512Mi}
"""

    kind: Annotated[Literal["Pool"], WithJsonSchema({"type": "string"})] = "Pool"
    """Pool"""
    spec: PoolSpec
    """What the pool shall be."""
    status: PoolStatus | None = None
    """What the operator says about it."""
