"""What a term does for the objects of one kind, whatever the kind: `Kind`.

An object's way is the same for all. At the takeover it is put aside, or stamped and restored. Each change of it, and
each `Signal` that touches it, leads to `consider`, but not before it was read (`must_read`). The loop over all kinds
is in `punctual.kube.leader.kinds`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from punctual import reasons
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.known.store import Known, Signal, Store
from punctual.kube.writes.operations import Outcome, PutStatus

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Known)


class Kind(Generic[K]):
    """One of Punctual's kinds, for one term. Methods that a kind does not need do nothing here."""

    carries_out: tuple[type, ...] = ()
    """The types of those actions of a Pool that this kind carries out."""
    unfinished = ""
    """Selects the objects with something left to be done, if the API server can select them."""
    stamped = True
    """Whether its statuses carry the epoch."""
    batched = False
    """Whether the objects that signals touch are considered with the next tick: many come at once."""

    def __init__(self, store: Store[K], recorder: EventRecorder) -> None:
        self.store = store
        self.recorder = recorder

    # takeover

    def put_aside(self, uid: str, body: Json | None) -> bool:
        """Return whether an object is neither stamped nor read now. Without a body: ``unfinished`` leaves it out."""
        return uid in self.store.gone

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read what an earlier leader has left. ``unwritable``: why the object could not be stamped."""
        raise NotImplementedError

    def taken(self, body: Json, unwritable: str) -> K | None:
        """Take in a body that was stamped. Returns the object if its status is to be read."""
        uid = body["metadata"]["uid"]
        if uid in self.store.gone:
            return None
        self.store.observe(body)
        if (known := self.store.get(uid)) is None:
            return None
        known.term.read, known.term.aside = True, None
        if unwritable:
            self.leave_alone(known, body, unwritable)
            return None
        return known

    def leave_alone(self, known: K, body: Json, why: str) -> None:
        """Decide nothing about an object until it is edited."""
        known.term.left_alone = True
        self.report_unreadable(body, why)

    def report_unreadable(self, body: Json, text: str) -> None:
        """Report that the status of an object cannot be read or written."""
        log.error("status_unreadable", kind=body["kind"], name=body["metadata"]["name"], error=text)
        self.recorder.emit(Regarding.of(body), "Warning", reasons.STATUS_UNREADABLE, text)

    def begin(self) -> Iterable[K]:
        """Begin to decide: the takeover is done. Returns the objects to be considered."""
        return list(self.store.values())

    def is_due(self, known: K) -> bool:
        """Return whether an object that was put aside is to be read now, though nothing has changed about it."""
        return True

    def recorded(self, pool: str) -> Sequence[Any]:
        """Return the events from which a Pool (name) that starts knows what it has decided about these objects."""
        return ()

    # changes

    def edited(self, known: K) -> None:
        """Take in that an object is new, edited or being deleted. It is considered next, if the term decides."""
        known.term.left_alone = False

    def must_read(self, known: K) -> bool:
        """Return whether an earlier leader may have written about an object what was not read yet."""
        return not known.term.read

    def found(self, known: K, *, aside: bool) -> None:
        """Take in that an object was read after the takeover, and considered. ``aside``: it was put aside."""

    def consider(self, known: K) -> None:
        """Do what follows from how an object is now."""

    def gone(self, known: K) -> None:
        """Take in that an object is gone."""

    def touched_by(self, signal: Signal) -> Iterable[K]:
        """Return the objects to be considered because of a signal."""
        return ()

    # what was decided

    def carry_out(self, pool: str, action: Any) -> None:
        """Carry out an action of a Pool (name). Its type is in ``carries_out``."""

    def written(self, known: K, status: Json) -> None:
        """Take in that a status was written."""

    def refused(self, known: K, write: PutStatus, why: str) -> None:
        """Take in that the API server refused a status: a new leader would plan from an older record.

        No pod goes beyond it: the writer creates none of the object.
        """
        text = f"its status cannot be written: {why}"
        self.recorder.emit(Regarding.of(write.body), "Warning", reasons.STATUS_REFUSED, text)

    def wrote(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation that is no status."""

    # the clock

    def tick(self) -> None:
        """Do what is due four times a second."""

    def tend(self) -> Iterable[K]:
        """Do what is due every two seconds. Returns the objects to be considered."""
        return ()

    def retire(self) -> None:
        """Submit what is to be written at the end of the term."""
