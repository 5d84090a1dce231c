"""Reads the memory of pods on cgroup v1 and v2. Standard library only, as :mod:`punctual_agent.cgroup`."""

import re
from typing import Final, NamedTuple

from punctual_agent.cgroup import Hierarchy

# v1 tells each number twice: that of the folder alone, and below "total_" that with its containers
_FILES: Final = {
    "v1": re.compile(r"^total_(inactive|active)_file (\d+)", re.MULTILINE),
    "v2": re.compile(r"^(inactive|active)_file (\d+)", re.MULTILINE),
}


class Memory(NamedTuple):
    """Memory of a pod, bytes."""

    charged: int
    """All that the kernel counts for it."""
    used: int
    """Without cache of files that were not used lately."""
    held: int
    """Without cache of files: without swap, the kernel cannot take it back."""


def memory_of(hierarchy: Hierarchy, pod: str) -> Memory:
    """Read the memory of a pod by its folder.

    Raises VanishedError if the pod is gone or the kernel does not count memory, and CgroupError.
    """
    folder, read = folder_of(hierarchy, pod), hierarchy.reader(pod)
    charged = int(read(f"{folder}/memory.{'current' if hierarchy.version == 'v2' else 'usage_in_bytes'}"))
    files = {name: int(size) for name, size in _FILES[hierarchy.version].findall(read(f"{folder}/memory.stat"))}
    inactive = files.get("inactive", 0)
    # the two files are read one after the other
    return Memory(charged, max(0, charged - inactive), max(0, charged - inactive - files.get("active", 0)))


def folder_of(hierarchy: Hierarchy, pod: str) -> str:
    """Return the folder of a pod in the tree of memory."""
    return f"{hierarchy.memory}{pod.removeprefix(hierarchy.cpu)}"
