"""A placeholder's pod (``hold: Placeholder``): how the chart wants it, and what is read of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import orjson

from punctual.kube.cluster.pods import PLACEHOLDER, PROCESSOR


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderSettings:
    """How room is kept: what the chart says."""

    namespace: str
    """Where placeholders are."""
    spec: Mapping[str, Any] = field(
        default_factory=lambda: {"containers": [{"name": "placeholder", "image": "registry.k8s.io/pause:3.10"}]}
    )
    """A placeholder's pod, but for its node and its room."""
    priority: int = 0
    """Of a placeholder: others of no more do not count where they came later."""
    chunk_class: str = ""
    """Priority class of chunks that find placeholders: above theirs. Empty: the cluster's default."""

    @classmethod
    def read(cls, text: str, namespace: str) -> Self:
        """Read what the chart has put into the environment (JSON); ValueError where it is not that."""
        said = orjson.loads(text) if text else {}
        if not isinstance(said, dict) or not said.keys() <= {"spec", "priority", "chunkClass"}:
            raise ValueError("an object with spec, priority and chunkClass is needed")
        fields = {"chunk_class" if key == "chunkClass" else key: value for key, value in said.items()}
        return cls(namespace=namespace, **fields)


class Placeholder(NamedTuple):
    """A placeholder as it was last seen."""

    name: str
    uid: str
    pool: str
    """uid of its pool."""
    node: str
    size: str
    """The processor it stands for, whatever was made of its requests since."""
    bound: bool
    """It has its room."""
    going: bool
    ended: bool
    """It should sleep and does not: evicted, or its node would not have it."""


def placeholder(body: Mapping[str, Any], namespace: str) -> Placeholder | None:
    """Return what is kept of a pod that is a placeholder; ``namespace``: where they are."""
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
    """Return the node that a placeholder is for, bound or not; "" where its spec does not say."""
    try:
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return str(terms[0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError):
        return str(spec.get("nodeName") or "")
