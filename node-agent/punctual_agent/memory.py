"""Reads the memory of the node and of pods on cgroup v1 and v2, and writes the marks on the memory of guests' pods.

A mark limits nothing that is needed at once, unlike `memory.max`, at which the kernel kills.

- `memory.high` (v2): a pod above it is slowed where it asks for more, and the kernel takes cache of files from it.
- `memory.soft_limit_in_bytes` (v1): when the node runs out of free memory, the kernel takes cache of files from pods
  above theirs first. `memory.force_empty` is not used: it takes the whole cache of a pod, and does not return for as
  long as the pod reads files.

Standard library only, as :mod:`punctual_agent.cgroup`.
"""

import contextlib
import os
import queue
import re
import threading
from typing import Final, Literal, NamedTuple

from punctual_agent.cgroup import CgroupError, Hierarchy, write_file

Kind = Literal["high", "soft"]

MEMINFO: Final = "/proc/meminfo"
NO_MARK: Final = 1 << 62
"""Bytes that no memory reaches. On v1, the kernel has such a number for no limit."""

_MARK: Final[dict[Kind, str]] = {"high": "memory.high", "soft": "memory.soft_limit_in_bytes"}
_NONE: Final[dict[Kind, str]] = {"high": "max", "soft": "-1"}
# v1 tells each number twice: that of the folder alone, and below "total_" that with its containers
_INACTIVE: Final = {"v1": re.compile(r"\ntotal_inactive_file (\d+)"), "v2": re.compile(r"\ninactive_file (\d+)")}
_ACTIVE: Final = {"v1": re.compile(r"\ntotal_active_file (\d+)"), "v2": re.compile(r"\nactive_file (\d+)")}
_NODE: Final = re.compile(r"^(MemTotal|MemAvailable): *(\d+) kB", re.MULTILINE)


class Memory(NamedTuple):
    """Memory of a pod, bytes."""

    charged: int
    """All that the kernel counts for it."""
    used: int
    """Without cache of files that were not used lately."""
    held: int
    """Without cache of files: without swap, the kernel cannot take it back."""


class NodeMemory(NamedTuple):
    """Memory of the node, bytes."""

    total: int
    available: int
    """What programs can get without swapping."""


def memory_of(hierarchy: Hierarchy, pod: str) -> Memory:
    """Read the memory of a pod by its folder.

    Raises VanishedError if the pod is gone or the kernel does not count memory, and CgroupError.
    """
    folder, read = memory_folder(hierarchy, pod), hierarchy.reader(pod)
    charged = int(read(f"{folder}/memory.{'current' if hierarchy.version == 'v2' else 'usage_in_bytes'}"))
    counters = read(f"{folder}/memory.stat")
    inactive, active = (
        int(found[1]) if (found := lines[hierarchy.version].search(counters)) else 0 for lines in (_INACTIVE, _ACTIVE)
    )
    # the two files are read one after the other
    return Memory(charged, max(0, charged - inactive), max(0, charged - inactive - active))


def node_memory(hierarchy: Hierarchy) -> NodeMemory | None:
    """Read the node's memory: that of the machine, or what the root's limit leaves, as for a node in a container.

    None: the kernel does not tell.
    """
    read = hierarchy.reader(hierarchy.root)
    try:
        lines = {name: int(size) << 10 for name, size in _NODE.findall(read(MEMINFO))}
        total, available = lines["MemTotal"], lines["MemAvailable"]
    except (CgroupError, KeyError):
        return None
    with contextlib.suppress(CgroupError, ValueError):  # the root cgroup of a machine has no limit
        name = "memory.max" if hierarchy.version == "v2" else "memory.limit_in_bytes"
        limit = int(read(f"{hierarchy.memory}/{name}"))
        if limit < total:
            held = memory_of(hierarchy, hierarchy.cpu).held
            total, available = limit, max(0, min(available, limit - held))
    return NodeMemory(total, available)


class Marks:
    """Reads and writes the marks of pods, bytes.

    A thread writes. While the kernel takes memory back, a write of `memory.high` does not return, and that may last as
    long as a slow disk. The agent must look at its pods meanwhile.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._kind: Kind | None = None
        self._asked: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, int, CgroupError | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def kind(self) -> Kind | None:
        """What the kernel has. None: nothing, or it is not known while the kubelet has made no folder."""
        if self._kind is None:
            kind: Kind = "high" if self._hierarchy.version == "v2" else "soft"
            files = [f"{memory_folder(self._hierarchy, one)}/{_MARK[kind]}" for one in self._hierarchy.kubepods]
            if any(os.path.exists(file) for file in files):  # noqa: PTH110  paths are strings here
                self._kind = kind
        return self._kind

    def mark_of(self, pod: str) -> int:
        """Read the mark of a pod: without one, a number that no memory reaches.

        Raises CgroupError and VanishedError.
        """
        text = self._hierarchy.reader(pod)(self._path(pod)).strip()
        return NO_MARK if text == "max" else int(text)

    def ask(self, pod: str, mark: int) -> None:
        """Have the mark of a pod written. :meth:`done` tells when it is."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="memory marks", daemon=True)
            self._thread.start()
        self._asked.put((pod, mark))

    def done(self) -> list[tuple[str, int, CgroupError | None]]:
        """Return the marks that were written since the last call: pod, mark, and the kernel's error if it refused."""
        done = []
        with contextlib.suppress(queue.Empty):
            while True:
                done.append(self._done.get_nowait())
        return done

    def remove(self, pod: str) -> None:
        """Remove the mark of a pod, at once: the kernel takes nothing back for that."""
        if self.kind is not None:
            with contextlib.suppress(CgroupError):  # the pod has ended
                write_file(self._path(pod), _NONE[self.kind])

    def _write(self) -> None:
        while True:
            pod, mark = self._asked.get()
            try:
                write_file(self._path(pod), str(mark))
            except CgroupError as error:
                self._done.put((pod, mark, error))
            else:
                self._done.put((pod, mark, None))

    def _path(self, pod: str) -> str:
        return f"{memory_folder(self._hierarchy, pod)}/{_MARK[self.kind or 'high']}"


def memory_folder(hierarchy: Hierarchy, pod: str) -> str:
    """Return the folder of a pod, or of a container, in the tree of memory."""
    return f"{hierarchy.memory}{pod.removeprefix(hierarchy.cpu)}"
