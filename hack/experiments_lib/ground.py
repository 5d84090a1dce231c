"""The cluster of the experiments: its nodes, the pools on them, pods, and how much CPU a node has.

The nodes must be containers of a Docker engine (`hack/cluster`): their CPU is changed with `docker update`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lib import machine, testbed
from lib.machine import docker, give_cpus
from lib.testbed import CONTROL_PLANE, ROOT, Json

from experiments_lib import programs
from experiments_lib.programs import Cost, Program
from punctual.cli.kubectl import Kubectl
from punctual.errors import PunctualError
from punctual.labels import POOL_LABEL

NAMESPACE = "punctual-experiments"
POOLS = "experiments-.*"
"""Names of the pools."""
CPU = 0.1
"""Cores of a processor."""
STARTUP = 5.0
"""Seconds that a chunk takes to start, as its job declares them."""
SAFETY = 1.1
"""A unit costs more on a busy machine than alone."""


class Ground:
    """The cluster with Punctual on it, and two worker nodes for the experiments."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.kubectl = Kubectl()
        self.say = say
        self.image = ""
        self.nodes: list[str] = []
        self.costs: dict[str, Cost] = {}
        self.commit = ""
        """Of the checkout that the image was built from; + behind it: with changes."""
        self._cores: dict[str, float] = {}

    until = staticmethod(testbed.until)

    # before and after

    @contextmanager
    def prepared(self, *, programs_too: bool = True) -> Iterator[None]:
        """Have cluster, images and chart, measure the programs if they are needed; at the end give all back."""
        testbed.bring_up()
        described = ["git", "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"]
        self.commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        base = testbed.own_image()
        self.image = base
        if programs_too:
            self.image = testbed.example_image("proteins", own=base, tag=base.rpartition(":")[2])
        # both workers must have the same CPU, so the operator runs on neither
        testbed.install(
            base,
            operator__nodeSelector=f'{{{CONTROL_PLANE}: ""}}',
            operator__tolerations=f"[{{key: {CONTROL_PLANE}, operator: Exists}}]",
        )
        nodes = testbed.label_nodes(self.kubectl, own=True)
        if len(nodes) < 2:
            raise PunctualError("the experiments need two worker nodes: hack/cluster up --workers 2")
        self.nodes = nodes[:2]
        self._cores = {node: machine.cores(node) for node in self.nodes}
        with testbed.Borrowed(self.kubectl, namespaces=NAMESPACE, pools=POOLS):
            try:
                self.kubectl.run("create", "namespace", NAMESPACE)
                if programs_too:
                    self._measure()
                yield
            finally:
                self.give(1.0)

    def _measure(self) -> None:
        self.create(self.pod("measure", self.nodes[0], programs.measuring_command()))
        self.costs = programs.costs(testbed.termination(self.kubectl, NAMESPACE, "measure", within=180))
        self.kubectl.run("delete", "pod", "measure", "-n", NAMESPACE)
        self.say("CPU of a unit: " + ", ".join(f"{name} {1000 * c.unit:.1f} ms" for name, c in self.costs.items()))

    def reset(self) -> None:
        """Remove jobs and pools, and give nodes the CPU back that they had."""
        self.give(1.0)
        self.kubectl.run("delete", "divisiblejobs", "--all", "-n", NAMESPACE, "--ignore-not-found", "--timeout=60s")
        testbed.remove(self.kubectl, pools=POOLS)

    # nodes

    def every_node(self) -> list[str]:
        """Return all nodes of the cluster, also that of the control plane."""
        return [node["metadata"]["name"] for node in self.kubectl.get("nodes")["items"]]

    def give(self, part: float) -> None:
        """Give all nodes a part of the CPU that they have while nothing disturbs them."""
        for node, cores in self._cores.items():
            give_cpus(node, part * cores)

    def burn(self, node: str, seconds: float) -> None:
        """Run a program on a node, outside its pods, that takes all the CPU it can get."""
        docker("exec", "--detach", node, "timeout", f"{seconds:.1f}", "sh", "-c", "while :; do :; done")

    def douse(self, node: str) -> None:
        """End what :meth:`burn` started on a node."""
        docker("exec", node, "sh", "-c", "kill $(pgrep -f 'while :; do :; don[e]') 2>/dev/null || true")

    def pool(self, name: str, *nodes: str, **spec: Any) -> int:
        """Have a pool of some nodes; return how many processors it has."""
        self.kubectl.run("label", "node", *nodes, f"{POOL_LABEL}={name}", "--overwrite")
        processor = {"cpu": f"{1000 * CPU:.0f}m", "memory": "128Mi"}
        self.create(testbed.pool(name, **{"processor": processor, **spec}))
        return int(testbed.ready_pool(self.kubectl, name, nodes=nodes)["processors"])

    # pods and jobs

    def job(self, name: str, pool: str, program: Program, *, units: int, deadline: float, processors: Json) -> Json:
        """Return a job that runs a program."""
        return {
            "apiVersion": "punctual.dev/v1alpha1",
            "kind": "DivisibleJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "pool": pool,
                "units": units,
                "deadline": f"{deadline:.0f}s",
                "processors": processors,
                "cost": {
                    "perUnit": f"{1000 * SAFETY * self.costs[program.name].seconds(CPU):.1f}ms",
                    "startup": f"{self.startup(program):.0f}s",
                },
                "template": {
                    "spec": {"containers": [{"name": "main", "image": self.image, "command": program.command}]}
                },
            },
        }

    def startup(self, program: Program) -> float:
        """Seconds from the creation of a chunk's pod to its first unit."""
        return STARTUP + self.costs[program.name].start / CPU

    def pod(self, name: str, node: str, command: Sequence[str], **environment: str) -> Json:
        """Return a pod for a node that the agent reports, but that the operator gives no cap."""
        requests = {"cpu": f"{1000 * CPU:.0f}m"}
        volumes = [{"name": "punctual", "emptyDir": {}}]
        where = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "volumes": volumes}
        made = testbed.pod(name, NAMESPACE, self.image, command, requests=requests, **where)
        made["spec"]["containers"][0] |= {
            "env": testbed.environment(environment),
            "volumeMounts": [{"name": "punctual", "mountPath": "/punctual"}],
        }
        return made

    def create(self, body: Json) -> None:
        """Create an object."""
        testbed.create(self.kubectl, body)

    def jobs(self) -> dict[str, Json]:
        """Return all jobs by name."""
        found = self.kubectl.get("divisiblejobs", "-n", NAMESPACE)["items"]
        return {job["metadata"]["name"]: job for job in found}

    def pods(self, selector: str = "") -> dict[str, Json]:
        """Return pods that run, by name."""
        words = ["-l", selector] if selector else []
        found = self.kubectl.get("pods", "-n", NAMESPACE, *words)["items"]
        return {pod["metadata"]["name"]: pod for pod in found if pod["status"].get("phase") == "Running"}


def target_rate(name: str, pool: str, rate: str, **more: object) -> Json:
    """Return a TargetRate of the pods with the label ``app`` = name."""
    spec = {"pool": pool, "selector": {"matchLabels": {"app": name}}, "rate": rate, **more}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "TargetRate", "metadata": meta, "spec": spec}
