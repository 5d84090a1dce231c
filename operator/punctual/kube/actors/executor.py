"""Carries out a Pool's actions: each becomes an operation of the writer, a set point, or an event.

Everything about one job is submitted under its uid, in the order of the Pool's actions, so a chunk's pod is
created after the status that records it. The executor decides nothing. It keeps only the state that conditions, results
and unwritten statuses need.
"""

import asyncio
from itertools import islice
from typing import Any, assert_never

import orjson
import structlog

from punctual.kube.actors.results import Results, readable
from punctual.kube.actors.runners import Runners
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import JOBS, PODS, POOLS
from punctual.kube.cluster.events import Regarding
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.translate import job_status, pool_status, to_pool_spec
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Annotate, DeleteObject, PutStatus
from punctual.labels import OFFERED_END, TURN
from punctual.notation.duration import format_time
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.actions import (
    Action,
    AnswerReservation,
    CreateChunk,
    DeleteJob,
    DropSetPoint,
    Emit,
    EndPod,
    GiveTurn,
    HoldCapacity,
    HoldNode,
    Measured,
    OfferEnd,
    OfferWindow,
    SendSetPoint,
    StopPod,
    StoreResult,
    WithdrawChunk,
    WritePool,
    WriteStatus,
)
from punctual.scheduling.model.events import CreateRefused
from punctual.scheduling.model.job import Job, JobRecord
from punctual.scheduling.model.pool_spec import PoolRecord

log = structlog.get_logger(__name__)


