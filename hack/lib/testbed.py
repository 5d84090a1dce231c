"""A cluster with Punctual on it, for programs that try it out: how it comes to be, and how they leave it.

It is the project's kind cluster, or that of the current context (PUNCTUAL_CLUSTER=kubeconfig). Commands run as the user
of KUBECONFIG, which `bring_up` sets; one that takes long shows its own progress. Needs the packages of .venv.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from lib.machine import docker
from punctual.cli.kubectl import Kubectl
from punctual.errors import PunctualError
from punctual.labels import POOL_LABEL

Json = dict[str, Any]
T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "punctual"
"""The namespace that hack/install-chart installs into."""
POOL = "main"
"""The pool of the demo, the benchmarks and the tests."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
ALONE = "PUNCTUAL_CLUSTER_IS_OURS"
"""Set in the environment of what runs within `alone`."""
NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}


# how it comes to be


@contextmanager
def alone() -> Iterator[None]:
    """Wait for the right to the local cluster: two programs would take each other's nodes, processors and leaders.

    A program that another one has started shares its right.
    """
    if ALONE in os.environ:
        yield
        return
    with (Path(tempfile.gettempdir()) / "punctual-cluster.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another program that is at work on the cluster", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        os.environ[ALONE] = "yes"
        try:
            yield
        finally:
            del os.environ[ALONE]


def own_cluster() -> bool:
    """Whether the cluster is ours to make; raises for a word that means nothing."""
    chosen = os.environ.get("PUNCTUAL_CLUSTER", "kind")
    if chosen not in {"kind", "kubeconfig"}:
        raise PunctualError(f"PUNCTUAL_CLUSTER={chosen}: kind (default) or kubeconfig (the current context) is meant")
    return chosen == "kind"


def bring_up() -> None:
    """Have the kind cluster up, and work with it from here on."""
    command("hack/cluster", "up")
    script = 'eval "$(hack/cluster env)" && env -0'
    told = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    os.environ.update(pair.partition("=")[::2] for pair in told.split("\0") if "=" in pair)


def own_image() -> str:
    """Build our image, bring it to the nodes, return its name: another for other contents, so that pods are renewed.

    The nodes also get it by the name that the examples have.
    """
    built = command("hack/image")
    identity = docker("image", "inspect", "--format", "{{.Id}}", built)
    image = f"{built.partition(':')[0]}:{identity.removeprefix('sha256:')[:12]}"
    docker("tag", built, image)
    command("hack/cluster", "load-image", image, built)
    return image


def example_image(name: str, *, own: str = "", tag: str = "dev") -> str:
    """Build the image of an example, bring it to the nodes, return its name. ``own``: on top of this image of ours."""
    image, base = f"punctual-{name}:{tag}", own or command("hack/cluster", "base-image")
    print(f"  Image: {image}, on top of {base}", file=sys.stderr)
    folder = str(ROOT / "examples" / name)
    docker("build", "--quiet", "--network=host", "-t", image, "--build-arg", f"BASE={base}", folder)
    command("hack/cluster", "load-image", image)
    return image


def given_image() -> str:
    """Return the image that was pushed where the cluster finds it."""
    if image := os.environ.get("PUNCTUAL_IMAGE"):
        return image
    raise PunctualError(
        "PUNCTUAL_IMAGE is not set: build the image (docker build -t REGISTRY/punctual:dev .), push it where your "
        "cluster can pull it, and set PUNCTUAL_IMAGE=REGISTRY/punctual:dev"
    )


def chart(image: str, **more: str) -> list[str]:
    """Return the command that installs the chart, or upgrades it. ``more``: values, with ``__`` for a dot."""
    repository, _, tag = image.rpartition(":")
    if not repository or "/" in tag:
        repository, tag = image, "latest"
    values = {"image.repository": repository, "image.tag": json.dumps(tag), "page.enabled": "true"}
    values |= {name.replace("__", "."): value for name, value in more.items()}
    settings = (word for name, value in values.items() for word in ("--set", f"{name}={value}"))
    return ["hack/install-chart", "--namespace", SYSTEM, *settings]


def install(image: str, **more: str) -> None:
    """Install the chart as `chart` says, and wait until it is ready."""
    print(f"  {command(*chart(image, **more))}", file=sys.stderr)


def command(program: str, *words: str) -> str:
    """Run a program of the checkout; what it says goes to the terminal. Returns the last line it prints."""
    done = subprocess.run([ROOT / program, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise PunctualError(f"{program} ended with status {done.returncode}; what it said stands above")
    return (done.stdout.strip().splitlines() or [""])[-1].strip()


# nodes and pools


def label_nodes(kubectl: Kubectl, *, own: bool) -> list[str]:
    """Return the nodes of `POOL`: our workers, which get its label, or those that have it."""
    if own:
        kubectl.run("label", "node", "-l", f"!{CONTROL_PLANE}", f"{POOL_LABEL}={POOL}", "--overwrite")
    if not (nodes := _names(kubectl, "node", "-l", f"{POOL_LABEL}={POOL}")):
        raise PunctualError(
            f"no node has the label {POOL_LABEL}={POOL}: choose two small nodes and run "
            f"kubectl label node NODE {POOL_LABEL}={POOL}"
        )
    return nodes


def pool(name: str, **spec: Any) -> Json:
    """Return a pool of the nodes with its label, and of small processors, so that a small machine has a dozen."""
    standard = {
        "nodeSelector": {"matchLabels": {POOL_LABEL: name}},
        "processor": {"cpu": "100m", "memory": "64Mi"},
        "margin": "2s",
    }
    meta = {"name": name}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "Pool", "metadata": meta, "spec": {**standard, **spec}}


def ready_pool(kubectl: Kubectl, name: str, *, nodes: Collection[str] = (), within: float = 60) -> Json:
    """Wait until a pool is ready with all these nodes, and none of its processors is in use; return its status."""
    status: Json = {}

    def whole() -> bool:
        nonlocal status
        there = kubectl.get("pool", name)
        status = there.get("status") or {}
        current = status.get("observedGeneration") == there["metadata"]["generation"]
        free = status.get("free") == status.get("processors")
        everywhere = {n["name"] for n in status.get("nodes") or () if n["processors"]} >= set(nodes)
        return current and condition(status, "Ready").get("status") == "True" and free and everywhere

    def what() -> str:
        left_out = [f"{n['name']}: {n['reason']}" for n in status.get("nodes") or () if n.get("reason")]
        said = condition(status, "Ready").get("message") or "the operator has not said anything"
        used = f"; {status['processors'] - status['free']} processors are in use" if status.get("processors") else ""
        return f"Pool {name} to be ready: {said}{used} {', '.join(left_out)}".strip()

    until(whole, within=within, what=what)
    return status


# objects


def create(kubectl: Kubectl, body: Json) -> None:
    """Create an object."""
    kubectl.run("create", "-f", "-", stdin=json.dumps(body))


def pod(
    name: str, namespace: str, image: str, command: Sequence[str], *, requests: Json | None = None, **spec: Any
) -> Json:
    """Return a pod of one container, which may be ended at once."""
    main: Json = {"name": "main", "image": image, "command": [*command], "resources": {"requests": requests or {}}}
    spec = {"containers": [main], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def environment(variables: Mapping[str, str]) -> list[Json]:
    """Return a container's environment."""
    return [{"name": key, "value": value} for key, value in variables.items()]


def condition(status: Json, kind: str) -> Json:
    """Return a condition of a status, {} where it is not there."""
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


def until(found: Callable[[], T | None], *, within: float, what: str | Callable[[], str]) -> T:
    """Wait until something is there; return it. Raises PunctualError after ``within`` seconds."""
    end = time.monotonic() + within
    while not (seen := found()):
        if time.monotonic() > end:
            raise PunctualError(f"waited {within:.0f} s for {what if isinstance(what, str) else what()}")
        time.sleep(0.5)
    return seen


def termination(kubectl: Kubectl, namespace: str, pod: str, *, within: float) -> str:
    """Wait for a pod's end and return its termination message; raises where it failed."""

    def over() -> Json | None:
        status = kubectl.get("pod", pod, "-n", namespace)["status"]
        states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
        waiting: Json = next((s["waiting"] for s in states if "waiting" in s), {})
        if waiting.get("reason") in NO_IMAGE:
            raise PunctualError(f"pod {pod} has no image: {waiting.get('message', waiting['reason'])}")
        return next((s["terminated"] for s in states if "terminated" in s), None)

    ended = until(over, within=within, what=f"pod {pod} to end")
    if ended["exitCode"]:
        said = ended.get("message") or kubectl.run("logs", pod, "-n", namespace)
        raise PunctualError(f"pod {pod} ended with status {ended['exitCode']}: {said}".strip())
    return str(ended.get("message", ""))


# pods on their nodes


def is_ready(pod: Json) -> bool:
    """Whether all containers of a pod are ready."""
    return all(c["ready"] for c in pod["status"].get("containerStatuses") or [{"ready": False}])


def container(pod: Json) -> str:
    """Return the runtime's identity of a pod's first container. Raises PunctualError where there is none."""
    name = pod["spec"]["containers"][0]["name"]
    statuses = pod["status"].get("containerStatuses") or ()
    identity = next((s.get("containerID", "") for s in statuses if s["name"] == name), "").rpartition("/")[2]
    if not identity:  # an empty one would stand for every process of the node
        raise PunctualError(f"{pod['metadata']['name']} has no container")
    return str(identity)


def signalling(container_id: str, signal: str) -> str:
    """Return the shell script that sends a signal to all processes of a container, on its node."""
    return f"kill -{signal} $(cat $(find /sys/fs/cgroup -path '*{container_id}*' -name cgroup.procs | head -n 1))"


def caps(pod: Json) -> str:
    """Return the shell script that prints "folder quota period", in microseconds, of a pod's cgroups, on its node."""
    uid = pod["metadata"]["uid"]
    find = f"find /sys/fs/cgroup \\( -path '*{uid}*' -o -path '*{uid.replace('-', '_')}*' \\) "
    return (
        f"for f in $({find} -name cpu.cfs_quota_us); do echo ${{f%/*}} $(cat $f ${{f%quota_us}}period_us); done; "
        f"for f in $({find} -name cpu.max); do echo ${{f%/*}} $(cat $f); done"
    )


# how they leave it


def remove(kubectl: Kubectl, *, namespaces: str = "", pools: str = "", wait: bool = True) -> None:
    """Remove the namespaces and pools with names that match these patterns as a whole, and see them gone."""
    installed = "pools" in kubectl.run("api-resources", "--api-group=punctual.dev", "-o", "name")
    for kind, pattern in (("namespace", namespaces), *([("pool", pools)] if installed else [])):
        if left := [name for name in _names(kubectl, kind) if re.fullmatch(pattern, name)]:
            kubectl.run("delete", kind, *left, "--ignore-not-found", "--timeout=120s" if wait else "--wait=false")


class Borrowed:
    """The workers of a cluster for a while, without what an earlier run left in namespaces and pools of ours.

    At the end, also after Ctrl-C, ours are removed and each worker has the pool's label that it had. ``namespaces`` and
    ``pools`` are patterns as in `remove`.
    """

    def __init__(self, kubectl: Kubectl, *, namespaces: str, pools: str) -> None:
        self.labels: dict[str, str | None] = {}
        """Of each worker, as it was."""
        self._kubectl, self._namespaces, self._pools = kubectl, namespaces, pools

    def __enter__(self) -> Self:
        """Clear what was left, and note the labels."""
        remove(self._kubectl, namespaces=self._namespaces, pools=self._pools)
        workers = self._kubectl.get("nodes", "-l", f"!{CONTROL_PLANE}")["items"]
        self.labels = {w["metadata"]["name"]: w["metadata"]["labels"].get(POOL_LABEL) for w in workers}
        return self

    def __exit__(self, *_: object) -> None:
        """Give everything back."""
        self.give_back()

    def give_back(self) -> None:
        """Remove what is ours, and label the workers as they were; harmless where that is done."""
        try:
            remove(self._kubectl, namespaces=self._namespaces, pools=self._pools)
        finally:
            for node, label in self.labels.items():
                word = f"{POOL_LABEL}-" if label is None else f"{POOL_LABEL}={label}"
                self._kubectl.run("label", "node", node, word, "--overwrite")


def _names(kubectl: Kubectl, kind: str, *words: str) -> list[str]:
    return [found["metadata"]["name"] for found in kubectl.get(kind, *words)["items"]]
