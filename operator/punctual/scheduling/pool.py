"""Scheduler of one pool: takes events, returns actions.

``Pool`` is the only entry point of the core. One step takes in events, supervises running chunks, plans again if
something changed, decides on a bounded number of waiting jobs, gives free processors their next chunks, and returns
what must be written. A step never reads the time and never waits. Every decision is in the records that ``WriteStatus``
carries. A new leader rebuilds a Pool from those records alone (``restore``); all other state is deliberately lost.

This module contains only the cycle: the order of the stages, and which module handles each event. The stages are in
``engine``; they share one state. Readers use :meth:`Pool.view` and :meth:`Pool.quote`.
"""

from collections.abc import Iterable, Sequence

from punctual.errors import InvariantError
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.decisions import Decisions
from punctual.scheduling.engine.dispatcher import Dispatcher
from punctual.scheduling.engine.edits import Edits
from punctual.scheduling.engine.health import HealthChecks
from punctual.scheduling.engine.job_events import JobEvents
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.measurements import Measurements
from punctual.scheduling.engine.node_events import NodeEvents
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.engine.pod_events import PodEvents
from punctual.scheduling.engine.pool_edits import PoolEdits
from punctual.scheduling.engine.repair import Refit, Repair
from punctual.scheduling.engine.reservations import AcceptedReservations
from punctual.scheduling.engine.set_points import SetPointSender
from punctual.scheduling.engine.transfers import TransferQueue
from punctual.scheduling.model.actions import Action
from punctual.scheduling.model.events import (
    CreateRefused,
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PoolApplied,
    Reported,
    ReservationApplied,
    ReservationDeleted,
    UnitsCounted,
)
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.pool_spec import UNREAD
from punctual.scheduling.model.timing import LEAVE
from punctual.scheduling.state.endings import Endings
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.state.statuses import Statuses
from punctual.scheduling.state.tracking import Tracking
from punctual.scheduling.tenants.share_bookings import ShareBookings
from punctual.scheduling.view import PoolView, Quote


