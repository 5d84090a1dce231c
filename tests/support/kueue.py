"""Kueue beside a bare API server: its published CRDs, and its own controller as a process.

Its webhooks are left out. They complete and check what is created; objects of tests are complete.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request

from lib import programs
from lib.steps import Steps
from ports import kept_port

from punctual.kube.agents.ca import Lifetimes, make_authority, make_serving

GROUP = "kueue.x-k8s.io/v1beta2"
CRDS = "config/components/crd/bases"
# it reads a certificate for its metrics from here and nowhere else
CERTIFICATES = "/etc/kueue/metrics/certs"
PRIVATE = f'mount -t tmpfs none /etc && mkdir -p {CERTIFICATES} && cp "$0"/tls.* {CERTIFICATES} && exec "$@"'
"""Makes an /etc of its own, so that nothing is written into the machine's."""


def teach(kubectl):
    """Let the server have Kueue's kinds; kubectl is the fixture."""
    folder = programs.module(f"sigs.k8s.io/kueue@{programs.KUEUE}") / CRDS
    kubectl("apply", "--server-side", "-f", str(folder), check=True)
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", check=True)


@contextlib.asynccontextmanager
async def running(kubeconfig, folder):
    """Run its controller. ``folder``: for its configuration and log."""
    program = programs.kueue
    await asyncio.to_thread(program.build, Steps("Kueue", {program.step: program.seconds}))
    now, lifetimes = time.time(), Lifetimes()
    made = make_serving(make_authority(now, lifetimes=lifetimes), ["localhost"], now, lifetimes=lifetimes)
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)
    with kept_port() as health, kept_port() as webhooks, (folder / "kueue.log").open("wb") as log:
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["batch/job"]},
        }
        (folder / "kueue.yaml").write_text(json.dumps(config))
        words = [program.path, f"--config={folder}/kueue.yaml", "--feature-gates=VisibilityOnDemand=false"]
        own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        process = subprocess.Popen(  # noqa: ASYNC220  it begins at once
            [*own_mounts, "sh", "-ec", PRIVATE, folder, *words],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
        try:
            async with asyncio.timeout(60):
                while not await asyncio.to_thread(_ready, health):
                    assert process.poll() is None, (folder / "kueue.log").read_text()
                    await asyncio.sleep(0.05)
            yield
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


def _ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def flavor(name, labels):
    """Return a ResourceFlavor of the nodes with these labels."""
    return _object("ResourceFlavor", name, nodeLabels=labels)


def cluster_queue(name, of, **quotas):
    """Return a ClusterQueue of that flavor."""
    resources = [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()]
    group = {"coveredResources": [*quotas], "flavors": [{"name": of, "resources": resources}]}
    return _object("ClusterQueue", name, namespaceSelector={}, resourceGroups=[group])


def local_queue(name, namespace, of):
    """Return a LocalQueue into that ClusterQueue."""
    made = _object("LocalQueue", name, clusterQueue=of)
    made["metadata"]["namespace"] = namespace
    return made


def _object(kind, name, **spec):
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}
