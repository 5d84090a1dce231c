"""Reservations of a pool: decide on them, restore them, keep their processors as nodes change, clear them in time.

An accepted window keeps its processors: jobs are planned around it. This module ensures that the processors are empty
when the window begins. Planned work ends ``clearance`` before it. A chunk that still runs is asked to stop early; if it
does not, its pod is deleted and its units run elsewhere. Only chunks of jobs that name the reservation stay.
"""

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace

from punctual import reasons
from punctual.scheduling.admission import reservation_test
from punctual.scheduling.admission.reservation_test import (
    AcceptedReservation,
    BookedReservation,
    BookedReservations,
    admit,
)
from punctual.scheduling.admission.shares import Limit
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.dispatcher import Dispatcher
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model.actions import AnswerReservation, OfferWindow
from punctual.scheduling.model.events import ReservationApplied, Share
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.timing import ASKED, OVERDUE
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.state.forecast import units_by
from punctual.scheduling.state.job_state import expected_end
from punctual.scheduling.state.offer_searches import TESTS
from punctual.scheduling.state.outage import closed
from punctual.scheduling.state.pool_state import PoolState
from punctual.scheduling.tenants.share_bookings import ShareBookings
from punctual.theory.tolerance import tolerance
from punctual.verdict import Verdict

MENDED = 4
"""Reservations per step for which lost processors are replaced: each costs a test of the whole queue."""
ROUNDS = 3
"""Maximum number of times that an offered window is moved to the next whole second that is accepted."""