class Pool:
    """One pool's jobs, processors and promises.

    The runtime calls :meth:`step` with the time (seconds, the API server's clock) and the newest event per key, and
    carries out the returned actions. A new leader makes a Pool with its epoch and calls :meth:`restore` with
    everything that the API server holds before the first step.
    """

    def __init__(self, epoch: int, *, leave: float = LEAVE, offers: bool = True) -> None:
        """Create an empty pool.

        ``leave``: seconds from the deletion of a pod until its processor is empty.

        ``offers``: whether refusals contain an offer.
        """
        state = self._state = PoolState(epoch, leave)
        lifecycle = self._lifecycle = Lifecycle(state, Measurements(state), Endings(state))
        planner = self._planner = Planner(state, lifecycle)
        mode = self._mode = _mode(state, lifecycle, planner)
        dispatcher = self._dispatcher = Dispatcher(state, lifecycle, planner, mode)
        set_points = SetPointSender(state, planner)
        self._health = HealthChecks(state, lifecycle, set_points)
        self._transfers = TransferQueue(state)
        shares = self._shares = ShareBookings(state, planner.demand, planner.due)
        self._decisions = Decisions(state, lifecycle, planner, mode, shares, offers=offers)
        self._reservations = AcceptedReservations(state, lifecycle, planner, dispatcher, mode, shares, offers=offers)
        self._tracking = Tracking(state)
        self._statuses = Statuses(state)
        self._edits = Edits(state, lifecycle, mode, shares)
        self._jobs = JobEvents(state, lifecycle)
        self._pods = PodEvents(state, lifecycle, dispatcher, set_points)
        self._nodes = NodeEvents(state, lifecycle)
        self._pool_edits = PoolEdits(state, mode, self._reservations, self._nodes)
        self._unread: list[Event] = []
        """Events that the next step processes: those of a restore, or all while the pool's spec is not known."""

    def restore(self, now: float, events: Iterable[Event]) -> list[Action]:
        """Read the recorded state; return only the stamps (WriteStatus, WritePool) of the new epoch.

        All consequences follow in the next step: no pod is created, ended or accounted before the API server has the
        new epoch and refuses the old leader's writes. A stamp is therefore the record as it was read. Observed pods and
        edits are not processed before the first step. If their effects were in the stamp and the leader crashed after
        writing it, no event would have been emitted, and the next leader would treat the effects as complete.
        """
        self._state.outdated.taken_over()
        for event in sorted(events, key=_restore_order):
            if isinstance(event, PoolApplied | NodeObserved | NodeGone | JobApplied | JobDeleted):
                self._take(now, event)
            else:
                self._unread.append(event)
        return self._statuses.stamp()

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Process events, make a bounded number of decisions and return actions. ``step(now, [])`` is a tick."""
        self.decide(now, events)
        return self.act(now)

    def decide(self, now: float, events: Sequence[Event]) -> None:
        """Do the first half of a step: process events, plan again and answer jobs. :meth:`act` must follow.

        In between, :meth:`quote` tells what the jobs that were just answered would have been promised instead.
        """
        self._count_misses(now)
        if not self._take_all(now, events):
            return
        self._reservations.take_up(now)
        self._shares.follow(now)
        self._apply_edits(now)
        self._count_misses(now)
        if self._state.outdated.pods:
            self._nodes.lose_gone(now)
            self._dispatcher.take_up()
        self._health.run(now)
        anew = self._state.processors.unblock(now) or self._state.outdated.schedule
        if anew:
            self._reservations.mend(now)
            self._mode.replan(now)
        self._shares.follow(now)
        self._reservations.answer(now)
        self._decisions.work(now, planned=anew)

    def act(self, now: float) -> list[Action]:
        """Do the second half of a step: give processors work, search for offers and return actions."""
        if self._state.spec is UNREAD:
            return []
        self._reservations.clear(now)
        self._dispatcher.work(now)
        self._transfers.work(now)
        self._state.due = self._dispatcher.wake(now)
        self._decisions.search_offers(now)
        self._reservations.offer()
        self._lifecycle.expire(now)
        self._state.keep_room(now)
        self._planner.forecast(now)
        self._tracking.run(now)
        return self._statuses.flush(now)

    def _count_misses(self, now: float) -> None:
        """Pass the outcomes of promises to the miss-ratio controller, and its bound to the schedule."""
        state = self._state
        changed = state.misses.follow(now, state.spec, state.jobs.values())
        if (controller := state.misses.controller) is None:
            return
        before = controller.count
        for uid in controller.look(now):
            self._lifecycle.missed(now, state.jobs[uid])
        if changed or controller.count != before:
            state.outdated.record_changed()
        self._mode.limit(controller.bound)

    def _take_all(self, now: float, events: Sequence[Event]) -> bool:
        """Process events; before the pool's spec is known, they wait for it. Return whether it is."""
        waiting, self._unread = [*self._unread, *events], []
        if self._state.spec is UNREAD:
            waiting.sort(key=lambda event: not isinstance(event, PoolApplied))
            if not waiting or not isinstance(waiting[0], PoolApplied):
                self._unread = waiting
                return False
        for event in waiting:
            self._take(now, event)
            if not isinstance(event, Reported):
                self._state.outdated.record_changed()
        return True

    def _apply_edits(self, now: float) -> None:
        for uid in self._state.edits:
            self._edits.apply(now, self._state.jobs[uid])
        self._state.edits.clear()
        if self._state.request.edited:
            self._pool_edits.apply(now)

    @property
    def backlog(self) -> int:
        """Return the number of decisions and offers still owed. Step again at once while it is not 0."""
        if self._state.spec is UNREAD:
            return 0
        return len(self._state.waiting) + len(self._state.searches) + len(self._reservations.searches)

    def view(self) -> PoolView:
        """Return a view of what the pool knows and plans, for readers."""
        return PoolView(self._state)

    def quote(self, now: float, job: Job) -> Quote:
        """Return what a job with a declared cost would be promised now, beside all others."""
        demand = self._planner.demand(JobState(job, job), now)
        assert demand is not None
        return Quote(self._decisions.test_for(now, job), demand, now)

    def check(self) -> None:
        """Raise InvariantError if the pool's state is inconsistent."""
        self._state.processors.check()
        self._state.plan.check()
        booked = {b.demand.uid: b for b in self._state.plan}
        for uid, st in self._state.jobs.items():
            st.record.check(st.job.units)
            for chunk in st.record.chunks:
                answering = st.watch(chunk).ended_at is not None  # its last report is awaited
                if not answering and self._state.occupant(uid, chunk) not in self._state.processors.places_of:
                    raise InvariantError(f"{uid}: chunk {chunk.key} is on no processor")
            if uid in booked and st.state != "Promised":
                raise InvariantError(f"{uid}: has a placement, but its state is {st.state}")
            if not self._state.outdated.schedule and st.state == "Promised":
                left = ledger.remaining(st.job.units, st.record)
                if left and self._state.schedule.remaining(uid) != left:
                    raise InvariantError(f"{uid}: promised, but its remaining units are in no schedule")

    def _take(self, now: float, event: Event) -> None:  # noqa: C901  one arm per kind of event
        match event:
            case Reported():  # the most frequent event comes first
                self._pods.reported(now, event)
            case PodObserved():
                self._pods.observed(now, event)
            case PodGone():
                self._pods.gone(now, event.namespace, event.name)
            case PoolApplied():
                self._pool_edits.applied(event)
            case JobApplied():
                self._jobs.applied(event)
            case JobDeleted(uid):
                self._jobs.deleted(now, uid)
            case UnitsCounted():
                self._jobs.counted(now, event)
            case ReservationApplied():
                self._reservations.apply(event)
            case ReservationDeleted(uid):
                self._reservations.drop(uid)
            case NodeObserved():
                self._nodes.observed(now, event)
            case NodeGone(name):
                self._nodes.gone(now, name)
            case CreateRefused():
                self._pods.refused(now, event)


def _mode(state: PoolState, lifecycle: Lifecycle, planner: Planner) -> AdmissionMode:
    repair = Repair(state, lifecycle, planner)
    return AdmissionMode(state, planner, repair, Refit(state, planner, repair))


def _restore_order(event: Event) -> int:
    """Return the rank of an event in a restore: pools, nodes, jobs, pods. Later kinds refer to earlier ones."""
    match event:
        case PoolApplied():
            return 0
        case NodeObserved() | NodeGone():
            return 1
        case JobApplied() | JobDeleted():
            return 2
        case _:
            return 3
