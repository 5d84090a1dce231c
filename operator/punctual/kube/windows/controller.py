"""The windows of a term's reservations: computed, requested from the Pools, written into the statuses.

Each window is a separate request to the Pool, made when the window comes within the pool's horizon for reservations.
The answer is in the reservation's status before anything depends on it: a job that names the reservation is evaluated
after that write. Windows become active, end and are requested by the clock alone. While the time is in doubt, nothing
of this happens.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, Final, NamedTuple

from punctual import reasons
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.conditions import transition_times
from punctual.kube.cluster.directory import HELD, RESERVATIONS, KnownJob, KnownReservation, ReservationWindow
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.format.duration import format_duration, format_time
from punctual.kube.windows.records import (
    Refusal,
    asked,
    inside,
    processors,
    promised,
    reservation_status,
    window_name,
)
from punctual.kube.windows.recurrence import DAY, Span, windows
from punctual.kube.writes.keys import ReservationKey
from punctual.kube.writes.operations import PutStatus
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.actions import AnswerReservation, OfferWindow
from punctual.scheduling.model.events import ReservationApplied, ReservationDeleted, Share
from punctual.scheduling.model.wording import some

LOOK: Final = 3600.0
"""Maximum seconds between two evaluations of a recurrence."""


class PoolAccess(NamedTuple):
    """How the controller reaches the pools and their jobs."""

    tell: Callable[[str, ReservationApplied | ReservationDeleted], None]
    """Puts an event into a pool's mailbox."""
    runs: Callable[[str], bool]
    """Returns whether a pool runs and can be asked."""
    changed: Callable[[KnownReservation], None]
    """Called when jobs that name the reservation may be evaluated again."""


class WindowController:
    """The windows of all reservations of the directory, for one term."""

    def __init__(
        self,
        epoch: int,
        *,
        caches: Caches,
        writer: Writer,
        recorder: EventRecorder,
        now: Callable[[], float],
        doubted: Callable[[], bool],
        pools: PoolAccess,
    ) -> None:
        self._epoch = epoch
        self._caches = caches
        self._directory = caches.directory
        self._writer = writer
        self._recorder = recorder
        self._now = now
        self._doubted = doubted
        self._pools = pools
        self._put_off: set[str] = set()  # uids that wait until the time is no longer in doubt

    # takeover

    def of_pool(self, pool: str) -> Iterator[ReservationApplied]:
        """Return the promised reservations of a pool that starts."""
        for known in list(self._directory.reservations.values()):
            if known.pool == pool:
                yield from promised(known, self._nodes(known), self._now())

    def reconsider_jobs(self, known: KnownReservation) -> None:
        """Have the jobs that name a reservation evaluated, because they may wait until it is read."""
        self._pools.changed(known)

    def open(self, pool: str) -> bool:
        """Return whether a pool has windows to keep."""
        return any(known.pool == pool and known.held for known in self._directory.reservations.values())

    # requests

    def consider(self, known: KnownReservation) -> None:
        """Request the windows that have come within the horizon, or refuse the reservation."""
        now = self._now()
        if known.deleting:
            self.drop(known)
            return
        if known.term.finished is not None:
            return
        if self._doubted():
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
            self._pools.tell(known.pool, ReservationApplied(request))
        self._note_look(known, now)

    def _ahead(self, known: KnownReservation, now: float) -> list[Span]:
        """Return the windows within the horizon. Raises UserError if there are none or none is allowed."""
        spec, namespace = known.spec, known.metadata.namespace
        known.term.comes = inf
        if spec is None:
            raise UserError(reasons.INVALID_SPEC, known.flaw)
        pool = self._directory.pools.get(spec.pool)
        if pool is None or not self._pools.runs(spec.pool):
            text = f"spec.pool: there is no Pool {spec.pool}: create it, and this reservation is evaluated"
            raise UserError(reasons.POOL_NOT_FOUND, text)
        selector = pool.term.in_force.namespace_selector
        if selector is not None and not selector.matches(self._caches.labels(namespace)):
            text = (
                f"Pool {spec.pool} takes nothing from namespace {namespace}: its labels do not match the pool's "
                "namespaceSelector"
            )
            raise UserError(reasons.NOT_ALLOWED, text)
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

    def drop(self, known: KnownReservation) -> None:
        """Release its windows: the reservation is being deleted or gone."""
        self._writer.forget(ReservationKey(known.uid))
        for name, window in known.term.windows.items():
            if window.state is None or window.held:
                self._pools.tell(known.pool, ReservationDeleted(name))
        known.term.windows.clear()
        known.term.recorded = False
        self._pools.changed(known)

    # answers

    def answered(self, action: AnswerReservation) -> None:
        """Record the answer for a window."""
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
        self.look(known)

    def offered(self, action: OfferWindow) -> None:
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
        pool = self._directory.pools.get(known.pool)
        rights = (pool.term.in_force.reservations if pool else None) or api.PoolReservations()
        return rights.horizon * DAY

    def _find(self, name: str) -> tuple[KnownReservation, ReservationWindow] | None:
        known = self._directory.reservations.get(name.partition("/")[0])
        window = known.term.windows.get(name) if known else None
        return (known, window) if known and window else None

    def of_job(self, job: KnownJob) -> str | Refusal | None:
        """Return the window for a job that names the reservation, or a refusal. None: not known or not written yet."""
        namespace, name = job.owner.namespace, job.reservation
        return inside(self._directory.reservation(namespace, name), name, namespace=namespace, pool=job.owner.pool)

    # changes by the clock

    def tend(self) -> None:
        """Process the reservations that are due, and those that were postponed."""
        if self._doubted():
            return
        for uid in self._put_off:
            if known := self._directory.reservations.get(uid):
                self.consider(known)
        self._put_off.clear()
        now = self._now()
        for known in list(self._directory.reservations.values()):
            if known.term.look > now or known.deleting or known.term.finished is not None:
                continue
            if known.term.windows:
                self.look(known)
            elif known.term.refusal is not None:
                self.consider(known)

    def look(self, known: KnownReservation) -> None:
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
        meta = known.metadata
        about = Regarding(api.API_VERSION, "Reservation", meta.namespace, meta.name, meta.uid)
        self._recorder.emit(about, "Normal" if good else "Warning", reason, message)

    def written(self, uid: str, body: Mapping[str, Any]) -> None:
        """Record that a status was written. Jobs that name the reservation can be evaluated."""
        known = self._directory.reservations.get(uid)
        if known is None:
            return
        stated = [w["state"] for w in body["status"].get("windows", ())]
        known.term.recorded = not HELD.isdisjoint(stated)
        self._pools.changed(known)

    def _write(self, known: KnownReservation) -> None:
        meta = known.metadata
        status = reservation_status(known, epoch=self._epoch, now=self._now())
        known.term.transition_times = transition_times(status["conditions"])
        about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        self._writer.submit(ReservationKey(meta.uid), PutStatus.of(RESERVATIONS, "Reservation", about, status))


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
