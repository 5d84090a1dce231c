"""A kind cluster of one control plane and some small workers, with the same capacity on every machine.

A worker's container gets a CFS quota, and its kubelet advertises no more CPU than that. CoreDNS runs on the control
plane, so the workers' CPU is free for pods. Called by `hack/cluster` only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lib import engine as engines
from lib import kernel, node_image, process, programs, traces
from lib.engine import NETWORK, Engine
from lib.home import CACHE, CLUSTERS, LOG, MissingError
from lib.node_image import NodeImage
from lib.process import CommandError
from lib.steps import Steps, say

LABEL = "io.x-k8s.kind.cluster"
_READY_S = 120
_RECOVERY_S = 45


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster by name, whether it is there or not."""

    name: str

    def __post_init__(self) -> None:
        """Refuse what kind and DNS would refuse later and less clearly."""
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", self.name):
            raise MissingError(f"{self.name!r} is no name for a cluster: use up to 32 of a-z, 0-9 and inner dashes.")

    @property
    def folder(self) -> Path:
        """What we keep of it."""
        return CLUSTERS / self.name

    @property
    def kubeconfig(self) -> Path:
        """Its administrator's access."""
        return self.folder / "kubeconfig"

    @property
    def kubectl(self) -> Path:
        """A kubectl of its version."""
        return self.folder / "bin/kubectl"

    def nodes(self, engine: Engine) -> list[str]:
        """Names of its nodes' containers, the control plane first."""
        return sorted(engine.containers(f"{LABEL}={self.name}"))

    def ask(self, *words: str, timeout: float = 30, stdin: str | None = None) -> str:
        """Run kubectl as its administrator."""
        return process.run([self.kubectl, f"--kubeconfig={self.kubeconfig}", *words], timeout=timeout, stdin=stdin)

    def ready(self, workers: int) -> bool:
        """Whether it answers and all its nodes are Ready."""
        if not self.kubectl.exists() or not self.kubeconfig.exists():
            return False
        jsonpath = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}'
        try:
            return self.ask("get", "nodes", "-o", f"jsonpath={jsonpath}").split() == ["True"] * (workers + 1)
        except CommandError:
            return False

    def up(self, *, workers: int, cpus: float) -> None:
        """Make it so: create it, or leave it as it is when it runs with so many workers of that size."""
        engine = engines.ensure()
        self._check_size(engine, workers, cpus)
        if self._there(engine, workers):
            if self._size() != cpus:
                self._resize(engine, cpus)
            traces.favour()
            return
        self._remove(engine)
        kernel.raise_to(kernel.NODES)
        image = node_image.ensure(engine)
        plan = {"Kubernetes on every node": 45.0, "nodes, DNS and sizes": 15.0}
        if not programs.kind.path.exists():
            plan = {programs.kind.step: programs.kind.seconds} | plan
        steps = Steps(f"cluster {self.name}", plan)
        programs.kind.build(steps)
        engine.ensure_network()
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o700)
        with steps.step("Kubernetes on every node"):
            config = self.folder / "kind.json"
            old = engine.docker("info", "--format", "{{.CgroupVersion}}").strip() == "1"
            config.write_text(json.dumps(_kind_config(image, workers, cgroup_v1=old), indent=1))
            create = ["create", "cluster", "--name", self.name, "--image", image.tag, "--wait", "0s"]
            steps.run(
                [programs.kind.path, *create, "--config", config, "--kubeconfig", self.kubeconfig],
                env=_kind_env(engine),
                log=LOG / f"kind-{self.name}.log",
            )
        with steps.step("nodes, DNS and sizes"):
            self._bring_kubectl(engine, image)
            self._settle(engine, image, cpus)
        traces.favour()

    def _there(self, engine: Engine, workers: int) -> bool:
        """Whether it runs with so many workers; nodes that were stopped or paused are started first."""
        nodes = self.nodes(engine)
        if len(nodes) != workers + 1 or not self.kubeconfig.exists():
            return False
        if self.ready(workers):
            return True
        say(f"Cluster {self.name} is there but not ready: waiting {_RECOVERY_S} s for it before making it anew")
        for word in ("unpause", "start"):
            process.succeeds(["docker", word, *nodes], env=engine.env)
        return process.eventually(lambda: self.ready(workers), within=_RECOVERY_S, every=0.5)

    def down(self) -> None:
        """Remove it, and the engine with it if that is ours and carries no other."""
        engine = engines.find()
        if engine is not None:
            self._remove(engine)
            engine.remove_network()  # it stays while a cluster of ours is on it
            if engine.containers(LABEL):
                return
            if not engine.own:
                kernel.restore()
        if os.geteuid() == 0:
            engines.stop()
        shutil.rmtree(CLUSTERS, ignore_errors=True)

    def load(self, images: Sequence[str]) -> None:
        """Bring images of the engine's store into those nodes that do not have these very ones.

        All of them go in one archive, so layers and names of one image travel once.
        """
        engine = engines.ensure()
        nodes = self.nodes(engine)
        if not nodes:
            raise MissingError(f"There is no cluster {self.name}: run hack/cluster up first.")
        marks = {f"/kind/loaded-{re.sub(r'[^A-Za-z0-9.-]', '_', image)}": _identity(engine, image) for image in images}
        there = " && ".join(f'[ "$(cat {mark})" = {identity} ]' for mark, identity in marks.items())
        lacking = [node for node in nodes if not _runs(engine, node, there)]
        if not lacking:
            return
        say(f"Loading {' and '.join(images)} into {', '.join(lacking)}")
        load = ["load", "docker-image", *images, "--name", self.name, "--nodes", ",".join(lacking)]
        process.run([programs.kind.path, *load], env=_kind_env(engine), timeout=600)
        written = " && ".join(f"echo {identity} >{mark}" for mark, identity in marks.items())
        for node in lacking:
            engine.docker("exec", node, "sh", "-c", written)

    def _check_size(self, engine: Engine, workers: int, cpus: float) -> None:
        there = _engine_cpus(engine)
        if not 0.05 <= cpus <= there or workers < 1:
            raise MissingError(f"A cluster has one worker or more, each with 0.05 to {there} CPUs on this machine.")

    def _size(self) -> float | None:
        try:
            return float((self.folder / "cpus").read_text())
        except (OSError, ValueError):
            return None

    def _remove(self, engine: Engine) -> None:
        if nodes := self.nodes(engine):
            engine.docker("rm", "--force", "--volumes", *nodes)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _bring_kubectl(self, engine: Engine, image: NodeImage) -> None:
        self.kubectl.parent.mkdir()
        if image.own and (programs.kubernetes.folder / "kubectl").exists():
            self.kubectl.symlink_to(programs.kubernetes.folder / "kubectl")
            return
        kept = CACHE / f"kubectl-{image.tag.replace('/', '-').replace(':', '-')[:60]}"
        if not kept.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            inside = "/usr/local/bin/kubernetes" if image.own else "/usr/bin/kubectl"
            partial = kept.with_suffix(".partial")
            engine.docker("cp", f"{self.name}-control-plane:{inside}", partial)
            partial.rename(kept)
        self.kubectl.symlink_to(kept)

    def _settle(self, engine: Engine, image: NodeImage, cpus: float) -> None:
        """Bring kind's cluster to our shape and wait until all of it is ready."""
        if image.own:
            self._cut_off_outer_dns()
        else:
            # kindnet asks for CPU on every node; the workers' is all for pods
            self.ask("-n", "kube-system", "set", "resources", "daemonset/kindnet", "--requests=cpu=0")
            self._rolled_out("daemonset/kindnet")
        spec = {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}
        patch = {"spec": {"replicas": 1, "template": {"spec": spec}}}
        self.ask("-n", "kube-system", "patch", "deployment", "coredns", "--patch", json.dumps(patch))
        self._resize(engine, cpus)
        wait = f"--timeout={_READY_S}s"
        self.ask("wait", "nodes", "--all", "--for=condition=Ready", wait, timeout=_READY_S + 10)
        self._rolled_out("deployment/coredns")
        self._rolled_out("daemonset/kube-proxy")

    def _rolled_out(self, workload: str) -> None:
        wait = f"--timeout={_READY_S}s"
        self.ask("-n", "kube-system", "rollout", "status", workload, wait, timeout=_READY_S + 10)

    def _cut_off_outer_dns(self) -> None:
        """Let CoreDNS answer for the cluster only: it would forward to itself, Docker's resolver being local."""
        found = json.loads(self.ask("-n", "kube-system", "get", "configmap", "coredns", "-o", "json"))
        corefile = found["data"]["Corefile"]
        corefile = re.sub(r"^\s*forward .*?\{.*?\}\n|^\s*loop\n", "", corefile, flags=re.MULTILINE | re.DOTALL)
        found["data"]["Corefile"] = corefile
        self.ask("replace", "-f", "-", stdin=json.dumps(found))

    def _resize(self, engine: Engine, cpus: float) -> None:
        """Give the workers their quota, and let their kubelets advertise no more than that."""
        workers = [node for node in self.nodes(engine) if "control-plane" not in node]
        reserve = _engine_cpus(engine) - cpus
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: _reserve(engine, node, reserve), workers))
        engine.docker("update", "--cpus", str(cpus), *workers)
        wanted = [f"{round(cpus * 1000)}m"] * len(workers)
        if not process.eventually(lambda: self._advertised() == wanted, within=_READY_S):
            raise CommandError(f"the workers advertise {self._advertised()} instead of {wanted}")
        (self.folder / "cpus").write_text(str(cpus))

    def _advertised(self) -> list[str]:
        """List the workers' allocatable CPU in thousandths."""
        jsonpath = "{range .items[*]}{.status.allocatable.cpu} {end}"
        selector = "!node-role.kubernetes.io/control-plane"
        found = self.ask("get", "nodes", f"--selector={selector}", "-o", f"jsonpath={jsonpath}").split()
        return [cpu if cpu.endswith("m") else f"{int(cpu) * 1000}m" for cpu in found]


