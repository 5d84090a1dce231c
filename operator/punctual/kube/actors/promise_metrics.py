"""Metrics of a leader's decisions, kept promises and missed promises.

Each record passes here before it is written. Only the changes since the one before are counted, so a record that is
written twice, or taken over from an earlier leader, is not counted twice.
"""

from collections.abc import Iterable
from typing import Final

from punctual import metric_names as names
from punctual import reasons
from punctual.kube.actors.wanted_processors import WantedProcessors
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.translate import job_state
from punctual.kube.metrics import Metrics
from punctual.runtime.clock import ServerClock
from punctual.scheduling.model.job import JobRecord, Promise
from punctual.scheduling.model.pool_spec import PoolRecord

BROKEN: Final = frozenset({
    reasons.CAPACITY_LOST, reasons.OVERRUN, reasons.LATE, reasons.LOOP_SATURATED, reasons.POD_FITS_NO_NODE,
})  # fmt: skip
"""Reasons of a job's end that break its promise. With any other reason the job failed by its own fault."""


class PromiseMetrics:
    """Counts for one term."""

    def __init__(self, metrics: Metrics, clock: ServerClock) -> None:
        self._metrics = metrics
        self._now = clock.now
        self._seen: dict[str, float] = {}  # jobs without an answer, and when they were first seen
        self._undecided: dict[str, float] = {}  # the same of jobs with an answer that is not written yet
        self._promised: dict[str, float] = {}  # jobs without a chunk, and when they were promised
        self._wanted = WantedProcessors()

    def seen(self, uid: str) -> None:
        """Note that a job is there."""
        self._seen.setdefault(uid, self._now())

    def forget(self, uid: str) -> None:
        """Note that a job is gone."""
        for times in (self._seen, self._undecided, self._promised):
            times.pop(uid, None)

    def job(self, known: KnownJob, record: JobRecord) -> None:
        """Count the changes in a record before it is written. ``known`` still has the one before."""
        before = known.term.record or JobRecord()
        answer = record.admitted
        if answer and answer.reason == reasons.ANSWER_DELAYED:
            return
        if answer and (before.admitted is None or before.admitted[:2] != answer[:2]):
            self._metrics.decisions.labels(known.owner.pool, answer.status, answer.reason).inc()
            seen = self._seen.pop(known.owner.uid, None)
            first = before.admitted is None or before.admitted.reason == reasons.ANSWER_DELAYED
            if first and seen is not None:  # an edit of a job with an answer is seen too
                self._undecided[known.owner.uid] = seen
        self._offered(known, before, record)
        self._begun(known, before, record)
        self._spent(known, before, record)
        if record.ended and not before.ended and (promise := record.promise or before.promise):
            self._ended(known, record, promise)

    def _offered(self, known: KnownJob, before: JobRecord, record: JobRecord) -> None:
        offer, job, pool = record.offer, known.term.job, known.owner.pool
        if offer is None or before.offer:
            return
        if job and (earliest := offer.earliest_time) is not None:
            self._metrics.offer_lateness.labels(pool).observe(earliest - job.deadline)
        if offer.processors:
            self._wanted.add(pool, self._now(), offer.processors.more)

    def wanted(self, pool: str) -> int:
        """Return how many more processors a refused job of the last minutes would have needed, at most."""
        return self._wanted.most(pool, self._now())

    def _begun(self, known: KnownJob, before: JobRecord, record: JobRecord) -> None:
        uid, owner = known.owner.uid, known.owner
        if record.promise and not before.promise:
            tenant = self._metrics.tenant(owner.pool, owner.namespace)
            self._metrics.processor_seconds.labels(*tenant, "Promised").inc(_needed(known, record))
            self._promised[uid] = self._now()
        if record.started is not None and (at := self._promised.pop(uid, None)) is not None:
            self._metrics.first_chunk.labels(owner.pool).observe(max(0.0, record.started - at))

    def _spent(self, known: KnownJob, before: JobRecord, record: JobRecord) -> None:
        """Count the processor time of chunks that have ended."""
        if not before.chunks:
            return
        there = {chunk.key for chunk in record.chunks}
        for chunk in before.chunks:
            if chunk.key not in there:
                kind = "Leftover" if chunk.leftover or before.promise is None else "Used"
                tenant = self._metrics.tenant(known.owner.pool, known.owner.namespace)
                spent = max(0.0, self._now() - chunk.created)
                self._metrics.processor_seconds.labels(*tenant, kind).inc(spent)

    def reserved(self, pool: str, namespace: str, seconds: float) -> None:
        """Count the processor time of a window that was accepted."""
        self._metrics.processor_seconds.labels(*self._metrics.tenant(pool, namespace), "Promised").inc(seconds)

    def _ended(self, known: KnownJob, record: JobRecord, promise: Promise) -> None:
        """Count the end of a job: a promise that was kept or broken, or a failure by its own fault."""
        assert record.finished is not None
        metrics, loose, pool = self._metrics, _loose(record), known.owner.pool
        tenant = metrics.tenant(pool, known.owner.namespace)
        self._promised.pop(known.owner.uid, None)
        failed = record.failed_condition
        if failed is not None and failed.reason not in BROKEN:
            metrics.jobs_failed.labels(*tenant, failed.reason).inc()
            return
        slack = promise.deadline - record.finished
        if failed is None and not loose:
            metrics.finish_slack.labels(pool).observe(slack)
            if promise.margin > 0.0:
                metrics.margin_used.labels(pool).observe(1.0 - slack / promise.margin)
        if failed is None and slack >= 0.0:
            (metrics.statistical_kept if loose else metrics.promises_kept).labels(*tenant).inc()
        else:
            (metrics.statistical_misses if loose else metrics.misses).labels(*tenant, _cause(record)).inc()

    def written(self, uid: str) -> None:
        """Record that a job's status was written. From now on its first decision is visible."""
        if (asked := self._undecided.pop(uid, None)) is not None:
            self._metrics.decision_seconds.observe(max(0.0, self._now() - asked))

    def created(self, kind: str) -> None:
        """Count a pod that is being created."""
        self._metrics.chunks_created.labels(kind).inc()

    def pool(self, pool: str, record: PoolRecord) -> None:
        """Set the gauges of a pool from its record."""
        self._metrics.pool(
            pool,
            {
                names.PROCESSORS: record.processors,
                names.PROCESSORS_FREE: record.free,
                names.JOBS_WAITING: record.queue,
                names.UTILIZATION_BOUND: record.miss.bound if record.miss else 0.0,
                names.MISS_RATIO: (record.miss.ratio or 0.0) if record.miss else 0.0,
            },
        )

    def promises(self, pool: str, jobs: Iterable[KnownJob]) -> None:
        """Set the gauges of a pool's open promises."""
        let_in = [(j, r) for j in jobs if (r := j.term.record) and r.promise and not r.ended]
        kept = [(j, r) for j, r in let_in if not _loose(r)]
        slacks = [r.promise.deadline - r.eta for _, r in kept if r.promise and r.eta is not None]
        asked = sum(j.owner.units for j, _ in kept)
        self._metrics.pool(
            pool,
            {
                names.PROMISES_OPEN: len(kept),
                names.PROMISES_LATE: sum(job_state(r) == "Late" or r.eta is None for _, r in kept),
                names.STATISTICAL_OPEN: len(let_in) - len(kept),
                names.SLACK: min(slacks, default=0.0),
                names.PROGRESS: sum(r.done for _, r in kept) / asked if asked else 0.0,
            },
        )


def _needed(known: KnownJob, record: JobRecord) -> float:
    """Return the processor time that a new promise needs; 0 in a reserved window, which was counted itself."""
    job, cost = known.term.job, record.cost
    if job is None or cost is None or record.promise is None or job.reservation is not None:
        return 0.0
    left = job.units - record.completed.total
    starts = left if job.unit_pods else record.promise.processors
    return left * cost.per_unit + starts * cost.setup + (job.reduce_duration or 0.0)


def _loose(record: JobRecord) -> bool:
    return record.admitted is not None and record.admitted.reason == reasons.ADMITTED_STATISTICALLY


def _cause(record: JobRecord) -> str:
    """Return the reason for which a promise was broken."""
    if record.failed_condition is not None:
        return record.failed_condition.reason
    lost = record.on_track is not None and record.on_track.status == "False" and record.on_track.reason
    # a saturated loop is why a job is late: it is counted as such, so that it costs no series of its own
    return reasons.LATE if not lost or lost == reasons.LOOP_SATURATED else lost
