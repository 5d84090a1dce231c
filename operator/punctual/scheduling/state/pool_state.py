"""In-memory state of one pool: jobs, processors, the schedule, and pending writes.

All stages of a step work on one PoolState, which decides nothing itself. Only they touch it; readers get a
:class:`~punctual.scheduling.view.PoolView`. The contents of the jobs' records survive a crash; all other state is
deliberately lost.
"""

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from punctual.scheduling.admission.exact import ExactSchedule
from punctual.scheduling.admission.reservation_test import BookedReservations
from punctual.scheduling.admission.schedule import Schedule
from punctual.scheduling.admission.shares import Shares
from punctual.scheduling.chunks.owner import Key
from punctual.scheduling.model.events import NodeObserved, PodObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import UNREAD, PoolSpec
from punctual.scheduling.model.processors import NO_POD, Occupant, Place, Processors, Taken
from punctual.scheduling.model.resources import NOTHING, Resources
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.state.holding import Holding
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.live_jobs import LiveJobs
from punctual.scheduling.state.misses import Misses
from punctual.scheduling.state.offer_searches import OfferSearches
from punctual.scheduling.state.outbox import Outbox
from punctual.scheduling.state.outdated import Outdated
from punctual.scheduling.state.terms import Terms, terms_of
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance
from punctual.verdict import Verdict

MAKING_ROOM = 2.0
"""Minimum seconds that are reserved if a placeholder must be preempted before a chunk starts."""
LIVE = frozenset({"Measuring", "Promised", "Leftover"})
"""States that planning and dispatch must consider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of the state that a trial assumes."""

    but: frozenset[str] = frozenset()
    """Uids of jobs without a promise."""
    without: Collection[str] = ()
    """Nodes that are lost, with the work that runs there."""
    stays: Collection[Place] = ()
    """Places on which leftover chunks stay until they end, instead of leaving after notice."""
    job: JobState | None = None
    """State of one job, in place of its own."""
    spec: PoolSpec | None = None
    """Spec in force."""
    processors: Processors | None = None


UNCHANGED = Changes()


@dataclass(slots=True)
class PoolRequest:
    """The pool's spec as last applied, and what became of it."""

    spec: PoolSpec = UNREAD
    nodes: tuple[NodeObserved, ...] | None = None
    """The nodes that it would select; None: the same nodes."""
    edited: bool = False
    """It is new and not yet tested."""
    deleting: bool = False
    verdict: Verdict | None = None
    """Whether it is in force."""


@dataclass(slots=True)
class PodTable:
    """Pods of the pool, by what they are looked up for."""

    seen: dict[tuple[str, str], PodObserved] = field(default_factory=dict)
    """(namespace, name) -> last observation."""
    watched: dict[str, tuple[str, Key]] = field(default_factory=dict)
    """Pod uid -> its job's uid and chunk."""
    ending: dict[str, tuple[Occupant, float]] = field(default_factory=dict)
    """Uid of a pod that was told to end -> its processor's occupant, and the end of its grace period."""
    sending: set[Occupant] = field(default_factory=set)
    """Occupants that have a transfer turn and were not seen to have their input. Includes pods without a chunk."""
    startups: StartupTimes = field(default_factory=StartupTimes)
    """Seconds that pods took to start."""


