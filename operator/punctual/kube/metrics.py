"""The operator's metrics in one registry. Names, help and labels come from :mod:`punctual.metric_names`.

The runtime counts events as they happen and sets a pool's gauges when it processes the pool. Values that are cheap to
read are read at scrape time (``watch``, ``watch_pool``).
"""

import time
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from punctual import __version__, reasons
from punctual import metric_names as names
from punctual.guests.explain import possible, reason_of
from punctual.guests.model import Decided
from punctual.kube.port import Cause
from punctual.scheduling.model.job import Kind

_BY_POOL = (
    names.PROMISES_OPEN,
    names.PROMISES_LATE,
    names.STATISTICAL_OPEN,
    names.UTILIZATION_BOUND,
    names.MISS_RATIO,
    names.SLACK,
    names.PROGRESS,
    names.JOBS_WAITING,
    names.PROCESSORS,
    names.PROCESSORS_FREE,
    names.PROCESSORS_RUNNING,
    names.PROCESSORS_PROMISED,
    names.PROCESSORS_WANTED,
    names.FREE_UNTIL,
    names.PROCESSORS_RESERVED,
    names.NEXT_RESERVATION,
    names.MAILBOX_DEPTH,
    names.MAILBOX_OLDEST,
)
_BY_RATE = names.RATE_TARGET, names.RATE_RATIO, names.RATE_ON_TARGET, names.RATE_SKEW
_ANSWERS = {
    "True": (reasons.FEASIBLE, reasons.ADMITTED_STATISTICALLY),
    "False": (reasons.INFEASIBLE_CAPACITY, reasons.INFEASIBLE_STARTUP),
}
"""The usual answers to jobs."""
_FAULTS = reasons.CHUNK_FAILED, reasons.STALLED, reasons.REDUCE_FAILED, reasons.INPUT_CHANGED
"""Faults of jobs themselves. No alert counts them, so rarer ones have no series before the first."""
ProcessorTime = Literal["Promised", "Used", "Leftover"]
_CAUSES = reasons.CAPACITY_LOST, reasons.OVERRUN, reasons.LATE, reasons.NOT_STARTED
"""Causes of broken promises. Their series begin with a tenant's first promise: so the first miss is an increase."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # of the whole library: each would double the counters


class Metrics:
    """The metrics of one process, one attribute each. Tests create as many instances as they need."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.decisions = self._counter(names.ADMISSION_DECISIONS)
        self.decision_seconds = self._histogram(names.ADMISSION_DURATION)
        self.promises_kept = self._counter(names.PROMISES_KEPT)
        self.misses = self._counter(names.DEADLINE_MISSES)
        self.jobs_failed = self._counter(names.JOBS_FAILED)
        self.statistical_kept = self._counter(names.STATISTICAL_KEPT)
        self.statistical_misses = self._counter(names.STATISTICAL_MISSES)
        self.processor_seconds = self._counter(names.PROCESSOR_SECONDS)
        self.share_promised = self._gauge(names.SHARE_PROMISED)
        self.finish_slack = self._histogram(names.FINISH_SLACK)
        self.margin_used = self._histogram(names.MARGIN_USED)
        self.offer_lateness = self._histogram(names.OFFER_LATENESS)
        self.first_chunk = self._histogram(names.FIRST_CHUNK)
        self.chunks_created = self._counter(names.CHUNKS_CREATED)
        self.guest_decisions = self._counter(names.GUEST_DECISIONS)
        self.step_seconds = self._histogram(names.STEP_DURATION)
        self.writes = self._counter(names.WRITES)
        self.write_seconds = self._histogram(names.WRITE_DURATION)
        self.loop_lag = self._histogram(names.LOOP_LAG)
        self.informer_heard = self._gauge(names.INFORMER_HEARD)
        self.reports = self._counter(names.AGENT_REPORTS)
        self.refusals = self._counter(names.EXCHANGE_REFUSALS)
        self.connections_closed = self._counter(names.CONNECTIONS_CLOSED)
        self.clock_doubts = self._counter(names.CLOCK_DOUBTS)
        self.token_reviews = self._counter(names.TOKEN_REVIEWS)
        self.certificate_end = self._gauge(names.CERTIFICATE_END)
        begin(self.clock_doubts, "dismissed", "followed")
        begin(self.token_reviews, "known", "unknown")
        begin(self.chunks_created, *get_args(Kind))
        for pair in possible():
            self.guest_decisions.labels(*pair)
        self._pools = {m: self._gauge(m) for m in _BY_POOL}
        self._rates = {m: self._gauge(m) for m in _BY_RATE}
        self._shown_rates: set[tuple[str, str]] = set()
        self._watched: dict[str, Callable[[], Mapping[names.Metric, float]]] = {}
        self._tenants: set[tuple[str, str]] = set()
        self._gauge(names.OPERATOR_BUILD).labels(__version__).set(1)

    def begin_pool(self, pool: str) -> None:
        """Begin the series of a pool at 0."""
        for status, usual in _ANSWERS.items():
            for reason in usual:
                self.decisions.labels(pool, status, reason)
        for histogram in (self.finish_slack, self.margin_used, self.offer_lateness, self.first_chunk):
            histogram.labels(pool)

    def tenant(self, pool: str, namespace: str) -> tuple[str, str]:
        """Return the labels for a pool's jobs of a namespace, and begin their series at 0."""
        pair = pool, namespace
        if pair not in self._tenants and len(self._tenants) >= names.TENANTS:
            pair = pool, names.OTHERS
        if pair not in self._tenants:
            self._tenants.add(pair)
            self.promises_kept.labels(*pair)
            self.statistical_kept.labels(*pair)
            self.statistical_misses.labels(*pair, reasons.LATE)
            self.share_promised.labels(*pair)
            for kind in get_args(ProcessorTime):
                self.processor_seconds.labels(*pair, kind)
            for cause in _CAUSES:
                self.misses.labels(*pair, cause)
            for fault in _FAULTS:
                self.jobs_failed.labels(*pair, fault)
        return pair

    def closing(self, port: Literal["reports", "page", "metrics"]) -> Callable[[Cause], None]:
        """Return what counts the connections that a port closes, and begin its series at 0."""
        for cause in get_args(Cause):
            self.connections_closed.labels(port, cause)
        return lambda cause: self.connections_closed.labels(port, cause).inc()

    def shares(self, pool: str, used: Mapping[str, float]) -> None:
        """Set which part of its share of a pool is promised to each namespace; of others it is 0."""
        found = {pair: 0.0 for pair in self._tenants if pair[0] == pool}
        for namespace, part in used.items():
            pair = self.tenant(pool, namespace)
            found[pair] = max(part, found.get(pair, 0.0))
        for pair, part in found.items():
            self.share_promised.labels(*pair).set(part)

    def guest_decided(self, told: Decided) -> None:
        """Count a decision about a chunk of a guest job."""
        self.guest_decisions.labels(told.cause, reason_of(told)).inc()

    def pool(self, pool: str, values: Mapping[names.Metric, float]) -> None:
        """Set gauges of a pool."""
        for metric, value in values.items():
            self._pools[metric].labels(pool).set(value)

    def watch_pool(self, pool: str, values: Callable[[], Mapping[names.Metric, float]]) -> None:
        """Export gauges of a pool that are read at each scrape, all at once."""
        self._watched[pool] = values

    def forget_pool(self, pool: str) -> None:
        """Remove a deleted pool from all gauges, because its last values must not stay."""
        self._watched.pop(pool, None)
        for gauge in (*self._pools.values(), self.share_promised):
            gauge.remove_by_labels({"pool": pool})

    def rate(self, namespace: str, name: str, values: Mapping[names.Metric, float | None]) -> None:
        """Set gauges of a TargetRate. None: it has no such value."""
        key = namespace, name
        if key not in self._shown_rates and len(self._shown_rates) >= names.RATES:
            return
        self._shown_rates.add(key)
        for metric, value in values.items():
            if value is None:
                self._rates[metric].remove_by_labels({"namespace": namespace, "name": name})
            else:
                self._rates[metric].labels(*key).set(value)

    def forget_rate(self, namespace: str, name: str) -> None:
        """Remove a deleted TargetRate from all gauges."""
        self._shown_rates.discard((namespace, name))
        for gauge in self._rates.values():
            gauge.remove_by_labels({"namespace": namespace, "name": name})

    def end_term(self) -> None:
        """Remove all pools and target rates: this replica no longer leads, and another exports their metrics."""
        self._watched.clear()
        self._shown_rates.clear()
        for gauge in (*self._pools.values(), *self._rates.values(), self.share_promised):
            gauge.clear()

    def watch(self, metric: names.Metric, ask: Callable[[], float]) -> None:
        """Export a gauge without labels that is read at each scrape."""
        self._gauge(metric).set_function(ask)

    def watch_age(self, metric: names.Metric, age: Callable[[], float]) -> None:
        """Export when something began, from its age in seconds. An age of 0 means that nothing has begun."""
        self.watch(metric, lambda: began(age()))

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        for pool, values in self._watched.items():
            self.pool(pool, values())
        return generate_latest(self.registry)

    def _counter(self, metric: names.Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: names.Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: names.Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)


def begin(counter: Counter, *values: str) -> None:
    """Begin the series of a counter with one label at 0: an increase shows only in a series that exists."""
    for value in values:
        counter.labels(value)


def began(age: float) -> float:
    """Return the time at which something of that age (seconds) began; 0 for the age 0."""
    return time.time() - age if age else 0.0
