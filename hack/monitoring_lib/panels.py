"""The dashboards as values: what each panel shows, in which unit, from which queries.

Only the leader exports metrics of promises, so queries combine replicas by `sum` or `max`. `$pool` is the choice of
pools at the top of a dashboard; Grafana replaces `$__rate_interval` (a few scrapes) and `$__range` (the time shown).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from punctual import metric_names as names
from punctual.metric_names import Metric

POOL = 'pool=~"$pool"'
FULL, HALF, THIRD, QUARTER = 24, 12, 8, 6
"""Widths of panels."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the name of its curves."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``unit``: one of Grafana's; ``help``: what a reader must know beyond the title."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "bars", "number", "heat"] = "lines"
    width: int = HALF
    help: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels under a title. ``pools``: whether pools can be chosen."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    pools: bool = True

    @property
    def panels(self) -> list[Panel]:
        """Return the panels of all rows."""
        return [panel for _, panels in self.rows for panel in panels]


def _gauge(metric: Metric, *, by: str = "pool", fold: str = "sum") -> str:
    chosen = f"{{{POOL}}}" if "pool" in metric.labels else ""
    return f"{fold} by ({by}) ({metric.name}{chosen})" if by else f"{fold}({metric.name}{chosen})"


def _count(metric: Metric, *, by: str = "", within: str = "$__rate_interval", part: str = "", **labels: str) -> str:
    chosen = [POOL] if "pool" in metric.labels else []
    chosen += [f'{label}="{value}"' for label, value in labels.items()]
    selector = f"{{{','.join(chosen)}}}" if chosen else ""
    return f"sum{f' by ({by})' if by else ''} (increase({metric.name}{part}{selector}[{within}]))"


def _by_name(metric: Metric) -> str:
    return _gauge(metric, by="namespace, name", fold="max")


def _rate(metric: Metric, *, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric.name}[$__rate_interval]))"


def _quantile(share: float, metric: Metric, *, within: str = "$__rate_interval") -> str:
    chosen = f"{{{POOL}}}" if "pool" in metric.labels else ""
    return f"histogram_quantile({share:g}, sum by (le) (rate({metric.name}_bucket{chosen}[{within}])))"


def _quantiles(metric: Metric, *, within: str = "$__rate_interval") -> tuple[Query, ...]:
    return tuple(Query(_quantile(share, metric, within=within), f"p{100 * share:g}") for share in (0.5, 0.9, 0.99))


def _until(metric: Metric) -> str:
    """Return the time until a time that is announced; no value while none is."""
    return f"clamp_min({_gauge(metric, fold='max')} > 0, time()) - time()"


def _since(metric: Metric, *, by: str = "") -> str:
    """Return the age of a time; 0 while there is none."""
    found = f"(time() - ({metric.name} > 0)) or ({metric.name} == 0)"
    return f"max{f' by ({by})' if by else ''} ({found})"


