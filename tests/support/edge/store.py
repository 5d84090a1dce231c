"""Objects by path, with versions, and the history that watches follow. One store is one etcd.

Bodies are never changed in place: a reader may keep one. ``written`` is called for each change, in order.
"""

import bisect
import collections
from dataclasses import dataclass, field


@dataclass(slots=True)
class Event:
    """One change. ``body`` of a deletion is the last state, with the version of the deletion."""

    version: int
    change: str
    path: str
    body: dict
    before: dict | None


@dataclass(slots=True)
class Compacted(Exception):  # noqa: N818  an answer, not an error of the program
    """Changes since this version are no longer known."""

    version: int = 0


@dataclass
class Store:
    """``objects``: by path."""

    objects: dict = field(default_factory=dict)
    version: int = 1
    compacted: int = 0
    """Versions up to this one are forgotten."""

    def __post_init__(self):
        self.history = collections.defaultdict(list)  # by resource path, events in order of their versions
        self.watching = collections.defaultdict(dict)  # by resource path: ordered callbacks
        self.written = []

    def next(self):
        """Return the version of the next write."""
        self.version += 1
        return self.version

    def put(self, resource, path, body):
        """Store a body that has a version of its own already."""
        before = self.objects.get(path)
        self.objects[path] = body
        version = int(body["metadata"]["resourceVersion"])
        self._tell(resource, Event(version, "MODIFIED" if before else "ADDED", path, body, before))

    def remove(self, resource, path, body):
        """Remove an object. ``body``: its last state, with the deletion's version."""
        before = self.objects.pop(path)
        self._tell(resource, Event(int(body["metadata"]["resourceVersion"]), "DELETED", path, body, before))

    def _tell(self, resource, event):
        self.history[resource].append(event)
        for written in self.written:
            written(resource, event)
        for callback in tuple(self.watching[resource]):
            callback(event)

    def since(self, resource, version):
        """Return the changes of a resource after a version. Raises Compacted."""
        if version < self.compacted:
            raise Compacted(self.compacted)
        events = self.history[resource]
        return events[bisect.bisect_right(events, version, key=lambda event: event.version) :]

    def set_back(self, version, *, bump=0):
        """Have this version again, as a store that was restored. ``bump``: versions go on so far above it."""
        self.version = version + bump
        self.compact()

    def compact(self):
        """Forget the history so far."""
        self.compacted = self.version
        for events in self.history.values():
            events.clear()
