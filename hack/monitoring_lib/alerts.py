"""The alerts: on symptoms, and only a broken promise pages.

A rule must stay silent while the operator is rolled out and while users' own jobs fail. Metrics of promises come from
the leader alone, so a query combines the replicas by `max` or `sum`, never by instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from punctual import metric_names as names

RUNBOOKS = "docs/runbooks"
"""Where the runbooks are. The chart puts `monitoring.runbooks` in its place."""
DAY = 86400


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``lasts``: for how long its expression must hold before it fires."""

    name: str
    expr: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str
    description: str

    @property
    def page(self) -> str:
        """The name of its runbook, without the folder."""
        return f"{self.name}.md"

    def rule(self) -> dict[str, Any]:
        """Return it as a rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}/{self.page}",
            },
        }


def _since(metric: names.Metric) -> str:
    """Return the seconds since a time that is exported; nothing where it is 0."""
    return f"time() - ({metric.name} > 0)"


ALERTS = (
    Alert(
        "PunctualPromiseBroken",
        f"sum by (pool, namespace, reason) (increase({names.DEADLINE_MISSES.name}[10m])) > 0",
        "0s",
        "critical",
        "A promised deadline was missed",
        'In pool {{ $labels.pool }}, {{ $value | printf "%.0f" }} promise(s) to namespace {{ $labels.namespace }} were '
        "broken in ten minutes. Cause: {{ $labels.reason }}.",
    ),
    Alert(
        "PunctualPromiseLate",
        f"max by (pool) ({names.PROMISES_LATE.name}) > 0",
        "1m",
        "warning",
        "A promise is forecast to be broken",
        "In pool {{ $labels.pool }}, {{ $value }} promised job(s) that have not ended are late, or have no forecast.",
    ),
    Alert(
        "PunctualNoLeader",
        f"sum({names.LEADER.name}) == 0 or absent({names.LEADER.name})",
        "2m",
        "warning",
        "No replica of the operator leads",
        "No job is answered, and no plan is adapted. Chunks that run go on.",
    ),
    Alert(
        "PunctualTakeoverHangs",
        f"max({_since(names.TAKEOVER_MOVED)}) > 60",
        "1m",
        "warning",
        "A takeover makes no progress",
        "The new leader has read and written nothing for {{ $value | humanizeDuration }}. Nothing is decided until it "
        "is done.",
    ),
    Alert(
        "PunctualQueueStuck",
        f"max by (pool) ({_since(names.MAILBOX_OLDEST)}) > 60 or max({_since(names.WRITER_OLDEST)}) > 60 "
        f"or max({_since(names.PLANNER_TICK)}) > 60",
        "1m",
        "warning",
        "The operator does not process its queues",
        "An event or a write has waited, or a pool has taken no step, for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "PunctualClockDoubt",
        f"max({_since(names.CLOCK_DOUBT)}) > 60",
        "1m",
        "warning",
        "API servers tell different times",
        "For {{ $value | humanizeDuration }} nothing has been decided, because the API servers' clocks disagree.",
    ),
    Alert(
        "PunctualPoolStopped",
        f"max({names.POOLS_STOPPED.name}) > 0",
        "5m",
        "warning",
        "A pool is not led",
        "The status of {{ $value }} pool(s) cannot be written, so nothing is decided in them.",
    ),
    Alert(
        "PunctualPoolEmpty",
        f"max by (pool) ({names.PROCESSORS.name}) == 0",
        "10m",
        "warning",
        "A pool has no processors",
        "Pool {{ $labels.pool }} has had no processor for ten minutes, so it refuses every job.",
    ),
    Alert(
        "PunctualAgentsSilent",
        f"max({names.AGENTS_SILENT.name}) > 0",
        "5m",
        "warning",
        "Agents do not report",
        "{{ $value }} node(s) of pools have sent no report: their chunks are neither steered nor followed.",
    ),
    Alert(
        "PunctualCertificateEnds",
        f"min by (certificate) ({names.CERTIFICATE_END.name} > 0) - time() < {3 * DAY}",
        "1h",
        "warning",
        "A certificate is about to expire and was not renewed",
        "The {{ $labels.certificate }} certificate expires in {{ $value | humanizeDuration }}. Then agents refuse the "
        "operator.",
    ),
)


def rules() -> dict[str, Any]:
    """Return the file of rules."""
    return {"groups": [{"name": "punctual", "rules": [alert.rule() for alert in ALERTS]}]}
