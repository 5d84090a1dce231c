"""Replaces oversized specs of jobs by their size, a digest and the reason for the refusal.

The schema refuses nearly all of them, but an older schema accepted any, and 1 MB of ``{}`` takes 27 MiB once decoded.
Each spec is therefore replaced as soon as it is decoded, before the next one, and no other code ever holds an oversized
one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

Body = dict[str, Any]

LARGEST: Final = 128 * 1024
"""Maximum bytes of a job's spec as JSON. Its status may need 1 MiB, and etcd accepts 1.5 in total."""
SMALL: Final = 1024
"""Maximum bytes of JSON of the fields that stay in a replaced spec. They identify the job's owner and pool."""
PATIENCE: Final = 30.0
"""Deadline in seconds of a write of an object with an oversized spec. The API server takes such a body apart several
times, which takes seconds, and on a busy machine more than the 10 of other calls; it gives up itself after 34."""
MARK: Final = "oversize"
"""Field that marks a replaced object. No other object has it: the API server drops fields that a schema lacks."""

_KIND: Final = "DivisibleJob"
_UNREADABLE: Final = "spec: is nested deeper than any pod is"


class KeptSpec(NamedTuple):
    """The stored form of a spec."""

    spec: bytes
    """JSON, as the user wrote it. Empty if it has a flaw."""
    flaw: str = ""
    """The reason why the spec cannot be stored."""


def refusal(size: int) -> str:
    """Return why a spec of this size is refused. Empty if it is not."""
    if size <= LARGEST:
        return ""
    return (
        f"spec: is {size // 1024} KiB of JSON, more than {LARGEST // 1024}: put large data into a ConfigMap or an image"
    )


def kept(body: Mapping[str, Any]) -> KeptSpec:
    """Return the stored form of a job's spec."""
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
    """Return an object, or a list of objects, with marks in place of oversized specs."""
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
    """Return JSON. Raises TypeError, ValueError or RecursionError if it cannot be written or is nested too deep."""
    try:
        # a copy: orjson's result lies in a buffer that is many times larger
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        # a number beyond 64 bits: the API server accepts any in a template, and kopf reads it as it is
        return orjson.dumps(orjson.loads(json.dumps(value)))