DEADLINES = Dashboard(
    "punctual-deadlines",
    "Punctual / Deadlines",
    (
        (
            "Promises",
            (
                Panel("Open promises", "short", (Query(_gauge(names.PROMISES_OPEN, by="")),), "number", QUARTER),
                Panel(
                    "Promises kept",
                    "short",
                    (Query(f"round({_count(names.PROMISES_KEPT, within='$__range')})"),),
                    "number",
                    QUARTER,
                ),
                Panel(
                    "Promises broken",
                    "short",
                    (Query(f"round({_count(names.DEADLINE_MISSES, within='$__range')})"),),
                    "number",
                    QUARTER,
                    help="Without jobs that failed by their own fault.",
                ),
                Panel(
                    "Forecast to be broken",
                    "short",
                    (Query(_gauge(names.PROMISES_LATE, by="")),),
                    "number",
                    QUARTER,
                    help="Open promises with a forecast after their deadline.",
                ),
                Panel(
                    "Broken promises by cause",
                    "short",
                    (Query(_count(names.DEADLINE_MISSES, by="reason"), "{{reason}}"),),
                    "bars",
                ),
                Panel(
                    "Smallest slack of an open promise",
                    "s",
                    (
                        Query(
                            f"{_gauge(names.SLACK, fold='min')} and {_gauge(names.PROMISES_OPEN, fold='max')} > 0",
                            "{{pool}}",
                        ),
                    ),
                    help="Deadline minus forecast. Below 0: a promise is forecast to be broken.",
                ),
            ),
        ),
        (
            "Promised against actual finish",
            (
                Panel(
                    "Jobs by slack at their end",
                    "s",
                    (Query(_count(names.FINISH_SLACK, by="le", part="_bucket"), "{{le}}"),),
                    "heat",
                    help="Deadline minus actual finish. Below 0: late.",
                ),
                Panel(
                    "Share of the margin that was used",
                    "percentunit",
                    _quantiles(names.MARGIN_USED, within="1h"),
                    help="Above 1: late. Below 0: the job ended before its margin began.",
                ),
                Panel(
                    "Progress of promised jobs", "percentunit", (Query(_gauge(names.PROGRESS, fold="max"), "{{pool}}"),)
                ),
                Panel("From the promise to the first chunk", "s", _quantiles(names.FIRST_CHUNK, within="1h")),
            ),
        ),
        (
            "Answers",
            (
                Panel(
                    "Refused jobs by reason",
                    "short",
                    (Query(_count(names.ADMISSION_DECISIONS, by="reason", result="False"), "{{reason}}"),),
                    "bars",
                ),
                Panel(
                    "How late offers are",
                    "s",
                    _quantiles(names.OFFER_LATENESS, within="1h"),
                    help="The deadline that a refused job is offered, minus the one it requested.",
                ),
                Panel(
                    "Admitted jobs",
                    "short",
                    (Query(_count(names.ADMISSION_DECISIONS, by="reason", result="True"), "{{reason}}"),),
                    "bars",
                ),
                Panel(
                    "Jobs that failed by their own fault",
                    "short",
                    (Query(_count(names.JOBS_FAILED, by="reason"), "{{reason}}"),),
                    "bars",
                    help="Image, program, input or results. They broke no promise of Punctual's.",
                ),
            ),
        ),
    ),
)

POOLS = Dashboard(
    "punctual-pools",
    "Punctual / Pools",
    (
        (
            "Processors",
            (
                Panel("Processors", "short", (Query(_gauge(names.PROCESSORS, fold="max"), "{{pool}}"),), width=THIRD),
                Panel(
                    "Processors that run chunks",
                    "short",
                    (Query(_gauge(names.PROCESSORS_RUNNING, fold="max"), "{{pool}}"),),
                    width=THIRD,
                ),
                Panel(
                    "Free processors",
                    "short",
                    (Query(_gauge(names.PROCESSORS_FREE, fold="max"), "{{pool}}"),),
                    width=THIRD,
                ),
                Panel(
                    "Processors promised to work that has not begun",
                    "short",
                    (Query(_gauge(names.PROCESSORS_PROMISED, fold="max"), "{{pool}}"),),
                    help="0 in pools with fast or statistical admission: a queue promises work without a processor.",
                ),
                Panel(
                    "Processors that refused jobs lacked",
                    "short",
                    (Query(_gauge(names.PROCESSORS_WANTED, fold="max"), "{{pool}}"),),
                    help="The most of all jobs that were refused in the last 10 minutes.",
                ),
                Panel(
                    "Time until planned work needs a free processor",
                    "s",
                    (Query(_until(names.FREE_UNTIL), "{{pool}}"),),
                    help="No value: no free processor has planned work.",
                ),
                Panel(
                    "Utilization",
                    "percentunit",
                    (
                        Query(
                            f"1 - {_gauge(names.PROCESSORS_FREE, fold='max')}"
                            f" / ({_gauge(names.PROCESSORS, fold='max')} > 0)",
                            "{{pool}}",
                        ),
                    ),
                    help="Share of processors with a chunk.",
                ),
                Panel(
                    "Jobs waiting for an answer or a chunk",
                    "short",
                    (Query(_gauge(names.JOBS_WAITING, fold="max"), "{{pool}}"),),
                ),
                Panel("Pods created", "short", (Query(_count(names.CHUNKS_CREATED, by="kind"), "{{kind}}"),), "bars"),
                Panel("Open promises", "short", (Query(_gauge(names.PROMISES_OPEN, fold="max"), "{{pool}}"),)),
            ),
        ),
        (
            "Namespaces",
            (
                Panel(
                    "Part of its share that is promised",
                    "percentunit",
                    (
                        Query(
                            f"{_gauge(names.SHARE_PROMISED, by='pool, namespace', fold='max')} > 0",
                            "{{pool}} {{namespace}}",
                        ),
                    ),
                    help="1: no more is promised to it. No value: nothing is, or it may have all of the pool.",
                ),
                Panel(
                    "Processor time by kind",
                    "s",
                    (Query(_count(names.PROCESSOR_SECONDS, by="namespace, kind"), "{{namespace}} {{kind}}"),),
                    "bars",
                    help="Promised: when jobs and windows are promised. Used and Leftover: when chunks end.",
                ),
            ),
        ),
        (
            "Reservations",
            (
                Panel(
                    "Processors in open windows",
                    "short",
                    (Query(_gauge(names.PROCESSORS_RESERVED, fold="max"), "{{pool}}"),),
                ),
                Panel(
                    "Time until the next window",
                    "s",
                    (Query(_until(names.NEXT_RESERVATION), "{{pool}}"),),
                    help="No value: no window of an accepted reservation is ahead.",
                ),
            ),
        ),
        (
            "Statistical admission",
            (
                Panel(
                    "Bound on utilization",
                    "percentunit",
                    (Query(f"{_gauge(names.UTILIZATION_BOUND, fold='max')} > 0", "{{pool}}"),),
                    width=THIRD,
                    help="Pools with `missRatio` only.",
                ),
                Panel(
                    "Share of late jobs",
                    "percentunit",
                    (Query(_gauge(names.MISS_RATIO, fold="max"), "{{pool}}"),),
                    width=THIRD,
                ),
                Panel(
                    "Jobs done by their deadline, and not",
                    "short",
                    (
                        Query(_count(names.STATISTICAL_KEPT), "in time"),
                        Query(_count(names.STATISTICAL_MISSES, by="reason"), "{{reason}}"),
                    ),
                    "bars",
                    THIRD,
                ),
            ),
        ),
    ),
)

