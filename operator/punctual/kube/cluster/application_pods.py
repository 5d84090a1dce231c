"""Pods of the user's own, by namespace: what TargetRates select from.

Clusters have thousands of them, so of each only a few values are kept. Pods that have no node yet or have ended, chunk
pods and placeholders are not among them.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from punctual.notation.quantity import parse_cores

ONE: Final = 1.0
"""Cores that a pod has alone which says nothing about CPU."""


class ApplicationPod(NamedTuple):
    """A pod of the user's own on a node."""

    uid: str
    name: str
    """Namespace and name."""
    node: str
    labels: tuple[str, ...]
    """Keys and values in turn; a tuple of shared strings takes a third of a dict's memory."""
    cpu: float
    """Cores that it has alone: the first container's limit, else its request, else one."""
    request: float
    """Cores that the scheduler counts for it."""
    running: bool


def application_pod(body: Mapping[str, Any], *, node: str, request: float) -> ApplicationPod:
    """Return what is kept of a pod's body."""
    meta, spec = body["metadata"], body["spec"]
    labels = meta.get("labels") or {}
    return ApplicationPod(
        meta["uid"],
        f"{meta['namespace']}/{meta['name']}",
        sys.intern(node),
        tuple(sys.intern(text) for pair in sorted(labels.items()) for text in pair),
        _alone(spec["containers"][0].get("resources") or {}),
        request,
        (body.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in meta,
    )


def _alone(resources: Mapping[str, Any]) -> float:
    for which in ("limits", "requests"):
        if cores := parse_cores((resources.get(which) or {}).get("cpu", 0)):
            return cores
    return ONE


class ApplicationPods:
    """All such pods, by namespace, then key ("namespace/name")."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, ApplicationPod]] = {}

    def observe(self, key: str, pod: ApplicationPod | None) -> str:
        """Record a pod, or that it is none of them (any more); return its namespace if that changed anything."""
        namespace = key.partition("/")[0]
        pods = self._pods.setdefault(namespace, {})
        before = pods.pop(key, None)
        if pod is not None:
            pods[key] = pod
        if not pods:
            del self._pods[namespace]
        return namespace if before != pod else ""

    def in_namespace(self, namespace: str) -> Iterable[tuple[ApplicationPod, Mapping[str, str]]]:
        """Return the pods of a namespace, in the order of their names, with their labels."""
        for _, pod in sorted(self._pods.get(namespace, {}).items()):
            yield pod, dict(zip(pod.labels[::2], pod.labels[1::2], strict=True))
