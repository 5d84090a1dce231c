"""Profile: what a unit of some kind of work costs, said once for many jobs."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, Column, Model, Names
from punctual.kube.api.fields import Count, Duration, PositiveDuration, Seconds, Units
from punctual.kube.api.meta import Resource


class ProfileSpec(Model):
    """The cost of the work, set by hand. What is not set is learned from chunks that have ended."""

    chi: PositiveDuration | None = None
    """χ: CPU time of one unit, as long as one whole processor of the pool needs for it: `20ms`. Default: what was
    learned (`status.chi`); while that is nothing jobs that name this profile are measured by pilot chunks first."""
    tau: Duration | None = None
    """τ: time to bring one unit's input to its processor: `1ms`. Default: what was learned (`status.tau`) for jobs with
    `spec.input`, else 0s (nothing is moved, or while computing)."""
    theta_cm: Duration | None = None
    """θcm: time to open the transfer of a chunk's input, whatever its size: `500ms`. Default: what was learned
    (`status.thetaCm`) for jobs with `spec.input`, else 0s."""
    theta_cp: Duration | None = None
    """θcp: time before a chunk's first unit, whatever its size: pod start, loading of programs and tables. Default:
    what was learned (`status.thetaCp`), 2s before that."""

    @property
    def transfer_by_hand(self) -> bool:
        """Whether all that a transfer takes is set by hand."""
        return self.tau is not None and self.theta_cm is not None


class LearnedTransfers(Model):
    """What input steps have measured: one entry of each list per transfer, oldest first."""

    units: Annotated[list[Annotated[Units, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """Units whose input it brought."""
    opening: Annotated[list[Seconds], Field(max_length=64)] = Field(default=[])
    """Seconds until the first byte came; where a chunk waited for its turn, those of handing it on too."""
    seconds: Annotated[list[Annotated[float, Field(gt=0)]], Field(max_length=64)] = Field(default=[])
    """Seconds until the last byte had come, these included."""


class LearnedCost(Model):
    """What chunks on one class of a pool's nodes have taken."""

    pool: Annotated[str, Field(max_length=253)]
    """Name of the Pool: what a unit takes depends on what one processor is."""
    node_class: Annotated[str, Field(max_length=63)] = ""
    """The nodes' label `node.kubernetes.io/instance-type`; empty: they have none."""
    chi: Annotated[float, Field(gt=0)] | None = None
    """χ: seconds per unit; absent while there are fewer than five samples."""
    tau: Seconds | None = None
    """τ: seconds per unit of an input; absent while fewer than five transfers were seen."""
    theta_cm: Seconds | None = None
    """θcm: seconds before an input's first byte; absent like τ."""
    theta_cp: Seconds | None = None
    """θcp: seconds before a chunk's first unit, from the decision to create it."""
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


class ProfileStatus(Model):
    """What was learned from chunks that have ended. The operator goes on from it after a restart; do not edit it."""

    chi: Annotated[float, Field(gt=0)] | None = None
    """χ, in seconds per unit, where most was seen; absent: nothing is known yet."""
    tau: Seconds | None = None
    """τ, in seconds per unit, there; absent: jobs have no `spec.input`, or too few transfers were seen."""
    theta_cm: Seconds | None = None
    """θcm, in seconds, there; absent like τ."""
    theta_cp: Seconds | None = None
    """θcp, in seconds, there."""
    samples: Count | None = None
    """Chunks that this was learned from, there."""
    r2: Annotated[float, Field(ge=0, le=1)] | None = None
    """R² there, see `classes`."""
    classes: Annotated[list[LearnedCost], Field(max_length=16)] = Field(default=[])
    """What was seen, by pool and class of nodes. How the classes of a pool compare says how fast its nodes are."""


class Profile(Resource):
    """What a unit of some kind of work costs.

    Jobs name it with `spec.profile` instead of saying `spec.cost` themselves. What is not set by hand is learned from
    their chunks: `spec: {}` will do.
    """

    NAMES: ClassVar = Names("Profile", "profiles", "profile", (), "Namespaced")
    COLUMNS: ClassVar = (
        Column("Chi", ".spec.chi", "string", 0, "CPU time of one unit"),
        Column("Tau", ".spec.tau", "string", 0, "transfer time of one unit"),
        Column("ThetaCm", ".spec.thetaCm", "string", 0, "time to open a transfer"),
        Column("ThetaCp", ".spec.thetaCp", "string", 0, "time before a chunk's first unit"),
        Column("Learned", ".status.chi", "number", 0, "CPU time of one unit as learned, in seconds"),
        Column("Samples", ".status.samples", "integer", 0, "chunks that was learned from"),
        AGE,
        Column("R2", ".status.r2", "number", 1, "how well the chunks agree"),
        Column("LearnedTau", ".status.tau", "number", 1, "transfer time of one unit as learned, in seconds"),
        Column("LearnedThetaCm", ".status.thetaCm", "number", 1, "time to open a transfer as learned, in seconds"),
    )
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: Profile
metadata:
  name: thumbnails
  namespace: default
spec: {chi: 20ms, tau: 1ms, thetaCp: 2s}
"""

    kind: Annotated[Literal["Profile"], WithJsonSchema({"type": "string"})] = "Profile"
    """Profile"""
    spec: ProfileSpec
    """The cost of the work, set by hand: it wins."""
    status: ProfileStatus | None = None
    """What was learned."""
