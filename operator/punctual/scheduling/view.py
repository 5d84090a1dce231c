"""Views of a Pool for its readers: simulator, command line, snapshots, benchmarks and tests.

Nothing outside of ``scheduling`` touches a Pool's state. A :class:`PoolView` shows it and always shows the present; it
changes nothing. A :class:`Quote` tells what a job would be promised now.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.control.miss_ratio import BoundSample
from punctual.scheduling.admission import offers
from punctual.scheduling.admission.schedule import ScheduleKind
from punctual.scheduling.admission.shares import ShareUse
from punctual.scheduling.model.job import JobRecord, Kind
from punctual.scheduling.model.pool_spec import NodeProcessors
from punctual.scheduling.model.processors import Place
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Placement
from punctual.scheduling.state.job_state import State
from punctual.scheduling.state.pool_state import PoolState
from punctual.theory.cost import Cost


class PlacedWork(NamedTuple):
    """Units of a job on a processor, running or planned: absolute times, seconds."""

    place: Place
    kind: Kind
    begin: int
    end: int
    start: float
    until: float


class Outlook(NamedTuple):
    """What a pool's processors do and will do: numbers of processors, and absolute times (None: never), seconds."""

    running: int
    """Occupied processors, also those that their node no longer has."""
    promised: int
    """Processors with planned work that has not begun."""
    free_until: float | None
    """First planned start on a processor that is free now."""
    reserved: int
    """Processors of reservations' windows that are open."""
    next_window: float | None
    """Begin of the next window of an accepted reservation."""


class Reserve(NamedTuple):
    """What the plan of a new job leaves free for errors of its cost."""

    headroom: float
    """Part of each processor, in [0, 1)."""
    margin: float
    """Seconds before the deadline."""


class ReservedWindow(NamedTuple):
    """Processors that a reservation holds over [start, end): absolute times, seconds."""

    start: float
    end: float
    places: tuple[Place, ...]
    group: str
    """What jobs name to run inside (`Reservation.group`)."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """What a Pool knows, plans and owes. KeyError for a job that it does not know."""

    _state: PoolState

    @property
    def jobs(self) -> Collection[str]:
        """Uids of all jobs that the pool knows, ended ones included."""
        return self._state.jobs.keys()

    def record(self, uid: str) -> JobRecord:
        """Return a job's record."""
        return self._state.jobs[uid].record

    def state(self, uid: str) -> State:
        """Return a job's state."""
        return self._state.jobs[uid].state

    def cost(self, uid: str) -> Cost | None:
        """Return a job's cost: declared, or measured by pilots."""
        return self._state.jobs[uid].cost

    def reserve(self, uid: str) -> Reserve | None:
        """Return what the plan of a job leaves free. None: its cost is not known."""
        spec, cost = self._state.spec, self.cost(uid)
        return None if cost is None else Reserve(spec.headroom, self._state.margin(cost))

    def slowed(self, uid: str) -> float:
        """Return the observed slowdown of a job's units against its cost, at least 1."""
        return self._state.jobs[uid].slowed

    @property
    def undecided(self) -> int:
        """Number of jobs that wait for a decision."""
        return len(self._state.waiting)

    @property
    def schedule(self) -> ScheduleKind:
        """Kind of the schedule in force."""
        return self._state.schedule.kind

    @property
    def promised(self) -> Collection[str]:
        """Uids of the jobs with work in the schedule that has not begun."""
        return self._state.schedule.uids()

    @property
    def plan(self) -> Plan:
        """The work that is fixed on a place and at a time; with a queue, none."""
        return self._state.plan

    def unplaced(self, uid: str) -> int:
        """Return the number of units that free processors will take from the queue: no plan says which."""
        return 0 if self._state.plan.has(uid) else self._state.schedule.remaining(uid).total

    def running(self, uid: str) -> Iterator[PlacedWork]:
        """Yield a job's chunks that occupy a processor."""
        state = self._state
        for chunk in state.jobs[uid].record.chunks:
            place = state.processors.places_of.get(state.occupant(uid, chunk))
            if place is not None:  # else its pod has ended, and its last report is awaited
                yield PlacedWork(place, chunk.kind, chunk.begin, chunk.end, chunk.created, chunk.promised_end)

    def planned(self, uid: str) -> Iterator[PlacedWork]:
        """Yield the work that is planned for a job."""
        plan = self._state.plan
        if plan.has(uid):
            yield from _pieces(self._state, plan.placement_of(uid))

    def all_running(self) -> Iterator[tuple[str, PlacedWork]]:
        """Yield the work that runs, with the job's uid."""
        for uid in self._state.active:
            for piece in self.running(uid):
                yield uid, piece

    def all_planned(self) -> Iterator[tuple[str, PlacedWork]]:
        """Yield the planned work of all jobs, with the job's uid.

        Placements that the plan has postponed are made as they are read, so a reader that stops early makes no more.
        """
        for placement in self._state.plan:
            for piece in _pieces(self._state, placement):
                yield placement.demand.uid, piece

    @property
    def nodes(self) -> tuple[NodeProcessors, ...]:
        """The pool's nodes and their processors."""
        return self._state.processors.lines(self._state.holding.since)

    @property
    def processors(self) -> int:
        """Number of processors."""
        return self._state.processors.total

    @property
    def free(self) -> int:
        """Number of unoccupied processors."""
        return self._state.processors.free

    @property
    def scarcest(self) -> str:
        """The resource of which the nodes have the fewest processors; empty: no node is usable."""
        found = self._state.processors.scarcity.scarcest()
        return found[0] if found else ""

    def outlook(self, now: float) -> Outlook:
        """Return what the processors do and will do.

        It reads arrays and makes no placement. A plan places all of its work while a processor is free, so only
        ``promised`` may miss processors: those of work without a placement.
        """
        state = self._state
        places, occupants, ahead = state.plan.places, state.processors.occupants, state.ahead
        where, starts = _starts(state.plan.made())
        free = np.fromiter((place not in occupants for place in places), dtype=bool, count=len(places))
        return Outlook(
            running=len(occupants),
            promised=np.unique(where).size,
            free_until=_finite(starts[free[where]].min(initial=math.inf)),
            reserved=ahead.open_at(now),
            next_window=_finite(ahead.begins_after(now)),
        )

    def shares(self, now: float) -> Sequence[ShareUse]:
        """Return what is promised to the namespaces with a share of the pool, by name."""
        return self._state.shares.use(now)

    @property
    def reservations(self) -> Mapping[str, tuple[Place, ...]]:
        """Places of the accepted reservations, by uid."""
        return {uid: booked.places for uid, booked in self._state.ahead.held.items()}

    @property
    def windows(self) -> tuple[ReservedWindow, ...]:
        """Windows of the accepted reservations, by start."""
        held = self._state.ahead.held.values()
        return tuple(sorted(ReservedWindow(r.start, r.end, tuple(places), r.group) for r, places in held))

    @property
    def due(self) -> float | None:
        """Time at which a processor could get work without a new event; None: not before an event."""
        return self._state.due

    @property
    def bound_sample(self) -> BoundSample | None:
        """The last period of the miss-ratio controller; None: no period has ended, or there is no controller."""
        return self._state.misses.last


