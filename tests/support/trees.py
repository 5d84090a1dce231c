"""A node's cgroup and pods folders in a temporary folder: v1 and v2, both drivers, any root."""

import os
from pathlib import Path

from punctual_agent.agent import Agent
from punctual_agent.cgroup import Cap, Hierarchy
from punctual_agent.metrics import AgentMetrics


def _set(path: Path, text: str) -> None:
    """Change a file at once, as the kernel changes its own: an agent that looks never finds it empty."""
    if not path.exists():
        new = path.with_name(f".{path.name}")
        new.write_text(text)
        new.rename(path)
        return
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, text.ljust(os.fstat(handle).st_size).encode(), 0)
    finally:
        os.close(handle)


class Tree:
    """A node without a kernel: files only, so nothing is refused and nothing is counted. It has four CPUs."""

    def __init__(
        self, top: Path, *, version: str, driver: str, below: str = "", idle: bool = True, disk: bool = True
    ) -> None:
        self.root = top / "cgroup"
        self.pods = top / "pods"
        self.pods.mkdir()
        self.version, self.driver, self.idle, self.disk = version, driver, idle, disk
        cpu = self.root if version == "v2" else self.root / "cpu"
        self.cpu = cpu
        self._trees = (
            [cpu] if version == "v2" else [cpu, *(self.root / name for name in ("cpuacct", "blkio", "memory"))]
        )
        for tree in self._trees:
            (tree / below).mkdir(parents=True)
        if version == "v2":
            (self.root / "cgroup.controllers").write_text("cpuset cpu io memory\n")
            (self.root / "cpu.stat").write_text("usage_usec 12500000\nuser_usec 1\n")
            (self.root / "cpu.pressure").write_text(
                "some avg10=7.50 avg60=1.00 avg300=0.00 total=2500000\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=7\n"
            )
            (self.root / "memory.current").write_text("1048576\n")
            (self.root / "cpuset.cpus.effective").write_text("0-1,4-5\n")
        else:
            (cpu / "cgroup.procs").write_text("")
            (self.root / "cpuacct/cpuacct.usage").write_text("12500000000\n")
            (self.root / "memory/memory.usage_in_bytes").write_text("1048576\n")
            (self.root / "cpuset").mkdir()
            (self.root / "cpuset/cpuset.effective_cpus").write_text("0-1,4-5\n")
        parts = [part for part in below.split("/") if part]
        if driver == "systemd":
            prefix = f"{parts[-1].removesuffix('.slice')}-" if parts and parts[-1].endswith(".slice") else ""
            self._prefix = f"{prefix}kubepods"
            self.base = cpu / below / f"{self._prefix}.slice"
        else:
            self.base = cpu / below / "kubepods"
        for tree in self._trees:
            (tree / self.base.relative_to(cpu)).mkdir()
        self._priorities(self.base)

    def agent(self, state, now=0.0, **more):
        """Return an agent of this node."""
        given = {"metrics": AgentMetrics(), "lease": 5.0, "patience": 60.0, **more}
        return Agent(node="n1", hierarchy=self.hierarchy(), pods_root=str(self.pods), state=state, now=now, **given)

    def hierarchy(self, **more) -> Hierarchy:
        return Hierarchy(str(self.root), **more)

    def pod_folder(self, uid: str, qos: str = "burstable") -> Path:
        if self.driver == "systemd":
            part = f"{self._prefix}-{qos}" if qos else self._prefix
            above = self.base / f"{part}.slice" if qos else self.base
            return above / f"{part}-pod{uid.replace('-', '_')}.slice"
        return self.base / qos / f"pod{uid}"

    def pod(self, uid: str, *, qos: str = "burstable", containers: int = 2, quota: int = -1) -> Path:
        """A pod with containers, all with the same cap."""
        folder = self.pod_folder(uid, qos)
        name = "cri-containerd-{}.scope" if self.driver == "systemd" else "{}"
        for one in (folder, *(folder / name.format(f"c{n}") for n in range(containers))):
            self.folder(one, quota=quota)
        return folder

    def folder(self, path: Path, *, quota: int = -1, period: int = 100_000) -> Path:
        for tree in self._trees:
            (tree / path.relative_to(self.cpu)).mkdir(parents=True, exist_ok=True)
        if not (path / "cpu.stat").exists():
            self._priorities(path)
        if self.version == "v2":
            _set(path / "cpu.max", f"{'max' if quota < 0 else quota} {period}\n")
            _set(path / "cpu.max.burst", "0\n")
            _set(path / "cpu.stat", "usage_usec 1500000\nnr_periods 4\nnr_throttled 1\nthrottled_usec 250000\n")
        else:
            _set(path / "cpu.cfs_quota_us", f"{quota}\n")
            _set(path / "cpu.cfs_period_us", f"{period}\n")
            _set(path / "cpu.cfs_burst_us", "0\n")
            _set(path / "cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 250000000\n")
            _set(self.root / "cpuacct" / path.relative_to(self.cpu) / "cpuacct.usage", "1500000000\n")
        return path

    def _priorities(self, folder: Path) -> None:
        """Make the files of CPU priorities, as a new folder has them. ``idle``: the kernel is 5.15 or newer."""
        _set(folder / ("cpu.weight" if self.version == "v2" else "cpu.shares"), "100\n")
        if self.idle:
            _set(folder / "cpu.idle", "0\n")
        if self.disk:
            for file, text in self.disk_files(folder).items():
                _set(file, f"{text}\n")
        self.unmark(folder)

    def disk_files(self, folder: Path) -> dict[Path, str]:
        """The files of disk priorities, and what they say in a new folder. v1 has no weight of iocost."""
        here = self._trees[-2 if self.version == "v1" else 0] / folder.relative_to(self.cpu)
        if self.version == "v1":
            return {here / "blkio.bfq.weight": "100", here / "blkio.prio.class": "no-change"}
        weights = {here / "io.weight": "default 100\n8:0 500", here / "io.bfq.weight": "default 100"}
        return weights | {here / "io.prio.class": "no-change"}

    def disk_priority(self, folder: Path) -> dict[str, str]:
        """What the files of disk priorities say first."""
        return {file.name: file.read_text().split("\n")[0].strip() for file in self.disk_files(folder)}

    def unmark(self, folder: Path) -> None:
        """Give a folder no memory mark, as a new one has none."""
        _set(self.mark_file(folder), "max\n" if self.version == "v2" else f"{(1 << 63) - 4096}\n")

    def mark_file(self, folder: Path) -> Path:
        return self.memory(folder) / ("memory.high" if self.version == "v2" else "memory.soft_limit_in_bytes")

    def mark(self, folder: Path) -> int | None:
        """The memory mark of a folder."""
        text = self.mark_file(folder).read_text().strip()
        return None if text in {"max", "-1", f"{(1 << 63) - 4096}"} else int(text)

    def priority(self, folder: Path) -> tuple[int | None, int]:
        """Whether a folder is in the idle class (None: the kernel has none), and its weight or shares."""
        idle = int((folder / "cpu.idle").read_text()) if self.idle else None
        return idle, int((folder / ("cpu.weight" if self.version == "v2" else "cpu.shares")).read_text())

    def use_node(self, seconds: float) -> None:
        """Set the CPU that the whole node has used."""
        if self.version == "v2":
            _set(self.root / "cpu.stat", f"usage_usec {seconds * 1e6:.0f}\nuser_usec 1\n")
        else:
            _set(self.root / "cpuacct/cpuacct.usage", f"{seconds * 1e9:.0f}\n")

    def count(self, folder: Path, *, periods: int, throttled: int, seconds: float) -> None:
        """Set the counters of throttling of a folder, as the kernel does."""
        time = f"throttled_usec {seconds * 1e6:.0f}" if self.version == "v2" else f"throttled_time {seconds * 1e9:.0f}"
        _set(folder / "cpu.stat", f"usage_usec 1500000\nnr_periods {periods}\nnr_throttled {throttled}\n{time}\n")

    def write(self, file: Path, text: str) -> None:
        """Write what a worker says."""
        _set(file, text)

    def use(self, folder: Path, seconds: float) -> None:
        """Set the CPU that a pod has used, as the kernel counts it."""
        if self.version == "v2":
            _set(
                folder / "cpu.stat", f"usage_usec {seconds * 1e6:.0f}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
            )
        else:
            _set(self.root / "cpuacct" / folder.relative_to(self.cpu) / "cpuacct.usage", f"{seconds * 1e9:.0f}\n")

    def memory(self, folder: Path) -> Path:
        """The folder of a pod's memory files."""
        return self._trees[-1] / folder.relative_to(self.cpu)

    def hold(self, folder: Path, *, held: int, active: int = 0, inactive: int = 0) -> None:
        """Set the memory of a pod in bytes: what it holds, and its cache of files."""
        here, files = self.memory(folder), f"active_file {active}\n{{}}inactive_file {inactive}\n"
        if self.version == "v2":
            name, stat = "memory.current", files.format("")
        else:  # it tells the numbers of the folder alone, too
            name, stat = "memory.usage_in_bytes", f"active_file 1\ninactive_file 2\ntotal_{files.format('total_')}"
        _set(here / name, f"{held + active + inactive}\n")
        _set(here / "memory.stat", f"anon {held}\n{stat}slab 9\n")

    def limit_memory(self, folder: Path, limit: int | None) -> None:
        """Set the memory limit of a pod or a container, bytes."""
        name, none = ("memory.max", "max") if self.version == "v2" else ("memory.limit_in_bytes", (1 << 63) - 4096)
        _set(self.memory(folder) / name, f"{none if limit is None else limit}\n")

    def page(self, folder: Path, *, faults: int, at_limit: int) -> None:
        """Set the counters of major page faults of a pod, and of how often it or a container reached its limit."""
        here = self.memory(folder)
        if self.version == "v2":
            _set(here / "memory.stat", f"anon 5\npgfault 99999\npgmajfault {faults}\nworkingset_refault_anon 0\n")
            _set(here / "memory.events", f"low 0\nhigh 0\nmax {at_limit}\noom 0\noom_kill 0\n")
        else:  # it tells the numbers of the folder alone, too
            _set(here / "memory.stat", f"cache 5\npgmajfault 0\ntotal_pgfault 99999\ntotal_pgmajfault {faults}\n")
            _set(here / "memory.failcnt", f"{at_limit}\n")

    def wait_for_memory(self, folder: Path, *, recent: float, total: float) -> None:
        """Set the pressure of a pod's memory: per cent of the last ten seconds, and seconds in all. v1 has none."""
        text = f"some avg10=99.00 avg60=9.00 avg300=1.00 total=99000000\nfull avg10={recent:.2f} avg60=1.00 avg300=0.00"
        _set(self.memory(folder) / "memory.pressure", f"{text} total={total * 1e6:.0f}\n")

    def remove(self, folder: Path) -> None:
        """End a pod's or a container's cgroup."""
        for tree in self._trees:
            here = tree / folder.relative_to(self.cpu)
            for above, _, files in os.walk(here, topdown=False):
                for name in files:
                    Path(above, name).unlink()
                Path(above).rmdir()

    def put_aside(self, folder: Path) -> None:
        """Let a pod's cgroup not be found, until the next call."""
        for tree in self._trees:
            here = tree / folder.relative_to(self.cpu)
            aside = tree.parent / f"aside-{tree.name}"
            source, goal = (here, aside) if here.exists() else (aside, here)
            source.rename(goal)

    def cap(self, folder: Path) -> Cap | None:
        """The cap in force; None while the agent is writing it, which in a plain file takes two steps."""
        try:
            return self.hierarchy().cap(str(folder))
        except ValueError:
            return None

    def volume(self, uid: str) -> Path:
        """The pod's volume, as the kubelet makes it."""
        folder = self.volume_of(uid)
        folder.mkdir(parents=True)
        return folder

    def volume_of(self, uid: str) -> Path:
        return self.pods / uid / "volumes/kubernetes.io~empty-dir/punctual"
