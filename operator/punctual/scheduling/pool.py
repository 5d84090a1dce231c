"""Scheduler of one pool: takes events, returns actions.

``Pool`` is the only entry point of the core. One step takes in events, supervises running chunks, plans again if
something changed, decides on a bounded number of waiting jobs, gives free processors their next chunks, and returns
what must be written. A step never reads the time and never waits. Every decision is in the records that ``WriteStatus``
carries. A new leader rebuilds a Pool from those records alone (``restore``); all other state is deliberately lost.

This module contains the cycle, the events and the admission decisions. ``state`` holds what the pool knows,
``lifecycle`` moves chunks and jobs through their states, ``planner`` assigns processors and times, ``dispatcher``
creates chunks, and ``edits`` applies changed specs.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from punctual import reasons
from punctual.control.miss_ratio import MissRatio
from punctual.errors import InvariantError
from punctual.scheduling.admission.offers import Test
from punctual.scheduling.engine.admission_mode import AdmissionMode
from punctual.scheduling.engine.decisions import Decisions
from punctual.scheduling.engine.dispatcher import Dispatcher
from punctual.scheduling.engine.edits import Edits
from punctual.scheduling.engine.health import SAID, last_words
from punctual.scheduling.engine.job_state import ChunkObservation, JobState
from punctual.scheduling.engine.lifecycle import BLOCKED, Lifecycle
from punctual.scheduling.engine.planner import Changes, Planner
from punctual.scheduling.engine.reservations import Reservations
from punctual.scheduling.engine.state import LIVE, PoolState
from punctual.scheduling.engine.transfers import TransferQueue
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import (
    Action,
    DropSetPoint,
    Emit,
    HeldCapacity,
    HoldCapacity,
    HoldNode,
    WritePool,
    WriteStatus,
)
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
)
from punctual.scheduling.model.job import Chunk, Job, JobRecord, Verdict
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import Occupant
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.model.timing import LEAVE
from punctual.scheduling.model.wording import some
from punctual.scheduling.view import PoolView, Quote
from punctual.theory.tolerance import tolerance

USED = 0.01
"""Seconds of CPU time that count as work. Less may come from an exec or a probe and is not progress."""
OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has ended."""
NOT_OWN = frozenset({
    "Preempted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "OutOfcpu", "OutOfmemory",
    "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", "DeadlineExceeded",
})  # fmt: skip
"""Pod reasons that the cluster causes, not the workload.

Evicted is not one of them. If the node was short of a resource, the kubelet adds DisruptionTarget; without that
condition, the pod exceeded a limit of its own.
"""


