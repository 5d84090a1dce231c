"""Profile: what a unit of some kind of work costs, said once for many jobs."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, ApiModel, Column, Names
from punctual.kube.api.fields import Count, Duration, PositiveDuration, Seconds, Units
from punctual.kube.api.meta import Conditions, KindModel


class ProfileSpec(ApiModel):
    """The cost of the work, set by hand. What is not set is learned from chunks that have ended."""

    per_unit: PositiveDuration | None = None
    """CPU time of one unit on one whole processor of the pool: `20ms`. Default: the learned value (`status.perUnit`);
    until there is one, pilot chunks measure each job that names this profile. χ in the papers."""
    transfer_per_unit: Duration | None = None
    """Time to bring the input of one unit to its processor: `1ms`. Default: the learned value
    (`status.transferPerUnit`) for jobs with `spec.input`, else 0s. τ in the papers."""
    transfer_setup: Duration | None = None
    """Time to open the transfer of a chunk's input, independent of its size: `500ms`. Default: the learned value
    (`status.transferSetup`) for jobs with `spec.input`, else 0s. θcm in the papers."""
    startup: Duration | None = None
    """Time before the first unit of a chunk, independent of its size: pod start, loading of programs and tables.
    Default: the learned value (`status.startup`), 2s before that. θcp in the papers."""


class LearnedTransfers(ApiModel):
    """What input steps have measured: one entry of each list per transfer, oldest first."""

    units: Annotated[list[Annotated[Units, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """Units of input that it fetched."""
    opening: Annotated[list[Seconds], Field(max_length=64)] = Field(default=[])
    """Seconds until the first byte came; where a chunk waited for its turn, those of handing it on too."""
    seconds: Annotated[list[Annotated[float, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """Seconds until the last byte had come, these included."""


class LearnedResponse(ApiModel):
    """How chunks have answered to CPU: their agents' controllers begin with it (`progressControl: Feedback`)."""

    cpu_per_unit: Annotated[float, Field(gt=0)]
    """CPU seconds of a unit."""
    lag: Seconds
    """Time constant: seconds until the progress has made 63 % of its way after a change of CPU; 0: it does at once."""
    delay: Seconds
    """Seconds until a change of CPU begins to show."""
    noise: Annotated[float, Field(ge=0)]
    """Standard deviation of the progress of a second, relative to it."""


class LearnedCost(ApiModel):
    """What chunks on one class of a pool's nodes have taken."""

    pool: Annotated[str, Field(max_length=253)]
    """Name of the Pool: what a unit takes depends on what one processor is."""
    node_class: Annotated[str, Field(max_length=63)] = ""
    """The nodes' label `node.kubernetes.io/instance-type`; empty: they have none."""
    per_unit: Annotated[float, Field(gt=0)] | None = None
    """Seconds per unit; absent while there are fewer than five samples."""
    transfer_per_unit: Seconds | None = None
    """Seconds per unit of an input; absent while fewer than five transfers were seen."""
    transfer_setup: Seconds | None = None
    """Seconds before the first byte of an input; absent like `transferPerUnit`."""
    startup: Seconds | None = None
    """Seconds before the first unit of a chunk, from the decision to create it."""
    outliers: Count | None = None
    """How many of the samples are so far from the others that they are left out."""
    r2: Annotated[float, Field(ge=0, le=1)] | None = None
    """R²: which part of the differences between the other chunks' times the two numbers explain; absent: chunks of one
    size cannot tell them apart."""
    units: Annotated[list[Annotated[Units, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """The samples: how many units each chunk had, oldest first."""
    seconds: Annotated[list[Annotated[float, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """How long each took, from the decision to create it to its end, less the transfer of its input."""
    transfers: LearnedTransfers | None = None
    """What the transfers of their inputs took; absent: there were none."""
    responses: Annotated[list[LearnedResponse], Field(max_length=9)] | None = None
    """How the newest chunks that have shown it answered to CPU, oldest first; absent: none has."""


class ProfileStatus(ApiModel):
    """What was learned from chunks that have ended. The operator goes on from it after a restart; do not edit it."""

    conditions: Conditions = Field(default=[])
    """Ready: the cost of a unit is known (True), set by hand or learned; while it is not (False), pilot chunks measure
    each job that names this profile."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that was last looked at."""
    per_unit: Annotated[float, Field(gt=0)] | None = None
    """Seconds per unit, in the class of nodes with most samples; absent: nothing is known yet."""
    transfer_per_unit: Seconds | None = None
    """Seconds per unit of an input, there; absent: no job has `spec.input`, or fewer than five transfers were
    seen."""
    transfer_setup: Seconds | None = None
    """Seconds to open a transfer, there; absent like `transferPerUnit`."""
    startup: Seconds | None = None
    """Seconds before the first unit of a chunk, there."""
    samples: Count | None = None
    """Chunks that this was learned from, there."""
    r2: Annotated[float, Field(ge=0, le=1)] | None = None
    """R² there, see `classes`."""
    response: LearnedResponse | None = None
    """How chunks answered to CPU, there: the median of those in `classes`; absent: none has shown it yet."""
    classes: Annotated[list[LearnedCost], Field(max_length=16)] = Field(default=[])
    """What was seen, by pool and class of nodes. How the classes of a pool compare says how fast its nodes are."""


class Profile(KindModel):
    """What a unit of some kind of work costs.

    Jobs name it with `spec.profile` instead of saying `spec.cost` themselves. What is not set by hand is learned from
    their chunks: `spec: {}` will do.
    """

    NAMES: ClassVar = Names("Profile", "profiles", "profile", (), "Namespaced")
    COLUMNS: ClassVar = (
        Column("PerUnit", ".spec.perUnit", "string", 0, "CPU time of one unit"),
        Column("Startup", ".spec.startup", "string", 0, "time before the first unit of a chunk"),
        Column("Learned", ".status.perUnit", "number", 0, "CPU time of one unit as learned, in seconds"),
        Column("Samples", ".status.samples", "integer", 0, "chunks that was learned from"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "string", 0, "is the cost of a unit known"),
        AGE,
        Column("R2", ".status.r2", "number", 1, "how well the chunks agree"),
        Column(
            "TransferPerUnit", ".status.transferPerUnit", "number", 1, "transfer time of a unit, learned, in seconds"
        ),
        Column("TransferSetup", ".status.transferSetup", "number", 1, "time to open a transfer, learned, in seconds"),
    )
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: Profile
metadata:
  name: thumbnails
  namespace: default
spec: {perUnit: 20ms, transferPerUnit: 1ms, startup: 2s}
"""

    kind: Annotated[Literal["Profile"], WithJsonSchema({"type": "string"})] = "Profile"
    """Profile"""
    spec: ProfileSpec
    """The cost of the work, set by hand: it wins."""
    status: ProfileStatus | None = None
    """What was learned."""
