"""Watches the memory of aligned pods: reports which are short of it, so that none makes the others wait.

:mod:`punctual.linger.paging` decides from the kernel's counters; this module reads their files, and those of no other
pods. On cgroup v2 with PSI that is one file a second and pod, else two; on v1 one more for each container, because a
container that reaches its own limit does not count in the pod's folder there. A file that is missing, or that another
kernel writes in another way, tells nothing.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from punctual.linger.paging import Counters, NodeShortage, PodPaging, Pressure
from punctual.wire import MemoryShort, Order
from punctual_agent.cgroup import CgroupError, Hierarchy, pressure_in
from punctual_agent.memory import NO_MARK, memory_folder, node_memory
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.pod import Pod

_AT_LIMIT: Final = re.compile(r"^max (\d+)", re.MULTILINE)
# v1 tells each number twice: that of the folder alone, and below "total_" that with its containers
_FAULTS: Final = {
    "v1": re.compile(r"^total_pgmajfault (\d+)", re.MULTILINE),
    "v2": re.compile(r"^pgmajfault (\d+)", re.MULTILINE),
}
_SIZES: Final = {
    "v1": ("memory.usage_in_bytes", "memory.limit_in_bytes"),
    "v2": ("memory.current", "memory.max"),
}


class AlignedMemory:
    """The memory of one node's aligned pods."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._pods: dict[str, PodPaging] = {}
        """Those that are watched."""
        self._node = NodeShortage()
        self._short: dict[str, MemoryShort] = {}

    def tell(self, uid: str, order: Order) -> None:
        """Take an order for a pod."""
        if order.kind == "Application" and order.watch_memory:
            self._pods.setdefault(uid, PodPaging())
        else:
            self._pods.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self._pods.pop(uid, None)

    def look(self, now: float, pods: Iterable[Pod]) -> None:
        """Read the counters of the pods that are watched and were just found, and of the node if there are any."""
        self._short = {}
        watched = [pod for pod in pods if pod.uid in self._pods and pod.held.found and _held(pod)]
        node = node_memory(self._hierarchy) if watched else None
        tight = node is not None and self._node.see(now, node.total, node.available)
        if node is None:
            self._node = NodeShortage()
        for pod in watched:
            pages = self._pods[pod.uid].see(now, self._counters(pod))
            if pages or tight:
                used, limit = self._closest(pod)
                self._short[pod.uid] = MemoryShort(used=used, limit=limit, cause="pod" if pages else "node")

    def short(self, uid: str) -> MemoryShort | None:
        """Return how short memory is for a pod. None: it is not, or the pod is not watched."""
        return self._short.get(uid)

    def _counters(self, pod: Pod) -> Counters:
        """Read what the kernel counts for a pod."""
        read = self._hierarchy.reader(pod.held.folder)
        folder = memory_folder(self._hierarchy, pod.held.folder)
        version = self._hierarchy.version
        if version == "v2" and (pressure := _pressure(read, folder)):
            return Counters(pressure)
        faults = _number(read, f"{folder}/memory.stat", _FAULTS[version])
        if version == "v2":
            return Counters(faults=faults, at_limit=_number(read, f"{folder}/memory.events", _AT_LIMIT))
        return Counters(faults=faults, at_limit=self._failures(read, pod))

    def _failures(self, read: Callable[[str], str], pod: Pod) -> int | None:
        """Return how often v1 found a limit of the pod or of its containers reached. None: it does not tell."""
        found = []
        for one in pod.held.caps:
            with contextlib.suppress(CgroupError, ValueError):  # a container that ends is not an error
                found.append(int(read(f"{memory_folder(self._hierarchy, one)}/memory.failcnt")))
        return sum(found) if found else None

    def _closest(self, pod: Pod) -> tuple[int, int | None]:
        """Return memory and limit of the pod, or of that of its containers which is closest to its limit, bytes."""
        read = self._hierarchy.reader(pod.held.folder)
        found = [self._sizes(read, one) for one in pod.held.caps]
        limited = [(used, limit) for used, limit in found if limit]
        return max(limited, key=lambda one: one[0] / one[1], default=found[0])

    def _sizes(self, read: Callable[[str], str], one: str) -> tuple[int, int | None]:
        folder, (used, limit) = memory_folder(self._hierarchy, one), _SIZES[self._hierarchy.version]
        try:
            most = read(f"{folder}/{limit}").strip()
            size = int(read(f"{folder}/{used}"))
            return size, None if most == "max" or int(most) >= NO_MARK else int(most)
        except (CgroupError, ValueError):
            return 0, None


def _held(pod: Pod) -> bool:
    """Return whether a pod is one that was ordered, and not released since."""
    return isinstance(pod.mode, ApplicationMode) and pod.mode.cap is not None


def _pressure(read: Callable[[str], str], folder: str) -> Pressure | None:
    """Return the pressure of a pod's memory. None: the kernel has no PSI, or it is turned off."""
    with contextlib.suppress(CgroupError, ValueError):
        if found := pressure_in(read(f"{folder}/memory.pressure"), "full"):
            return Pressure(found[0] / 100, found[1])
    return None


def _number(read: Callable[[str], str], path: str, line: re.Pattern[str]) -> int | None:
    """Return the number in a line of a file; None: there is no such file or line."""
    with contextlib.suppress(CgroupError):
        if found := line.search(read(path)):
            return int(found[1])
    return None
