"""Applies CPU caps to pods: writes a cap where it differs, and detects changes that another program made.

The agent uses it each second, and so does the watchdog. It needs the standard library only. One process per node
writes: the one that holds the :class:`NodeLock`. This module does not decide which cap a pod gets.
"""

import contextlib
import fcntl
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from punctual_agent.cgroup import Cap, CgroupError, Hierarchy, Use, VanishedError, Weight


@dataclass(slots=True)
class Held:
    """The result of one pass over one pod."""

    found: bool = False
    cap: Cap | None = None
    """The cap in force after the pass: the smaller of the pod's cap and the largest container cap."""
    caps: dict[str, Cap] = field(default_factory=dict)
    """The cap of each folder, the pod's first."""
    narrowed: bool = True
    """The pod's own folder may be narrowed. False: it is one of v1."""
    weight: Weight | None = None
    """The weight of the pod's folder. None: it was not read."""
    use: Use | None = None
    drift: int = 0
    """The number of cgroup folders that another program changed since the previous pass."""
    writes: Counter[str] = field(default_factory=Counter)
    """Write attempts by result: written, refused, denied, vanished, failed."""
    error: str | None = None
    """The last failed write of a cap or of a CPU priority, and the kernel's error."""
    trouble: str | None = None
    """The same of a memory mark or a disk priority. They are not written at each look."""

    @property
    def folder(self) -> str:
        """The pod's folder. Empty: it was not found."""
        return next(iter(self.caps), "")

    @property
    def names(self) -> dict[str, Cap]:
        """The caps by the folders' names below the pod's folder, which itself has an empty name.

        A pod's folder on v1 is left out, because it is never narrowed.
        """
        pod = self.folder
        return {folder.removeprefix(pod): cap for folder, cap in self.caps.items() if self.narrowed or folder != pod}


