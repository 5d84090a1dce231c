"""All guests of a node: what they may use of its CPU and memory, and their priorities.

The agent calls it at each tick, and once between two, so that a burst of the node's own work never lasts for a whole
one.
"""

import logging
from collections.abc import Collection
from typing import NamedTuple

from punctual.wire import Hosts
from punctual_agent.cgroup import Hierarchy, NodeUse, Priority
from punctual_agent.disk import Disk
from punctual_agent.disk import Kind as DiskKind
from punctual_agent.guest_memory import GuestMemory
from punctual_agent.guest_share import GuestShare
from punctual_agent.guests import GuestsAndHosts, Seen
from punctual_agent.memory import Kind as MemoryKind
from punctual_agent.metrics import AgentMetrics
from punctual_agent.modes.guest import GuestMode
from punctual_agent.pod import Pod

log = logging.getLogger(__name__)


class Capabilities(NamedTuple):
    """How guests can be held on this node, as the kernel's files show."""

    guest_priority: Priority | None = None
    guest_memory: MemoryKind | None = None
    guest_disk: tuple[DiskKind, ...] = ()


class NodeGuests:
    """Gives the guests among a node's pods their parts of what hosts leave."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._cpu = GuestsAndHosts()
        self._memory = GuestMemory(hierarchy)
        self._disk = Disk(hierarchy)
        self._share = GuestShare(hierarchy)
        self._measured = Capabilities()

    @property
    def capabilities(self) -> Capabilities:
        """How guests can be held here: nothing is known before the kubelet has made a folder."""
        return Capabilities(self._hierarchy.guest_priority, self._memory.kind, self._disk.kinds)

    @property
    def excess(self) -> int:
        """Bytes that guests must give back by leaving."""
        return self._memory.excess

    def memory_used(self, pod: Pod) -> int:
        """Return the memory in use by a pod, bytes. 0: it is not known, or the pod is no guest."""
        return self._memory.used(pod.held.folder)

    def glance(self, now: float, pods: Collection[Pod], node: NodeUse) -> None:
        """Divide the CPU that hosts leave. ``pods``: all of the agent, each just read if it is a guest."""
        seen = {pod.uid: one for pod in pods if (one := _seen(pod)) is not None}
        self._cpu.look(now, node, seen)
        for pod in pods:
            if isinstance(pod.mode, GuestMode):
                pod.mode = pod.mode.at(self._cpu.cap(pod.uid, pod.mode.floor))

    def look(self, now: float, pods: Collection[Pod], node: NodeUse, *, may_write: bool) -> Hosts | None:
        """Divide CPU and memory, and lower disk priorities. Returns what hosts have used since the last look."""
        self.glance(now, pods, node)
        hosts = self._cpu.report()
        found = {pod.held.folder: pod.held for pod in pods if isinstance(pod.mode, GuestMode) and pod.held.found}
        weights = {pod.held.folder: pod.mode.weight for pod in pods if isinstance(pod.mode, GuestMode)}
        self._memory.look(now, found, weights, may_write=may_write)
        if may_write:
            self._disk.lower(found.values())
        for pod in pods:
            if pod.held.trouble != pod.trouble:
                pod.trouble = pod.held.trouble
                if pod.trouble:
                    log.warning("guest_limit_not_written", extra={"uid": pod.uid, "error": pod.trouble})
        self._share.look(now, guests=len(self._cpu) > 0)
        return hosts

    def release(self, pod: Pod) -> None:
        """Remove what is left at a pod that is no guest any more."""
        self._memory.release(pod.held.folder)

    def measure(self, metrics: AgentMetrics, hosts: Hosts | None) -> None:
        """Set the metrics of guests."""
        metrics.guests.set(len(self._cpu))
        if (can := self.capabilities) != self._measured:
            self._measured = can
            disk = (("disk", kind) for kind in can.guest_disk)
            metrics.capabilities([("cpu", can.guest_priority), ("memory", can.guest_memory), *disk])
        metrics.guest_share.set(self._share.part or 0.0)
        metrics.guest_mark.set(self._memory.mark)
        metrics.guest_excess.set(self._memory.excess)
        if hosts is not None:
            metrics.host_use.set(hosts.used)
            metrics.guest_use.set(hosts.guests)


def _seen(pod: Pod) -> Seen | None:
    """Return a pod's counter for the account of guests and hosts. None: it was not found."""
    use, mode = pod.held.use, pod.mode
    if not pod.held.found or use is None:
        return None
    if isinstance(mode, GuestMode):
        return Seen(use.cpu, named=True, weight=mode.weight, floor=mode.floor)
    return Seen(use.cpu, named=mode is not None)
