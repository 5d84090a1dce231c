"""The part of one contended CPU that guests take from another pod of the node, by the weights that the kernel has.

The kernel compares the weights of siblings only. Guests are BestEffort pods, so beside pods of the other classes they
have the weight of the folder of BestEffort pods as a whole. Its siblings are the folder of Burstable pods and each
Guaranteed pod.

Other levels are not looked at: other BestEffort pods are a level below, and programs in no pod are a level above. A
folder that uses several CPUs divides its weight among them, so on one of them the part may be larger or smaller. The
cap of guests takes most of it away again: weights protect hosts until the cap falls.

Standard library only, as :mod:`punctual_agent.cgroup`.
"""

import logging
from collections.abc import Iterable
from math import inf
from typing import Final

from punctual_agent.cgroup import CgroupError, Hierarchy, subfolders

log = logging.getLogger(__name__)

EVERY: Final = 60.0
"""Seconds between two looks: weights of folders change when pods come and go."""
MOST: Final = 0.01
"""Part of a CPU above which guests are felt (Ryu 2001, 5.1: hosts have 99 %)."""


def share(guests: int, others: Iterable[int]) -> float:
    """Return the part that guests get of one CPU on which one of the others contends: the one of least weight.

    0: there are no others.
    """
    least = min(others, default=0)
    return guests / (guests + least) if least > 0 else 0.0


class GuestShare:
    """Looks at the weights when the agent starts, and again while there are guests."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._again = -inf
        self.part: float | None = None
        """The largest part of one CPU that guests take from another pod. None: the kubelet has made no folders yet."""

    def look(self, now: float, *, guests: bool) -> None:
        """Read the weights, if it is time. ``guests``: whether there are any."""
        if now < self._again or not (guests or self.part is None):
            return
        self._again = now + EVERY
        found = []
        for base in self._hierarchy.kubepods:
            weights = self._weights(base)
            if (own := weights.pop("besteffort", None)) is not None:
                beside = min(weights, key=lambda name: weights[name], default="")
                found.append((share(own, weights.values()), beside))
        if not found:
            return
        before, (self.part, beside) = self.part or 0.0, max(found)
        if self.part > MOST >= before:
            log.warning("guest_share_high", extra={"part": round(self.part, 4), "beside": beside})

    def _weights(self, base: str) -> dict[str, int]:
        """Return the weights of all folders with pods by name, and that of the folder of BestEffort pods."""
        file = "cpu.weight" if self._hierarchy.version == "v2" else "cpu.shares"
        read = self._hierarchy.reader(base)
        found = {}
        for folder in subfolders(base):
            name = folder.removesuffix(".slice").rpartition("-")[2]
            if name != "besteffort" and not subfolders(f"{base}/{folder}"):
                continue  # it has no processes, so it takes no CPU
            try:
                weight = int(read(f"{base}/{folder}/{file}"))
            except CgroupError:  # the pod has ended
                continue
            if weight > 0:  # 0: it is in the idle class, and no host
                found[name] = weight
        self._hierarchy.forget(base)
        return found
