"""What the demo does on its cluster beside what all programs do there: an earlier demo's objects, and a Prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lib import prometheus
from lib.testbed import POOL, SYSTEM, Json

from demo_lib import objects
from demo_lib.objects import NAMESPACE
from punctual.cli.kubectl import Kubectl
from punctual.errors import ClusterError, PunctualError


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
    how = ("--server-side", "--force-conflicts", "--field-manager=punctual-demo")
    kubectl.run("apply", *how, "-f", "-", stdin=json.dumps(body))


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
