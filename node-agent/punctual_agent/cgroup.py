"""Reads and writes the CPU caps of pods on cgroup v1 and v2, finds their folders, and reads their counters.

The agent calls it each second. The watchdog calls it when the agent is gone. It needs the standard library only,
because the watchdog is small and because some tests run where nothing else is installed.

A cap is quota and period together. The danger: a quota written beside an unknown period gives a group with a period of
20 ms five times the intended share. Values are compared as numbers. As text, "50000" and "50000 100000" would differ,
and the cap would be rewritten each second.

Which folders get a cap (:meth:`Hierarchy.targets`):

- Every container of the pod gets the cap. A container with a limit of its own follows it, and an additional container
  never gets more than the pod's cap.
- On v2 the pod's folder gets it too, so the cap limits the pod as a whole.
- On v1 the pod's folder is only ever widened. v1 refuses a child's quota above its parent's, and this includes the
  limit of a container that is created later: the main container of a pod that is narrowed while its input step runs
  would end in StartError.

Order of writes: widen the parent before the child, and narrow the child before the parent. v1 refuses the other order;
v2 applies the smaller cap without an error.

Nothing above a pod's folder is ever written. The folders of the quality-of-service classes belong to kubelet and
systemd.

A cgroup that vanished because its pod ended is not a failure. It raises :class:`VanishedError`, which callers count.
"""

import contextlib
import errno
import os
import re
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

ROOT: Final = "/sys/fs/cgroup"
DEFAULT_PERIOD: Final = 100_000
"""The kernel's default period in microseconds. A folder without a cap has it too."""
MIN_QUOTA: Final = 1_000
MAX_PERIOD: Final = 1_000_000
"""Kernel limits in microseconds (kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period)."""

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_USED: Final = re.compile(r"^usage_usec (\d+)", re.MULTILINE)
_THROTTLED: Final = re.compile(r"^nr_periods (\d+)\nnr_throttled (\d+)\nthrottled_(?:usec|time) (\d+)", re.MULTILINE)
_KUBEPODS: Final = re.compile(r"(?:[\w.]+-)?kubepods(?:\.slice)?")  # kubelet-kubepods.slice below /kubelet
_QOS: Final = ("", "burstable", "besteffort")
_DEPTH: Final = 5  # /docker/<id>/kubelet/kubepods is four below the root
_FOLDERS: Final = 20_000  # the most folders that one search visits
_MANY: Final = 8_192
_WEIGHTS: Final = {"v1": ("cpu.shares", 262_144, 1_024), "v2": ("cpu.weight", 10_000, 100)}
_SEARCH_EVERY: Final = 10.0  # seconds between searches for roots while a pod is not found

Driver = Literal["cgroupfs", "systemd"]
Priority = Literal["idle", "weight"]
Version = Literal["v1", "v2"]


class CgroupError(Exception):
    """The kernel did not accept a read or a write. ``kind`` is the label value for counters."""

    def __init__(self, message: str, kind: str = "failed") -> None:
        super().__init__(message)
        self.kind = kind


class VanishedError(CgroupError):
    """The folder is gone because its pod ended. Callers count it and continue."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "vanished")


_KINDS: Final = {
    errno.EINVAL: "refused",
    errno.ERANGE: "refused",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
}


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit of ``quota`` microseconds of CPU per ``period`` microseconds. A quota of None means no cap."""

    quota: int | None
    period: int = DEFAULT_PERIOD

    @classmethod
    def of(cls, cores: float, period: float) -> Self:
        """Return the cap for a number of cores and a period in seconds.

        The kernel accepts no quota below 1 ms. Where the share needs a smaller quota, the period grows, up to 1 s, to
        keep the share.
        """
        micros = round(period * 1e6)
        quota = round(cores * micros)
        if quota < MIN_QUOTA:
            micros = round(MIN_QUOTA / cores) if cores * MAX_PERIOD > MIN_QUOTA else MAX_PERIOD
            quota = MIN_QUOTA
        return cls(quota, micros)

    @property
    def cores(self) -> float | None:
        """The share in cores. None without a cap."""
        return None if self.quota is None else self.quota / self.period

    @property
    def share(self) -> float:
        """The share as a number, infinite without a cap.

        Comparisons are exact: equal fractions of such numbers are equal floats.
        """
        return float("inf") if self.quota is None else self.quota / self.period


