"""DivisibleJob: so many units of work, a template that can do any range of them, a deadline."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, ApiModel, Column, Names, SchemaRule
from punctual.kube.api.fields import (
    MAX_PROCESSORS,
    MAX_UNITS,
    AskedTime,
    Duration,
    ObjectName,
    PositiveDuration,
)
from punctual.kube.api.input import Input
from punctual.kube.api.job_status import DivisibleJobStatus
from punctual.kube.api.meta import EPOCH_NEVER_FALLS, KindModel
from punctual.kube.api.template import PodTemplate


class JobCost(ApiModel):
    """What a unit costs, declared: `{perUnit: 20ms, transferPerUnit: 1ms, transferSetup: 0s, startup: 2s}`."""

    per_unit: PositiveDuration
    """CPU time of one unit on one whole processor of the pool: `20ms`. Required in `cost`. If units take longer, only
    this job can be late (reason Overrun). χ in the papers."""
    transfer_per_unit: Duration = 0.0
    """Time to bring the input of one unit to its processor before work on it begins: `1ms`. Default 0s: there is no
    input, or it is moved during the work. τ in the papers."""
    transfer_setup: Duration = 0.0
    """Time to open the transfer of a chunk's input, independent of its size: `500ms`. Default 0s. θcm in the papers."""
    startup: Duration = 2.0
    """Time before the first unit of a chunk, independent of its size: pod start, loading of programs and tables. A
    large value makes many processors pay less. Default 2s. θcp in the papers."""


class ProcessorBounds(ApiModel):
    """How many processors the job may use at a time."""

    RULES: ClassVar = (
        SchemaRule(
            "!has(self.max) || self.max >= self.min",
            "max must not be below min",
            lambda self: self.max is None or self.max >= self.min,
            field="max",
        ),
    )

    min: Annotated[int, Field(ge=1, le=MAX_PROCESSORS)] = 1
    """At least so many when the job begins: its first pods are created together, one on each of so many processors, and
    each has at least one unit (over one port their inputs follow each other). A job that cannot begin so in time is
    refused, with the time from which so many processors are free together; so is one with fewer units. Once the job has
    begun the minimum no longer binds: what is left when pods are lost may run on fewer processors. Pilot chunks, which
    measure a cost, come before that. A job without a promise begins on what is left over. Default 1; more processors
    are taken where the deadline needs them."""
    max: Annotated[int, Field(ge=1, le=MAX_PROCESSORS)] | None = None
    """At most so many, such as the number of readers that a data base stands. Default: no limit but the pool's."""


class JobRef(ApiModel):
    """A Job of the namespace."""

    name: ObjectName
    """Its name."""
    uid: Annotated[str, Field(min_length=1, max_length=63)]
    """Its uid: a Job that is created again under the name is another one."""


class Reduce(ApiModel):
    """A last pod that puts the chunks' results together."""

    duration: PositiveDuration
    """How long it takes, on one processor, its start included: `30s`. The plan keeps this long free before the
    deadline. Required in `reduce`."""
    template: PodTemplate
    """The pod; it finds the chunks' results (their termination messages) as files in the folder PUNCTUAL_RESULTS.
    Required in `reduce`."""


def _fixed_once_promised(field: str, why: str, *, optional: bool = False) -> SchemaRule:
    """Make the transition rule: while a promise stands that counts on the field, it stays.

    A dry run's promise books nothing, so it does not bind.
    """
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"{new} == {old}"
    if optional:
        same = f"has({new}) == has({old}) && (!has({new}) || {same})"
    return SchemaRule(
        f"!has(oldSelf.status) || !has(oldSelf.status.promise) || oldSelf.spec.dryRun || ({same})",
        f"{field} cannot change while a promise stands: {why}. Set suspend: true first (it gives the promise up), "
        "or create another job",
        None,
        field=f"spec.{field}",
    )


_WHOLE_RESULTS: Final = SchemaRule(
    "!has(self.spec.reduce) || !has(oldSelf.status) || "
    + " && ".join(
        f"(!has(oldSelf.status.{field}) || "
        f"oldSelf.status.{field}.all(r, self.spec.units <= r.begin || self.spec.units >= r.end))"
        for field in ("completed", "chunks")
    ),
    "units cannot end within units that are done, or under way, while there is a reduce: results are kept by whole "
    "ranges (status.completed, status.chunks). Let them end with one of these, or create another job",
    None,
    field="spec.units",
)

