"""Runs the recorder on a node, and reads what it saw."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lib.testbed import Json

from experiments_lib.ground import NAMESPACE, Ground
from punctual.errors import PunctualError

TEXT = (Path(__file__).parent / "recorder.py").read_text(encoding="utf-8")


@dataclass(slots=True)
class Seen:
    """What the recorder saw of one pod."""

    units: list[tuple[float, float]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    caps: list[tuple[float, float, float]] = field(default_factory=list)
    """(time, cores, period) at each change."""
    written: list[tuple[float, float, float]] = field(default_factory=list)
    """The same of the recorder's own writes."""


def begin(
    ground: Ground,
    name: str,
    node: str,
    pods: Mapping[str, str],
    *,
    every: float,
    seconds: float,
    writes: Sequence[tuple[float, str, float, float]] = (),
) -> None:
    """Start a recorder for pods (name by uid) and wait until it runs."""
    order = {"pods": dict(pods), "every": every, "seconds": seconds, "writes": list(writes)}
    body = ground.pod(name, node, ["python3", "-c", TEXT, json.dumps(order)])
    container = body["spec"]["containers"][0]
    # root, as the agent is: cgroup files belong to it
    container["securityContext"] = {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}
    container["resources"] = {}
    container["volumeMounts"] += [
        {"name": "cgroup", "mountPath": "/host/cgroup"},
        {"name": "pods", "mountPath": "/host/pods", "readOnly": True, "mountPropagation": "HostToContainer"},
    ]
    body["spec"]["volumes"] += [
        {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}},
        {"name": "pods", "hostPath": {"path": "/var/lib/kubelet/pods"}},
    ]
    ground.create(body)
    ground.until(lambda: name in ground.pods(), within=60, what="the recorder to run")


def end(ground: Ground, name: str, *, within: float) -> dict[str, Seen]:
    """Wait until a recorder has ended; return what it saw by name of the pod."""

    def over() -> str:
        phase = ground.kubectl.get("pod", name, "-n", NAMESPACE)["status"].get("phase")
        return phase if phase in {"Succeeded", "Failed"} else ""

    phase = ground.until(over, within=within, what="the recorder to end")
    text = ground.kubectl.run("logs", name, "-n", NAMESPACE)
    if phase == "Failed":
        raise PunctualError(f"the recorder failed: {text[-2000:]}")
    ground.kubectl.run("delete", "pod", name, "-n", NAMESPACE)
    return read(text)


def read(text: str) -> dict[str, Seen]:
    """Read a recorder's output. A pod that has not reported progress yet has done nothing."""
    found: dict[str, Seen] = defaultdict(Seen)
    for row in text.splitlines():
        what, at, name, *values = json.loads(row)
        seen = found[name]
        if what == "written":
            cores, period = values
            seen.written.append((at, cores, period))
            continue
        units, cpu, cores, period = values
        seen.units.append((at, float(units or 0)))
        seen.cpu.append((at, cpu))
        if cores is not None and (not seen.caps or seen.caps[-1][1:] != (cores, period)):
            seen.caps.append((at, cores, period))
    return dict(found)


def uid(pod: Json) -> str:
    """Return a pod's uid."""
    return str(pod["metadata"]["uid"])
