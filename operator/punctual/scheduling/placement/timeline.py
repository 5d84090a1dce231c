"""Timelines: the times from which processors and the port are free; and the placements that move them."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.errors import InvariantError
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.node_rules import HostPort
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.blackouts import Blackouts
from punctual.scheduling.placement.demand import Demand, Floats
from punctual.scheduling.placement.sites import Indices, PortHold, Sites
from punctual.theory.cost import Cost
from punctual.theory.partition import in_turn
from punctual.theory.tolerance import tolerance


@dataclass(slots=True, eq=False)
class Timeline:
    """Times from which processors are free, by place, and what the processors share."""

    ready: Floats
    discipline: Discipline = field(default_factory=Discipline)
    port: float = -np.inf
    """Time from which the port is free (OnePort)."""
    speeds: Floats | None = None
    """By place, the factor of χ: 2 is half as fast; None: all are equal."""
    blackouts: Blackouts | None = None
    """The blackouts; None: there are none."""
    sites: Sites = field(default_factory=Sites)
    """The nodes of the places; without them, demands that name nodes cannot be placed."""
    holds: tuple[PortHold, ...] = ()
    """Host ports in use."""

    @property
    def uniform(self) -> bool:
        """Whether equal processors are always free, for all demands, and the default discipline uses them."""
        limits = self.speeds is not None or self.blackouts is not None or bool(self.sites.closed)
        return self.discipline.plain and not limits

    def confines(self, demand: Demand) -> bool:
        """Whether some places are not for this demand, or not for several of its chunks at a time."""
        return demand.eligible is not None or bool(self.sites.closed)

    def allowed(self, demand: Demand) -> "Timeline":
        """Return the timeline of the places that a demand may use; it must not be modified."""
        return self.only(self.sites.at(demand.eligible)) if self.confines(demand) else self

    def most(self, demand: Demand) -> int:
        """Return the largest number of places that a demand may use at a time."""
        if not self.confines(demand):
            return self.ready.size
        eligible, places = demand.eligible, self.sites.places
        choices = [there.tolist() for there in self.sites.choices(eligible)]
        if eligible is not None and eligible.ports:
            return max(len({places[i].node for i in there}) for there in choices)
        return max(len(there) for there in choices)

    def only(self, places: Indices) -> "Timeline":
        """Return a timeline of these places (ascending) alone; they are numbered anew."""
        speeds = None if self.speeds is None else self.speeds[places]
        if speeds is not None and (speeds == 1.0).all():
            speeds = None
        blackouts = None if self.blackouts is None else self.blackouts.only(places)
        return Timeline(self.ready[places], self.discipline, self.port, speeds, blackouts)

    def as_used(self, demand: Demand) -> "Timeline":
        """Return the timeline as a demand uses it; its arrays are shared. Units with a pod each send nothing."""
        return self.beside_port() if self.discipline.one_port and demand.unit_pods else self

    def beside_port(self) -> "Timeline":
        """Return the timeline of chunks that send nothing."""
        return replace(self, discipline=replace(self.discipline, network="Concurrent"), port=-np.inf)

    def ready_for(self, demand: Demand) -> Floats:
        """Return from when each place is free for a demand: not before the host ports that its pods take."""
        if not self.holds or demand.eligible is None or not demand.eligible.ports:
            return self.ready
        until: dict[str, float] = {}
        for place, ports, end in self.holds:
            if demand.eligible.conflicts(ports):
                until[place.node] = max(end, until.get(place.node, -np.inf))
        held: Floats = np.array([until.get(place.node, -np.inf) for place in self.sites.places])
        return np.asarray(np.maximum(self.ready, held))

    def at(self, now: float) -> "Timeline":
        """Return the timeline for a demand placed at ``now``: nothing is free in the past."""
        return replace(self, ready=np.maximum(self.ready, now))

    def under(self, demand: Demand, deadline: float) -> Demand:
        """Return the demand of a new job under another absolute deadline, with its due time and queue key."""
        order = self.discipline.order_of(
            demand.uid,
            arrival=demand.order.arrival,
            deadline=deadline,
            load=demand.ranges.total,
            cost=demand.cost,
            processors=self.allowed(demand).ready.size,
        )
        return replace(demand, order=order, due=deadline - demand.kept_back)

    def copy(self) -> "Timeline":
        """Return a copy with ready times that can be moved."""
        return replace(self, ready=self.ready.copy(), blackouts=self.blackouts and self.blackouts.copy())

    def holding(self, busy: Mapping[Place, float]) -> "Timeline":
        """Return the timeline on which pods keep their host ports as long as their places are ``busy``."""
        holds = tuple(hold._replace(until=max(hold.until, busy.get(hold.place, -np.inf))) for hold in self.holds)
        return self if holds == self.holds else replace(self, holds=holds)

    def occupy(self, placement: "Placement") -> None:
        """Move the times of a placement's processors, and of the port, behind it."""
        if placement.demand.eligible is not None and (ports := placement.demand.eligible.ports):
            self.holds += placement.holds(self.sites.places, ports)
        if self.blackouts is not None:
            self._take_around(placement, self.blackouts)
            return
        self.ready[placement.where] = placement.ends
        if placement.reducer is not None:
            self.ready[placement.reducer] = placement.finish
        self.port = max(self.port, placement.port)

    def _take_around(self, placement: "Placement", blackouts: Blackouts) -> None:
        within = placement.demand.inside is not None
        held = zip(placement.where.tolist(), placement.starts.tolist(), placement.ends.tolist(), strict=True)
        for place, start, end in held:
            blackouts.occupy(self.ready, place, start, end, within=within)
        if placement.reducer is not None:
            start = placement.finish - placement.demand.reduce
            blackouts.occupy(self.ready, placement.reducer, start, placement.finish, within=within)
        if placement.port == -np.inf:
            return
        for start, end in zip(placement.starts.tolist(), placement.sent.tolist(), strict=True):
            self.port = blackouts.send(start, end, self.port)

    def check(self, placement: "Placement") -> None:
        """Raise InvariantError if a chunk overlaps another or a window, or a transfer overlaps another."""
        if (used := self.as_used(placement.demand)) is not self:
            used.check(placement)
            return
        uid, near = placement.demand.uid, tolerance(placement.finish)
        if self.blackouts is not None:
            self._check_around(placement, self.blackouts.copy())
            return
        if placement.where.size and (placement.starts < self.ready[placement.where] - near).any():
            raise InvariantError(f"{uid}: a chunk starts before its processor is free")
        if len(set(placement.where.tolist())) != placement.where.size and not self.unbroken(placement.demand):
            raise InvariantError(f"{uid}: one processor is used twice")
        if (placement.starts < _chained(placement) - near).any():
            raise InvariantError(f"{uid}: a chunk starts before the chunk before it on its processor has ended")
        self._check_first(placement)
        sent = np.concatenate(([self.port], placement.sent[:-1]))
        if self.discipline.one_port and placement.where.size and (placement.starts < sent - near).any():
            raise InvariantError(f"{uid}: two transfers overlap")

    def _check_first(self, placement: "Placement") -> None:
        """Raise InvariantError if fewer chunks than the demand needs begin at one time."""
        least, near = placement.demand.least, tolerance(placement.finish)
        if least == 1 or not placement.where.size:
            return
        begins, sent = placement.starts[:least], placement.sent[:least]
        expected = np.concatenate((begins[:1], sent[:-1])) if self.discipline.one_port else begins[:1]
        if begins.size < least or (np.abs(begins - expected) > near).any():
            raise InvariantError(f"{placement.demand.uid}: {least} chunks must begin at one time")
        if (placement.starts < begins[0] - near).any():
            raise InvariantError(f"{placement.demand.uid}: a chunk begins before the first {least}")

    def _check_around(self, placement: "Placement", blackouts: Blackouts) -> None:
        ready, port = self.ready.copy(), self.port
        uid, near, inside = placement.demand.uid, tolerance(placement.finish), placement.demand.inside
        self._check_first(placement)
        for place, start, end, sent in zip(
            placement.where.tolist(),
            placement.starts.tolist(),
            placement.ends.tolist(),
            placement.sent.tolist(),
            strict=True,
        ):
            window = blackouts.window_before(place, start + near)
            if inside is None:
                begin, limit = blackouts.slot_behind(window, place, float(ready[place]))
            elif window >= 0 and blackouts.owner[window] == inside:
                begin, limit = max(ready[place], blackouts.inside[window]), blackouts.until[window]
            else:
                raise InvariantError(f"{uid}: a chunk is outside its reservation")
            if start < begin - near or end > limit + near:
                raise InvariantError(f"{uid}: a chunk overlaps a window or another chunk on its processor")
            blackouts.occupy(ready, place, start + near, end, within=inside is not None)
            if not self.discipline.one_port:
                continue
            begin, limit = blackouts.gap_at(start + near, port)
            if start < begin - near or sent > limit + near:
                raise InvariantError(f"{uid}: a transfer overlaps another, or a reserved interval")
            port = max(port, sent)

    def chi(self, cost: Cost, where: NDArray[np.intp]) -> Floats | float:
        """Return χ at these places."""
        return cost.chi if self.speeds is None else cost.chi * self.speeds[where]

    def together(self, demand: Demand) -> bool:
        """Whether the processors of a demand wait for each other."""
        return self.discipline.together and not demand.apart

    def unbroken(self, demand: Demand) -> bool:
        """Whether each chunk must be one range, because it has a transfer of its own: a processor may have several."""
        return self.discipline.one_port and len(demand.ranges.parts) > 1

    def at_holes(
        self, demand: Demand, where: NDArray[np.intp], sizes: NDArray[np.int64], ready: Floats
    ) -> tuple[NDArray[np.intp], NDArray[np.int64], Floats]:
        """Divide shares into chunks that span no hole of the demand's ranges; return their places, sizes and readiness.

        Whichever processor is free first takes the next range, or as much of it as its share still has. So chunks are
        in the order of their transfers.
        """
        cost, port, left = demand.cost, self.port, sizes.tolist()
        chi = np.broadcast_to(np.asarray(self.chi(cost, where)), where.shape).tolist()
        line = [(at, k) for k, at in enumerate(ready.tolist())]
        heapq.heapify(line)
        chunks: list[tuple[int, int]] = []
        for part in demand.ranges:
            room = part.size
            while room and line:
                at, k = heapq.heappop(line)
                size = min(left[k], room)
                chunks.append((k, size))
                left[k] -= size
                room -= size
                port = max(at, port) + cost.theta_cm + size * cost.tau
                if left[k]:
                    heapq.heappush(line, (port + cost.theta_cp + size * chi[k], k))
        turns = np.array([k for k, _ in chunks], dtype=np.intp)
        return where[turns], np.array([size for _, size in chunks], dtype=np.int64), ready[turns]

    def walk(self, where: NDArray[np.intp], sizes: NDArray[np.int64], ready: Floats, cost: Cost) -> "Walk":
        """Start chunks of these sizes (not 0) at places in order, each once it is ready and has the port.

        If a place occurs several times, each chunk there begins behind the one before.
        """
        sending: Floats = np.asarray(cost.theta_cm + sizes * cost.tau)
        computing: Floats = np.asarray(cost.theta_cp + sizes * self.chi(cost, where))
        if not self.discipline.one_port or not ready.size:
            return Walk(ready, ready + sending + computing, -np.inf)
        ready = np.maximum(ready, self.port)
        if len(set(where.tolist())) < where.size:
            starts = _in_turn_and_place(where, ready, sending, computing)
        else:
            starts = in_turn(ready, sending)
        return Walk(starts, starts + sending + computing, float((starts + sending).max()))


