"""The cluster of the demo: the project's kind cluster, or that of the current context (PUNCTUAL_CLUSTER=kubeconfig).

Each function runs a command that shows its own progress while it takes long, and returns its useful output.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lib import prometheus

from demo_lib import objects
from demo_lib.objects import NAMESPACE, NODE_LABEL, POOL, Json
from punctual.cli.kubectl import Kubectl
from punctual.errors import ClusterError, PunctualError

HACK = Path(__file__).resolve().parent.parent
ROOT = HACK.parent
SYSTEM = "punctual"
"""The namespace that hack/install-chart installs into."""


def own_cluster() -> bool:
    """Whether the cluster is ours to make; raises for a word that means nothing."""
    chosen = os.environ.get("PUNCTUAL_CLUSTER", "kind")
    if chosen not in {"kind", "kubeconfig"}:
        raise PunctualError(f"PUNCTUAL_CLUSTER={chosen}: kind (default) or kubeconfig (the current context) is meant")
    return chosen == "kind"


def bring_up() -> None:
    """Have the kind cluster up, and work with it from here on."""
    command("hack/cluster", "up", quiet=True)
    script = 'eval "$(hack/cluster env)" && env -0'
    told = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    os.environ.update(pair.partition("=")[::2] for pair in told.split("\0") if "=" in pair)


def own_image() -> str:
    """Build our image, bring it to the nodes, return its name: another for other contents, so that pods are renewed.

    The nodes also get it by the name that the examples have.
    """
    built = command("hack/image")
    made = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", built], capture_output=True, text=True, check=True
    ).stdout.strip()
    image = f"{built.partition(':')[0]}:{made.removeprefix('sha256:')[:12]}"
    subprocess.run(["docker", "tag", built, image], check=True)
    command("hack/cluster", "load-image", image, built)
    return image


def given_image() -> str:
    """Return the image that was pushed where the cluster finds it."""
    if image := os.environ.get("PUNCTUAL_IMAGE"):
        return image
    raise PunctualError(
        "PUNCTUAL_IMAGE is not set: build the image (docker build -t REGISTRY/punctual:dev .), push it where your "
        "cluster can pull it, and set PUNCTUAL_IMAGE=REGISTRY/punctual:dev"
    )


def install(image: str, **more: str) -> None:
    """Install the chart, or upgrade it, and wait until it is ready. ``more``: values, with ``__`` for a dot."""
    repository, _, tag = image.rpartition(":")
    if not repository or "/" in tag:
        repository, tag = image, "latest"
    values = {"image.repository": repository, "image.tag": json.dumps(tag), "page.enabled": "true"}
    values |= {name.replace("__", "."): value for name, value in more.items()}
    command("hack/install-chart", *(word for name, value in values.items() for word in ("--set", f"{name}={value}")))


@contextlib.contextmanager
def scraping(kubectl: Kubectl) -> Iterator[str]:
    """Scrape operator and agents with a Prometheus of this machine; yield its address."""
    ports = {"operator": 8080, "agent": 9464}
    pods = kubectl.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=punctual")["items"]
    found = {pod["metadata"]["name"]: ports[pod["metadata"]["labels"]["app.kubernetes.io/component"]] for pod in pods}
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")
    with (
        tempfile.TemporaryDirectory() as folder,
        prometheus.Prometheus(
            Path(folder), kubeconfig=kubeconfig, namespace=SYSTEM, pods=found, scrape=5.0, port=9090
        ) as running,
    ):
        yield running.address


def command(*words: str, quiet: bool = False) -> str:
    """Run a program of the checkout; what it says goes to the terminal. Returns the last line it prints."""
    program = [str(ROOT / words[0]), *words[1:]]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise PunctualError(f"{' '.join(words[:2])} ended with status {done.returncode}; what it said stands above")
    lines = done.stdout.strip().splitlines()
    if lines and not quiet and words[0] == "hack/install-chart":
        print(f"  {lines[-1]}", file=sys.stderr)
    return lines[-1].strip() if lines else ""


def label_nodes(kubectl: Kubectl, *, own: bool) -> list[str]:
    """Return the nodes of the demo's pool: our workers, or those with the pool's label."""
    if own:
        kubectl.run(
            "label", "node", "-l", "!node-role.kubernetes.io/control-plane", f"{NODE_LABEL}={POOL}", "--overwrite"
        )
    nodes = kubectl.get("nodes", "-l", f"{NODE_LABEL}={POOL}")["items"]
    if not nodes:
        raise PunctualError(
            f"no node has the label {NODE_LABEL}={POOL}: choose a small node or two for the demo and run "
            f"kubectl label node NODE {NODE_LABEL}={POOL}"
        )
    return [node["metadata"]["name"] for node in nodes]


def clean(kubectl: Kubectl) -> None:
    """Remove what an earlier demo left, and see it gone."""
    kubectl.run("apply", "-f", "-", stdin=json.dumps(objects.namespace()))
    if "divisiblejobs" in kubectl.run("api-resources", "--api-group=punctual.dev", "-o", "name"):
        kubectl.run("delete", "divisiblejobs", "--all", "-n", NAMESPACE, "--timeout=60s")
        # with it goes what it has learned of start-ups, perhaps on a day when all was slow; a pool that has others'
        # jobs, or no operator that lets it go, stays
        with contextlib.suppress(ClusterError):
            kubectl.run("delete", "pool", POOL, "--ignore-not-found", "--timeout=10s")
    kubectl.run("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=1", "--timeout=60s")


def apply(kubectl: Kubectl, body: Json) -> None:
    """Create an object, or change it into what is said."""
    kubectl.run(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=punctual-demo",
        "-f",
        "-",
        stdin=json.dumps(body),
    )


def create(kubectl: Kubectl, body: Json) -> None:
    """Create an object."""
    kubectl.run("create", "-f", "-", stdin=json.dumps(body))


def pool_is_ours(kubectl: Kubectl) -> None:
    """Refuse to change a pool of the demo's name that the demo has not made."""
    try:
        labels = kubectl.get("pool", POOL)["metadata"].get("labels") or {}
    except ClusterError:
        return
    if not objects.MARK.items() <= labels.items():
        raise PunctualError(
            f"the cluster has a Pool {POOL} already, which is not the demo's: delete it, or label it "
            "punctual.dev/demo=true if the demo may have it"
        )


