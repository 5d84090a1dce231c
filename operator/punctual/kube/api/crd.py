"""Generates the CustomResourceDefinitions and their documentation from the models of :mod:`punctual.kube.api`.

``punctual crds`` prints them, ``crds/`` and ``docs/api.md`` store them, and a test compares. pydantic generates JSON
Schema 2020. The API server wants a structural schema in its own dialect: no references, no unions, no null, and unnamed
fields are pruned. :func:`structural` converts one to the other. A keyword that is unknown to either dialect stops the
generator here, not the API server later.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from punctual.kube import api
from punctual.kube.api import KINDS, KindModel
from punctual.kube.api.base import (
    API_VERSION,
    CATEGORY,
    INT_OR_STRING,
    LIST_MAP_KEYS,
    LIST_TYPE,
    PART_OF_POD,
    PRESERVE_UNKNOWN,
    VALIDATIONS,
    VERSION,
    ApiModel,
)
from punctual.labels import GROUP

Schema = dict[str, Any]

_KEPT: Final = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    LIST_TYPE,
    LIST_MAP_KEYS,
    INT_OR_STRING,
    PRESERVE_UNKNOWN,
    PART_OF_POD,
    VALIDATIONS,
)
_DROPPED: Final = {"title", "examples", "x-type", "$defs"}
_HEADER: Final = "# Made by `punctual crds --write crds` from operator/punctual/kube/api; edit that.\n"


class _Generator(GenerateJsonSchema):
    """pydantic's generator, but defaults appear in a user's notation: ``2s``, not 2.0."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        default = schema.get("default")
        if isinstance(default, ApiModel):
            made["default"] = default.manifest()
        elif default is not None and (write := _serializer(schema)):
            made["default"] = write(default)
        return made


def _serializer(schema: Any) -> Any:
    """Return the function of the field's PlainSerializer, below any wrappers."""
    while isinstance(schema, dict):
        if function := schema.get("serialization", {}).get("function"):
            return function
        schema = schema.get("schema")
    return None


def structural(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return pydantic's schema in the API server's dialect, with references inlined."""
    schema = _resolved(schema, definitions)
    made: Schema = {key: schema[key] for key in _KEPT if key in schema}
    rest = schema.keys() - made.keys() - _DROPPED
    if "description" in made:
        made["description"] = _unwrapped(made["description"])
    if "const" in rest:
        made["enum"] = [schema["const"]]
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in rest:
            made |= {limit: schema[exclusive], exclusive: True}
    match made.get("type"):
        case "integer":
            made["format"] = "int64"
        case "array":
            made.setdefault(LIST_TYPE, "atomic")
            made["items"] = structural(schema["items"], definitions)
        case "object" if "properties" in schema:
            made["properties"] = {k: structural(v, definitions) for k, v in schema["properties"].items()}
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            made["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if unknown := rest - {
        "const",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "items",
        "properties",
        "additionalProperties",
    }:
        raise ValueError(f"no structural form is known for {sorted(unknown)} in {schema}")
    return made


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the schema without its reference or its null alternative. Keywords beside those take precedence."""
    beside = {
        k: v for k, v in schema.items() if k not in {"$ref", "anyOf"} and not (k == "default" and v in (None, []))
    }
    if "$ref" in schema:
        return {**_resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions), **beside}
    if "anyOf" in schema:
        (only,) = (option for option in schema["anyOf"] if option != {"type": "null"})
        return {**_resolved(only, definitions), **beside}
    return beside


def _unwrapped(text: str) -> str:
    """Return paragraphs as one line each, because kubectl wraps lines itself."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def schema_of(kind: type[KindModel]) -> Schema:
    """Return the structural schema of a kind, as it is sent to the API server."""
    return _complete(modelled(kind))


def modelled(kind: type[KindModel]) -> Schema:
    """Return the same with only those fields of a pod that the models have."""
    made = kind.model_json_schema(schema_generator=_Generator)
    schema = structural(made, made["$defs"])
    for name in ("apiVersion", "kind"):
        schema["properties"][name].pop("default", None)
    schema["properties"]["metadata"] = {"type": "object"}  # the API server's own; it accepts no description here
    schema["required"] = ["spec"]
    _without_defaults(schema["properties"].get("status", {}))
    return schema


def _complete(schema: Schema) -> Schema:
    """Add all Kubernetes fields to the parts of a pod."""
    if part := schema.get(PART_OF_POD):
        return _within(_written_out({"$ref": part}, _POD), schema)
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {name: _complete(value) for name, value in made["properties"].items()}
    if "items" in made:
        made["items"] = _complete(made["items"])
    return made


_POD: Final = "pod.spec"
_DESCRIBED: Final = 3
"""Maximum depth of a field path with a reference to its explanation. Each text is stored with the kind, twice."""


@cache
def _definitions() -> dict[str, Schema]:
    found: dict[str, Schema] = json.loads((Path(api.__file__).parent / "pod.json").read_text())
    return found


def _written_out(schema: Schema, path: str) -> Schema:
    """Return a Kubernetes schema with its references inlined. ``path`` is its position in a pod."""
    made = dict(_definitions()[schema["$ref"]] if "$ref" in schema else schema)  # no part of a pod contains itself
    if path.count(".") <= _DESCRIBED:
        made["description"] = f"See `kubectl explain {path}`."
    if "properties" in made:
        made["properties"] = {name: _written_out(p, f"{path}.{name}") for name, p in made["properties"].items()}
    if "items" in made:
        made[LIST_TYPE] = "atomic"
        made["items"] = _written_out(made["items"], path)
        made["items"].pop("description", None)
    if "additionalProperties" in made:
        made["additionalProperties"] = _written_out(made["additionalProperties"], path)
    return made


def _within(theirs: Schema, ours: Schema) -> Schema:
    """Return Kubernetes' schema of a part of a pod, with Punctual's descriptions and constraints."""
    made = {k: v for k, v in {**theirs, **ours}.items() if k not in {PRESERVE_UNKNOWN, PART_OF_POD}}
    if "properties" in theirs:
        mine = {name: _within(theirs["properties"][name], p) for name, p in ours.get("properties", {}).items()}
        made["properties"] = mine | {name: p for name, p in theirs["properties"].items() if name not in mine}
    if "items" in theirs:
        made["items"] = _within(theirs["items"], ours["items"])
    if required := sorted({*theirs.get("required", ()), *ours.get("required", ())}):
        made["required"] = required
    return made


def _without_defaults(schema: Schema) -> None:
    """Remove defaults from a status: the API server would write them on the operator's behalf."""
    schema.pop("default", None)
    for part in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        _without_defaults(part)


