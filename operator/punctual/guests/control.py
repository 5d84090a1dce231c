"""The control of all guest jobs of a pool: ``GuestControl.step(now, events) -> actions``.

A step takes in events, lets running chunks stay or go (:mod:`punctual.guests.stays`), starts others
(:mod:`punctual.guests.starts`), and writes what has changed. All ownership of units is in the jobs' records, so a new
leader goes on from these; what was measured, it measures again.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

from punctual.guests.answers import answer
from punctual.guests.cluster import Cluster
from punctual.guests.guest import GuestState
from punctual.guests.model import Action, Event, Guest, GuestApplied, GuestDeleted, NodeReported, NodesSeen
from punctual.guests.starts import Starts
from punctual.guests.stays import Stays
from punctual.scheduling.chunks import ledger
from punctual.scheduling.model.actions import DeleteJob, DropSetPoint, EndPod, StoreResult, WriteStatus
from punctual.scheduling.model.events import CreateRefused, PodGone, PodObserved
from punctual.scheduling.model.job import JobRecord

LOOK: Final = 1.0
"""Seconds between two looks without events."""
PROGRESS: Final = 5.0
"""Seconds after which a status is written again for progress alone."""


class GuestControl:
    """All guest jobs. ``epoch``: of the leader, written into each record."""

    backlog = 0
    """It decides everything in each step."""

    def __init__(self, epoch: int = 0) -> None:
        self._epoch = epoch
        self._cluster = Cluster()
        self._stays = Stays(self._cluster)
        self._starts = Starts(self._cluster)
        self._pods: dict[tuple[str, str], PodObserved] = {}
        self._by_uid: dict[str, PodObserved] = {}
        self._excess: dict[str, int] = {}
        self._others: list[Action] = []  # about pods of jobs that may be gone
        self._restored: list[Event] = []
        self._looked = -inf
        self._written: dict[str, tuple[float, JobRecord, JobRecord]] = {}

    def restore(self, now: float, events: Sequence[Event]) -> list[Action]:  # noqa: ARG002  the actor's protocol
        """Return the stamps of the new epoch. What is on record is taken in by the next step, which also acts."""
        self._restored = list(events)
        records = [(e.guest.uid, e.record) for e in events if isinstance(e, GuestApplied) and e.record is not None]
        return [WriteStatus(uid, rec._replace(epoch=self._epoch)) for uid, rec in records if not rec.ended]

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Process events, and return what is to be done. Without events, only time passes: it looks once a second."""
        events, self._restored = [*self._restored, *events], []
        if not events and abs(now - self._looked) < LOOK:
            return []
        self._looked = now
        for event in sorted(events, key=_order):
            self._take(now, event)
        self._end_unowned(events)
        for st in self._cluster.guests.values():
            self._stays.supervise(now, st)
            self._expire(now, st)
        self._cluster.count()
        for name, excess in self._excess.items():
            self._stays.free(now, name, excess)
        self._excess.clear()
        self._stays.decide(now)
        self._starts.arrive(now)
        self._starts.place(now)
        statuses = self._statuses(now)
        told = [action for st in self._cluster.guests.values() for action in st.told]
        results = [action for action in told if isinstance(action, StoreResult)]
        about = [action for action in told if not isinstance(action, StoreResult)]
        others, self._others = self._others, []
        for st in self._cluster.guests.values():
            st.told = []
        return [*results, *statuses, *others, *about]

    # events

    def _take(self, now: float, event: Event) -> None:
        match event:
            case GuestApplied(guest, record):
                self._apply(now, guest, record)
            case GuestDeleted(uid):
                self._cluster.guests.pop(uid, None)
                self._written.pop(uid, None)
            case NodesSeen(nodes):
                self._cluster.see(nodes)
            case NodeReported():
                self._report(now, event)
            case PodObserved():
                self._pods[event.namespace, event.name] = event
                self._by_uid[event.uid] = event
                if st := self._cluster.guests.get(event.job):
                    self._observe(now, st, event)
            case PodGone(namespace, name):
                self._gone(namespace, name)
            case CreateRefused(job=uid, kind=kind, begin=begin, attempt=attempt):
                if (st := self._cluster.guests.get(uid)) and (chunk := st.chunk(kind, begin, attempt)):
                    st.lose(chunk, own=False)
                    st.refused_at = st.refused_at if event.taken else now

    def _apply(self, now: float, guest: Guest, record: JobRecord | None) -> None:
        st = self._cluster.guests.get(guest.uid)
        if st is not None:
            st.job = guest
            answer(now, st)
            st.record = ledger.within(st.record, guest.units)
            for chunk in [chunk for chunk in st.record.chunks if chunk.end > guest.units]:
                st.lose(chunk, own=False)
            return
        self._cluster.guests[guest.uid] = st = GuestState(guest)
        if record is not None:
            st.record = ledger.within(record, guest.units)
            self._written[guest.uid] = now, record, record
        pods = [pod for pod in self._pods.values() if pod.job == guest.uid]
        if st.record.ended:
            for pod in pods:  # an earlier leader recorded the end, and may not have ended them
                self._observe(now, st, pod)
            return
        st.record = st.record._replace(epoch=self._epoch)
        answer(now, st)
        held = {(pod.begin, pod.attempt) for pod in pods}
        # A pod that was never created, or is gone: if one appears after all, it owns nothing and is ended.
        for chunk in [c for c in st.record.chunks if (c.begin, c.attempt) not in held or c.end > guest.units]:
            st.lose(chunk, own=False)
        for pod in pods:
            self._observe(now, st, pod)

    def _end_unowned(self, events: Sequence[Event]) -> None:
        """End the pods of a job that is not known: it is gone, in this step or before a pod was first seen."""
        jobs = {event.uid for event in events if isinstance(event, GuestDeleted)}
        observed = {event.uid for event in events if isinstance(event, PodObserved)}
        if not jobs and not observed:
            return
        for pod in self._pods.values():
            concerned = pod.job in jobs or pod.uid in observed
            if concerned and pod.job not in self._cluster.guests and not pod.deleting:
                self._others.append(EndPod(pod.namespace, pod.name, pod.uid))

    def _observe(self, now: float, st: GuestState, pod: PodObserved) -> None:
        chunk = st.chunk(pod.kind, pod.begin, pod.attempt)
        if chunk is not None:
            st.observe(now, chunk, pod)
        elif not pod.deleting and pod.outcome is not None:
            st.leave(pod)
        elif not pod.deleting:
            st.end(pod)

    def _gone(self, namespace: str, name: str) -> None:
        pod = self._pods.pop((namespace, name), None)
        if pod is None:
            return
        self._by_uid.pop(pod.uid, None)
        self._others.append(DropSetPoint(pod.node, pod.uid))
        st = self._cluster.guests.get(pod.job)
        if st and (chunk := st.chunk(pod.kind, pod.begin, pod.attempt)):
            st.lose(chunk, own=False)

    def _report(self, now: float, event: NodeReported) -> None:
        node = self._cluster.nodes.get(event.node)
        if node is None:
            return
        if event.host is not None:
            node.see(now, event.host)
        if event.excess > 0:
            self._excess[event.node] = event.excess
        for seen in event.chunks:
            pod = self._by_uid.get(seen.pod)
            st = self._cluster.guests.get(pod.job) if pod else None
            if pod is None or st is None or pod.node != event.node:
                continue  # a report about a pod counts only from its own node
            if chunk := st.chunk(pod.kind, pod.begin, pod.attempt):
                st.report(now, chunk, seen)

    def _expire(self, now: float, st: GuestState) -> None:
        """Delete a job at the end of its time to live."""
        over = st.record.over
        if st.job.ttl is not None and over is not None and now >= over + st.job.ttl and not st.deleted:
            st.deleted = True
            self._others.append(DeleteJob(st.job.uid))

    # statuses

    def _statuses(self, now: float) -> list[Action]:
        """Return the records that have changed, and those with new progress once in a while."""
        found: list[Action] = []
        for uid, st in self._cluster.guests.items():
            done = st.record.completed.total + sum(st.watch(chunk).done for chunk in st.record.chunks)
            shown = st.record._replace(done=done, running=len(st.record.chunks))
            at, before, told = self._written.get(uid, (-inf, None, None))
            if st.record != before or (shown != told and abs(now - at) >= PROGRESS):
                self._written[uid] = now, st.record, shown
                found.append(WriteStatus(uid, shown, urgent=st.record != before))
        return found


def _order(event: Event) -> int:
    """Order the events of a step: what a report says of a chunk comes before its end, pods come before their job.

    A job that is read at a takeover may have been deleted since, so its deletion comes last.
    """
    match event:
        case NodesSeen():
            return 0
        case NodeReported():
            return 1
        case GuestApplied():
            return 3
        case GuestDeleted():
            return 4
        case _:
            return 2
