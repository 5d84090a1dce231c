"""``punctual page``: forwards a local port to the page of the leading operator, and follows it to the next leader."""

import re
import signal
import subprocess
import time
import webbrowser
from typing import NamedTuple

from punctual.cli.kubectl import Kubectl
from punctual.errors import ClusterError, PunctualError
from punctual.labels import LEADER_LABEL

LEADER = f"app.kubernetes.io/name=punctual,app.kubernetes.io/component=operator,{LEADER_LABEL}=true"
PORT = 8090
"""The page's loopback port in the operator's pod."""
LOOK = 3.0
"""Seconds between two looks at which pod leads."""


class Leader(NamedTuple):
    """The pod of the operator that leads."""

    namespace: str
    name: str
    serves: bool
    """Whether it serves a page."""


def leader(kubectl: Kubectl) -> Leader | None:
    """Return the pod that leads. None: there is none at the moment."""
    for pod in kubectl.get("pods", "--all-namespaces", "-l", LEADER)["items"]:
        ports = [port.get("name") for c in pod["spec"]["containers"] for port in c.get("ports") or ()]
        return Leader(pod["metadata"]["namespace"], pod["metadata"]["name"], "page" in ports)
    return None


def show(kubectl: Kubectl, *, port: int, browser: bool) -> None:
    """Forward the page until interrupted or terminated. PunctualError: there is no operator, or it serves no page."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else kubectl would be left behind
    pod = leader(kubectl)
    if pod is None:
        raise PunctualError("no operator leads in this cluster: kubectl get pods -A -l app.kubernetes.io/name=punctual")
    opened = False
    try:
        while True:
            if not pod.serves:
                raise PunctualError("the operator serves no page: install the chart with --set page.enabled=true")
            with kubectl.forward(pod.namespace, pod.name, port, PORT) as forward:
                try:
                    port = _local(forward)
                    if not opened:
                        address = f"http://127.0.0.1:{port}"
                        print(f"Page of {pod.namespace}/{pod.name}: {address} (Ctrl-C ends it)", flush=True)
                        opened = not browser or webbrowser.open(address) or True
                    pod = _next(kubectl, pod, forward)
                finally:
                    forward.terminate()
    except KeyboardInterrupt:
        pass


def _local(forward: "subprocess.Popen[str]") -> int:
    assert forward.stdout is not None
    line = forward.stdout.readline()
    if (found := re.search(r":(\d+) ->", line)) is None:
        _, error = forward.communicate()
        raise ClusterError(f"kubectl port-forward: {(line + error).strip()}")
    return int(found[1])


def _next(kubectl: Kubectl, pod: Leader, forward: "subprocess.Popen[str]") -> Leader:
    """Wait until another pod leads, or the connection ends; return the pod that leads then."""
    while True:
        time.sleep(LOOK)
        try:
            found = leader(kubectl)
        except ClusterError:
            found = None  # the API server does not answer: the connection may still stand
        if found and (found != pod or forward.poll() is not None):
            return found
