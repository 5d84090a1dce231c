"""The demo's objects as manifests."""

from __future__ import annotations

from lib import testbed
from lib.testbed import NODE_LABEL, POOL, Json

from demo_lib.programs import Cost, Program, measuring_command
from demo_lib.sizes import MARGIN, REDUCE

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
    made = _pod("visitor", image, ["python3", "-c", "while True: pass"], {})
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "200m", "memory": "16Mi"}}
    return made


def measuring_pod(image: str) -> Json:
    """Return the pod that finds out what units cost, on a node of the pool."""
    made = _pod("measure", image, measuring_command(), {})
    made["spec"]["nodeSelector"] = {NODE_LABEL: POOL}
    return made


def lone_pod(program: Program, image: str, *, name: str, units: int) -> Json:
    """Return one process alone that does a whole job: what it finds must be what the chunks found.

    It asks for nothing, so it takes what is idle, and keeps away from the pool's nodes where it can.
    """
    made = _pod(
        name,
        image,
        list(program.command),
        {"PUNCTUAL_BEGIN": "0", "PUNCTUAL_END": str(units), "PUNCTUAL_TOTAL": str(units), "PUNCTUAL_DIR": "/tmp"},
    )
    elsewhere = {"matchExpressions": [{"key": NODE_LABEL, "operator": "DoesNotExist"}]}
    made["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": elsewhere}]}
    }
    made["spec"]["tolerations"] = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
    return made


def _pod(name: str, image: str, command: list[str], environment: dict[str, str]) -> Json:
    container = {
        "name": "main",
        "image": image,
        "command": command,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": MARK},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


OWN = "examples/first/job.yaml"
"""The job that a reader may begin with."""


def own_job(image: str, *, own: bool) -> str:
    """Return the command that runs `OWN` and shows it; ``own``: on our kind cluster, where its image is."""
    punctual = ".venv/bin/punctual"
    file, before = (OWN, 'eval "$(hack/cluster env)" && ') if own else ("-", f"sed s#punctual:dev#{image}# {OWN} | ")
    return f"{before}{punctual} submit {file} -n {NAMESPACE} && {punctual} watch first -n {NAMESPACE}"
