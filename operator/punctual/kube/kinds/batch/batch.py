"""The ordinary Jobs of a term: each with a deadline has a DivisibleJob, which holds its promise.

A Job is looked at after each change of it, and of its DivisibleJob. What is done follows from these two alone, so
nothing is remembered, and a new leader goes on. The Job's controller creates its pods, and counts its failures.
"""

import math
from typing import Any, Final, Literal, NamedTuple

import orjson
import structlog

from punctual import reasons
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.gated_pods import GatedPods
from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import BATCH_JOBS, JOBS
from punctual.kube.cluster.batch_jobs import SAID, BatchJob, Parallelism
from punctual.kube.cluster.events import Regarding
from punctual.kube.kinds.batch import parallelism
from punctual.kube.kinds.batch.contract import (
    closing,
    divisible_job,
    done,
    edited,
    foreign,
    gated,
    limited,
    opening,
    refusal,
)
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.store import Signal
from punctual.kube.known.translate import explanation, job_state
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Annotate, CreateObject, DeleteObject, Outcome, Patch
from punctual.labels import ETA, MESSAGE, OFFER, SLACK, STATE
from punctual.notation.duration import format_duration, format_time
from punctual.scheduling.model.events import UnitsCounted
from punctual.scheduling.model.job import JobRecord

EVERY: Final = 30.0
"""Seconds between two writes of a forecast into a Job's annotations, and after a refused change to its next try."""
AHEAD: Final = 5.0
"""Seconds before its first planned start at which a Job begins: its controller needs a moment to make pods."""
GOES_ON: Final = frozenset({"Measuring", "Waiting", "Running", "Late"})
"""States in which a Job with an answer is not suspended."""

log = structlog.get_logger(__name__)


class _Told(NamedTuple):
    """What was last told to a Job, and when."""

    at: float
    before: BatchJob
    """The Job as it was then."""
    wanted: dict[str, str]


class _Submitted(NamedTuple):
    """The changes of a Job that were submitted."""

    before: BatchJob
    """The Job as it was then, without what it was told."""
    changes: list[Any]
    again: float = math.inf
    """When they are tried again, if one was refused: a quota or a policy may be in the way for a while."""


