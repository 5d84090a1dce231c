"""The machines of the kind cluster's nodes: containers of a Docker engine, the CPU of which can be changed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from punctual.errors import ClusterError

PATIENCE = 40
"""Times that a refused change of a node's CPU is tried, each after half a second."""


def docker(*words: str) -> str:
    """Run a docker command; return what it prints."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"docker {' '.join(words[:3])}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def cores(node: str) -> float:
    """Return the CPU that a node has."""
    return float(docker("inspect", "-f", "{{.HostConfig.NanoCpus}}", node)) / 1e9


def give_cpus(node: str, much: float) -> None:
    """Give a node more or less CPU, in cores, than its kubelet advertises.

    cgroup v1 refuses less than a pod on it has as its limit. The agent lowers such a limit soon, so try again.
    """
    for _ in range(PATIENCE):
        try:
            docker("update", "--cpus", f"{much:g}", node)
        except ClusterError as error:
            refused = error
            time.sleep(0.5)
        else:
            return
    raise refused


def give_memory(node: str, much: int) -> None:
    """Give a node so many MiB of memory, and no swap. Its kubelet advertises what the machine has."""
    docker("update", "--memory", f"{much}m", "--memory-swap", f"{much}m", node)


@contextmanager
def halved(node: str, whole: float) -> Iterator[None]:
    """Let a node have half of the CPU that it has else, ``whole`` cores."""
    give_cpus(node, whole / 2)
    try:
        yield
    finally:
        give_cpus(node, whole)
