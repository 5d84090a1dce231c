"""What all kinds of ``punctual.dev/v1alpha1`` are made of: the model, its rules, its columns.

A field's docstring is its documentation: it reaches the CRD (``kubectl explain``) and ``docs/api.md``. A
:class:`SchemaRule` stands beside the field or the class that it guards and is checked twice, by the API server (CEL)
and by the operator (so that what an older CRD let through is refused all the same). Field names are snake_case here,
camelCase in JSON.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

T = TypeVar("T")

VERSION: Final = "v1alpha1"
API_VERSION: Final = "punctual.dev/v1alpha1"
CATEGORY: Final = "punctual"

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
PART_OF_POD: Final = "x-part-of-pod"
"""Names the definition of `pod.json` that has all fields of this part; the generator writes them out."""


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """One rule, as the API server (``cel``) and as the operator (``holds``) check it, with one message for both.

    ``holds`` takes the parsed value and is None for transition rules, which only the API server can see. ``field`` is
    the camelCase path, below the place of the rule, that the error names.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None
    field: str | None = None

    def check(self, value: T) -> T:
        """Return the value, or raise the error that pydantic collects."""
        if self.holds is not None and not self.holds(value):
            # the message travels as a value: braces in it must not be taken for fields of a template
            raise PydanticCustomError("rule", "{message}", {"message": self.message, "field": self.field})
        return value

    @property
    def validation(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``."""
        path = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **path}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {**schema, VALIDATIONS: [*schema.get(VALIDATIONS, []), self.validation]}


class ApiModel(BaseModel):
    """A part of an object. Unknown fields are dropped: a newer CRD's objects outlive a rolled back operator."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        validate_default=False,
    )

    RULES: ClassVar[tuple[SchemaRule, ...]] = ()
    """Rules over several fields of this model."""

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self.RULES:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(reference := handler(core))
        if cls.RULES:
            schema[VALIDATIONS] = [rule.validation for rule in cls.RULES]
        for name, text in _documented(cls).items():
            if name in cls.model_fields:
                schema["properties"][cls.model_fields[name].alias or name].setdefault("description", text)
        return reference

    def manifest(self) -> dict[str, Any]:
        """Return it as the API server takes it: camelCase, units as Kubernetes writes them, nothing that is None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _documented(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field, by its name.

    They are read when a schema is made. pydantic's own ``use_attribute_docstrings`` reads the source of every model at
    each import, which took nearly half of the import's time.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match text:
                    case ast.Expr(ast.Constant(str(words))):
                        found[field.target.id] = inspect.cleandoc(words)
    return found


class Open(ApiModel):
    """A part of a foreign schema: fields that are not named here are kept as they are."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE_UNKNOWN: True})

    def manifest(self) -> dict[str, Any]:
        """Return what the user wrote, no more."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Column(NamedTuple):
    """A column of ``kubectl get``; those of priority 1 show with ``-o wide``.

    Times to come are of type string: a column of type date prints them as ``<invalid>``.
    """

    name: str
    path: str
    type: Literal["string", "integer", "number", "date"] = "string"
    priority: int = 0
    description: str = ""


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


class Names(NamedTuple):
    """How a kind is called and where it lives."""

    kind: str
    plural: str
    singular: str
    short: tuple[str, ...]
    scope: Literal["Cluster", "Namespaced"]
