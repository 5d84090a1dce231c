"""A node of the kind cluster that suddenly has half its CPU, and what its agent makes of that."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from punctual.errors import PunctualError
from punctual.view.jobs import Board

PATIENCE = 40
"""Half seconds."""
LIMITS = (
    "cd /sys/fs/cgroup; for f in $(find . -path '*pod*' -name cpu.cfs_quota_us); do "
    'echo "$f $(cat $f) $(cat ${f%quota_us}period_us)"; done; '
    "for f in $(find . -path '*pod*' -name cpu.max); do echo \"$f $(cat $f)\"; done"
)


@contextmanager
def halved(node: str) -> Iterator[None]:
    """Give a node half its CPU, and all of it at the end."""
    cores = int(_docker("inspect", "-f", "{{.HostConfig.NanoCpus}}", node)) / 1e9
    try:
        give(node, cores / 2)
        yield
    finally:
        give(node, cores)


def give(node: str, cores: float) -> None:
    """Give a node so much CPU.

    cgroup v1 refuses less than a pod on it has as its limit. The agent lowers such a limit soon, so try again.
    """
    for _ in range(PATIENCE):
        try:
            _docker("update", "--cpus", f"{cores:g}", node)
        except PunctualError as error:
            refused = error
            time.sleep(0.5)
        else:
            return
    raise refused


def limits(board: Board, node: str) -> dict[str, list[float]]:
    """Return the CPU limits in force of the chunks on a node, in cores, least first, by job."""
    least: dict[str, float] = {}
    for line in _docker("exec", node, "sh", "-c", LIMITS).splitlines():
        folder, quota, period = line.split()
        if quota in {"-1", "max"}:
            continue
        for pod in board.pods.values():
            if pod.uid in folder or pod.uid.replace("-", "_") in folder:
                least[pod.uid] = min(least.get(pod.uid, 1e9), int(quota) / int(period))
    found: dict[str, list[float]] = {}
    for uid, cores in sorted(least.items(), key=lambda item: item[1]):
        pod = board.pods[uid]
        job = board.jobs.get(pod.job)
        if job is not None and pod.phase == "Running":
            found.setdefault(job.name, []).append(cores)
    return found


def told(found: dict[str, list[float]]) -> str:
    """Say limits in a line: ``patient 8m 31m 100m; urgent 100m``."""
    return "; ".join(f"{job} {' '.join(f'{1000 * one:.0f}m' for one in caps)}" for job, caps in sorted(found.items()))


def _docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PunctualError(f"docker {' '.join(words[:2])}: {done.stderr.strip()}")
    return done.stdout
