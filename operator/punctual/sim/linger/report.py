"""The output of `punctual simulate linger`: what guests got, and what it cost the hosts."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from punctual.linger.policy import Policy

STATES = ("queued", "running", "lingering", "paused", "moving")


@dataclass(slots=True)
class Result:
    """All of a run, counted while it runs."""

    policy: Policy
    seconds: float
    """Length of the run."""
    nodes: int
    idle: float
    """Share of idle time."""
    work: float = 0.0
    """CPU seconds that guests got."""
    offered: float = 0.0
    """CPU seconds that guests would have got if one had run on each node all the time."""
    used: float = 0.0
    """CPU seconds that hosts used."""
    delay: float = 0.0
    """Seconds that guests delayed hosts."""
    lost: float = 0.0
    """Seconds for which guests that moved did nothing."""
    migrations: int = 0
    evictions: int = 0
    """Guests that went back to the queue."""
    parts: int = 0
    """Parts of divisible guests that free nodes took."""
    completions: list[float] = field(default_factory=list)
    """From submission to the end, s; of guests that were done."""
    executions: list[float] = field(default_factory=list)
    """From the first start to the end, s."""
    states: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
    """Guest-seconds by state."""

    @property
    def throughput(self) -> float:
        """CPU seconds of guests in a second: so many idle machines are the cluster worth."""
        return self.work / self.seconds

    @property
    def efficiency(self) -> float:
        """What guests got of what hosts leave them, a fraction."""
        return self.work / self.offered if self.offered else 0.0

    @property
    def variation(self) -> float | None:
        """Standard deviation of the executions over their mean; None: no guest was done."""
        return float(np.std(self.executions) / np.mean(self.executions)) if self.executions else None

    def document(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        done, node_seconds = self.completions, self.seconds * self.nodes
        return {
            "policy": self.policy,
            "host_slowdown": self.delay / node_seconds,
            "host_delay_ratio": self.delay / self.used if self.used else 0.0,
            "guest_throughput": self.throughput,
            "guest_mean_completion": float(np.mean(done)) if done else None,
            "guest_p95_completion": float(np.percentile(done, 95)) if done else None,
            "migrations": self.migrations,
            "evictions": self.evictions,
            "lost_seconds": self.lost,
            "idle_share": self.idle,
            "host_use": self.used / node_seconds,
            "guests_done": len(done),
            "guest_variation": self.variation,
            "states": dict(self.states),
            "guest_efficiency": self.efficiency,
            "parts": self.parts,
        }