@dataclass(slots=True)
class PoolState:
    """In-memory state of one pool."""

    epoch: int
    leave: float = 0.0
    """Seconds from the deletion of a pod until its processor is certainly empty."""
    terms: Terms = Terms(UNREAD)  # noqa: RUF009  it cannot change
    """The spec in force, and what it means for promises and chunks."""
    request: PoolRequest = field(default_factory=PoolRequest)
    jobs: dict[str, JobState] = field(default_factory=dict)
    edits: dict[str, None] = field(default_factory=dict)
    """Jobs with a new ``asked`` that is not yet tested. They are tested only after a restore has read all records."""
    live: LiveJobs = field(default_factory=LiveJobs)
    """Jobs that planning and dispatch must consider. Jobs that no longer need it may still be included."""
    active: dict[str, None] = field(default_factory=dict)
    """Uids of the jobs that own chunks, in order."""
    waiting: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (arrival, uid): jobs that wait for a decision."""
    processors: Processors = field(default_factory=Processors)
    pods: PodTable = field(default_factory=PodTable)
    schedule: Schedule[Any] = field(default_factory=ExactSchedule)
    """The promised work that waits for processors."""
    ahead: BookedReservations = field(default_factory=BookedReservations)
    """Accepted reservations."""
    misses: Misses = field(default_factory=Misses)
    shares: Shares = field(default_factory=Shares)
    searches: OfferSearches = field(default_factory=OfferSearches)
    holding: Holding = field(default_factory=Holding)
    outdated: Outdated = field(default_factory=Outdated)
    outbox: Outbox = field(default_factory=Outbox)
    due: float | None = None
    """Time of the next dispatch without an event; None: not before an event."""

    @property
    def spec(self) -> PoolSpec:
        """The spec in force."""
        return self.terms.spec

    @property
    def plan(self) -> Plan:
        """The work that is fixed on a place and at a time."""
        return self.schedule.plan

    def assuming(self, changes: Changes) -> "PoolState":
        """Return the state with changes, for a trial; all else is shared and must not be changed."""
        if changes.job is not None:
            job, uid = changes.job, changes.job.job.uid
            return replace(self, jobs={**self.jobs, uid: job}, live=self.live.plus(job))
        if changes.spec is None:
            return self
        ahead = replace(self.ahead, clearance=changes.spec.margin + self.leave)
        return replace(
            self, terms=terms_of(changes.spec), processors=changes.processors or self.processors, ahead=ahead
        )

    def put_in_force(self, spec: PoolSpec) -> None:
        """Use a spec from now on."""
        self.terms = terms_of(spec)
        self.ahead.clearance = spec.margin + self.leave

    def margin(self, cost: Cost) -> float:
        """Return by how many seconds the plan of a new job must end before its deadline."""
        beyond = self.pods.startups.beyond(cost.setup)
        if self.spec.hold == "Placeholder" or self.holding.has_placeholders:  # also before a first start
            beyond = max(beyond, MAKING_ROOM)
        return self.spec.margin + beyond

    def taint(self) -> None:
        """Taint nodes, or take taints away, as the spec in force asks."""
        self.outbox.add(*self.holding.taint(self.processors.nodes, self.spec))

    def keep_room(self, now: float) -> None:
        """Let placeholders keep the processors that no chunk occupies, and what smaller pods leave of theirs."""
        if not self.outdated.record:
            return
        free = self.processors.room() if self.spec.hold == "Placeholder" else {}
        if (wanted := self.holding.keep(now, free, self._rests(), self.spec)) is not None:
            self.outbox.add(wanted)

    def _rests(self) -> dict[str, list[Resources]]:
        """Return what pods of another controller leave of their processors, by node.

        With `hold: Taint` no other pods come to the nodes. Each placeholder takes one of the pods that a node may have,
        so it gets none that a chunk needs. A chunk beyond its node's processors has none to leave a part of.
        """
        found: dict[str, list[Resources]] = {}
        if self.spec.hold == "Taint":
            return found
        there = self.processors
        for uid in self.active:
            st = self.jobs[uid]
            for chunk in st.record.chunks if st.job.pod is not None else ():
                stray = there.places_of.get(self.occupant(uid, chunk)) in there.strays
                rest = st.rest(chunk, self.spec.share)
                if rest and not stray and chunk.node not in there.closed:
                    found.setdefault(chunk.node, []).append(rest)
        for node, rests in found.items():
            rests.sort(key=lambda rest: (rest.cpu, rest.memory, rest.others))
            if (known := there.nodes.get(node)) is not None:
                del rests[max(0, known.pods - there.counts[node]) :]
        return found

    def place(self, pod: PodObserved) -> None:
        """Count what a pod that has not ended takes of its node, if that is one of the pool.

        A chunk's pod has a place, and so has a pod with as much CPU: its chunk may just be lost. What a pod requests
        beyond its place, and all that a smaller pod without a chunk requests, is taken from the node before its
        processors are counted. So no pod takes less than it requests, and one that only claims to be a chunk's takes no
        more processors than a foreign one.
        """
        processors, spec = self.processors, self.spec
        occupant = Occupant(pod.job, pod.kind, pod.begin, pod.attempt)
        st = self.jobs.get(pod.job)
        owned = st is not None and st.chunk(*occupant[1:]) is not None
        if not owned and pod.node not in processors.counts:
            return
        place = processors.places_of.get(occupant)
        if pod.requests and place is not None and place.node != pod.node:  # bound to another node than it was meant for
            processors.leave(occupant)
            self.outdated.capacity_changed()
            place = None
        placed = owned or place is not None or pod.requests is None or _is_as_large(pod.requests, spec.share)
        if placed:
            processors.seat(occupant, pod.node)
        if processors.note_taken(pod.uid, pod.node, Taken(pod.requests or NOTHING, placed=placed), spec):
            self.outdated.capacity_changed()
        if st is not None and st.job.pod is not None and pod.requests and pod.requests != st.job.pod.requests:
            self.outdated.record_changed()  # what it leaves of its processor is known better now

    def take_away(self, pod: PodObserved) -> bool:
        """Stop counting a pod that has ended or is gone; return whether it had a place."""
        processors = self.processors
        if processors.note_taken(pod.uid, pod.node, NO_POD, self.spec):
            self.outdated.capacity_changed()
        return processors.leave(Occupant(pod.job, pod.kind, pod.begin, pod.attempt))

    def occupant(self, uid: str, chunk: Chunk) -> Occupant:
        """Return the occupant that stands for a chunk on a processor."""
        return Occupant(uid, chunk.kind, chunk.begin, chunk.attempt)

    def places(self, st: JobState) -> tuple[Place, ...]:
        """Return the places of a job's chunks."""
        places_of = self.processors.places_of
        found = (places_of.get(self.occupant(st.job.uid, chunk)) for chunk in st.record.chunks)
        return tuple(place for place in found if place is not None)

    def on(self, place: Place) -> tuple[JobState, Chunk] | None:
        """Return the job and chunk on a place; None: the place is free or its chunk is no longer owned."""
        occupant = self.processors.occupants.get(place)
        st = self.jobs.get(occupant.job) if occupant else None
        chunk = st.chunk(occupant.kind, occupant.begin, occupant.attempt) if st and occupant else None
        return (st, chunk) if st and chunk else None

    def ask(self, st: JobState) -> None:
        """Queue a job for a decision."""
        heapq.heappush(self.waiting, (st.job.arrival, st.job.uid))

    def freed(self, now: float, chunk: Chunk | None) -> None:
        """Note that a processor is free. If it became free exactly when planned, the schedule stays valid."""
        if chunk is None:
            self.outdated.capacity_changed()
        elif self.schedule.counts_on_ends:
            as_planned = chunk.kind == "Chunk" and not chunk.leftover
            if not as_planned or abs(now - chunk.promised_end) > tolerance(now):
                self.outdated.times_changed()

    def unbook(self, uid: str) -> None:
        """Remove a job's waiting work from the schedule."""
        if self.schedule.remove(uid):
            self.outdated.work_changed()

    def touch(self, st: JobState) -> None:
        """Note that the job's status may have to be written."""
        self.outdated.record_changed()
        self.outbox.touched[st.job.uid] = None
        self.live.changed(st.job.uid)
        self.shares.touch(st.job.uid)


def _is_as_large(requests: Resources, share: Resources) -> bool:
    """Return whether a pod requests at least the CPU of a chunk's pod. Its memory is the template's."""
    return Resources(share.cpu).fits(requests)
