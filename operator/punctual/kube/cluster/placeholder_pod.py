"""The pod of a placeholder: its settings from the chart, and the state read from one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import orjson

from punctual.labels import PLACEHOLDER, PROCESSOR


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderSettings:
    """The chart's settings of placeholders."""

    namespace: str
    """The namespace of the placeholders."""
    spec: Mapping[str, Any] = field(
        default_factory=lambda: {"containers": [{"name": "placeholder", "image": "registry.k8s.io/pause:3.10"}]}
    )
    """The spec of a placeholder's pod, without node and resources."""
    priority: int = 0
    """Priority of a placeholder. Later pods of at most this priority are not counted."""
    chunk_class: str = ""
    """Priority class of chunks that preempt placeholders, above theirs. Empty: the cluster's default."""

    @classmethod
    def read(cls, text: str, namespace: str) -> Self:
        """Read the settings from the JSON that the chart put into the environment. Raises ValueError."""
        said = orjson.loads(text) if text else {}
        if not isinstance(said, dict) or not said.keys() <= {"spec", "priority", "chunkClass"}:
            raise ValueError("must be an object with spec, priority and chunkClass")
        fields = {"chunk_class" if key == "chunkClass" else key: value for key, value in said.items()}
        return cls(namespace=namespace, **fields)


class Placeholder(NamedTuple):
    """The last seen state of a placeholder."""

    name: str
    uid: str
    pool: str
    """uid of its pool."""
    node: str
    size: str
    """What it keeps, even if its requests were changed since: a processor, or the rest of one."""
    bound: bool
    """It is bound to its node."""
    going: bool
    ended: bool
    """It no longer runs: evicted, or refused by its node."""


def placeholder(body: Mapping[str, Any], namespace: str) -> Placeholder | None:
    """Return the state of a pod that is a placeholder. ``namespace`` is that of the placeholders."""
    meta, spec = body["metadata"], body["spec"]
    pool = (meta.get("labels") or {}).get(PLACEHOLDER)
    if not pool or meta.get("namespace") != namespace:
        return None
    return Placeholder(
        name=meta["name"],
        uid=meta["uid"],
        pool=pool,
        node=node_of(spec),
        size=(meta.get("annotations") or {}).get(PROCESSOR, ""),
        bound=bool(spec.get("nodeName")),
        going=meta.get("deletionTimestamp") is not None,
        ended=(body.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
    )


def node_of(spec: Mapping[str, Any]) -> str:
    """Return the node of a placeholder, bound or not. Empty if its spec names none."""
    try:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return str(terms[0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError):
        return str(spec.get("nodeName") or "")
