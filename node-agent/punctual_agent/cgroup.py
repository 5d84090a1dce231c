"""The caps of pods: finds a pod's cgroup on v1 and v2, reads and writes its CPU cap and counters.

Called by the agent each second and by the watchdog when the agent is gone; standard library only, because
the watchdog is small and because the tests run where nothing else is installed.

A cap is one value, quota and period together: a quota written beside whatever period was there gives a
group with a period of 20 ms five times what was meant. Values are compared as numbers, not as text, else
"50000" and "50000 100000" would be rewritten for ever.

Where a cap goes (:meth:`Hierarchy.targets`):

- every container of the pod gets the told cap: the one that has a limit follows it, and one more container
  never gets more than the pod was told;
- on v2 the pod's folder gets it too, so the cap holds for the pod as a whole;
- on v1 the pod's folder is only ever widened. A child's quota above its parent's is refused there, and that
  includes the limit of a container that is still to be created: a pod narrowed while its input step runs
  would end its main container in StartError.

Order: widen parent before child, narrow child before parent (v1 refuses the other way, v2 caps silently).

Never written: anything above a pod's folder. Quality-of-service folders belong to kubelet and systemd.

A cgroup that vanished (the pod ended) is no failure: it is :class:`VanishedError`, which callers count.
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
from typing import Final, Literal, Self

ROOT: Final = "/sys/fs/cgroup"
DEFAULT_PERIOD: Final = 100_000
"""The kernel's period in microseconds, also that of a folder without a cap."""
MIN_QUOTA: Final = 1_000
MAX_PERIOD: Final = 1_000_000
"""Kernel limits in microseconds (kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period)."""

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_KUBEPODS: Final = re.compile(r"(?:[\w.]+-)?kubepods(?:\.slice)?")  # kubelet-kubepods.slice below /kubelet
_QOS: Final = ("", "burstable", "besteffort")
_DEPTH: Final = 5  # /docker/<id>/kubelet/kubepods is four below the root
_FOLDERS: Final = 20_000  # looked at in one search, no more
_MANY: Final = 8_192
_SEARCH_EVERY: Final = 10.0  # seconds between searches for roots while pods are not found

Driver = Literal["cgroupfs", "systemd"]
Version = Literal["v1", "v2"]


class CgroupError(Exception):
    """A read or write the kernel did not accept; ``kind`` is a word for counters."""

    def __init__(self, message: str, kind: str = "failed") -> None:
        super().__init__(message)
        self.kind = kind


class VanishedError(CgroupError):
    """The folder is gone: its pod ended. To be counted and otherwise ignored."""

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
    """At most ``quota`` microseconds of CPU per ``period`` microseconds; a quota of None is no cap."""

    quota: int | None
    period: int = DEFAULT_PERIOD

    @classmethod
    def of(cls, cores: float, period: float) -> Self:
        """Cap of so many cores with a period in seconds.

        The kernel takes no quota below 1 ms: where the share asks for less, the period grows to keep the share
        as far as 1 s goes.
        """
        micros = round(period * 1e6)
        quota = round(cores * micros)
        if quota < MIN_QUOTA:
            micros = round(MIN_QUOTA / cores) if cores * MAX_PERIOD > MIN_QUOTA else MAX_PERIOD
            quota = MIN_QUOTA
        return cls(quota, micros)

    @property
    def cores(self) -> float | None:
        """The share in cores; None without a cap."""
        return None if self.quota is None else self.quota / self.period

    @property
    def share(self) -> float:
        """The share, without a cap infinite. Comparing is exact: equal fractions of such numbers are equal floats."""
        return float("inf") if self.quota is None else self.quota / self.period


@dataclass(frozen=True, slots=True)
class Use:
    """Counters since a folder was made, seconds."""

    cpu: float
    throttled: float


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What the cgroup root and /proc tell of the node: seconds, bytes, per cent (None: kernel without PSI)."""

    cpu: float
    memory: int
    pressure: float | None


def valid_uid(uid: str) -> bool:
    """Whether this can be a pod's uid: what is not must never become part of a path."""
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


def _write(path: str, text: str) -> None:
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


