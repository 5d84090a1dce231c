"""From an object of the API server to its model; what is wrong with it in words that a user can act upon.

The schema has refused most of it already; what arrives here all the same (an older CRD, a rule that CEL cannot say)
becomes a ``UserError`` with reason InvalidSpec and a message that names the field as the user wrote it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from punctual import reasons
from punctual.errors import UserError
from punctual.kube.api.base import ApiModel
from punctual.kube.api.fields import AS_WRITTEN
from punctual.kube.api.meta import KindModel, Metadata

R = TypeVar("R", bound=KindModel)
M = TypeVar("M", bound=ApiModel)

_MOST_ERRORS: Final = 5
"""A message names no more: it goes into a condition and an event."""

_LONGEST_VALUE: Final = 80

_SAID: Final = {
    "missing": "is required",
    "literal_error": "{0} is not known: write {expected}",
    "greater_than_equal": "{0} is too small: write {ge} or more",
    "greater_than": "{0} is too small: write more than {gt}",
    "less_than_equal": "{0} is too large: write {le} or less",
    "too_short": "must have at least {min_length}",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length}",
    "string_too_long": "must have at most {max_length} characters",
    "int_type": "{0} is not a whole number: write it without quotes or fraction",
    "float_type": "{0} is not a number: write it without quotes",
    "finite_number": "{0} is not a number",
    "bool_type": "{0} is neither true nor false: write it without quotes",
    "string_type": "{0} is not a string: put it in quotes",
    "model_type": "{0} is not an object (fields with values)",
    "dict_type": "{0} is not an object (fields with values)",
    "list_type": "{0} is not a list",
}
"""What is wrong and what would be right, by pydantic's type of error; others (our own) speak for themselves."""


def parse(kind: type[R], manifest: Mapping[str, Any]) -> R:
    """Return the object as a model; UserError names the fields that are wrong."""
    return _validated(kind, manifest, "")


def parse_asked(kind: type[R], manifest: Mapping[str, Any]) -> R:
    """Return the object without its status: what was asked must be readable when the status beside it is not."""
    return parse(kind, {**manifest, "status": None})


def parse_status(status: type[M], manifest: Mapping[str, Any]) -> M | None:
    """Return the status alone: a promise must be readable when the spec beside it is not."""
    found = manifest.get("status")
    return None if found is None else _validated(status, found, "status")


def unknown_fields(kind: type[KindModel], manifest: Mapping[str, Any]) -> list[str]:
    """Return which fields of a spec the kind does not have, as kubectl's validation would."""
    model = parse(kind, manifest)
    return list(_not_kept(manifest.get("spec"), model.manifest().get("spec"), "spec"))


def _not_kept(given: Any, kept: Any, place: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for field, value in given.items():
            if field in kept:
                yield from _not_kept(value, kept[field], f"{place}.{field}")
            elif value is not None:
                yield f"{place}.{field}"
    elif isinstance(given, list) and isinstance(kept, list):
        for i, (one, other) in enumerate(zip(given, kept, strict=False)):
            yield from _not_kept(one, other, f"{place}[{i}]")


def parse_metadata(manifest: Mapping[str, Any]) -> Metadata:
    """Return the object's identity, whatever else is wrong with it."""
    return _validated(Metadata, manifest.get("metadata") or {}, "metadata")


def _validated(model: type[M], value: Any, place: str) -> M:
    try:
        return model.model_validate(value, strict=True, context=AS_WRITTEN)
    except ValidationError as error:
        found = error.errors(include_url=False)
        said = list(dict.fromkeys(_sentence(e, place) for e in found))
        more = f" (and {len(said) - _MOST_ERRORS} more)" if len(said) > _MOST_ERRORS else ""
        raise UserError(reasons.INVALID_SPEC, "; ".join(said[:_MOST_ERRORS]) + more) from error


def _sentence(error: ErrorDetails, place: str) -> str:
    context = error.get("ctx", {})
    path = place
    for step in (*error["loc"], *([context["field"]] if error["type"] == "rule" and context.get("field") else [])):
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return f"{path or 'object'}: {_problem(error)}"


def _problem(error: ErrorDetails) -> str:
    given, said = error["input"], _SAID.get(error["type"])
    if said is None:
        return error["msg"]
    shown = "an object" if isinstance(given, dict) else "a list" if isinstance(given, list) else repr(given)
    if len(shown) > _LONGEST_VALUE:
        shown = f"{shown[:_LONGEST_VALUE]}…"
    return said.format(shown, **error.get("ctx", {}))
