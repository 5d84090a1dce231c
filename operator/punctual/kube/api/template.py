"""The pod template of a job: the user's own, but for what Punctual decides (CPU, node, restarts).

Only fields that Punctual reads or adds to are modelled, for what it adds to must be what it seems. The API server has
the types and bounds of all others from ``pod.json``; the operator keeps them as written, and a dry-run create of the
pod checks them.
"""

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from punctual.kube.api.base import INT_OR_STRING, PART_OF_POD, PRESERVE_UNKNOWN, ApiModel, Open, SchemaRule
from punctual.kube.api.meta import Label
from punctual.notation.quantity import PATTERN

LONGEST_QUANTITY: Final = 32


def _number_or_text(value: Any) -> Any:
    written = isinstance(value, str) and len(value) <= LONGEST_QUANTITY
    if type(value) is int or (written and re.fullmatch(PATTERN, value)):
        return value
    message = "is not a quantity: write a whole number or a string such as 512Mi"
    raise PydanticCustomError("text", "{message}", {"message": message})


Quantity = Annotated[
    int | str,
    BeforeValidator(_number_or_text),
    WithJsonSchema({INT_OR_STRING: True, "maxLength": LONGEST_QUANTITY, "x-type": "quantity"}),
]

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[A-Fa-f0-9:]+\])(?::\d+)?"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE: Final = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*)"
    r"(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})?",
    re.ASCII,
)
"""A reference to an image, as container runtimes read it: [domain[:port]/]path[:tag][@digest]."""
_LONGEST_NAME: Final = 255
_LONGEST: Final = 1024


def is_image(reference: str) -> bool:
    """Return whether a container runtime can read a reference to an image. The API server checks no syntax."""
    if len(reference) > _LONGEST or re.fullmatch(r"[0-9a-f]{64}", reference):  # a bare digest names no image
        return False
    found = _IMAGE.fullmatch(reference)
    return found is not None and len(found["name"]) <= _LONGEST_NAME


def _image(value: str) -> str:
    if value and not is_image(value):
        text = "is no valid reference to an image, so it can never be pulled: write registry/name:tag, in lower case"
        raise PydanticCustomError("image", "{message}", {"message": text})
    return value


Image = Annotated[str, AfterValidator(_image)]

_NO_CPU = SchemaRule(
    "!('cpu' in self)",
    "leave cpu out: the first container gets the pool's processor (Pool spec.processor.cpu)",
    lambda values: "cpu" not in values,
    field="cpu",
)

Quantities = Annotated[dict[str, Quantity], Field(max_length=32), _NO_CPU]


class TemplateResources(Open):
    """Requests and limits other than CPU."""

    requests: Quantities | None = None
    """What is set aside, such as `memory: 1Gi`; no `cpu`: the pool's processor is requested."""
    limits: Quantities | None = None
    """What may not be exceeded, such as `memory: 1Gi`; no `cpu`: Punctual steers it."""


class Item(Open):
    """One of a list, as in any pod."""


Items = Annotated[list[Item], Field(max_length=64)]
Mounts = Annotated[list[Item], Field(max_length=256)]
Variables = Annotated[list[Item], Field(max_length=1024)]
Note = Annotated[str, Field(max_length=65536)]


class Container(Open):
    """A container, as in any pod."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The container's name."""
    image: Image | None = None
    """Its image, as `registry/name:tag`. A reference that no runtime can read is refused (InvalidSpec)."""
    env: Variables | None = None
    """Its environment, besides Punctual's own (`PUNCTUAL_…`)."""
    volume_mounts: Mounts | None = None
    """Where volumes are mounted, besides Punctual's own (`/punctual`, `/etc/punctual`)."""
    resources: TemplateResources | None = None
    """Its requests and limits, without CPU."""


class NodeTerm(Open):
    """One way in which a node may be right."""

    match_fields: Items | None = None
    """Requirements on the node's fields."""


class NodeTerms(Open):
    """Ways in which a node may be right; one is enough."""

    node_selector_terms: Annotated[list[NodeTerm], Field(max_length=64)] | None = None
    """The ways."""