def _in_turn_and_place(where: NDArray[np.intp], ready: Floats, sending: Floats, computing: Floats) -> Floats:
    """Return when transfers begin, one after the other, if a place's next chunk waits for the end of the one before."""
    starts: list[float] = []
    port, free = -np.inf, dict.fromkeys(where.tolist(), -np.inf)
    for place, at, sends, computes in zip(
        where.tolist(), ready.tolist(), sending.tolist(), computing.tolist(), strict=True
    ):
        starts.append(max(at, port, free[place]))
        port = starts[-1] + sends
        free[place] = port + computes
    return np.array(starts)


class Walk(NamedTuple):
    """Start and end times of chunks, and the time from which the port is free."""

    starts: Floats
    ends: Floats
    port: float


@dataclass(slots=True, eq=False)
class Placement:
    """The processors of one demand. Arrays are aligned: one entry per chunk, a chunk per processor."""

    demand: Demand
    where: NDArray[np.intp]
    """Indices into the plan's places, in the order of service. With blackouts, or if a load with holes is sent over one
    port, one may occur several times."""
    cuts: NDArray[np.int64]
    """Cut points over the demand's concatenated ranges; one more than processors."""
    starts: Floats
    ends: Floats
    finish: float
    """Last end, reduce included."""
    reducer: int | None = None
    """Index of the place that the reduce step is planned on."""
    port: float = -np.inf
    """When its last transfer ends (OnePort)."""
    start: float = field(init=False)
    """When its first chunk starts, or its reduce step if no chunk is left."""

    def __post_init__(self) -> None:
        """Compute its start once: each step reads that of all placements."""
        self.start = float(self.starts.min()) if self.starts.size else self.finish - self.demand.reduce

    def next_chunks(self, positions: Sequence[int]) -> dict[int, Range]:
        """Return the next chunk at each of these positions in ``where``.

        Chunks of one unit are the first units of the demand, wherever they run: so what is left has few holes.
        """
        if self.demand.unit_pods:
            return dict(zip(positions, self.demand.ranges.units(), strict=False))
        pieces = self.pieces()
        return {position: pieces[position][0] for position in positions}

    def pieces(self) -> list[list[Range]]:
        """Return what each processor computes: one range, or several if the demand has holes."""
        return self.demand.ranges.slices(self.cuts.tolist())

    def holds(self, places: Sequence[Place], ports: frozenset[HostPort]) -> tuple[PortHold, ...]:
        """Return until when its pods have these host ports."""
        held = [PortHold(places[i], ports, end) for i, end in zip(self.where.tolist(), self.ends.tolist(), strict=True)]
        if self.reducer is not None:
            held.append(PortHold(places[self.reducer], ports, self.finish))
        return tuple(held)

    def begins(self) -> list[float]:
        """Return when its chunks start, and its reduce step."""
        return [*self.starts.tolist(), *([] if self.reducer is None else [self.finish - self.demand.reduce])]

    def created(self, chunks: Mapping[int, Range], ends: Sequence[float]) -> "Placement | None":
        """Return the rest of the placement when these chunks, each the next of its processor, have been created.

        ``chunks``: by position in ``where``; ``ends``: when they end.
        """
        sizes, starts, positions = np.diff(self.cuts), self.starts.copy(), list(chunks)
        sizes[positions] -= [end - begin for begin, end in chunks.values()]
        starts[positions] = ends
        keep = sizes > 0
        if not keep.any() and self.reducer is None:
            return None
        until = max(self.demand.running_until, float(self.ends[positions].max()))
        return Placement(
            self.demand.begun(Ranges.of(*chunks.values()), len(chunks), until, processors=self.processors),
            self.where[keep],
            np.concatenate(([0], np.cumsum(sizes[keep]))),
            starts[keep],
            np.maximum(self.ends[keep], starts[keep]),
            self.finish,
            self.reducer,
            self.port,
        )

    @property
    def sent(self) -> Floats:
        """Times by which its chunks' inputs have been sent."""
        cost = self.demand.cost
        return np.asarray(self.starts + cost.theta_cm + np.diff(self.cuts) * cost.tau)

    @property
    def processors(self) -> int:
        """Number of its processors; one may have several chunks."""
        return max(1, len(set(self.where.tolist())))


def _chained(placement: Placement) -> Floats:
    """Return when the chunk before each chunk on its place ends; -inf: it is the first."""
    free: dict[int, float] = {}
    begins = []
    for place, end in zip(placement.where.tolist(), placement.ends.tolist(), strict=True):
        begins.append(free.get(place, -np.inf))
        free[place] = end
    return np.array(begins)


def extra_fragments(ranges: Ranges, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, per slice, the holes inside it: each is one more chunk with its own set-up."""
    holes = np.cumsum([r.size for r in ranges.parts])[:-1]
    # A hole strictly between two cut points splits that slice.
    return np.searchsorted(holes, cuts[1:], side="left") - np.searchsorted(holes, cuts[:-1], side="right")