def ready_pool(kubectl: Kubectl, *, within: float = 60) -> Json:
    """Wait until the pool is ready and none of its processors is in use; return its status."""
    end = time.monotonic() + within
    while True:
        pool = kubectl.get("pool", POOL)
        status = pool.get("status") or {}
        ready: Json = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
        current = status.get("observedGeneration") == pool["metadata"]["generation"]
        if current and ready.get("status") == "True" and status.get("free") == status.get("processors"):
            return dict(status)
        if time.monotonic() > end:
            left_out = [f"{n['name']}: {n['reason']}" for n in status.get("nodes") or () if n.get("reason")]
            said = ready.get("message") or "the operator has not said anything"
            used = (
                f"; {status['processors'] - status['free']} processors are in use" if status.get("processors") else ""
            )
            raise PunctualError(
                f"Pool {POOL} is not ready after {within:.0f} s: {said}{used} {', '.join(left_out)}".strip()
            )
        time.sleep(0.5)


def termination(kubectl: Kubectl, pod: str, *, within: float) -> str:
    """Wait for a pod's end and return its termination message; raises where it failed."""
    end = time.monotonic() + within
    while True:
        status = kubectl.get("pod", pod, "-n", NAMESPACE)["status"]
        states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
        over = next((s["terminated"] for s in states if "terminated" in s), None)
        if over is not None:
            if over["exitCode"]:
                raise PunctualError(
                    f"pod {pod} ended with status {over['exitCode']}: {over.get('message', '')}".strip()
                )
            return str(over.get("message", ""))
        waiting: Json = next((s["waiting"] for s in states if "waiting" in s), {})
        if waiting.get("reason") in {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}:
            raise PunctualError(f"pod {pod} has no image: {waiting.get('message', waiting['reason'])}")
        if time.monotonic() > end:
            raise PunctualError(f"pod {pod} has not ended after {within:.0f} s (phase {status.get('phase')})")
        time.sleep(0.25)