_FIXED: Final = (
    SchemaRule(
        "self.spec.class == oldSelf.spec.class",
        "class cannot change: create another job",
        None,
        field="spec.class",
    ),
    SchemaRule(
        "has(self.spec.jobRef) == has(oldSelf.spec.jobRef) && "
        "(!has(self.spec.jobRef) || self.spec.jobRef == oldSelf.spec.jobRef)",
        "jobRef cannot change: create another job",
        None,
        field="spec.jobRef",
    ),
    _fixed_once_promised("units", "the plan counts them"),
    _fixed_once_promised("pool", "the promise is that pool's"),
    _fixed_once_promised("template", "units done so far were done by it"),
    _fixed_once_promised("cost", "the plan was made with it", optional=True),
    _fixed_once_promised("profile", "the plan was made with its cost", optional=True),
    _fixed_once_promised("input", "units done so far were done with it", optional=True),
    _fixed_once_promised("reduce", "its time is part of the plan", optional=True),
    _fixed_once_promised("restart", "it tells which units count as done"),
    _fixed_once_promised("dryRun", "its processors are booked"),
    _fixed_once_promised("reservation", "its processors are booked inside it", optional=True),
)


_NOT_FOR_GUESTS: Final[tuple[tuple[str, str, Callable[[Any], bool], str], ...]] = (
    ("deadline", "!has(self.deadline) && !has(self.deadlineTime)",
     lambda job: job.deadline is None and job.deadline_time is None,
     "has no deadline: remove deadline and deadlineTime, or set class: Guaranteed"),
    ("reduce", "!has(self.reduce)", lambda job: job.reduce is None,
     "has no reduce step: remove reduce, or set class: Guaranteed"),
    ("input", "!has(self.input)", lambda job: job.input is None,
     "fetches no input: remove input and let the containers read it, or set class: Guaranteed"),
    ("reservation", "!has(self.reservation)", lambda job: job.reservation is None,
     "needs no reservation: remove reservation"),
    ("processors", "self.processors.min == 1", lambda job: job.processors.min == 1,
     "is sure of no processor: remove processors.min"),
    ("dryRun", "!self.dryRun", lambda job: not job.dry_run,
     "is always taken: remove dryRun"),
)  # fmt: skip
"""What makes no sense without a promise: field, CEL, the same in Python, and why."""


def _not_for_guests(field: str, cel: str, holds: Callable[[Any], bool], why: str) -> SchemaRule:
    return SchemaRule(
        f"self.class != 'Guest' || ({cel})",
        f"a job of class Guest {why}",
        lambda job: job.class_ != "Guest" or holds(job),
        field=field,
    )


