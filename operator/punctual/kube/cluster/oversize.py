"""Specs of jobs that are larger than any may be: what is kept of one is its size, a digest and the reason to refuse it.

The schema refuses nearly all of them, but an older one took any: 1 MB of ``{}`` is 27 MiB once it is read. So each is
made light where it is read, before the next one is, and nothing else ever holds one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

Body = dict[str, Any]

LARGEST: Final = 128 * 1024
"""Bytes of a job's spec as JSON: its status may need 1 MiB, and etcd takes 1.5 in all."""
SMALL: Final = 1024
"""Bytes of a field's JSON that stays in a spec that was made light: what tells whose job it is, and of which pool."""
MARK: Final = "oversize"
"""Field of an object that was made light. No object has one by itself: the API server drops what a schema lacks."""

_KIND: Final = "DivisibleJob"
_UNREADABLE: Final = "spec: is nested deeper than any pod is"


class KeptSpec(NamedTuple):
    """What is kept of a spec."""

    spec: bytes
    """JSON, as the user wrote it; of one that has a flaw nothing."""
    flaw: str = ""
    """What is so wrong with it that it cannot be kept."""


def refusal(size: int) -> str:
    """Return why a spec of so many bytes is refused; empty where it is not."""
    if size <= LARGEST:
        return ""
    return (
        f"spec: is {size // 1024} KiB of JSON, more than {LARGEST // 1024}: put what is large into a ConfigMap "
        "or an image"
    )


def kept(body: Mapping[str, Any]) -> KeptSpec:
    """Return what to keep of a job's spec."""
    if mark := body.get(MARK):
        return KeptSpec(b"{}", f"{refusal(mark['bytes'])} (SHA-256 {mark['digest'][:12]})")
    try:
        packed = _packed(body.get("spec") or {})
    except (TypeError, ValueError, RecursionError):
        return KeptSpec(b"{}", _UNREADABLE)
    if len(packed) > LARGEST:
        return kept({MARK: _mark(packed)})
    return KeptSpec(packed)


def lightened(body: Body) -> Body:
    """Return an object, or a list of some, with marks in the place of specs that are too large."""
    if isinstance(items := body.get("items"), list):
        return {**body, "items": [_light(item) for item in items]}
    return _light(body)


def _light(body: Body) -> Body:
    spec = body.get("spec") if isinstance(body, dict) and body.get("kind") == _KIND else None
    if not isinstance(spec, dict):
        return body
    try:
        packed = _packed(spec)
    except (TypeError, ValueError, RecursionError):
        return body
    if len(packed) <= LARGEST:
        return body
    small = {name: value if len(_packed(value)) <= SMALL else None for name, value in spec.items()}
    return {**body, "spec": small, MARK: _mark(packed)}


def _mark(packed: bytes) -> dict[str, Any]:
    return {"bytes": len(packed), "digest": hashlib.sha256(packed).hexdigest()}


def _packed(value: Any) -> bytes:
    """Return JSON; TypeError, ValueError or RecursionError where it cannot be said or is nested too deep."""
    try:
        # a copy: what orjson returns lies in a buffer that is many times larger
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        # a number that 64 bits do not hold: the API server takes any in a template, kopf reads it as it is
        return orjson.dumps(orjson.loads(json.dumps(value)))