@dataclass(slots=True)
class AcceptedReservations:
    """Manages the accepted reservations and their windows."""

    state: PoolState
    lifecycle: Lifecycle
    planner: Planner
    dispatcher: Dispatcher
    mode: AdmissionMode
    shares: ShareBookings
    offers: bool = True
    """Whether another window is searched for refused reservations."""
    asked: dict[str, Reservation] = field(default_factory=dict)
    """Reservations that wait for a decision, in order."""
    found: dict[str, ReservationApplied] = field(default_factory=dict)
    """Reservations that an earlier leader decided on."""
    searches: dict[str, Generator[None, None, float | None]] = field(default_factory=dict)
    """Searches for the nearest acceptable window, by uid of a refused reservation."""
    counts: dict[str, int] = field(default_factory=dict)
    """Processors by node at the last time when every reservation had all of its processors."""

    def apply(self, event: ReservationApplied) -> None:
        """Process an applied reservation; one that is already held is ignored."""
        uid = event.reservation.uid
        if uid in self.state.ahead.held:
            return
        if event.held is None:
            self.asked[uid] = event.reservation
        else:
            self.found[uid] = event

    def drop(self, uid: str) -> None:
        """Process the deletion of a reservation: the rest of its window is free."""
        for line in (self.asked, self.found, self.searches):
            line.pop(uid, None)
        if uid in self.state.ahead.held:
            self.state.ahead.release(uid)
            self.state.outdated.capacity_changed()

    def take_up(self, now: float) -> None:
        """Restore the reservations of an earlier leader and drop expired ones, before anything is planned."""
        if self.state.ahead.forget(now):
            self.state.outdated.capacity_changed()
        # In order of their starts: each then finds as many free places as it did before.
        for event in sorted(self.found.values(), key=lambda e: (e.reservation.start, e.reservation.uid)):
            asked = event.reservation
            if asked.end > now:
                places = [place for share in event.held or () for place in self._seats(asked, share)]
                self.state.ahead.book(BookedReservation(asked, tuple(places)))
                self.state.outdated.capacity_changed()
                self.counts = {}
        self.found.clear()

    def _seats(self, asked: Reservation, share: Share) -> Iterable[Place]:
        """Return places of a node for a window: those with its own jobs first, then places that nothing else needs."""
        state = self.state
        there = [Place(share.node, i) for i in range(max(share.processors, state.processors.counts.get(share.node, 0)))]
        free = state.ahead.free(there, asked.start, asked.end).tolist()

        def rank(place: Place) -> tuple[bool, float]:
            if (found := state.on(place)) is None:
                return True, -math.inf
            st, chunk = found
            return st.job.reservation != asked.group, chunk.promised_end

        return sorted((p for p, is_free in zip(there, free, strict=True) if is_free), key=rank)[: share.processors]

    def mend(self, now: float) -> None:
        """Replace processors that nodes took away, if every promise is still kept."""
        ahead, counts = self.state.ahead, self.state.processors.open_counts
        if counts == self.counts:
            return
        tries = MENDED
        for asked, places in list(ahead.held.values()):
            if asked.processors == 0:
                own = [Place(node, i) for node in sorted(asked.nodes or ()) for i in range(counts.get(node, 0))]
                free = ahead.free(own, asked.start, asked.end).tolist()
                if more := [p for p, is_free in zip(own, free, strict=True) if is_free]:
                    self._keep(asked, (*places, *more))
                    self._tell(asked, (*places, *more))
                continue
            there = tuple(place for place in places if place.slot < counts.get(place.node, 0))
            self._keep(asked, there)
            if len(there) >= asked.processors or tries == 0:
                if there != places:
                    self._tell(asked, there)
                continue
            tries -= 1
            rest = replace(asked, start=max(now, asked.start), processors=asked.processors - len(there), io_ratio=0.0)
            plan, missed = self.planner.trial(now, stop=True)
            answer = None if missed else admit(rest, ahead, plan, now)
            if isinstance(answer, AcceptedReservation):
                there += answer.held.places
                self._keep(asked, there)
            if there != places:
                self._tell(asked, there)
        whole = all(len(places) >= asked.processors for asked, places in ahead.held.values())
        self.counts = dict(counts) if whole else {}

    def robbed(self, there: Mapping[str, int]) -> int:
        """Count the reservations that would lose processors if nodes had this many of them.

        Reservations for the maintenance of a node request no processors and are not counted.
        """
        held = [places for asked, places in self.state.ahead.held.values() if asked.processors]
        return sum(any(place.slot >= there.get(place.node, 0) for place in places) for places in held)

    def sending(self) -> int:
        """Count the reservations that keep the port for their input."""
        return sum(asked.sends for asked, _ in self.state.ahead.held.values())

    def _keep(self, asked: Reservation, places: tuple[Place, ...]) -> None:
        ahead = self.state.ahead
        if ahead.held[asked.uid].places != places:
            ahead.release(asked.uid)
            ahead.book(BookedReservation(asked, places))

    def _tell(self, asked: Reservation, places: tuple[Place, ...]) -> None:
        n = len(places)
        verdict = self._accepted(asked, n)
        if n < asked.processors:
            text = f"{n} of {some(asked.processors, 'processor')} are left, because nodes were lost"
            verdict = Verdict("True", reasons.CAPACITY_LOST, text)
        self.state.outbox.add(AnswerReservation(asked.uid, verdict, places))

    def answer(self, now: float) -> None:
        """Accept the waiting reservations, in order of arrival, if every promise is still kept."""
        for asked in self.asked.values():
            verdict, places = self._answer(now, asked)
            self.state.outbox.add(AnswerReservation(asked.uid, verdict, places))
        self.asked.clear()

    def _answer(self, now: float, asked: Reservation) -> tuple[Verdict, tuple[Place, ...]]:
        state = self.state
        if state.request.deleting:
            return Verdict("False", reasons.POOL_DELETED, "the pool is being deleted and takes no new reservations"), ()
        if kind := state.terms.reserves_nothing:
            text = f"a pool with {kind} cannot reserve processors: use a pool without it"
            return Verdict("False", reasons.INFEASIBLE_RESERVATION, text), ()
        if not self.mode.to_exact(now):
            text = f"fast admission accepts no reservation, and {self.mode.why(now)}"
            return Verdict("False", reasons.INFEASIBLE_RESERVATION, text), ()
        if asked.sends and not self._one_port:
            text = (
                "spec.transferShare: with network Concurrent each chunk fetches its own input, and no link can be kept "
                "free; remove transferShare, or use a pool with network OnePort"
            )
            return Verdict("False", reasons.INFEASIBLE_RESERVATION, text), ()
        plan = self.planner.current(now)
        self.shares.follow(now)  # one that was accepted before counts
        limit = state.shares.limit(asked.namespace, now)
        answer = admit(asked, state.ahead, plan, now, limit)
        if isinstance(answer, AcceptedReservation):
            state.ahead.book(answer.held)
            self.planner.adopt(answer.plan, now)
            return self._accepted(asked, len(answer.held.places)), answer.held.places
        if self.offers:
            self.searches[asked.uid] = _from_a_whole_second(asked, state.ahead, plan, now, limit)
        text, spec = answer.message, state.spec
        if left_out := closed(state.processors, spec, now):
            text = f"{text}; {left_out}"  # its numbers are those of the others
        return Verdict("False", answer.reason, text), ()

    @property
    def _one_port(self) -> bool:
        return self.state.spec.discipline.one_port

    def _accepted(self, asked: Reservation, places: int) -> Verdict:
        text = f"{some(places, 'processor')} for {span(asked.end - asked.start)}"
        if asked.sends and self._one_port:
            text += f", the link for the first {span(asked.sent - asked.start)}"
        return Verdict("True", reasons.FEASIBLE, text)

    def offer(self) -> None:
        """Continue the searches for acceptable windows, with a bounded number of tests."""
        budget = max(1, TESTS * 32 // (32 + len(self.state.plan)))
        while self.searches and budget > 0:
            uid, search = next(iter(self.searches.items()))
            try:
                next(search)
                budget -= 1
            except StopIteration as end:
                del self.searches[uid]
                self.state.outbox.add(OfferWindow(uid, end.value))

    def clear(self, now: float) -> None:
        """Ensure that processors are empty when their window begins, and stay empty."""
        lead = self.state.leave
        for asked, places in self.state.ahead.held.values():
            if asked.start - lead - ASKED <= now < asked.end:
                for place in places:
                    self._clear_one(now, asked, place, empty=asked.start - lead)

    def _clear_one(self, now: float, asked: Reservation, place: Place, *, empty: float) -> None:
        """Offer an end to a chunk that would still run at ``empty``, and end it if it does not stop.

        Its reports tell, before its planned end has passed. One that has answered is asked again if it is too slow for
        its answer, or if it was asked for another reason and would run on.
        """
        if (found := self.state.on(place)) is None:
            return
        st, chunk = found
        if st.job.reservation == asked.group:
            return
        watch = st.watch(chunk)
        if now > empty + tolerance(now):
            text = "its processor is reserved from now on"
            self.lifecycle.end_and_lose(now, st, chunk, reasons.CAPACITY_LOST, text, own=False)
            return
        if watch.pod is None or not watch.pod.runs or chunk.offered is not None:
            return
        aim = empty - min(OVERDUE, self.state.leave)  # ends are seen late
        units = units_by(aim, watch, now=now)
        if units is None and st.cost is not None and watch.offered_at is None:
            late = expected_end(chunk, watch, now=now) > empty + tolerance(empty)
            units = watch.done + int(max(0.0, aim - now) / st.cost.per_unit) if late else None
        if units is not None and max(units, watch.done + 1) < chunk.size:  # the unit under way stays
            self.dispatcher.offer(now, st, chunk, chunk.begin + units)


def _from_a_whole_second(
    asked: Reservation, ahead: BookedReservations, plan: Plan, now: float, limit: Limit
) -> Generator[None, None, float | None]:
    """Search the nearest window that begins at a whole second, by `reservation_test.nearest`."""
    for _ in range(ROUNDS):
        start = yield from reservation_test.nearest(asked, ahead, plan, now, limit)
        if start is None:
            return None
        asked = asked.at(math.ceil(start - tolerance(start)))
        yield
        if isinstance(admit(asked, ahead, plan, now, limit), AcceptedReservation):
            return asked.start
    return None