class Weight(NamedTuple):
    """How much of a contended CPU a folder gets beside its siblings: ``cpu.weight`` on v2, ``cpu.shares`` on v1."""

    value: int
    highest: int
    """The kernel's limit."""
    usual: int
    """What a new folder has."""


class Throttling(NamedTuple):
    """How a cap held back the processes of one folder, since the folder was made."""

    periods: int = 0
    """CFS periods in which processes ran."""
    throttled: int = 0
    """Those of them in which the cap was used up."""
    seconds: float = 0.0
    """Time for which processes were held back."""


@dataclass(frozen=True, slots=True)
class Use:
    """Counters of a pod."""

    cpu: float
    """Seconds."""
    folders: Mapping[str, Throttling]
    """By folder: that of the pod, and those of its containers."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Node counters from the cgroup root and /proc, seconds. None: a kernel without PSI."""

    cpu: float
    pressure: float | None
    """Per cent of the last 10 s in which a task waited for a CPU."""
    waited: float | None
    """Seconds in which a task waited for a CPU."""
    cores: float
    """CPU of the node: its CPUs, or the quota of its root if that is less, as for a node in a container."""


def valid_uid(uid: str) -> bool:
    """Return whether the text can be the uid of a pod.

    Other text must never become part of a path.
    """
    return _UID.fullmatch(uid) is not None


def _read(path: str) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(handle, 8192).decode("ascii", "replace")
        finally:
            os.close(handle)
    except OSError as error:
        raise _translated(error, path) from error


def write_file(path: str, text: str) -> None:
    """Write a cgroup file. Raises CgroupError and VanishedError."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)
    except OSError as error:
        raise _translated(error, f"{path} <- {text}") from error


def _translated(error: OSError, what: str) -> CgroupError:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENOTDIR):
        return VanishedError(what)
    return CgroupError(f"{what}: {error.strerror}", _KINDS.get(error.errno or 0, "failed"))


def _cpus(text: str) -> float:
    """Return the number of CPUs in a list such as "0-3,7". Raises ValueError if there is none."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return float(sum(int(one[-1]) - int(one[0]) + 1 for one in ends))


def _used(text: str) -> float:
    """Return the seconds of CPU in v2's cpu.stat."""
    found = _USED.search(text)
    return int(found[1]) / 1e6 if found else 0.0


def _throttling(text: str, scale: float) -> Throttling:
    """Return the counters of throttling in cpu.stat; 0 if the kernel has none. ``scale``: its ticks in a second."""
    found = _THROTTLED.search(text)
    return Throttling(int(found[1]), int(found[2]), int(found[3]) / scale) if found else Throttling()


def pressure_in(text: str, line: Literal["some", "full"]) -> tuple[float, float] | None:
    """Return per cent over 10 s, and seconds in all, from a line of a file of PSI. None: it has no such line."""
    found = re.search(rf"^{line} avg10=([0-9.]+).* total=([0-9]+)", text, re.MULTILINE)
    return (min(float(found[1]), 100.0), int(found[2]) / 1e6) if found else None


