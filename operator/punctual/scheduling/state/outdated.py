"""Invalidation: what a step must make, create or write again, because something that it was made from has changed.

Each verb names a kind of change. What follows from the change is decided here, once. Nothing here knows a clock or an
object: a stage reports what has changed, and other stages read what is outdated.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outdated:
    """Results of earlier steps that no longer hold."""

    schedule: bool = False
    """The schedule may be suboptimal or no longer valid."""
    causes: dict[str, str] = field(default_factory=dict)
    """Job uid -> reason: jobs that made the schedule outdated themselves."""
    pods: bool = False
    """A restore has just happened: pods that were not seen must be created (again)."""
    record: bool = True
    """The pool's own record may have changed, or a processor may be free."""

    def capacity_changed(self) -> None:
        """Note that processors have come, gone, or changed their speed, or are reserved for others."""
        self.schedule = True

    def work_changed(self) -> None:
        """Note that units have to be computed again, or no longer have to be."""
        self.schedule = True

    def times_changed(self) -> None:
        """Note that running work or a transfer ends at another time than planned."""
        self.schedule = True

    def caused_by(self, uid: str, reason: str) -> None:
        """Note that a job itself is the cause: it comes first if promises must be given up. The first reason counts."""
        self.causes.setdefault(uid, reason)

    def taken_over(self) -> None:
        """Note that records of an earlier leader were read: nothing is planned yet, and pods may be missing."""
        self.schedule = self.pods = True

    def pods_created(self) -> None:
        """Note that every recorded chunk has a pod, or one is being created."""
        self.pods = False

    def record_changed(self) -> None:
        """Note that the pool's record may have to be written."""
        self.record = True

    def scheduled(self) -> None:
        """Note that a new schedule is being made."""
        self.schedule = False
        self.record = True

    def recorded(self) -> bool:
        """Note that the pool's record is being written; return whether it may have changed."""
        was, self.record = self.record, False
        return was
