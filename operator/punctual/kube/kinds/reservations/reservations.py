"""The windows of a term's reservations: computed, requested from the Pools, written into the statuses.

Each window is a separate request to the Pool, made when the window comes within the pool's horizon for reservations.
The answer is in the reservation's status before anything depends on it: a job that names the reservation is evaluated
after that write. Windows become active, end and are requested by the clock alone. While the time is in doubt, nothing
of this happens.
"""

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final

from punctual import reasons
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import RESERVATIONS
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import Regarding
from punctual.kube.kinds.reservations.records import (
    asked,
    processors,
    promised,
    reservation_status,
    restore,
    window_name,
)
from punctual.kube.kinds.reservations.recurrence import DAY, Span, windows
from punctual.kube.known.reservations import HELD, KnownReservation, ReservationWindow, holds_nothing
from punctual.kube.known.store import Signal, metadata_of
from punctual.kube.takeover.kind import Kind
from punctual.kube.translate import not_allowed
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus
from punctual.notation.duration import format_duration, format_time
from punctual.scheduling.model.actions import AnswerReservation, OfferWindow
from punctual.scheduling.model.events import ReservationApplied, ReservationDeleted, Share
from punctual.scheduling.model.wording import some

LOOK: Final = 3600.0
"""Maximum seconds between two evaluations of a recurrence."""


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

    def _promised(self, known: KnownReservation) -> Iterator[ReservationApplied]:
        return promised(known, self._nodes(known), self._now())

    def found(self, known: KnownReservation, *, aside: bool) -> None:
        """Tell the jobs that wait until the reservation is read."""
        self._changed(known)

    def touched_by(self, signal: Signal) -> Iterable[KnownReservation]:
        """Return the reservations of a pool that changed, and the refused ones of a namespace with other labels."""
        match signal:
            case Signal("pool", pool):
                return [known for known in self._reservations.of_pool(pool) if known.term.aside is None]
            case Signal("namespace", namespace):
                return [k for k in self.store.values() if k.namespace == namespace and k.term.refusal]
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
        if known.term.finished is not None:
            return
        if self._tools.clock.doubted:
            self._put_off.add(known.uid)
            return
        try:
            ahead = self._ahead(known, now)
        except UserError as error:
            if error.reason == reasons.POOL_NOT_FOUND:
                known.term.windows.clear()  # a pool that is being deleted keeps no windows
            self._note_look(known, now)
            if not known.held:
                known.term.refusal = error.reason, error.message
                self._write(known)
            return
        known.term.refusal = None
        for start, end in ahead:
            name = window_name(known, start)
            if name in known.term.windows:
                continue
            known.term.windows[name] = window = ReservationWindow(start, end)
            request = asked(known, name, window, self._nodes(known))
            self._actors.tell(known.pool, ReservationApplied(request))
        self._note_look(known, now)

    def _ahead(self, known: KnownReservation, now: float) -> list[Span]:
        """Return the windows within the horizon. Raises UserError if there are none or none is allowed."""
        spec, namespace = known.spec, known.metadata.namespace
        known.term.comes = inf
        if spec is None:
            raise UserError(reasons.INVALID_SPEC, known.flaw)
        pool = self._directory.pools.named(spec.pool)
        if pool is None or not self._actors.runs(spec.pool):
            text = f"spec.pool: there is no Pool {spec.pool}: create it, and this reservation is evaluated"
            raise UserError(reasons.POOL_NOT_FOUND, text)
        selector = pool.term.in_force.namespace_selector
        if selector is not None and not selector.matches(self._caches.labels(namespace)):
            raise UserError(*not_allowed(spec.pool, namespace))
        rights = pool.term.in_force.reservations or api.PoolReservations()
        selector = rights.namespace_selector
        if selector is not None and not selector.matches(self._caches.labels(namespace)):
            text = (
                f"Pool {spec.pool} takes no reservations from namespace {namespace}: its labels do not match the "
                "pool's spec.reservations.namespaceSelector. Use another pool, or have the namespace labelled"
            )
            raise UserError(reasons.NOT_ALLOWED, text)
        horizon = rights.horizon * DAY
        ahead, behind = windows(spec, now, horizon)
        if behind is not None and behind.end - behind.start <= horizon:
            known.term.comes = behind.end - horizon
        if behind is not None and not ahead and not known.term.windows:
            raise UserError(reasons.TOO_FAR_AHEAD, _too_far(spec, behind, now=now, days=rights.horizon))
        if not ahead and not known.term.windows:
            text = f"spec.start: {format_time(spec.start)} has passed, now it is {format_time(round(now))}"
            if spec.recurrence is not None:
                text = f"spec.recurrence.until: no window begins between now, {format_time(round(now))}, and then"
            raise UserError(reasons.INVALID_SPEC, text)
        if ahead and self._nodes(known) == frozenset():
            text = f"spec.nodes: selects no node of Pool {spec.pool}"
            raise UserError(reasons.INFEASIBLE_RESERVATION, text)
        return ahead

    def _nodes(self, known: KnownReservation) -> frozenset[str] | None:
        """Return the nodes that it selects. None: any node."""
        if known.spec is None or known.spec.nodes is None:
            return None
        return self._caches.nodes_of(known.pool, known.spec.nodes.matches)

    def gone(self, known: KnownReservation) -> None:
        """Release its windows: the reservation is gone, or being deleted."""
        self._tools.writer.forget(Key(RESERVATIONS, known.uid))
        for name, window in known.term.windows.items():
            if window.state is None or window.held:
                self._actors.tell(known.pool, ReservationDeleted(name))
        known.term.windows.clear()
        known.term.recorded = False
        self._changed(known)

    # answers

    def carry_out(self, pool: str, action: AnswerReservation | OfferWindow) -> None:
        """Record the Pool's answer for a window, or its offer."""
        if isinstance(action, AnswerReservation):
            self._answered(action)
        else:
            self._offered(action)

    def _answered(self, action: AnswerReservation) -> None:
        found = self._find(action.uid)
        if found is None:
            return
        known, window = found
        status, window.reason, window.message = action.answer
        names = [place.node for place in action.places]
        window.nodes = tuple(Share(name, names.count(name)) for name in sorted(set(names)))
        if status == "False":
            window.state = "Refused"
        elif not window.held:
            window.state = "Booked"
        self._emit(known, window.reason, window.message, good=window.reason == reasons.FEASIBLE)
        self._look(known)

    def _offered(self, action: OfferWindow) -> None:
        """Record the earliest start at which a refused window would be accepted."""
        if (found := self._find(action.uid)) is None:
            return
        known, window = found
        window.offer = action.start
        length = window.end - window.start
        nearest = "no window as long would be reserved at any later time"
        if action.start is not None and action.start + length > self._now() + self._horizon(known):
            window.offer = None
            nearest = f"no window as long would be reserved within the horizon of Pool {known.pool}"
        elif action.start is not None:
            nearest = f"the nearest window is {format_time(action.start)} to {format_time(action.start + length)}"
        window.message = f"{window.message}; {nearest}"
        self._write(known)

    def _horizon(self, known: KnownReservation) -> float:
        pool = self._directory.pools.named(known.pool)
        rights = (pool.term.in_force.reservations if pool else None) or api.PoolReservations()
        return rights.horizon * DAY

    def _find(self, name: str) -> tuple[KnownReservation, ReservationWindow] | None:
        known = self.store.get(name.partition("/")[0])
        window = known.term.windows.get(name) if known else None
        return (known, window) if known and window else None

    # changes by the clock

    def tend(self) -> list[KnownReservation]:
        """Process the windows that are due. Returns the reservations that were postponed, or may be requested again."""
        if self._tools.clock.doubted:
            return []
        due = [known for uid in self._put_off if (known := self.store.get(uid))]
        self._put_off.clear()
        now = self._now()
        for known in list(self.store.values()):
            if known.term.look > now or known.deleting or known.term.finished is not None:
                continue
            if known.term.windows:
                self._look(known)
            elif known.term.refusal is not None:
                due.append(known)
        return due

    def _look(self, known: KnownReservation) -> None:
        """Update the state of its windows, request new ones, and write the status."""
        now = self._now()
        for window in known.term.windows.values():
            if window.state in {"Booked", "Active"} and window.end <= now:
                window.state = "Completed"
                self._emit(known, reasons.COMPLETED, "the window is over")
            elif window.state == "Booked" and window.start <= now:
                window.state = "Active"
                self._emit(known, reasons.ACTIVE, f"{processors(window)} kept empty until {format_time(window.end)}")
        if known.spec is not None and known.spec.recurrence is not None:
            self.consider(known)
        over = [name for name, w in known.term.windows.items() if w.end <= now and w.state is not None]
        for name in over[:-1] if len(over) == len(known.term.windows) else over:
            del known.term.windows[name]
        more = known.term.comes < inf or known.term.refusal is not None
        if not more and all(w.state == "Completed" for w in known.term.windows.values()):
            known.term.finished = max(w.end for w in known.term.windows.values())
        self._note_look(known, now)
        self._write(known)

    @staticmethod
    def _note_look(known: KnownReservation, now: float) -> None:
        # a window that is due already counts too: it may have begun while no replica led
        times = [w.start if w.state == "Booked" else w.end for w in known.term.windows.values() if w.held]
        if known.term.windows and known.spec is not None and known.spec.recurrence is not None:
            times.append(now + LOOK)
        known.term.look = min([*times, known.term.comes])

    # status writes

    def _emit(self, known: KnownReservation, reason: str, message: str, *, good: bool = True) -> None:
        about = Regarding(api.API_VERSION, "Reservation", known.namespace, known.name, known.uid)
        self._tools.recorder.emit(about, "Normal" if good else "Warning", reason, message)

    def written(self, known: KnownReservation, status: Json) -> None:
        """Record that a status was written. Jobs that name the reservation can be evaluated."""
        known.term.recorded = not HELD.isdisjoint(w["state"] for w in status.get("windows", ()))
        self._changed(known)

    def _write(self, known: KnownReservation) -> None:
        status = reservation_status(known, epoch=self._tools.epoch, now=self._now())
        known.term.transition_times = transition_times(status["conditions"])
        write = PutStatus.of(RESERVATIONS, "Reservation", metadata_of(known), status)
        self._tools.writer.submit(Key(RESERVATIONS, known.uid), write)


def _too_far(spec: api.ReservationSpec, window: Span, *, now: float, days: int) -> str:
    """Return the refusal of a window that ends after the horizon of ``days`` days, with the correct values."""
    allowed = f"Pool {spec.pool} reserves at most {some(days, 'day')} ahead (its spec.reservations.horizon)"
    if window.end - window.start > days * DAY:
        return (
            f"spec.end: the window lasts {format_duration(window.end - window.start)}, and {allowed}: make it shorter"
        )
    return (
        f"spec.end: the window ends at {format_time(window.end)}, and {allowed}: choose one that ends by "
        f"{format_time(int(now + days * DAY))}, or wait: it is evaluated at {format_time(window.end - days * DAY)}"
    )
