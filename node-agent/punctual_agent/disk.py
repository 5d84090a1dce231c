"""Gives guests' pods the lowest disk priority that the kernel has, on cgroup v1 and v2.

- The least weight of BFQ (`io.bfq.weight`, v1: `blkio.bfq.weight`) and of blk-iocost (`io.weight`, v2 only) on the
  pod's folder. Each acts where a disk uses it, and among siblings only.
- The idle class (`io.prio.class`, v1: `blkio.prio.class`) on the folders of its containers, because it is not
  inherited. BFQ and mq-deadline obey it. Now and then they let requests of the idle class pass, so hosts that wait for
  what a guest writes, such as a file system's journal, do not wait for ever.

Writes that the kernel has delayed are a guest's on v2 with ext4, xfs, btrfs and f2fs. On v1 they are the kernel's own,
so the priorities act on reads and on direct writes only.

Nothing like this works for a pod's network. v1 has `net_prio.ifpriomap`, but a packet loses that priority where it
leaves the pod's network namespace (veth), before it comes to the node's interface. `net_cls.classid` only marks
packets; the filter that looks at marks needs CAP_NET_ADMIN, which the agent does not have. v2 has no file for it:
there, a program in the kernel (eBPF) chooses by cgroup.
"""

import os
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from punctual_agent.actuator import Held
from punctual_agent.cgroup import CgroupError, Hierarchy, VanishedError, write_file

Kind = Literal["weight", "class"]


class _Least(NamedTuple):
    """A file of a priority, and what it says at the least one."""

    kind: Kind
    file: str
    text: str


_LEAST: Final = {
    "v1": (_Least("weight", "blkio.bfq.weight", "1"), _Least("class", "blkio.prio.class", "idle")),
    "v2": (
        _Least("weight", "io.weight", "default 1"),
        _Least("weight", "io.bfq.weight", "default 1"),
        _Least("class", "io.prio.class", "idle"),
    ),
}


class Disk:
    """The disk priorities of guests' pods."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._there: tuple[_Least, ...] = ()
        self._lowered: dict[str, set[str]] = {}
        """Files that were brought to the least priority, by the pod's folder."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What the kernel has. Empty: nothing, or it is not known while the kubelet has made no folder."""
        if not self._there:
            folders = [self._folder(one) for one in self._hierarchy.kubepods]
            self._there = tuple(one for one in _LEAST[self._hierarchy.version] if _has(folders, one.file))
        return tuple(dict.fromkeys(one.kind for one in self._there))

    def lower(self, guests: Iterable[Held]) -> None:
        """Give all guests' pods, which were just found, the lowest disk priority. Counts writes and drift in each."""
        before, self._lowered = self._lowered, {}
        if not self.kinds:
            return
        for held in guests:
            pod, *containers = held.caps
            lowered = self._lowered[pod] = before.get(pod, set())
            for least in self._there:
                for folder in [pod] if least.kind == "weight" else containers:
                    path = f"{self._folder(folder)}/{least.file}"
                    try:
                        written = self._bring(pod, path, least.text)
                    except VanishedError:  # the container has ended, or the runtime has given it no such file
                        continue
                    except CgroupError as error:
                        held.writes[error.kind] += 1
                        held.trouble = str(error)
                        continue
                    held.writes["written"] += written
                    held.drift += written and path in lowered
                    lowered.add(path)

    def _bring(self, pod: str, path: str, text: str) -> bool:
        """Write a priority. Returns False if it is there already."""
        if self._hierarchy.reader(pod)(path).partition("\n")[0] == text:  # weights of single disks follow
            return False
        write_file(path, text)
        return True

    def _folder(self, folder: str) -> str:
        return f"{self._hierarchy.disk}{folder.removeprefix(self._hierarchy.cpu)}"


def _has(folders: list[str], file: str) -> bool:
    return any(os.path.exists(f"{folder}/{file}") for folder in folders)  # noqa: PTH110  paths are strings here