class Actuator:
    """Applies the caps of one node's pods."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self._writing = threading.Lock()
        self._folder: dict[str, str] = {}
        self._asserted: dict[str, dict[str, Cap]] = {}
        self._lowered: set[str] = set()

    def hold(self, uid: str, cap: Cap | None) -> Held:
        """Bring a pod to the cap and read its CPU use. With None, the pod is only read."""
        held = self.read(uid)
        if cap is not None:
            self.write(uid, cap, held)
        return held

    def read(self, uid: str) -> Held:
        """Read a pod's caps and its CPU use.

        A pod without a cgroup gives ``found=False``. A pod that vanishes meanwhile does too.
        """
        held = Held(narrowed=self.hierarchy.version == "v2")
        folder = self._folder.get(uid) or self.hierarchy.find(uid)
        if folder is None:
            return held
        self._folder[uid] = folder
        try:
            with self._writing:  # v1 takes a cap in steps
                held.caps = self.hierarchy.caps(folder)
            held.use = self.hierarchy.use(folder, list(held.caps)[1:])
        except VanishedError:
            self._vanished(uid, held)
            return held
        held.found = True
        held.cap = _in_force(held.caps)
        return held

    def write(self, uid: str, cap: Cap, held: Held) -> None:
        """Bring a pod that was just read to the cap. A pod that vanished meanwhile is counted as such."""
        if not held.found:
            return
        try:
            self._assert(uid, held.caps, cap, held)
        except VanishedError:
            self._vanished(uid, held)
            return
        held.cap = _in_force(held.caps)

    def lower(self, uid: str, held: Held) -> None:
        """Give a pod that was just read the lowest CPU priority."""
        if not held.found:
            return
        try:
            written = self.hierarchy.lower(self._folder[uid])
        except VanishedError:
            self._vanished(uid, held)
        except CgroupError as error:
            held.writes[error.kind] += 1
            held.error = str(error)
        else:
            held.writes["written"] += written
            held.drift += written and uid in self._lowered
            self._lowered.add(uid)

    def keep(self, wanted: Mapping[str, Cap], held: Held) -> Mapping[str, Cap]:
        """Bring a user's own pod that was just read to the cap of each folder. Returns what the folders have then.

        On v1 the pod's own folder is left alone: there it is only ever widened, and an application's never above its
        limit.
        """
        if not held.found:
            return {}
        pod = held.folder
        caps = {pod: held.caps[pod], **{pod + name: cap for name, cap in wanted.items()}}
        for folder in self.hierarchy.targets(held.caps, caps[pod]):
            if not self._set(folder, caps[folder], held):
                # v1 takes a cap in steps, of which some may have been taken: that is no limit
                with contextlib.suppress(CgroupError):
                    held.caps[folder] = self.hierarchy.cap(folder)
        held.cap = _in_force(held.caps)
        return held.names

    def weigh(self, uid: str, held: Held, weight: int | None = None) -> None:
        """Read the weight of a pod that was just read, after bringing it to another one."""
        if not held.found:
            return
        folder = self._folder[uid]
        try:
            if weight is not None and (held.weight is None or held.weight.value != weight):
                self.hierarchy.set_weight(folder, weight)
                held.writes["written"] += 1
            held.weight = self.hierarchy.weight(folder)
        except VanishedError:
            self._vanished(uid, held)
        except CgroupError as error:
            held.writes[error.kind] += 1
            held.error = str(error)

    def swap(self, folder: str, there: Cap, cap: Cap) -> bool:
        """Replace one cap of a folder by another. Returns False if the folder has a third one, or refuses it.

        Any thread may call it.
        """
        with self._writing, contextlib.suppress(CgroupError):
            if self.hierarchy.cap(folder) == there:
                self.hierarchy.set_cap(folder, cap, there=there)
                return True
        return False

    def forget(self, uid: str) -> None:
        """Remove a pod's cached state."""
        if folder := self._folder.pop(uid, None):
            self.hierarchy.forget(folder)
        self._asserted.pop(uid, None)
        self._lowered.discard(uid)

    def _vanished(self, uid: str, held: Held) -> None:
        """Note that a pod has gone between two accesses."""
        held.writes["vanished"] += 1
        held.found = False
        self.forget(uid)

    def _assert(self, uid: str, caps: dict[str, Cap], cap: Cap, held: Held) -> None:
        before = self._asserted.get(uid, {})
        asserted: dict[str, Cap] = {}
        for folder in self.hierarchy.targets(caps, cap):
            held.drift += folder in before and caps[folder] != before[folder]
            if self._set(folder, cap, held):
                asserted[folder] = cap
        self._asserted[uid] = asserted

    def _set(self, folder: str, cap: Cap, held: Held) -> bool:
        """Bring one folder to a cap. Returns whether it has it now."""
        if held.caps[folder] == cap:
            return True
        try:
            with self._writing:  # since the last read, a move of slices may have changed the period
                self.hierarchy.set_cap(folder, cap, there=self.hierarchy.cap(folder))
        except CgroupError as error:
            held.writes[error.kind] += 1
            if not isinstance(error, VanishedError):  # a container that ended is not an error
                held.error = str(error)
            return False
        held.writes["written"] += 1
        held.caps[folder] = cap
        return True


def _in_force(caps: dict[str, Cap]) -> Cap | None:
    pod, *containers = caps.values()
    inner = max(containers, key=lambda cap: cap.share, default=pod)
    least = min(pod, inner, key=lambda cap: cap.share)
    return None if least.quota is None else least


class NodeLock:
    """The right to write caps on this node. At most one process holds it.

    It is an flock on the hierarchy's root. Every mount of the root on the node is the same inode, so the agents of two
    pods (an old and a new one) exclude each other. The kernel releases the lock when its process ends, even by SIGKILL.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._path = hierarchy.cpu
        self._handle: int | None = None

    def take(self) -> bool:
        """Return whether this process holds the lock now. The call never waits."""
        if self._handle is not None:
            return True
        handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        """Release the lock. The call has no effect if the lock is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def once(self) -> Iterator[bool]:
        """Hold the lock for one pass. Yields whether the lock could be taken."""
        try:
            yield self.take()
        finally:
            self.release()