class PoolExecutor:
    """Carries out the actions of one pool.

    What the kinds do because of an action is theirs, and what starts and ends a job's pods is its runner's.
    """

    def __init__(self, pool: str, tools: Tools, runners: Runners, mailbox: Mailbox[Any]) -> None:
        self._pool = pool
        self._tools = tools
        self._runners = runners
        self._mailbox = mailbox
        self._record: PoolRecord | None = None  # the last one
        self._progress: dict[str, JobRecord] = {}  # by job, oldest first
        self._unwritten: set[Key] = set()  # objects with a status that is not written yet
        self._written = asyncio.Event()
        self._written.set()

    def perform(self, action: Action) -> None:  # noqa: C901, PLR0912  one arm for each kind
        """Start an action. Returns at once."""
        tools = self._tools
        match action:
            case WriteStatus(uid, record, urgent):
                if known := tools.directory.jobs.get(uid):
                    self._write_status(known, record, urgent=urgent)
            case WritePool():
                self._write_pool(action)
            case CreateChunk():
                self._start(action)
            case WithdrawChunk(job, chunk):
                if no_pod := self._runners.gated.withdraw(job, chunk):
                    self._mailbox.put(no_pod)
            case EndPod(uid=uid) | StopPod(uid=uid):
                for operation in self._runners.runner_of_pod(uid).end(action):
                    tools.writer.submit(self._key_of(uid), operation)
            case OfferEnd(namespace, name, uid, end):
                path = PODS.path(namespace=namespace, name=name)
                tools.writer.submit(self._key_of(uid), Annotate(path, {OFFERED_END: str(end)}, uid))
            case GiveTurn(namespace, name, uid, at):
                path = PODS.path(namespace=namespace, name=name)
                tools.writer.submit(self._key_of(uid), Annotate(path, {TURN: format_time(at)}, uid))
            case StoreResult():
                self._store(action)
            case SendSetPoint():
                tools.set_points.put(action)
            case DropSetPoint():
                tools.set_points.drop(action)
            case HoldNode(node, held):
                tools.taints.hold(node, self._pool, held=held)
            case HoldCapacity():
                self._keep_capacity(action)
            case Measured() | AnswerReservation() | OfferWindow():
                self._tools.kinds.carry_out(self._pool, action)
            case DeleteJob(uid):
                if known := tools.directory.jobs.get(uid):
                    path = JOBS.path(namespace=known.owner.namespace, name=known.owner.name)
                    tools.writer.submit(Key(JOBS, uid), DeleteObject(path, uid))
            case Emit():
                self._emit(action)
            case _:
                assert_never(action)

    async def flush(self) -> None:
        """Wait until the newest status of every object is written.

        Failed writes are repeated while this replica leads.
        """
        await self._written.wait()

    def settled(self, key: Key) -> None:
        """Record that a status was written or never will be."""
        self._unwritten.discard(key)
        if not self._unwritten:
            self._written.set()

    def submit_progress(self, most: int | None = None) -> None:
        """Submit the waiting progress, oldest first, of at most ``most`` jobs."""
        for uid in list(islice(self._progress, most)):
            known = self._tools.directory.jobs.get(uid)
            record = self._progress.pop(uid)
            if known:
                self._submit_record(known, record, urgent=False)

    def _key_of(self, pod: str) -> Key:
        """Return the key of a pod's (uid) writes: that of its job."""
        job = self._tools.caches.pods.job_of(pod)
        return Key(JOBS, job) if job else Key(PODS, pod)

    def _write_status(self, known: KnownJob, record: JobRecord, *, urgent: bool) -> None:
        uid = known.owner.uid
        self._tools.promise_metrics.job(known, record)
        known.term.record = record
        if not urgent:
            # a changed forecast changes those of all later jobs, so most records are replaced before they are written
            self._progress[uid] = record
            return
        self._progress.pop(uid, None)
        self._submit_record(known, record, urgent=True)

    def _submit_record(self, known: KnownJob, record: JobRecord, *, urgent: bool) -> None:
        if (job := known.term.job) is not None:
            write = status_write(known, job, record, now=self._tools.now(), urgent=urgent)
            self._submit_status(Key(JOBS, known.uid), write)

    def _submit_status(self, key: Key, operation: PutStatus) -> None:
        found = self._tools.found.pop(key, None)
        if found is not None and orjson.loads(found) == operation.body["status"]:
            return
        self._unwritten.add(key)
        self._written.clear()
        self._tools.writer.submit(key, operation)

    def _write_pool(self, action: WritePool) -> None:
        tools, known = self._tools, self._tools.directory.pools.named(self._pool)
        if known is None:
            return
        self._record = record = action.record
        tools.taints.observe_pool(self._pool, holding=record.applied is None or record.applied.hold == "Taint")
        tools.promise_metrics.pool(self._pool, record)
        self._tools.kinds.carry_out(self._pool, action)
        term = known.term
        status = pool_status(record, transition_times=term.transition_times, now=tools.now(), classes=term.classes)
        known.term.transition_times = transition_times(status["conditions"])
        meta = {"name": self._pool, "uid": known.uid}
        write = PutStatus.of(POOLS, "Pool", meta, status, urgent=action.urgent)
        self._submit_status(Key(POOLS, known.uid), write)

    def rewrite(self) -> None:
        """Write the pool's status again, if there is one."""
        if self._record is not None:
            self._write_pool(WritePool(self._record, urgent=False))

    def _keep_capacity(self, action: HoldCapacity) -> None:
        if known := self._tools.directory.pools.named(self._pool):
            self._tools.placeholders.want(known.uid, self._pool, action)
            since = {node: kept.since for node, kept in action.nodes.items() if kept.since is not None}
            self._tools.caches.inventory.keep(self._pool, since)

    def _start(self, action: CreateChunk) -> None:
        tools, known = self._tools, self._tools.directory.jobs.get(action.job)
        pool = tools.directory.pools.named(self._pool)
        if known is None or pool is None:
            return
        in_force = self._record.applied if self._record else None  # it may not be the requested one
        started = self._runners.runner_of(action.job).start(known, action.chunk, in_force or to_pool_spec(pool))
        if isinstance(started, CreateRefused):
            self._mailbox.put(started)
            return
        tools.promise_metrics.created(action.chunk.kind)
        for operation in started:
            tools.writer.submit(Key(JOBS, action.job), operation)

    def _store(self, action: StoreResult) -> None:
        tools, known = self._tools, self._tools.directory.jobs.get(action.job)
        if known is None:
            return
        if not action.for_reduce:
            tools.writer.submit(Key(JOBS, action.job), readable(known.owner, action))
            return
        results = tools.results.by_job.setdefault(action.job, Results(known.owner))
        for operation in results.store(action):
            tools.writer.submit(Key(JOBS, action.job), operation)

    def _emit(self, action: Emit) -> None:
        if about := self._regarding(action.job):
            reason = action.reason
            log.info("event_emitted", kind=about.kind, name=about.name, namespace=about.namespace, reason=reason)
            self._tools.recorder.emit(about, action.type, reason, action.message)

    def _regarding(self, job: str | None) -> Regarding | None:
        directory = self._tools.directory
        if job is None:
            pool = directory.pools.named(self._pool)
            return Regarding.pool(self._pool, pool.uid) if pool else None
        known = directory.jobs.get(job)
        return None if known is None else Regarding.job(known.owner)


def status_write(known: KnownJob, job: Job, record: JobRecord, *, now: float, urgent: bool) -> PutStatus:
    """Return the write of a job's whole status, and store its conditions."""
    status = job_status(record, job, owner=known.owner, transition_times=known.term.transition_times, now=now)
    known.term.transition_times = transition_times(status["conditions"])
    owner = known.owner
    meta = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
    slow = bool(known.flaw)
    return PutStatus.of(JOBS, "DivisibleJob", meta, status, urgent=urgent, version=known.version, slow=slow)
