"""Holds pods at their caps: writes what differs, and knows what it wrote, so that it sees who else writes.

Used by the agent each second and by the watchdog; standard library only. One writer per node: whoever holds the
:class:`NodeLock`. Nothing here decides what a cap should be.
"""

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from punctual_agent.cgroup import Cap, CgroupError, Hierarchy, Use, VanishedError


@dataclass(slots=True)
class Held:
    """One pass over one pod."""

    found: bool = False
    cap: Cap | None = None
    """The cap in force afterwards: the least on the way down to the container that may use most."""
    use: Use | None = None
    drift: int = 0
    """Folders that something else had changed since our last pass."""
    writes: Counter[str] = field(default_factory=Counter)
    """By result: written, refused, denied, vanished, failed."""
    error: str | None = None
    """What the last write that failed was and what the kernel said."""


class Actuator:
    """The caps of one node's pods."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self._folder: dict[str, str] = {}
        self._asserted: dict[str, dict[str, Cap]] = {}

    def hold(self, uid: str, cap: Cap | None) -> Held:
        """Bring a pod to the cap (None: only look) and read what it used.

        A pod without a cgroup gives ``found=False``; one that vanishes half-way too, with a write counted as vanished.
        """
        held = Held()
        folder = self._folder.get(uid) or self.hierarchy.find(uid)
        if folder is None:
            return held
        self._folder[uid] = folder
        try:
            caps = self.hierarchy.caps(folder)
            if cap is not None:
                self._assert(uid, caps, cap, held)
            held.use = self.hierarchy.use(folder, list(caps)[1:])
        except VanishedError:
            held.writes["vanished"] += 1
            self.forget(uid)
            return held
        held.found = True
        held.cap = _in_force(caps)
        return held

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a pod."""
        if folder := self._folder.pop(uid, None):
            self.hierarchy.forget(folder)
        self._asserted.pop(uid, None)

    def _assert(self, uid: str, caps: dict[str, Cap], cap: Cap, held: Held) -> None:
        before = self._asserted.get(uid, {})
        asserted: dict[str, Cap] = {}
        for folder in self.hierarchy.targets(caps, cap):
            there = caps[folder]
            held.drift += folder in before and there != before[folder]
            try:
                if there != cap:
                    self.hierarchy.set_cap(folder, cap, there=there)
                    held.writes["written"] += 1
                caps[folder] = asserted[folder] = cap
            except CgroupError as error:
                held.writes[error.kind] += 1
                if not isinstance(error, VanishedError):  # a container that ended is no news
                    held.error = str(error)
        self._asserted[uid] = asserted


def _in_force(caps: dict[str, Cap]) -> Cap | None:
    pod, *containers = caps.values()
    inner = max(containers, key=lambda cap: cap.share, default=pod)
    least = min(pod, inner, key=lambda cap: cap.share)
    return None if least.quota is None else least


class NodeLock:
    """The right to write caps on this node, held by at most one process.

    It is an flock on the hierarchy's own root: every mount of it on the node is the same inode, so agents of two pods
    (one going, one coming) exclude each other, and the kernel frees it when its holder dies, however it dies.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._path = hierarchy.cpu
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether this process holds the lock now; never waits."""
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
        """Give it back; harmless where it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def once(self) -> Iterator[bool]:
        """Hold it for one pass; yields whether it could be had."""
        try:
            yield self.take()
        finally:
            self.release()
