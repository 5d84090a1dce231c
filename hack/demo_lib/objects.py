"""The demo's objects as manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib import testbed
from lib.testbed import POOL, Json

from demo_lib.programs import Cost, Program, measuring_command
from demo_lib.sizes import MARGIN, REDUCE
from punctual.labels import POOL_LABEL

NAMESPACE = "punctual-demo"
MARK = {"punctual.dev/demo": "true"}
CPU = 0.1


def namespace() -> Json:
    """Return the namespace all is in."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": MARK}}


def pool() -> Json:
    """Return the pool."""
    made = testbed.pool(POOL, margin=f"{MARGIN:.0f}s")
    made["metadata"]["labels"] = MARK
    return made


def job(
    program: Program, cost: Cost, *, name: str, units: int, deadline: str, image: str, processors: int | None = None
) -> Json:
    """Return a DivisibleJob that runs an example and reduces its results. ``processors``: just so many."""

    def template(*more: str) -> Json:
        container = {"name": program.name, "image": image, "command": [*program.command, *more]}
        return {"spec": {"containers": [container]}}

    exactly = {} if processors is None else {"processors": {"min": processors, "max": processors}}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": MARK},
        "spec": {
            **exactly,
            "pool": POOL,
            "units": units,
            "deadline": deadline,
            "cost": {"perUnit": f"{cost.chi * 1000:.1f}ms", "startup": f"{cost.theta * 1000:.0f}ms"},
            "template": template(),
            "reduce": {"duration": f"{REDUCE:.0f}s", "template": template("reduce")},
        },
    }


def guest(program: Program, cost: Cost, *, name: str, units: int, image: str) -> Json:
    """Return a job of class Guest that runs an example. Its chunks leave their results to be read."""
    container = {"name": program.name, "image": image, "command": list(program.command)}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": MARK},
        "spec": {
            "pool": POOL,
            "class": "Guest",
            "units": units,
            "cost": {"perUnit": f"{cost.chi * 1000:.1f}ms"},
            "template": {"spec": {"containers": [container]}},
        },
    }


def visitor(image: str, node: str) -> Json:
    """Return a pod that is some of a node's own work: it uses all CPU that it gets."""
    requests, there = {"cpu": "200m", "memory": "16Mi"}, {"kubernetes.io/hostname": node}
    return _pod("visitor", image, ["python3", "-c", "while True: pass"], requests=requests, nodeSelector=there)


def measuring_pod(image: str) -> Json:
    """Return the pod that finds out what units cost, on a node of the pool."""
    return _pod("measure", image, measuring_command(), nodeSelector={POOL_LABEL: POOL})


def lone_pod(program: Program, image: str, *, name: str, units: int) -> Json:
    """Return one process alone that does a whole job: what it finds must be what the chunks found.

    It asks for nothing, so it takes what is idle, and keeps away from the pool's nodes where it can.
    """
    elsewhere = {"matchExpressions": [{"key": POOL_LABEL, "operator": "DoesNotExist"}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": elsewhere}]}
    tolerations = [{"key": testbed.CONTROL_PLANE, "operator": "Exists"}]
    made = _pod(name, image, program.command, affinity={"nodeAffinity": preferred}, tolerations=tolerations)
    units_alone = {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": str(units), "PUNCTUAL_TOTAL": str(units)}
    made["spec"]["containers"][0]["env"] = testbed.environment({**units_alone, "PUNCTUAL_DIR": "/tmp"})
    return made


def _pod(name: str, image: str, command: Sequence[str], **spec: Any) -> Json:
    made = testbed.pod(name, NAMESPACE, image, command, restartPolicy="Never", terminationGracePeriodSeconds=1, **spec)
    made["metadata"]["labels"] = MARK
    return made


OWN = "examples/first/job.yaml"
"""The job that a reader may begin with."""


def own_job(image: str, *, own: bool) -> str:
    """Return the command that runs `OWN` and shows it; ``own``: on our kind cluster, where its image is."""
    punctual = ".venv/bin/punctual"
    file, before = (OWN, 'eval "$(hack/cluster env)" && ') if own else ("-", f"sed s#punctual:dev#{image}# {OWN} | ")
    return f"{before}{punctual} submit {file} -n {NAMESPACE} && {punctual} watch first -n {NAMESPACE}"