def clusters(engine: Engine) -> list[str]:
    """Names of the clusters on that engine."""
    names = engine.docker("ps", "--all", "--filter", f"label={LABEL}", "--format", f'{{{{.Label "{LABEL}"}}}}')
    return sorted(set(names.split()))


def _kind_env(engine: Engine) -> dict[str, str]:
    return {**engine.env, "KIND_EXPERIMENTAL_PROVIDER": "docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK}


def _kind_config(image: NodeImage, workers: int, *, cgroup_v1: bool) -> dict[str, object]:
    kubelet: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
    }
    if cgroup_v1:
        kubelet["failCgroupV1"] = False
    networking: dict[str, object] = {"ipFamily": "ipv4", "podSubnet": "10.244.0.0/16"}
    if image.own:
        kubelet["cgroupRoot"] = "/"
        networking |= {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    return {
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "kind": "Cluster",
        "networking": networking,
        "kubeadmConfigPatches": [json.dumps(kubelet)],
        "nodes": [{"role": "control-plane"}, *({"role": "worker"} for _ in range(workers))],
    }


def _engine_cpus(engine: Engine) -> int:
    return int(engine.docker("info", "--format", "{{.NCPU}}"))


def _reserve(engine: Engine, node: str, cpus: float) -> None:
    """Let the node's kubelet advertise so many CPUs less than the machine has."""
    config = "/var/lib/kubelet/config.yaml"
    line = f"systemReserved: {json.dumps({'cpu': f'{round(cpus * 1000)}m'})}"
    script = f"sed -i '/^systemReserved:/d' {config}; echo '{line}' >>{config}; systemctl restart kubelet"
    engine.docker("exec", node, "sh", "-ec", script)


def _identity(engine: Engine, image: str) -> str:
    try:
        return engine.docker("image", "inspect", "--format", "{{.Id}}", image).strip()
    except CommandError:
        raise MissingError(f"The engine has no image {image}: build it first, with hack/cluster env.") from None


def _runs(engine: Engine, node: str, script: str) -> bool:
    return process.succeeds(["docker", "exec", node, "sh", "-c", f"{script} 2>/dev/null"], env=engine.env)
