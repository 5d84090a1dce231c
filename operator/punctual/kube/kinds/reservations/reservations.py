"""The windows of a term's reservations: computed, requested from the Pools, written into the statuses.

Each window is a separate request to the Pool, made when the window comes within the pool's horizon for reservations.
The answer is in the reservation's status before anything depends on it: a job that names the reservation is evaluated
after that write. Windows become active, end and are requested by the clock alone. While the time is in doubt, nothing
of this happens.
"""

from collections.abc import Iterable
from typing import Any

from punctual import reasons
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import RESERVATIONS
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import Regarding
from punctual.kube.kinds.reservations.records import reservation_status, restore
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.reservations import KnownReservation, holds_nothing
from punctual.kube.known.store import Signal, metadata_of
from punctual.kube.known.translate import not_allowed
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus
from punctual.reservations.windows import HELD, Note, PoolTerms, Refusal
from punctual.scheduling.model.actions import AnswerReservation, OfferWindow
from punctual.scheduling.model.events import ReservationApplied, ReservationDeleted


class Reservations(Kind[KnownReservation]):
    """All reservations and their windows.

    The takeover puts refused reservations aside. They are stamped and read one by one after it, whatever changes about
    them. What an earlier leader still books for one before that stamp is read and kept then.
    """

    carries_out = (AnswerReservation, OfferWindow)

    def __init__(self, tools: Tools, actors: PoolActors) -> None:
        super().__init__(tools.directory.reservations, tools.recorder)
        self._reservations = tools.directory.reservations
        self._tools = tools
        self._caches = tools.caches
        self._directory = tools.directory
        self._actors = actors
        self._now = tools.now
        self._put_off: set[str] = set()  # uids that wait until the time is no longer in doubt

    # takeover

    def put_aside(self, uid: str, body: Json | None) -> bool:
        """Put a reservation aside if it is refused; also one that is gone."""
        if uid in self.store.gone:
            return True
        if body is None or not holds_nothing(body):
            return False
        self.store.observe(body)
        self.store[uid].term.aside = ""
        return True

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read the status of a reservation. One that cannot be read is left alone."""
        if (known := self.taken(body, unwritable)) is None:
            return
        try:
            restore(known, api.parse_status(api.ReservationStatus, body))
        except UserError as error:
            text = f"its status cannot be read, so the reservation is left alone: {error.message}"
            self.leave_alone(known, body, text)
        for event in self._promised(known):
            self._actors.tell(known.pool, event)  # a window that the pool holds already changes nothing

    def begin(self) -> list[KnownReservation]:
        """Return those that were not put aside."""
        return [known for known in self.store.values() if known.term.aside is None]

    def recorded(self, pool: str) -> list[Any]:
        """Return the promised windows of a pool."""
        return [event for known in self._reservations.of_pool(pool) for event in self._promised(known)]

    def _promised(self, known: KnownReservation) -> Iterable[ReservationApplied]:
        if known.deleting:
            return ()
        return known.term.windows.promised(known.asked, self._nodes(known), self._now())

    def found(self, known: KnownReservation, *, aside: bool) -> None:
        """Tell the jobs that wait until the reservation is read."""
        self._changed(known)

    def touched_by(self, signal: Signal) -> Iterable[KnownReservation]:
        """Return the reservations of a pool that changed, and the refused ones of a namespace with other labels."""
        match signal:
            case Signal("pool", pool):
                return [known for known in self._reservations.of_pool(pool) if known.term.aside is None]
            case Signal("namespace", namespace):
                return [k for k in self.store.values() if k.namespace == namespace and k.term.windows.refusal]
        return ()

    def _changed(self, known: KnownReservation) -> None:
        self._tools.kinds.signal("reservation", f"{known.namespace}/{known.name}")

    # requests

    def consider(self, known: KnownReservation) -> None:
        """Request the windows that have come within the horizon, or refuse the reservation."""
        now = self._now()
        if known.deleting:
            self.gone(known)
            return
        pool = self._directory.pools.named(known.pool)
        if pool is not None and pool.term.unstamped:
            return
        windows = known.term.windows
        if windows.finished is not None:
            return
        if self._tools.clock.doubted:
            self._put_off.add(known.uid)
            return
        requests = windows.request(known.asked, self._pool_terms(known), now)
        if requests is None:
            self._write(known)
            return
        for request in requests:
            self._actors.tell(known.pool, request)

    def _pool_terms(self, known: KnownReservation) -> PoolTerms | Refusal:
        """Return what its pool grants to a reservation, or why the pool cannot be asked."""
        if known.spec is None:
            return reasons.INVALID_SPEC, known.flaw
        pool = self._directory.pools.named(known.pool)
        if pool is None or not self._actors.runs(known.pool):
            text = f"spec.pool: there is no Pool {known.pool}: create it, and this reservation is evaluated"
            return reasons.POOL_NOT_FOUND, text
        labels, selector = self._caches.labels(known.namespace), pool.term.in_force.namespace_selector
        if selector is not None and not selector.matches(labels):
            return not_allowed(known.pool, known.namespace)
        rights = self._rights(pool)
        if rights.namespace_selector is not None and not rights.namespace_selector.matches(labels):
            text = (
                f"Pool {known.pool} takes no reservations from namespace {known.namespace}: its labels do not match "
                "the pool's spec.reservations.namespaceSelector. Use another pool, or have the namespace labelled"
            )
            return reasons.NOT_ALLOWED, text
        return PoolTerms(rights.horizon, self._nodes(known))

    @staticmethod
    def _rights(pool: KnownPool | None) -> api.PoolReservations:
        return (pool.term.in_force.reservations if pool else None) or api.PoolReservations()

    def _nodes(self, known: KnownReservation) -> frozenset[str] | None:
        """Return the nodes that it selects. None: any node."""
        if known.spec is None or known.spec.nodes is None:
            return None
        return self._caches.nodes_of(known.pool, known.spec.nodes.matches)

    def gone(self, known: KnownReservation) -> None:
        """Release its windows: the reservation is gone, or being deleted."""
        self._tools.writer.forget(Key(RESERVATIONS, known.uid))
        for name in known.term.windows.release():
            self._actors.tell(known.pool, ReservationDeleted(name))
        self._changed(known)

    # answers

    def carry_out(self, pool: str, action: AnswerReservation | OfferWindow) -> None:
        """Record the Pool's answer for a window, or its offer."""
        if (known := self.store.get(action.uid.partition("/")[0])) is None:
            return
        windows = known.term.windows
        if isinstance(action, OfferWindow):
            horizon = self._rights(self._directory.pools.named(known.pool)).horizon
            if windows.offer(action.uid, action.start, self._now(), horizon):
                self._write(known)
            return
        window = windows.by_name.get(action.uid)
        held = window is not None and window.held
        if note := windows.answer(action.uid, action.answer, action.places):
            if window is not None and window.held and not held:
                seconds = window.processors * (window.end - window.start)
                self._tools.promise_metrics.reserved(known.pool, known.namespace, seconds)
            self._emit(known, note)
            self._look(known)

    # changes by the clock

    def tend(self) -> list[KnownReservation]:
        """Process the windows that are due. Returns the reservations that were postponed, or may be requested again."""
        if self._tools.clock.doubted:
            return []
        due = [known for uid in self._put_off if (known := self.store.get(uid))]
        self._put_off.clear()
        now = self._now()
        for known in list(self.store.values()):
            windows = known.term.windows
            if windows.look > now or known.deleting or windows.finished is not None:
                continue
            if windows.by_name:
                self._look(known)
            elif windows.refusal is not None:
                due.append(known)
        return due

    def _look(self, known: KnownReservation) -> None:
        """Update the state of its windows, request new ones, and write the status."""
        now, asked = self._now(), known.asked
        for note in known.term.windows.advance(now):
            self._emit(known, note)
        if asked is not None and asked.every is not None:
            self.consider(known)
        known.term.windows.clean(asked, now)
        self._write(known)

    # status writes

    def _emit(self, known: KnownReservation, note: Note) -> None:
        about = Regarding(api.API_VERSION, "Reservation", known.namespace, known.name, known.uid)
        self._tools.recorder.emit(about, "Normal" if note.good else "Warning", note.reason, note.message)

    def written(self, known: KnownReservation, status: Json) -> None:
        """Record that a status was written. Jobs that name the reservation can be evaluated."""
        known.term.windows.recorded = not HELD.isdisjoint(w["state"] for w in status.get("windows", ()))
        self._changed(known)

    def _write(self, known: KnownReservation) -> None:
        status = reservation_status(known, epoch=self._tools.epoch, now=self._now())
        known.term.transition_times = transition_times(status["conditions"])
        write = PutStatus.of(RESERVATIONS, "Reservation", metadata_of(known), status)
        self._tools.writer.submit(Key(RESERVATIONS, known.uid), write)