class DivisibleJobSpec(ApiModel):
    """What shall be done, and by when."""

    RULES: ClassVar = (
        SchemaRule(
            "self.class == 'Guest' || has(self.deadline) != has(self.deadlineTime)",
            "set exactly one of deadline (a time span after creation, such as 45m) and deadlineTime "
            "(a moment, such as 2030-01-02T15:04:05Z)",
            lambda self: self.class_ == "Guest" or (self.deadline is None) != (self.deadline_time is None),
            field="deadline",
        ),
        SchemaRule(
            "!(has(self.cost) && has(self.profile))",
            "set cost or profile, not both; with neither the cost is measured by pilot chunks",
            lambda self: self.cost is None or self.profile is None,
            field="cost",
        ),
        *(_not_for_guests(*field) for field in _NOT_FOR_GUESTS),
        SchemaRule(
            "!has(self.jobRef) || (self.class != 'Guest' && !has(self.reduce) && !has(self.input))",
            "the pods of a Job have neither a reduce step nor an input step, and are no guests: leave jobRef out",
            lambda self: self.job_ref is None or (self.class_ != "Guest" and not self.reduce and not self.input),
            field="jobRef",
        ),
    )

    pool: ObjectName
    """Name of the Pool that does the work. Required. Example: `main`."""
    units: Annotated[int, Field(ge=1, le=MAX_UNITS)]
    """How many units of work there are: frames, lines, samples, whatever the template counts. They are numbered from
    0, and any range [begin, end) of them can be worked on by itself. Required; from 1 to 1000000000000000 (10^15,
    which every JSON tool holds exactly)."""
    deadline: PositiveDuration | None = None
    """By when the job must be done, counted from its creation: `45m`, `1h30m`, `90s` (units h, m, s, ms, us). Either
    this or `deadlineTime` is required; class Guest has neither. The answer stands in the condition Admitted: True is a
    promise; False comes with an offer in `status.offer`. It may be edited: the new one is promised too, or refused
    (condition SpecApplied) while the old promise stands."""
    deadline_time: AskedTime | None = None
    """By when the job must be done, as a moment with its offset from UTC (RFC 3339): `2030-01-02T15:04:05Z` or
    `2030-01-02T17:04:05+02:00`. Either this or `deadline` is required."""
    class_: Annotated[Literal["Guaranteed", "Guest"], Field(alias="class")] = "Guaranteed"
    """What is asked for. Guaranteed: a promise of the deadline, or a refusal. Guest: no deadline; the job runs on what
    other pods, the system and promised chunks leave of the pool's nodes, at the lowest priority, and moves on when they
    need a node (see the Pool's `guests`). Its pods request no CPU and no memory, and have no limits of them; the memory
    that the template names only tells how many fit on a node. It cannot be changed. Default Guaranteed."""
    cost: JobCost | None = None
    """What a unit costs: `{perUnit: 20ms, startup: 2s}`. With neither this nor `profile` pilot chunks measure it first
    (Admitted is Unknown, reason Measuring); the units they do count."""
    profile: ObjectName | None = None
    """Name of a Profile in the job's namespace that knows what a unit costs. Example: `thumbnails`. Not together with
    `cost`."""
    processors: ProcessorBounds = ProcessorBounds()
    """How many processors it may use at a time: `{min: 1, max: 64}`. Default `{min: 1}`, no maximum."""
    reservation: ObjectName | None = None
    """Name of a Reservation in the job's namespace, of the same pool: the job is promised inside its windows and runs
    nowhere else (but for pilot chunks, and what is left when its promise was given up). Refused where that one is
    (ReservationRefused) or is not there (ReservationNotFound). Default: it runs outside of all. Example: `nightly`."""
    restart: Literal["Redo", "Resume"] = "Redo"
    """What a chunk that ended early leaves. Redo: nothing, all its units are done again. Resume: the units that it
    had reported done are durable outside the pod, and only the rest is done again. Default Redo."""
    chunk_retries: Annotated[int, Field(ge=0, le=1000)] = 3
    """How often the work may fail on a unit by its own doing (an exit other than 0, a stall), over all attempts,
    before the job fails (reason ChunkFailed). Lost nodes, evictions and the like do not count. From 0 to 1000,
    default 3."""
    stall_timeout: PositiveDuration = 60.0
    """A chunk that for so long neither makes progress nor uses CPU has failed (reason Stalled): `1m`, `5m`. Chunks
    need not report progress, but one that waits silently needs a longer time here. Default 1m."""
    image_pull_timeout: Duration = 300.0
    """How long the job's images may be unavailable before that counts as a failure of the work: `5m`, `0s`. Until then
    a pod that cannot pull its image is replaced after 20 seconds by another one, each time later, after five minutes
    at most (event ImageUnavailable); after it each such pod counts towards `chunkRetries`. Default 5m."""
    pod_retention: Literal["Failed", "All", "None"] = "Failed"
    """Which pods stay after their end, to be read with `kubectl logs`, as long as the job does. Failed: failed ones.
    All: also those that succeeded. None: neither. A reduce pod that succeeded always stays, as its log is the job's
    result. Default Failed."""
    on_miss: Literal["Continue", "Stop"] = "Continue"
    """What happens when a promise cannot be kept after all (nodes lost, cost declared too low). Continue: the job
    goes on with leftover capacity. Stop: its pods end and it fails. Default Continue."""
    on_refusal: Literal["Stop", "Continue"] = "Stop"
    """What happens if it is refused for lack of time or processors. Stop: it does not run. Continue: it runs on
    leftover capacity, without a promise. Default Stop."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How many seconds after `status.finishTime` the job is deleted, with its pods and results: `86400` is a day. A
    refused job is finished too. Default: it is kept."""
    dry_run: bool = False
    """true: only the answer is wanted; nothing is booked and nothing runs. Default false."""
    suspend: bool = False
    """true: the promise is given up and the job's pods end; units done stay done. Back to false asks again, for what
    is left. Default false."""
    template: PodTemplate
    """How a chunk's pod looks. Any range of units is given to it in the environment: PUNCTUAL_BEGIN (first) and
    PUNCTUAL_END (one past the last); units done so far are written to the file PUNCTUAL_DIR/progress. Required.
    Example: `{spec: {containers: [{name: main, image: work:1, args: ["--from=$(PUNCTUAL_BEGIN)",
    "--to=$(PUNCTUAL_END)"]}]}}`."""
    job_ref: JobRef | None = None
    """The Job with the pods of this job: `{name: nightly, uid: …}`. The operator sets it for a Job with a deadline
    (docs/jobs.md). Each unit is one of its completions, done by one of its pods, which the operator lets start. It
    cannot be changed. Default: the operator creates the pods."""
    input: Input | None = None
    """What a chunk must fetch before it begins: `{http: {url: https://example.com/data.csv}, cut: Lines}`. A step
    before the template's containers waits for its turn (see the Pool's `network`), fetches the chunk's share and no
    more, and leaves it in the file PUNCTUAL_INPUT. The input must stay as it is until the job is done: once a chunk has
    seen another version of it the job fails (reason InputChanged). Declare what that takes as `transferPerUnit` and
    `transferSetup` of the cost, or name a profile that learns it, or leave it to pilots; what it took is in
    `status.input`. Default: nothing is fetched."""
    reduce: Reduce | None = None
    """One pod after the last chunk that puts the results together; its time is part of the plan:
    `{duration: 30s, template: …}`. Default: none."""


