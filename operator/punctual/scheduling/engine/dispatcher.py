"""Dispatch: creates planned chunks on free processors, and runs pilots and other jobs on leftover capacity.

A leftover chunk goes on as long as promised work can wait for its processor or use another. When it must leave, it is
asked to stop early, ``WARNING`` before that work begins, and its pod is deleted if it does not stop soon.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from punctual import reasons
from punctual.scheduling.admission.schedule import PlaceClaim, ReduceStart
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.lifecycle import Lifecycle
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model import pilots
from punctual.scheduling.model.actions import CreateChunk
from punctual.scheduling.model.job import Chunk, Kind
from punctual.scheduling.model.node_rules import Ports, conflict
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.timing import LEFTOVER_CHUNK, LOOK, NOTICE, PATIENCE, SOON, WARNING
from punctual.scheduling.model.wording import span
from punctual.scheduling.placement.demand import Floats
from punctual.scheduling.placement.plan import Plan, same_placements
from punctual.scheduling.placement.timeline import Timeline, Walk
from punctual.scheduling.state.eligibility import NO_PORTS
from punctual.scheduling.state.job_state import ChunkObservation, JobState, expected_end
from punctual.scheduling.state.pool_state import PoolState
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

UNBOOKED = frozenset({"Measuring", "Leftover"})
"""States of jobs that run on leftover capacity."""


@dataclass(slots=True)
class Dispatcher:
    """Creates chunks on free processors, and asks leftover chunks to leave."""

    state: PoolState
    lifecycle: Lifecycle
    planner: Planner
    mode: AdmissionMode
    given: float = -math.inf
    """Time of the last dispatch."""
    seen: Plan | None = None
    """The last plan ..."""
    delayed: Sequence[float] = ()
    """... and the times before which demands of it must not begin."""

    def work(self, now: float) -> None:
        """Run all stages after a change, otherwise twice a second for work that is due by the clock."""
        due = self.state.due is not None and now >= self.state.due - tolerance(now)
        if not (self.state.outdated.record or self.state.outdated.schedule or due) and abs(now - self.given) < LOOK:
            return
        self.given = now
        self.vacate(now)
        self.dispatch(now)
        if self.state.schedule.takes_any:  # the queue has used all free processors, and may need others
            self.vacate(now)
        self.relieve(now)

    def wake(self, now: float) -> float | None:
        """Return when work begins, or a leftover chunk must be asked to leave or ended, without a further event."""
        at = self.state.schedule.wake(now)
        if not self.state.schedule.counts_on_ends:
            return at
        asked = (st.watch(c).offered_at for st in self._active() for c in st.record.chunks)
        times = [offered + SOON + 2 * tolerance(now) for offered in asked if offered is not None]
        if staying := self.planner.leftovers(now):
            times += (claim.begin - WARNING for claim in self._claims(now) if claim.place in staying)
        return min((t for t in (at, *times) if t is not None and t > now), default=None)

    def _active(self) -> Iterator[JobState]:
        return (self.state.jobs[uid] for uid in self.state.active)

    def vacate(self, now: float) -> None:
        """Ask leftover chunks to leave the processors that planned chunks need; end those that do not leave soon."""
        leftover = any(st.state == "Leftover" or any(c.leftover for c in st.record.chunks) for st in self._active())
        if not leftover and not self.lifecycle.endings.any_lingers(now) and not self.state.terms.shares:
            return
        if self.state.schedule.counts_on_ends:
            staying = self.planner.leftovers(now)
            if any(claim.place in staying for claim in self._due_claims(now)):
                self.mode.replan(now)  # other processors, or more time, may do for the promised work
        for claim in self._due_claims(now):
            self._vacate_one(now, claim)

    def _due_claims(self, now: float) -> list[PlaceClaim]:
        """Return the claims of work that begins soon, unless a free processor takes the next work anyway."""
        schedule, occupants = self.state.schedule, self.state.processors.occupants
        if schedule.takes_any and any(place not in occupants for place in self.state.processors.usable(now)):
            return []
        return [claim for claim in self._claims(now) if claim.begin - WARNING <= now + tolerance(now)]

    def _claims(self, now: float) -> list[PlaceClaim]:
        """Return what promised work needs that a leftover chunk may have: its processor, or its host ports."""
        return [*self.state.schedule.claimed(now), *self._port_claims()]

    def _port_claims(self) -> list[PlaceClaim]:
        """Return the places of pods with host ports that planned work needs."""
        if not self.planner.eligibility.ports() or not (wanted := _wanted_ports(self.state.plan)):
            return []
        found = []
        for place, occupant in self.state.processors.occupants.items():
            held = st.job.rules.ports if (st := self.state.jobs.get(occupant.job)) is not None else NO_PORTS
            begins = [(at, uid) for node, ports, at, uid in wanted if node == place.node and conflict(held, ports)]
            if begins:
                found.append(PlaceClaim(place, *min(begins)))
        return found

    def _vacate_one(self, now: float, claim: PlaceClaim) -> None:
        """Ask a leftover chunk to leave, or end it if it has been asked and has not answered."""
        if (found := self.state.on(claim.place)) is None:
            if (occupant := self.state.processors.occupants.get(claim.place)) is not None:
                self.lifecycle.endings.hurry(now, occupant)
            return
        st, chunk = found
        leftover = chunk.leftover or st.state == "Leftover"
        if not (leftover or st.job.uid in self.state.schedule.overtaken):
            return
        watch = st.watch(chunk)
        if leftover and st.job.unit_pods and watch.pod is not None:
            return  # nothing ends it
        runs = watch.pod is not None and watch.pod.runs
        if st.job.unit_pods and now < claim.begin - WARNING + PATIENCE - tolerance(now):
            return  # it has no units to give back, so it may stay as long as a chunk that does not answer
        if chunk.offered is None and runs and watch.offered_at is None and not st.job.unit_pods:
            self.offer(now, st, chunk, chunk.begin + watch.done)
        elif (watch.offered_at is None or now > watch.offered_at + PATIENCE) and not _ends_soon(chunk, watch, now):
            text = self._need(now, st, chunk, claim)
            self.lifecycle.end_and_lose(now, st, chunk, reasons.CAPACITY_LOST, text, own=False)

    def _need(self, now: float, st: JobState, chunk: Chunk, claim: PlaceClaim) -> str:
        """Describe what needs the processor of a leftover chunk; a job's name stays private to its namespace."""
        watch = st.watch(chunk)
        other = self.state.jobs.get(claim.uid or "")
        if other is None:
            what = "promised jobs that wait, which have"
        elif other.job.namespace == st.job.namespace:
            what = f"the promised job {other.job.name}, which has"
        else:
            what = "a promised job of another namespace, which has"
        text = f"its processor is needed for {what} no time to wait until the chunk ends"
        if (left := expected_end(chunk, watch, now=now) - now) > 0:
            text += f", in {span(left)}"
        if watch.offered_at is None:
            return text
        return f"{text}; asked to stop early, it did not within {span(now - watch.offered_at)}"

    def offer(self, now: float, st: JobState, chunk: Chunk, end: int) -> None:
        """Offer a running chunk an end."""
        self.state.outbox.add(st.offer(now, chunk, end))
        self.state.touch(st)

    def relieve(self, now: float) -> None:
        """Offer late chunks an earlier end, so that idle processors can take a part of the rest."""
        if self.state.terms.most_chunks == 1:
            return
        late = [(st, chunk) for st in self._active() for chunk in st.record.chunks if _may_be_relieved(now, st, chunk)]
        idle: Sequence[Place] = self._idle(now) if late else ()
        for st, chunk in late:
            if not idle:
                return
            able, done = self.planner.eligibility.able(st, idle), st.watch(chunk).done
            helpers, kept = self._share_out(now, st, chunk.size - done, len(able))
            if helpers:
                self.offer(now, st, chunk, chunk.begin + done + kept)
                idle = _without(idle, able[:helpers])

    def _share_out(self, now: float, st: JobState, left: int, idle: int) -> tuple[int, int]:
        """Return how many processors take over the tail of a late chunk's rest, and how many units the chunk keeps.

        All of them end together, the helpers after notice and set-up. Their number is the one that the plan will give
        the tail: the fewest that end in time, or all idle processors for a job on leftover capacity.
        """
        cost = self.planner.planned(st)
        unit, pause = cost.per_unit, NOTICE + cost.setup
        most = min(idle, left - 1, (st.job.max_processors or left) - len(st.record.chunks))
        if most < 1 or left * unit < 2 * pause:
            return 0, left
        due = self.planner.due(st) if st.state == "Promised" else -math.inf
        for helpers in range(1, most + 1):
            kept = math.ceil((left * unit + helpers * pause) / ((helpers + 1) * unit))
            if now + kept * unit <= due:
                break
        return (helpers, kept) if kept < left else (0, left)

    def _idle(self, now: float) -> list[Place]:
        """Return the free places that no placement waits for."""
        booked = {self.state.plan.places[int(w)] for b in self.state.plan for w in b.where}
        booked |= {self.state.plan.places[b.reducer] for b in self.state.plan if b.reducer is not None}
        idle = [place for place in self.planner.eligibility.free(now) if place not in booked]
        if not self.state.ahead.held:
            return idle
        # An unpromised chunk must not run into a reserved window.
        room = self.state.ahead.free(idle, now, now + 2 * LEFTOVER_CHUNK).tolist()
        return [place for place, there in zip(idle, room, strict=True) if there]

    def dispatch(self, now: float) -> None:
        """Create the chunks that begin now on free processors, and run leftover work on processors that none needs."""
        # Work that was held up starts late, so the placements behind it move.
        if self.state.outdated.schedule or self.mode.broken or self._held_up(now):
            self.mode.replan(now)
        free: dict[Place, None] = dict.fromkeys(self.planner.eligibility.free(now))
        if not free:
            return
        idle = list(free)
        unplanned = self._unplanned(free)
        for place in unplanned:
            del free[place]
        for start in self.state.schedule.starts(now, free, self.planner.eligibility.ports()):
            st = self.state.jobs[start.uid]
            if isinstance(start, ReduceStart):
                self._create_reduce(now, st, start.place)
            else:
                self._create(now, st, start.pieces, start.walk)
        idle = [place for place in idle if place not in self.state.processors.occupants]
        planned = [place for place in idle if place not in unplanned]
        self._use_leftovers(now, {**self.state.schedule.spare(now, planned), **dict.fromkeys(unplanned, math.inf)})

    def _unplanned(self, free: Iterable[Place]) -> list[Place]:
        """Return the free places of closed nodes that the schedule does not know: it was made without them."""
        closed = self.state.processors.closed - self.state.plan.timeline.sites.closed
        return [place for place in free if place.node in closed] if closed else []

    def _held_up(self, now: float) -> bool:
        """Whether a job starts late after a hold-up: the work planned behind it counted on an earlier end."""
        plan = self.state.plan
        if self.state.ahead.held and self._waits(now):
            return True
        if self.seen is None or not same_placements(plan, self.seen):
            self.seen, self.delayed = plan, [d.not_before for d in plan.demands if d.not_before > 0]
        if not any(at <= now for at in self.delayed):
            return False
        return any(0 < b.demand.not_before <= now and b.start < now for b in plan)

    def _waits(self, now: float) -> bool:
        """Whether a planned chunk has not begun although its processor is free: it waited for the port or the clock."""
        late, places, occupants = now - tolerance(now), self.state.plan.places, self.state.processors.occupants
        overdue = (b.where[b.starts < late].tolist() for b in self.state.plan if b.start < late)
        return any(places[w] not in occupants for w in chain.from_iterable(overdue))

    def _unbooked(self, now: float, free: Mapping[Place, float]) -> list[Place]:
        """Return the free places, those that no placement waits for first; with reserved windows, only those."""
        left = set(free).intersection(self._idle(now)) if self.state.ahead.held else free
        return sorted(left, key=lambda p: (free[p] < math.inf, p.slot, p.node))

    def _create_reduce(self, now: float, st: JobState, place: Place) -> None:
        if not st.work_done or st.record.chunks or st.job.reduce_duration is None:
            return
        units = st.job.units  # the reduce step is stored as one unit after the last
        start_up = st.cost.theta_cp if st.cost else 0.0  # no pilot may have ended by itself
        end = np.array([now + st.job.reduce_duration + start_up])
        self._create(now, st, [(Range(units, units + 1), place)], Walk(np.array([now]), end, -np.inf), kind="Reduce")
        self.state.schedule.remove(st.job.uid)

    def _create(
        self,
        now: float,
        st: JobState,
        pieces: Sequence[tuple[Range, Place]],
        walk: Walk,
        *,
        kind: Kind = "Chunk",
        leftover: bool = False,
    ) -> None:
        """Create chunks of these ranges, each on its place, with its planned start and end."""
        spec = self.state.spec
        sent: list[float | None] = [None] * len(pieces)
        sends = kind != "Reduce" and not st.job.unit_pods
        if spec.discipline.one_port and sends and (cost := st.cost):
            sent = [
                start + cost.theta_cm + piece.size * cost.tau
                for start, (piece, _) in zip(walk.starts.tolist(), pieces, strict=True)
            ]
        turn = now if st.job.fetches and kind != "Reduce" and not spec.discipline.one_port else None
        chunks = tuple(
            Chunk(
                begin=piece.begin,
                end=piece.end,
                origin=piece.end,
                node=place.node,
                attempt=ledger.next_attempt(st.record, piece.begin, piece.end),
                kind=kind,
                created=now,
                promised_end=end,
                sent=input_there,
                turn=turn,
                leftover=leftover,
            )
            for (piece, place), end, input_there in zip(pieces, walk.ends.tolist(), sent, strict=True)
        )
        st.record = st.record._replace(chunks=st.record.chunks + chunks, started=st.record.started or now)
        for chunk, (_, place) in zip(chunks, pieces, strict=True):
            self.state.processors.seat_at(self.state.occupant(st.job.uid, chunk), place)
        self.state.active[st.job.uid] = None
        self.state.touch(st)
        self.state.outbox.add(*(CreateChunk(st.job.uid, chunk) for chunk in chunks))

    def _use_leftovers(self, now: float, places: Mapping[Place, float]) -> None:
        """Run pilots and jobs without a placement on free places, until the processors are needed.

        ``places``: until when each is free. Where that is known, only chunks run that should have ended by then.
        """
        wanting = sorted(
            (st for st in self.state.live.unpromised() if st.state in UNBOOKED and st.refused_until <= now),
            key=lambda st: (st.state != "Measuring", st.record.goes_on, st.job.deadline, st.job.arrival, st.job.uid),
        )
        free: Sequence[Place] = self._unbooked(now, places) if wanting else []
        for i, st in enumerate(wanting):
            if not free:
                return
            able = self.planner.eligibility.able(st, free)
            if not able or st.job.uid in self.state.searches:  # its own chunks would make its offer worse
                continue
            if st.job.unit_pods:
                able = _to_the_end(self.planner, now, st, able, places)
            reduce = st.work_done and st.job.reduce_duration is not None
            if st.state == "Measuring" or reduce:
                if able and places[able[0]] < math.inf:
                    continue
                measures = st.state == "Measuring" and (st.record.pilots or not reduce)
                used = self._pilot(now, st, able) if measures else self._reduce_on(now, st, able[0])
            else:
                used = self._run_on_leftovers(now, st, able, places, share=max(1, len(free) // (len(wanting) - i)))
            free = _without(free, able[:used])

    def _reduce_on(self, now: float, st: JobState, place: Place) -> int:
        """Create the reduce step of a job, if none runs; return the number of pods created."""
        if st.record.chunks:
            return 0
        self._create_reduce(now, st, place)
        return 1

    def _run_on_leftovers(
        self, now: float, st: JobState, free: Sequence[Place], until: Mapping[Place, float], *, share: int
    ) -> int:
        """Create up to ``share`` short chunks of a job on the first of these free places; return how many."""
        if st.cost is None:
            return 0
        cost = self.planner.planned(st)
        room = self.state.terms.most_chunks or ledger.most_chunks(st.record)
        share = min(share, min(st.job.max_processors or room, room) - len(st.record.chunks))
        left = ledger.remaining(st.job.units, st.record)
        pieces: list[tuple[Range, Place]] = []
        for place in free[: max(0, share)]:
            if not left:
                break
            first, places = left.parts[0], min(share, len(free)) - len(pieces)
            size = min(first.size, _leftover_units(st, cost, -(-left.total // places)))
            if now + cost.seconds(size) > until[place]:
                break  # the places behind it are needed too
            piece = Range(first.begin, first.begin + size)
            pieces.append((piece, place))
            left -= Ranges.of(piece)
        if pieces:
            planned, at = self.state.plan.timeline, np.full(len(pieces), now)
            timeline = _timeline(self.state, st, at, [place for _, place in pieces])
            walk = timeline.walk(np.arange(at.size), np.array([piece.size for piece, _ in pieces]), at, cost)
            if walk.port > now:
                booked = min((b.start for b in self.state.plan), default=np.inf)
                if walk.port > booked + tolerance(booked) or self.state.ahead.sendable(now, walk.port - now) > now:
                    return 0  # a placed job sends before, or a reservation keeps the port
            self._create(now, st, pieces, walk, leftover=True)
            if walk.port > planned.port:
                planned.port = walk.port  # all later placements meet it too
                self.state.outdated.times_changed()
            _tell_of(self.state, st)
        return len(pieces)

    def _pilot(self, now: float, st: JobState, free: Sequence[Place]) -> int:
        """Create the next pilot of a job on the first of these free places if there is none, or end its measuring.

        Return the number of pods created.
        """
        record = st.record
        if record.chunks:
            return 0
        left = ledger.remaining(st.job.units, record)
        size = pilots.next_pilot(record.pilots, left.total, unit_pods=st.job.unit_pods)
        if size is None:
            if not record.pilots:
                return 0
            st.record = record._replace(cost=pilots.fit(record.pilots, record.transfers), admitted=None)
            if not left and st.job.reduce_duration is None:
                self.lifecycle.finish(now, st)
            self.state.touch(st)
            if st.state == "Waiting":
                self.state.ask(st)
            return 0
        if not free:
            return 0
        first = left.parts[0]
        piece = Range(first.begin, min(first.end, first.begin + size))
        # No cost is known yet: the pilot is late once it stalls, not at a planned time.
        walk = Walk(np.array([now]), np.array([max(st.job.deadline, now + LEFTOVER_CHUNK)]), -np.inf)
        self._create(now, st, [(piece, free[0])], walk, kind="Pilot", leftover=True)
        _tell_of(self.state, st)
        return 1

    def take_up(self) -> None:
        """Create the pods of chunks that were not seen after a restore (again). A 409 is a success."""
        self.state.outdated.pods_created()
        for uid in self.state.active:
            st = self.state.jobs[uid]
            for chunk in st.record.chunks:
                if st.watch(chunk).pod is None:
                    self.state.outbox.add(CreateChunk(uid, chunk))


def _timeline(state: PoolState, st: JobState, at: Floats, places: Sequence[Place]) -> Timeline:
    """Return the timeline of free places, as chunks of a job use it."""
    planned = state.plan.timeline
    timeline = Timeline(at, planned.discipline, planned.port, state.processors.speeds(places))
    return timeline.beside_port() if st.job.unit_pods else timeline


def _wanted_ports(plan: Plan) -> list[tuple[str, Ports, float, str]]:
    """Return the host ports that planned work needs: node, ports, when it begins, and its job."""
    wanted: list[tuple[str, Ports, float, str]] = []
    for placement in plan:
        if (eligible := placement.demand.eligible) is not None and eligible.ports:
            for w, begin in zip(placement.where.tolist(), placement.starts.tolist(), strict=True):
                wanted.append((plan.places[w].node, eligible.ports, begin, placement.demand.uid))
    return wanted


def _to_the_end(
    planner: Planner, now: float, st: JobState, places: Sequence[Place], until: Mapping[Place, float]
) -> Sequence[Place]:
    """Return the places that nothing else needs before the end of a pod that nothing ends.

    A pod may take longer than its cost says, so no placement waits for them.
    """
    own = st.job.rules.ports
    taken = {node for node, ports, *_ in (_wanted_ports(planner.state.plan) if own else ()) if conflict(own, ports)}
    lasting = [place for place in places if until[place] == math.inf and place.node not in taken]
    if not planner.state.ahead.held:
        return lasting
    end = st.measured_by(now) if st.cost is None else now + planner.planned(st).seconds(1)
    room = planner.state.ahead.free(lasting, now, end + planner.state.ahead.clearance).tolist()
    return [place for place, there in zip(lasting, room, strict=True) if there]


def _tell_of(state: PoolState, st: JobState) -> None:
    """Note that a chunk without a promise takes what placements may need, or a queue counts on."""
    if st.job.rules.ports or (st.job.unit_pods and not state.schedule.counts_on_ends):
        state.outdated.times_changed()


def _leftover_units(st: JobState, cost: Cost, part: int) -> int:
    """Return the units of a leftover chunk; ``part``: those of an equal part of what is left."""
    if st.job.unit_pods:
        return 1
    return max(st.job.least_chunk, min(int(LEFTOVER_CHUNK / cost.per_unit), part))


def _without(places: Sequence[Place], used: Sequence[Place]) -> Sequence[Place]:
    """Return the places that are not used."""
    if places[: len(used)] == used:  # usually: the first of them are
        return places[len(used) :]
    return [place for place in places if place not in used]


def _ends_soon(chunk: Chunk, watch: ChunkObservation, now: float) -> bool:
    """Whether the chunk has answered its offer and reaches, at its own pace, its named end before it must leave."""
    answered = chunk.offered is None and chunk.end < chunk.origin
    return answered and watch.offered_at is not None and max(now, chunk.promised_end) <= watch.offered_at + SOON


def _may_be_relieved(now: float, st: JobState, chunk: Chunk) -> bool:
    """Whether a chunk is late and could answer an offer: its progress is known, and it has no offer yet."""
    if not chunk.late or chunk.offered is not None or chunk.kind == "Reduce" or st.cost is None:
        return False
    watch = st.watch(chunk)
    runs = watch.pod is not None and watch.pod.runs
    return runs and watch.offered_at is None and watch.looked_at(now)