NODES = Dashboard(
    "punctual-nodes",
    "Punctual / Nodes and agents",
    (
        (
            "Agents",
            (
                Panel(
                    "Silent agents", "short", (Query(_gauge(names.AGENTS_SILENT, by="", fold="max")),), "number", THIRD
                ),
                Panel(
                    "Reports",
                    "reqps",
                    (
                        Query(_rate(names.AGENT_REPORTS), "accepted"),
                        Query(_rate(names.EXCHANGE_REFUSALS, by="reason"), "{{reason}}"),
                    ),
                    width=THIRD,
                ),
                Panel(
                    "Exchanges as the agents see them",
                    "reqps",
                    (Query(_rate(names.AGENT_EXCHANGES, by="result"), "{{result}}"),),
                    width=THIRD,
                ),
                Panel(
                    "Time since the operator's last answer",
                    "s",
                    (Query(_since(names.ANSWERED, by="instance"), "{{instance}}"),),
                ),
                Panel(
                    "Duration of a pass over a node's pods, p99",
                    "s",
                    (Query(_quantile(0.99, names.LOOK_DURATION), "p99"),),
                ),
                Panel(
                    "Connections that the operator closed",
                    "cps",
                    (Query(_rate(names.CONNECTIONS_CLOSED, by="port, cause"), "{{port}}: {{cause}}"),),
                ),
            ),
        ),
        (
            "Nodes",
            (
                Panel(
                    "CPU pressure",
                    "percentunit",
                    (Query(_rate(names.CPU_PRESSURE, by="instance"), "{{instance}}"),),
                    help="Share of time in which at least one task of the node waited for a CPU, chunks held back by "
                    "their caps included. No value: the node's kernel has no PSI.",
                ),
                Panel(
                    "CPU used by the nodes' own work, and by guests",
                    "short",
                    (
                        Query(f"sum by (instance) ({names.HOST_USE.name})", "{{instance}}"),
                        Query(f"sum by (instance) ({names.GUEST_USE.name})", "{{instance}}, guests"),
                    ),
                    help="Cores. The nodes' own work is all but guests, also promised chunks.",
                ),
                Panel(
                    "Decisions about guests",
                    "short",
                    (Query(_count(names.GUEST_DECISIONS, by="reason"), "{{reason}}"),),
                    "bars",
                    help="Chunks of guest jobs on busy nodes: whether they stay, pause, move or leave.",
                ),
                Panel(
                    "Memory of guests",
                    "bytes",
                    (
                        Query(f"sum by (instance) ({names.GUEST_MARK.name})", "they may have: {{instance}}"),
                        Query(f"sum by (instance) ({names.GUEST_EXCESS.name})", "they must give back: {{instance}}"),
                    ),
                    help="What guests must give back, the kernel cannot take from them, so some of them leave.",
                ),
                Panel(
                    "Part of a CPU that guests take from another pod",
                    "percentunit",
                    (Query(f"max by (instance) ({names.GUEST_SHARE.name})", "{{instance}}"),),
                    help="By the weights of folders, for as long as their cap has not fallen. Agents warn above 1 %.",
                ),
                Panel(
                    "Nodes by how they can hold guests",
                    "short",
                    (
                        Query(
                            f"sum by (resource, kind) ({names.GUEST_CAPABILITY.name})",
                            "{{resource}}: {{kind}}",
                        ),
                    ),
                    help="CPU: the idle class, or the least weight only. Memory: memory.high, or a soft limit, which "
                    "slows no guest. Disk: a weight, an idle class; none on kernels without them.",
                ),
            ),
        ),
        (
            "Target rates",
            (
                Panel(
                    "Rate and target",
                    "percentunit",
                    (
                        Query(_by_name(names.RATE_RATIO), "{{namespace}}/{{name}}"),
                        Query(_by_name(names.RATE_TARGET), "{{namespace}}/{{name}}, target"),
                    ),
                    width=THIRD,
                    help="Shares of the rate alone. The rate is that of the slowest pod.",
                ),
                Panel(
                    "On target",
                    "short",
                    (
                        Query(f"sum({names.RATE_ON_TARGET.name}) or vector(0)", "on target"),
                        Query(f"count({names.RATE_ON_TARGET.name}) or vector(0)", "all"),
                    ),
                    width=THIRD,
                    help="Applications that are held at a rate.",
                ),
                Panel(
                    "Largest error of the begin of slices",
                    "s",
                    (Query(_by_name(names.RATE_SKEW), "{{namespace}}/{{name}}"),),
                    width=THIRD,
                    help="Of all pods of a TargetRate with coscheduling Aligned. Above 0.5 ms, agents move the slices.",
                ),
            ),
        ),
        (
            "CPU caps",
            (
                Panel(
                    "CPU caps in force",
                    "short",
                    (Query(f"sum by (instance) ({names.CPU_QUOTA.name})", "{{instance}}"),),
                    help="Cores.",
                ),
                Panel(
                    "Pods that agents follow",
                    "short",
                    (
                        Query(f"sum by (instance) ({names.AGENT_PODS.name})", "{{instance}}"),
                        Query(f"sum({names.AGENT_LINES.name})", "on lines"),
                        Query(f"sum({names.AGENT_SATURATED.name})", "on lines out of reach"),
                        Query(f"sum({names.AGENT_APPLICATIONS.name})", "held at a rate"),
                        Query(f"sum({names.AGENT_ALIGNED.name})", "aligned"),
                        Query(f"sum({names.AGENT_GUESTS.name})", "guests"),
                    ),
                ),
                Panel(
                    "Writes of caps",
                    "short",
                    (
                        Query(_count(names.CGROUP_WRITES, by="result"), "{{result}}"),
                        Query(_count(names.AGENT_LINE_WRITES), "written for lines"),
                    ),
                    "bars",
                ),
                Panel(
                    "Caps that other programs changed",
                    "short",
                    (Query(_count(names.CGROUP_DRIFT, by="instance"), "{{instance}}"),),
                    "bars",
                ),
                Panel(
                    "Share of periods in which a cap held chunks back",
                    "percentunit",
                    (
                        Query(
                            f"{_rate(names.CPU_THROTTLED_PERIODS, by='instance')}"
                            f" / ({_rate(names.CPU_PERIODS, by='instance')} > 0)",
                            "{{instance}}",
                        ),
                    ),
                    help="A cap holds a chunk back in each period in which its program could use more CPU than that.",
                ),
                Panel(
                    "Largest phase error of aligned pods",
                    "s",
                    (
                        Query(f"max by (instance) ({names.PHASE_ERROR.name})", "{{instance}}"),
                        Query(f"max by (instance) ({names.CLOCK_BOUND.name})", "clock: {{instance}}"),
                    ),
                    help="By how much slices begin before or after their moments, and by how much agents may be wrong "
                    "about the leader's clock.",
                ),
                Panel(
                    "Slices moved",
                    "short",
                    (Query(_count(names.PHASE_MOVES, by="instance"), "{{instance}}"),),
                    "bars",
                ),
                Panel(
                    "Pods and containers held back by their caps",
                    "short",
                    (Query(_rate(names.CPU_THROTTLED, by="instance"), "{{instance}}"),),
                    help="Time for which caps held them back, per second: their average number.",
                ),
                Panel(
                    "Malformed files of workers",
                    "short",
                    (Query(_count(names.FILE_FAULTS, by="kind"), "{{kind}}"),),
                    "bars",
                ),
                Panel(
                    "Agents that may write caps",
                    "short",
                    (
                        Query(f"sum({names.MAY_WRITE.name})", "may write"),
                        Query(f"count({names.MAY_WRITE.name})", "all"),
                    ),
                ),
            ),
        ),
    ),
    pools=False,
)

