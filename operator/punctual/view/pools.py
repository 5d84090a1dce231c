"""Pools at a moment, read from the API server's objects. This module does no I/O and draws nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """A Pool, as its status describes it."""

    name: str
    processors: int
    free: int
    queue: int
    """Jobs that wait for an answer or their first chunk."""
    nodes: int
    """Nodes with processors."""
    ready: bool | None
    """None: no operator has processed it yet."""
    reason: str
    """That of its condition Ready."""
    message: str
    bound: float | None
    """Utilization bound of a pool with a miss ratio."""
    hold: str
    cpu: str
    """CPU of a processor."""
    scarcest: str
    """Resource of which its nodes have the fewest processors; empty: not known."""

    @property
    def used(self) -> int:
        """Number of occupied processors."""
        return max(0, self.processors - self.free)


def pool_of(body: Mapping[str, Any]) -> PoolSummary:
    """Read a Pool."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    ready: Mapping[str, str] = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    return PoolSummary(
        name=body["metadata"]["name"],
        processors=status.get("processors") or 0,
        free=status.get("free") or 0,
        queue=status.get("queue") or 0,
        nodes=sum(1 for node in status.get("nodes") or () if node.get("processors")),
        ready=ready.get("status") == "True" if ready else None,
        reason=ready.get("reason", ""),
        message=ready.get("message", ""),
        bound=(status.get("missRatio") or {}).get("bound"),
        hold=spec.get("hold") or "None",
        cpu=str((spec.get("processor") or {}).get("cpu") or ""),
        scarcest=status.get("scarcest") or "",
    )
