"""A node that has one CPU of the machine for itself, seen from the machine: its counters, its guests, and their caps.

The node's cgroups are read through ``/proc/PID/root``, so no program of the experiment runs on the node. That needs
root and an engine on this machine, as `hack/cluster` has.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from lib import machine, traces
from lib.machine import docker, give_memory

from punctual.errors import ClusterError, PunctualError
from punctual_agent.cgroup import CgroupError, Hierarchy
from punctual_agent.memory import node_memory

CPU = 0
"""The CPU of the machine that a node with guests has. All others are for the other nodes and for this program."""
MODEST = 128
"""The weight of nodes that go last; the control plane has 1024."""
EVEN = 2
"""Weight of all our containers together meanwhile, in that of a process outside of any group."""
EVERY = 0.02
"""Seconds between two samples of caps."""
TRIES = 20


class Counters(NamedTuple):
    """CPU seconds so far, and when."""

    at: float
    node: float
    guests: float
    idle: float
    """Of the machine's CPU that the node has."""
    available: float
    """Part of the node's memory."""


@contextlib.contextmanager
def pinned(cpus: Mapping[str, Collection[int]], *, own: Collection[int]) -> Iterator[None]:
    """Give nodes CPUs of the machine, and this program ``own``, without a quota.

    Docker cannot take a quota back, so the quota is all CPUs of the machine meanwhile.
    """
    count = os.cpu_count() or 1
    if count < 2:
        raise PunctualError("this machine has one CPU: the experiment needs two")
    with contextlib.ExitStack() as stack:
        for node, mine in cpus.items():
            cores = machine.cores(node)
            stack.callback(_unpin, node, f"0-{count - 1}", cores)
            _pin(node, ",".join(map(str, sorted(mine))))
            if cores:
                machine.give_cpus(node, count)
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, own)
        yield


@contextlib.contextmanager
def modest(nodes: Collection[str]) -> Iterator[None]:
    """Let nodes that are busy without a quota leave the control plane, this program and the machine their CPU.

    DANGER: our containers usually outweigh all else a hundred times, which is harmless while nodes have quotas. A low
    weight is not harmless either: the control plane wakes up often, and would wait for some 30 ms each time.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        traces.favour(EVEN)
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        for node in nodes:
            docker("update", "--cpu-shares", str(MODEST), node)
        yield
    finally:
        for node in nodes:
            docker("update", "--cpu-shares", "1024", node)
        os.setpriority(os.PRIO_PROCESS, 0, before)
        traces.favour()


@contextlib.contextmanager
def limited(node: str, memory: int) -> Iterator[None]:
    """Give a node some MiB of memory; 0: leave it what it has.

    Docker cannot take a limit back, so it is that of the machine afterwards.
    """
    if not memory:
        yield
        return
    give_memory(node, memory)
    try:
        yield
    finally:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        give_memory(node, (pages >> 20) + 1)


def _pin(node: str, cpus: str) -> None:
    """Give a node some CPUs. On v1 the groups in it must have no others before, and new ones may come meanwhile."""
    for left in reversed(range(TRIES)):
        for file in reversed(_sets(Hierarchy(_root(node)))):
            with contextlib.suppress(OSError):  # it is gone, or one below it has come
                file.write_text(cpus)
        try:
            docker("update", "--cpuset-cpus", cpus, node)
        except ClusterError:
            if not left:
                raise
            time.sleep(0.2)
        else:
            return


def _unpin(node: str, cpus: str, cores: float) -> None:
    """Give a node all CPUs and its quota back."""
    docker("update", "--cpuset-cpus", cpus, node)
    for file in _sets(Hierarchy(_root(node))):
        with contextlib.suppress(OSError):
            file.write_text(cpus)
    if cores:
        machine.give_cpus(node, cores)


def _sets(hierarchy: Hierarchy) -> list[Path]:
    """Return the cpusets in a node on v1, the outer before the inner; none on v2, where they follow the node's."""
    if hierarchy.version == "v2":
        return []
    found = Path(hierarchy.root, "cpuset").glob("*/**/cpuset.cpus")
    return sorted(found, key=lambda file: len(file.parts))


def _root(node: str) -> str:
    return f"/proc/{docker('inspect', '-f', '{{.State.Pid}}', node)}/root/sys/fs/cgroup"


class Watched:
    """The guests of a node: all its BestEffort pods that come after the watch began. A thread samples them."""

    def __init__(self, node: str) -> None:
        self._hierarchy = Hierarchy(_root(node))
        self._strangers: set[str] = set()
        self._strangers = set(self.pods())
        self._cpu: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.caps: list[tuple[float, float]] = []
        """(time, cores) of all guests together at each sample."""

    def __enter__(self) -> Self:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the guests run, and stop sampling."""
        self.freeze(frozen=False)
        self._over.set()
        self._thread.join()

    def freeze(self, *, frozen: bool) -> None:
        """Let the guests stand still, or run."""
        v2 = self._hierarchy.version == "v2"
        for pod in self.pods():
            file = f"{pod}/cgroup.freeze" if v2 else f"{self._tree('freezer', pod)}/freezer.state"
            with contextlib.suppress(OSError):  # it has just gone
                Path(file).write_text("01"[frozen] if v2 else ("THAWED", "FROZEN")[frozen])

    def counters(self) -> Counters:
        """Read all counters."""
        self._look()
        with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
            words = next(line.split() for line in file if line.startswith(f"cpu{CPU} "))
        idle = (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")
        memory = node_memory(self._hierarchy)
        available = memory.available / memory.total if memory else 1.0
        return Counters(time.time(), self._hierarchy.node().cpu, sum(self._cpu.values()), idle, available)

    def pods(self) -> list[str]:
        """Return the folders of the guests' pods."""
        folders = (Path(kubepods).glob("*besteffort*/*pod*") for kubepods in self._hierarchy.kubepods)
        found = [str(one) for each in folders for one in each if one.is_dir()]
        return [one for one in found if one not in self._strangers]

    def _tree(self, name: str, pod: str) -> str:
        return f"{self._hierarchy.root}/{name}{pod.removeprefix(self._hierarchy.cpu)}"

    def _look(self) -> float:
        """Note the counters of all guests. Returns their caps together."""
        total = 0.0
        for pod in self.pods():
            with contextlib.suppress(CgroupError):
                self._cpu[pod] = max(self._cpu.get(pod, 0.0), self._hierarchy.use(pod, ()).cpu)
                total += min(cap.share for cap in self._hierarchy.caps(pod).values())
        return total

    def _sample(self) -> None:
        while not self._over.wait(EVERY):
            self.caps.append((time.time(), self._look()))
