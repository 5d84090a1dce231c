"""The CPU limits that the agent of a node has set for its chunks."""

from __future__ import annotations

from lib.machine import docker

from punctual.view.jobs import Board

LIMITS = (
    "cd /sys/fs/cgroup; for f in $(find . -path '*pod*' -name cpu.cfs_quota_us); do "
    'echo "$f $(cat $f) $(cat ${f%quota_us}period_us)"; done; '
    "for f in $(find . -path '*pod*' -name cpu.max); do echo \"$f $(cat $f)\"; done"
)
FLOOR = 0.05
"""CPU limit at which a chunk rests, cores: its floor is below."""


def resting(board: Board, node: str) -> str:
    """Return the CPU limits of the chunks on a node, if all are held down; else nothing."""
    least = _least(board, node)
    return _told(board, least) if least and max(least.values()) < FLOOR else ""


def limits(board: Board, node: str) -> str:
    """Return the CPU limits of the chunks on a node by job, least first: ``patient 8m 31m 100m; urgent 100m``."""
    return _told(board, _least(board, node))


def _told(board: Board, least: dict[str, float]) -> str:
    found: dict[str, list[str]] = {}
    for uid, cores in sorted(least.items(), key=lambda item: item[1]):
        if job := board.jobs.get(board.pods[uid].job):
            found.setdefault(job.name, []).append(f"{1000 * cores:.0f}m")
    return "; ".join(f"{job} {' '.join(caps)}" for job, caps in sorted(found.items()))


def _least(board: Board, node: str) -> dict[str, float]:
    """Return the lowest CPU limit of each chunk on a node, by pod (uid), in cores."""
    least: dict[str, float] = {}
    for line in docker("exec", node, "sh", "-c", LIMITS).splitlines():
        folder, quota, period = (*line.split(), "", "")[:3]
        if not period or quota in {"-1", "max"}:  # a container that ended meanwhile has no quota
            continue
        for pod in board.pods.values():
            if pod.phase == "Running" and (pod.uid in folder or pod.uid.replace("-", "_") in folder):
                least[pod.uid] = min(least.get(pod.uid, 1e9), int(quota) / int(period))
    return least