def _keyed(text: str, key: str) -> int:
    """Value of a line "key number"; 0 where the kernel does not tell."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _pressure(text: str) -> float | None:
    found = re.search(r"^some avg10=([0-9.]+)", text, re.MULTILINE)
    return min(float(found[1]), 100.0) if found else None


class _Kept:
    """Files of pods, kept open: reading one again costs a tenth of opening it, and a pod has ten to read each second.

    At most half of what the process may open is kept; what is more is opened each time.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, int]] = {}
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = most // 2 if most != resource.RLIM_INFINITY else _MANY

    def of(self, pod: str) -> Callable[[str], str]:
        """Give a reader of this pod's files; it raises as ``_read`` does."""
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
    """One node's CPU hierarchy below ``root``; folders are absolute paths in its ``cpu`` tree.

    Raises CgroupError where no such hierarchy is mounted.
    """

    def __init__(self, root: str = ROOT, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._kubepods: list[str] = []
        self._searched = float("-inf")
        self._kept = _Kept()
        self.version: Version
        if "cpu" in self._controllers():
            self.version, self.cpu, self.accounting = "v2", root, root
            self.memory = root
            return
        for name in ("cpu", "cpu,cpuacct"):
            if os.path.exists(os.path.join(root, name, "cgroup.procs")):  # noqa: PTH110, PTH118  hot module, paths are strings
                self.version, self.cpu = "v1", f"{root}/{name}"
                break
        else:
            raise CgroupError(f"{root}: neither a v2 hierarchy with the cpu controller nor v1's cpu below it")
        together = os.path.exists(f"{self.cpu}/cpuacct.usage")  # noqa: PTH110
        self.accounting = self.cpu if together else f"{root}/cpuacct"
        self.memory = f"{root}/memory"

    def _controllers(self) -> list[str]:
        try:
            return _read(f"{self.root}/cgroup.controllers").split()
        except CgroupError:
            return []

    # -- finding

    def find(self, uid: str) -> str | None:
        """Folder of the pod, None if there is none (not yet, or not any more).

        Tries the few names it can have below each ``kubepods``; searches for those again when it is not found, at
        most every ten seconds.
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
        """Look for every ``kubepods`` at most five below the root; whether that told something new."""
        now = self._clock()
        if now - self._searched < _SEARCH_EVERY:
            return False
        self._searched = now
        before, self._kubepods = self._kubepods, []
        waiting = deque([(self.cpu, 0)])
        seen = 0
        while waiting and seen < _FOLDERS:
            folder, depth = waiting.popleft()
            for name in _subfolders(folder):
                seen += 1
                if _KUBEPODS.fullmatch(name):
                    self._kubepods.append(f"{folder}/{name}")
                elif depth + 1 < _DEPTH:
                    waiting.append((f"{folder}/{name}", depth + 1))
        return self._kubepods != before

    @property
    def driver(self) -> Driver:
        """Who made the folders: systemd names them slices."""
        if not self._kubepods:
            self._search()
        return "systemd" if any(base.endswith(".slice") for base in self._kubepods) else "cgroupfs"

    def containers(self, pod: str) -> list[str]:
        """List the container folders of a pod by name (the sandbox is one of them). Raises VanishedError."""
        try:
            return [f"{pod}/{name}" for name in sorted(_listed(pod))]
        except OSError as error:
            raise _translated(error, pod) from error

    # -- reading

    def cap(self, folder: str) -> Cap:
        """Read the cap in force on one folder. Raises VanishedError."""
        return self._cap(folder, _read)

    def _cap(self, folder: str, read: Callable[[str], str]) -> Cap:
        if self.version == "v2":
            most, _, period = read(f"{folder}/cpu.max").strip().partition(" ")
            return Cap(None if most == "max" else int(most), int(period or DEFAULT_PERIOD))
        quota = int(read(f"{folder}/cpu.cfs_quota_us"))
        return Cap(quota if quota >= 0 else None, int(read(f"{folder}/cpu.cfs_period_us")))

    def caps(self, pod: str) -> dict[str, Cap]:
        """Caps of a pod's folder and of its containers', the pod first. Raises VanishedError if the pod is gone."""
        containers = self.containers(pod)
        read = self._kept.of(pod)
        found = {pod: self._cap(pod, read)}
        for container in containers:
            with contextlib.suppress(VanishedError):  # a container that ends is no news
                found[container] = self._cap(container, read)
        return found

    def use(self, pod: str, containers: Iterable[str]) -> Use:
        """CPU used by the pod, and how long it or its containers stood throttled. Raises VanishedError.

        Throttling is counted by the folder whose quota ran out, so pod and containers are added up.
        """
        read = self._kept.of(pod)
        counters = read(f"{pod}/cpu.stat")
        if self.version == "v2":
            cpu, key, scale = _keyed(counters, "usage_usec") / 1e6, "throttled_usec", 1e6
        else:
            usage = read(f"{self.accounting}{pod.removeprefix(self.cpu)}/cpuacct.usage")
            cpu, key, scale = int(usage) / 1e9, "throttled_time", 1e9
        throttled = _keyed(counters, key)
        for container in containers:
            with contextlib.suppress(VanishedError):
                throttled += _keyed(read(f"{container}/cpu.stat"), key)
        return Use(cpu, throttled / scale)

    def forget(self, pod: str) -> None:
        """Close what is kept open of a pod."""
        self._kept.drop(pod)

    def node(self) -> NodeUse:
        """Read the node's counters; what the kernel does not tell is 0 or None."""
        if self.version == "v2":
            cpu = _keyed(_read(f"{self.root}/cpu.stat"), "usage_usec") / 1e6
        else:
            cpu = int(_read(f"{self.accounting}/cpuacct.usage")) / 1e9
        return NodeUse(cpu, self._memory(), self._node_pressure())

    def _memory(self) -> int:
        # the root of the machine has no memory.current; a node that is a container has
        for name in ("memory.current", "memory.usage_in_bytes"):
            try:
                return int(_read(f"{self.memory}/{name}"))
            except CgroupError:
                continue
        try:
            lines = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
            return 1024 * (int(lines["MemTotal"].split()[0]) - int(lines["MemAvailable"].split()[0]))
        except (CgroupError, KeyError):
            return 0

    def _node_pressure(self) -> float | None:
        for path in (f"{self.root}/cpu.pressure", "/proc/pressure/cpu"):
            try:
                return _pressure(_read(path))
            except CgroupError:
                continue
        return None

    @property
    def writable(self) -> bool:
        """Whether caps can be written: the mount is not read-only and its files are ours to write."""
        try:
            mounted = os.statvfs(self.cpu)
        except OSError:
            return False
        return not mounted.f_flag & os.ST_RDONLY and os.access(self.cpu, os.W_OK)

    # -- writing

    def targets(self, there: Mapping[str, Cap], cap: Cap) -> list[str]:
        """Which of a pod's folders (see :meth:`caps`) get the cap, in the order in which no write is refused."""
        pod, *containers = there
        if cap.share > there[pod].share:
            return [pod, *containers]
        return containers if self.version == "v1" else [*containers, pod]

    def set_cap(self, folder: str, cap: Cap, *, there: Cap) -> None:
        """Bring one folder from the cap that is there to another.

        Raises CgroupError ("refused": the parent has less or a child more; "denied": not ours to write) and
        VanishedError.
        """
        self._drop_burst(folder)
        if self.version == "v2":
            _write(f"{folder}/cpu.max", f"{'max' if cap.quota is None else cap.quota} {cap.period}")
            return
        for name, value in _v1_steps(there, cap):
            _write(f"{folder}/cpu.cfs_{name}_us", str(value))

    def _drop_burst(self, folder: str) -> None:
        """Burst goes first: a quota below it is refused, and saved-up time would exceed the cap."""
        name = "cpu.max.burst" if self.version == "v2" else "cpu.cfs_burst_us"
        try:
            burst = int(_read(f"{folder}/{name}"))
        except VanishedError:  # kernels before 5.14 have none
            return
        if burst:
            _write(f"{folder}/{name}", "0")


def _pod_folders(base: str, uid: str) -> list[str]:
    """Give the names a pod's folder can have below one ``kubepods``."""
    if not base.endswith(".slice"):
        return [f"{base}/{qos}/pod{uid}" if qos else f"{base}/pod{uid}" for qos in _QOS]
    prefix = base.rpartition("/")[2].removesuffix(".slice")
    unit = uid.replace("-", "_")
    return [
        f"{base}/{prefix}-{qos}.slice/{prefix}-{qos}-pod{unit}.slice" if qos else f"{base}/{prefix}-pod{unit}.slice"
        for qos in _QOS
    ]


def _listed(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _subfolders(folder: str) -> list[str]:
    try:
        return _listed(folder)
    except OSError:
        return []


def _v1_steps(there: Cap, cap: Cap) -> list[tuple[Literal["quota", "period"], int]]:
    """Single writes that lead from one cap to the other, none of them refused.

    A share between the two is fine with parent and children, as both ends are. Where neither order stays between
    them, it goes by "no quota", which v1 always takes and which the parent bounds for these microseconds.
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
