"""Profile: what a unit of some kind of work costs, said once for many jobs."""

from typing import Annotated, ClassVar, Literal

from pydantic import WithJsonSchema

from punctual.kube.api.base import AGE, Column, Model, Names
from punctual.kube.api.fields import Duration, PositiveDuration
from punctual.kube.api.meta import Resource


class ProfileSpec(Model):
    """The cost of the work, set by hand."""

    chi: PositiveDuration | None = None
    """χ: CPU time of one unit, as long as one whole processor of the pool needs for it: `20ms`. Without it jobs that
    name this profile are measured by pilot chunks first."""
    tau: Duration = 0.0
    """τ: time to bring one unit's input to its processor: `1ms`. Default 0s (nothing is moved, or while
    computing)."""
    theta_cm: Duration = 0.0
    """θcm: time to open the transfer of a chunk's input, whatever its size: `500ms`. Default 0s."""
    theta_cp: Duration = 2.0
    """θcp: time before a chunk's first unit, whatever its size: pod start, loading of programs and tables. Default
    2s."""


class Profile(Resource):
    """What a unit of some kind of work costs.

    Jobs name it with `spec.profile` instead of saying `spec.cost` themselves.
    """

    NAMES: ClassVar = Names("Profile", "profiles", "profile", (), "Namespaced")
    COLUMNS: ClassVar = (
        Column("Chi", ".spec.chi", "string", 0, "CPU time of one unit"),
        Column("Tau", ".spec.tau", "string", 0, "transfer time of one unit"),
        Column("ThetaCm", ".spec.thetaCm", "string", 0, "time to open a transfer"),
        Column("ThetaCp", ".spec.thetaCp", "string", 0, "time before a chunk's first unit"),
        AGE,
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
    """The cost of the work, set by hand."""