class Pool:
    """One pool's jobs, processors and promises.

    The runtime calls :meth:`step` with the time (seconds, the API server's clock) and the events, the newest per key,
    and carries out the returned actions. A new leader makes a Pool with its epoch and calls :meth:`restore` with
    everything that the API server holds before the first step.
    """

    def __init__(self, epoch: int, *, leave: float = LEAVE, offers: bool = True) -> None:
        """Create an empty pool.

        ``leave``: seconds from the deletion of a pod until its processor is empty.

        ``offers``: whether refusals contain an offer.
        """
        self._state = PoolState(epoch, leave)
        self._offers = offers
        self._lifecycle = Lifecycle(self._state)
        self._planner = Planner(self._state, self._lifecycle)
        self._mode = AdmissionMode(self._state, self._planner)
        self._dispatcher = Dispatcher(self._state, self._lifecycle, self._planner, self._mode)
        self._port = TransferQueue(self._state)
        self._edits = Edits(self._state, self._lifecycle, self._mode)
        self._decisions = Decisions(self._state, self._lifecycle, self._planner, self._mode, offers=offers)
        self._windows = Reservations(
            self._state, self._lifecycle, self._planner, self._dispatcher, self._mode, offers=offers
        )
        self._unread: list[Event] = []
        """Events that a restore leaves to the first step."""

    def restore(self, now: float, events: Iterable[Event]) -> list[Action]:
        """Read the recorded state; return only the stamps (WriteStatus, WritePool) of the new epoch.

        All consequences follow in the next step: no pod is created, ended or accounted before the API server has the
        new epoch and refuses the old leader's writes. A stamp is therefore the record as it was read. Observed pods and
        edits are not processed before the first step. If their effects were in the stamp and the leader crashed after
        writing it, no event would have been emitted, and the next leader would treat the effects as complete.
        """
        self._state.recreate = True
        for event in sorted(events, key=_restore_order):
            if isinstance(event, PoolApplied | NodeObserved | NodeGone | JobApplied | JobDeleted):
                self._take(now, event)
            else:
                self._unread.append(event)
        self._state.stale = True
        stamps: list[Action] = []
        for uid, st in self._state.jobs.items():
            if not st.record.ended:
                st.written = st.record._replace(epoch=self._state.epoch)
                stamps.append(WriteStatus(uid, st.written))
        if self._state.spec is not None:
            self._state.pool_written = self._state.pool_record()
            stamps.append(WritePool(self._state.pool_written, urgent=True))
        return stamps

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Process events, make a bounded number of decisions and return actions. ``step(now, [])`` is a tick."""
        self._look_at_misses(now)
        for event in (*self._unread, *events):
            self._take(now, event)
            if not isinstance(event, Reported):
                self._state.changed = True
        self._unread = []
        if self._state.spec is None:
            return self._state.flush(now)
        self._windows.take_up(now)
        for uid in self._state.edits:
            self._edits.apply(now, self._state.jobs[uid])
        self._state.edits.clear()
        if self._state.edited:
            self._edit_pool(now)
        self._look_at_misses(now)
        if self._state.recreate:
            self._lose_nodes_gone(now)
            self._dispatcher.take_up()
        self._lifecycle.supervise(now)
        anew = self._state.processors.unblock(now) or self._state.stale
        if anew:
            self._windows.mend(now)
            self._mode.replan(now)
        self._windows.answer(now)
        self._decisions.work(now, planned=anew)
        self._windows.clear(now)
        self._dispatcher.work(now)
        self._port.work(now)
        self._state.due = self._state.schedule.wake(now)
        self._search_offers(now)
        self._windows.offer()
        self._lifecycle.expire(now)
        self._hold_room(now)
        return self._state.flush(now)

    def _look_at_misses(self, now: float) -> None:
        """Pass the outcomes of promises to the miss-ratio controller."""
        spec, state = self._state.spec, self._state
        if spec is None:
            return
        if spec.miss_set_point is None:
            state.miss = state.miss_found = None
            return
        miss = state.miss
        if miss is None or (miss.set_point, miss.period) != (spec.miss_set_point, spec.sample_period):
            found = miss.count if miss else state.miss_found
            state.miss = miss = MissRatio.going_on(now, found, set_point=spec.miss_set_point, period=spec.sample_period)
            state.miss_found, state.changed = None, True
            for uid, st in state.jobs.items():
                if st.loose and st.record.promise and not st.record.ended:
                    miss.accept(uid, st.record.promise.deadline)
        before = miss.count
        for uid in miss.look(now):
            self._lifecycle.missed(now, state.jobs[uid])
        state.changed = state.changed or miss.count != before
        self._mode.limit(miss.bound)

    @property
    def backlog(self) -> int:
        """Return the number of decisions and offers still owed. Step again at once while it is not 0."""
        if self._state.spec is None:
            return 0
        return len(self._state.waiting) + len(self._state.searches) + len(self._windows.searches)

    def view(self) -> PoolView:
        """Return a view of what the pool knows and plans, for readers."""
        return PoolView(self._state)

    def quote(self, now: float, job: Job) -> Quote:
        """Return what a job with a declared cost would be promised now, beside all others."""
        demand = self._planner.demand(JobState(job, job), now)
        assert demand is not None
        return Quote(self._test(now), demand, now)

    def _test(self, now: float) -> Test:
        return self._state.schedule.test(now, lambda: self._planner.busy(now))

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
            if not self._state.stale and st.state == "Promised":
                left = ledger.remaining(st.job.units, st.record)
                if left and self._state.schedule.remaining(uid) != left:
                    raise InvariantError(f"{uid}: promised, but its remaining units are in no schedule")

    def _take(self, now: float, event: Event) -> None:  # noqa: C901  one arm per kind of event
        match event:
            case Reported():  # the most frequent event comes first
                self._take_report(now, event)
            case PodObserved():
                self._take_pod(now, event)
            case PodGone():
                self._take_gone(now, event.namespace, event.name)
            case PoolApplied():
                self._take_pool(event)
            case JobApplied():
                self._take_job(event)
            case JobDeleted(uid):
                self._take_deleted(now, uid)
            case ReservationApplied():
                self._windows.apply(event)
            case ReservationDeleted(uid):
                self._windows.drop(uid)
            case NodeObserved():
                self._take_node(now, event)
            case NodeGone(name):
                if self._state.processors.forget(name):
                    self._state.stale = True
                self._state.held.discard(name)
                self._lose_node(now, name)
            case CreateRefused():
                self._take_refused(now, event)

    def _take_pool(self, event: PoolApplied) -> None:
        state = self._state
        state.deleting = event.deleting
        new = event.spec != state.asked
        if state.spec is None:
            record = event.record
            state.spec = record.applied if record and record.applied else event.spec
            if record:
                state.spec_applied = record.spec_applied
                state.startups = StartupTimes(record.startups)
                state.miss_found = record.miss
                state.held_since = {n.name: n.held_since for n in record.nodes if n.held_since is not None}
                new = record.observed_generation < event.spec.generation
            for node in state.processors.nodes.values():
                state.processors.observe(node, state.spec)
            state.stale = True
        state.asked, state.asked_nodes = event.spec, event.nodes
        # The spec is tested in the next step: after a restart, promises that it could break may not have been read yet.
        state.edited = state.edited or new
        self._hold()

    def _edit_pool(self, now: float) -> None:
        """Apply an edited spec if every promise is still kept under it; otherwise record why not."""
        state = self._state
        old, asked, there = state.spec, state.asked, state.processors.nodes
        assert old is not None
        assert asked is not None
        state.edited = False
        state.spec = asked
        wanted = there if state.asked_nodes is None else {node.name: node for node in state.asked_nodes}
        going = there.keys() - wanted.keys()
        coming = [node for name, node in wanted.items() if name not in there]
        before = state.processors.total
        for node in coming:
            state.processors.observe(node, asked)
        state.processors.resize(asked)
        if why := self._stands_against(now, old, asked, going=going, before=before):
            state.spec = old
            for node in coming:
                state.processors.forget(node.name)
            state.processors.resize(old)
            state.spec_applied = Verdict("False", reasons.EDIT_REFUSED, f"{why}; the old spec stays in force")
            return
        state.spec_applied = Verdict("True", reasons.APPLIED, "the spec is in force")
        state.stale = True
        for name in sorted(going):
            self._take(now, NodeGone(name))
        self._hold()

    def _stands_against(
        self, now: float, old: PoolSpec, asked: PoolSpec, *, going: Collection[str], before: int
    ) -> str | None:
        """Return which promises prevent an edit of the pool, if any.

        ``going``: nodes that the pool would lose; ``before``: its current number of processors.
        """
        if asked.loose:
            certain = [st for st in self._state.live.values() if st.state == "Promised" and not st.loose]
            ahead = len(self._state.ahead.held)
            if not old.loose and (certain or ahead):
                given = " and ".join(
                    some(n, what) for n, what in ((len(certain), "promise"), (ahead, "reservation")) if n
                )
                return f"{given} made without missRatio would no longer be guaranteed"
            return None
        if not asked.discipline.one_port and (sending := self._windows.sending()):
            return f"with network Concurrent {some(sending, 'reservation')} would lose the link that it keeps free"
        if robbed := self._windows.robbed(going):
            return f"with this spec, {some(robbed, 'reservation')} would lose processors"
        plan, missed = self._planner.trial(now, Changes(without=going))
        if not missed:
            return None
        return (
            f"with this spec, the pool would have {some(len(plan.places), 'processor')} instead of {before}, and "
            f"{len(missed)} of {some(len(plan) + len(missed), 'promise')} would be broken"
        )

    def _hold(self) -> None:
        assert self._state.spec is not None
        # A pool that is being deleted keeps its taint too: its promises stand until the pool is gone.
        wanted = set(self._state.processors.nodes) if self._state.spec.hold == "Taint" else set()
        self._state.after += [HoldNode(node, held=True) for node in sorted(wanted - self._state.held)]
        self._state.after += [HoldNode(node, held=False) for node in sorted(self._state.held - wanted)]
        self._state.held = wanted

    def _hold_room(self, now: float) -> None:
        """Let placeholders keep the processors that no chunk occupies."""
        state, spec = self._state, self._state.spec
        if spec is None or not state.changed:
            return
        holding = spec.hold == "Placeholder"
        left = state.processors.room() if holding else {}
        state.held_since = {node: state.held_since.get(node, now) for node in left}
        nodes = {node: HeldCapacity(state.held_since[node], count) for node, count in left.items()}
        room = HoldCapacity(nodes, spec.cpu, spec.memory)
        if room != state.room and (holding or (state.room is not None and state.room.nodes)):
            state.room = room
            state.after.append(room)

    def _take_job(self, event: JobApplied) -> None:
        job = event.job
        st = self._state.jobs.get(job.uid)
        if st is None:
            st = JobState(job, job)
            self._state.jobs[job.uid] = st
            if event.record is not None:
                self._take_record(st, event.record)
                # The job may come after a restore, too: a list may have lacked it.
                self._state.stale = self._state.recreate = True
            if st.state == "Waiting":
                self._state.ask(st)
            return
        if job != st.asked:
            st.asked = job
            self._state.edits[job.uid] = None

    def _take_record(self, st: JobState, record: JobRecord) -> None:
        """Take over a job that an earlier leader recorded."""
        st.record = ledger.within(record, st.job.units)
        st.written = record
        # Something other than a leader wrote this record, and no leader could process it.
        chunks = {chunk.key: chunk for chunk in record.chunks}
        pilots = tuple(sample for sample in record.pilots if sample.units > 0)
        st.record = st.record._replace(chunks=tuple(chunks.values()), pilots=pilots)
        if st.state in LIVE and st.state != "Measuring" and (record.promise is None or st.cost is None):
            st.record = st.record._replace(admitted=None)
        if st.state in LIVE:
            self._state.live[st.job.uid] = st
        asked, promise = st.asked, record.promise
        if promise is not None:  # the promise is in force, whatever a refused edit asks for
            st.job = replace(st.job, deadline=promise.deadline)
            refused = record.spec_applied is not None and record.spec_applied.status == "False"
            if refused or record.observed_generation < asked.generation:
                least, most = asked.min_processors, asked.max_processors
                st.job = replace(
                    st.job,
                    min_processors=min(least, promise.processors),
                    max_processors=None if most is None else max(most, promise.processors),
                )
        for chunk in st.record.chunks:
            occupant = self._state.occupant(st.job.uid, chunk)
            self._state.processors.seat(occupant, chunk.node)
            self._state.active[st.job.uid] = None
            if chunk.turn is not None:  # until its pod is seen to have its input
                self._state.sending.add(occupant)
        self._lifecycle.note_end(st)
        if not record.ended and record.observed_generation < st.asked.generation:
            self._state.edits[st.job.uid] = None

    def _take_deleted(self, now: float, uid: str) -> None:
        st = self._state.jobs.pop(uid, None)
        if st is None:
            return
        self._state.touched.pop(uid, None)
        self._state.active.pop(uid, None)
        self._state.live.pop(uid, None)
        self._state.edits.pop(uid, None)
        self._state.searches.drop(uid)
        if self._state.miss is not None:
            self._state.miss.leave(uid)
        self._state.unbook(uid)
        if self._state.schedule.counts_on_ends and (st.state in LIVE or st.record.chunks):
            self._state.stale = True
        for chunk in st.record.chunks:
            pod = st.watch(chunk).pod
            if pod is None:  # never seen: if the pod appears, _take_pod ends it
                self._state.processors.leave(self._state.occupant(uid, chunk))
            else:
                self._lifecycle.end(now, pod)

    def _take_node(self, now: float, node: NodeObserved) -> None:
        was = self._state.processors.nodes.get(node.name)
        if self._state.spec is None:
            self._state.processors.nodes[node.name] = node
            return
        if self._state.processors.observe(node, self._state.spec):
            self._state.stale = True
        self._hold()
        if not node.ready and was is not None and was.ready:
            self._lose_node(now, node.name)

    def _lose_node(self, now: float, name: str) -> None:
        """Take back the chunks of a lost node. Results from that node are no longer accounted."""
        for uid in list(self._state.active):
            st = self._state.jobs[uid]
            for chunk in [c for c in st.record.chunks if c.node == name]:
                self._lifecycle.end_and_lose(
                    now, st, chunk, reasons.NODE_LOST, f"node {name} is not ready or gone", own=False
                )
        for place in [p for p in self._state.processors.occupants if p.node == name]:
            self._state.processors.leave(self._state.processors.occupants[place])

    def _lose_nodes_gone(self, now: float) -> None:
        """Take back chunks on nodes that went away while there was no leader: no event will report them."""
        nodes = self._state.processors.nodes
        on = {c.node for uid in self._state.active for c in self._state.jobs[uid].record.chunks}
        for name in sorted(on):
            if name not in nodes or not nodes[name].ready:
                self._lose_node(now, name)

    def _take_refused(self, now: float, event: CreateRefused) -> None:
        """Take back a chunk with a pod that the API server refused, and delay the job's next pod.

        The cause is the job's own (its namespace's quota, its template), so other jobs' processors do not wait.
        """
        st = self._state.jobs.get(event.job)
        chunk = st.chunk(event.kind, event.begin, event.attempt) if st else None
        if st is None or chunk is None:
            return
        self._state.processors.leave(self._state.occupant(event.job, chunk))
        self._lifecycle.lose(now, st, chunk, reasons.POD_REFUSED, event.message, own=False)
        if not event.taken:
            st.refused_until = now + BLOCKED

    def _take_pod(self, now: float, pod: PodObserved) -> None:
        state = self._state
        state.pods[pod.namespace, pod.name] = pod
        st = state.jobs.get(pod.job)
        occupant = Occupant(pod.job, pod.kind, pod.begin, pod.attempt)
        chunk = st.chunk(pod.kind, pod.begin, pod.attempt) if st else None
        if pod.phase in OVER:
            if state.processors.leave(occupant):
                state.freed(now, chunk)
            state.after.append(DropSetPoint(pod.node, pod.uid))
        elif pod.node in state.processors.counts or chunk is not None:
            state.processors.seat(occupant, pod.node)
        self._see_sending(pod, occupant)
        if st is None or chunk is None:
            self._end_unowned(now, st, pod)
            return
        watch = st.watch(chunk)
        if pod.fetched and watch.pod is not None and not watch.pod.fetched:
            watch.fetched_at = now
            if chunk.sent is not None and abs(now - chunk.sent) > tolerance(now):
                state.stale = True  # the port is free, earlier or later than planned
        watch.told_turn = watch.told_turn or pod.turn
        watch.pod = pod
        state.watched[pod.uid] = (pod.job, chunk.key)
        self._lifecycle.aim(chunk, watch)
        if pod.phase == "Running" and watch.running_since is None:
            watch.running_since = self._lifecycle.running_since(now, chunk, pod)
            st.imageless_since = None
            watch.moved = now
            if chunk.created < watch.running_since and not state.recreate and not st.job.fetches:
                state.startups.add(st.job.uid, watch.running_since - chunk.created)
        self._judge_pod(now, st, chunk, watch, pod)

    def _see_sending(self, pod: PodObserved, occupant: Occupant) -> None:
        """Note whether the pod's input may be in transfer, even if no job owns the pod any more."""
        if pod.fetched or pod.phase != "Pending":
            self._state.sending.discard(occupant)
        elif pod.turn:
            self._state.sending.add(occupant)

    def _judge_pod(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation, pod: PodObserved) -> None:
        """Account, lose, query or keep the chunk, according to its pod's state."""
        if not self._lifecycle.see_input(now, st, chunk, pod):
            return
        if pod.phase == "Succeeded":
            self._lifecycle.succeeded(now, st, chunk, watch)
        elif pod.phase == "Failed":
            own = not pod.disrupted and not pod.deleting and pod.reason not in NOT_OWN
            code = f"exit code {pod.exit_code}" if pod.exit_code is not None else pod.reason or "failed"
            text = f"pod {pod.name}: {code}" + (f" ({pod.reason})" if pod.reason and pod.exit_code is not None else "")
            if pod.started is None and pod.message:  # the message of the init step
                text += f": {pod.message[:SAID]}"
            elif words := last_words(pod.message):
                text += f"; its log ends: {words}"
            self._lifecycle.lose(now, st, chunk, reasons.CHUNK_FAILED if own else reasons.CAPACITY_LOST, text, own=own)
            self._lifecycle.end_unless_kept(now, st, pod)
        elif pod.deleting:
            # A person, an eviction or the scheduler (for a higher priority) deletes it. Its end may take its whole
            # grace period, which no margin covers.
            text = f"pod {pod.name} is being {'evicted' if pod.disrupted else 'deleted'}"
            self._lifecycle.end_and_lose(now, st, chunk, reasons.CAPACITY_LOST, text, own=False)
        elif pod.phase == "Running" and chunk.offered is not None and watch.offered_at is None:
            # An earlier leader recorded the offer and may have crashed before it sent it.
            self._dispatcher.offer(now, st, chunk, chunk.offered)

    def _end_unowned(self, now: float, st: JobState | None, pod: PodObserved) -> None:
        """End a pod that no longer owns its units: its work is not accounted."""
        if st is not None and pod.phase in OVER:
            self._lifecycle.end_unless_kept(now, st, pod)
        elif st is not None or (pod.phase != "Failed" and self._state.spec is not None):
            self._lifecycle.end(now, pod)

    def _take_gone(self, now: float, namespace: str, name: str) -> None:
        state = self._state
        pod = state.pods.pop((namespace, name), None)
        if pod is None:
            return
        state.ending.pop(pod.uid, None)
        state.watched.pop(pod.uid, None)
        if state.processors.leave(Occupant(pod.job, pod.kind, pod.begin, pod.attempt)):
            state.stale = True
        if pod.phase not in OVER:  # otherwise the set point was already dropped
            state.after.append(DropSetPoint(pod.node, pod.uid))
        st = state.jobs.get(pod.job)
        chunk = st.chunk(pod.kind, pod.begin, pod.attempt) if st else None
        if st and chunk:
            self._lifecycle.lose(now, st, chunk, reasons.CAPACITY_LOST, f"pod {name} was deleted", own=False)

    def _take_report(self, now: float, report: Reported) -> None:
        for p in report.pods:
            uid, key = self._state.watched.get(p.pod, ("", None))
            st = self._state.jobs.get(uid)
            chunk = st.chunk(*key) if st and key else None
            if st is None or chunk is None:
                continue
            watch = st.watch(chunk)
            if watch.pod is None or watch.pod.node != report.node:
                continue  # a report about a pod counts only from the pod's own node
            if watch.reported is not None and not watch.looked_at(now):
                watch.moved += now - watch.reported  # there was no report in between: perhaps the whole node was paused
            watch.reported = now
            self._tell_faults(st, watch.pod.name, p.faults)
            # An agent that does not know the chunk's length yet passes on what it reads. A value beyond the chunk is
            # invalid.
            done = min(p.done, chunk.size) if p.done is not None and p.done <= chunk.origin - chunk.begin else 0
            if done > watch.done or p.cpu_seconds > watch.cpu + USED:
                # This is kept in memory only: small amounts each second add up.
                watch.moved, watch.cpu = now, max(watch.cpu, p.cpu_seconds)
            if done > watch.done:
                watch.done = done
                self._state.progressed[st.job.uid] = None
            if p.received is not None and p.received > watch.received:
                watch.moved, watch.received = now, p.received
                self._state.progressed[st.job.uid] = None
            # An end that gives no unit back may answer an offer of an earlier leader, which this leader does not know
            # of. An end that was given may still be drawn in further.
            asked = chunk.offered is not None or chunk.end < chunk.origin or watch.pod.offered
            if asked and p.end is not None and p.end < chunk.end:
                self._lifecycle.answered(now, st, chunk, p.end)
            elif watch.ended_at is not None and p.over:
                # The arrival time of the report does not decide: it may have been read before the end and delayed.
                watch.ended_at = -math.inf
            self._lifecycle.see_success(now, st, chunk.key)

    def _tell_faults(self, st: JobState, pod: str, faults: frozenset[str]) -> None:
        """Emit one event per job for faults in its workers' files: all its chunks run the same program."""
        if new := faults - st.faults:
            st.faults |= new
            text = f"pod {pod}: {', '.join(sorted(new))}; the last valid value is used"
            self._state.after.append(Emit(st.job.uid, "Warning", reasons.FILE_FAULT, text))

    def _search_offers(self, now: float) -> None:
        if self._state.waiting or not self._state.searches:  # decisions come first
            return
        for uid, offer in self._state.searches.work(self._test(now), now, size=len(self._state.plan)):
            st = self._state.jobs.get(uid)
            if st is None or st.state != "Refused":
                continue
            st.record = st.record._replace(offer=offer)
            self._state.touch(st)


def _restore_order(event: Event) -> int:
    """Return the rank of an event in a restore: pools, nodes, jobs, pods. Each is interpreted with those before it."""
    match event:
        case PoolApplied():
            return 0
        case NodeObserved() | NodeGone():
            return 1
        case JobApplied() | JobDeleted():
            return 2
        case _:
            return 3