class NodeAffinity(Open):
    """Which nodes the pod may run on."""

    required: Annotated[NodeTerms | None, Field(alias="requiredDuringSchedulingIgnoredDuringExecution")] = None
    """What a node must have."""


_OWN_PODS: Final = "leave {} out: such a pod keeps pods of other namespaces off its node"


class PodTerm(Open):
    """Pods that it keeps away from."""

    RULES: ClassVar = (
        SchemaRule(
            "!has(self.namespaceSelector)",
            _OWN_PODS.format("namespaceSelector"),
            lambda self: self.namespace_selector is None,
            field="namespaceSelector",
        ),
        SchemaRule(
            "!has(self.namespaces)",
            _OWN_PODS.format("namespaces"),
            lambda self: self.namespaces is None,
            field="namespaces",
        ),
    )

    namespace_selector: Item | None = None
    """Must be absent."""
    namespaces: Annotated[list[str], Field(max_length=64)] | None = None
    """Must be absent."""


PodTerms = Annotated[list[PodTerm], Field(max_length=64)]


class PodAntiAffinity(Open):
    """Pods that it keeps away from."""

    required: Annotated[PodTerms | None, Field(alias="requiredDuringSchedulingIgnoredDuringExecution")] = None
    """Pods that may not be on its node."""


class Affinity(Open):
    """Where the pod wants to be."""

    node_affinity: NodeAffinity | None = None
    """Which nodes it may run on, besides being in the pool."""
    pod_anti_affinity: PodAntiAffinity | None = None
    """Which pods of its namespace it keeps away from."""


class PodSpec(Open):
    """The pod's spec, as in any pod, but for CPU, node and restarts, which Punctual decides."""

    model_config = ConfigDict(json_schema_extra={PRESERVE_UNKNOWN: True, PART_OF_POD: "PodSpec"})

    RULES: ClassVar = (
        SchemaRule(
            "!has(self.nodeName)",
            "leave nodeName out: Punctual chooses the node of each chunk; use the Pool's nodeSelector to restrict them",
            lambda self: self.node_name is None,
            field="nodeName",
        ),
    )

    containers: Annotated[list[Container], Field(min_length=1, max_length=32)]
    """The containers; the first does the work and gets what the others leave of the processor. Its environment says
    which units are meant: PUNCTUAL_BEGIN (first) and PUNCTUAL_END (one past the last). Exit 0 means all of them are
    done, whatever the other containers do: those that still run then are ended, with the pod's grace period."""
    init_containers: Annotated[list[Container], Field(max_length=32)] | None = None
    """Containers that run before, such as one that fetches the input."""
    restart_policy: Literal["Never"] | None = None
    """Never, or absent: a chunk that failed is cut again and given to another pod."""
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds after which the pod is ended, which counts as a failure of the work. A job is refused if that is shorter
    than one of its chunks may take. Better absent: `stallTimeout` of the job ends chunks that hang."""
    node_name: Annotated[str, Field(max_length=253)] | None = None
    """Must be absent: Punctual chooses the node."""
    resources: TemplateResources | None = None
    """Requests and limits of the whole pod, without CPU. Memory that they name is the pod's: it must fit a processor of
    the pool, and the work then gets no limit of its own."""
    volumes: Mounts | None = None
    """Volumes, besides Punctual's own."""
    tolerations: Items | None = None
    """Taints that do not keep it away, besides that of the pool."""
    affinity: Affinity | None = None
    """Where it wants to be, besides the node that Punctual chooses."""


class TemplateMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Label], Field(max_length=64)] | None = None
    """Labels of each pod, besides Punctual's own (`punctual.dev/…`)."""
    annotations: Annotated[dict[str, Note], Field(max_length=64)] | None = None
    """Annotations of each pod, besides Punctual's own (`punctual.dev/…`)."""


class PodTemplate(ApiModel):
    """How the pods look that do the work."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the pods."""
    spec: PodSpec
    """The pod's spec, with any field that a pod of Kubernetes 1.29 or later has; `cpu`, `nodeName` and a
    `restartPolicy` other than Never are refused. A list holds at most 64 items, `containers` and `initContainers` 32,
    `env`, `args` and `command` 1024, `volumes` and `volumeMounts` 256."""