class _Kept:
    """Keeps the cgroup files of pods open.

    To read an open file again costs a tenth of opening it, and each pod has ten files to read each second. At most half
    of the files that the process may open are kept. Others are opened at each read.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, int]] = {}
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = most // 2 if most != resource.RLIM_INFINITY else _MANY

    def reader_of(self, pod: str) -> Callable[[str], str]:
        """Return a reader of this pod's files. It raises the same errors as ``_read``."""
        handles = self._pods.setdefault(pod, {})

        def read(path: str) -> str:
            handle = handles.get(path)
            try:
                if handle is None:
                    if self._room <= 0:
                        return _read(path)
                    handle = handles[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    self._room -= 1
                return os.pread(handle, 8192, 0).decode("ascii", "replace")
            except OSError as error:
                raise _translated(error, path) from error

        return read

    def drop(self, pod: str) -> None:
        handles = self._pods.pop(pod, {})
        for handle in handles.values():
            os.close(handle)
        self._room += len(handles)


class Hierarchy:
    """The CPU cgroup hierarchy of one node below ``root``. Folders are absolute paths in its ``cpu`` tree.

    Raises CgroupError if no such hierarchy is mounted.
    """

    def __init__(self, root: str = ROOT, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._kubepods: list[str] = []
        self._searched = float("-inf")
        self._kept = _Kept()
        self._priority: Priority | None = None
        self.version: Version
        if "cpu" in self._controllers():
            self.version, self.cpu, self.accounting = "v2", root, root
            self.memory = self.disk = root
            return
        for name in ("cpu", "cpu,cpuacct"):
            if os.path.exists(os.path.join(root, name, "cgroup.procs")):  # noqa: PTH110, PTH118  hot module, paths are strings
                self.version, self.cpu = "v1", f"{root}/{name}"
                break
        else:
            raise CgroupError(f"{root}: found neither a cgroup v2 hierarchy with the cpu controller nor v1's cpu")
        together = os.path.exists(f"{self.cpu}/cpuacct.usage")  # noqa: PTH110
        self.accounting = self.cpu if together else f"{root}/cpuacct"
        self.memory, self.disk = f"{root}/memory", f"{root}/blkio"

    def _controllers(self) -> list[str]:
        try:
            return _read(f"{self.root}/cgroup.controllers").split()
        except CgroupError:
            return []

    # -- finding

    def find(self, uid: str) -> str | None:
        """Return the folder of the pod, or None while there is none.

        It tries the few possible names below each ``kubepods`` folder. If the pod is not found, it searches for those
        folders again, at most every ten seconds.
        """
        if not valid_uid(uid):
            return None
        if found := self._known(uid):
            return found
        return self._known(uid) if self._search() else None

    def _known(self, uid: str) -> str | None:
        for base in self._kubepods:
            for path in _pod_folders(base, uid):
                if os.path.isdir(path):  # noqa: PTH112
                    return path
        return None

    def _search(self) -> bool:
        """Search for ``kubepods`` folders, at most five levels below the root. Returns whether the result changed."""
        now = self._clock()
        if now - self._searched < _SEARCH_EVERY:
            return False
        self._searched = now
        before, self._kubepods = self._kubepods, []
        waiting = deque([(self.cpu, 0)])
        seen = 0
        while waiting and seen < _FOLDERS:
            folder, depth = waiting.popleft()
            for name in subfolders(folder):
                seen += 1
                if _KUBEPODS.fullmatch(name):
                    self._kubepods.append(f"{folder}/{name}")
                elif depth + 1 < _DEPTH:
                    waiting.append((f"{folder}/{name}", depth + 1))
        return self._kubepods != before

    @property
    def driver(self) -> Driver:
        """The cgroup driver. systemd's folders are named slices."""
        if not self._kubepods:
            self._search()
        return "systemd" if any(base.endswith(".slice") for base in self._kubepods) else "cgroupfs"

    @property
    def guest_priority(self) -> Priority | None:
        """How pods get the lowest CPU priority: ``cpu.idle`` where the kernel has it (5.15), else the least weight.

        None while there is no ``kubepods`` folder to look at: the root has no such files.
        """
        if self._priority is None and self.kubepods:
            idle = os.path.exists(f"{self.kubepods[0]}/cpu.idle")  # noqa: PTH110
            self._priority = "idle" if idle else "weight"
        return self._priority

    @property
    def kubepods(self) -> list[str]:
        """The ``kubepods`` folders, which have the files that pods have too. Empty before the kubelet has started."""
        if not self._kubepods:
            self._search()
        return self._kubepods

    @staticmethod
    def pods(base: str) -> list[str]:
        """List the folders of all pods below one ``kubepods`` folder."""
        return [
            f"{folder}/{name}"
            for folder, begin, _ in _places(base)
            for name in subfolders(folder)
            if name.startswith(begin)
        ]

    def containers(self, pod: str) -> list[str]:
        """List the container folders of a pod by name, the sandbox included. Raises VanishedError."""
        try:
            return [f"{pod}/{name}" for name in sorted(_listed(pod))]
        except OSError as error:
            raise _translated(error, pod) from error

    # -- reading

    def cap(self, folder: str) -> Cap:
        """Read the cap of one folder. Raises VanishedError."""
        return self._cap(folder, _read)

    def _cap(self, folder: str, read: Callable[[str], str]) -> Cap:
        if self.version == "v2":
            most, _, period = read(f"{folder}/cpu.max").strip().partition(" ")
            return Cap(None if most == "max" else int(most), int(period or DEFAULT_PERIOD))
        quota = int(read(f"{folder}/cpu.cfs_quota_us"))
        return Cap(quota if quota >= 0 else None, int(read(f"{folder}/cpu.cfs_period_us")))

    def caps(self, pod: str) -> dict[str, Cap]:
        """Read the caps of a pod's folder and of its containers, the pod first.

        Raises VanishedError if the pod is gone.
        """
        containers = self.containers(pod)
        read = self._kept.reader_of(pod)
        found = {pod: self._cap(pod, read)}
        for container in containers:
            with contextlib.suppress(VanishedError):  # a container that ends is not an error
                found[container] = self._cap(container, read)
        return found

    def use(self, pod: str, containers: Iterable[str]) -> Use:
        """Return the CPU used by the pod, and how it and its containers were throttled. Raises VanishedError."""
        read = self._kept.reader_of(pod)
        counters = read(f"{pod}/cpu.stat")
        if self.version == "v2":
            cpu, scale = _used(counters), 1e6
        else:
            cpu, scale = self.used(pod, read), 1e9
        folders = {pod: _throttling(counters, scale)}
        for container in containers:
            with contextlib.suppress(VanishedError):
                folders[container] = _throttling(read(f"{container}/cpu.stat"), scale)
        return Use(cpu, folders)

    def used(self, folder: str, read: Callable[[str], str] = _read) -> float:
        """Return the CPU seconds that the processes of a folder have used. Raises CgroupError and VanishedError."""
        if self.version == "v2":
            return _used(read(f"{folder}/cpu.stat"))
        return int(read(f"{self.accounting}{folder.removeprefix(self.cpu)}/cpuacct.usage")) / 1e9

    def reader(self, pod: str) -> Callable[[str], str]:
        """Return a reader of a pod's files, also of those in other trees. It keeps them open until :meth:`forget`.

        It raises CgroupError and VanishedError.
        """
        return self._kept.reader_of(pod)

    def forget(self, pod: str) -> None:
        """Close the open files of a pod."""
        self._kept.drop(pod)

    def node(self) -> NodeUse:
        """Read the node's counters. A value that the kernel does not report is 0 or None."""
        pressure, waited = self._node_pressure() or (None, None)
        return NodeUse(self.used(self.cpu), pressure, waited, self._cores())

    def _cores(self) -> float:
        name = "cpuset.cpus.effective" if self.version == "v2" else "cpuset/cpuset.effective_cpus"
        cores, read = float(os.cpu_count() or 1), self._kept.reader_of(self.root)
        with contextlib.suppress(CgroupError, ValueError):  # a kernel without cpuset
            cores = _cpus(read(f"{self.root}/{name}"))
        with contextlib.suppress(CgroupError):  # the root cgroup of a machine has none
            cores = min(cores, self._cap(self.cpu, read).share)
        return cores

    def _node_pressure(self) -> tuple[float, float] | None:
        for path in (f"{self.root}/cpu.pressure", "/proc/pressure/cpu"):
            try:
                return pressure_in(_read(path), "some")
            except CgroupError:
                continue
        return None

    @property
    def writable(self) -> bool:
        """Whether caps can be written: the mount is writable, and this process may write its files."""
        try:
            mounted = os.statvfs(self.cpu)
        except OSError:
            return False
        return not mounted.f_flag & os.ST_RDONLY and os.access(self.cpu, os.W_OK)

    # -- writing

    def targets(self, there: Mapping[str, Cap], cap: Cap) -> list[str]:
        """Return the folders of a pod (see :meth:`caps`) that get the cap, in an order in which no write is refused."""
        pod, *containers = there
        if cap.share > there[pod].share:
            return [pod, *containers]
        return containers if self.version == "v1" else [*containers, pod]

    def set_cap(self, folder: str, cap: Cap, *, there: Cap) -> None:
        """Change the cap of one folder from ``there`` to ``cap``.

        Raises CgroupError ("refused": the parent has less or a child more; "denied": no permission to write) and
        VanishedError.
        """
        self._drop_burst(folder)
        if self.version == "v2":
            write_file(f"{folder}/cpu.max", f"{'max' if cap.quota is None else cap.quota} {cap.period}")
            return
        for name, value in _v1_steps(there, cap):
            write_file(f"{folder}/cpu.cfs_{name}_us", str(value))

    def weight(self, pod: str) -> Weight:
        """Read the weight of a pod's folder. Raises VanishedError."""
        name, highest, usual = _WEIGHTS[self.version]
        return Weight(int(self._kept.reader_of(pod)(f"{pod}/{name}")), highest, usual)

    def set_weight(self, pod: str, value: int) -> None:
        """Write the weight of a pod's folder. It acts among siblings only. Raises CgroupError and VanishedError."""
        write_file(f"{pod}/{_WEIGHTS[self.version][0]}", str(value))

    def lower(self, pod: str) -> bool:
        """Give a pod the lowest CPU priority. Returns False if it has it already. Raises CgroupError.

        It acts among siblings only: a folder of BestEffort pods as a whole keeps the weight that the kubelet gave it.
        The pod's folder alone is written, because the kubelet fails to start if a folder above is in the idle class.
        """
        if self.guest_priority == "idle":
            name, least = "cpu.idle", 1
        else:
            name, least = ("cpu.weight", 1) if self.version == "v2" else ("cpu.shares", 2)
        if int(self._kept.reader_of(pod)(f"{pod}/{name}")) == least:
            return False
        write_file(f"{pod}/{name}", str(least))
        return True

    def _drop_burst(self, folder: str) -> None:
        """Set the burst to 0 first.

        A quota below the burst is refused, and accumulated burst time would exceed the cap.
        """
        name = "cpu.max.burst" if self.version == "v2" else "cpu.cfs_burst_us"
        try:
            burst = int(_read(f"{folder}/{name}"))
        except VanishedError:  # kernels before 5.14 have none
            return
        if burst:
            write_file(f"{folder}/{name}", "0")


def _places(base: str) -> list[tuple[str, str, str]]:
    """Return where pods are below one ``kubepods`` folder: the folder, and how the names of theirs begin and end."""
    if not base.endswith(".slice"):
        return [(f"{base}/{qos}" if qos else base, "pod", "") for qos in _QOS]
    prefix = base.rpartition("/")[2].removesuffix(".slice")
    parts = [(f"{base}/{prefix}-{qos}.slice" if qos else base, f"{prefix}-{qos}" if qos else prefix) for qos in _QOS]
    return [(folder, f"{part}-pod", ".slice") for folder, part in parts]


def _pod_folders(base: str, uid: str) -> list[str]:
    """Return the names that a pod's folder can have below one ``kubepods`` folder."""
    unit = uid.replace("-", "_") if base.endswith(".slice") else uid
    return [f"{folder}/{begin}{unit}{end}" for folder, begin, end in _places(base)]


def _listed(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def subfolders(folder: str) -> list[str]:
    """Return the names of the folders in a folder; none if it is gone."""
    try:
        return _listed(folder)
    except OSError:
        return []


def _v1_steps(there: Cap, cap: Cap) -> list[tuple[Literal["quota", "period"], int]]:
    """Return single writes that lead from one cap to the other. None of them is refused.

    A share between the two is valid for parent and children, because both ends are. If both orders leave that range,
    the steps include "no quota". v1 always accepts it, and the parent limits the group for these microseconds.
    """
    if cap.quota is None:
        return [("quota", -1), ("period", cap.period)]
    if there.quota is None:
        return [("period", cap.period), ("quota", cap.quota)]
    if there.period == cap.period:
        return [("quota", cap.quota)]
    low, high = sorted((there.share, cap.share))
    if low <= cap.quota / there.period <= high:
        return [("quota", cap.quota), ("period", cap.period)]
    if low <= there.quota / cap.period <= high:
        return [("period", cap.period), ("quota", cap.quota)]
    return [("quota", -1), ("period", cap.period), ("quota", cap.quota)]
