"""What every object carries: metadata, conditions, selectors, and what makes a model a kind."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import API_VERSION, LIST_MAP_KEYS, LIST_TYPE, ApiModel, Column, Names, SchemaRule
from punctual.kube.api.fields import Time

Label = Annotated[str, Field(max_length=63)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]


class Metadata(ApiModel):
    """The part of an object's metadata that the operator looks at."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time = 0.0
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})
    finalizers: list[str] = Field(default=[])


class Condition(ApiModel):
    """One fact about the object: whether it holds, since when, and why."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=128)]
    """Why, as one word for programs; each has a section in the documentation's list of reasons."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, as a sentence for people, with the arithmetic behind it."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the object that this was said about; older than metadata.generation: not yet looked at."""


Conditions = Annotated[
    list[Condition],
    Field(max_length=16, json_schema_extra={LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]}),
]


class Expression(ApiModel):
    """One requirement on a label."""

    RULES: ClassVar = (
        SchemaRule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none",
            lambda self: (self.operator in {"In", "NotIn"}) == bool(self.values),
            field="values",
        ),
    )

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In: its value is one of `values`. NotIn: it is none of them, or the label is not there. Exists, DoesNotExist:
    the label is there, or is not, whatever its value."""
    values: Annotated[list[Label], Field(max_length=64)] | None = None
    """Values for In and NotIn; none for Exists and DoesNotExist."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in (self.values or ())
            case "NotIn":
                return labels.get(self.key) not in (self.values or ())
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class LabelSelector(ApiModel):
    """Which objects are meant, by their labels. All requirements must hold; with none every object is meant."""

    match_labels: Annotated[dict[str, Label], Field(max_length=32)] | None = None
    """Labels that must be there with exactly these values, such as `punctual.dev/pool: main`."""
    match_expressions: Annotated[list[Expression], Field(max_length=32)] | None = None
    """Requirements that a value alone cannot say, such as
    `{key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}`."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        return all(labels.get(k) == v for k, v in (self.match_labels or {}).items()) and all(
            e.matches(labels) for e in self.match_expressions or ()
        )


EPOCH_NEVER_FALLS = SchemaRule(
    # at the root, not at status: an apply that drops the whole status would never meet a rule that stands there
    "!has(oldSelf.status) || !has(oldSelf.status.epoch) || "
    "(has(self.status) && has(self.status.epoch) && self.status.epoch >= oldSelf.status.epoch)",
    "epoch must not fall: a newer leader of the operator has written this object",
    None,
    field="status.epoch",
)

Epoch = Annotated[int, Field(ge=0)]


class KindModel(ApiModel):
    """A kind: its names, columns and an example beside its model."""

    NAMES: ClassVar[Names]
    COLUMNS: ClassVar[tuple[Column, ...]]
    SELECTABLE: ClassVar[tuple[str, ...]] = ()
    """Fields by which the API server selects: `kubectl get … --field-selector`."""
    EXAMPLE: ClassVar[str]
    """A manifest, YAML, that the documentation shows and the tests apply."""

    api_version: Annotated[Literal["punctual.dev/v1alpha1"], WithJsonSchema({"type": "string"})] = API_VERSION
    """punctual.dev/v1alpha1"""
    kind: Annotated[str, WithJsonSchema({"type": "string"})]
    """What this object is."""
    metadata: Annotated[Metadata, WithJsonSchema({"type": "object"})]
    """Name, namespace, labels and what else every object has."""
