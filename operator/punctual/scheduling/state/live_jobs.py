"""The jobs that planning and dispatch must consider, and indices of the few of them that need more than that."""

from collections.abc import Iterator
from typing import Self

from punctual.scheduling.model.node_rules import ANY_NODE
from punctual.scheduling.state.job_state import JobState


class LiveJobs(dict[str, JobState]):
    """Jobs by uid. Few have rules about nodes, and few have no promise, so these are indexed.

    Set an entry again when its rules have changed, and report jobs with a record that may have changed.
    """

    __slots__ = ("ruled", "unsettled")

    def __init__(self) -> None:
        super().__init__()
        self.ruled: dict[str, None] = {}
        self.unsettled: dict[str, None] = {}
        """Jobs that may have no promise: each becomes promised, or stays here."""

    def __setitem__(self, uid: str, st: JobState) -> None:
        super().__setitem__(uid, st)
        self.unsettled[uid] = None
        if st.job.rules == ANY_NODE:
            self.ruled.pop(uid, None)
        else:
            self.ruled[uid] = None

    def drop(self, uid: str) -> None:
        """Remove a job, if it is there."""
        self.pop(uid, None)
        self.ruled.pop(uid, None)
        self.unsettled.pop(uid, None)

    def plus(self, st: JobState) -> Self:
        """Return a copy with another state of one job."""
        new = type(self)()
        new.update(self)
        new.ruled.update(self.ruled)
        new.unsettled.update(self.unsettled)
        new[st.job.uid] = st
        return new

    def changed(self, uid: str) -> None:
        """Note that the record of a job, which may be one of these, may have changed."""
        if uid in self:
            self.unsettled[uid] = None

    def unpromised(self) -> list[JobState]:
        """Return the jobs without a promise that a plan must keep."""
        found = [self[uid] for uid in self.unsettled]
        left = [st for st in found if st.state != "Promised"]
        self.unsettled = {st.job.uid: None for st in left}
        return left

    def with_rules(self) -> Iterator[JobState]:
        """Yield the jobs with rules about nodes."""
        return (self[uid] for uid in self.ruled)
