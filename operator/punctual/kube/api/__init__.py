"""The API ``punctual.dev/v1alpha1``: what a user writes and reads, as pydantic models.

They stand at the door: :func:`parse` makes models of what the API server sends, ``manifest()`` makes JSON of a model,
and ``kube.convert`` turns them into the core's values. ``crds/`` and ``docs/api.md`` are generated from them.
"""

from punctual.kube.api.base import API_VERSION, GROUP, VERSION
from punctual.kube.api.input import HttpInput, Input, SecretHeader, SecretKey, VolumeInput
from punctual.kube.api.job import DivisibleJob, DivisibleJobSpec, JobCost, Processors, Reduce
from punctual.kube.api.job_status import (
    AppliedSpec,
    ChunkRecord,
    CostInForce,
    CountedRange,
    DivisibleJobStatus,
    InputSeen,
    Offer,
    PilotSample,
    Promise,
    State,
    UnitCounts,
    UnitRange,
)
from punctual.kube.api.meta import Condition, Expression, LabelSelector, Metadata, Resource
from punctual.kube.api.parse import parse, parse_asked, parse_metadata, parse_status, unknown_fields
from punctual.kube.api.pool import (
    MeasuredClass,
    MissCount,
    MissRatio,
    NodeClass,
    NodeSpeeds,
    Pool,
    PoolNode,
    PoolReservations,
    PoolSelectors,
    PoolSpec,
    PoolStatus,
    Processor,
    Startup,
    Utilization,
)
from punctual.kube.api.profile import (
    LearnedCost,
    LearnedResponse,
    LearnedTransfers,
    Profile,
    ProfileSpec,
    ProfileStatus,
)
from punctual.kube.api.reservation import (
    Recurrence,
    Reservation,
    ReservationSpec,
    ReservationStatus,
    ReservedNode,
    ReservedWindow,
)
from punctual.kube.api.target_rate import TargetRate, TargetRateSpec, TargetRateStatus
from punctual.kube.api.template import PodTemplate

KINDS: tuple[type[Resource], ...] = (Pool, DivisibleJob, Profile, Reservation, TargetRate)
"""All kinds, in the order in which they are documented."""

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "AppliedSpec",
    "ChunkRecord",
    "Condition",
    "CostInForce",
    "CountedRange",
    "DivisibleJob",
    "DivisibleJobSpec",
    "DivisibleJobStatus",
    "Expression",
    "HttpInput",
    "Input",
    "InputSeen",
    "JobCost",
    "LabelSelector",
    "LearnedCost",
    "LearnedResponse",
    "LearnedTransfers",
    "MeasuredClass",
    "Metadata",
    "MissCount",
    "MissRatio",
    "NodeClass",
    "NodeSpeeds",
    "Offer",
    "PilotSample",
    "PodTemplate",
    "Pool",
    "PoolNode",
    "PoolReservations",
    "PoolSelectors",
    "PoolSpec",
    "PoolStatus",
    "Processor",
    "Processors",
    "Profile",
    "ProfileSpec",
    "ProfileStatus",
    "Promise",
    "Recurrence",
    "Reduce",
    "Reservation",
    "ReservationSpec",
    "ReservationStatus",
    "ReservedNode",
    "ReservedWindow",
    "Resource",
    "SecretHeader",
    "SecretKey",
    "Startup",
    "State",
    "TargetRate",
    "TargetRateSpec",
    "TargetRateStatus",
    "UnitCounts",
    "UnitRange",
    "Utilization",
    "VolumeInput",
    "parse",
    "parse_asked",
    "parse_metadata",
    "parse_status",
    "unknown_fields",
]
