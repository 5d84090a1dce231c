"""The jobs that planning and dispatch must consider, and those of them with rules about nodes."""

from collections.abc import Iterator
from typing import Self

from punctual.scheduling.model.node_rules import ANY_NODE
from punctual.scheduling.state.job_state import JobState


class LiveJobs(dict[str, JobState]):
    """Jobs by uid. Few have rules about nodes, so these are indexed. Set an entry again when its rules have changed."""

    __slots__ = ("ruled",)

    def __init__(self) -> None:
        super().__init__()
        self.ruled: dict[str, None] = {}

    def __setitem__(self, uid: str, st: JobState) -> None:
        super().__setitem__(uid, st)
        if st.job.rules == ANY_NODE:
            self.ruled.pop(uid, None)
        else:
            self.ruled[uid] = None

    def drop(self, uid: str) -> None:
        """Remove a job, if it is there."""
        self.pop(uid, None)
        self.ruled.pop(uid, None)

    def plus(self, st: JobState) -> Self:
        """Return a copy with another state of one job."""
        new = type(self)()
        new.update(self)
        new.ruled.update(self.ruled)
        new[st.job.uid] = st
        return new

    def with_rules(self) -> Iterator[JobState]:
        """Yield the jobs with rules about nodes."""
        return (self[uid] for uid in self.ruled)
