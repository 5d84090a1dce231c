"""A node's folders in the real cgroup hierarchy of this machine, as the kubelet makes them.

Standard library only: it is used in the virtual machine of ``hack/vm``, too.
"""

# cgroup paths are strings, as in the module under test
# ruff: noqa: PTH102, PTH106, PTH112, PTH120

import contextlib
import itertools
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

from punctual_agent.cgroup import CgroupError, Hierarchy

ROOT = os.environ.get("PUNCTUAL_TEST_CGROUP_ROOT", "/sys/fs/cgroup")
SPIN = "while True: pass"
MIB = 1 << 20
_number = itertools.count()


def hierarchy() -> Hierarchy:
    if os.geteuid() != 0:
        raise unittest.SkipTest("not root: cannot make cgroups")
    try:
        return Hierarchy(ROOT)
    except CgroupError as error:
        raise unittest.SkipTest(str(error)) from error


class Node:
    """Folders as the kubelet makes them, below a folder of our own; all gone at the end, processes too."""

    def __init__(self, driver: str = "cgroupfs") -> None:
        self.hierarchy = hierarchy()
        number = next(_number)
        self.uid = f"0aaf2a3c-18c2-4a3e-9d5e-{os.getpid():08x}{number:04x}"
        top = f"punctual-test-{os.getpid()}-{number}"
        if driver == "systemd":
            unit = self.uid.replace("-", "_")
            base = f"{top}/kubepods.slice/kubepods-burstable.slice"
            self.pod = self._path(f"{base}/kubepods-burstable-pod{unit}.slice")
            names = ("cri-containerd-main.scope", "cri-containerd-sandbox.scope")
        else:
            self.pod = self._path(f"{top}/kubepods/burstable/pod{self.uid}")
            names = ("main", "sandbox")
        self.folders: list[str] = []
        self.processes: list[subprocess.Popen] = []
        try:
            self.make(self.pod)
        except OSError as error:
            raise unittest.SkipTest(f"cannot make cgroups here: {error}") from error
        self.qos, self.kubepods = os.path.dirname(self.pod), os.path.dirname(os.path.dirname(self.pod))
        self.main, self.sandbox = (self.make(f"{self.pod}/{name}") for name in names)

    def _path(self, relative: str) -> str:
        return f"{self.hierarchy.cpu}/{relative}"

    @property
    def trees(self) -> list[str]:
        """The trees in which the kubelet makes a pod's folder, that of CPU first."""
        here = self.hierarchy
        trees = dict.fromkeys((here.cpu, here.accounting, here.memory, here.disk))
        return [tree for tree in trees if os.path.isdir(tree)]

    def make(self, folder: str) -> str:
        """Make a folder and those above it, in all trees."""
        here = self.hierarchy
        steps = folder.removeprefix(here.cpu + "/").split("/")
        for n in range(len(steps)):
            for tree in self.trees:
                above = "/".join((tree, *steps[:n]))
                if here.version == "v2":
                    Path(above, "cgroup.subtree_control").write_text("+cpu +memory +io")
                path = f"{above}/{steps[n]}"
                if not os.path.isdir(path):
                    os.mkdir(path)
                    self.folders.append(path)
        return folder

    def limit(self, folder: str, quota: int, period: int = 100_000) -> None:
        """Set a cap as the kubelet's runtime does, without our code."""
        if self.hierarchy.version == "v2":
            Path(folder, "cpu.max").write_text(f"{quota if quota >= 0 else 'max'} {period}")
        else:
            Path(folder, "cpu.cfs_period_us").write_text(str(period))
            Path(folder, "cpu.cfs_quota_us").write_text(str(quota))

    def outweigh(self) -> None:
        """Give all of the node a large weight: it goes before other work of this machine."""
        name, weight = ("cpu.weight", 800) if self.hierarchy.version == "v2" else ("cpu.shares", 8192)
        Path(self.folders[0], name).write_text(str(weight))

    def spin(self, folder: str, *, cpu: int | None = None) -> subprocess.Popen:
        """A busy process in a container, on any CPU or on this one."""
        return self.start([sys.executable, "-c", SPIN], folder, cpu=cpu)

    def start(self, words: list[str], folder: str, *, cpu: int | None = None) -> subprocess.Popen:
        """A process in a container, on any CPU or on this one."""
        process = subprocess.Popen(words)
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        self.processes.append(process)
        self._put(process, folder)
        return process

    def fill(self, folder: str, *, held: int, free: int) -> subprocess.Popen:
        """A process in a container: MiB that it holds, and MiB that the kernel may take, as cache of files."""
        words = [sys.executable, "-c", _FILL, str(held), str(free)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        self._put(process, folder)
        process.stdin.write(b"begin\n")
        process.stdin.close()
        return process

    def _put(self, process: subprocess.Popen, folder: str) -> None:
        for tree in self.trees:
            Path(tree + folder.removeprefix(self.hierarchy.cpu), "cgroup.procs").write_text(str(process.pid))

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def remove(self) -> None:
        self.kill()
        for folder in reversed(self.folders):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)


def eventually(true, within: float = 120.0) -> bool:
    end = time.monotonic() + within
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


# what it frees lazily counts as cache of files: the kernel takes it when it needs memory
_FILL = """
import mmap, sys, time
sys.stdin.readline()
held, free = (int(word) << 20 for word in sys.argv[1:])
maps = [mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for size in (held, free) if size]
for one in maps:
    for at in range(0, len(one), 4096):
        one[at] = 1
if free:
    maps[1].madvise(mmap.MADV_FREE)
print("filled", flush=True)
time.sleep(1000)
"""
