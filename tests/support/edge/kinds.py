"""Kinds that the API server serves, and what it does to a body before it stores it: defaults, pruning, validation."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from punctual.kube.api import KINDS as OURS
from punctual.kube.api.meta import EPOCH_NEVER_FALLS

CRDS = Path(__file__).resolve().parents[3] / "crds"


@dataclass(frozen=True, slots=True)
class Kind:
    """``model``: of one of Punctual's kinds."""

    kind: str
    version: str
    plural: str
    namespaced: bool = True
    has_status: bool = False
    model: type | None = None
    selectable: tuple[str, ...] = ()

    @property
    def resource(self):
        """Return the path of its collection over all namespaces."""
        return f"/{'apis' if '/' in self.version else 'api'}/{self.version}/{self.plural}"


def _ours(model):
    names = model.NAMES
    fields = tuple(path.removeprefix(".") for path in model.SELECTABLE)
    return Kind(
        names.kind,
        "punctual.dev/v1alpha1",
        names.plural,
        names.scope == "Namespaced",
        has_status=True,
        model=model,
        selectable=fields,
    )


KINDS = (
    *map(_ours, OURS),
    Kind("Pod", "v1", "pods", has_status=True),
    Kind("Node", "v1", "nodes", namespaced=False, has_status=True),
    Kind("Namespace", "v1", "namespaces", namespaced=False, has_status=True),
    Kind("Job", "batch/v1", "jobs", has_status=True),
    Kind("ConfigMap", "v1", "configmaps"),
    Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims", has_status=True),
    Kind("PersistentVolume", "v1", "persistentvolumes", namespaced=False, has_status=True),
    Kind("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False),
    Kind("Lease", "coordination.k8s.io/v1", "leases"),
    Kind("Event", "events.k8s.io/v1", "events"),
)
BY_RESOURCE = {(kind.version, kind.plural): kind for kind in KINDS}


def kind_of(path):
    """Return the kind of the object at a path."""
    parts = path.split("/")
    version = parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"
    return BY_RESOURCE[version, parts[-2]]


class Invalid(Exception):  # noqa: N818  an answer, not an error of the program
    """A body that the API server refuses. ``causes``: (field, message)."""

    def __init__(self, *causes):
        super().__init__("; ".join(f"{field}: {message}" for field, message in causes))
        self.causes = causes


def _schema(plural):
    """Return the OpenAPI schema of one of Punctual's kinds, as its CRD has it."""
    crd = yaml.load((CRDS / f"punctual.dev_{plural}.yaml").read_text(), Loader=yaml.CSafeLoader)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


SCHEMAS = {kind.plural: _schema(kind.plural) for kind in KINDS if kind.model}  # read once, not in each fork


def shaped(kind, body):
    """Return a body of one of Punctual's kinds without unknown fields, with defaults, and the unknown fields."""
    unknown = []
    own = {name: part for name, part in SCHEMAS[kind.plural]["properties"].items() if name in {"spec", "status"}}
    made = {name: body[name] for name in ("apiVersion", "kind", "metadata") if name in body}
    for name, part in own.items():
        if name in body:
            made[name] = _shaped(part, body[name], name, unknown)
    return made, [*unknown, *(name for name in body if name not in {*made, *own})]


def _shaped(part, value, path, unknown):
    if isinstance(value, list) and "items" in part:
        return [_shaped(part["items"], one, f"{path}[{i}]", unknown) for i, one in enumerate(value)]
    if not isinstance(value, dict) or part.get("type") != "object":
        return value
    if rest := part.get("additionalProperties"):
        return {name: _shaped(rest, one, f"{path}.{name}", unknown) for name, one in value.items()}
    known, keeps = part.get("properties", {}), part.get("x-kubernetes-preserve-unknown-fields")
    made = {}
    for name, one in value.items():
        if name in known:
            if one is None and not known[name].get("nullable"):
                continue
            made[name] = _shaped(known[name], one, f"{path}.{name}", unknown)
        elif keeps:
            made[name] = one
        else:
            unknown.append(f"{path}.{name}")
    for name, one in known.items():
        if name not in made and "default" in one:
            made[name] = _shaped(one, one["default"], f"{path}.{name}", unknown)
    return made


def validate(kind, body, before):
    """Check the rules of one of Punctual's kinds. Raises Invalid. What is wrong already and is not touched may stay."""
    try:
        kind.model.model_validate(body)
    except ValidationError as error:
        new = [one for one in error.errors() if before is None or not _stays(one["loc"], before, body)]
        if new:
            raise Invalid(*((".".join(map(str, one["loc"])), one["msg"]) for one in new)) from None
    if before is not None:
        broken = [rule for rule in kind.model.RULES if rule.holds is None and not _keeps(rule, before, body)]
        if broken:
            raise Invalid(*((rule.field, rule.message) for rule in broken))


def _stays(loc, old, new):
    """Return whether there is a value at a place, and is the one that was there before."""
    try:
        for name in loc:
            old, new = old[name], new[name]
    except (KeyError, IndexError, TypeError):
        return False
    return old == new


def _keeps(rule, old, new):
    """Check a rule about a change. These are in the CRDs as CEL only."""
    status = old.get("status") or {}
    if rule is EPOCH_NEVER_FALLS:
        return (new.get("status") or {}).get("epoch", -1) >= status.get("epoch", -1)
    if rule.cel.startswith("!has(self.spec.reduce)"):
        units = new["spec"]["units"]
        ranges = [*(status.get("completed") or ()), *(status.get("chunks") or ())]
        return "reduce" not in new["spec"] or all(units <= r["begin"] or units >= r["end"] for r in ranges)
    if rule.cel.startswith("!has(oldSelf.status)") and ("promise" not in status or old["spec"].get("dryRun")):
        return True
    return _value(rule.field, old) == _value(rule.field, new)


def _value(path, body):
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body
