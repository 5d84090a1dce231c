"""Unusual pod templates, and what is right to become of a job with each.

hack/chaos applies them beside its jobs, tests/cluster/test_templates.py one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
HOST: Final = "kubernetes.io/hostname"
TAINT: Final = "example.com/own"
"""Key of the taint that one template tolerates."""
WORK: Final = "i=$PUNCTUAL_BEGIN; while [ $i -lt $PUNCTUAL_END ]; do sleep 0.8; i=$((i+1)); done"
"""Units of 0.8 s, to be declared with 1 s."""
LIMIT_RANGE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "usual"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "200m"}, "default": {"cpu": "200m"}}]},
}
"""What the namespace of a limited template has: a helper container is larger than a processor."""


@dataclass(frozen=True)
class Template:
    """A pod template."""

    right: Literal["refused", "failed", "either", "done"] = "done"
    """What becomes of the job. Either: failed or done."""
    reason: str = ""
    """Of a refusal or a failure."""
    words: str = ""
    """A part of its message."""
    told: str = ""
    """A reason that OnTrack=False or an event has before."""
    command: Sequence[str] = ("sh", "-c", WORK)
    image: str = ""
    """Of the work, instead of the usual one."""
    resources: Json = field(default_factory=dict)
    """Of the work's container."""
    helpers: Sequence[Json] = ()
    """Containers behind the work's."""
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: Json = field(default_factory=dict)
    """More fields of the pod's spec."""
    job: Json = field(default_factory=dict)
    """More fields of the job's spec."""
    node: int | None = None
    """Which of the nodes it selects."""
    limited: bool = False
    """Whether its namespace has a LimitRange."""

    def body(self, image: str, nodes: Sequence[str]) -> Json:
        """Return it as a job has it."""
        main = {"name": "main", "image": self.image or image, "command": [*self.command], "resources": self.resources}
        helpers = [{"image": image, **helper} for helper in self.helpers]
        spec = {"terminationGracePeriodSeconds": 1, "containers": [main, *helpers], **self.pod}
        if self.node is not None:
            spec["nodeSelector"] = {HOST: nodes[self.node]}
        return {"metadata": {"labels": dict(self.labels)}, "spec": spec}


def _side(name: str, script: str, **resources: Json) -> Json:
    return {"name": name, "command": ["sh", "-c", script], "resources": resources}


def _rule(key: str, value: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


_FOR_EVER: Final = _side("proxy", "while true; do sleep 1; done")
_ONCE: Final = {"chunkRetries": 0}
_MOON: Final = {"nodeSelectorTerms": [_rule("zone", "moon")]}
_TAPE: Final = [{"weight": 1, "preference": _rule("disk", "tape")}]
_APART: Final = [{"labelSelector": {"matchLabels": {"example.com/apart": "yes"}}, "topologyKey": HOST}]
_SCHEDULING: Final = "DuringSchedulingIgnoredDuringExecution"

TEMPLATES: Final[Mapping[str, Template]] = {
    # the cluster refuses or enlarges their pods
    "selector": Template(
        "refused", "PodFitsNoNode", "example.com/disk=ssd", pod={"nodeSelector": {"example.com/disk": "ssd"}}
    ),
    "affinity": Template(
        "refused",
        "PodFitsNoNode",
        "zone in (moon)",
        pod={"affinity": {"nodeAffinity": {f"required{_SCHEDULING}": _MOON}}},
    ),
    "memory": Template("refused", "PodTooLarge", "30Gi", resources={"requests": {"memory": "30Gi"}}),
    "gpu": Template("refused", "PodTooLarge", "nvidia.com/gpu", resources={"limits": {"nvidia.com/gpu": "1"}}),
    "helper": Template(
        "refused", "PodTooLarge", "64Mi", helpers=[_side("shipper", "true", requests={"memory": "64Mi"})]
    ),
    "limited": Template("refused", "PodTooLarge", helpers=[_side("shipper", "true")], limited=True),
    "nameless": Template("refused", "InvalidSpec", "can never be pulled", image="Punctual:dev"),
    # the cluster ends them
    "brief": Template("refused", "InvalidSpec", "activeDeadlineSeconds", pod={"activeDeadlineSeconds": 2}),
    "hungry": Template(
        "failed", "ChunkFailed", "OOMKilled", command=("python3", "-c", "b = b'x' * (200 << 20)"), job=_ONCE
    ),
    "fails": Template("failed", "ChunkFailed", "5", command=("sh", "-c", "exit 5"), helpers=[_FOR_EVER], job=_ONCE),
    # they never start
    "unserved": Template("failed", "NotStarted", "vulcano", pod={"schedulerName": "vulcano"}, job=_ONCE),
    "gated": Template(
        "failed", "NotStarted", "scheduling gates", pod={"schedulingGates": [{"name": "example.com/wait"}]}, job=_ONCE
    ),
    "absent": Template(
        "failed",
        "ChunkFailed",
        told="NotStarted",
        image="registry.invalid/nothere:1",
        job={"imagePullTimeout": "30s", **_ONCE},
    ),
    "apart": Template(
        "either",  # done, if one of them is made anew when another has ended
        "NotStarted",
        labels={"example.com/apart": "yes"},
        pod={"affinity": {"podAntiAffinity": {f"required{_SCHEDULING}": _APART}}},
        job={"units": 90, "processors": {"min": 3, "max": 3}, **_ONCE},
    ),
    # they are unusual, and can run
    "selects": Template(node=0),
    "tolerates": Template(node=1, pod={"tolerations": [{"key": TAINT, "operator": "Exists"}]}),
    "prefers": Template(pod={"affinity": {"nodeAffinity": {f"preferred{_SCHEDULING}": _TAPE}}}),
    "helped": Template(helpers=[_side("side", "sleep 1", limits={"memory": "16Mi"})]),
    "meshed": Template(helpers=[_FOR_EVER]),
    "shipped": Template(helpers=[_side("shipper", "sleep 5; exit 3")]),
}
"""By name; for processors of 64Mi, and two nodes or more."""
