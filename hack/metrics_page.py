#!/usr/bin/env python3
"""Writes docs/metrics.md from operator/punctual/metric_names.py. A test compares them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from punctual import metric_names
from punctual.metric_names import Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
INTRO = """# Metrics

<!-- Made by hack/generate from operator/punctual/metric_names.py; edit that. -->

Operator (port 8080) and agent (port 9464) serve `/metrics` for Prometheus and `/healthz`. Where the cluster has the
Prometheus operator's kinds, the chart brings a ServiceMonitor, a PodMonitor and a PrometheusRule (`monitoring` in its
values). The same alerts are a plain file, `charts/punctual/alerts/punctual.yaml`. Each has a
[runbook](runbooks/README.md). The chart also brings four [dashboards](dashboards.md) as ConfigMaps for Grafana's
sidecar; `charts/punctual/dashboards` has them as JSON.

Base units throughout; no label holds a job's name. At most 28 pairs of pool and namespace have series of their own;
later ones share the namespace `_others`. At most 50 TargetRates have series of their own; later ones have none.
`reason` is a word of the [list of reasons](reasons.md).

The first to watch:

- `punctual_deadline_misses_total`: a promise was broken. Its label `reason` says why;
- `punctual_slack_seconds` below 0: a promise is forecast to be broken;
- `punctual_agents_silent` above 0: a node is neither steered nor followed;
- `time() - punctual_planner_tick_timestamp_seconds` above 10 on the leader: the scheduling loop is stalled;
- `punctual_clock_doubt_begin_timestamp_seconds` above 0: nothing is decided, as API servers tell different times;
- `punctual_clock_doubts_total` that keeps rising: one of several API servers has a wrong clock.
"""


def page() -> str:
    """Return the page."""
    every = [one for one in vars(metric_names).values() if isinstance(one, Metric)]
    first_of_agent = every.index(metric_names.CGROUP_WRITES)
    return "\n".join(
        [
            INTRO,
            "## Operator",
            "",
            *_table(every[:first_of_agent]),
            "",
            "## Agent",
            "",
            *_table(every[first_of_agent:]),
            "",
        ]
    )


def _table(metrics: Iterable[Metric]) -> Iterable[str]:
    yield "| Name | Type | Labels | Meaning |"
    yield "|---|---|---|---|"
    for one in metrics:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        yield f"| `{one.name}` | {one.kind} | {labels} | {one.help} |"


if __name__ == "__main__":
    PAGE.write_text(page())