def _pieces(state: PoolState, placement: Placement) -> Iterator[PlacedWork]:
    """Yield the work of a placement."""
    plan, uid = state.plan, placement.demand.uid
    times = placement.where.tolist(), placement.starts.tolist(), placement.ends.tolist()
    for ranges, where, start, end in zip(placement.pieces(), *times, strict=True):
        for piece in ranges:
            yield PlacedWork(plan.places[where], "Chunk", piece.begin, piece.end, start, end)
    if placement.reducer is not None:
        units = state.jobs[uid].job.units
        begin = placement.finish - placement.demand.reduce
        yield PlacedWork(plan.places[placement.reducer], "Reduce", units, units + 1, begin, placement.finish)


def _starts(made: Sequence[Placement]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return place (index) and start of all chunks and reduce steps of placements."""
    reducers = [b for b in made if b.reducer is not None]
    where = [*(b.where for b in made), np.array([b.reducer for b in reducers], dtype=np.intp)]
    starts = [*(b.starts for b in made), np.array([b.finish - b.demand.reduce for b in reducers])]
    return np.concatenate(where), np.concatenate(starts)


def _finite(at: float) -> float | None:
    return float(at) if at < math.inf else None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a job would be promised at one time. It reserves nothing, and later decisions do not change it."""

    _test: offers.Test
    _demand: Demand
    now: float

    def fits(self, deadline: float | None = None) -> bool:
        """Whether the job would be promised its deadline, or another one: seconds from now."""
        demand = self._demand if deadline is None else self._test.under(self._demand, self.now + deadline)
        return self._test.fits(demand)

    def earliest_deadline(self) -> float | None:
        """Return the earliest deadline later than the job's own that would be promised: seconds from now; None: none.

        Some forty admission tests at most.
        """
        search = offers.earliest_deadline(self._test, self._demand, self.now)
        while True:
            try:
                next(search)
            except StopIteration as end:
                return None if end.value is None else float(end.value)
