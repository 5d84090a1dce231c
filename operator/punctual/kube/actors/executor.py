"""Carries out a Pool's actions: each becomes an operation of the writer, a set point, or an event.

Everything about one job is submitted under its uid, in the order of the Pool's actions, so a chunk's pod is
created after the status that records it. The executor decides nothing. It keeps only the state that conditions, results
and unwritten statuses need.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, assert_never

import orjson
import structlog

from punctual.kube.actors.results import Results, readable
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import JOBS, PODS, POOLS
from punctual.kube.cluster.events import Regarding
from punctual.kube.cluster.pod_manifest import InputStep, chunk_pod, is_chunk_of
from punctual.kube.cluster.pods import project_pod
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.jobs import KnownJob, Owner
from punctual.kube.translate import job_status, pool_status, to_pool_spec
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Annotate, CreatePod, DeleteObject, DeletePod, LimitPod, PutStatus
from punctual.labels import OFFERED_END, TURN
from punctual.notation.duration import format_time
from punctual.runtime.clock import WITNESS
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
    SetPoint,
    StopPod,
    StoreResult,
    WritePool,
    WriteStatus,
)
from punctual.scheduling.model.events import CreateRefused, PodObserved
from punctual.scheduling.model.job import Chunk, Job, JobRecord
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec

log = structlog.get_logger(__name__)


class PoolExecutor:
    """Carries out the actions of one pool.

    What the kinds do because of an action is theirs. ``tell(event)`` puts an event into the mailbox of the pool.
    """

    def __init__(
        self,
        pool: str,
        tools: Tools,
        gate: AdmissionGate,
        tell: Callable[[CreateRefused], None],
    ) -> None:
        self._pool = pool
        self._tools = tools
        self._gate = gate
        self._tell = tell
        self._spec: PoolSpec | None = None  # the spec in force, not only the requested one
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
                self._create(action)
            case EndPod(namespace, name, uid, grace):
                tools.writer.submit(self._key_of(uid), DeletePod(namespace, name, uid, grace))
            case StopPod(namespace, name, uid):
                tools.writer.submit(self._key_of(uid), LimitPod(PODS.path(namespace=namespace, name=name), uid))
            case OfferEnd(namespace, name, uid, end):
                path = PODS.path(namespace=namespace, name=name)
                tools.writer.submit(self._key_of(uid), Annotate(path, {OFFERED_END: str(end)}, uid))
            case GiveTurn(namespace, name, uid, at):
                path = PODS.path(namespace=namespace, name=name)
                tools.writer.submit(self._key_of(uid), Annotate(path, {TURN: format_time(at)}, uid))
            case StoreResult():
                self._store(action)
            case SetPoint():
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
            if known and known.term.job:
                self._submit_status(
                    Key(JOBS, uid), status_write(known, known.term.job, record, now=self._tools.now(), urgent=False)
                )

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
        if known.term.job:
            self._submit_status(
                Key(JOBS, uid), status_write(known, known.term.job, record, now=self._tools.now(), urgent=True)
            )

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
        self._spec = record.applied
        tools.taints.observe_pool(self._pool, holding=record.applied is None or record.applied.hold == "Taint")
        if record.applied is not None and record.applied.hold != "Placeholder":  # also an earlier leader's placeholders
            self._keep_capacity(HoldCapacity({}, 0.0, 0))
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
            self._tools.caches.inventory.keep(self._pool, {node: kept.since for node, kept in action.nodes.items()})

    def _create(self, action: CreateChunk) -> None:
        tools, known = self._tools, self._tools.directory.jobs.get(action.job)
        pool = tools.directory.pools.named(self._pool)
        if known is None or pool is None:
            return
        chunk = action.chunk
        reduce = chunk.kind == "Reduce"
        spec = known.template()
        part = spec.get("reduce") if reduce else spec
        # an edit removed the recorded step, or it never existed; or an earlier operator took an oversized spec
        if part is None or known.flaw:
            refused = CreateRefused(
                job=action.job,
                kind=chunk.kind,
                begin=chunk.begin,
                attempt=chunk.attempt,
                message=known.flaw or "spec.reduce is missing",
            )
            self._tell(refused)
            return
        results = tools.results.by_job.get(action.job)
        processor = self._spec or to_pool_spec(pool)
        body = chunk_pod(
            known.owner,
            chunk,
            part["template"],
            processor=processor,
            epoch=tools.epoch,
            results=results.sources() if reduce and results else (),
            priority_class=tools.caches.placeholder_settings.chunk_class,
            step=InputStep.of(spec, image=tools.image, version=known.term.record.input if known.term.record else None),
            others=self._gate.others(action.job, chunk.kind, part["template"], processor),
        )
        if reduce and results:
            for operation in results.look():
                tools.writer.submit(Key(JOBS, action.job), operation)
        tools.promise_metrics.created(chunk.kind)
        tools.writer.submit(Key(JOBS, action.job), CreatePod(known.owner.namespace, body, _same(known.owner, chunk)))

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
        regarding = self._regarding(action.job)
        if regarding is None:
            return
        log.info(
            "event_emitted",
            kind=regarding.kind,
            name=regarding.name,
            namespace=regarding.namespace,
            reason=action.reason,
        )
        self._tools.recorder.emit(regarding, action.type, action.reason, action.message)

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


def _same(owner: Owner, chunk: Chunk) -> Callable[[Mapping[str, Any]], bool]:
    """Return a test whether an existing pod is this attempt, and will be seen as such.

    An attempt of the same number may have been long before: of units that the job had, gave up and has again. Its pod
    tells nothing of this one.
    """
    wanted = (owner.uid, chunk.kind, chunk.begin, chunk.origin, chunk.attempt)

    def same(pod: Mapping[str, Any]) -> bool:
        seen = project_pod(pod)
        return (
            isinstance(seen, PodObserved)
            and wanted == (seen.job, seen.kind, seen.begin, seen.end, seen.attempt)
            and is_chunk_of(owner, seen)
            and seen.created >= chunk.created - WITNESS
        )

    return same
