"""Users' own pods that iterate, and the CPU limits that agents have put on them.

A limit is the kernel's: it stays in force when an agent dies. Iterations follow from the CPU alone.
"""

import math
from dataclasses import dataclass

PACE = 2.0
"""Iterations per second of a pod alone."""
ALONE = 0.5
"""Cores that it has alone: its request."""
LABEL = "app"


@dataclass
class Application:
    """One pod. ``limit``: (cores, period), if an agent holds it. ``phase``: when one of its periods began."""

    node: str
    at: float
    phase: float
    count: float = 0.0
    limit: tuple | None = None

    def advance(self, now):
        """Count the iterations until now."""
        self.count += (now - self.at) * self._pace()
        self.at = now

    def _pace(self):
        return PACE * min(1.0, self.limit[0] / ALONE if self.limit else 1.0)

    def since_last(self):
        """Return the seconds since its last iteration ended."""
        return (self.count - math.floor(self.count)) / self._pace()


class Applications:
    """All of them, by uid of the pod.

    ``lifted``: when limits were lifted although they were wanted. ``moves``: of the slices of aligned pods.
    """

    def __init__(self, machines, random):
        self._machines = machines
        self._random = random
        self.found = {}
        self.lifted = []
        self.moves = []

    def on(self, node, now):
        """Return those that run on a node, by uid, with their counts of now."""
        there = {}
        for body, life in self._machines.pods_on(node):
            if LABEL in (body["metadata"].get("labels") or {}) and now >= life.began:
                uid = body["metadata"]["uid"]
                if uid not in self.found:
                    self.found[uid] = Application(node, life.began, self._random.random())
                there[uid] = self.found[uid]
                there[uid].advance(now)
        return there

    def limit(self, application, limit, now, *, wanted):
        """Note the limit that a pod has from now on. ``wanted``: a TargetRate asks for one."""
        if wanted and application.limit and not limit:
            self.lifted.append(now)
        application.limit = limit
