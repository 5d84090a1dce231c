"""Carries out a Pool's actions: each becomes an operation of the writer, a set point, or an event.

Everything about one job is submitted under its uid, in the order of the Pool's actions, so a chunk's pod is
created after the status that records it. The executor decides nothing. It keeps only the state that conditions, results
and unwritten statuses need.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, assert_never

import orjson
import structlog

from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.conditions import transition_times
from punctual.kube.cluster.directory import JOBS, POOLS, Directory, KnownJob
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.pods import (
    IMAGE,
    OFFERED_END,
    TURN,
    InputStep,
    Owner,
    chunk_pod,
    is_chunk_of,
    project_pod,
)
from punctual.kube.cluster.resources import PODS
from punctual.kube.format.clock import WITNESS
from punctual.kube.format.duration import format_time
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.learning.results import Results, readable
from punctual.kube.translate import job_status, pool_status, to_pool_spec
from punctual.kube.windows.controller import WindowController
from punctual.kube.writes.keys import JobKey, Key, PodKey, PoolKey
from punctual.kube.writes.operations import Annotate, CreatePod, DeleteObject, DeletePod, LimitPod, PutStatus
from punctual.kube.writes.writer import Writer
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
from punctual.scheduling.model.job import Chunk, Job, JobRecord, Kind
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.resources import Resources

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Shared tools of the executors of all pools during a leader's term."""

    epoch: int
    now: Callable[[], float]
    directory: Directory
    writer: Writer
    recorder: EventRecorder
    set_points: SetPointStore
    taints: Taints
    placeholders: Placeholders
    promise_metrics: PromiseMetrics
    windows: WindowController
    results: dict[str, Results]
    """Results by job (uid). Those of jobs that an earlier leader started are loaded from the API server."""
    found: dict[Key, bytes] = field(default_factory=dict)
    """Statuses (JSON) that a new leader found, by the writer's key. A stamp with the same content is not written."""
    job_of: Callable[[str], str | None]
    """Returns the job (uid) of a pod (uid)."""
    image: str = IMAGE
    """The operator's image, for the input step."""
    others: Callable[[str, Kind, Mapping[str, Any], PoolSpec], Resources | None] = lambda _uid, _kind, _part, _spec: (
        None
    )
    """Returns what a pod of a job (uid) requests beside the work (`AdmissionGate.others`)."""
    refuse: Callable[[CreateRefused], None] = lambda _event: None
    """Called where no pod can be made of a chunk."""
    learn: Callable[[str, Measured], None] = lambda _pool, _measured: None
    """Called with the measured costs of a chunk, and the pool's name."""
    in_force: Callable[[str, PoolSpec], None] = lambda _pool, _spec: None
    """Called with the spec in force of a pool (name)."""
    keep: Callable[[str, Mapping[str, float]], None] = lambda _pool, _since: None
    """Called with the nodes on which placeholders keep a pool's (name) capacity, and since when."""
    chunk_class: str = ""
    """Priority class of chunks that preempt placeholders."""


class PoolExecutor:
    """Carries out the actions of one pool."""

    def __init__(self, pool: str, tools: Tools) -> None:
        self._pool = pool
        self._tools = tools
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
            case Measured():
                tools.learn(self._pool, action)
            case DeleteJob(uid):
                if known := tools.directory.jobs.get(uid):
                    path = JOBS.path(namespace=known.owner.namespace, name=known.owner.name)
                    tools.writer.submit(JobKey(uid), DeleteObject(path, uid))
            case Emit():
                self._emit(action)
            case AnswerReservation():
                tools.windows.answered(action)
            case OfferWindow():
                tools.windows.offered(action)
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
                    JobKey(uid), status_write(known, known.term.job, record, now=self._tools.now(), urgent=False)
                )

    def _key_of(self, pod: str) -> Key:
        """Return the key of a pod's (uid) writes: that of its job."""
        job = self._tools.job_of(pod)
        return JobKey(job) if job else PodKey(pod)

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
                JobKey(uid), status_write(known, known.term.job, record, now=self._tools.now(), urgent=True)
            )

    def _submit_status(self, key: Key, operation: PutStatus) -> None:
        found = self._tools.found.pop(key, None)
        if found is not None and orjson.loads(found) == operation.body["status"]:
            return
        self._unwritten.add(key)
        self._written.clear()
        self._tools.writer.submit(key, operation)

    def _write_pool(self, action: WritePool) -> None:
        tools, known = self._tools, self._tools.directory.pools.get(self._pool)
        if known is None:
            return
        self._record = record = action.record
        self._spec = record.applied
        tools.taints.observe_pool(self._pool, holding=record.applied is None or record.applied.hold == "Taint")
        if record.applied is not None and record.applied.hold != "Placeholder":  # also an earlier leader's placeholders
            self._keep_capacity(HoldCapacity({}, 0.0, 0))
        tools.promise_metrics.pool(self._pool, record)
        if record.applied is not None:
            tools.in_force(self._pool, record.applied)
        term = known.term
        status = pool_status(record, transition_times=term.transition_times, now=tools.now(), classes=term.classes)
        known.term.transition_times = transition_times(status["conditions"])
        meta = {"name": self._pool, "uid": known.uid}
        write = PutStatus.of(POOLS, "Pool", meta, status, urgent=action.urgent)
        self._submit_status(PoolKey(known.uid), write)

    def rewrite(self) -> None:
        """Write the pool's status again, if there is one."""
        if self._record is not None:
            self._write_pool(WritePool(self._record, urgent=False))

    def _keep_capacity(self, action: HoldCapacity) -> None:
        if known := self._tools.directory.pools.get(self._pool):
            self._tools.placeholders.want(known.uid, self._pool, action)
            self._tools.keep(self._pool, {node: kept.since for node, kept in action.nodes.items()})

    def _create(self, action: CreateChunk) -> None:
        tools, known = self._tools, self._tools.directory.jobs.get(action.job)
        pool = tools.directory.pools.get(self._pool)
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
            tools.refuse(refused)
            return
        results = tools.results.get(action.job)
        processor = self._spec or to_pool_spec(pool.pool)
        body = chunk_pod(
            known.owner,
            chunk,
            part["template"],
            processor=processor,
            epoch=tools.epoch,
            results=results.sources() if reduce and results else (),
            priority_class=tools.chunk_class,
            step=InputStep.of(spec, image=tools.image, version=known.term.record.input if known.term.record else None),
            others=tools.others(action.job, chunk.kind, part["template"], processor),
        )
        if reduce and results:
            for operation in results.look():
                tools.writer.submit(JobKey(action.job), operation)
        tools.promise_metrics.created(chunk.kind)
        tools.writer.submit(JobKey(action.job), CreatePod(known.owner.namespace, body, _same(known.owner, chunk)))

    def _store(self, action: StoreResult) -> None:
        tools, known = self._tools, self._tools.directory.jobs.get(action.job)
        if known is None:
            return
        if not action.for_reduce:
            tools.writer.submit(JobKey(action.job), readable(known.owner, action))
            return
        results = tools.results.setdefault(action.job, Results(known.owner))
        for operation in results.store(action):
            tools.writer.submit(JobKey(action.job), operation)

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
            pool = directory.pools.get(self._pool)
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
