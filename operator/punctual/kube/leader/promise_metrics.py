"""Metrics of a leader's decisions, kept promises and missed promises.

Each record passes here before it is written. Only the changes since the one before are counted, so a record that is
written twice, or taken over from an earlier leader, is not counted twice.
"""

from collections.abc import Callable, Iterable

from punctual import metric_names as names
from punctual import reasons
from punctual.kube.cluster.directory import KnownJob
from punctual.kube.metrics import Metrics
from punctual.scheduling.model.job import JobRecord
from punctual.scheduling.model.pool_spec import PoolRecord


class PromiseMetrics:
    """Counts for one term. ``now`` is the API server's clock."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._now = now
        self._undecided: dict[str, float] = {}

    def job(self, known: KnownJob, record: JobRecord) -> None:
        """Count the changes in a record before it is written. ``known`` still has the one before."""
        before = known.record or JobRecord()
        answer = record.admitted
        if answer and answer.reason == reasons.ANSWER_DELAYED:
            return
        if answer and (before.admitted is None or before.admitted[:2] != answer[:2]):
            self._metrics.decisions.labels(answer.status, answer.reason).inc()
            first = before.admitted is None or before.admitted.reason == reasons.ANSWER_DELAYED
            if first and known.job:
                self._undecided[known.owner.uid] = known.job.arrival
        if record.ended and not before.ended and (promise := record.promise or before.promise):
            assert record.finished is not None
            well = record.completed_condition is not None and record.completed_condition.status == "True"
            metrics, loose = self._metrics, _loose(record)
            if not loose:
                metrics.finish_slack.observe(promise.deadline - record.finished)
            if well and record.finished <= promise.deadline:
                (metrics.statistical_kept if loose else metrics.promises_kept).inc()
            else:
                (metrics.statistical_misses if loose else metrics.misses).labels(_cause(record)).inc()

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
        let_in = [(j, r) for j in jobs if (r := j.record) and r.promise and not r.ended]
        kept = [(j, r) for j, r in let_in if not _loose(r)]
        slacks = [r.promise.deadline - r.eta for _, r in kept if r.promise and r.eta is not None]
        asked = sum(j.owner.units for j, _ in kept)
        self._metrics.pool(
            pool,
            {
                names.PROMISES_OPEN: len(kept),
                names.STATISTICAL_OPEN: len(let_in) - len(kept),
                names.SLACK: min(slacks, default=0.0),
                names.PROGRESS: sum(r.done for _, r in kept) / asked if asked else 0.0,
            },
        )


def _loose(record: JobRecord) -> bool:
    return record.admitted is not None and record.admitted.reason == reasons.ADMITTED_STATISTICALLY


def _cause(record: JobRecord) -> str:
    for verdict in (record.failed_condition, record.on_track):
        if verdict and verdict.status == ("True" if verdict is record.failed_condition else "False"):
            return verdict.reason
    return "Late"