class DivisibleJob(KindModel):
    """A load that can be cut anywhere, with a deadline.

    Punctual answers at once whether the deadline can be promised without breaking an earlier promise (and if not,
    which one could), cuts the load, runs the chunks as pods and steers their CPU so that all are done in time.
    """

    RULES: ClassVar = (EPOCH_NEVER_FALLS, *_FIXED, _WHOLE_RESULTS)
    NAMES: ClassVar = Names("DivisibleJob", "divisiblejobs", "divisiblejob", ("dj",), "Namespaced")
    COLUMNS: ClassVar = (
        Column("State", ".status.state", "string", 0, "its state in one word"),
        Column("Deadline", ".status.applied.deadlineTime", "string", 0, "by when it must be done"),
        Column("Progress", ".status.progress", "string", 0, "units done of all"),
        Column("ETA", ".status.eta", "string", 0, "when it will be done"),
        Column("Slack", ".status.slack", "string", 0, "time between ETA and deadline"),
        AGE,
        Column("Admitted", '.status.conditions[?(@.type=="Admitted")].status', "string", 1, "is it promised"),
        Column("Pool", ".spec.pool", "string", 1),
        Column("Units", ".spec.units", "integer", 1),
        Column("Finish", ".status.promise.finish", "string", 1, "planned end"),
        Column("Reason", ".status.reason", "string", 1, "why it is in this state"),
    )
    SELECTABLE: ClassVar = (".spec.pool", ".status.state")
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: DivisibleJob
metadata:
  name: render
  namespace: default
spec:
  pool: main
  units: 120000
  deadline: 45m
  cost: {perUnit: 20ms, startup: 2s}
  template:
    spec:
      containers:
        - name: main
          image: render:1
          args: ["--from=$(PUNCTUAL_BEGIN)", "--to=$(PUNCTUAL_END)"]
          resources:
            limits: {memory: 256Mi}
"""

    kind: Annotated[Literal["DivisibleJob"], WithJsonSchema({"type": "string"})] = "DivisibleJob"
    """DivisibleJob"""
    spec: DivisibleJobSpec
    """What shall be done, and by when."""
    status: DivisibleJobStatus | None = None
    """The answer, and how far it is."""
