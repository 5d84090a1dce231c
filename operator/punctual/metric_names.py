"""Every metric of operator and agent, defined once: name, kind, help, labels.

Names are API, because dashboards and alerts use them. Units are base units. An age is exported as the time at which it
began, so that it also grows between two scrapes: ``time() - x``; 0 means that nothing has begun. Labels are bounded: a
pool's name, a namespace's (in at most `TENANTS` pairs with a pool), a TargetRate's (of at most `RATES`), a constant of
:mod:`punctual.reasons`, or a fixed word; never the name of a job or a pod. The operator's metrics come first, then the
agent's. A test checks these rules.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """Name and meaning of one metric. A counter's name ends in ``_total``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in the metric's unit."""


TENANTS: Final = 16
"""Pairs of pool and namespace with series of their own. Later ones share the namespace `OTHERS`."""
OTHERS: Final = "_others"

RATES: Final = 50
"""TargetRates with series of their own. Later ones have none until another is deleted."""

_SHORT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_STEP: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
_WAIT: Final = (2.0, 15.0, 60.0, 300.0, 1800.0, 14400.0)
_RATIO: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0)
_JOB: Final = ("pool", "namespace")
_RATE: Final = ("namespace", "name")
_SLACK: Final = (-3600.0, -600.0, -60.0, -10.0, 0.0, 2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)

# The operator: promises

OPERATOR_BUILD: Final = Metric("punctual_operator_build_info", "gauge", "1, with the version as label.", ("version",))
ADMISSION_DECISIONS: Final = Metric(
    "punctual_admission_decisions_total",
    "counter",
    "Decisions on jobs by answer (True, False, Unknown: the condition Admitted) and reason.",
    ("pool", "result", "reason"),
)
ADMISSION_DURATION: Final = Metric(
    "punctual_admission_duration_seconds",
    "histogram",
    "Time from when the leader first saw a job until its first decision was written.",
    buckets=_SHORT,
)
OFFER_LATENESS: Final = Metric(
    "punctual_offer_lateness_seconds",
    "histogram",
    "How much later than the requested deadline the deadline is that a refused job is offered.",
    ("pool",),
    buckets=_WAIT,
)
FIRST_CHUNK: Final = Metric(
    "punctual_first_chunk_seconds",
    "histogram",
    "Time from a promise until the job's first chunk ran.",
    ("pool",),
    buckets=_WAIT,
)
PROMISES_OPEN: Final = Metric(
    "punctual_promises_open", "gauge", "Promises that are neither kept nor missed.", ("pool",)
)
PROMISES_LATE: Final = Metric(
    "punctual_promises_late",
    "gauge",
    "Open promises of jobs in the state Late (forecast after the deadline, or given up), and those without a forecast.",
    ("pool",),
)
PROMISES_KEPT: Final = Metric(
    "punctual_promises_kept_total", "counter", "Jobs finished by their promised deadline.", _JOB
)
DEADLINE_MISSES: Final = Metric(
    "punctual_deadline_misses_total",
    "counter",
    "Broken promises by cause. Jobs that failed by their own fault are in `punctual_jobs_failed_total`.",
    (*_JOB, "reason"),
)
JOBS_FAILED: Final = Metric(
    "punctual_jobs_failed_total",
    "counter",
    "Admitted jobs that failed by their own fault (their image, program, input or results), by cause.",
    (*_JOB, "reason"),
)
STATISTICAL_KEPT: Final = Metric(
    "punctual_statistical_kept_total", "counter", "Statistically admitted jobs done by their deadline.", _JOB
)
STATISTICAL_MISSES: Final = Metric(
    "punctual_statistical_misses_total",
    "counter",
    "Statistically admitted jobs that were not done by their deadline, by cause.",
    (*_JOB, "reason"),
)
STATISTICAL_OPEN: Final = Metric(
    "punctual_statistical_open", "gauge", "Statistically admitted jobs that have not ended.", ("pool",)
)
PROCESSOR_SECONDS: Final = Metric(
    "punctual_processor_seconds_total",
    "counter",
    "Processor time of a namespace, by kind. Promised: what its promised jobs need and its windows reserve, counted "
    "when they are promised. Used: what chunks of promised work had. Leftover: what other chunks had, on processors "
    "that no promise needed. The last two are counted when a chunk ends.",
    (*_JOB, "kind"),
)
SHARE_PROMISED: Final = Metric(
    "punctual_share_promised_ratio",
    "gauge",
    "Part of a namespace's share of the pool (maxShare, namespaceShares) that is promised to it. 1: the share is used "
    "up. 0: nothing is promised, or it may have all of the pool.",
    _JOB,
)
UTILIZATION_BOUND: Final = Metric(
    "punctual_utilization_bound",
    "gauge",
    "Utilization up to which a pool with missRatio admits jobs (the bound). 0: no bound.",
    ("pool",),
)
MISS_RATIO: Final = Metric(
    "punctual_miss_ratio", "gauge", "Share of jobs that were late when the bound was last moved.", ("pool",)
)
FINISH_SLACK: Final = Metric(
    "punctual_finish_slack_seconds",
    "histogram",
    "Deadline minus finish of promised jobs that were completed. Negative: late.",
    ("pool",),
    buckets=_SLACK,
)
MARGIN_USED: Final = Metric(
    "punctual_margin_used_ratio",
    "histogram",
    "Share of its margin that a completed promised job used. Below 0: it finished before its margin. Above 1: late.",
    ("pool",),
    buckets=_RATIO,
)
SLACK: Final = Metric(
    "punctual_slack_seconds",
    "gauge",
    "Smallest slack (deadline minus forecast) of the open promises. Negative: one is late.",
    ("pool",),
)
PROGRESS: Final = Metric(
    "punctual_progress_ratio", "gauge", "Share of units done, over all unfinished promised jobs.", ("pool",)
)
JOBS_WAITING: Final = Metric("punctual_jobs_waiting", "gauge", "Jobs waiting for an answer or a chunk.", ("pool",))
PROCESSORS: Final = Metric("punctual_processors", "gauge", "Processors of the pool.", ("pool",))
PROCESSORS_FREE: Final = Metric("punctual_processors_free", "gauge", "Processors without a chunk.", ("pool",))
PROCESSORS_RUNNING: Final = Metric(
    "punctual_processors_running",
    "gauge",
    "Processors with a pod of a chunk, also those that their node no longer has.",
    ("pool",),
)
PROCESSORS_WANTED: Final = Metric(
    "punctual_processors_wanted",
    "gauge",
    "Processors that the pool lacked for a job that it refused in the last 10 minutes (`offer.processors.more`), the "
    "most of all such jobs. 0: none was refused for lack of processors.",
    ("pool",),
)
PROCESSORS_PROMISED: Final = Metric(
    "punctual_processors_promised",
    "gauge",
    "Processors with planned work that has not begun. 0 where a queue promises work without a processor (fast and "
    "statistical admission).",
    ("pool",),
)
FREE_UNTIL: Final = Metric(
    "punctual_free_until_timestamp_seconds",
    "gauge",
    "When planned work first begins on a processor that is free now. 0: no free processor has planned work.",
    ("pool",),
)
PROCESSORS_RESERVED: Final = Metric(
    "punctual_processors_reserved", "gauge", "Processors of reservations with an open window.", ("pool",)
)
NEXT_RESERVATION: Final = Metric(
    "punctual_reservation_begin_timestamp_seconds",
    "gauge",
    "When the next window of an accepted reservation begins. 0: none is booked.",
    ("pool",),
)
CHUNKS_CREATED: Final = Metric("punctual_chunks_created_total", "counter", "Pods created, by kind.", ("kind",))
GUEST_DECISIONS: Final = Metric(
    "punctual_guest_decisions_total",
    "counter",
    "Decisions about running chunks of guest jobs, by cause and by the reason of their events.",
    ("cause", "reason"),
)
RATE_TARGET: Final = Metric(
    "punctual_targetrate_target_ratio",
    "gauge",
    "The target in force of a TargetRate, as a share of the rate alone (rate Balanced: of its CPU). No "
    "series while its pods are not held.",
    _RATE,
)
RATE_RATIO: Final = Metric(
    "punctual_targetrate_rate_ratio",
    "gauge",
    "The rate of its slowest pod that was last measured, as a share of the rate alone.",
    _RATE,
)
RATE_ON_TARGET: Final = Metric(
    "punctual_targetrate_on_target",
    "gauge",
    "1 while rate and CPU are both within epsilon of the target (the condition OnTarget), otherwise 0.",
    _RATE,
)
RATE_SKEW: Final = Metric(
    "punctual_targetrate_skew_seconds",
    "gauge",
    "The largest error of the begin of a pod's slices, of a TargetRate with coscheduling Aligned.",
    _RATE,
)

# The operator: its own health

STEP_DURATION: Final = Metric(
    "punctual_step_duration_seconds", "histogram", "Duration of one Pool.step: events in, actions out.", buckets=_STEP
)
MAILBOX_DEPTH: Final = Metric("punctual_mailbox_depth", "gauge", "Events waiting for the planner.", ("pool",))
MAILBOX_OLDEST: Final = Metric(
    "punctual_mailbox_oldest_timestamp_seconds",
    "gauge",
    "When the oldest waiting event came. 0: none waits.",
    ("pool",),
)
WRITER_DEPTH: Final = Metric("punctual_writer_queue_depth", "gauge", "Writes waiting for the API server.")
WRITER_OLDEST: Final = Metric(
    "punctual_writer_oldest_timestamp_seconds", "gauge", "When the oldest waiting write was submitted. 0: none waits."
)
LOOP_LAG: Final = Metric(
    "punctual_loop_lag_seconds",
    "histogram",
    "Event-loop lag, measured twice a second: delay of due work that no queue counts.",
    buckets=_STEP,
)
WRITES: Final = Metric(
    "punctual_writes_total", "counter", "Writes to the API server by kind of object and result.", ("kind", "result")
)
WRITE_DURATION: Final = Metric(
    "punctual_write_duration_seconds",
    "histogram",
    "Duration of one write, from the request to the answer.",
    buckets=_SHORT,
)
INFORMER_HEARD: Final = Metric(
    "punctual_informer_received_timestamp_seconds", "gauge", "When the watch last received anything.", ("resource",)
)
LEADER: Final = Metric("punctual_leader", "gauge", "1 on the replica that leads, 0 on the others.")
EPOCH: Final = Metric("punctual_epoch", "gauge", "Highest epoch this replica has led with or seen.")
TAKEOVER_BEGUN: Final = Metric(
    "punctual_takeover_begin_timestamp_seconds", "gauge", "When this replica began its takeover. 0: none is under way."
)
TAKEOVER_MOVED: Final = Metric(
    "punctual_takeover_progress_timestamp_seconds",
    "gauge",
    "When the takeover last read or wrote. 0: none is under way.",
)
POOLS_STOPPED: Final = Metric(
    "punctual_pools_stopped", "gauge", "Pools without decisions, because their status cannot be written."
)
PLANNER_TICK: Final = Metric(
    "punctual_planner_tick_timestamp_seconds",
    "gauge",
    "When the pool that has been silent longest took its last step. 0: this replica leads no pool.",
)
CLOCK_DOUBT: Final = Metric(
    "punctual_clock_doubt_begin_timestamp_seconds",
    "gauge",
    "Since when the API server's answers have contradicted each other's clock. 0: they agree.",
)
CLOCK_DOUBTS: Final = Metric(
    "punctual_clock_doubts_total",
    "counter",
    "Ended doubts about the API server's time, by outcome: dismissed, followed (the clock was set).",
    ("outcome",),
)

# The operator: agents

AGENT_REPORTS: Final = Metric("punctual_agent_reports_total", "counter", "Accepted reports.")
EXCHANGE_REFUSALS: Final = Metric(
    "punctual_exchange_refusals_total",
    "counter",
    "Refused reports (unknownPod: pods in reports that have not ended), by cause.",
    ("reason",),
)
CONNECTIONS_CLOSED: Final = Metric(
    "punctual_connections_closed_total",
    "counter",
    "Connections that a port (reports, page, metrics) has closed itself, or that failed to shake hands, by cause.",
    ("port", "cause"),
)
AGENTS_SILENT: Final = Metric(
    "punctual_agents_silent", "gauge", "Nodes of pools without a report from the agent for 10 s."
)
TOKEN_REVIEWS: Final = Metric(
    "punctual_token_reviews_total", "counter", "TokenReviews requested, by result.", ("result",)
)
REPORTED_QUOTA: Final = Metric(
    "punctual_reported_quota_cores", "gauge", "CPU caps in force on chunk pods, from the last reports."
)
REPORTED_DRIFT: Final = Metric(
    "punctual_reported_drift", "gauge", "Caps changed by other programs, summed over the pods in the last reports."
)
CERTIFICATE_END: Final = Metric(
    "punctual_certificate_end_timestamp_seconds", "gauge", "Time at which the certificate expires.", ("certificate",)
)

# The agent

CGROUP_WRITES: Final = Metric(
    "punctual_cgroup_writes_total",
    "counter",
    "Writes of CPU caps and priorities, and of guests' memory marks, by result: written, refused, denied, vanished, "
    "failed.",
    ("result",),
)
CGROUP_DRIFT: Final = Metric(
    "punctual_cgroup_drift_total",
    "counter",
    "Caps, and priorities and memory marks of guests, that another program changed and the agent restored.",
)
CPU_QUOTA: Final = Metric(
    "punctual_cpu_quota_cores",
    "gauge",
    "CPU cap in force on a pod of this node. The series ends with the pod.",
    ("uid",),
)
CPU_PERIOD: Final = Metric(
    "punctual_cpu_period_seconds",
    "gauge",
    "CFS period in force on a pod of this node. The series ends with the pod.",
    ("uid",),
)
CPU_PERIODS: Final = Metric(
    "punctual_cpu_periods_total", "counter", "CFS periods in which chunk pods with a CPU cap ran, summed over pods."
)
CPU_THROTTLED_PERIODS: Final = Metric(
    "punctual_cpu_throttled_periods_total",
    "counter",
    "CFS periods in which a chunk pod or one of its containers used up its CPU cap, summed over pods.",
)
CPU_THROTTLED: Final = Metric(
    "punctual_cpu_throttled_seconds_total",
    "counter",
    "Time for which CPU caps held chunk pods back, summed over pods and containers.",
)
CPU_PRESSURE: Final = Metric(
    "punctual_node_cpu_pressure_seconds_total",
    "counter",
    "Time in which at least one task of the node waited for a CPU (PSI). Not exported where the kernel has no PSI.",
)
FILE_FAULTS: Final = Metric(
    "punctual_file_faults_total", "counter", "Malformed files of workers, by kind of fault.", ("kind",)
)
AGENT_EXCHANGES: Final = Metric(
    "punctual_agent_exchanges_total",
    "counter",
    "Exchanges with the operator by result: answered, or why there was no answer.",
    ("result",),
)
ANSWERED: Final = Metric(
    "punctual_agent_answered_timestamp_seconds", "gauge", "When the operator last answered, or when the agent started."
)
AGENT_EPOCH: Final = Metric("punctual_agent_epoch", "gauge", "Highest epoch of accepted set points.")
AGENT_PODS: Final = Metric("punctual_agent_pods", "gauge", "Pods that the agent follows.")
AGENT_LINES: Final = Metric(
    "punctual_agent_lines", "gauge", "Chunks that the agent keeps on lines by moving their caps."
)
AGENT_SATURATED: Final = Metric(
    "punctual_agent_lines_saturated", "gauge", "Those of them that need more CPU than their pool has on this node."
)
AGENT_LINE_WRITES: Final = Metric(
    "punctual_agent_line_writes_total", "counter", "Caps written to keep chunks on lines."
)
AGENT_APPLICATIONS: Final = Metric("punctual_agent_applications", "gauge", "Pods that the agent holds at a rate.")
AGENT_ALIGNED: Final = Metric(
    "punctual_agent_aligned", "gauge", "Those of them that are to get their slices at given moments."
)
PHASE_ERROR: Final = Metric(
    "punctual_agent_phase_error_seconds",
    "gauge",
    "Largest time by which a pod's slices begin before or after their moments, when the agent last looked.",
)
PHASE_MOVES: Final = Metric(
    "punctual_agent_phase_moves_total", "counter", "Times that the agent moved the slices of a pod's cgroup folder."
)
CLOCK_BOUND: Final = Metric(
    "punctual_agent_clock_bound_seconds",
    "gauge",
    "The agent's error about the leader's clock is at most this. 0: no answer has told of the clock yet.",
)
AGENT_GUESTS: Final = Metric(
    "punctual_agent_guests", "gauge", "Pods that the agent holds to what the node's own work leaves."
)
GUEST_CAPABILITY: Final = Metric(
    "punctual_agent_guest_capability",
    "gauge",
    "1 if this node holds guests by this means: cpu by the idle class or the least weight, memory by memory.high or "
    "the soft limit, disk by the least weight and the idle class. All 0 until the kubelet has made a cgroup.",
    ("resource", "kind"),
)
GUEST_SHARE: Final = Metric(
    "punctual_guest_cpu_share_ratio",
    "gauge",
    "Largest part of one contended CPU that guests take from a pod that is not BestEffort, by the weights of folders, "
    "until their cap falls. 0: it is not known.",
)
GUEST_MARK: Final = Metric(
    "punctual_guest_memory_mark_bytes",
    "gauge",
    "Memory that all guests of this node may have together. 0: there are none, or it is not known.",
)
GUEST_EXCESS: Final = Metric(
    "punctual_guest_memory_excess_bytes",
    "gauge",
    "Memory that guests of this node must give back by leaving: the kernel cannot take it from them.",
)
HOST_USE: Final = Metric(
    "punctual_host_cpu_cores", "gauge", "CPU that the node's own work used in the last second: all but guests."
)
GUEST_USE: Final = Metric("punctual_guest_cpu_cores", "gauge", "CPU that guests used in the last second.")
MAY_WRITE: Final = Metric(
    "punctual_agent_may_write", "gauge", "1 while the agent can write caps and holds its node's lock."
)
LOOK_DURATION: Final = Metric(
    "punctual_agent_look_duration_seconds",
    "histogram",
    "Duration of one pass over all pods of the node.",
    buckets=_STEP,
)