def crd(kind: type[KindModel]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    names = kind.NAMES
    schema = schema_of(kind)
    columns = [
        {
            "name": c.name,
            "type": c.type,
            "jsonPath": c.path,
            **({"description": c.description} if c.description else {}),
            **({"priority": c.priority} if c.priority else {}),
        }
        for c in kind.COLUMNS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": names.scope,
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.singular,
                **({"shortNames": list(names.short)} if names.short else {}),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    **({"subresources": {"status": {}}} if "status" in schema["properties"] else {}),
                    "additionalPrinterColumns": columns,
                    **({"selectableFields": [{"jsonPath": f} for f in kind.SELECTABLE]} if kind.SELECTABLE else {}),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Dumps YAML without anchors: the same rule at two fields is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        return True


def _yaml(kind: type[KindModel]) -> str:
    return _HEADER + yaml.dump(crd(kind), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def all_yaml() -> str:
    """Return all CRDs as one stream of YAML documents."""
    return "---\n".join(_yaml(kind) for kind in KINDS)


def files() -> dict[str, str]:
    """Return the content of ``crds/`` by file name."""
    return {f"{GROUP}_{kind.NAMES.plural}.yaml": _yaml(kind) for kind in KINDS}


def write(folder: Path) -> None:
    """Write the CRDs into the folder, one file per kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)


def documentation() -> str:
    """Return ``docs/api.md``: each kind with an example, its columns and all its fields."""
    kinds = ", ".join(f"[{k.NAMES.kind}](#{k.NAMES.singular})" for k in KINDS)
    parts = [
        "# API reference\n",
        "<!-- Made by `punctual crds --docs` from operator/punctual/kube/api; edit that. -->\n",
        f"The kinds of `{API_VERSION}`: {kinds}.\n",
        "The same text is on the cluster: `kubectl explain dj.spec.deadline`.\n",
        (
            "Durations are written as in Go: a number and unit (`h`, `m`, `s`, `ms`, `us`, `ns`), several in a row\n"
            "where wanted: `45m`, `1h30m`, `20ms`; not negative, no exponents, no days. Times are RFC 3339, with `T`\n"
            "and `Z` in upper case: `2030-01-02T15:04:05Z`. Quantities are those of Kubernetes: `500m`, `2Gi`,\n"
            "`1.5e3`; CPU is in whole thousandths of a core.\n"
        ),
    ]
    return "\n".join(parts + [_kind_page(kind) for kind in KINDS])


def _kind_page(kind: type[KindModel]) -> str:
    names, made = kind.NAMES, kind.model_json_schema(schema_generator=_Generator)
    schema = modelled(kind)
    short = f", short name `{names.short[0]}`" if names.short else ""
    wide = [c.name for c in kind.COLUMNS if c.priority]
    text = [
        f"## {names.kind}\n",
        f"{'In a namespace' if names.scope == 'Namespaced' else 'Cluster-wide'}{short}, category `{CATEGORY}`.\n",
        f"{schema['description']}\n",
        f"```yaml\n{kind.EXAMPLE}```\n",
        f"`kubectl get {names.plural}` shows {', '.join(c.name for c in kind.COLUMNS if not c.priority)}"
        + (f"; with `-o wide` also {', '.join(wide)}.\n" if wide else ".\n"),
    ]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            fields = _rows(schema["properties"][part], made["properties"][part], made["$defs"], part)
            text += [f"### {names.kind} {part}\n", "| Field | Type | Meaning |", "|---|---|---|", *fields, ""]
    if rules := schema.get(VALIDATIONS):
        text += ["The API server also checks that\n", *(f"- {rule['message']}" for rule in rules), ""]
    return "\n".join(text)


def _rows(schema: Schema, made: Schema, definitions: dict[str, Schema], path: str) -> Iterator[str]:
    """Yield the table rows of the fields below. A field's own fields follow it directly."""
    source = _resolved(made, definitions)
    if "items" in source:
        schema, source, path = schema["items"], _resolved(source["items"], definitions), f"{path}[]"
    for name, field in schema.get("properties", {}).items():
        below = _resolved(source["properties"][name], definitions)
        meaning = field.get("description", "").replace("|", "\\|").replace("\n\n", "<br>")
        yield f"| `{path}.{name}` | {_type(field, below)} | {meaning} |"
        yield from _rows(field, below, definitions, f"{path}.{name}")


def _type(field: Schema, source: Schema) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return "list"
    return str(source.get("x-type") or field.get("type") or "any")
