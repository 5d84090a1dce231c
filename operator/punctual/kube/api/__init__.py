"""The API ``punctual.dev/v1alpha1``: what a user writes and reads, as pydantic models.

They stand at the door: :func:`parse` makes models of what the API server sends, ``manifest()`` makes JSON of a model,
and ``kube.convert`` turns them into the core's values. ``crds/`` and ``docs/api.md`` are generated from them.
"""

from punctual.kube.api.base import API_VERSION, VERSION
from punctual.kube.api.input import HttpInput, Input, SecretHeader, SecretKey, VolumeInput
from punctual.kube.api.job import DivisibleJob, DivisibleJobSpec, JobCost, ProcessorBounds, Reduce
from punctual.kube.api.job_status import (
    AppliedSpec,
    ChunkRecord,
    CostInForce,
    CountedRange,
    DivisibleJobStatus,
    InputSeen,
    OfferStatus,
    PilotSampleStatus,
    ProcessorsOffer,
    PromiseStatus,
    State,
    UnitCounts,
    UnitRange,
)
from punctual.kube.api.meta import Condition, Expression, KindModel, LabelSelector, Metadata
from punctual.kube.api.parse import parse, parse_asked, parse_metadata, parse_status, unknown_fields
from punctual.kube.api.pool import (
    MeasuredClass,
    MissCountStatus,
    MissRatioSpec,
    NamespaceShare,
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
    WindowStatus,
)
from punctual.kube.api.target_rate import TargetRate, TargetRateSpec, TargetRateStatus
from punctual.kube.api.template import PodTemplate
from punctual.labels import GROUP

KINDS: tuple[type[KindModel], ...] = (Pool, DivisibleJob, Profile, Reservation, TargetRate)
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
    "KindModel",
    "LabelSelector",
    "LearnedCost",
    "LearnedResponse",
    "LearnedTransfers",
    "MeasuredClass",
    "Metadata",
    "MissCountStatus",
    "MissRatioSpec",
    "NamespaceShare",
    "NodeClass",
    "NodeSpeeds",
    "OfferStatus",
    "PilotSampleStatus",
    "PodTemplate",
    "Pool",
    "PoolNode",
    "PoolReservations",
    "PoolSelectors",
    "PoolSpec",
    "PoolStatus",
    "Processor",
    "ProcessorBounds",
    "ProcessorsOffer",
    "Profile",
    "ProfileSpec",
    "ProfileStatus",
    "PromiseStatus",
    "Recurrence",
    "Reduce",
    "Reservation",
    "ReservationSpec",
    "ReservationStatus",
    "ReservedNode",
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
    "WindowStatus",
    "parse",
    "parse_asked",
    "parse_metadata",
    "parse_status",
    "unknown_fields",
]
