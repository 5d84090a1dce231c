"""Which statuses a term has read since its stamp, and what it therefore may decide about.

The takeover and the late reads write here; jobs, pools and reservations ask before they decide. A status that was not
read may hold an earlier leader's promise: its object would look undecided.
"""

from dataclasses import dataclass, field
from typing import Final

import structlog

from punctual import reasons
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import KnownJob
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.translate import undecided
from punctual.scheduling.model.pool_spec import PoolRecord

SAME_TIME: Final = 2.0
"""Maximum seconds between the API server's clock as it is known here and the creation time of an object."""
RETRY: Final = 30.0
"""Seconds between tries to write the status of a pool that is stopped."""
EDGE: Final = frozenset({
    reasons.NOT_ALLOWED, reasons.PROFILE_NOT_FOUND, reasons.POD_REFUSED, reasons.RESERVATION_NOT_FOUND,
    reasons.RESERVATION_REFUSED, reasons.POD_TOO_LARGE,
})  # fmt: skip
"""Reasons of refusals by the admission gate. The Pool refuses for want of processors."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Statuses:
    """What is known about statuses. Jobs, reservations and pools are given by uid, if nothing else is said."""

    begun: float
    """When the takeover began, on the API server's clock. It moves on while the time is in doubt."""
    recorder: EventRecorder
    read: set[str] = field(default_factory=set)
    """Jobs, reservations and target rates with a status that was read."""
    aside: dict[str, str] = field(default_factory=dict)
    """Settled and oversized jobs that were neither stamped nor read, with the reason why they are settled, if they are.
    """
    left_alone: set[str] = field(default_factory=set)
    """Objects with a status that cannot be read or written. Nothing is decided about them until they are edited."""
    unstamped: set[str] = field(default_factory=set)
    """Pools (name) with a status that could not be stamped. They are not led until it can."""
    pool_records: dict[str, PoolRecord | None] = field(default_factory=dict)
    """The records of pools that are still to be started."""
    gone: set[str] = field(default_factory=set)
    """Jobs, pools, reservations and target rates that were deleted in this term. A list may still contain them."""

    def must_read(self, known: KnownJob) -> bool:
        """Return whether an earlier leader may have written about a job what was not read yet."""
        uid = known.owner.uid
        if uid in self.aside:
            return True
        return uid not in self.read and (known.epoch != 0 or known.created <= self.begun + SAME_TIME)

    def forget_job(self, uid: str) -> None:
        """Remove a job that is gone."""
        self.read.discard(uid)
        self.aside.pop(uid, None)

    def refused_at_edge(self, known: KnownJob) -> bool:
        """Return whether a job was refused by the admission gate, not for want of processors."""
        verdict = known.term.record.admitted if known.term.record else None
        return (self.aside.get(known.owner.uid) or (verdict.reason if verdict else "")) in EDGE

    def depends_on_others(self, known: KnownJob) -> bool:
        """Return whether a change of its pool, profile or reservation may change a job's answer."""
        if why := self.aside.get(known.owner.uid):
            return why in EDGE or why == reasons.POOL_NOT_FOUND
        return undecided(known.term.record) or self.refused_at_edge(known)

    def leave_alone(self, body: Json, text: str) -> None:
        """Decide nothing about an object until it is edited, or about a pool until it can be stamped."""
        self.left_alone.add(body["metadata"]["uid"])
        if body["kind"] == "Pool":
            self.report_stopped(Regarding.of(body), text)
        else:
            self.report_unreadable(body, text)

    def report_unreadable(self, body: Json, text: str) -> None:
        """Report that the status of an object cannot be read or written."""
        log.error("status_unreadable", kind=body["kind"], name=body["metadata"]["name"], error=text)
        self.recorder.emit(Regarding.of(body), "Warning", reasons.STATUS_UNREADABLE, text)

    def report_stopped(self, pool: Regarding, why: str) -> None:
        """Report that nothing is decided in a pool."""
        log.error("pool_stopped", pool=pool.name, error=why)
        text = f"{why}; nothing is decided in this pool until it can be written, which is tried every {RETRY:.0f} s"
        self.recorder.emit(pool, "Warning", reasons.POOL_STOPPED, text)
