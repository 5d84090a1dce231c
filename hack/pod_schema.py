#!/usr/bin/env python3
"""Writes operator/punctual/kube/api/pod.json: the fields of a pod, with bounds. A test compares them.

The fields come from Kubernetes' own OpenAPI in the package kubernetes-validate: all that any version from `OLDEST` on
knows, without descriptions, and without fields that the pod of a template cannot have. Kubernetes bounds neither lists
nor texts. The bounds here prevent a danger: if the API server accepts a megabyte of ``{}``, every reader of it takes a
hundred times the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate

Schema = dict[str, Any]

FILE = Path(__file__).resolve().parent.parent / "operator/punctual/kube/api/pod.json"
SHIPPED = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
OLDEST = (1, 29)
ROOT = "io.k8s.api.core.v1.PodSpec"

LEFT_OUT = {("PodSpec", "ephemeralContainers")}
"""Fields that a new pod cannot have."""
OBJECT_META = ("annotations", "labels")
"""All that the metadata of a claim's template may have."""

TEXT = 4096  # PATH_MAX
ARGUMENT = 128 * 1024  # Linux takes no longer argument or variable
ITEMS = 64
ENTRIES = 64
QUANTITY = 32
LONG = {
    ("Container", "args"): ARGUMENT,
    ("Container", "command"): ARGUMENT,
    ("EnvVar", "value"): ARGUMENT,
    ("ExecAction", "command"): ARGUMENT,
}
"""Longest text where it is not `TEXT`."""
MANY = {
    ("Container", "args"): 1024,
    ("Container", "command"): 1024,
    ("Container", "env"): 1024,
    ("Container", "volumeMounts"): 256,
    ("ExecAction", "command"): 256,
    ("ConfigMapProjection", "items"): 256,
    ("ConfigMapVolumeSource", "items"): 256,
    ("DownwardAPIProjection", "items"): 256,
    ("DownwardAPIVolumeSource", "items"): 256,
    ("PodSpec", "containers"): 32,
    ("PodSpec", "initContainers"): 32,
    ("PodSpec", "volumes"): 256,
    ("SecretProjection", "items"): 256,
    ("SecretVolumeSource", "items"): 256,
}
"""Most items where that is not `ITEMS`."""


def definitions() -> dict[str, Schema]:
    """Return the definitions that a pod's spec is made of, by their last name."""
    merged: dict[str, Schema] = {}
    folders = {tuple(map(int, f.name[1:].removesuffix("-local").split("."))): f for f in SHIPPED.glob("v*-local")}
    for version in sorted(version for version in folders if version >= OLDEST):
        shipped = json.loads((folders[version] / "_definitions.json").read_text())["$defs"]
        found: dict[str, Schema] = {}
        _collect(shipped, ROOT, found)
        for name, made in found.items():
            merged[name] = _union(merged[name], made) if name in merged else made
    return merged


def _collect(shipped: dict[str, Schema], full: str, found: dict[str, Schema]) -> None:
    name = full.rpartition(".")[2]
    if name in found:
        return
    source = shipped[full]
    made: Schema = {"type": "object", "properties": {}}
    found[name] = made
    if required := source.get("required"):
        made["required"] = required
    for field, value in sorted(source.get("properties", {}).items()):
        if (name, field) in LEFT_OUT or (name == "ObjectMeta" and field not in OBJECT_META):
            continue
        made["properties"][field] = _field(name, field, value)
        for reference in _references(value):
            if _kind(reference) is None:
                _collect(shipped, reference, found)


def _references(value: Schema) -> Iterator[str]:
    for part in (value, value.get("items"), value.get("additionalProperties")):
        if isinstance(part, dict) and "$ref" in part:
            yield part["$ref"].rpartition("/")[2]


def _kind(full: str) -> Schema | None:
    """Return the schema of what is no object of fields."""
    match full.rpartition(".")[2]:
        case "Quantity":
            return {"x-kubernetes-int-or-string": True, "maxLength": QUANTITY}
        case "IntOrString":
            return {"x-kubernetes-int-or-string": True, "maxLength": TEXT}
    return None


def _field(owner: str, field: str, value: Schema) -> Schema:
    for reference in _references({k: v for k, v in value.items() if k == "$ref"}):
        return _kind(reference) or {"$ref": reference.rpartition(".")[2]}
    match _type(value):
        case "array":
            most = MANY.get((owner, field), ITEMS)
            return {"type": "array", "maxItems": most, "items": _field(owner, field, value["items"])}
        case "object":
            entries = _field(owner, field, value["additionalProperties"])
            return {"type": "object", "maxProperties": ENTRIES, "additionalProperties": entries}
        case "string":
            return {"type": "string", "maxLength": LONG.get((owner, field), TEXT)}
        case "integer":
            return {"type": "integer", "format": value.get("format", "int64")}
        case "boolean":
            return {"type": "boolean"}
        case other:
            raise ValueError(f"{owner}.{field}: no schema is known for the type {other}")


def _type(value: Schema) -> str:
    """Return the type without the null that stands beside it."""
    found = value["type"]
    return found if isinstance(found, str) else next(one for one in found if one != "null")


def _union(one: Schema, other: Schema) -> Schema:
    """Return what either version knows; required is what both ask for."""
    made = {**one, "properties": dict(sorted({**one["properties"], **other["properties"]}.items()))}
    made.pop("required", None)
    if required := sorted(set(one.get("required", ())) & set(other.get("required", ()))):
        made["required"] = required
    return made


def text() -> str:
    """Return the file's content: a definition a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(made)}" for name, made in sorted(definitions().items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text())
