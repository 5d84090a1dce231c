"""Every metric of operator and agent, once: name, kind, help, labels. Names are API: dashboards and alerts use them.

Base units; labels are bounded: a pool's name, a word of :mod:`punctual.reasons`, a fixed word; never a job's or a
pod's name. The operator's block comes first, the agent's second; a test holds the rules.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """What one metric is called and means. A counter's name ends in ``_total``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in the metric's unit."""


_SHORT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_STEP: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
_SLACK: Final = (-3600.0, -600.0, -60.0, -10.0, -1.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

# The operator: promises

OPERATOR_BUILD: Final = Metric("punctual_operator_build_info", "gauge", "1, with the version as label.", ("version",))
ADMISSION_DECISIONS: Final = Metric(
    "punctual_admission_decisions_total",
    "counter",
    "Decisions on jobs by answer (True, False, Unknown: the condition Admitted) and reason.",
    ("result", "reason"),
)
ADMISSION_DURATION: Final = Metric(
    "punctual_admission_duration_seconds",
    "histogram",
    "From a job's creation until its decision was written.",
    buckets=_SHORT,
)
PROMISES_OPEN: Final = Metric(
    "punctual_promises_open", "gauge", "Promises that are neither kept nor missed.", ("pool",)
)
PROMISES_KEPT: Final = Metric("punctual_promises_kept_total", "counter", "Jobs finished by their promised deadline.")
DEADLINE_MISSES: Final = Metric(
    "punctual_deadline_miss_total", "counter", "Promised deadlines that passed unkept, by cause.", ("reason",)
)
STATISTICAL_KEPT: Final = Metric(
    "punctual_statistical_kept_total", "counter", "Jobs let in statistically that were done by their deadline."
)
STATISTICAL_MISSES: Final = Metric(
    "punctual_statistical_miss_total",
    "counter",
    "Jobs let in statistically that were not done by their deadline, by cause.",
    ("reason",),
)
STATISTICAL_OPEN: Final = Metric(
    "punctual_statistical_open", "gauge", "Jobs let in statistically that have not come to an end.", ("pool",)
)
UTILIZATION_BOUND: Final = Metric(
    "punctual_utilization_bound",
    "gauge",
    "Need of the pool up to which a pool with missRatio lets jobs in; 0: it has no bound.",
    ("pool",),
)
MISS_RATIO: Final = Metric(
    "punctual_miss_ratio", "gauge", "Part of the jobs that were late when the bound was last moved.", ("pool",)
)
FINISH_SLACK: Final = Metric(
    "punctual_finish_slack_seconds",
    "histogram",
    "Deadline less finish of finished promised jobs; negative: late.",
    buckets=_SLACK,
)
SLACK: Final = Metric(
    "punctual_slack_seconds",
    "gauge",
    "Least deadline less forecast over open promises; negative: one is forecast late.",
    ("pool",),
)
PROGRESS: Final = Metric(
    "punctual_progress_ratio", "gauge", "Units done over units asked, over unfinished promised jobs.", ("pool",)
)
JOBS_WAITING: Final = Metric("punctual_jobs_waiting", "gauge", "Jobs that wait for an answer or a chunk.", ("pool",))
PROCESSORS: Final = Metric("punctual_processors", "gauge", "Processors of the pool.", ("pool",))
PROCESSORS_FREE: Final = Metric("punctual_processors_free", "gauge", "Processors without a chunk.", ("pool",))
CHUNKS_CREATED: Final = Metric("punctual_chunks_created_total", "counter", "Pods asked for, by kind.", ("kind",))

# The operator: its own health

STEP_DURATION: Final = Metric(
    "punctual_step_duration_seconds", "histogram", "One Pool.step: events in, actions out.", buckets=_STEP
)
MAILBOX_DEPTH: Final = Metric("punctual_mailbox_depth", "gauge", "Events that wait for the planner.", ("pool",))
MAILBOX_AGE: Final = Metric("punctual_mailbox_age_seconds", "gauge", "Age of the oldest waiting event.", ("pool",))
WRITER_DEPTH: Final = Metric("punctual_writer_queue_depth", "gauge", "Writes that wait for the API server.")
WRITER_AGE: Final = Metric("punctual_writer_queue_age_seconds", "gauge", "Age of the oldest write that waits.")
LOOP_LAG: Final = Metric(
    "punctual_loop_lag_seconds",
    "histogram",
    "How late the operator did what was due, looked at twice a second: what waits before it can be counted.",
    buckets=_STEP,
)
WRITES: Final = Metric(
    "punctual_writes_total", "counter", "Writes to the API server by kind of object and result.", ("kind", "result")
)
WRITE_DURATION: Final = Metric(
    "punctual_write_duration_seconds", "histogram", "One write, from sending to the answer.", buckets=_SHORT
)
INFORMER_STALENESS: Final = Metric(
    "punctual_informer_staleness_seconds", "gauge", "Since the watch last said anything.", ("resource",)
)
LEADER: Final = Metric("punctual_leader", "gauge", "1 on the replica that leads, 0 on the others.")
EPOCH: Final = Metric("punctual_epoch", "gauge", "Highest epoch this replica has led with or seen.")
TAKEOVER_AGE: Final = Metric(
    "punctual_takeover_age_seconds", "gauge", "Since this replica began to take over; 0 when that is done."
)
TAKEOVER_STALLED: Final = Metric(
    "punctual_takeover_stalled_seconds", "gauge", "Since the takeover last read or wrote anything; 0 when it is done."
)
POOLS_STOPPED: Final = Metric(
    "punctual_pools_stopped", "gauge", "Pools in which nothing is decided, because their status cannot be written."
)
PLANNER_AGE: Final = Metric("punctual_planner_age_seconds", "gauge", "Since the planner last ticked.")
CLOCK_DOUBT: Final = Metric(
    "punctual_clock_doubt_seconds",
    "gauge",
    "For how long answers of the API server have contradicted each other about the time; 0: they agree.",
)
CLOCK_DOUBTS: Final = Metric(
    "punctual_clock_doubts_total",
    "counter",
    "Doubts about the API server's time that ended, by outcome: dismissed, followed (its clock was set).",
    ("outcome",),
)

# The operator: agents

AGENT_REPORTS: Final = Metric("punctual_agent_reports_total", "counter", "Reports that counted.")
EXCHANGE_REFUSALS: Final = Metric(
    "punctual_exchange_refusals_total",
    "counter",
    "Reports (unknownPod: pods in reports) refused, by cause.",
    ("reason",),
)
AGENTS_SILENT: Final = Metric(
    "punctual_agents_silent", "gauge", "Nodes of our pools whose agent has not reported for 10 s."
)
TOKEN_REVIEWS: Final = Metric(
    "punctual_token_reviews_total", "counter", "TokenReviews asked for, by result.", ("result",)
)
REPORTED_QUOTA: Final = Metric(
    "punctual_reported_quota_cores", "gauge", "CPU caps in force on our pods, summed over the agents' last reports."
)
REPORTED_DRIFT: Final = Metric(
    "punctual_reported_drift", "gauge", "Caps that something else changed, summed over the pods in the last reports."
)
CERTIFICATE_END: Final = Metric(
    "punctual_certificate_end_timestamp_seconds", "gauge", "When the certificate expires.", ("certificate",)
)

# The agent

CGROUP_WRITES: Final = Metric(
    "punctual_cgroup_writes_total",
    "counter",
    "Writes of CPU caps by result: written, refused, denied, vanished, failed.",
    ("result",),
)
CGROUP_DRIFT: Final = Metric(
    "punctual_cgroup_drift_total", "counter", "Caps that something else had changed and the agent put back."
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
FILE_FAULTS: Final = Metric(
    "punctual_file_faults_total", "counter", "Files of workers that were not what they should be, by kind.", ("kind",)
)
AGENT_EXCHANGES: Final = Metric(
    "punctual_agent_exchanges_total",
    "counter",
    "Exchanges with the operator by result: answered, or why there was no answer.",
    ("result",),
)
ANSWER_AGE: Final = Metric(
    "punctual_agent_answer_age_seconds", "gauge", "Since the operator last answered; before that since the start."
)
AGENT_EPOCH: Final = Metric("punctual_agent_epoch", "gauge", "Highest epoch the agent has taken set points from.")
AGENT_PODS: Final = Metric("punctual_agent_pods", "gauge", "Pods the agent follows.")
MAY_WRITE: Final = Metric(
    "punctual_agent_may_write", "gauge", "1 while the agent can write caps and holds its node's lock."
)
LOOK_DURATION: Final = Metric(
    "punctual_agent_look_duration_seconds", "histogram", "One look at all pods of the node.", buckets=_STEP
)