CONTROL_PLANE = Dashboard(
    "punctual-control-plane",
    "Punctual / Control plane",
    (
        (
            "Decisions",
            (
                Panel("From the first sight of a job to its answer", "s", _quantiles(names.ADMISSION_DURATION)),
                Panel("Decisions", "reqps", (Query(_rate(names.ADMISSION_DECISIONS, by="result"), "{{result}}"),)),
                Panel("Duration of a step of a pool", "s", _quantiles(names.STEP_DURATION)),
                Panel(
                    "Events waiting for a pool", "short", (Query(_gauge(names.MAILBOX_DEPTH, fold="max"), "{{pool}}"),)
                ),
                Panel("Age of the oldest event", "s", (Query(_since(names.MAILBOX_OLDEST, by="pool"), "{{pool}}"),)),
                Panel("Lag of the event loop", "s", _quantiles(names.LOOP_LAG)),
            ),
        ),
        (
            "API server",
            (
                Panel("Writes by result", "reqps", (Query(_rate(names.WRITES, by="result"), "{{result}}"),)),
                Panel("Duration of a write", "s", _quantiles(names.WRITE_DURATION)),
                Panel(
                    "Writes waiting",
                    "short",
                    (Query(_gauge(names.WRITER_DEPTH, by="instance", fold="max"), "{{instance}}"),),
                ),
                Panel(
                    "Age of the oldest write", "s", (Query(_since(names.WRITER_OLDEST, by="instance"), "{{instance}}"),)
                ),
                Panel(
                    "Time since a watch last received anything",
                    "s",
                    (Query(_since(names.INFORMER_HEARD, by="resource"), "{{resource}}"),),
                ),
                Panel("TokenReviews", "reqps", (Query(_rate(names.TOKEN_REVIEWS, by="result"), "{{result}}"),)),
            ),
        ),
        (
            "Leadership and clocks",
            (
                Panel("Leader", "short", (Query(f"{names.LEADER.name}", "{{instance}}"),), width=THIRD),
                Panel(
                    "Time that a takeover has taken",
                    "s",
                    (Query(_since(names.TAKEOVER_BEGUN), "takeover"),),
                    width=THIRD,
                ),
                Panel("Epoch", "short", (Query(f"max({names.EPOCH.name})", "epoch"),), width=THIRD),
                Panel(
                    "Time for which API servers' clocks have disagreed",
                    "s",
                    (Query(_since(names.CLOCK_DOUBT), "doubt"),),
                    width=THIRD,
                ),
                Panel(
                    "Pools that are not led",
                    "short",
                    (Query(_gauge(names.POOLS_STOPPED, by="", fold="max"), "stopped"),),
                    width=THIRD,
                ),
                Panel(
                    "Time until a certificate expires",
                    "s",
                    (Query(f"min by (certificate) ({names.CERTIFICATE_END.name} > 0) - time()", "{{certificate}}"),),
                    width=THIRD,
                ),
            ),
        ),
    ),
)

DASHBOARDS = (DEADLINES, POOLS, NODES, CONTROL_PLANE)
