"""The operator's metrics in one registry. Names, help and labels come from :mod:`punctual.metric_names`.

The runtime counts events as they happen and sets a pool's gauges when it processes the pool. Values that are cheap to
read are read at scrape time (``watch``).
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

from punctual import __version__
from punctual import metric_names as names

_BY_POOL = (
    names.PROMISES_OPEN,
    names.STATISTICAL_OPEN,
    names.UTILIZATION_BOUND,
    names.MISS_RATIO,
    names.SLACK,
    names.PROGRESS,
    names.JOBS_WAITING,
    names.PROCESSORS,
    names.PROCESSORS_FREE,
    names.MAILBOX_DEPTH,
    names.MAILBOX_AGE,
)


class Metrics:
    """The metrics of one process, one attribute each. Tests create as many instances as they need."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.decisions = self._counter(names.ADMISSION_DECISIONS)
        self.decision_seconds = self._histogram(names.ADMISSION_DURATION)
        self.promises_kept = self._counter(names.PROMISES_KEPT)
        self.misses = self._counter(names.DEADLINE_MISSES)
        self.statistical_kept = self._counter(names.STATISTICAL_KEPT)
        self.statistical_misses = self._counter(names.STATISTICAL_MISSES)
        self.finish_slack = self._histogram(names.FINISH_SLACK)
        self.chunks_created = self._counter(names.CHUNKS_CREATED)
        self.step_seconds = self._histogram(names.STEP_DURATION)
        self.writes = self._counter(names.WRITES)
        self.write_seconds = self._histogram(names.WRITE_DURATION)
        self.loop_lag = self._histogram(names.LOOP_LAG)
        self.informer_staleness = self._gauge(names.INFORMER_STALENESS)
        self.reports = self._counter(names.AGENT_REPORTS)
        self.refusals = self._counter(names.EXCHANGE_REFUSALS)
        self.clock_doubts = self._counter(names.CLOCK_DOUBTS)
        self.token_reviews = self._counter(names.TOKEN_REVIEWS)
        self.certificate_end = self._gauge(names.CERTIFICATE_END)
        self._pools = {m: self._gauge(m) for m in _BY_POOL}
        self._gauge(names.OPERATOR_BUILD).labels(__version__).set(1)

    def pool(self, pool: str, values: dict[names.Metric, float]) -> None:
        """Set gauges of a pool."""
        for metric, value in values.items():
            self._pools[metric].labels(pool).set(value)

    def watch_pool(self, pool: str, values: dict[names.Metric, Callable[[], float]]) -> None:
        """Export gauges of a pool that are read at each scrape."""
        for metric, ask in values.items():
            self._pools[metric].labels(pool).set_function(ask)

    def forget_pool(self, pool: str) -> None:
        """Remove a deleted pool from all gauges, because its last values must not stay."""
        for gauge in self._pools.values():
            if (pool,) in gauge._metrics:  # noqa: SLF001  remove() of an unknown label warns
                gauge.remove(pool)

    def forget_pools(self) -> None:
        """Remove all pools: this replica no longer leads, and another exports their metrics."""
        for gauge in self._pools.values():
            gauge.clear()

    def watch(self, metric: names.Metric, ask: Callable[[], float]) -> None:
        """Export a gauge without labels that is read at each scrape."""
        self._gauge(metric).set_function(ask)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def _counter(self, metric: names.Metric) -> Counter:
        made = Counter(metric.name, metric.help, metric.labels, registry=self.registry)
        _settle(made, metric)
        return made

    def _gauge(self, metric: names.Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: names.Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)


def _settle(made: MetricWrapperBase, metric: names.Metric) -> None:
    """Create a counter's known label sets at 0. Otherwise the first increase would not show as one."""
    for known in _KNOWN.get(metric, ()):
        made.labels(*known)


_KNOWN: dict[names.Metric, tuple[tuple[str, ...], ...]] = {
    names.DEADLINE_MISSES: (("CapacityLost",), ("Overrun",), ("ChunkFailed",), ("Late",)),
    names.STATISTICAL_MISSES: (("ChunkFailed",), ("Late",)),
    names.CLOCK_DOUBTS: (("dismissed",), ("followed",)),
}