class OrdinaryJobs:
    """All ordinary Jobs that name a pool."""

    resource = BATCH_JOBS

    def __init__(self, tools: Tools, gated: GatedPods, actors: PoolActors) -> None:
        self._tools = tools
        self._actors = actors
        self._jobs = tools.directory.jobs
        self._cache = tools.caches.batch
        self._gated = gated
        # by "namespace/name" of a Job
        self._told: dict[str, _Told] = {}
        self._changed: dict[str, _Submitted] = {}

    def begin(self) -> None:
        """Look at all Jobs: the takeover is done."""
        for key in list(self._cache.by_key):
            self._consider(key)

    def hear(self, signal: Signal) -> None:
        """Take in a change."""
        match signal:
            case Signal("batch", key):
                if key not in self._cache.by_key:
                    self._told.pop(key, None)
                    self._changed.pop(key, None)
                self._consider(key)
            case Signal("left", key):
                self._changed.pop(key, None)
                self._consider(key)
            case Signal("gated", uid):
                self._gated.arrived(uid)
            case Signal("pool", pool):
                for key in [key for key, job in self._cache.by_key.items() if job.pool == pool]:
                    self._consider(key)
            case Signal("answer", uid):
                if (known := self._jobs.get(uid)) is not None and known.owner.batch:
                    self._consider(f"{known.namespace}/{known.name}")

    def tend(self) -> None:
        """Write the forecasts that are due, try refused changes again, and tell of chunks that get no pod."""
        for event in (*self._gated.lost(), *self._gated.stuck()):
            known = self._jobs.get(event.job)
            if known is not None and known.term.pool is not None:
                self._actors.tell(known.term.pool, event)
        for known in list(self._jobs.of_batches()):
            if known.term.record is not None and not known.term.record.ended:
                self._consider(f"{known.namespace}/{known.name}")
        now = self._tools.clock.monotonic()
        for key in [key for key, submitted in self._changed.items() if submitted.again <= now]:
            self._consider(key)

    def wrote(self, outcome: Outcome) -> None:
        """Take in what became of a write about a Job."""
        if outcome.result in {"done", "gone"}:
            return
        job = self._cache.of_uid(outcome.key.name)
        if job is None:
            return
        submitted = self._changed.get(job.key)
        if submitted is not None and outcome.result == "refused" and not isinstance(outcome.operation, Annotate):
            self._changed[job.key] = submitted._replace(again=self._tools.clock.monotonic() + EVERY)
        if isinstance(outcome.operation, Patch):
            self._emit(job, "Warning", reasons.EDIT_REFUSED, outcome.message)
        elif isinstance(outcome.operation, CreateObject) and outcome.result == "conflict":
            text = f"a DivisibleJob {job.name} is there already, and is not the Job's: rename or delete one of the two"
            self._refuse(job, reasons.NAME_TAKEN, text)
        elif isinstance(outcome.operation, CreateObject):
            self._refuse(job, reasons.INVALID_SPEC, outcome.message)

    def _consider(self, key: str) -> None:
        job = self._cache.by_key.get(key)
        if job is None or job.deleting:
            return
        known = self._jobs.of_batch(job.uid)
        if job.ended:
            self._let(job, parallelism.restored(job.parallelism))
        if known is None:
            self._ask(job)
        elif not known.deleting:
            self._follow(job, known)

    # a Job without an answer

    def _ask(self, job: BatchJob) -> None:
        """Make a Job's DivisibleJob, or tell what is wrong with the Job."""
        if job.ended or not job.asked:
            return
        if not job.suspended and not job.opened and not foreign(job):
            text = "it was not created with spec.suspend: true, so it has begun without a promise: create it suspended"
            self._refuse(job, reasons.NOT_SUSPENDED, text)
            return
        pool = self._tools.directory.pools.named(job.pool)
        share = pool.term.spec.share if pool is not None and pool.term.spec else None
        if (found := refusal(job, share)) is not None:
            self._refuse(job, *found)
            return
        if not any(isinstance(change, CreateObject) for change in self._pending(job)):
            made = divisible_job(job, self._tools.now())
            self._submit(job, CreateObject(JOBS.path(namespace=job.namespace), made))

    # one with an answer

    def _follow(self, job: BatchJob, known: KnownJob) -> None:
        """Do what follows from the answer."""
        record = known.term.record
        if record is None and known.term.aside is not None and not job.ended:
            # it was refused, or suspended
            if not job.suspended or edited(job, orjson.loads(known.spec), known.created, refused=False):
                self._tools.kinds.signal("job", known.uid)  # its status is read, and `tend` goes on
            return
        if record is None or record.admitted is None:
            return
        self._count(job, known, record)
        state = job_state(record)
        self._mirror(job, known, record, state)
        if not job.ended:
            self._match(job, known, record, state)

    def _match(self, job: BatchJob, known: KnownJob, record: JobRecord, state: str) -> None:
        """Let a Job begin, stop, and have as many pods as its DivisibleJob needs; let that follow the Job's edits."""
        if not (job.suspended or job.opened or gated(job)):  # begun by another: `_ask` tells so
            self._submit(job, DeleteObject(JOBS.path(namespace=known.namespace, name=known.name), known.uid))
        elif job.suspended and not job.opened and self._begins(record, state):
            self._open(job, record)
        elif state == "Refused" and gated(job) and not job.suspended:
            self._submit(job, Patch(_path(job), closing(job.uid, job.parallelism)))
        elif not record.ended:
            if job.opened and not job.suspended:
                used = max(len(record.chunks), len(self._cache.started(job.uid)))  # some may be of an earlier promise
                self._let(job, parallelism.followed(job.parallelism, used, kept=self._gated.kept(job.uid)))
            if edit := edited(job, orjson.loads(known.spec), known.created, refused=state == "Refused"):
                self._edit(job, known, record, edit)

    def _begins(self, record: JobRecord, state: str) -> bool:
        """Whether pods of a Job are needed, or soon."""
        promised = record.admitted is not None and record.admitted.status == "True"
        if state not in GOES_ON or not (promised or record.goes_on or state == "Measuring"):
            return False
        planned = record.promise.start if record.promise else -math.inf
        return bool(record.chunks) or planned < self._tools.now() + AHEAD

    def _open(self, job: BatchJob, record: JobRecord) -> None:
        """Let a Job begin. Then its pods wait at the gate, and its own time limit runs."""
        if self._submit(job, Patch(_path(job), opening(job, len(record.chunks)))) and job.counts_lost:
            text = (
                "a pod that is lost with its node counts against spec.backoffLimit: a rule of spec.podFailurePolicy "
                "can ignore the condition DisruptionTarget"
            )
            self._emit(job, "Normal", reasons.LOST_PODS_COUNT, text)

    def _let(self, job: BatchJob, wanted: Parallelism) -> None:
        """Let a Job have so many pods."""
        if wanted != job.parallelism:
            self._submit(job, Patch(_path(job), parallelism.patch(job.uid, job.parallelism, wanted)))

    def _edit(self, job: BatchJob, known: KnownJob, record: JobRecord, edit: dict[str, Any]) -> None:
        """Edit a Job's DivisibleJob. Where that cannot be, it is deleted, and the Job is asked for anew.

        The units of a promise cannot change. The time limit of a Job that has not begun counts from the new question.
        """
        path = JOBS.path(namespace=known.namespace, name=known.name)
        late = "deadlineTime" in edit and job.time_limit is not None and not job.opened
        if late or ("units" in edit and record.promise is not None):
            self._submit(job, DeleteObject(path, known.uid))
        else:
            self._submit(job, Patch(path, {"metadata": {"uid": known.uid}, "spec": edit}))

    def _count(self, job: BatchJob, known: KnownJob, record: JobRecord) -> None:
        """Tell the pool what the Job's controller counts, where that is more than what was seen of pods."""
        pool = known.term.pool
        if pool is None or record.ended or not (job.ended or job.succeeded > record.completed.total):
            return
        counted = done(job, known.owner.units)
        failed = f"the Job has failed: {job.why}" if job.ended == "Failed" else ""
        if failed or counted - record.completed:
            self._actors.tell(pool, UnitsCounted(known.uid, counted, failed))

    def _mirror(self, job: BatchJob, known: KnownJob, record: JobRecord, state: str) -> None:
        said = explanation(record)
        if said is not None and state == "Suspended" and job.suspended_by:
            said = said._replace(message=f"{said.message}; {job.suspended_by} has set it")
        wanted: dict[str, str] = {STATE: state}
        earliest = record.offer.earliest_deadline if record.offer else None
        if said is not None:
            also = limited(job, known.created, earliest) if state == "Refused" else ""
            said = said._replace(message="; ".join(filter(None, (said.message, also))))
            wanted[MESSAGE] = said.message
        if record.offer is not None and (until := record.offer.earliest_time) is not None:
            # for an edit while the offer stands: it counts from the Job's creation, which may be long ago
            wanted[OFFER] = format_duration(math.ceil(until - job.created))
        if record.eta is not None and not record.ended:
            wanted[ETA] = format_time(math.ceil(record.eta))
            if record.promise is not None:
                wanted[SLACK] = format_duration(math.floor(record.promise.deadline - record.eta))
        self._say(job, wanted, *((said.reason, said.message) if said else ("", "")))

    def _refuse(self, job: BatchJob, reason: str, message: str) -> None:
        self._say(job, {STATE: "Refused", MESSAGE: message}, reason, message)

    def _say(self, job: BatchJob, wanted: dict[str, str], reason: str, message: str) -> None:
        """Write what a Job's annotations are to say, and tell the event when its state, or a refusal, changes."""
        before, now, told = dict(job.said), self._tools.clock.monotonic(), self._told.get(job.key)
        if told is not None and told.before.uid != job.uid:
            told = None
        if before == wanted or (told and (told.before.said, told.wanted) == (job.said, wanted)):
            return  # it is there, or on its way
        parts = (STATE, OFFER, MESSAGE) if wanted[STATE] == "Refused" else (STATE, OFFER)
        changed = any(before.get(name) != wanted.get(name) for name in parts)
        if not changed and told and now - told.at < EVERY:
            return
        self._told[job.key] = _Told(now, job, wanted)
        notes: dict[str, str | None] = {name: wanted.get(name) for name in SAID}
        self._tools.writer.submit(Key(BATCH_JOBS, job.uid), Annotate(_path(job), notes, job.uid, urgent=False))
        if changed and reason:
            bad = wanted[STATE] in {"Refused", "Late", "Missed", "Failed"}
            self._emit(job, "Warning" if bad else "Normal", reason, message)

    def _emit(self, job: BatchJob, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = Regarding("batch/v1", "Job", job.namespace, job.name, job.uid)
        self._tools.recorder.emit(regarding, kind, reason, message)

    def _submit(self, job: BatchJob, change: CreateObject | Patch | DeleteObject) -> bool:
        """Submit a change; return False if it was submitted already and nothing has come of it yet.

        One that was refused is submitted again after a while.
        """
        pending = self._pending(job)
        if change in pending:
            return False
        self._changed[job.key] = _Submitted(job._replace(said=()), [*pending, change])
        self._tools.writer.submit(Key(BATCH_JOBS, job.uid), change)
        return True

    def _pending(self, job: BatchJob) -> list[Any]:
        """Return the changes that were submitted for a Job as it is; what it is told changes nothing."""
        submitted = self._changed.get(job.key)
        if submitted is None or submitted.again <= self._tools.clock.monotonic():
            return []
        return submitted.changes if submitted.before == job._replace(said=()) else []


def _path(job: BatchJob) -> str:
    return BATCH_JOBS.path(namespace=job.namespace, name=job.name)
